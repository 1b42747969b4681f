"""Where a ledger lies: how a copy, a moved file or an older state in its place is told from the ledger.

A ledger holds where it lies: its name, the numbers of its file and of its folder, and when the file was
made. A copy is another file; a file that was moved has another name or another folder. The number of the
device is not among them, since it may change when the machine starts anew. What lies beside the ledger, in
NAME.head, and once more in the user's own folder, is how many lines it had at least: a file that was
overwritten by an older one has fewer. Of a database the user's folder says also that a ledger was in it.

Proof: docs/proofs/ledger.md, "One ledger"
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hubbub.engines.data_identity import read_birth_time
from hubbub.errors import Refused
from hubbub.noise.entropy import random_bytes

__all__ = [
    "Note",
    "Remembered",
    "at_home",
    "first_name",
    "is_copy",
    "is_same_place",
    "locate",
    "misses",
    "next_name",
    "refuse_elsewhere",
    "refuse_older",
]

_LONGEST = 1000

Remembered = tuple[str, int, str]
"""A ledger by its name, how many lines it had, and the digest of the last of them."""


def locate(path: Path, name: str | None = None) -> str:
    """Where a file lies, or will under another name in its folder, as it is stored."""
    found = path.stat()
    return json.dumps(
        {
            "name": name or path.name,
            "folder": path.parent.stat().st_ino,
            "file": found.st_ino,
            "made": read_birth_time(path, found),
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


def at_home(variable: str, *folder: str) -> Path | None:
    """Our folder in the user's own, by XDG's variable or else below the home; None where she has none."""
    said = Path(os.environ.get(variable) or "")
    try:
        return (said if said.is_absolute() else Path.home().joinpath(*folder)) / "hubbub"
    except RuntimeError:  # a user whom the system does not know, as containers have
        return None


def refuse_older(name: str, has: Callable[[int, str], bool], heads: Iterable[Remembered | None]) -> None:
    """Refuse a ledger that lacks a line that is remembered of it."""
    if any(misses(name, has, head) for head in heads):
        raise Refused(
            "the ledger holds less than it did: an older state was put in its place",
            why="what was spent since would be spent once more",
            fix="put the ledger back, or say what was spent since: hubbub ledger restore",
        )


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


def first_name() -> str:
    """The name of a new ledger: by chance, and how often it was restored."""
    return f"{random_bytes(16).hex()}.0"


def next_name(name: str, heads: Iterable[Remembered | None] = ()) -> str:
    """The name of a ledger that is restored: what was remembered of it before, its owner has answered for."""
    names = [name, *(head[0] for head in heads if head is not None and is_copy(head[0], name))]
    return f"{_parts(name)[0]}.{1 + max(_parts(each)[1] for each in names)}"


def is_copy(one: str, other: str) -> bool:
    """Whether two are copies of one ledger, restored or not."""
    return _parts(one)[0] == _parts(other)[0]


def misses(name: str, has: Callable[[int, str], bool], head: Remembered | None) -> bool:
    """Whether a ledger lacks the line that is remembered of it, and was not restored since."""
    if head is None or head[1] == 0 or not is_copy(head[0], name):
        return False
    return _parts(head[0])[1] >= _parts(name)[1] and not has(head[1], head[2])


def _parts(name: str) -> tuple[str, int]:
    chance, _, times = name.partition(".")
    return chance, int(times) if times.isascii() and times.isdecimal() else 0


class Note:
    """How many lines a ledger had when it was last written, in a small file.

    It is written after each commit and not synced: it may say too little, and never too much.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    def beside(cls, path: Path) -> "Note":
        """The one that lies beside the ledger."""
        return cls(path.with_name(path.name + ".head"))

    @classmethod
    def at_home(cls, name: str) -> "Note":
        """The one in the user's own folder, which is not put back with the ledger's."""
        folder = at_home("XDG_STATE_HOME", ".local", "state")
        return cls(None if folder is None else folder / f"{_parts(name)[0]}.head")

    @classmethod
    def of_database(cls, here: str) -> "Note":
        """The one in the user's own folder of a database that has a ledger, whatever its name."""
        said = json.loads(here)
        return cls.at_home(f"in-{said['cluster']}-{said['database']}")

    def read(self) -> Remembered | None:
        """What was remembered; None where nothing was, or it cannot be read."""
        if self.path is None:
            return None
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
        if self.path is None:
            return
        with suppress(OSError):
            try:
                opened = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            except FileNotFoundError:
                self.path.parent.mkdir(mode=0o700, parents=True)
                opened = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(
                    opened, f"{head[0]} {head[1]:020} {head[2]}\n".ljust(_LONGEST // 4).encode("ascii"), 0
                )
            finally:
                os.close(opened)
