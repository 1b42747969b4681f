"""The session cookie: who uses the page. Doors that have pages set it and read it through here."""

from starlette.requests import Request
from starlette.responses import Response

from hubbub.server.auth import Session
from hubbub.server.service import Service

__all__ = ["clear_session", "read_session", "set_session"]

_COOKIE = "__Host-hubbub"
"""A browser accepts such a name only over TLS, for this host alone."""


def set_session(response: Response, session: Session) -> None:
    """Give the browser its session: not readable by scripts, not sent along by other sites' requests."""
    response.set_cookie(_COOKIE, session.secret, path="/", secure=True, httponly=True, samesite="lax")


def clear_session(response: Response) -> None:
    """Take the session away from the browser."""
    response.delete_cookie(_COOKIE, path="/", secure=True, httponly=True, samesite="lax")


async def read_session(request: Request, service: Service) -> Session | None:
    """Return the session of a request, if it is still valid."""
    secret = request.cookies.get(_COOKIE)
    return None if not secret else await service.call(service.auth.find_session, secret)
