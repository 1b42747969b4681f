"""A real PostgreSQL on a free port of this machine, for as long as the tests run."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BINARIES = Path("/usr/lib/postgresql/15/bin")
WHY_NOT = (
    "PostgreSQL 15 is not installed"
    if not (BINARIES / "initdb").exists()
    else "the server cannot be run by root, and runuser is not there"
    if os.geteuid() == 0 and shutil.which("runuser") is None
    else ""
)


def in_memory() -> "tempfile.TemporaryDirectory[str]":
    """A folder in memory where there is some: what is written here is gone with the tests."""
    memory = Path("/dev/shm")  # noqa: S108 - a new folder in it is made
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


def needed(why_not: str) -> None:
    """Skip where there is no server."""
    if why_not:
        import pytest  # benchmarks start servers too, and have none

        pytest.skip(why_not)


@contextlib.contextmanager
def running_server(options: str = "") -> "Iterator[Server]":
    """A server with its data in memory, for as long as the body runs."""
    with in_memory() as folder:
        server = Server(Path(folder), options)
        yield server
        server.stop()


class Server:
    def __init__(self, folder: Path, options: str = "") -> None:
        needed(WHY_NOT)
        self.data, self.log = folder / "data", folder / "log"
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.as_user:
            shutil.chown(folder, "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
        self._options += f"-c fsync=off -c max_connections=150 {options}"
        self._do(
            "initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync",
            "-E", "UTF8", "--locale=C.UTF-8",
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        self._do("pg_ctl", "-D", self.data, "-l", self.log, "-w", "-t", "120", "-o", self._options, "start")

    def address(self, user: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._do("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def wait_until_gone(self) -> None:
        while (self.data / "postmaster.pid").exists():
            time.sleep(0.05)

    def _do(self, binary: str, *words: object) -> None:
        command = [*self.as_user, str(BINARIES / binary), *map(str, words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
