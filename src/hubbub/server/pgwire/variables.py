"""Settings of a connection: PostgreSQL's that clients set or read, and hubbub's, which decide what is asked.

`hubbub.epsilon` and `hubbub.error` exclude each other: the one that was set last counts. What the text of a
query says by GoogleSQL's OPTIONS goes before both.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from hubbub.errors import HubbubError
from hubbub.server.pgwire.messages import WireError
from hubbub.server.service_types import Question
from hubbub.sql.parser import without_options

__all__ = ["SERVER_VERSION", "Variables", "parse_options"]

SERVER_VERSION: Final = "15.18"
_REPORTED = (
    "server_version", "server_encoding", "client_encoding", "application_name", "is_superuser",
    "session_authorization", "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes",
    "standard_conforming_strings", "default_transaction_read_only", "in_hot_standby",
)  # fmt: skip
"""Settings that clients are told at the start, and whenever they change."""
_DEFAULTS: Mapping[str, str] = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150018",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "is_superuser": "off",
    "session_authorization": "",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
    "transaction_read_only": "on",
    "transaction_isolation": "read committed",
    "transaction_deferrable": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "search_path": '"$user", public',
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "lc_collate": "C",
    "lc_ctype": "C.UTF-8",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "row_security": "on",
    "synchronous_commit": "on",
    "escape_string_warning": "on",
    "backslash_quote": "safe_encoding",
    "check_function_bodies": "on",
    "xmloption": "content",
    "jit": "off",
    "work_mem": "4MB",
    "enable_seqscan": "on",
    "enable_nestloop": "on",
    "geqo": "on",
    "default_tablespace": "",
    "default_table_access_method": "heap",
    "password_encryption": "scram-sha-256",
    "block_size": "8192",
    "wal_level": "minimal",
    "ssl": "on",
}
_FIXED = {
    *("server_version", "server_version_num", "server_encoding", "is_superuser", "session_authorization"),
    *("integer_datetimes", "in_hot_standby", "max_identifier_length", "max_index_keys", "lc_collate"),
    *("lc_ctype", "block_size", "wal_level", "ssl"),
}
_OURS: Mapping[str, str] = {
    "hubbub.epsilon": "",
    "hubbub.error": "",
    "hubbub.delta": "",
    "hubbub.confidence": "0.95",
    "hubbub.intervals": "on",
    "hubbub.bounds": "",
    "hubbub.deadline": "",
    "hubbub.again": "off",
    "hubbub.allow_large_epsilon": "off",
    "hubbub.rows_per_unit": "",
    "hubbub.groups_per_unit": "",
    "hubbub.rows_per_group": "",
}
_NAMES: Mapping[str, str] = {name.lower(): name for name in (*_DEFAULTS, *_OURS)}
_CUSTOM = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)+")
_MAX_VALUE = 1000
_MAX_CUSTOM = 100


def _wrong(name: str, hint: str) -> WireError:
    return WireError("22023", f"the value of {name} cannot be used", hint=hint)


def _check_number(name: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if not number.is_finite() or number < 0 or (number == 0 and name != "hubbub.delta"):
            raise _wrong(name, f"Write SET {name} = 0.1, or SET {name} = DEFAULT.")
        return text.strip()

    return check


def _check_whole(name: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(r"[1-9]\d{0,8}", text.strip()):
            raise _wrong(name, f"Write SET {name} = 10, or SET {name} = DEFAULT.")
        return text.strip()

    return check


def _check_flag(name: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        word = text.strip().lower()
        if word in {"on", "true", "yes", "1", "t"}:
            return "on"
        if word in {"off", "false", "no", "0", "f"}:
            return "off"
        raise _wrong(name, f"Write SET {name} = on or SET {name} = off.")

    return check


def _check_encoding(text: str) -> str:
    if text.strip().strip("'").lower().replace("-", "") not in {"utf8", "unicode"}:
        raise WireError("22023", "only UTF8 is spoken here", hint="SET client_encoding TO 'UTF8'.")
    return "UTF8"


def _check_date_style(text: str) -> str:
    words = {word.strip().upper() for word in text.split(",")}
    if "ISO" not in words and words & {"SQL", "POSTGRES", "GERMAN"}:
        raise WireError("22023", "only ISO dates are written here", hint="SET datestyle TO 'ISO'.")
    return f"ISO, {'DMY' if 'DMY' in words else 'YMD' if 'YMD' in words else 'MDY'}"


def _check_isolation(text: str) -> str:
    if text.lower() not in {"serializable", "repeatable read", "read committed", "read uncommitted"}:
        raise _wrong("transaction_isolation", "Write 'read committed'.")
    return text.lower()


def _check_errors(text: str) -> str:
    _parse_errors(text)
    return text.strip()


def _parse_errors(text: str) -> dict[str, str]:
    """The half-widths by output: `n=50, cost=10`."""
    errors: dict[str, str] = {}
    for part in text.split(","):
        name, _, width = part.rpartition("=")
        if not name.strip():
            raise _wrong("hubbub.error", "Write SET hubbub.error = 'n=50', with the name of an output.")
        errors[name.strip()] = _check_number("hubbub.error")(width)
    return errors


def _check_bounds(text: str) -> str:
    _parse_bounds(text)
    return text.strip()


def _parse_bounds(text: str) -> dict[str, Any]:
    """The bounds by column: `age=0:120, cost=auto`."""
    bounds: dict[str, Any] = {}
    for part in text.split(","):
        name, _, ends = part.rpartition("=")
        low, colon, high = ends.strip().partition(":")
        try:
            pair = (Decimal(low), Decimal(high)) if colon else None
        except InvalidOperation:
            pair = None
        if not name.strip() or (pair is None and ends.strip().lower() != "auto"):
            raise _wrong(
                "hubbub.bounds", "Write SET hubbub.bounds = 'age=0:120', with public bounds, or 'age=auto'."
            )
        bounds[name.strip()] = pair or "auto"
    return bounds


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "client_encoding": _check_encoding,
    "DateStyle": _check_date_style,
    "transaction_isolation": _check_isolation,
    "default_transaction_isolation": _check_isolation,
    "hubbub.error": _check_errors,
    "hubbub.bounds": _check_bounds,
    **{
        name: _check_flag(name) for name in ("hubbub.intervals", "hubbub.again", "hubbub.allow_large_epsilon")
    },
    **{
        name: _check_number(name)
        for name in ("hubbub.epsilon", "hubbub.delta", "hubbub.confidence", "hubbub.deadline")
    },
    **{
        name: _check_whole(name)
        for name in ("hubbub.rows_per_unit", "hubbub.groups_per_unit", "hubbub.rows_per_group")
    },
}
_RIVALS = {"hubbub.epsilon": "hubbub.error", "hubbub.error": "hubbub.epsilon"}


@dataclass(frozen=True)
class _Change:
    """An earlier value, to go back to when a transaction ends or fails."""

    name: str
    value: str


class Variables:
    """The settings of one connection.

    Args:
        user: The name that was signed in.
        epsilon: The owner's default of `hubbub.epsilon`, if there is one.
    """

    def __init__(self, user: str, epsilon: str | None = None) -> None:
        self._values: dict[str, str] = {**_DEFAULTS, **_OURS, "session_authorization": user}
        self._values["hubbub.epsilon"] = epsilon or ""
        self._defaults = dict(self._values)
        self._changes: list[_Change] = []
        self._locals: list[_Change] = []

    def set(self, name: str, value: str | None, *, is_local: bool = False) -> dict[str, str]:
        """Set a value; None sets the connection's default. Return what clients are to be told."""
        if name == "transaction":
            return {}  # isolation and access mode of one transaction: there is nothing to isolate
        known = self._find(name)
        if known in _FIXED:
            raise WireError("55P02", f"{known} cannot be changed")
        default = self._defaults.get(known, "")
        new = default if value is None else self._check(known, value)
        before = {each: self._values.get(each, "") for each in (known, _RIVALS.get(known, known))}
        self._record(before, is_local=is_local)
        self._values[known] = new
        if known in _RIVALS and new:
            self._values[_RIVALS[known]] = ""
        return {known: new} if known in _REPORTED and new != before[known] else {}

    def set_defaults(self, stated: Mapping[str, str]) -> None:
        """Set what the start-up packet says; it is what RESET goes back to."""
        for name, value in stated.items():
            self.set(name, value)
        self._defaults = dict(self._values)
        self._changes, self._locals = [], []

    def reset(self, name: str | None) -> dict[str, str]:
        """Go back to the default of a setting, or of all."""
        if name is not None:
            return self.set(name, None)
        before, self._values = self._values, dict(self._defaults)
        return {each: self._values[each] for each in _REPORTED if before[each] != self._values[each]}

    def get(self, name: str) -> str:
        """Return the value of a setting."""
        value = self._values.get(self._find(name))
        if value is None:
            raise WireError("42704", f"there is no setting {name[:60]}")
        return value

    def find(self, name: str) -> str | None:
        """Return the value of a setting; None if there is none of that name."""
        return self._values.get(_NAMES.get(name.lower(), name.lower()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._values.items(), key=lambda item: item[0].lower()))

    def reports(self) -> dict[str, str]:
        """Return the settings that clients are told at the start."""
        return {name: self._values[name] for name in _REPORTED}

    def end_transaction(self, *, is_commit: bool) -> dict[str, str]:
        """Undo what was set for the transaction, and on ROLLBACK what was set in it."""
        before = dict(self._values)
        for change in reversed(self._locals if is_commit else self._changes + self._locals):
            self._values[change.name] = change.value
        self._changes, self._locals = [], []
        return {each: self._values[each] for each in _REPORTED if before[each] != self._values[each]}

    def question(self, sql: str) -> Question:
        """Return the question that a text asks under these settings."""
        try:
            _, options, _ = without_options(sql)
        except HubbubError:
            return Question(sql)  # the planner says what is wrong with them
        read = self._values.__getitem__
        arguments: dict[str, Any] = {}
        if read("hubbub.error") and options.epsilon is None:
            widths = _parse_errors(read("hubbub.error"))
            arguments["error"] = {name: Decimal(width) for name, width in widths.items()}
        elif read("hubbub.epsilon") and options.epsilon is None:
            arguments["epsilon"] = Decimal(read("hubbub.epsilon"))
        if read("hubbub.delta") and options.delta is None:
            arguments["delta"] = Decimal(read("hubbub.delta"))
        stated = {"rows_per_unit": options.rows, "groups_per_unit": options.groups, "rows_per_group": None}
        for name, own in stated.items():
            if read(f"hubbub.{name}") and own is None:
                arguments[name] = int(read(f"hubbub.{name}"))
        if read("hubbub.confidence") != "0.95":
            arguments["confidence"] = Decimal(read("hubbub.confidence"))
        if read("hubbub.intervals") == "off":
            arguments["intervals"] = False
        if read("hubbub.allow_large_epsilon") == "on":
            arguments["allow_large_epsilon"] = True
        if read("hubbub.bounds"):
            arguments["bounds"] = _parse_bounds(read("hubbub.bounds"))
        if read("hubbub.deadline"):
            arguments["deadline"] = float(read("hubbub.deadline"))
        return Question(sql, **arguments)

    def _record(self, before: Mapping[str, str], *, is_local: bool) -> None:
        changes = self._locals if is_local else self._changes
        if len(changes) < 10 * _MAX_CUSTOM:
            changes.extend(_Change(name, value) for name, value in before.items())

    def _find(self, name: str) -> str:
        lower = name.lower()
        known = _NAMES.get(lower)
        if known is not None:
            return known
        # As in PostgreSQL, names with a dot are free; a misspelled one of ours would be ignored.
        if _CUSTOM.fullmatch(lower) is None or lower.startswith("hubbub."):
            ours = ", ".join(_OURS)
            raise WireError(
                "42704", f"there is no setting {lower[:60]}", hint=f"Settings of queries are {ours}."
            )
        return lower

    def _check(self, name: str, value: str) -> str:
        if len(value) > _MAX_VALUE or len(self._values) > len(_NAMES) + _MAX_CUSTOM:
            raise WireError("54000", "the value is too long, or there are too many settings")
        if name in _OURS and not value.strip():
            return ""
        return _CHECKS.get(name, str)(value)


def parse_options(text: str) -> dict[str, str]:
    """Return the settings of `options=-c hubbub.epsilon=0.1 -c …` in a connection's URL.

    >>> parse_options("-c hubbub.epsilon=0.1 --hubbub.delta=1e-6")
    {'hubbub.epsilon': '0.1', 'hubbub.delta': '1e-6'}
    """
    settings: dict[str, str] = {}
    words = [re.sub(r"\\(.)", r"\1", word) for word in re.findall(r"(?:\\.|[^\s\\])+", text)]
    place = 0
    while place < len(words):
        word = words[place]
        if word == "-c" and place + 1 < len(words):
            place += 1
            word = words[place]
        elif word.startswith(("--", "-c")):
            word = word[2:]
        else:
            raise WireError(
                "22023",
                "an option of the connection is not known",
                hint="Write -c name=value.",
                is_fatal=True,
            )
        name, equals, value = word.partition("=")
        if not equals:
            raise WireError(
                "22023",
                "an option of the connection has no value",
                hint="Write -c name=value.",
                is_fatal=True,
            )
        settings[name.replace("-", "_")] = value
        place += 1
    return settings
