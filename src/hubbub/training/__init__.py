"""DP-SGD: differentially private training of any torch model.

`make_private` turns an ordinary torch model, optimizer and dataset into a private training run. Names are
loaded on first use, because torch is an optional dependency.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.training.batch_sampling import PoissonSampler, ShuffledSampler, ShuffledSampling, max_steps
    from hubbub.training.clipping_schedule import AdaptiveClipping
    from hubbub.training.optimizers import CorrectedAdam
    from hubbub.training.trainer import Trainer
    from hubbub.training.trainer_setup import make_private

__all__ = [
    "AdaptiveClipping",
    "CorrectedAdam",
    "PoissonSampler",
    "ShuffledSampler",
    "ShuffledSampling",
    "Trainer",
    "make_private",
    "max_steps",
]

_HOMES = {
    "batch_sampling": ("ShuffledSampling", "PoissonSampler", "ShuffledSampler", "max_steps"),
    "optimizers": ("CorrectedAdam",),
    "clipping_schedule": ("AdaptiveClipping",),
    "trainer": ("Trainer",),
    "trainer_setup": ("make_private",),
}

_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.training' has no attribute {name!r}")
    try:
        home = import_module(f"hubbub.training.{_HOME[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hubbub.training.{name} needs torch: pip install hubbub[training]", name="torch"
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
