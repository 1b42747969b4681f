"""The same question has the same fingerprint, by these normalisations and no others.

Keywords, white space and comments are gone once a query is read; identifiers are compared without their case,
and the conditions that a WHERE joins by AND in any order. All else is part of the question: the names of the
columns, the noise, the limits, bounds and keys, and where the rows are. Nothing of the rows is in it.
"""

import dataclasses
import enum
import hashlib
from datetime import date
from fractions import Fraction
from typing import Any

from sqlglot import exp

from hubbub.accounting.codec import canonical_json
from hubbub.engines.schema import KeyList
from hubbub.sql.plan import Plan

__all__ = ["fingerprint"]

_KIND = "question/1"
_PUBLIC = ("unit", "epsilon", "delta", "contribution_bounds", "is_gaussian", "confidence")


def fingerprint(plan: Plan, origin: Any = None) -> str:
    """A digest of a plan's question and of everything that the law of its answer depends on but the rows."""
    query = {
        part.name: _plain(getattr(plan.query, part.name))
        for part in dataclasses.fields(plan.query)
        if part.name != "text"
    }
    rest = {name: _plain(getattr(plan, name)) for name in _PUBLIC}
    rest["reports_bounding"] = plan.bounded.reports_bounding
    return _digest([_KIND, query, rest, origin])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, exp.Expr):
        return _normalised(value)
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if dataclasses.is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, KeyList):
        return {"keys": value.digest()}  # no list, which could be one of two texts
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, (Fraction, date, float)):
        return [type(value).__name__, str(value)]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    raise TypeError(type(value).__name__)  # a part that has no digest yet must get one, not be left out


def _normalised(given: exp.Expr) -> str:
    tree = given.copy()
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
    for where in tree.find_all(exp.Where):
        if isinstance(where.this, exp.And):
            parts = sorted(
                (part.copy() for part in where.this.flatten()), key=lambda part: part.sql("duckdb")
            )
            where.set("this", exp.and_(*parts))
    return tree.sql("duckdb", comments=False)
