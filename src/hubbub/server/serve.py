"""Runs the doors of a service in one process, until it is told to stop."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import uvicorn
from starlette.routing import BaseRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from hubbub.errors import InvalidInput
from hubbub.server.app import make_app
from hubbub.server.certificates import Certificate, find_certificate
from hubbub.server.pgwire.listener import WireListener
from hubbub.server.service import Service

__all__ = ["Addresses", "serve"]

_GRACE_SECONDS = 30
_KEEP_ALIVE_SECONDS = 15
_MAX_CONNECTIONS = 1000
_HEADER_BYTES = 32768


@dataclass(frozen=True)
class Addresses:
    """The addresses at which a server listens."""

    host: str
    port: int
    wire_port: int | None
    certificate: Certificate

    @property
    def url(self) -> str:
        """The address of the page and of the REST interface."""
        host = {"127.0.0.1": "localhost", "::1": "localhost"}.get(self.host, self.host)
        return f"https://{host}:{self.port}"


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to `serve`: it would end the process before the ledger is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(H11Protocol):
    """HTTP that closes connections on which no request comes: uvicorn would wait for headers for ever.

    Without this, strangers could hold all connections by saying nothing, or a byte now and then.

    Args:
        header_seconds: the most time from the start of a connection, or from the first byte of its next
            request, to the end of the headers.
        options: as uvicorn passes them.
    """

    def __init__(self, *, header_seconds: float, **options: Any) -> None:
        super().__init__(**options)
        self._header_seconds = header_seconds
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # a request is being answered; its body has a limit of its own
        elif self._patience is None:
            self._patience = self.loop.call_later(self._header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


async def serve(
    service: Service,
    routes: Sequence[BaseRoute] = (),
    *,
    on_ready: Callable[[Addresses], object] = lambda _: None,
    stop: asyncio.Event | None = None,
    header_seconds: float = 15.0,
) -> None:
    """Serve until SIGINT or SIGTERM, or until `stop` is set; then let running requests end, and close.

    Args:
        service: what all doors call; it is closed at the end.
        routes: of other doors over HTTP.
        on_ready: is told the addresses when all doors are open.
        stop: ends the server when it is set.
        header_seconds: how long the headers of a request may take.
    """
    settings = service.settings
    certificate = find_certificate(settings)
    context = certificate.context()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    listener = WireListener(service, context)
    assistants = _find_assistant_door(service)
    config = uvicorn.Config(
        make_app(service, [*_oidc_routes(service), *routes, *(assistants.routes() if assistants else [])]),
        ssl_certfile=certificate.certificate,
        ssl_keyfile=certificate.key,
        http=partial(_Protocol, header_seconds=header_seconds),  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        proxy_headers=False,  # whoever connects is who it is
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        limit_concurrency=_MAX_CONNECTIONS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    config.load()
    config.ssl = context
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop_server() -> None:
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            loop.add_signal_handler(number, stop_server)
    watcher = None if stop is None else asyncio.create_task(_wait(stop, stop_server))
    try:
        with _listen(settings.host, settings.port) as listening:
            port = int(listening.getsockname()[1])
            wire_port = None
            if settings.wire_port:
                wire_port = await _start_wire(listener, settings.host, settings.wire_port)
            on_ready(Addresses(settings.host, port, wire_port, certificate))
            async with assistants.run() if assistants else contextlib.nullcontext():
                await server.serve(sockets=[listening])
    finally:
        if watcher is not None:
            watcher.cancel()
        await listener.close()
        await asyncio.to_thread(service.close)


def _find_assistant_door(service: Service) -> Any:
    """The door for assistants; None without the extra that it takes."""
    if find_spec("mcp") is None:
        return None
    return import_module("hubbub.server.assistants").AssistantDoor(service)


def _oidc_routes(service: Service) -> Sequence[BaseRoute]:
    if service.settings.oidc is None:
        return ()
    try:
        from hubbub.server.oidc import make_oidc_routes
    except ImportError:
        raise InvalidInput(
            "the packages of an identity provider are not installed", why="[server.oidc] is declared",
            fix="pip install 'hubbub[oidc]'",
        ) from None  # fmt: skip
    return make_oidc_routes(service)


async def _wait(stop: asyncio.Event, stop_server: Callable[[], None]) -> None:
    await stop.wait()
    stop_server()


async def _start_wire(listener: WireListener, host: str, port: int) -> int:
    try:
        return await listener.start(host, port)
    except OSError:
        raise _address_error(host, port) from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=512)
    except OSError:
        raise _address_error(host, port) from None
    # Connections inherit it; asyncio sets it only on sockets that name their protocol, as these do not.
    # Without it the end of an answer waits for the client's delayed acknowledgement: 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _address_error(host: str, port: int) -> InvalidInput:
    return InvalidInput(
        f"the server cannot listen on {host}, port {port}",
        why="another program uses it, or the address is not one of this machine",
        fix="choose another port or wire_port in [server]",
    )
