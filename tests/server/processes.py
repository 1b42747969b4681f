"""`hubbub` commands as processes of their own, and clients that ask them."""

import signal
import ssl
import subprocess
import sys
from pathlib import Path

import httpx


class Process:
    """A running `hubbub` command; its output is read up to a line."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-c", "from hubbub.cli import main; main()", *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def read_until(self, text: str) -> list[str]:
        lines = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if text in line:
                return lines
        raise AssertionError(lines, self.process.stderr.read())

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=90)
        return self.process.returncode, errors


class Served(Process):
    """A running `hubbub serve`, on a port of its own."""

    def __init__(self, config: Path) -> None:
        super().__init__("serve", config, "--port", 0, "--wire-port", 0)
        [self.url] = [line.split()[-1] for line in self.read_until("certificate:") if "REST" in line]
        self.trust = ssl.create_default_context(cafile=config.parent / "server.pem")

    def connect(self, token: str) -> httpx.Client:
        return httpx.Client(
            base_url=f"{self.url}/api/v1/datasets/visits",
            headers={"authorization": f"Bearer {token}"},
            verify=self.trust,
            timeout=120,
        )
