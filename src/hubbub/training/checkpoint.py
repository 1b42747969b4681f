"""Checkpoints: save a run, and continue it at most once for each charge.

A checkpoint holds weights, optimizer states, averages and the step. All of that is covered by the privacy
loss of the run, which was charged. But two runs that continue from one checkpoint, or from copies of it,
would show two answers for one charge. So a checkpoint is resumed at most once, and never after the run that
wrote it went on. If that run died, the checkpoint is resumed for a charge of its own.

A file can be copied and does not know its copies. What decides is therefore something that cannot be copied
with the file: an entry under the checkpoint's id in the ledger that paid for the run; or, without a ledger,
the memory of the process that saved it. In any other place nobody can know, and the continuation is paid for
like a new run.

Proof: docs/proofs/dpsgd.md, "A run"
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
from hubbub.ledger import LedgerAccount
from hubbub.output_files import check_output_path, write_output
from hubbub.training.batch_sampling import ShuffledSampler
from hubbub.training.clipping_schedule import AdaptiveClipping
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.training.trainer import Trainer

__all__ = [
    "check_checkpoint_path",
    "claim_continuation",
    "has_paid",
    "invalidate",
    "is_checkpoint",
    "is_ledger",
    "remember_checkpoint",
    "resume",
    "return_claim",
    "save",
]

_FORMAT = 6
_REPEATED_STEPS = "training, repeated steps"


# Claims: at most one run continues from a checkpoint


@dataclass
class _ProcessMemory:
    """The checkpoints that this process wrote."""

    process: int = field(default_factory=os.getpid)
    payers: dict[str, Any] = field(default_factory=dict)
    """The account that paid for the run, if any, by checkpoint id."""
    unclaimed: set[str] = field(default_factory=set)
    """Ids of checkpoints from which no run continued."""


_memory = _ProcessMemory()
_memory_lock = threading.Lock()


def is_ledger(account: Any) -> bool:
    """True if an account is a ledger, which recognizes earlier charges by key, across processes."""
    return isinstance(account, LedgerAccount)


def remember_checkpoint(account: Any, checkpoint_id: str) -> None:
    """Remember that this process writes a checkpoint of a run that this account paid for."""
    with _memory_lock:
        _process_memory().payers[checkpoint_id] = account
        _process_memory().unclaimed.add(checkpoint_id)


def has_paid(account: Any, checkpoint_id: str) -> bool:
    """True if this account object paid for the run of a checkpoint, as far as this process remembers."""
    with _memory_lock:
        payers = _process_memory().payers
        return checkpoint_id in payers and payers[checkpoint_id] is account


def claim_continuation(account: Any, checkpoint_id: str, unit: Unit) -> bool:
    """Claim the one continuation of a checkpoint; returns whether it was still free.

    Guarantee: true at most once per checkpoint id, among all processes that ask the same ledger; without a
        ledger, only in the process that wrote the checkpoint, with the account that paid, and once.
    Assumes: the ledger is not reset to an earlier state.
    Proof: docs/proofs/dpsgd.md, "A run"
    """
    if is_ledger(account):
        what, key = "training, continued from a checkpoint", f"checkpoint {checkpoint_id}"
        return bool(account.record_charge(what, PrivacyLoss.pure(0), unit=unit, key=key).is_new)
    if not has_paid(account, checkpoint_id):
        return False
    with _memory_lock:
        is_free = checkpoint_id in _process_memory().unclaimed
        _process_memory().unclaimed.discard(checkpoint_id)
        return is_free


def return_claim(account: Any, checkpoint_id: str) -> None:
    """Return a claim after a failed resume. A ledger's entry stays."""
    if not is_ledger(account):
        remember_checkpoint(account, checkpoint_id)


def _process_memory() -> _ProcessMemory:
    """The memory of this process. A fork starts empty: else parent and child could both continue."""
    global _memory  # noqa: PLW0603 - one per process
    if _memory.process != os.getpid():
        _memory = _ProcessMemory()
    return _memory


# Saving


def save(trainer: "Trainer", path: Path, checkpoint_id: str) -> None:
    """Write a started run to a file. The file is private: only a release may be shared."""
    sampler = trainer.schedule.sampler
    if isinstance(sampler, ShuffledSampler) and trainer.step % sampler.steps_per_epoch:
        raise InvalidInput(
            "the run is within an epoch of shuffled lots",
            why="the rest of the epoch's order is not stored, so a unit could be drawn twice",
            fix=f"save after a multiple of {sampler.steps_per_epoch} steps",
        )
    with _file_lock(path):
        write_file(_checkpoint_content(trainer, checkpoint_id), path)


def check_checkpoint_path(location: str | Path) -> Path:
    """The path of a new checkpoint; refuses to overwrite data or a ledger."""
    path = Path(location).resolve()
    if not path.parent.is_dir():
        raise InvalidInput(
            "the folder of the checkpoint does not exist",
            why="the file cannot be written",
            fix="create the folder first",
        )
    return check_output_path(path)


def is_checkpoint(path: Path, checkpoint_id: str) -> bool:
    """True if the file is this checkpoint."""
    try:
        return bool(_read(path)["id"] == checkpoint_id)
    except InvalidInput:
        return False


def _checkpoint_content(trainer: "Trainer", checkpoint_id: str) -> dict[str, Any]:
    repeated = trainer.repeated_loss
    return {
        "hubbub": "a checkpoint of a private run: not a release",
        "format": _FORMAT,
        "id": checkpoint_id,
        "is_resumed": False,
        "is_paid": trainer.is_paid,
        "charge_key": trainer.charge_key,
        "unit": _unit(trainer),
        "loss": loss_to_json(trainer.schedule.sampler.privacy_loss),
        "repeated_loss": None if repeated is None else loss_to_json(repeated),
        "remaining_loss": _remaining_loss(trainer, trainer.step),
        "step": trainer.step,
        "model": trainer.model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
        "ema_weights": dict(trainer.ema_weights),
        "clipping_norms": list(trainer.clipping_norms),
        "settings": _settings(trainer, trainer.step),
    }


def _unit(trainer: "Trainer") -> list[str | None]:
    return [trainer.unit.key, trainer.unit.neighbours.value]


def _settings(trainer: "Trainer", step: int) -> dict[str, Any]:
    """The settings that must stay the same for the rest of a run."""
    state = trainer.model.state_dict().items()
    at = min(step, trainer.steps - 1)
    return {
        "model": {name: list(x.shape) if isinstance(x, torch.Tensor) else None for name, x in state},
        "optimizers": [
            [type(one).__name__, *(len(group["params"]) for group in one.param_groups)]
            for one in trainer.optimizers
        ],
        "ema_weights": sorted(trainer.ema_weights),
        "layers": [group.name for group in trainer.schedule.groups],
        "clipping_norm": [
            None if isinstance(norm, AdaptiveClipping) else float(norm(at))
            for norm in trainer.schedule.clipping_norms
        ],
        "lot_size": trainer.schedule.lot_size,
    }


def invalidate(trainer: "Trainer", path: Path, checkpoint_id: str) -> None:
    """Mark the checkpoint as resumed, because its own run continues; refuse if another run resumed it."""
    try:
        with _exclusive_update(path) as stored:
            is_ours = stored["id"] == checkpoint_id and not stored["is_resumed"]
            stored["is_resumed"] |= is_ours
    except InvalidInput:
        is_ours = False
    # The file may have copies; whoever resumed one of them has made the claim.
    if not is_ours or not claim_continuation(trainer._account, checkpoint_id, trainer.unit):  # noqa: SLF001 - one of two callers
        raise Refused(
            "the checkpoint of this run was resumed, or is not where it was saved",
            why="another run may continue from it, and the same steps would be shown twice for one charge",
            fix="continue with the run that resumed it, or put the file back; or train, and pay, again",
        )


def _remaining_loss(trainer: "Trainer", step: int) -> str:
    """The privacy loss of the steps from here on: runs of equal total loss may differ in their order."""
    sampler = trainer.schedule.sampler
    return loss_to_json(sampler.loss_of(range(step, sampler.steps))) if step < sampler.steps else ""


# Resuming


def resume(trainer: "Trainer", path: Path, *, again: bool = False) -> bool:
    """Continue a saved run; returns whether the trainer's account paid for it.

    Guarantee: the remaining steps are those that were charged. For one charge they are taken once, from
        whichever copy of the file. With `again`, for steps that may have been taken before, they are charged
        once more.
    Assumes: as `claim_continuation`.
    Proof: docs/proofs/dpsgd.md, "A run"
    """
    claims: list[str] = []
    try:
        with _rollback_on_error(trainer), _exclusive_update(path) as stored:
            return _resume_from(trainer, stored, claims, again=again)
    except BaseException:
        for checkpoint_id in claims:
            return_claim(trainer._account, checkpoint_id)  # noqa: SLF001
        raise


def _resume_from(trainer: "Trainer", stored: dict[str, Any], claims: list[str], *, again: bool) -> bool:
    _check_same_run(trainer, stored)
    if stored["is_resumed"] and not again:
        raise _already_resumed()
    settings = _settings(trainer, stored["step"])
    different = [name for name, value in settings.items() if stored["settings"][name] != value]
    if different:
        raise InvalidInput(
            f"the checkpoint is of a run with another {different[0]}",
            why="this trainer cannot continue it",
            fix="make the trainer with the same model, optimizers and settings; the file is unchanged",
        )
    _load(trainer, stored)
    is_paid = _settle_charge(trainer, stored)
    account = trainer._account  # noqa: SLF001
    if not stored["is_resumed"] and claim_continuation(account, stored["id"], trainer.unit):
        claims.append(stored["id"])
    elif is_paid or stored["is_resumed"] or account is None:
        if not again:
            raise _already_resumed()
        _charge_repeated_steps(trainer, stored, is_paid=is_paid)
    stored["is_resumed"] = True
    return is_paid


def _settle_charge(trainer: "Trainer", stored: dict[str, Any]) -> bool:
    """True if the trainer's account has paid for the run; if not, it pays for all of it at the start.

    A ledger is asked by the key of the charge; if it had not paid, it is charged now.
    """
    account, key = trainer._account, stored["charge_key"]  # noqa: SLF001
    if account is None and stored["is_paid"]:
        raise InvalidInput(
            "the trainer has no account",
            why="an account paid for this run, and knows whether another run continued from here",
            fix="make the trainer with the same account=",
        )
    if account is None or not stored["is_paid"]:
        return False
    if not is_ledger(account):
        return has_paid(account, stored["id"])
    if key is None:
        return False
    trainer._charge_key = key  # noqa: SLF001
    is_new = trainer._charge(trainer._charge_text, trainer.schedule.sampler.privacy_loss, key)  # noqa: SLF001
    if is_new and trainer.repeated_loss is not None:
        trainer._charge(_REPEATED_STEPS, trainer.repeated_loss)  # noqa: SLF001
    return True


def _charge_repeated_steps(trainer: "Trainer", stored: dict[str, Any], *, is_paid: bool) -> None:
    """Count the remaining steps once more, and charge them if the run was paid."""
    if stored["step"] < trainer.steps:
        remaining = trainer.schedule.sampler.loss_of(range(stored["step"], trainer.steps))
        repeated = trainer.repeated_loss
        repeated = remaining if repeated is None else repeated + remaining
        trainer._repeated_loss = repeated  # noqa: SLF001
        stored["repeated_loss"] = loss_to_json(repeated)
        if is_paid:
            trainer._charge(f"{_REPEATED_STEPS}, from step {stored['step'] + 1}", remaining)  # noqa: SLF001


def _already_resumed() -> Refused:
    return Refused(
        "the checkpoint was resumed before, or its run continued, or this cannot be known",
        why="its remaining steps were charged once, and would be shown twice",
        fix="resume from the newest file, with the ledger that paid, or in the process that saved it; if its "
        "run died, pay for its remaining steps again: again=True",
    )


def _check_same_run(trainer: "Trainer", stored: dict[str, Any]) -> None:
    """The trainer must protect the same unit, and have the same steps left."""
    if stored["unit"] != _unit(trainer):
        raise InvalidInput(
            "the checkpoint is of a run that protects another unit",
            why="the remaining steps would protect another unit than was charged for",
            fix="make the trainer with the same units",
        )
    losses = loss_to_json(trainer.schedule.sampler.privacy_loss), _remaining_loss(trainer, stored["step"])
    if (stored["loss"], stored["remaining_loss"]) != losses:
        raise InvalidInput(
            "the checkpoint is of a run with another privacy loss",
            why="the remaining steps would not be those that were charged",
            fix="make the trainer with the same sampling_rate, steps and noise_multiplier",
        )


def _load(trainer: "Trainer", stored: dict[str, Any]) -> None:
    """Load the stored state into the trainer."""
    repeated = stored["repeated_loss"]
    trainer._set_progress(  # noqa: SLF001 - nobody else sets it
        stored["step"],
        None if repeated is None else loss_from_json(repeated),
        stored["ema_weights"],
        stored["clipping_norms"],
    )
    try:
        trainer.model.load_state_dict(stored["model"])
        for optimizer, state in zip(trainer.optimizers, stored["optimizers"], strict=True):
            optimizer.load_state_dict(state)
    except Exception as error:
        raise InvalidInput(
            "the checkpoint does not fit the model or its optimizers",
            why=f"they cannot load it: {type(error).__name__}",
            fix="make the trainer with the same model and optimizers; the file is unchanged",
        ) from error


@contextmanager
def _rollback_on_error(trainer: "Trainer") -> Iterator[None]:
    """Restore the trainer if this fails: a run that starts from another run's weights would cost more."""
    own = trainer.step, trainer.repeated_loss, trainer.ema_weights, trainer.clipping_norms
    tensors = [*trainer.model.parameters(), *trainer.model.buffers()]
    weights = [x.detach().clone() for x in tensors]
    states = [deepcopy(optimizer.state_dict()) for optimizer in trainer.optimizers]
    try:
        yield
    except BaseException:
        trainer._set_progress(*own)  # noqa: SLF001
        with torch.no_grad():
            for x, before in zip(tensors, weights, strict=True):
                x.copy_(before)
        for optimizer, state in zip(trainer.optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        raise


# Files


@contextmanager
def _exclusive_update(path: Path) -> Iterator[dict[str, Any]]:
    """The stored checkpoint, for one process at a time; written back unless the body fails."""
    with _file_lock(path):
        stored = _read(path)
        yield stored
        write_file(stored, path)


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Keep other processes from reading or writing the file."""
    lock = path.with_name(f"{path.name}.claimed")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # of two attempts, one fails
    except FileExistsError:
        raise InvalidInput(
            "another process reads or writes the checkpoint",
            why="two runs could continue from it",
            fix=f"wait; if there is no such process, as after a crash, remove the file {lock.name}",
        ) from None
    except OSError:
        raise _unreadable() from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def write_file(stored: dict[str, Any], path: Path) -> None:
    """Write all of it or nothing, durably; readable by its owner only."""

    def content(temporary: Path) -> None:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            torch.save(stored, file)
            file.flush()
            os.fsync(file.fileno())

    write_output(path, content)
    with suppress(OSError):  # some systems cannot open folders
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001 - there are many, and none says more than this
        stored = None
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT:
        raise _unreadable()
    return stored


def _unreadable() -> InvalidInput:
    return InvalidInput(
        "the file does not exist, or is not a checkpoint of this version",
        why="it cannot be read",
        fix="pass a file that trainer.save wrote, and that no other process is reading",
    )
