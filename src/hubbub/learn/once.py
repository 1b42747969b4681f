"""At most one continuation of a checkpoint for each charge.

A file can be copied, and says nothing of its copies. So who goes on from a checkpoint is told apart by what
nobody can copy by copying the file: a line in the ledger that paid for the run, under the checkpoint's mark;
or, where no ledger paid, the memory of the process that saved it. Elsewhere nobody can know, and the
continuation is paid for like a run of its own.
"""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

from hubbub.loss import Loss
from hubbub.unit import Unit

__all__ = ["give_back", "has_paid", "is_first", "is_ledger", "note"]


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
        return bool(account.begin(what, Loss.pure(0), unit=unit, key=f"checkpoint {mark}").is_new)
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
