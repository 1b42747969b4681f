"""hubbub: the noise of a crowd in which no single voice can be made out."""

from hubbub.bounded import Bounded, Sensitivity
from hubbub.errors import Halted, HubbubError, InvalidInput, Refused, Unsupported
from hubbub.loss import Budget, Loss
from hubbub.mechanisms import Gaussian, Laplace, Mechanism, from_json, least_noise
from hubbub.release import Release
from hubbub.unit import Neighbours, Unit

__all__ = [
    "Bounded",
    "Budget",
    "Gaussian",
    "Halted",
    "HubbubError",
    "InvalidInput",
    "Laplace",
    "Loss",
    "Mechanism",
    "Neighbours",
    "Refused",
    "Release",
    "Sensitivity",
    "Unit",
    "Unsupported",
    "from_json",
    "least_noise",
]
