"""Checkpoints: a run put aside, and taken up where it was.

A checkpoint holds weights, optimizer states, averages and the step: all covered by the run's loss, which was
charged. It is taken up once: two runs from one checkpoint would show two answers for one charge.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hubbub.errors import InvalidInput, Refused
from hubbub.learn.lots import Shuffled
from hubbub.loss.stored import loss_to_json

if TYPE_CHECKING:
    from hubbub.learn.trainer import Trainer

__all__ = ["resume", "save"]

_FORMAT = 1


def save(trainer: "Trainer", path: str | Path) -> None:
    """Write a started run to a file; it may not be shared: only a release may."""
    lots = trainer.schedule.lots
    if isinstance(lots, Shuffled) and trainer.step % lots.per_epoch:
        raise InvalidInput(
            "the run is within an epoch of shuffled lots",
            why="the rest of its order would have to be kept, or a unit could be drawn twice",
            fix=f"save after a multiple of {lots.per_epoch} steps",
        )
    torch.save(
        {
            "hubbub": "a checkpoint of a private run: not a release",
            "format": _FORMAT,
            "taken up": False,
            "loss": loss_to_json(trainer.loss),
            "step": trainer.step,
            "model": trainer.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
            "averaged": trainer.averaged,
            "clips": trainer.clips,
        },
        path,
    )


def resume(trainer: "Trainer", path: str | Path) -> None:
    """Take up a run that was saved: the trainer must be made with the same settings.

    Guarantee: the steps that are left are those that were charged, and are taken once.
    Assumes: nobody keeps a copy of the file.
    """
    stored = _read(path)
    if stored["loss"] != loss_to_json(trainer.loss):
        raise InvalidInput(
            "the checkpoint is of a run with another loss",
            why="what is left to do would not be what was charged",
            fix="make the trainer with the same rate, steps and sigma",
        )
    if stored["taken up"]:
        raise Refused(
            "the checkpoint was taken up before",
            why="its remaining steps would be shown twice and were charged once",
            fix="save again after resuming, and resume from the newer file; or train, and pay, anew",
        )
    torch.save({**stored, "taken up": True}, path)
    trainer.model.load_state_dict(stored["model"])
    for optimizer, state in zip(trainer.optimizers, stored["optimizers"], strict=True):
        optimizer.load_state_dict(state)
    trainer.averaged = stored["averaged"]
    trainer.clips = stored["clips"]
    trainer._step = stored["step"]  # noqa: SLF001 - nobody else sets it


def _read(path: str | Path) -> dict[str, Any]:
    try:
        stored = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001 - of many kinds, and none says more than this
        stored = None
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise InvalidInput(
            "the file is not a checkpoint of this version",
            why="it cannot be read",
            fix="pass a file that trainer.save wrote",
        )
    return stored
