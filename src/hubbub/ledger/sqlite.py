"""A ledger in a SQLite file: every commit is on the disk before it is acknowledged."""

import os
import sqlite3
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hubbub.accounting.budget import refuse_fork
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger.copy_detection import (
    HeadFile,
    KnownHead,
    locate,
    new_ledger_id,
    refuse_older_state,
    refuse_other_location,
    restored_ledger_id,
)
from hubbub.ledger.store import (
    FORMAT,
    TABLES,
    Transaction,
    check_format,
    has_entry,
    read_head,
    read_ledger_id,
    read_only_error,
)
from hubbub.output_files import protect_paths

__all__ = ["SQLiteStore", "convert_os_errors", "create_file", "has_leftover_log", "resolve_path"]

_T = TypeVar("_T")
LOCK_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.005
_APPLICATION_ID = 0x68756262
"""SQLite's field for the application that a file belongs to: "hubb"."""
_FAILURES = (sqlite3.Error, MemoryError, UnicodeError, OSError)
"""Errors that a corrupted file, or a folder that is closed to us, may raise; UnicodeError if even the error's
text is corrupted.
"""
_DURABLE_PRAGMAS = ("PRAGMA synchronous = EXTRA", "PRAGMA fullfsync = ON", "PRAGMA checkpoint_fullfsync = ON")
_SUFFIXES = ("", "-wal", "-shm", "-journal")
_LONGEST_NAME = ".{}.key.12345678"
"""The longest of the names that are made of a ledger's: that of its key until it is complete."""


class SQLiteStore:
    """A ledger in a file that only its owner can read: created with mode 0600.

    While it is in use, SQLite writes to a log beside it (WAL). The last process that closes it merges the log
    into the file, and the file says so: at rest a ledger is one file.

    Guarantee: when `write` returns, what was written has been synced to the disk. Nothing is written to a
        file that is not at its recorded location, or that lacks entries it is known to have had.
    Assumes: the disk keeps what it reported as synced, and the file is on a local disk.
    Proof: docs/proofs/ledger.md, "Durable" and "One ledger"
    """

    def __init__(
        self,
        path: str | Path,
        *,
        read_only: bool = False,
        connect: Callable[..., Any] = sqlite3.connect,
        durable: bool = True,
        use_head_files: bool = True,
    ) -> None:
        # The last three are for tests: another file layer, a control that loses charges, and no head files,
        # where a test puts an older state in place.
        self.path = resolve_path(path)
        self.key_path: Path | None = self.path.with_name(self.path.name + ".key")
        protect_paths(*(f"{self.path}{ending}" for ending in (*_SUFFIXES, ".key")))
        self._read_only = read_only
        self._connect = connect
        self._pragmas = _DURABLE_PRAGMAS if durable else ("PRAGMA synchronous = NORMAL",)
        self._head_files = [HeadFile.beside(self.path)] if use_head_files else []
        self._location_file = HeadFile.of_file(self.path) if use_head_files else HeadFile(None)
        log = self.path.with_name(self.path.name + "-wal")
        self._had_log = _has_content(log)
        self._idle_connections: list[Any] = []
        self._process = os.getpid()
        self._file = _OpenFile(self.path)
        self._verified_location: str | None = None
        """The stored location that was last compared with the file's; None after a new connection."""
        self._last_head: KnownHead | None = None
        """The head that this process saw last."""
        # A store that is never closed leaves one file too, if the process ends normally.
        self._finalizer = weakref.finalize(self, _close, self._idle_connections, self._file, self._process)
        if not self.path.exists() and not read_only:
            self._create()
        self._run("BEGIN", _check_file, is_checked=False)
        if use_head_files:
            ledger_id = self._run("BEGIN", read_ledger_id, is_checked=False)
            self._head_files.append(HeadFile.in_user_folder(ledger_id))
        if not read_only:
            self.read(lambda _: None)
            self._file.is_ledger = True

    @property
    def location(self) -> str:
        """The file's path."""
        return str(self.path)

    def write(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work alone."""
        if self._read_only:
            raise read_only_error()
        if not self._file.has_log:
            self._start_log()
        return self._run("BEGIN IMMEDIATE", work, is_checked=True)

    def read(self, work: Callable[[Transaction], _T]) -> _T:
        """Run work on one consistent state."""
        return self._run("BEGIN", work, is_checked=not self._read_only)

    def adopt(self, work: Callable[[Transaction], None]) -> None:
        """Make this file the ledger: its stored location becomes its current one."""

        def adopt_here(transaction: Transaction) -> None:
            work(transaction)
            ledger_id = restored_ledger_id(read_ledger_id(transaction), self.known_heads())
            transaction.execute(
                "UPDATE location SET ledger_id = ?, kind = 'ledger', location = ?",
                (ledger_id, locate(self.path)),
            )

        self._last_head = None
        self._run("BEGIN IMMEDIATE", adopt_here, is_checked=False)

    def known_heads(self) -> set[KnownHead | None]:
        """Return the heads in the head files."""
        return {head_file.read() for head_file in self._head_files}

    def is_log_missing(self) -> bool:
        """Return whether the file says that it has a log, but there is none: it was moved while in use."""
        mode = self._run(
            "BEGIN", lambda transaction: transaction.execute("PRAGMA journal_mode"), is_checked=False
        )
        return mode == [("wal",)] and not self._had_log

    def find_problem(self, transaction: Transaction, heads: set[KnownHead | None]) -> str | None:
        """Check the location, and run SQLite's own check of its pages and indexes."""
        try:
            self._refuse_other_location(transaction, heads)
        except Refused as refusal:
            return refusal.what
        result = transaction.execute("PRAGMA integrity_check(1)")
        return None if result == [("ok",)] else "the file is corrupted: SQLite's integrity check fails"

    def close(self) -> None:
        """Close this process's connections."""
        _close(self._idle_connections, self._file, self._process)

    def _run(self, begin: str, work: Callable[[Transaction], _T], *, is_checked: bool) -> _T:
        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
        # Read before the transaction begins, so that the known heads were committed before its state.
        heads = {*self.known_heads(), self._last_head} if is_checked else set()
        try:
            connection = self._take_connection()
        except _FAILURES as problem:
            raise _store_error(problem, self.path) from None
        try:
            connection.execute(begin)
            transaction = _SQLiteTransaction(connection)
            if is_checked:
                self._refuse_other_location(transaction, heads)
            out = work(transaction)
            head = None if begin == "BEGIN" else read_head(transaction)
            self._refuse_replaced()
            connection.execute("COMMIT")
        except BaseException as problem:
            # A connection that failed is not reused: the next one reads the file again.
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            with suppress(sqlite3.Error):
                connection.close()
            if isinstance(problem, _FAILURES):
                raise _store_error(problem, self.path) from None
            raise
        self._idle_connections.append(connection)
        if head is not None:
            if head[1] and (self._last_head is None or self._last_head[0] != head[0]):
                # Once per process is enough: it records that there was a ledger here.
                self._location_file.write(head)
            self._last_head = head
            for head_file in self._head_files:
                head_file.write(head)
        return out

    def _take_connection(self) -> Any:
        """Return an idle connection, or a new one."""
        self._refuse_replaced()
        with suppress(IndexError):
            return self._idle_connections.pop()
        self._refuse_links()
        # mode=rw: a ledger that was moved away is an error, not a reason to create a new one.
        uri = f"file:{_quote(self.path)}?mode=rw"
        connection = self._connect(
            uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in (*self._pragmas, "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON"):
                connection.execute(pragma)
            self._file.known_id = self._file.known_id or self._file.current_id()
            self._verified_location = None
        except BaseException:
            connection.close()
            raise
        return connection

    def _start_log(self) -> None:
        """Switch to WAL mode, which takes one sync per commit; the file's header says that it has a log."""
        refuse_fork(self._process, "a ledger that was opened", "open the ledger in the new process")
        try:
            connection = self._take_connection()
            try:
                _switch_to_log(connection)
            except BaseException:
                connection.close()
                raise
        except _FAILURES as problem:
            raise _store_error(problem, self.path) from None
        self._idle_connections.append(connection)
        self._file.has_log = True

    def _refuse_replaced(self) -> None:
        """Refuse to continue if the path no longer leads to the open file."""
        if not self._file.is_in_place():
            raise Refused(
                "the ledger was moved, removed or replaced while it was open",
                why="charges made here would be missing there",
                fix="open it again at its current location",
            )

    def _refuse_other_location(self, transaction: Transaction, heads: set[KnownHead | None]) -> None:
        """Refuse a file that is not the ledger created here, or that lacks some of its entries.

        Guarantee: of all copies of a ledger one can be charged, and it has all entries of the known heads.
        Proof: docs/proofs/ledger.md, "One ledger"
        """
        rows = transaction.execute("SELECT ledger_id, kind, location FROM location")
        if len(rows) != 1:
            raise LedgerFailed(
                "the ledger does not contain its location",
                why="it could not be told from a copy",
                fix="restore it from a backup: hubbub ledger restore",
            )
        ledger_id, kind, stored = rows[0]
        if kind != "ledger" or stored != self._verified_location:
            refuse_other_location(kind, stored, locate(self.path))
            self._verified_location = stored
        refuse_older_state(ledger_id, lambda number, digest: has_entry(transaction, number, digest), heads)

    def _had_ledger(self) -> bool:
        """Return whether something here or in the user's state folder is left of a ledger at this path."""
        # A damaged head file tells as much: half of a write that was interrupted is left of it.
        head_files = (*self._head_files, self._location_file)
        return any(each.exists for each in head_files) or has_leftover_log(self.path)

    def _refuse_links(self) -> None:
        """Refuse a file with two names: SQLite finds the log by the name, so charges would be lost."""
        with suppress(FileNotFoundError):
            if self.path.stat().st_nlink > 1:
                for other in self.path.parent.iterdir():  # a temporary name that `create_file` left behind
                    if other.name.startswith(f".{self.path.name}.") and other.samefile(self.path):
                        other.unlink(missing_ok=True)
            if self.path.stat().st_nlink > 1:
                raise Refused(
                    "the ledger's file has a second name",
                    why="charges under one name are invisible under the other",
                    fix="remove the other hard link, or use a symbolic link instead",
                )

    def _create(self) -> None:
        """Create the ledger under another name and link it into place, so that nobody sees half of it."""
        if self._had_ledger() and not self.path.exists():  # or else another process created it meanwhile
            record = self._location_file.path
            also = "" if record is None or not record.exists() else f", and {record}"
            raise Refused(
                "there was a ledger here, and it is gone",
                why="a new one would have the whole budget again",
                fix="put it back, or restore a backup: hubbub ledger restore; to start a new one on purpose, "
                f"remove the files with its name that end in .head, -wal or -journal{also}",
            )
        with suppress(FileExistsError):  # another process was first
            create_file(self.path, lambda _: None, new_ledger_id())


@dataclass
class _OpenFile:
    """The open file. While it is open, no other file has its inode."""

    path: Path
    known_id: tuple[int, int] | None = None
    has_log: bool = False
    """True if this process writes to a log."""
    is_ledger: bool = False
    """True if its location was verified; a file that is only read is left as it is."""

    def current_id(self) -> tuple[int, int] | None:
        """Return the device and the inode that the path leads to now."""
        with suppress(OSError):
            status = self.path.stat()
            return status.st_dev, status.st_ino
        return None

    def is_in_place(self) -> bool:
        """Return whether the path still leads to the open file."""
        return self.known_id is None or self.known_id == self.current_id()


def has_leftover_log(path: Path) -> bool:
    """Return whether a missing ledger left its log here: SQLite would merge that into a new one."""
    logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    return any(map(_has_content, logs))


def _has_content(path: Path) -> bool:
    status = _look_at(path)
    return status is not None and status.st_size > 0


def _look_at(path: Path) -> os.stat_result | None:
    """Look once, as another process that closes the ledger may remove a file between two looks."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def resolve_path(location: str | Path) -> Path:
    """Return the real path of a ledger's file, which need not exist; refuse what can be none.

    Guarantee: the system takes this path, and the names of the files beside it.
    """
    if not isinstance(location, (str, os.PathLike)):
        raise InvalidInput(
            "the ledger is named by neither a path nor a URL",
            why="it is a file, or a database in PostgreSQL",
            fix='pass a text such as "visits.ledger" or "postgresql://…"',
            parameter="ledger",
        )
    try:
        path = Path(location).resolve()
        str(path).encode()
        status = _look_at(path)
        if status is None:
            _look_at(path.with_name(_LONGEST_NAME.format(path.name)))
    except OSError as problem:
        raise _store_error(problem, Path(location)) from None
    except (RuntimeError, ValueError, TypeError):  # links in a circle, or bytes that no name has
        raise InvalidInput(
            "the ledger's path leads to no file",
            why="it is a circle of links, or holds characters that no file name has",
            fix="pass the path of a ledger, or of a file that does not exist yet",
            parameter="ledger",
        ) from None
    if status is not None and not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise InvalidInput(
            f"{path.name or path}, given as the ledger, is {kind}",
            why="a ledger is a file",
            fix="pass the path of a ledger, or of a file that does not exist yet",
            parameter="ledger",
        )
    return path


@contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Say of an error of the system which ledger it is about: it may appear wherever files are looked at."""
    try:
        yield
    except OSError as problem:
        raise _store_error(problem, path) from None


def create_file(
    path: Path, fill: Callable[[Transaction], None], ledger_id: str, backup_of: str | None = None
) -> None:
    """Create the file of a ledger or a backup, complete and synced; FileExistsError if there is one.

    Args:
        path: where it will be.
        fill: writes the entries.
        ledger_id: the id of the ledger.
        backup_of: the location of the ledger that this is a backup of.
    """
    folder = path.parent
    if not folder.is_dir():
        raise InvalidInput(
            "the ledger's folder does not exist",
            why="a ledger is a file in it",
            fix="create the folder first",
        )
    try:
        descriptor, temporary_name = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)  # mode 0600
        os.close(descriptor)
    except OSError as problem:
        raise _store_error(problem, path) from None
    temporary = Path(temporary_name)
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {FORMAT};{TABLES}"
            )
            connection.execute("BEGIN")
            kind, location = (
                ("backup", backup_of) if backup_of is not None else ("ledger", locate(temporary, path.name))
            )
            connection.execute("INSERT INTO location VALUES (?, ?, ?)", (ledger_id, kind, location))
            fill(_SQLiteTransaction(connection))
            connection.execute("COMMIT")
        _sync(temporary)
        os.link(temporary, path)
        _sync(folder)
    except FileExistsError:
        raise
    except (OSError, sqlite3.Error) as problem:
        raise _store_error(problem, path) from None
    finally:
        for ending in _SUFFIXES:
            temporary.with_name(temporary.name + ending).unlink(missing_ok=True)


def _switch_to_log(connection: Any) -> None:
    # SQLite does not wait for another process that switches at the same moment: it says "locked" at once.
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as problem:
            if not _is_locked(problem) or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _close(idle_connections: list[Any], file: _OpenFile, process: int) -> None:
    """Close connections; the last one of all processes merges the log into the file.

    It does not if the file was moved or replaced: the log under its name may be another file's by now.
    """
    if os.getpid() != process:
        return
    file.has_log = False
    while idle_connections:
        connection = idle_connections.pop()
        with suppress(sqlite3.Error):
            if file.is_ledger and not idle_connections and file.is_in_place():
                connection.execute("PRAGMA busy_timeout = 0")
                connection.execute("PRAGMA journal_mode = DELETE")
        with suppress(sqlite3.Error):  # everything is in the log already
            connection.close()


class _SQLiteTransaction:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, and return all its rows."""
        return list(self.stream(statement, parameters))

    def stream(self, statement: str, parameters: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, and iterate over its rows."""
        rows: Iterator[tuple[Any, ...]] = self._connection.execute(statement, tuple(parameters))
        return rows


def _check_file(transaction: Transaction) -> None:
    names = ("application_id", "user_version")
    application_id, version = (transaction.execute(f"PRAGMA {name}")[0][0] for name in names)
    if application_id != _APPLICATION_ID:
        raise InvalidInput(
            "the file is not a ledger",
            why="a stored format keeps its meaning only if it is read as it was written",
            fix="pass the path of a ledger, or of no file to create one",
        )
    check_format(version)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _quote(path: Path) -> str:
    from urllib.parse import quote

    return quote(str(path))


def _is_locked(problem: BaseException) -> bool:
    return "locked" in str(problem) or "busy" in str(problem)


def _store_error(problem: BaseException, path: Path) -> LedgerFailed:
    if _is_locked(problem):
        return LedgerFailed(
            "the ledger was locked by others for too long",
            why="charges are made one after the other, so that none is lost",
            fix="try again",
        )
    if "not a database" in str(problem):
        return LedgerFailed(
            f"{path.name}, given as the ledger, is not one",
            why="it has another format",
            fix="pass the path of a ledger, or of a file that does not exist yet",
        )
    if isinstance(problem, OSError):
        return LedgerFailed(
            f"the ledger {path.name} cannot be used ({(problem.strerror or 'the system refused').lower()})",
            why="nothing runs unless its charge is on the disk",
            fix="check its path, and that the disk has room and this user may read and write there",
        )
    return LedgerFailed(
        f"the ledger {path.name} cannot be used ({type(problem).__name__})",
        why="nothing runs unless its charge is on the disk",
        fix="check that the disk has room, that the file is writable, and that `hubbub ledger verify` is OK",
    )
