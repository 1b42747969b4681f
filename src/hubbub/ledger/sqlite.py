"""Where a ledger is kept: a file of SQLite's, whose every commit is on the disk before it is said to be.

A store does one thing: work that nobody else is in the midst of, which happens as a whole or not at all.
"""

import os
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from hubbub.accounting.budget import refuse_fork
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger.location import (
    Note,
    Remembered,
    first_name,
    locate,
    next_name,
    refuse_elsewhere,
    refuse_older,
)
from hubbub.output_files import protect_paths

__all__ = [
    "COPIED",
    "TABLES",
    "Rows",
    "SQLite",
    "Store",
    "has_line",
    "head_of",
    "leftovers",
    "name_of",
    "new_file",
    "only_looked_at",
]

_T = TypeVar("_T")
_WAIT = 60.0
"""Seconds that a writer waits for its turn before it is told so."""
_MARK = 0x68756262
"""SQLite's place for whose file it is: hubb."""
_FORMAT = 2
_FAILURES = (sqlite3.Error, MemoryError, UnicodeError)
"""What a file that is damaged may end in; the last where even the error's own text is."""
_DURABLE = ("PRAGMA synchronous = EXTRA", "PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")
TABLES = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, who TEXT NOT NULL,
    moment TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL);
CREATE INDEX entries_by_kind ON entries (kind, account, who);
CREATE TABLE totals (
    account TEXT NOT NULL, who TEXT NOT NULL, state TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (account, who));
CREATE TABLE charges (
    number INTEGER PRIMARY KEY, account TEXT NOT NULL, charge_key TEXT, released INTEGER,
    UNIQUE (account, charge_key));
CREATE TABLE seen (number INTEGER NOT NULL, who TEXT NOT NULL, PRIMARY KEY (number, who));
CREATE TABLE releases (number INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE place (id TEXT NOT NULL, kind TEXT NOT NULL, lies TEXT NOT NULL);
"""
COPIED = ("entries", "totals", "charges", "seen", "releases")
"""All that a ledger holds, but for where it lies."""


class Rows(Protocol):
    """What can be done within a transaction."""

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with ? for each value, and give all its rows."""

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, and give its rows one by one."""


class Store(Protocol):
    """Where entries are kept."""

    @property
    def where(self) -> str:
        """Its path or address."""

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone: durable when it returns, undone where it raises."""

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""

    def adopt(self, work: Callable[[Rows], None]) -> None:
        """As `write`, in a ledger that was copied or moved: by its owner's word it lies here from now on."""

    def remembered(self) -> set[Remembered | None]:
        """How many lines the ledger that lay here had at least."""

    def lacks_log(self) -> bool:
        """Whether a part of it was left behind."""

    @property
    def key_path(self) -> Path | None:
        """Where the key is kept that marks releases; None where there is no place for it."""

    def check(self, rows: Rows, before: set[Remembered | None]) -> str | None:
        """What is wrong with the store itself, such as an index that does not show what is there.

        `before` is what was remembered before the moment that is looked at: others may write meanwhile.
        """

    def close(self) -> None:
        """Let go."""


class SQLite:
    """A ledger in a file, which only its owner can read: made with mode 0600.

    While it is in use SQLite keeps a log beside it (WAL). Who closes it last puts all of it into the file,
    and the file says so: at rest a ledger is one file.

    Guarantee: when `write` returns, what was written has been synced to the disk. Nothing is written to a
        file that does not lie where the ledger was, or that holds less than it did.
    Assumes: the disk keeps what it said was synced, and the file is on this machine's own disk.
    Proof: docs/proofs/ledger.md, "Durable" and "One ledger"
    """

    def __init__(
        self,
        path: str | Path,
        *,
        is_looked_at: bool = False,
        connect: Callable[..., Any] = sqlite3.connect,
        durable: bool = True,
        remembers: bool = True,
    ) -> None:
        # The last three are the tests' private door: another file layer, a control that loses charges, and
        # no memory beside the file, where tests put an older state in its place.
        self.path = Path(path).resolve()
        self.key_path: Path | None = self.path.with_name(self.path.name + ".key")
        protect_paths(*(f"{self.path}{ending}" for ending in ("", ".key", "-wal", "-shm", "-journal")))
        self._is_looked_at = is_looked_at
        self._connect = connect
        self._settings = _DURABLE if durable else ("PRAGMA synchronous = NORMAL",)
        self._remembers = remembers
        self._notes = [Note.beside(self.path)] if remembers else []
        log = self.path.with_name(self.path.name + "-wal")
        self._had_log = log.exists() and log.stat().st_size > 0
        self._idle: list[Any] = []
        self._process = os.getpid()
        self._file = _File(self.path)
        self._lies: str | None = None
        """Where it says that it lies, as it was last found to be true; of the file that is open."""
        self._known: Remembered | None = None
        """The head that this process saw last."""
        # Who never closes it leaves one file, too, where the process ends in peace.
        self._last = weakref.finalize(self, _close, self._idle, self._file, self._process)
        if not self.path.exists() and not is_looked_at:
            self._create()
        self._transaction("BEGIN", _check_format, is_checked=False)
        if remembers:
            self._notes.append(Note.at_home(self._transaction("BEGIN", name_of, is_checked=False)))
        if not is_looked_at:
            self.read(lambda _: None)
            self._file.is_ours = True

    @property
    def where(self) -> str:
        """The file's path."""
        return str(self.path)

    def write(self, work: Callable[[Rows], _T]) -> _T:
        """Do work that is alone."""
        if self._is_looked_at:
            raise only_looked_at()
        if not self._file.has_log:
            self._start_log()
        return self._transaction("BEGIN IMMEDIATE", work, is_checked=True)

    def read(self, work: Callable[[Rows], _T]) -> _T:
        """Look at one moment."""
        return self._transaction("BEGIN", work, is_checked=not self._is_looked_at)

    def adopt(self, work: Callable[[Rows], None]) -> None:
        """Make this file the ledger, by the owner's word: what is written now lies here."""

        def adopted(rows: Rows) -> None:
            work(rows)
            name = next_name(name_of(rows), self.remembered())
            rows.run("UPDATE place SET id = ?, kind = 'ledger', lies = ?", (name, locate(self.path)))

        self._known = None
        self._transaction("BEGIN IMMEDIATE", adopted, is_checked=False)

    def remembered(self) -> set[Remembered | None]:
        """What the notes say of how long the ledger was."""
        return {note.read() for note in self._notes}

    def lacks_log(self) -> bool:
        """Whether the file says that it has a log, and there is none: it was copied or moved while in use."""
        mode = self._transaction("BEGIN", lambda rows: rows.run("PRAGMA journal_mode"), is_checked=False)
        return mode == [("wal",)] and not self._had_log

    def check(self, rows: Rows, before: set[Remembered | None]) -> str | None:
        """Whether it lies where it was; SQLite's own check of its pages and indexes."""
        try:
            self._refuse_elsewhere(rows, before)
        except Refused as refusal:
            return refusal.what
        found = rows.run("PRAGMA integrity_check(1)")
        return None if found == [("ok",)] else "the file is damaged: SQLite's own check fails"

    def close(self) -> None:
        """Close this process's connections."""
        _close(self._idle, self._file, self._process)

    def _transaction(self, begin: str, work: Callable[[Rows], _T], *, is_checked: bool) -> _T:
        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
        # Read before the transaction begins: it never says more than was committed by then.
        before = {*self.remembered(), self._known} if is_checked else set()
        try:
            connection = self._taken()
        except _FAILURES as problem:
            raise _failed(problem) from None
        try:
            connection.execute(begin)
            rows = _Rows(connection)
            if is_checked:
                self._refuse_elsewhere(rows, before)
            out = work(rows)
            head = None if begin == "BEGIN" else head_of(rows)
            self._refuse_replaced()
            connection.execute("COMMIT")
        except BaseException as problem:
            # A connection that failed is not used again: the next one reads the file anew.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                connection.close()
            if isinstance(problem, _FAILURES):
                raise _failed(problem) from None
            raise
        self._idle.append(connection)
        if head is not None:
            self._known = head
            for note in self._notes:
                note.write(head)
        return out

    def _taken(self) -> Any:
        """A connection that nobody uses."""
        self._refuse_replaced()
        with suppress(IndexError):
            return self._idle.pop()
        self._refuse_links()
        # mode=rw: a ledger that was moved away is missed, not made anew.
        where = f"file:{_quoted(self.path)}?mode=rw"
        made = self._connect(where, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False)
        try:
            for setting in (*self._settings, "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"):
                made.execute(setting)
            self._file.known = self._file.known or self._file.found()
            self._lies = None
        except BaseException:
            made.close()
            raise
        return made

    def _start_log(self) -> None:
        """Write to a log from now on, which takes one sync for each commit; the file says that it has one."""
        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
        try:
            connection = self._taken()
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except BaseException:
                connection.close()
                raise
        except _FAILURES as problem:
            raise _failed(problem) from None
        self._idle.append(connection)
        self._file.has_log = True

    def _refuse_replaced(self) -> None:
        """Refuse to go on with a file that is no longer the one under its name."""
        if not self._file.is_there():
            raise Refused(
                "the ledger was moved, removed or replaced while it was open",
                why="what is charged here would be missed there",
                fix="open it anew, where it lies now",
            )

    def _refuse_elsewhere(self, rows: Rows, before: set[Remembered | None]) -> None:
        """Refuse what is not the ledger that was made here, or not all of it.

        Guarantee: of all copies of a ledger one can be charged, and it holds all lines that it had.
        Proof: docs/proofs/ledger.md, "One ledger"
        """
        found = rows.run("SELECT id, kind, lies FROM place")
        if len(found) != 1:
            raise LedgerFailed(
                "the ledger does not say where it lies",
                why="a copy could not be told from it",
                fix="restore it from a backup: hubbub ledger restore",
            )
        name, kind, stored = found[0]
        if kind != "ledger" or stored != self._lies:
            refuse_elsewhere(kind, stored, locate(self.path))
            self._lies = stored
        refuse_older(name, lambda number, digest: has_line(rows, number, digest), before)

    def _refuse_links(self) -> None:
        """Refuse a file with two names: SQLite keeps its log by the name, so charges would be lost."""
        with suppress(FileNotFoundError):
            if self.path.stat().st_nlink > 1:
                for other in self.path.parent.iterdir():  # what `_create` has not removed yet, or could not
                    if other.name.startswith(f".{self.path.name}.") and other.samefile(self.path):
                        other.unlink(missing_ok=True)
            if self.path.stat().st_nlink > 1:
                raise Refused(
                    "the ledger's file has a second name",
                    why="who charges under one name does not see what is charged under the other",
                    fix="remove the other hard link; use a symbolic one",
                )

    def _create(self) -> None:
        """Made whole beside its place, then put there: nobody ever sees half of one."""
        if self.remembered() - {None} or leftovers(self.path):
            raise Refused(
                "there was a ledger here, and it is gone",
                why="a new one would have the whole budget once more",
                fix="put it back, or restore a backup: hubbub ledger restore; to begin anew all the same, "
                "remove the files of its name with .head, -wal or -journal at the end",
            )
        with suppress(FileExistsError):  # somebody else's was first
            new_file(self.path, lambda _: None, first_name())


@dataclass
class _File:
    """Which file is open: while it is, its number is no other's."""

    path: Path
    known: tuple[int, int] | None = None
    has_log: bool = False
    """Whether this process writes to a log."""
    is_ours: bool = False
    """Whether it was found to be the ledger; who only looks at a file leaves it as it is."""

    def found(self) -> tuple[int, int] | None:
        """The device and the number of what lies under the name now."""
        with suppress(OSError):
            found = self.path.stat()
            return found.st_dev, found.st_ino
        return None

    def is_there(self) -> bool:
        """Whether it still lies under its name."""
        return self.known is None or self.known == self.found()


def leftovers(path: Path) -> bool:
    """Whether the log or the journal of a ledger lies here that is gone: SQLite would put it into another."""
    beside = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    return any(file.exists() and file.stat().st_size > 0 for file in beside)


def new_file(path: Path, fill: Callable[[Rows], None], name: str, backup_of: str | None = None) -> None:
    """Make the file of a ledger, or of a backup, whole and synced, where there is none yet."""
    folder = path.parent
    if not folder.is_dir():
        raise InvalidInput(
            "the ledger's folder is not there",
            why="a ledger is a file in it",
            fix="make the folder first",
        )
    try:
        opened, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)  # mode 0600
        os.close(opened)
    except OSError as problem:
        raise _failed(problem) from None
    made = Path(temporary)
    try:
        with closing(sqlite3.connect(made, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA application_id = {_MARK}; PRAGMA user_version = {_FORMAT};{TABLES}"
            )
            connection.execute("BEGIN")
            kind, where = (
                ("backup", backup_of) if backup_of is not None else ("ledger", locate(made, path.name))
            )
            connection.execute("INSERT INTO place VALUES (?, ?, ?)", (name, kind, where))
            fill(_Rows(connection))
            connection.execute("COMMIT")
        _synced(made)
        os.link(made, path)
        _synced(folder)
    except FileExistsError:
        raise
    except (OSError, sqlite3.Error) as problem:
        raise _failed(problem) from None
    finally:
        for ending in ("", "-wal", "-shm", "-journal"):
            made.with_name(made.name + ending).unlink(missing_ok=True)


def has_line(rows: Rows, number: int, digest: str) -> bool:
    """Whether a ledger has this line, as it is remembered."""
    return rows.run("SELECT digest FROM entries WHERE number = ?", (number,)) == [(digest,)]


def name_of(rows: Rows) -> str:
    """The name of a ledger, which its copies share but for how often they were restored."""
    found = rows.run("SELECT id FROM place")
    return str(found[0][0]) if found else ""


def head_of(rows: Rows) -> Remembered:
    """What is to be remembered of a ledger."""
    (name,) = rows.run("SELECT id FROM place")[0]
    found = rows.run("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
    return (name, *found[0]) if found else (name, 0, "-")


def _close(idle: list[Any], opened: _File, process: int) -> None:
    """Close connections; who is the last of all puts the log into the file, which then says so.

    Not where the file was moved or replaced: the log under its name may be another's by now.
    """
    if os.getpid() != process:
        return
    opened.has_log = False
    while idle:
        connection = idle.pop()
        with suppress(sqlite3.Error):
            if opened.is_ours and not idle and opened.is_there():
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA journal_mode = DELETE")
        with suppress(sqlite3.Error):  # all that was written is in the log already
            connection.close()


def only_looked_at() -> Refused:
    """The error for who would write where the ledger was opened to look."""
    return Refused(
        "the ledger was opened to look at",
        why="nothing is written to what may be a copy or a backup",
        fix="open it with Ledger.open",
    )


class _Rows:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return list(self.each(text, given))

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, row by row."""
        rows: Iterator[tuple[Any, ...]] = self._connection.execute(text, tuple(given))
        return rows


def _check_format(rows: Rows) -> None:
    mark, version = (rows.run(f"PRAGMA {name}")[0][0] for name in ("application_id", "user_version"))
    if mark != _MARK:
        raise InvalidInput(
            "the file is not a ledger",
            why="what is stored keeps its meaning only where it is read as it was written",
            fix="give the path of a ledger, or of no file to make one",
        )
    if version != _FORMAT:
        later = version > _FORMAT
        raise InvalidInput(
            f"the file is a ledger of {'a later' if later else 'an earlier'} version",
            why="what is stored keeps its meaning only where it is read as it was written",
            fix="use a newer hubbub" if later else "go on with the version of hubbub that wrote it",
        )


def _synced(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _failed(problem: BaseException) -> LedgerFailed:
    if "locked" in str(problem) or "busy" in str(problem):
        return LedgerFailed(
            "the ledger is in use by others for too long",
            why="charges are made one after the other, so that none is lost",
            fix="try again",
        )
    return LedgerFailed(
        f"the ledger's file cannot be used ({type(problem).__name__})",
        why="nothing runs unless its charge is on the disk",
        fix="see that the disk has room, the file may be written, and `hubbub ledger verify` finds it whole",
    )
