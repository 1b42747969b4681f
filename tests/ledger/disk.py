"""A disk in memory that can lose power, fail and be full, for SQLite through apsw.

What was written and not synced is lost in part when power is: each sector of each write is kept or not, as a
coin falls, so writes are dropped, torn and reordered. A file that was made or removed without a sync may
be gone or back.
"""

import itertools
import random
import sqlite3

import apsw

NAME = "ledger"
_SECTOR = 512
_NAMES = itertools.count()


class File:
    """One file: what is safe, and what was done to it since."""

    def __init__(self, safe: bytes = b"", *, is_new: bool = False) -> None:
        self.safe = bytearray(safe)
        self.now = bytearray(safe)
        self.pending: list[tuple[int, bytes | None]] = []
        self.is_new = is_new

    def after_power_loss(self, rng: random.Random) -> bytes:
        out = bytearray(self.safe)
        for offset, data in self.pending:
            if data is None:
                if rng.random() < 0.5:
                    _resize(out, offset)
                continue
            for start in range(0, len(data), _SECTOR):
                if rng.random() < 0.5:
                    piece = data[start : start + _SECTOR]
                    _resize(out, max(len(out), offset + start + len(piece)))
                    out[offset + start : offset + start + len(piece)] = piece
        return bytes(out)


class Disk(apsw.VFS):
    """The disk; `fail_at` is the number of the operation that fails, and all later ones if it is sticky."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.name = f"disk {next(_NAMES)}"
        self.files = {name: File(content) for name, content in files.items()}
        self.removed: dict[str, File] = {}
        self.operations = 0
        self.fail_at: int | None = None
        self.is_sticky = False
        self.error: type[Exception] = apsw.IOError
        super().__init__(self.name, "")

    def failed(self) -> bool:
        return self.fail_at is not None and self.operations >= self.fail_at

    def step(self) -> None:
        self.operations += 1
        if self.fail_at is not None and (
            self.operations == self.fail_at or (self.is_sticky and self.operations > self.fail_at)
        ):
            raise self.error

    def after_power_loss(self, rng: random.Random) -> "Disk":
        files = {}
        for name, file in {**self.removed, **self.files}.items():
            lost = (file.is_new or name not in self.files) and rng.random() < 0.5
            if not lost:
                files[name] = file.after_power_loss(rng)
        return Disk(files)

    def connect(self, *_: object, **__: object) -> "Connection":
        return Connection(self)

    # What SQLite asks

    def xOpen(self, name, flags):
        path = "" if name is None else name.filename() if isinstance(name, apsw.URIFilename) else name
        if path not in self.files:
            self.step()
            self.files[path] = File(is_new=True)
        flags[1] = flags[0]
        return Opened(self, self.files[path])

    def xAccess(self, path, flags):
        return path in self.files

    def xDelete(self, path, syncdir):
        self.step()
        self.removed[path] = self.files.pop(path)
        if syncdir:
            del self.removed[path]

    def xFullPathname(self, name):
        return name


class Opened:
    """An open file."""

    def __init__(self, disk: Disk, file: File) -> None:
        self.disk, self.file = disk, file

    def xRead(self, amount, offset):
        self.disk.step()
        return bytes(self.file.now[offset : offset + amount])

    def xWrite(self, data, offset):
        self.disk.step()
        _resize(self.file.now, max(len(self.file.now), offset + len(data)))
        self.file.now[offset : offset + len(data)] = data
        self.file.pending.append((offset, bytes(data)))

    def xTruncate(self, size):
        self.disk.step()
        _resize(self.file.now, size)
        self.file.pending.append((size, None))

    def xSync(self, flags):
        self.disk.step()
        self.file.safe = bytearray(self.file.now)
        self.file.pending = []
        self.file.is_new = False

    def xFileSize(self):
        return len(self.file.now)

    def xLock(self, level):
        pass

    def xUnlock(self, level):
        pass

    def xCheckReservedLock(self):
        return False

    def xFileControl(self, op, pointer):
        return False

    def xSectorSize(self):
        return _SECTOR

    def xDeviceCharacteristics(self):
        return 0

    def xClose(self):
        pass


class Connection:
    """apsw's connection in the shape of the standard library's."""

    def __init__(self, disk: Disk) -> None:
        try:
            self.inner = apsw.Connection(NAME, flags=apsw.SQLITE_OPEN_READWRITE, vfs=disk.name)
        except apsw.Error as problem:
            raise sqlite3.OperationalError(str(problem)) from None
        # Without shared memory, which apsw does not pass on; what is written and synced is the same.
        self.execute("PRAGMA locking_mode = EXCLUSIVE")

    def execute(self, text, arguments=()):
        try:
            return iter(list(self.inner.cursor().execute(text, tuple(arguments))))
        except apsw.Error as problem:
            raise sqlite3.OperationalError(str(problem)) from None

    def close(self) -> None:
        try:
            self.inner.close(force=True)
        except apsw.Error as problem:
            raise sqlite3.OperationalError(str(problem)) from None


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))
