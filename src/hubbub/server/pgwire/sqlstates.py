"""SQLSTATEs: each error of hubbub as a client of PostgreSQL expects it, with its reason and its fix.

Texts of engines and of libraries never pass: an exception that is not hubbub's own is an internal error.
"""

import re

from hubbub.errors import (
    AccessDenied,
    BudgetExceeded,
    EngineFailed,
    Halted,
    HubbubError,
    InvalidInput,
    LedgerFailed,
    Refused,
    Unavailable,
    Unsupported,
)
from hubbub.escaping import escape
from hubbub.server.pgwire.messages import WireError

__all__ = ["convert_error"]

_CODES: tuple[tuple[type[HubbubError], str], ...] = (
    (BudgetExceeded, "53400"),
    (Refused, "42501"),
    (AccessDenied, "42501"),
    (Unavailable, "53000"),
    (Unsupported, "0A000"),
    (InvalidInput, "22023"),
    (Halted, "55000"),
    (EngineFailed, "58000"),
    (LedgerFailed, "58030"),
)
"""The first class that fits decides; `docs/serve-clients.md` lists them."""
_TEXTS = (
    (re.compile(r"there is no table "), "42P01"),
    (re.compile(r"there is no column "), "42703"),
    (
        re.compile(
            r"the SQL cannot be read|there is not exactly one statement|the query is (empty|not a text)"
        ),
        "42601",
    ),
    (re.compile(r"the function \S+ is not (supported|known)"), "42883"),
)
"""What planners say of names and syntax, for which SQL has codes of its own."""
_SETTINGS = {
    *("epsilon", "delta", "error", "confidence", "intervals", "bounds", "deadline", "again"),
    "allow_large_epsilon",
    *("rows_per_unit", "groups_per_unit", "rows_per_group"),
}


def _spell(name: str, value: str | None) -> str:
    if name == "keys" and value is not None:
        return f"keys of {value.partition('=')[0]} in hubbub.toml"  # not for one connection
    if name not in _SETTINGS:
        return name if value is None else f"{name} = {value}"
    if value is None:
        return f"hubbub.{name}"
    needs_quotes = name in {"error", "bounds"}
    return f"SET hubbub.{name} = " + (f"'{value}'" if needs_quotes else value)


def convert_error(problem: BaseException) -> WireError:
    """Return the error that a client sees.

    >>> error = convert_error(InvalidInput("{epsilon} is 0", why="no noise is that large", fix="raise it"))
    >>> error.code, error.message, error.detail, error.hint
    ('22023', 'hubbub.epsilon is 0', 'No noise is that large.', 'Raise it.')
    """
    if isinstance(problem, WireError):
        return problem
    if not isinstance(problem, HubbubError):
        return WireError(
            "XX000", "internal error", detail="Nothing more is said: it might depend on rows.",
            hint="Ask the owner to look into the server's log.",
        )  # fmt: skip
    what, why, fix = map(escape, problem.render(_spell))
    code = next((state for pattern, state in _TEXTS if pattern.match(what)), "")
    code = code or next((state for kind, state in _CODES if isinstance(problem, kind)), "XX000")
    return WireError(code, what, detail=_sentence(why), hint=_sentence(fix))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""
