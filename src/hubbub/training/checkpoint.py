"""At most one continuation of a checkpoint for each charge.

A file can be copied, and says nothing of its copies. So who goes on from a checkpoint is told apart by what
nobody can copy by copying the file: a line in the ledger that paid for the run, under the checkpoint's mark;
or, where no ledger paid, the memory of the process that saved it. Elsewhere nobody can know, and the
continuation is paid for like a run of its own.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.serialization import loss_from_json, loss_to_json
from hubbub.errors import InvalidInput, Refused
from hubbub.output_files import check_output_path, write_output
from hubbub.training.batch_sampling import ShuffledSampling
from hubbub.training.schedule import AdaptiveClipping
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.training.trainer import Trainer

__all__ = [
    "give_back",
    "give_up",
    "has_paid",
    "is_first",
    "is_ledger",
    "is_there",
    "note",
    "refuse_place",
    "resume",
    "save",
]


@dataclass
class _Memory:
    """The checkpoints that this process wrote."""

    process: int = field(default_factory=os.getpid)
    payers: dict[str, Any] = field(default_factory=dict)
    """By their marks: the account that paid for the run, if one did."""
    left: set[str] = field(default_factory=set)
    """Those that nobody went on from."""


_memory = _Memory()
_busy = threading.Lock()


def is_ledger(account: Any) -> bool:
    """Whether an account knows by a key what was charged before, in any process."""
    return callable(getattr(account, "begin", None))


def note(account: Any, mark: str) -> None:
    """A checkpoint is written here, of a run that this account paid for."""
    with _busy:
        _ours().payers[mark] = account
        _ours().left.add(mark)


def has_paid(account: Any, mark: str) -> bool:
    """Whether this very account paid for the run of a checkpoint, as far as this process remembers."""
    with _busy:
        payers = _ours().payers
        return mark in payers and payers[mark] is account


def is_first(account: Any, mark: str, unit: Unit) -> bool:
    """Whether nobody went on from this checkpoint yet; from now on somebody has.

    Guarantee: true at most once for one mark, among all processes that ask the same ledger; without a ledger,
        only in the process that wrote the checkpoint, with the account that paid, and once.
    Assumes: the ledger is not put back to an earlier state.
    Proof: docs/proofs/dpsgd.md, "A run"
    """
    if is_ledger(account):
        what = "training, gone on with from a checkpoint"
        return bool(account.begin(what, PrivacyLoss.pure(0), unit=unit, key=f"checkpoint {mark}").is_new)
    if not has_paid(account, mark):
        return False
    with _busy:
        is_left = mark in _ours().left
        _ours().left.discard(mark)
        return is_left


def give_back(account: Any, mark: str) -> None:
    """It failed before anybody went on: what this process remembers is as it was. A ledger's line stays."""
    if not is_ledger(account):
        note(account, mark)


def _ours() -> _Memory:
    """What this process remembers: a fork remembers nothing, or two would go on."""
    global _memory  # noqa: PLW0603 - one for each process
    if _memory.process != os.getpid():
        _memory = _Memory()
    return _memory


# Checkpoints: a run put aside, and taken up where it was.
#
# A checkpoint holds weights, optimizer states, averages and the step: all covered by the run's loss, which
# was
# charged. It is taken up once, and not at all after the run that wrote it went on: two runs from one
# checkpoint, or from copies of it, would show two answers for one charge (`once`). Where that run died, it is
# taken up for a charge of its own.
#
# Proved in docs/proofs/dpsgd.md, "A run

_FORMAT = 5
_ONCE_MORE = "training, steps once more"


def save(trainer: "Trainer", path: Path, mark: str) -> None:
    """Write a started run to a file; it may not be shared: only a release may. What is in it is marked."""
    lots = trainer.schedule.lots
    if isinstance(lots, ShuffledSampling) and trainer.step % lots.per_epoch:
        raise InvalidInput(
            "the run is within an epoch of shuffled lots",
            why="the rest of its order would have to be kept, or a unit could be drawn twice",
            fix=f"save after a multiple of {lots.per_epoch} steps",
        )
    with _alone(path):
        _write(_stored(trainer, mark), path)


def refuse_place(given: str | Path) -> Path:
    """Where a checkpoint will be: never over rows or a ledger."""
    path = Path(given).resolve()
    if not path.parent.is_dir():
        raise InvalidInput(
            "the folder that the checkpoint should be in is not there",
            why="it would have nowhere to go",
            fix="make the folder first",
        )
    return check_output_path(path)


def is_there(path: Path, mark: str) -> bool:
    """Whether the file is this checkpoint."""
    try:
        return bool(_read(path)["mark"] == mark)
    except InvalidInput:
        return False


def _stored(trainer: "Trainer", mark: str) -> dict[str, Any]:
    return {
        "hubbub": "a checkpoint of a private run: not a release",
        "format": _FORMAT,
        "mark": mark,
        "taken up": False,
        "paid": trainer.is_paid,
        "key": trainer.key,
        "unit": _unit(trainer),
        "loss": loss_to_json(trainer.schedule.lots.loss),
        "more": None if trainer.more is None else loss_to_json(trainer.more),
        "left": _left(trainer, trainer.step),
        "step": trainer.step,
        "model": trainer.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "averaged": trainer.averaged,
        "clips": trainer.clips,
        "settings": _settings(trainer, trainer.step),
    }


def _unit(trainer: "Trainer") -> list[str | None]:
    return [trainer.unit.key, trainer.unit.neighbours.value]


def _settings(trainer: "Trainer", step: int) -> dict[str, Any]:
    """What must be the same for the rest of a run: what is trained, by what, how clipped and divided."""
    held = trainer.model.state_dict().items()
    clips = trainer.schedule.clips
    at = min(step, trainer.steps - 1)
    return {
        "model": {name: list(x.shape) if isinstance(x, torch.Tensor) else None for name, x in held},
        "optimizers": [
            [type(one).__name__, *(len(group["params"]) for group in one.param_groups)]
            for one in trainer.optimizers
        ],
        "average": sorted(trainer.averaged),
        "layers": [group.name for group in trainer.schedule.groups],
        "clip": [None if isinstance(clip, AdaptiveClipping) else float(clip(at)) for clip in clips],
        "lot": trainer.schedule.lot,
    }


def give_up(trainer: "Trainer", path: Path, mark: str) -> None:
    """The run that wrote this goes on itself: so nobody else may. Where somebody else may, it may not."""
    try:
        with _claimed(path) as stored:
            is_ours = stored["mark"] == mark and not stored["taken up"]
            stored["taken up"] |= is_ours
    except InvalidInput:
        is_ours = False
    # The file is one of perhaps several copies: who has another one has asked as well.
    if not is_ours or not is_first(trainer._account, mark, trainer.unit):  # noqa: SLF001 - nobody else asks
        raise Refused(
            "the checkpoint of this run was taken up, or is not where it was saved",
            why="who has it goes on from there, and the same steps would be shown twice for one charge",
            fix="go on with the run that took it up, or put the file back; or train, and pay, anew",
        )


def _left(trainer: "Trainer", step: int) -> str:
    """What the steps from this one on cost: the same in all can be in another order."""
    lots = trainer.schedule.lots
    return loss_to_json(lots.loss_of(range(step, lots.steps))) if step < lots.steps else ""


def resume(trainer: "Trainer", path: Path, *, again: bool = False) -> bool:
    """Take up a run that was saved, and say whether the trainer's account paid for it.

    Guarantee: the steps that are left are those that were charged, and for one charge they are taken once,
        from whichever copy of the file; `again`, where they may have been taken before, they are charged
        once more.
    Assumes: what `once.is_first` does.
    Proof: docs/proofs/dpsgd.md, "A run"
    """
    taken: list[str] = []
    try:
        with _as_before(trainer), _claimed(path) as stored:
            return _taken_up(trainer, stored, taken, again=again)
    except BaseException:
        for mark in taken:
            give_back(trainer._account, mark)  # noqa: SLF001 - nobody else asks
        raise


def _taken_up(trainer: "Trainer", stored: dict[str, Any], taken: list[str], *, again: bool) -> bool:
    _refuse_another(trainer, stored)
    if stored["taken up"] and not again:
        raise _taken_before()
    others = [
        name
        for name, value in _settings(trainer, stored["step"]).items()
        if stored["settings"][name] != value
    ]
    if others:
        raise InvalidInput(
            f"the checkpoint is of a run with another {others[0]}",
            why="it cannot be gone on with by this one",
            fix="make the trainer with the same model, optimizers and settings; the file is as it was",
        )
    _load(trainer, stored)
    is_paid = _is_paid(trainer, stored)
    first = not stored["taken up"] and is_first(trainer._account, stored["mark"], trainer.unit)  # noqa: SLF001
    if first:
        taken.append(stored["mark"])
    elif is_paid or stored["taken up"] or trainer._account is None:  # noqa: SLF001
        if not again:
            raise _taken_before()
        _take_again(trainer, stored, is_paid=is_paid)
    stored["taken up"] = True
    return is_paid


def _is_paid(trainer: "Trainer", stored: dict[str, Any]) -> bool:
    """Whether the trainer's account paid for the run; where not, it pays for the whole when it starts.

    A ledger is asked, and where it had not paid, it has then.
    """
    account, key = trainer._account, stored["key"]  # noqa: SLF001 - nobody else pays
    if account is None and stored["paid"]:
        raise InvalidInput(
            "the trainer has no account",
            why="an account paid for this run, and knows whether somebody went on from here",
            fix="make the trainer with the same account=",
        )
    if account is None or not stored["paid"]:
        return False
    if not is_ledger(account):
        return has_paid(account, stored["mark"])
    if key is None:
        return False
    trainer.key = key
    if trainer._pay(trainer._what, trainer.schedule.lots.loss, key) and trainer.more is not None:  # noqa: SLF001
        trainer._pay(_ONCE_MORE, trainer.more)  # noqa: SLF001
    return True


def _take_again(trainer: "Trainer", stored: dict[str, Any], *, is_paid: bool) -> None:
    """The steps that are left count once more."""
    if stored["step"] < trainer.steps:
        left = trainer.schedule.lots.loss_of(range(stored["step"], trainer.steps))
        trainer.more = left if trainer.more is None else trainer.more + left
        stored["more"] = loss_to_json(trainer.more)
        if is_paid:
            trainer._pay(f"{_ONCE_MORE}, from {stored['step'] + 1} on", left)  # noqa: SLF001


def _taken_before() -> Refused:
    return Refused(
        "the checkpoint was taken up before, or its run went on, or nobody knows whether",
        why="its remaining steps would be shown twice and were charged once",
        fix="resume from the newest file, with the ledger that paid, or in the process that saved it; if its "
        "run died, pay for its last steps again: again=True",
    )


def _refuse_another(trainer: "Trainer", stored: dict[str, Any]) -> None:
    """The same unit, and the same steps to do."""
    if stored["unit"] != _unit(trainer):
        raise InvalidInput(
            "the checkpoint is of a run that protects another unit",
            why="what is left to do would protect somebody else, or too little",
            fix="make the trainer with the same units",
        )
    costs = loss_to_json(trainer.schedule.lots.loss), _left(trainer, stored["step"])
    if (stored["loss"], stored["left"]) != costs:
        raise InvalidInput(
            "the checkpoint is of a run with another loss",
            why="what is left to do would not be what was charged",
            fix="make the trainer with the same rate, steps and sigma",
        )


def _load(trainer: "Trainer", stored: dict[str, Any]) -> None:
    """The trainer as it was saved."""
    trainer.more = None if stored["more"] is None else loss_from_json(stored["more"])
    trainer.averaged, trainer.clips = stored["averaged"], stored["clips"]
    trainer._step = stored["step"]  # noqa: SLF001 - nobody else sets it
    try:
        trainer.model.load_state_dict(stored["model"])
        for optimizer, state in zip(trainer.optimizers, stored["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    except Exception as error:
        raise InvalidInput(
            "the checkpoint does not fit the model or its optimizers",
            why=f"they cannot take it up: {type(error).__name__}",
            fix="make the trainer with the same model and optimizers; the file is as it was",
        ) from error


@contextmanager
def _as_before(trainer: "Trainer") -> Iterator[None]:
    """All of the trainer is as it was, if this fails: a run from others' weights would cost more."""
    own = trainer.more, trainer.averaged, trainer.clips, trainer.step
    tensors = [*trainer.model.parameters(), *trainer.model.buffers()]
    weights = [x.detach().clone() for x in tensors]
    states = [deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]
    try:
        yield
    except BaseException:
        trainer.more, trainer.averaged, trainer.clips, trainer._step = own  # noqa: SLF001
        with torch.no_grad():
            for x, was in zip(tensors, weights, strict=True):
                x.copy_(was)
        for optimizer, state in zip(trainer.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        raise


@contextmanager
def _claimed(path: Path) -> Iterator[dict[str, Any]]:
    """What is stored, for one process alone; written as it is left, or as it was if that fails."""
    with _alone(path):
        stored = _read(path)
        yield stored
        _write(stored, path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else reads or writes the file meanwhile."""
    mine = path.with_name(f"{path.name}.claimed")
    try:
        os.close(os.open(mine, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # of two that try, one fails
    except FileExistsError:
        raise InvalidInput(
            "somebody else reads or writes the checkpoint",
            why="two would go on from it",
            fix=f"wait; if nobody does, as after a crash, remove the file {mine.name}",
        ) from None
    except OSError:
        raise _no_checkpoint() from None
    try:
        yield
    finally:
        mine.unlink(missing_ok=True)


def _write(stored: dict[str, Any], path: Path) -> None:
    """All of it or nothing, and on the disk; for its owner alone."""

    def content(made: Path) -> None:
        with open(made, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            torch.save(stored, file)
            file.flush()
            os.fsync(file.fileno())

    write_output(path, content)
    with suppress(OSError):  # where folders cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001 - of many kinds, and none says more than this
        stored = None
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise _no_checkpoint()
    return stored


def _no_checkpoint() -> InvalidInput:
    return InvalidInput(
        "the file is not there, or not a checkpoint of this version",
        why="it cannot be read",
        fix="pass a file that trainer.save wrote, and that nobody else is reading",
    )
