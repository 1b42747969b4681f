"""Who is at a charge: one attempt of one process, which is running, or over.

Only the attempt that made a charge may run it. Another that finds the charge without an outcome waits while
that attempt may still be running; once it is over, or has taken too long, the question is charged anew. What
is said here decides who waits and who pays again, never whether a charge is run twice.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Generic, Self, TypeVar

from hubbub import errors
from hubbub.errors import EngineFailed, HubbubError, LedgerFailed
from hubbub.ledger.account import RAISED, Account, Charge
from hubbub.ledger.entries import digest
from hubbub.noise.entropy import random_bytes

__all__ = [
    "Attempt",
    "Outcome",
    "Progress",
    "callers_own",
    "is_over",
    "observe_outcome",
    "result_of_outcome",
    "settle_charge",
]

_RUNNING: dict[str, int] = {}
"""The attempts of this process that are not over, with their threads."""


class Attempt:
    """One try at a question: its name stands in the charge."""

    def __init__(self) -> None:
        self.name = f"{_process(os.getpid())} {random_bytes(8).hex()}"

    def __enter__(self) -> Self:
        _RUNNING[self.name] = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop(self.name, None)


def is_over(name: str | None) -> bool:
    """Whether this attempt has surely ended; False where that cannot be known from here."""
    process, _, _ = (name or "").rpartition(" ")
    machine, _, rest = process.partition(" ")
    pid, _, _ = rest.partition(" ")
    if machine != _machine() or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        # A thread that waits for itself, asked from within its own run, would wait for ever.
        return _RUNNING.get(name or "") in {None, threading.get_ident()}
    return _process(int(pid)) != process


def _process(pid: int) -> str:
    """A name that no other process has: the machine, the number, and when it was started, if it still is."""
    started = "ended"
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        started = "ended" if state in "ZX" else rest[18]
    return f"{_machine()} {pid} {started}"


@cache
def _machine() -> str:
    """This machine since it was started, as far as process numbers mean the same; another one elsewhere."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return digest([platform.node(), boot, os.readlink("/proc/self/ns/pid")])[:16]  # noqa: PTH115 - no path
    except OSError:
        return random_bytes(8).hex()  # only this process knows itself


# What comes out of a charge: an answer, a refusal or a failure. It is stored before anybody sees it.
#
# A failure may tell as much as an answer: whether a run fails can depend on rows and on noise. So it is an
# outcome like any other, and who asks again gets it again.
#
# Proved in docs/proofs/ledger.md, "One outcome per charge

Progress = Callable[[str], None]
_T = TypeVar("_T")
_FORMAT = "hubbub outcome/1"
_FAILURES = {"EngineFailed", "LedgerFailed", "InvalidInput", "Unsupported"}
"""What a run is not decided by its noise to raise: something was not as it should be, and may be fixed."""
_KINDS = {name: getattr(errors, name) for name in errors.__all__}
_PATIENCE = 300.0
"""So many seconds another's attempt is waited for, where it may still be running."""
_PAUSES = (0.01, 1.0)
"""Between two looks: at first, and at most."""


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What a run came to: a value, or an error; and what interrupted it, to be raised once that is stored."""

    value: _T | None = None
    error: HubbubError | None = None
    interrupt: BaseException | None = None

    def get(self) -> _T:
        """The value; or what is to be raised instead of it."""
        if self.interrupt is not None:
            raise self.interrupt
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def observe_outcome(run: Callable[[], _T]) -> Outcome[_T]:
    """Run, and give what came out, whatever it is.

    Guarantee: of an exception that is not ours nothing is left, neither its text nor where it was raised; of
        one that is ours its class and its words.
    """
    try:
        return Outcome(run())
    except HubbubError as said:
        kind = next(kind for kind in type(said).__mro__ if _KINDS.get(kind.__name__) is kind)
        what, why, fix = said.templates
        return Outcome(error=kind(what, why=why, fix=fix))
    except _CallersOwn as theirs:
        return Outcome(error=_interrupted(), interrupt=theirs.problem)
    except SystemExit as wanted:
        return Outcome(error=_interrupted(), interrupt=SystemExit(wanted.code))
    except (KeyboardInterrupt, GeneratorExit) as wanted:
        return Outcome(error=_interrupted(), interrupt=type(wanted)())
    except BaseException:  # noqa: BLE001 - also what is no Exception, such as an engine's panic
        return Outcome(error=_failed())


def settle_charge(
    account: Account,
    run: Callable[[Charge], str],
    progress: Progress = lambda _: None,
    *,
    again: bool = False,
    **asked: Any,
) -> tuple[Charge, str]:
    """The one answer of a charge, as it is stored: run and stored now, or before, by whoever asked the same.

    `asked` is what `Account.begin` takes. What the run raised is raised, now and whenever it is asked again;
    with `again`, a failure that is stored is left where it is, and the question is charged anew and run.

    Guarantee: a charge is run by the one attempt that made it, once, and nothing of the run is seen unless
        it has been stored. Where it could not be, the next who asks is charged anew.
    Assumes: what `run` computes is seen by nobody but through what it returns or raises.
    Proof: docs/proofs/ledger.md, "One outcome per charge"
    """
    with Attempt() as attempt:
        charge = _begun(account, attempt, progress, asked)
        if again and not charge.is_new and _is_failure(account.released(charge.number)):
            charge = _begun(account, attempt, progress, {**asked, "failed": charge.number})
        if not charge.is_new:
            return charge, result_of_outcome(account.released(charge.number) or "")
        outcome = observe_outcome(lambda: run(charge))
        try:
            kept = _kept(account, charge.number, outcome)
        finally:
            if outcome.interrupt is not None:
                raise outcome.interrupt from None
    return charge, result_of_outcome(kept)


def result_of_outcome(kept: str) -> str:
    """The answer that is stored; or the error that is, raised."""
    if not kept.startswith(RAISED):
        return kept
    name, what, why, fix = json.loads(kept)["raised"]
    raise _KINDS[name](what, why=why, fix=fix)


def _is_failure(kept: str | None) -> bool:
    """Whether engine or ledger failed, or the run was interrupted: not an answer, nor a refusal."""
    return kept is not None and kept.startswith(RAISED) and json.loads(kept)["raised"][0] in _FAILURES


class _CallersOwn(BaseException):
    """An exception of the caller's own code, on its way back to it."""

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem


def callers_own(progress: Progress) -> Progress:
    """The same, so that what it raises reaches the caller as it is, once the outcome is stored."""

    def told(step: str) -> None:
        try:
            progress(step)
        except BaseException as problem:  # noqa: BLE001 - also an interrupt is hers here
            raise _CallersOwn(problem) from None

    return told


def _begun(account: Account, attempt: Attempt, progress: Progress, asked: dict[str, Any]) -> Charge:
    """A charge of this attempt's, or another's that has its outcome."""
    lost, pause, until = None, _PAUSES[0], time.monotonic() + _PATIENCE
    while True:
        charge = account.begin(**asked, attempt=attempt.name, lost=lost)
        if charge.is_new or charge.is_settled:
            return charge
        if is_over(charge.attempt) or time.monotonic() >= until or _age(charge) >= _PATIENCE:
            lost = charge.number
            continue
        progress("waiting for the same question, which is being answered elsewhere")
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])


def _age(charge: Charge) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(charge.moment)).total_seconds()


def _kept(account: Account, number: int, outcome: Outcome[str]) -> str:
    """Store what came out; or, where its text cannot be stored, that it failed."""
    if outcome.error is None:
        storing = observe_outcome(lambda: account.keep(number, outcome.value or ""))
        if storing.interrupt is not None or isinstance(storing.error, (NoneType, LedgerFailed)):
            return storing.get()
    return account.keep(number, _stored(outcome.error or _failed()))


def _stored(error: HubbubError) -> str:
    said = [type(error).__name__, *error.templates]
    return json.dumps({"format": _FORMAT, "raised": said}, ensure_ascii=True)


def _failed() -> EngineFailed:
    return EngineFailed(
        "the run failed after it was charged",
        why="how it failed may tell about rows, so it is not said; the failure is the outcome of this charge",
        fix="ask again for another charge, with {again=True}",
    )


def _interrupted() -> EngineFailed:
    return EngineFailed(
        "the run was interrupted after it was charged, and its answer is lost",
        why="to run it again would be a second answer for one charge",
        fix="ask again for another charge, with {again=True}",
    )
