"""Who is at a charge: one attempt of one process, which is running, or over.

Only the attempt that made a charge may run it. Another that finds the charge without an outcome waits while
that attempt may still be running; once it is over, or has taken too long, the question is charged anew. What
is said here decides who waits and who pays again, never whether a charge is run twice.
"""

import os
import platform
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from hubbub.ledger.book import digest
from hubbub.noise.entropy import random_bytes

__all__ = ["Attempt", "is_over"]

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
