"""Examples stay apart at every step: as it was before, so that each attack finds what it looks for."""

from unittest import mock

from hubbub.training import make_private
from hubbub.training.per_example_gradients import LayerRules


def looked_at_once(*args, **kwargs):
    """A46: examples are seen to stay apart before the first step, and never again."""
    trainer = make_private(*args, **kwargs)
    if isinstance(trainer._method.method, LayerRules):
        trainer._method.method.compares_traces = False
    return trainer


class resumed_by_the_file:  # noqa: N801 - named as the other mutants are
    """A47: whether somebody went on from a checkpoint is written in the file alone."""

    @staticmethod
    def resume(trainer, path):
        with mock.patch("hubbub.training.checkpoint.claim_continuation", return_value=True):
            trainer.resume(path)


def forked(trainer):
    """A41: a fork of a run goes on like the run."""
    trainer._refuse_forks = lambda: None
    return trainer
