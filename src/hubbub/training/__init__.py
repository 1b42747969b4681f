"""DP-SGD: differentially private training of any torch model.

`make_private` makes a private training run of an ordinary torch model, optimizer and data. A name is loaded
when
it is first used: torch is for who trains with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.training.batch_sampling import FixedSizeSampling, PoissonSampling, ShuffledSampling, max_steps
    from hubbub.training.optimizers import CorrectedAdam
    from hubbub.training.schedule import AdaptiveClipping
    from hubbub.training.trainer import Trainer, make_private

__all__ = [
    "AdaptiveClipping",
    "CorrectedAdam",
    "FixedSizeSampling",
    "PoissonSampling",
    "ShuffledSampling",
    "Trainer",
    "make_private",
    "max_steps",
]

_HOMES = {
    "batch_sampling": ("FixedSizeSampling", "PoissonSampling", "ShuffledSampling", "max_steps"),
    "optimizers": ("CorrectedAdam",),
    "schedule": ("AdaptiveClipping",),
    "trainer": ("Trainer", "make_private"),
}

_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module it lives in, loaded now."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.training' has no attribute {name!r}")
    try:
        home = import_module(f"hubbub.training.{_HOME[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hubbub.training.{name} needs torch: pip install hubbub[learn]", name="torch"
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub.training)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
