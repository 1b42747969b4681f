"""The listener: connections of PostgreSQL clients, from the first byte to the session.

TLS if the client asks for it, and required beyond this machine; then SCRAM-SHA-256. Until somebody has signed
in, every answer is an error or a step of signing in, within limits of time, size and number.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from hubbub.errors import HubbubError
from hubbub.noise.entropy import random_bytes
from hubbub.server.pgwire.catalog import Catalog
from hubbub.server.pgwire.messages import (
    CANCEL_REQUEST,
    GSS_REQUEST,
    PROTOCOL_3,
    TLS_REQUEST,
    Fields,
    WireError,
    encode_cancel_key,
    encode_error,
    encode_message,
    encode_status,
    read_message,
    read_startup,
)
from hubbub.server.pgwire.query_routing import ServiceAnswers
from hubbub.server.pgwire.scram import Exchange
from hubbub.server.pgwire.session import Session
from hubbub.server.pgwire.sqlstates import convert_error
from hubbub.server.pgwire.variables import Variables, parse_options
from hubbub.server.service import Service
from hubbub.server.service_types import Principal
from hubbub.server.settings import is_loopback

__all__ = ["WireListener"]

_PASSWORD_LIMIT: Final = 4096
"""Bytes of a message before somebody has signed in."""
_BUFFER: Final = 1 << 16
_CATALOG_THREADS = 4
_MAX_CONNECTIONS = 500
_MAX_STRANGERS = 100
"""Connections that sign in at once; others wait for their turn, within the time that signing in may take."""
_MAX_OF_USER = 250
"""Connections of one user: nobody keeps the others out."""
_MECHANISM = "SCRAM-SHA-256"
_LOG = logging.getLogger("hubbub.server.pgwire")
_GONE = (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError, TimeoutError, OSError)
"""A client that leaves, or a network that fails, is no error of the server."""


@dataclass(frozen=True)
class _Startup:
    """The parameters of the start-up packet."""

    user: str
    database: str
    settings: Mapping[str, str]


class WireListener:
    """Listens for PostgreSQL clients.

    Args:
        service: The service of all doors.
        tls: The server's certificate; None for none, which only this machine may use.
        startup_seconds: How long signing in may take.
    """

    def __init__(
        self, service: Service, tls: ssl.SSLContext | None = None, *, startup_seconds: float = 15.0
    ) -> None:
        self._service, self._tls, self._startup_seconds = service, tls, startup_seconds
        self._server: asyncio.Server | None = None
        self._sessions: dict[tuple[int, bytes], Session] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._catalogs: dict[str, Catalog] = {}
        self._strangers = asyncio.Semaphore(_MAX_STRANGERS)
        self._count = 0
        self._users: Counter[str] = Counter()
        self._last_process = 0
        self._executor = ThreadPoolExecutor(_CATALOG_THREADS, thread_name_prefix="hubbub-catalog")

    async def start(self, host: str, port: int) -> int:
        """Begin to listen; return the port."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=_BUFFER)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._executor.shutdown(wait=False, cancel_futures=True)

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._count += 1
        try:
            await self._serve(reader, writer)
        except WireError as error:
            with contextlib.suppress(*_GONE):
                writer.write(encode_error(error))
                await writer.drain()
        except asyncio.CancelledError:
            with contextlib.suppress(*_GONE):
                writer.write(encode_error(WireError("57P01", "the server stops", is_fatal=True)))
        except _GONE:
            pass
        except Exception as problem:  # noqa: BLE001 - one connection must not stop the others
            # The class alone: a text may come from an engine, and speak of rows.
            _LOG.error("internal error of a connection: %s", type(problem).__name__)
        finally:
            self._count -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(*_GONE, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._count > _MAX_CONNECTIONS:
            raise _too_many()
        try:
            async with asyncio.timeout(self._startup_seconds), self._strangers:
                startup = await self._start(reader, writer)
                if startup is None:
                    return
                principal = await self._sign_in(reader, writer, startup)
                answers, variables, key = await self._greet(principal, startup)
        except TimeoutError:
            raise WireError("08006", "signing in took too long", is_fatal=True) from None
        if self._users[principal.user] >= _MAX_OF_USER:
            raise _too_many()
        self._users[principal.user] += 1
        session = Session(reader, writer, answers, variables)
        self._sessions[key] = session
        try:
            writer.write(encode_message(b"R", bytes(4)))
            for name, value in variables.reports().items():
                writer.write(encode_status(name, value))
            writer.write(encode_cancel_key(*key))
            await session.run()
        finally:
            del self._sessions[key]
            self._users[principal.user] -= 1

    async def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Startup | None:
        """Read the first packets; None for one that asks to cancel a query of another connection."""
        is_encrypted = False
        for _ in range(3):  # GSS, TLS, start-up
            code, fields = await read_startup(reader)
            if code == CANCEL_REQUEST:
                self._cancel(fields)
                return None
            if code == TLS_REQUEST and not is_encrypted and self._tls is not None:
                if reader._buffer:  # type: ignore[attr-defined] # noqa: SLF001 - see CVE-2021-23214
                    raise WireError("08P01", "there are bytes before TLS begins", is_fatal=True)
                writer.write(b"S")
                await writer.drain()
                await writer.start_tls(self._tls, ssl_handshake_timeout=self._startup_seconds)
                is_encrypted = True
            elif code in {TLS_REQUEST, GSS_REQUEST}:
                fields.end()
                writer.write(b"N")
                await writer.drain()
            elif code >> 16 == 3:
                return self._read_startup(code, fields, writer, is_encrypted=is_encrypted)
            else:
                raise WireError("0A000", "only version 3 of the protocol is spoken here", is_fatal=True)
        raise WireError("08P01", "the connection does not start", is_fatal=True)

    def _read_startup(
        self, code: int, fields: Fields, writer: asyncio.StreamWriter, *, is_encrypted: bool
    ) -> _Startup:
        texts: list[str] = []
        while (text := fields.text()) or len(texts) % 2:
            texts.append(text)
        fields.end()
        stated = dict(zip(texts[::2], texts[1::2], strict=True))
        if not is_encrypted and not is_loopback(_address(writer)):
            raise WireError(
                "28000", "TLS is required", detail="The connection comes from another machine.",
                hint="Connect with sslmode=verify-full.", is_fatal=True,
            )  # fmt: skip
        if stated.get("replication", "false").lower() not in {"false", "off", "no", "0"}:
            raise WireError("0A000", "replication is not offered", is_fatal=True)
        extensions = [name for name in stated if name.startswith("_pq_.")]
        if code != PROTOCOL_3 or extensions:
            # A newer minor version, or options of it: the client is told what is spoken here.
            names = b"".join(name.encode() + b"\0" for name in extensions)
            writer.write(encode_message(b"v", bytes(4) + len(extensions).to_bytes(4, "big") + names))
        user = stated.pop("user", "")
        database = stated.pop("database", user)
        settings = parse_options(stated.pop("options", ""))
        ignored = {"replication", *extensions}
        settings.update({name: value for name, value in stated.items() if name not in ignored})
        if not user:
            raise WireError("28000", "no user is named", hint="Add user= to the connection.", is_fatal=True)
        return _Startup(user, database, settings)

    # Signing in

    async def _sign_in(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, startup: _Startup
    ) -> Principal:
        """Ask for the password by SCRAM; whatever is wrong, the answer is the same."""
        auth, call = self._service.auth, self._service.call
        source = _address(writer)
        try:
            await call(auth.check_attempt, startup.user, source)
            exchange = Exchange(await call(auth.scram_verifier, startup.user))
            writer.write(encode_message(b"R", (10).to_bytes(4, "big") + _MECHANISM.encode() + b"\0\0"))
            fields = await self._read_password(reader, writer)
            if fields.text() != _MECHANISM:
                raise WireError("08P01", f"only {_MECHANISM} is offered", is_fatal=True)
            challenge = exchange.challenge(fields.value() or b"")
            fields.end()
            writer.write(encode_message(b"R", (11).to_bytes(4, "big") + challenge))
            proof = exchange.verify((await self._read_password(reader, writer)).rest())
            principal = await call(auth.finish_attempt, startup.user, source, is_right=proof is not None)
        except HubbubError as problem:
            error = convert_error(problem)
            raise WireError(
                "28P01", error.message, detail=error.detail, hint=error.hint, is_fatal=True
            ) from None
        assert proof is not None
        writer.write(encode_message(b"R", (12).to_bytes(4, "big") + proof))
        return principal

    @staticmethod
    async def _read_password(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Fields:
        await writer.drain()
        kind, fields = await read_message(reader, _PASSWORD_LIMIT)
        if kind != b"p":
            raise WireError("08P01", "a password is expected", is_fatal=True)
        return fields

    async def _greet(
        self, principal: Principal, startup: _Startup
    ) -> tuple[ServiceAnswers, Variables, tuple[int, bytes]]:
        """Open the dataset for somebody who has signed in, with the settings of the start-up packet."""
        service, dataset = self._service, startup.database
        try:
            description = await service.call(service.describe, principal, dataset)
        except HubbubError as problem:
            error = convert_error(problem)
            raise WireError(
                "3D000", error.message, detail=error.detail, hint=error.hint, is_fatal=True
            ) from None
        catalog = self._catalogs.get(dataset)
        if catalog is None:
            catalog = self._catalogs[dataset] = Catalog(dataset, description.tables, description.unit)
            self._executor.submit(catalog.prepare)
        epsilon = service.settings.epsilon
        variables = Variables(principal.user, None if epsilon is None else str(epsilon))
        try:
            variables.set_defaults(startup.settings)
        except WireError as error:
            raise WireError(error.code, error.message, hint=error.hint, is_fatal=True) from None
        self._last_process = self._last_process % (2**31 - 1) + 1
        answers = ServiceAnswers(
            service, principal, dataset, catalog, process=self._last_process, executor=self._executor
        )
        return answers, variables, (self._last_process, random_bytes(4))

    def _cancel(self, fields: Fields) -> None:
        """Cancel the query of another connection, by its number and its secret; nothing is answered."""
        session = self._sessions.get((fields.int32(), fields.take(4)))
        if session is not None:
            session.cancel()


def _too_many() -> WireError:
    return WireError("53300", "there are too many connections", hint="Try again later.", is_fatal=True)


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else ""
