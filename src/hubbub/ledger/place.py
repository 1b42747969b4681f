"""Where a ledger lies: how a copy, a moved file or an older state in its place is told from the ledger.

A ledger holds where it lies: its name, the numbers of its file and of its folder, and when the file was
made. A copy is another file; a file that was moved has another name or another folder. The number of the
device is not among them, since it may change when the machine starts anew. What lies beside the ledger, in
NAME.head, is how many lines it had at least: a file that was overwritten by an older one has fewer.

Proof: docs/proofs/ledger.md, "One ledger"
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hubbub.errors import Refused
from hubbub.tables.identity import made_at

__all__ = ["Beside", "Remembered", "is_same_place", "lies", "refuse_elsewhere"]

_LONGEST = 1000

Remembered = tuple[str, int, str]
"""A ledger by its id, how many lines it had, and the digest of the last of them."""


def lies(path: Path, name: str | None = None) -> str:
    """Where a file lies, or will under another name in its folder, as it is stored."""
    found = path.stat()
    return json.dumps(
        {
            "name": name or path.name,
            "folder": path.parent.stat().st_ino,
            "file": found.st_ino,
            "made": made_at(path, found),
            "path": str(path.with_name(name or path.name)),
        }
    )


def is_same_place(stored: Any, here: str) -> bool:
    """Whether a ledger lies where it says; when it was made counts where both know it."""
    try:
        was, now = json.loads(stored), json.loads(here)
        is_same = all(was[each] == now[each] for each in now.keys() - {"made", "path"})
        return is_same and (None in {was.get("made"), now.get("made")} or was["made"] == now["made"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return False


def refuse_elsewhere(kind: str, stored: str, here: str) -> None:
    """Refuse a backup, a copy, and a ledger that was moved, until its owner says what was spent since."""
    if kind == "ledger" and is_same_place(stored, here):
        return
    raise Refused(
        "the file is a backup of a ledger"
        if kind == "backup"
        else "the ledger does not lie where it was: it is a copy, or was moved",
        why="each copy of a ledger would spend the whole budget once more",
        fix="use the ledger itself; or, if this is the one to go on with, say what was spent since: "
        "hubbub ledger restore",
    )


class Beside:
    """What lies beside a ledger's file: how many lines it had when it was last written.

    It is written after each commit and not synced: it may say too little, and never too much.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".head")

    def read(self) -> Remembered | None:
        """What was remembered; None where nothing was, or it cannot be read."""
        try:
            opened = os.open(self.path, os.O_RDONLY)
            try:
                name, number, digest = os.read(opened, _LONGEST).decode("ascii").split()
            finally:
                os.close(opened)
            return name, int(number), digest
        except (OSError, ValueError):
            return None

    def write(self, head: Remembered) -> None:
        """Remember; where that is not possible the ledger is as good as before."""
        with suppress(OSError):
            opened = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(opened, f"{head[0]} {head[1]:020} {head[2]}\n".encode("ascii"), 0)
            finally:
                os.close(opened)
