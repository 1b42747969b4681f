"""Bodies of requests, read strictly, and errors as documents: what all doors over HTTP share."""

import asyncio
import json
from decimal import Decimal
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from hubbub.errors import HubbubError, InvalidInput
from hubbub.server.descriptions import status_of

__all__ = ["error_document", "read_body", "read_json"]

_BODY_SECONDS = 30.0


def error_document(error: HubbubError) -> dict[str, Any]:
    """Return an error as JSON: what, why, fix, and for programs a code and a parameter. It holds no data."""
    _, code = status_of(error)
    fields: dict[str, Any] = {
        "code": code,
        "what": error.what,
        "why": error.why,
        "fix": error.fix,
        "parameter": error.parameter,
    }
    # With the names of parameters as placeholders, which Python and the shell spell in their own ways.
    fields["templates"] = list(error.templates)
    return {"error": fields}


async def read_body(request: Request) -> bytes:
    """Return the body of a request, which may be neither large nor slow."""
    limit = request.app.state.service.settings.max_body
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408) from None
    except ClientDisconnect:
        raise HTTPException(400) from None
    return bytes(body)


async def read_json(request: Request) -> Any:
    """Return the body as JSON; decimals are exact, and what is not strictly JSON is refused."""
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
        raise HTTPException(415)
    body = await read_body(request)
    try:
        return json.loads(
            body, parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repetition
        )
    except (ValueError, RecursionError):
        raise InvalidInput(
            "the body is not JSON, or an entry is there twice", why="it could not be understood",
            fix='send an object, as {"sql": "SELECT …", "epsilon": 0.1}', parameter="body",
        ) from None  # fmt: skip


def _refuse_constant(_: str) -> None:
    raise ValueError


def _refuse_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)
