"""DP-SGD: differentially private training of any torch model.

`make_private` turns an ordinary torch model, optimizer and dataset into a private training run. Names are
loaded on first use, because torch is an optional dependency.
"""

from typing import TYPE_CHECKING

from hubbub.lazy_exports import export_lazily

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

__getattr__, __dir__ = export_lazily(__name__, _HOMES, extra="training")
