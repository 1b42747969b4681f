"""The HTTP application: doors as routes, behind limits, security headers and errors that hold no data.

A door adds its routes to `make_app`. Whatever it raises becomes an error document, or for pages what the door
renders; of an exception that is not ours, only its kind is logged.
"""

import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hubbub.errors import HubbubError
from hubbub.server.console import make_console_routes, texts
from hubbub.server.console.layout import Frame
from hubbub.server.console.pages import render_error, render_status
from hubbub.server.descriptions import status_of
from hubbub.server.requests import error_document
from hubbub.server.rest import make_routes
from hubbub.server.service import Service

__all__ = ["make_app"]

_LOG = logging.getLogger("hubbub.server")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_HSTS = "max-age=31536000"


def make_app(service: Service, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application: the REST interface, the console, and the routes of other doors.

    Args:
        service: what all doors call.
        routes: of other doors.
    """
    app = Starlette(
        routes=[*make_routes(service), *make_console_routes(service), *routes],
        middleware=[Middleware(_Guard, service=service)],
        exception_handlers={HubbubError: _handle_error, HTTPException: _handle_status},
    )
    app.state.service = service
    return app


# Errors


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HubbubError)
    status, _ = status_of(error)
    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    if status in {429, 503}:
        headers["retry-after"] = "60" if status == 429 else "5"
    if _wants_page(request):
        return HTMLResponse(render_error(Frame(), error), status, headers)
    return JSONResponse(error_document(error), status, headers)


_WORDS = {
    404: ("there is nothing at this address", "see /api/v1/openapi.json for what there is"),
    405: ("this address does not take that method", "see /api/v1/openapi.json for those it takes"),
    406: ("none of the accepted formats is offered", "accept JSON, CSV, Parquet, Arrow or SVG"),
    413: ("the request is too large", "send less"),
    415: ("the request is not JSON", "send application/json"),
}


async def _handle_status(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    if _wants_page(request):
        return HTMLResponse(render_status(texts.NO_PAGE), problem.status_code, dict(problem.headers or {}))
    return _refusal(problem.status_code, problem.headers)


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")


def _refusal(status: int, headers: Mapping[str, str] | None = None) -> Response:
    what, fix = _WORDS.get(status, ("the request cannot be served", "see docs/serve.md"))
    fields = {
        "code": f"http_{status}",
        "what": what,
        "why": "it is not understood",
        "fix": fix,
        "parameter": None,
    }
    return JSONResponse({"error": fields}, status, dict(headers or {}))


# All requests


class _Guard:
    """Checks the host's name, adds security headers, and lets no exception out."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        settings = service.settings
        names = {settings.host, "localhost", "127.0.0.1", "::1", *settings.allowed_hosts}
        self._hosts = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: list[int] = []

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                status.append(message["status"])
                message["headers"] = _add_headers(message["headers"], is_secure=scope["scheme"] == "https")
            await send(message)

        try:
            if _has_two_lengths(scope):
                await _refusal(400, {"connection": "close"})(scope, receive, send_with_headers)
            elif self._host(scope) not in self._hosts:
                await _refusal(421)(scope, receive, send_with_headers)
            else:
                await self._app(scope, receive, send_with_headers)
        except Exception as problem:  # noqa: BLE001 - whatever it is, nobody may read it
            # Texts and tracebacks of exceptions may hold anything: the kind is enough to look for it.
            _LOG.error("%s: %s", _route(scope), type(problem).__name__)
            if not status:
                await _refusal(500)(scope, receive, send_with_headers)
        _LOG.info("%s %s %s", scope["method"], _route(scope), status[0] if status else 500)

    @staticmethod
    def _host(scope: Scope) -> str:
        """The host that was addressed, without its port; no header of a proxy is read."""
        values = [value for name, value in scope["headers"] if name == b"host"]
        text = values[0].decode("latin-1").lower() if len(values) == 1 else ""
        if text.startswith("["):
            return text[1:].partition("]")[0]
        return text.rpartition(":")[0] if text.count(":") == 1 else text


def _has_two_lengths(scope: Scope) -> bool:
    """True if a proxy could see another end of the request than this server does, and so another request."""
    names = {name for name, _ in scope["headers"]}
    has_chunks = b"transfer-encoding" in names  # HTTP/1.0 knows none, and a proxy may not look for them
    return has_chunks and (b"content-length" in names or scope["http_version"] == "1.0")


def _add_headers(headers: Sequence[tuple[bytes, bytes]], *, is_secure: bool) -> list[tuple[bytes, bytes]]:
    there = {name.lower() for name, _ in headers}
    added = dict(_HEADERS, **({"strict-transport-security": _HSTS} if is_secure else {}))
    more = [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in there]
    return [*headers, *more]


def _route(scope: MutableMapping[str, Any]) -> str:
    """The pattern of the route: what was typed in its place may be private."""
    route = scope.get("route")
    return str(getattr(route, "path", "unknown address"))
