"""The session cookie: who uses the page. Doors that have pages set it and read it through here."""

import hmac

from starlette.requests import Request
from starlette.responses import Response

from hubbub.errors import AccessDenied
from hubbub.server.auth import Session
from hubbub.server.service import Service

__all__ = ["SESSION_COOKIE", "check_csrf", "clear_session", "read_session", "set_session"]

SESSION_COOKIE = "__Host-hubbub"
"""A browser accepts such a name only over TLS, for this host alone."""


def set_session(response: Response, session: Session) -> None:
    """Give the browser its session: not readable by scripts, not sent along by other sites' requests."""
    response.set_cookie(SESSION_COOKIE, session.secret, path="/", secure=True, httponly=True, samesite="lax")


def clear_session(response: Response) -> None:
    """Take the session away from the browser."""
    response.delete_cookie(SESSION_COOKIE, path="/", secure=True, httponly=True, samesite="lax")


async def read_session(request: Request, service: Service) -> Session | None:
    """Return the session of a request, if it is still valid."""
    secret = request.cookies.get(SESSION_COOKIE)
    return None if secret is None else await service.call(service.auth.find_session, secret)


def check_csrf(session: Session, stated: str | None) -> None:
    """Refuse a request that changes something unless it repeats what only our own pages know."""
    if stated is None or not hmac.compare_digest(session.csrf.encode(), stated.encode(errors="replace")):
        raise AccessDenied(
            "the form is not one of this session", why="another site could have sent it",
            fix="load the page again, and send the form from there", parameter="csrf",
        )  # fmt: skip
