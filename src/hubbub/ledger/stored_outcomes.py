"""Outcomes: what comes out of a charge (an answer, a refusal or a failure) is stored before anybody sees it.

A failure may disclose as much as an answer: it can depend on rows and on noise. So it is an outcome like any
other, and is raised again whenever the same question is asked.

The text of an answer is `sql.result.Result.to_json`; this module makes the text of a refusal or a failure.

Only the attempt that made a charge may run it. Another process that finds the charge without an outcome waits
while that attempt may still be running. If the attempt has ended, or takes too long, the question is charged
again. A wrong guess about an attempt decides who waits and who pays again; a charge is never run twice.

Proof: docs/proofs/ledger.md, "One outcome per charge"
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
from hubbub.ledger.account import Charge, LedgerAccount
from hubbub.ledger.entries import ERROR_PREFIX, digest
from hubbub.noise.entropy import random_bytes

__all__ = [
    "Attempt",
    "Outcome",
    "Progress",
    "capture_outcome",
    "charge_and_run",
    "error_text",
    "has_ended",
    "load_outcome",
    "pass_through_errors",
]

Progress = Callable[[str], None]
_T = TypeVar("_T")
_FORMAT = "hubbub outcome/1"
_FAILURES = {"EngineFailed", "LedgerFailed", "InvalidInput", "Unsupported"}
"""Errors that do not depend on the noise: something did not work, and may work next time."""
_ERROR_CLASSES = {name: getattr(errors, name) for name in errors.__all__}
TIMEOUT_SECONDS = 300.0
"""Time to wait for another attempt that may still be running."""
_POLL_SECONDS = (0.01, 1.0)
"""The first and the longest pause between two polls."""
_RUNNING: dict[str, int] = {}
"""The running attempts of this process, with their threads."""


# Attempts


class Attempt:
    """One attempt to answer a question; its name is stored in the charge."""

    def __init__(self) -> None:
        self.name = f"{_process_name(os.getpid())} {random_bytes(8).hex()}"

    def __enter__(self) -> Self:
        _RUNNING[self.name] = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        _RUNNING.pop(self.name, None)


def has_ended(attempt: str | None) -> bool:
    """Return whether an attempt has certainly ended; False if that cannot be known from here."""
    process, _, _ = (attempt or "").rpartition(" ")
    machine, _, rest = process.partition(" ")
    pid, _, _ = rest.partition(" ")
    if machine != _machine_id() or not pid.isdecimal():
        return False
    if int(pid) == os.getpid():
        # A question that asks itself, from within its own run, would otherwise wait forever.
        return _RUNNING.get(attempt or "") in {None, threading.get_ident()}
    return _process_name(int(pid)) != process


def _process_name(pid: int) -> str:
    """Return a name that no other process has: the machine, the pid, and the start time unless it ended."""
    started = "ended"
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        started = "ended" if state in "ZX" else rest[18]
    return f"{_machine_id()} {pid} {started}"


@cache
def _machine_id() -> str:
    """Identify this machine, boot and pid namespace: pids mean the same within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        return digest([platform.node(), boot, os.readlink("/proc/self/ns/pid")])[:16]  # noqa: PTH115 - no path
    except OSError:
        return random_bytes(8).hex()  # known to this process only


# Outcomes


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """The result of a run: a value, or an error; and an interrupt to raise after the error is stored."""

    value: _T | None = None
    error: HubbubError | None = None
    interrupt: BaseException | None = None

    def get(self) -> _T:
        """Return the value, or raise the interrupt or the error."""
        if self.interrupt is not None:
            raise self.interrupt
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def capture_outcome(run: Callable[[], _T]) -> Outcome[_T]:
    """Run, and return what came out, whatever it is.

    Guarantee: of a foreign exception nothing is kept, neither its text nor its traceback; of a HubbubError
        its class and its words.
    """
    try:
        return Outcome(run())
    except HubbubError as error:
        kind = next(kind for kind in type(error).__mro__ if _ERROR_CLASSES.get(kind.__name__) is kind)
        what, why, fix = error.templates
        return Outcome(error=kind(what, why=why, fix=fix, parameter=error.parameter))
    except _CallbackError as error:
        return Outcome(error=_interrupted_error(), interrupt=error.problem)
    except SystemExit as interrupt:
        return Outcome(error=_interrupted_error(), interrupt=SystemExit(interrupt.code))
    except (KeyboardInterrupt, GeneratorExit) as interrupt:
        return Outcome(error=_interrupted_error(), interrupt=type(interrupt)())
    except BaseException:  # noqa: BLE001 - also those that are no Exception, such as an engine's panic
        return Outcome(error=_failed_error())


def charge_and_run(
    account: LedgerAccount,
    run: Callable[[Charge], str],
    progress: Progress = lambda _: None,
    *,
    again: bool = False,
    **charge_arguments: Any,
) -> tuple[Charge, str]:
    """Return the one stored answer of a charge: computed now, or earlier for somebody who asked the same.

    A run's error is raised, now and whenever the question is asked again.

    Args:
        account: the account to charge.
        run: computes the answer of a new charge.
        progress: is told when another process is waited for.
        again: if the stored outcome is a failure, charge the question again and run it.
        charge_arguments: the arguments of `LedgerAccount.record_charge`.

    Guarantee: a charge is run once, by the attempt that made it, and nothing of the run is seen unless it has
        been stored. If it could not be stored, the next one who asks is charged again.
    Assumes: what `run` computes is visible only through what it returns or raises.
    Proof: docs/proofs/ledger.md, "One outcome per charge"
    """
    with Attempt() as attempt:
        charge = _wait_and_charge(account, attempt, progress, charge_arguments)
        if again and not charge.is_new and _is_failure(account.get_release(charge.number)):
            replace_failed = {**charge_arguments, "replace_failed": charge.number}
            charge = _wait_and_charge(account, attempt, progress, replace_failed)
        if not charge.is_new:
            return charge, load_outcome(account.get_release(charge.number) or "")
        outcome = capture_outcome(lambda: run(charge))
        try:
            stored = _store_outcome(account, charge.number, outcome)
        finally:
            if outcome.interrupt is not None:
                raise outcome.interrupt from None
    return charge, load_outcome(stored)


def load_outcome(stored: str) -> str:
    """Return the stored answer, or raise the stored error."""
    if not stored.startswith(ERROR_PREFIX):
        return stored
    name, what, why, fix, *parameter = json.loads(stored)["error"]
    raise _ERROR_CLASSES[name](what, why=why, fix=fix, parameter=parameter[0] if parameter else None)


def _is_failure(stored: str | None) -> bool:
    """Return whether the engine or ledger failed, or the run was interrupted: no answer, and no refusal."""
    return (
        stored is not None and stored.startswith(ERROR_PREFIX) and json.loads(stored)["error"][0] in _FAILURES
    )


class _CallbackError(BaseException):
    """Carries an exception of the caller's own code back to the caller."""

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem


def pass_through_errors(progress: Progress) -> Progress:
    """Wrap a callback so that what it raises reaches the caller unchanged, after the outcome is stored."""

    def report(step: str) -> None:
        try:
            progress(step)
        except BaseException as problem:  # noqa: BLE001 - an interrupt is the caller's too
            raise _CallbackError(problem) from None

    return report


def _wait_and_charge(
    account: LedgerAccount, attempt: Attempt, progress: Progress, charge_arguments: dict[str, Any]
) -> Charge:
    """Return a new charge of this attempt, or another attempt's charge that has its outcome."""
    lost, pause, deadline = None, _POLL_SECONDS[0], time.monotonic() + TIMEOUT_SECONDS
    while True:
        charge = account.record_charge(**charge_arguments, attempt=attempt.name, replace_lost=lost)
        if charge.is_new or charge.has_outcome:
            return charge
        is_late = time.monotonic() >= deadline or _age_seconds(charge) >= TIMEOUT_SECONDS
        if has_ended(charge.attempt) or is_late:
            lost = charge.number
            continue
        progress("waiting for the same question, which is being answered elsewhere")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_SECONDS[1])


def _age_seconds(charge: Charge) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(charge.timestamp)).total_seconds()


def _store_outcome(account: LedgerAccount, number: int, outcome: Outcome[str]) -> str:
    """Store an outcome; or, if its text cannot be stored, the error that it failed."""
    if outcome.error is None:
        storing = capture_outcome(lambda: account.record_release(number, outcome.value or ""))
        if storing.interrupt is not None or isinstance(storing.error, (NoneType, LedgerFailed)):
            return storing.get()
    return account.record_release(number, error_text(outcome.error or _failed_error()))


def error_text(error: HubbubError) -> str:
    """Return the text under which a refusal or a failure is stored."""
    fields = [type(error).__name__, *error.templates, *([error.parameter] if error.parameter else [])]
    return json.dumps({"format": _FORMAT, "error": fields}, ensure_ascii=True)


def _failed_error() -> EngineFailed:
    return EngineFailed(
        "the run failed after it was charged",
        why="the cause may disclose rows, so it is not shown; the failure is the outcome of this charge",
        fix="ask again for another charge, with {again=True}",
    )


def _interrupted_error() -> EngineFailed:
    return EngineFailed(
        "the run was interrupted after it was charged, and its answer is lost",
        why="running it again would give a second answer for one charge",
        fix="ask again for another charge, with {again=True}",
    )
