"""Differentially private queries, models and accounting.

    import hubbub as hb
    hb.Laplace.of(sensitivity=1, epsilon=0.5).release(42)

Tables: `open` a file, ask it SQL, get a `Release`. Units and sensitivity: `Unit`, `Neighbours`,
`Sensitivity`, `Bounded`. Queries on rows in memory: `count`, `counts`, `fraction`, `histogram`, `linear`.
Mechanisms: `Laplace`, `Gaussian`, `choose_additive_noise`; choices and thresholds; the local model. Output:
`Release`, with its `PrivacyLoss`; `calibrate`, `parallel_composition`. Models: the packages
`training` and `estimators`. For students: `Universe`.

A name is loaded when it is first used, so that `import hubbub` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub import audit as audit
    from hubbub import estimators as estimators
    from hubbub import training as training
    from hubbub.accounting import Budget, PrivacyLoss, calibrate, parallel_composition
    from hubbub.accounting.in_memory_account import InMemoryAccount
    from hubbub.dataset import Dataset
    from hubbub.dataset_opening import open  # noqa: A004 - hubbub.open is its name
    from hubbub.errors import Halted, HubbubError, InvalidInput, Refused, Unsupported
    from hubbub.ledger import Ledger
    from hubbub.mechanisms import (
        AboveThreshold,
        Exponential,
        Gaussian,
        Laplace,
        Mechanism,
        PermuteAndFlip,
        RandomizedResponse,
        ReportNoisyMax,
        ReportNoisyMaxWithGap,
        TopK,
        UnaryEncoding,
        choose_additive_noise,
        from_json,
        select_and_measure,
    )
    from hubbub.release import Release
    from hubbub.remote import connect
    from hubbub.sensitivity import Bounded, Sensitivity
    from hubbub.synthesis.synopsis import Synopsis
    from hubbub.textbook import Universe, count, counts, fraction, histogram, linear
    from hubbub.unit import Neighbours, Unit, Window

__version__: str

__all__ = [
    "AboveThreshold",
    "Bounded",
    "Budget",
    "Dataset",
    "Exponential",
    "Gaussian",
    "Halted",
    "HubbubError",
    "InMemoryAccount",
    "InvalidInput",
    "Laplace",
    "Ledger",
    "Mechanism",
    "Neighbours",
    "PermuteAndFlip",
    "PrivacyLoss",
    "RandomizedResponse",
    "Refused",
    "Release",
    "ReportNoisyMax",
    "ReportNoisyMaxWithGap",
    "Sensitivity",
    "Synopsis",
    "TopK",
    "UnaryEncoding",
    "Unit",
    "Universe",
    "Unsupported",
    "Window",
    "calibrate",
    "choose_additive_noise",
    "connect",
    "count",
    "counts",
    "fraction",
    "from_json",
    "histogram",
    "linear",
    "open",
    "parallel_composition",
    "select_and_measure",
]

_HOMES = {
    "accounting": ("Budget", "PrivacyLoss", "calibrate", "parallel_composition"),
    "accounting.in_memory_account": ("InMemoryAccount",),
    "dataset": ("Dataset",),
    "dataset_opening": ("open",),
    "errors": ("Halted", "HubbubError", "InvalidInput", "Refused", "Unsupported"),
    "ledger": ("Ledger",),
    "release": ("Release",),
    "remote": ("connect",),
    "sensitivity": ("Bounded", "Sensitivity"),
    "synthesis.synopsis": ("Synopsis",),
    "textbook": ("Universe", "count", "counts", "fraction", "histogram", "linear"),
    "unit": ("Neighbours", "Unit", "Window"),
}
_PACKAGES = ("audit", "estimators", "training")
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name, or a package of models or audits, when it is first used."""
    if name == "__version__":
        return import_module("importlib.metadata").version("hubbub")
    if name in _PACKAGES:
        return import_module(f"hubbub.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'hubbub' has no attribute {name!r}")
    value = getattr(import_module(f"hubbub.{_HOME.get(name, 'mechanisms')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
