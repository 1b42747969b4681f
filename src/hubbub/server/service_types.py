"""What the service takes and returns: questions, plans, answers, budgets. All of it is public or released.

Doors render these records and nothing else. None holds a row, an exact answer, a password or a token.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

from hubbub.accounting import PrivacyLoss
from hubbub.engines.schema import Kind
from hubbub.errors import InvalidInput
from hubbub.numbers import Number
from hubbub.sql.result import Result

__all__ = [
    "Answer",
    "AuditRecord",
    "BudgetReport",
    "ColumnDescription",
    "DatasetDescription",
    "DatasetSummary",
    "HistoryItem",
    "PlanReport",
    "Principal",
    "Publication",
    "Question",
    "RaiseRequest",
    "ResultColumnDescription",
    "Role",
    "SavedQuestion",
    "TableDescription",
    "Token",
    "parse_number",
]


class Role(StrEnum):
    """What somebody may do with a dataset; each role may do what those below it may."""

    READER = "reader"
    """Sees published releases and the label."""
    ANALYST = "analyst"
    """Plans and asks, within a budget of her own; sees her own questions."""
    OWNER = "owner"
    """Asks from the whole budget, grants, pauses, publishes, sees all questions."""

    @property
    def rank(self) -> int:
        """Larger for a role that may do more."""
        return list(Role).index(self)


@dataclass(frozen=True)
class Principal:
    """Somebody who has signed in; made by the service only. Each call checks anew what she may do."""

    user: str
    """Empty for somebody who has not signed in, and sees public pages only."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """Role by dataset at the moment of signing in; for display."""
    token_id: str | None = None
    """The token that was used, if one was: it may allow less than its user."""
    session_id: str | None = field(default=None, repr=False)
    """The session that was used, if one was."""
    password_id: str | None = field(default=None, repr=False)
    """A digest of the password's verifier, if a password was used: a new password ends what it allowed."""

    @classmethod
    def anonymous(cls) -> "Principal":
        """Return the principal of somebody who has not signed in."""
        return cls("")


@dataclass(frozen=True)
class Question:
    """A query with everything that decides its plan; the parameters of `Dataset.sql`."""

    sql: str
    epsilon: Number | None = None
    """Give exactly one of `epsilon` and `error`; or GoogleSQL's OPTIONS in the text."""
    error: Mapping[str, Number] | None = None
    delta: Number | None = None
    rows_per_unit: int | None = None
    groups_per_unit: int | None = None
    rows_per_group: int | None = None
    bounds: Mapping[str, Any] | None = None
    keys: Mapping[str, Sequence[Any]] | None = None
    confidence: Number = Decimal("0.95")
    bounding_report: bool = False
    intervals: bool = True
    allow_large_epsilon: bool = False
    deadline: float | None = None
    """Seconds after which the answer is wanted, where that is later than the plan's own class."""

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `Dataset.sql`."""
        names = [each.name for each in fields(self) if each.name not in {"sql", "deadline"}]
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are not defaults, as JSON can hold them."""
        out: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "sql" or value != each.default:
                out[each.name] = _plain(value)
        return out

    @classmethod
    def from_dict(cls, stated: Any) -> "Question":
        """Read what `to_dict` wrote, or what a person sent; unknown fields and wrong types are refused.

        >>> Question.from_dict({"sql": "SELECT COUNT(*) AS n FROM t", "epsilon": 1}).epsilon
        1
        """
        if not isinstance(stated, dict) or not isinstance(stated.get("sql"), str):
            raise InvalidInput(
                "the question has no text",
                why="it is one SELECT statement",
                fix='pass {"sql": "SELECT …", "epsilon": 0.1}',
                parameter="sql",
            )
        for name, value in stated.items():
            if name not in _FIELD_TYPES:
                raise InvalidInput(
                    f"{str(name)[:40]!r} is not known",
                    why="ignoring it would change the question",
                    fix=f"use one of: {', '.join(_FIELD_TYPES)}",
                )
            is_flag_for_number = isinstance(value, bool) and bool not in _FIELD_TYPES[name]
            if value is not None and (is_flag_for_number or not isinstance(value, _FIELD_TYPES[name])):
                raise InvalidInput(
                    f"{{{name}}} is of another type", why="it could not be understood",
                    fix=f"pass {_TYPE_WORDS[_FIELD_TYPES[name][0]]}", parameter=name,
                )  # fmt: skip
        values = {name: value for name, value in stated.items() if value is not None}
        for name in ("epsilon", "delta", "confidence"):
            if isinstance(values.get(name), str):
                values[name] = parse_number(values[name], name)
        if isinstance(values.get("error"), dict):
            values["error"] = {
                key: parse_number(value, "error") if isinstance(value, str) else value
                for key, value in values["error"].items()
            }
        return cls(**values)


_NUMBER = (str, int, float, Decimal)
_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "sql": (str,),
    **dict.fromkeys(("epsilon", "delta", "confidence"), _NUMBER),
    **dict.fromkeys(("error", "bounds", "keys"), (dict,)),
    **dict.fromkeys(("rows_per_unit", "groups_per_unit", "rows_per_group"), (int,)),
    **dict.fromkeys(("bounding_report", "intervals", "allow_large_epsilon"), (bool,)),
    "deadline": (float, int, Decimal),
}
_TYPE_WORDS = {
    str: "a text or a number",
    dict: "an object",
    int: "a whole number",
    bool: "true or false",
    float: "seconds",
}


def parse_number(text: str, name: str) -> Number:
    """Return the exact number that a text means: 0.1 or 1/10."""
    above, slash, below = text[:100].partition("/")
    try:
        # A huge exponent stays a decimal, which is refused later without being written out.
        return Fraction(int(above), int(below)) if slash else Decimal(above)
    except (ValueError, ArithmeticError):
        raise InvalidInput(
            f"{{{name}}} is not a number", why="it is used in calculations",
            fix="write it as 0.1 or 1/10", parameter=name,
        ) from None  # fmt: skip


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value)


@dataclass(frozen=True)
class ColumnDescription:
    """A declared column: its kind, bounds and public keys; never values of rows."""

    name: str
    kind: Kind
    is_unit: bool = False
    bounds: tuple[str, str] | None = None
    keys: tuple[Any, ...] | None = None
    """Public group keys, at most the first thousand."""
    key_count: int | None = None


@dataclass(frozen=True)
class TableDescription:
    """A declared table."""

    name: str
    columns: tuple[ColumnDescription, ...]
    is_public: bool = False


@dataclass(frozen=True)
class DatasetSummary:
    """A dataset that somebody may use."""

    name: str
    role: Role
    unit: str
    tables: tuple[str, ...]
    is_paused: bool = False


@dataclass(frozen=True)
class DatasetDescription:
    """All that is declared of a dataset."""

    name: str
    role: Role
    unit: str
    unit_column: str | None
    """None where each row is one unit."""
    neighbours: str
    tables: tuple[TableDescription, ...]
    rows_per_unit: int | None
    groups_per_unit: int | None
    population: int | None
    version: str
    about: Mapping[str, str]
    deadlines: tuple[float, ...]
    """The classes of public deadlines, in seconds; empty where answers leave as soon as they are there."""
    is_paused: bool = False


@dataclass(frozen=True)
class ResultColumnDescription:
    """A column of the answer to a plan, known before anything is read: for Describe, forms and clients."""

    name: str
    kind: Kind
    part: str
    """One of "key", "value" (without an interval), "estimate", "low" and "high"."""


@dataclass(frozen=True)
class PlanReport:
    """What a question would cost and how accurate it would be. Nothing was spent, no row was read."""

    dataset: str
    question: Question
    epsilon: str
    """Rounded up."""
    delta: str
    loss: PrivacyLoss
    columns: tuple[ResultColumnDescription, ...]
    errors: Mapping[str, str]
    """For each value of the answer, its expected error in words."""
    notes: tuple[str, ...]
    text: str
    """The plan in words."""
    explanation: str
    """Sensitivities, mechanisms, the engine's SQL and links to proofs."""
    label: Mapping[str, Any]
    deadline: float
    """The answer leaves this many seconds after the question starts, whatever the rows are."""
    count_more: int | None
    """About how many such questions the budget allows."""
    is_asked: bool
    """True if it was charged before: to those who paid, asking is free."""
    is_keyed: bool = True
    """True if a unit may have several rows."""
    is_top: bool = False
    """True if only the keys of the largest counts are asked for."""


@dataclass(frozen=True)
class Answer:
    """A released table, stored in the ledger before it was returned."""

    dataset: str
    sql: str
    entry: int
    """Number of the ledger's entry that paid for it."""
    timestamp: str
    is_new: bool
    """False if it was asked before, and cost nothing now."""
    result: Result
    """With intervals; `result.facts` is its label."""
    loss: PrivacyLoss
    question: Question | None = None


@dataclass(frozen=True)
class HistoryItem:
    """A charged question."""

    dataset: str
    entry: int
    user: str
    """The analyst; empty for the owner."""
    timestamp: str
    sql: str
    loss: str
    outcome: str
    """One of "answer", "error" and "none" (running, or lost in a crash)."""
    question: Question | None = None
    is_published: bool = False


@dataclass(frozen=True)
class BudgetReport:
    """What a budget was, what is spent and what is left; an analyst's own within the owner's."""

    dataset: str
    user: str
    epsilon: str
    delta: str
    spent_epsilon: str
    spent_delta: str
    left_epsilon: str
    """What one more question may cost, rounded down; limited by both budgets."""
    left_delta: str
    charges: int
    count_more: int | None
    """About how many more like the last one fit."""
    analysts: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    """For the owner: (granted ε, spent ε, granted δ) of each analyst."""
    is_paused: bool = False


@dataclass(frozen=True)
class SavedQuestion:
    """A question with a name. It never runs by itself."""

    question_id: str
    dataset: str
    user: str
    name: str
    question: Question
    is_shared: bool
    """True if everybody who may ask the dataset sees it; answers are never shared by it."""
    timestamp: str


@dataclass(frozen=True)
class Publication:
    """A release that the owner published, with its label."""

    dataset: str
    entry: int
    title: str
    sql: str
    timestamp: str
    result: Result


@dataclass(frozen=True)
class Token:
    """A token's public side; its secret is shown once, when it is made."""

    token_id: str
    user: str
    name: str
    datasets: tuple[str, ...] | None
    """None for all datasets of the user."""
    role: Role
    """The most that it allows."""
    epsilon: str | None
    """The most ε that may be spent through it; None for no cap of its own."""
    spent: str
    expires: str
    is_active: bool


@dataclass(frozen=True)
class RaiseRequest:
    """A larger budget for an analyst, which waits for a second owner's approval."""

    request_id: str
    dataset: str
    analyst: str
    epsilon: str
    delta: str
    requester: str
    timestamp: str


@dataclass(frozen=True)
class AuditRecord:
    """One line of the audit log, chained to the one before."""

    number: int
    timestamp: str
    user: str
    action: str
    dataset: str
    detail: Mapping[str, Any]
    digest: str

    def to_json(self) -> str:
        """Return it as one line."""
        return json.dumps({each.name: getattr(self, each.name) for each in fields(self)}, ensure_ascii=True)
