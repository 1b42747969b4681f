"""What forms send: read strictly, from this server's own pages only, and made into questions."""

import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from hubbub.errors import AccessDenied, InvalidInput
from hubbub.server.auth import Session
from hubbub.server.console import texts
from hubbub.server.requests import read_body
from hubbub.server.service_types import Question, parse_number

__all__ = [
    "FIELDS",
    "check_origin",
    "check_token",
    "find_local_path",
    "prefill",
    "question_fields",
    "read_form",
    "read_question",
]

FIELDS: dict[str, tuple[str, str | None]] = {
    "epsilon": (texts.EPSILON_LABEL, None),
    "error": (texts.ERROR_LABEL, texts.ERROR_HINT),
    "delta": (texts.DELTA_LABEL, None),
    "rows_per_unit": (texts.ROWS_PER_UNIT, None),
    "groups_per_unit": (texts.GROUPS_PER_UNIT, None),
    "bounds": (texts.BOUNDS, texts.BOUNDS_HINT),
    "keys": (texts.KEYS, texts.KEYS_HINT),
}
"""Label and hint of each field of the editor beside the text."""
_MAX_FIELDS = 50


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; one that is there twice is refused."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415)
    body = await read_body(request)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise HTTPException(400) from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise HTTPException(400)
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def check_origin(request: Request) -> None:
    """Refuse a form that was not sent from a page of this server.

    Guarantee: a request that changes something came from this origin, as its browser says: by
        `Sec-Fetch-Site`, and by `Origin` where that is sent. A request with neither is refused.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    is_same = (site is not None or origin is not None) and site in {None, "same-origin"}
    if not is_same or origin not in {None, own}:
        raise _foreign_error()


def check_token(session: Session, form: Mapping[str, str]) -> None:
    """Refuse a form without the session's own token."""
    if not hmac.compare_digest(session.csrf.encode(), form.get("csrf", "").encode()):
        raise _foreign_error()


def find_local_path(text: str) -> str:
    """Return a path of this server, or the start page for anything else.

    >>> find_local_path("/datasets/visits?sql=x"), find_local_path("//evil.example"), find_local_path("x")
    ('/datasets/visits?sql=x', '/', '/')
    """
    is_local = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_local and text.isascii() and text.isprintable() and "\\" not in text else "/"


def read_question(values: Mapping[str, str]) -> Question:
    """Return the question that the fields of the editor mean.

    An error without a column's name is left for `Question.error` under an empty name.
    """
    stated: dict[str, Any] = {"sql": values.get("sql", "").strip()}
    if not stated["sql"]:
        raise InvalidInput("there is no question", why="it is empty", fix="type a query", parameter="sql")
    for name in ("epsilon", "delta"):
        if values.get(name, "").strip():
            stated[name] = values[name].strip()
    if values.get("error", "").strip():
        stated["error"] = _read_errors(values["error"])
        stated.pop("epsilon", None)
    for name in ("rows_per_unit", "groups_per_unit"):
        text = values.get(name, "").strip()
        if text:
            stated[name] = _read_integer(text, name)
    for name, parse in (("bounds", _parse_bounds), ("keys", _parse_keys)):
        if values.get(name, "").strip():
            stated[name] = _read_pairs(values[name], name, parse)
    return Question.from_dict(stated)


def question_fields(question: Question) -> dict[str, str]:
    """Return the fields of the editor that `read_question` reads as this question."""
    out = {"sql": question.sql}
    for name in ("epsilon", "delta", "rows_per_unit", "groups_per_unit"):
        value = getattr(question, name)
        if value is not None:
            out[name] = str(value)
    if question.error:
        out["error"] = ", ".join(
            f"{name}={value}" if name else str(value) for name, value in question.error.items()
        )
    if question.bounds:
        out["bounds"] = "; ".join(
            f"{name}={value if isinstance(value, str) else ':'.join(map(str, value))}"
            for name, value in question.bounds.items()
        )
    if question.keys:
        out["keys"] = "; ".join(
            f"{name}={','.join(map(str, values))}" for name, values in question.keys.items()
        )
    return out


def prefill(question: Question | None, sql: str = "") -> dict[str, str]:
    """Return the fields of the editor for a question; as an address, a permalink, which runs nothing."""
    return {"sql": sql} if question is None else question_fields(question)


def _read_errors(text: str) -> dict[str, Any]:
    out = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        out[name.strip() if equals else ""] = str(parse_number(value.strip(), "error"))
    return out


def _read_integer(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidInput(
            f"{{{name}}} is not a whole number", why="it is a count", fix="write it as 3", parameter=name
        )
    return int(text)


def _read_pairs(text: str, name: str, parse: Any) -> dict[str, Any]:
    out = {}
    for part in filter(str.strip, text.split(";")):
        column, equals, value = part.partition("=")
        if not equals:
            raise InvalidInput(
                f"{{{name}}} is not understood", why="it names columns and their values",
                fix=texts.BOUNDS_HINT if name == "bounds" else texts.KEYS_HINT, parameter=name,
            )  # fmt: skip
        out[column.strip()] = parse(value.strip())
    return out


def _parse_bounds(text: str) -> Any:
    low, colon, high = text.partition(":")
    if not colon:
        return text
    return [parse_number(low.strip(), "bounds"), parse_number(high.strip(), "bounds")]


def _parse_keys(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _foreign_error() -> AccessDenied:
    return AccessDenied(
        "the form was too old, or came from another page", why="another site could ask on your behalf",
        fix="open the page again, and send it from there",
    )  # fmt: skip
