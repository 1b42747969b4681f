"""hubbub: the noise of a crowd in which no single voice can be made out.

    import hubbub as hb
    hb.Laplace.of(sensitivity=1, epsilon=0.5).release(42)

Units and sensitivity: `Unit`, `Neighbours`, `Sensitivity`, `Bounded`. Queries on rows in memory: `count`,
`counts`, `fraction`, `histogram`, `linear`. Mechanisms: `Laplace`, `Gaussian`, `least_noise`; choices and
thresholds; the local model. What comes out: `Release`, with its `Loss`; `calibrate`, `parallel`. For
students: `Universe`.
"""

from hubbub.bounded import Bounded, Sensitivity
from hubbub.counting import count, counts, fraction, histogram, linear
from hubbub.errors import Halted, HubbubError, InvalidInput, Refused, Unsupported
from hubbub.loss import Budget, Loss, calibrate, parallel
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    Gaussian,
    Laplace,
    LaplaceMax,
    LaplaceMaxWithGap,
    Mechanism,
    PermuteAndFlip,
    RandomizedResponse,
    TopK,
    UnaryEncoding,
    from_json,
    least_noise,
    measure_winner,
)
from hubbub.release import Release
from hubbub.unit import Neighbours, Unit
from hubbub.universe import Universe

__all__ = [
    "AboveThreshold",
    "Bounded",
    "Budget",
    "Exponential",
    "Gaussian",
    "Halted",
    "HubbubError",
    "InvalidInput",
    "Laplace",
    "LaplaceMax",
    "LaplaceMaxWithGap",
    "Loss",
    "Mechanism",
    "Neighbours",
    "PermuteAndFlip",
    "RandomizedResponse",
    "Refused",
    "Release",
    "Sensitivity",
    "TopK",
    "UnaryEncoding",
    "Unit",
    "Universe",
    "Unsupported",
    "calibrate",
    "count",
    "counts",
    "fraction",
    "from_json",
    "histogram",
    "least_noise",
    "linear",
    "measure_winner",
    "parallel",
]
