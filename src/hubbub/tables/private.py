"""A folder that only this user can read, gone when it is no longer used; also after a process was killed."""

import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

fcntl: Any
try:
    import fcntl
except ImportError:  # where there are no such locks, nothing is swept
    fcntl = None

__all__ = ["private_folder"]

_PREFIX = "hubbub-"
_LOCK = ".in-use"


def private_folder(owner: object) -> str:
    """A new folder of mode 0700 that lives as long as its owner; those of dead processes are removed."""
    root = Path(tempfile.gettempdir())
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
    lock = None
    if fcntl is not None:
        # Under another name until it is locked: a lock that can be had belongs to nobody alive.
        making = folder / f"{_LOCK}.new"
        lock = os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        making.rename(folder / _LOCK)
    weakref.finalize(owner, _removed, folder, lock, os.getpid())
    return str(folder)


def _removed(folder: Path, lock: int | None, process: int) -> None:
    if os.getpid() != process:  # a child: the folder is its parent's
        return
    shutil.rmtree(folder, ignore_errors=True)
    if lock is not None:
        with suppress(OSError):
            os.close(lock)


def _sweep(root: Path) -> None:
    """Remove what processes left that did not end by themselves."""
    if fcntl is None:
        return
    for folder in root.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            known = folder.lstat()
            if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.geteuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
