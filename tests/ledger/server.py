"""A real PostgreSQL on a free port of this machine, for as long as the tests run."""

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

BINARIES = Path("/usr/lib/postgresql/15/bin")
WHY_NOT = (
    "PostgreSQL 15 is not installed"
    if not (BINARIES / "initdb").exists()
    else "the server cannot be run by root, and runuser is not there"
    if os.geteuid() == 0 and shutil.which("runuser") is None
    else ""
)


class Server:
    def __init__(self, folder: Path, fsync: str = "off") -> None:
        self.data = folder / "data"
        self.as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.as_user:
            shutil.chown(folder, "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._do("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' "
        options += f"-c fsync={fsync} -c max_connections=150"
        self._do("pg_ctl", "-D", self.data, "-l", folder / "log", "-w", "-t", "120", "-o", options, "start")

    def address(self, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            self._do("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    def _do(self, binary: str, *words: object) -> None:
        command = [*self.as_user, str(BINARIES / binary), *map(str, words)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
