"""`hubbub` commands as processes of their own, servers in this one, and clients that ask them."""

import asyncio
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from hubbub.server.serve import Addresses, serve
from hubbub.server.service import Service


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


@contextmanager
def serving(service: Service, **options: Any) -> Iterator[Addresses]:
    """All doors of a service in a thread of this process, over TLS."""
    ready, places, control = threading.Event(), [], {}

    async def run() -> None:
        control["stop"], control["loop"] = asyncio.Event(), asyncio.get_running_loop()
        stop = control["stop"]
        await serve(service, on_ready=lambda at: (places.append(at), ready.set()), stop=stop, **options)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(30)
        yield places[0]
    finally:
        control["loop"].call_soon_threadsafe(control["stop"].set)
        thread.join(60)
