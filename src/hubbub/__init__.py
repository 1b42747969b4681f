"""hubbub: the noise of a crowd in which no single voice can be made out.

    import hubbub as hb
    hb.Laplace.of(sensitivity=1, epsilon=0.5).release(42)

Tables: `open` a file, ask it SQL, get a `Release`. Units and sensitivity: `Unit`, `Neighbours`,
`Sensitivity`, `Bounded`. Queries on rows in memory: `count`, `counts`, `fraction`, `histogram`, `linear`.
Mechanisms: `Laplace`, `Gaussian`, `least_noise`; choices and thresholds; the local model. What comes out:
`Release`, with its `Loss`; `calibrate`, `parallel`. Models: the module `learn`. For students: `Universe`.

A name is loaded when it is first used, so that `import hubbub` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.bounded import Bounded, Sensitivity
    from hubbub.counting import count, counts, fraction, histogram, linear
    from hubbub.dataset import Dataset, open  # noqa: A004 - hubbub.open is its name
    from hubbub.errors import Halted, HubbubError, InvalidInput, Refused, Unsupported
    from hubbub.ledger import Ledger
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
    from hubbub.spending import Spending
    from hubbub.unit import Neighbours, Unit, Window
    from hubbub.universe import Universe

__all__ = [
    "AboveThreshold",
    "Bounded",
    "Budget",
    "Dataset",
    "Exponential",
    "Gaussian",
    "Halted",
    "HubbubError",
    "InvalidInput",
    "Laplace",
    "LaplaceMax",
    "LaplaceMaxWithGap",
    "Ledger",
    "Loss",
    "Mechanism",
    "Neighbours",
    "PermuteAndFlip",
    "RandomizedResponse",
    "Refused",
    "Release",
    "Sensitivity",
    "Spending",
    "TopK",
    "UnaryEncoding",
    "Unit",
    "Universe",
    "Unsupported",
    "Window",
    "calibrate",
    "count",
    "counts",
    "fraction",
    "from_json",
    "histogram",
    "least_noise",
    "linear",
    "measure_winner",
    "open",
    "parallel",
]

_HOMES = {
    "bounded": ("Bounded", "Sensitivity"),
    "dataset": ("Dataset", "open"),
    "counting": ("count", "counts", "fraction", "histogram", "linear"),
    "errors": ("Halted", "HubbubError", "InvalidInput", "Refused", "Unsupported"),
    "ledger": ("Ledger",),
    "loss": ("Budget", "Loss", "calibrate", "parallel"),
    "release": ("Release",),
    "spending": ("Spending",),
    "unit": ("Neighbours", "Unit", "Window"),
    "universe": ("Universe",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module it lives in, loaded now; `hubbub.learn` is a module of its own."""
    if name == "learn":
        return import_module("hubbub.learn")
    if name not in __all__:
        raise AttributeError(f"module 'hubbub' has no attribute {name!r}")
    value = getattr(import_module(f"hubbub.{_HOME.get(name, 'mechanisms')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
