"""The location of a ledger: how a copy, a moved file or an older state is told from the ledger itself.

A ledger stores its own location: its file name, the inodes of the file and of its folder, and when the file
was created. A copy is another file; a moved file has another name or another folder. The device number is
not part of it, since it may change when the machine restarts. A head file NAME.head beside the ledger, and
another one in the user's state folder, hold a lower bound of its number of entries: a file that was
overwritten by an older state has fewer. The user's state folder also records that a folder, or a database,
had a ledger: one that was deleted is not replaced by a new one.

Proof: docs/proofs/ledger.md, "One ledger"
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hubbub.engines.data_identity import read_birth_time
from hubbub.errors import Refused
from hubbub.noise.entropy import random_bytes

__all__ = [
    "HeadFile",
    "KnownHead",
    "is_same_ledger",
    "is_same_location",
    "lacks_entry",
    "locate",
    "new_ledger_id",
    "refuse_older_state",
    "refuse_other_location",
    "restored_ledger_id",
    "user_folder",
]

_MAX_HEAD_BYTES = 1000
_HEAD_BYTES = 250
_READS, _PAUSE_SECONDS = 100, 0.001

KnownHead = tuple[str, int, str]
"""A ledger's id, the number of its entries at some time, and the digest of the last of them."""


def locate(path: Path, name: str | None = None) -> str:
    """Return the location of a file as it is stored.

    Args:
        path: the file.
        name: the name that the file will have in its folder, if it is another one.
    """
    status = path.stat()
    return json.dumps(
        {
            "file_name": name or path.name,
            "folder_inode": path.parent.stat().st_ino,
            "inode": status.st_ino,
            "created": read_birth_time(path, status),
            "path": str(path.with_name(name or path.name)),
        }
    )


def is_same_location(stored: Any, here: str) -> bool:
    """Compare a stored location with the current one; the creation time counts if both know it."""
    try:
        was, now = json.loads(stored), json.loads(here)
        is_same = all(was[each] == now[each] for each in now.keys() - {"created", "path"})
        return is_same and (
            None in {was.get("created"), now.get("created")} or was["created"] == now["created"]
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return False


def user_folder(variable: str, *folder: str) -> Path | None:
    """Return hubbub's folder of this user, by an XDG variable or below the home folder; None without one."""
    declared = Path(os.environ.get(variable) or "")
    try:
        return (declared if declared.is_absolute() else Path.home().joinpath(*folder)) / "hubbub"
    except RuntimeError:  # a user unknown to the system, as in some containers
        return None


def refuse_older_state(
    ledger_id: str, has_entry: Callable[[int, str], bool], heads: Iterable[KnownHead | None]
) -> None:
    """Refuse a ledger that lacks an entry that it is known to have had."""
    if any(lacks_entry(ledger_id, has_entry, head) for head in heads):
        raise Refused(
            "the ledger was replaced by an older state of it",
            why="what was spent since could be spent a second time",
            fix="put the ledger back, or state what was spent since: hubbub ledger restore",
        )


def refuse_other_location(kind: str, stored: str, here: str) -> None:
    """Refuse a backup, a copy or a moved ledger until its owner states what was spent since."""
    if kind == "ledger" and is_same_location(stored, here):
        return
    raise Refused(
        "the file is a backup of a ledger"
        if kind == "backup"
        else "the ledger is not at its recorded location: it is a copy, or was moved",
        why="each copy of a ledger could spend the whole budget again",
        fix="use the original ledger; or, to continue with this one, state what was spent since: "
        "hubbub ledger restore",
    )


def new_ledger_id() -> str:
    """Return the id of a new ledger: random, followed by the number of restores."""
    return f"{random_bytes(16).hex()}.0"


def restored_ledger_id(ledger_id: str, heads: Iterable[KnownHead | None] = ()) -> str:
    """Return the id of a restored ledger: its owner has answered for all heads known so far."""
    ids = [ledger_id, *(head[0] for head in heads if head is not None and is_same_ledger(head[0], ledger_id))]
    return f"{_split_id(ledger_id)[0]}.{1 + max(_split_id(each)[1] for each in ids)}"


def is_same_ledger(one: str, other: str) -> bool:
    """Return whether two ids belong to copies of one ledger, restored or not."""
    return _split_id(one)[0] == _split_id(other)[0]


def lacks_entry(ledger_id: str, has_entry: Callable[[int, str], bool], head: KnownHead | None) -> bool:
    """Return whether a ledger lacks the entry of a known head, and was not restored since."""
    if head is None or head[1] == 0 or not is_same_ledger(head[0], ledger_id):
        return False
    return _split_id(head[0])[1] >= _split_id(ledger_id)[1] and not has_entry(head[1], head[2])


def _split_id(ledger_id: str) -> tuple[str, int]:
    """Split an id into its random part and the number of restores."""
    random_part, _, restores = ledger_id.partition(".")
    return random_part, int(restores) if restores.isascii() and restores.isdecimal() else 0


def _check(ledger_id: str, number: str, digest: str) -> str:
    """A checksum: who reads while another process writes may see half of each."""
    return hashlib.sha256(f"{ledger_id} {number} {digest}".encode()).hexdigest()[:16]


class HeadFile:
    """A small file with the head of a ledger when it was last written.

    It is written after each commit and not synced: it may be behind the ledger, and is never ahead of it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    def beside(cls, path: Path) -> "HeadFile":
        """Return the head file beside a ledger."""
        return cls(path.with_name(path.name + ".head"))

    @classmethod
    def in_user_folder(cls, ledger_id: str) -> "HeadFile":
        """Return the head file in the user's state folder, which is not restored with the ledger's folder."""
        folder = user_folder("XDG_STATE_HOME", ".local", "state")
        return cls(None if folder is None else folder / f"{_split_id(ledger_id)[0]}.head")

    @classmethod
    def of_file(cls, path: Path) -> "HeadFile":
        """Return the head file in the user's state folder of the ledger at a path, whatever its id.

        The folder is known by its inode and its birth time: it may be renamed, and a new folder of the same
        name is another one.
        """
        try:
            status = path.parent.stat()
        except OSError:  # without a folder there is no ledger
            return cls(None)
        folder = [str(status.st_ino), read_birth_time(path.parent, status), path.name]
        return cls.in_user_folder(f"at-{hashlib.sha256(json.dumps(folder).encode()).hexdigest()[:32]}")

    @classmethod
    def of_database(cls, here: str) -> "HeadFile":
        """Return the head file in the user's state folder of the ledger in a database, whatever its id."""
        location = json.loads(here)
        return cls.in_user_folder(f"in-{location['cluster']}-{location['database']}")

    @property
    def exists(self) -> bool:
        """True if a head was written here, though it may be damaged: there was a ledger."""
        return self.path is not None and os.path.lexists(self.path)

    def read(self) -> KnownHead | None:
        """Return the head; None if there is none, or it cannot be read."""
        if self.path is None:
            return None
        for _ in range(_READS):
            try:
                descriptor = os.open(self.path, os.O_RDONLY)
                try:
                    line = os.read(descriptor, _MAX_HEAD_BYTES).decode("ascii")
                finally:
                    os.close(descriptor)
                ledger_id, number, digest, *check = line.split()
                if check in ([], [_check(ledger_id, number, digest)]):  # older files have none
                    return ledger_id, int(number), digest
            except (OSError, ValueError):
                return None
            time.sleep(_PAUSE_SECONDS)  # half of it is of a write that goes on
        return None

    def write(self, head: KnownHead) -> None:
        """Write the head; a failure is ignored, since the ledger itself is intact."""
        if self.path is None:
            return
        with suppress(OSError):
            try:
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            except FileNotFoundError:
                self.path.parent.mkdir(mode=0o700, parents=True)
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                # Always the same length, so that one write replaces all of it.
                fields = (head[0], f"{head[1]:020}", head[2])
                line = f"{' '.join(fields)} {_check(*fields)}\n".ljust(_HEAD_BYTES)
                os.pwrite(descriptor, line.encode("ascii"), 0)
            finally:
                os.close(descriptor)
