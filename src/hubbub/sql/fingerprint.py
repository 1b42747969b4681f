"""Fingerprints of queries: equal queries, up to a few normalisations, have equal fingerprints.

White space, comments and the case of keywords and identifiers do not matter, nor does the order of the
conditions that a WHERE joins by AND. Everything else does: the names of columns, the noise, contribution
bounds, bounds and keys, and the data identity. No fingerprint depends on rows.
"""

import dataclasses
import enum
import hashlib
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

from sqlglot import exp

from hubbub.accounting.codec import canonical_json
from hubbub.engines.schema import UNIT, KeyList
from hubbub.sql.plan import Plan
from hubbub.sql.query import Query
from hubbub.sql.released_limits import Conditions
from hubbub.unit import Unit

__all__ = ["fingerprint", "histogram_conditions"]

_KIND, _CONTRIBUTIONS = "question/1", "contributions/1"
_SAID_ONLY = frozenset({"text", "now", "derived_bounds", "cuts_quotients"})
"""Fields that only inform people; the time and the bounds themselves are in the rest."""
_PUBLIC = ("unit", "epsilon", "delta", "contribution_bounds", "is_gaussian", "confidence")


def fingerprint(plan: Plan, origin: Any = None) -> str:
    """Return a digest of everything that the law of a plan's answer depends on, except the rows."""
    query = {
        part.name: _plain(getattr(plan.query, part.name))
        for part in dataclasses.fields(plan.query)
        if part.name not in _SAID_ONLY
    }
    rest = {name: _plain(getattr(plan, name)) for name in _PUBLIC}
    # A limit from an earlier histogram is named by the charge that paid for it. Somebody who did not pay may
    # declare the same limit, but asks another question: an answer with this one says which was chosen.
    reused = [each for each in plan.found_limits if not (each.is_new or each.is_declared)]
    if reused:
        hidden = replace(plan.contribution_bounds, **{each.kind: None for each in reused})
        rest["contribution_bounds"] = _plain(hidden)
        rest["histograms"] = [[each.kind, each.entry] for each in reused]
    rest["reports_bounding"] = plan.bounded.reports_bounding
    rest["intervals"] = plan.bounded.intervals
    if plan.bounded.groups_found:  # then they do not bound sums over rows
        rest["groups_found"] = True
    return _digest([_KIND, query, rest, origin])


def histogram_conditions(query: Query, unit: Unit, origin: Any) -> dict[str, Conditions]:
    """By kind, which rows a query's contributions are counted over; nothing of the rows is in it.

    Args:
        query: the query.
        unit: the privacy unit.
        origin: where the rows are, and their version.
    """
    keys = [[key.kind, key.values] for key in query.keys]
    # Writing SQL out takes half of a plan's time: each relation is written once.
    relations: dict[tuple[int, bool], str] = {}

    def conditions(kind: str, *, by_keys: bool, is_whole: bool = False) -> str:
        listed = keys if by_keys else []
        place = len(listed), is_whole
        if place not in relations:
            names = {f"k{number}" for number in range(len(listed))}
            relations[place] = _write(_relation(query.rows, names, is_whole=is_whole))
        return _digest([_CONTRIBUTIONS, kind, relations[place], _plain(listed), _plain(unit), origin])

    rows = [conditions("rows", by_keys=False)]
    if query.keys and query.is_public:  # rows of other keys are left out
        rows.insert(0, conditions("rows", by_keys=True))
    groups = (conditions("groups", by_keys=True),)
    return {
        "rows": Conditions(tuple(rows), conditions("rows", by_keys=False, is_whole=True)),
        "groups": Conditions(groups, conditions("groups", by_keys=True, is_whole=True)),
    }


def _relation(rows: exp.Select, keys: set[str], *, is_whole: bool) -> exp.Select:
    """The rows with nothing but their unit and keys; without WHERE if all rows are asked for."""
    tree = rows.copy()
    if not tree.args.get("distinct") and not tree.args.get("group"):
        outputs = [each for each in tree.expressions if each.alias_or_name in {UNIT, *keys}]
        tree.set("expressions", outputs)
        if is_whole:
            tree.set("where", None)
    return tree


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, exp.Expr):
        return _write(value.copy())
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


def _write(tree: exp.Expr) -> str:
    """The SQL of a tree of one's own, with names in small letters and conditions in order."""
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("this", identifier.name.lower())
    for where in tree.find_all(exp.Where):
        if isinstance(where.this, exp.And):
            parts = sorted(
                (part.copy() for part in where.this.flatten()), key=lambda part: part.sql("duckdb")
            )
            where.set("this", exp.and_(*parts))
    return tree.sql("duckdb", comments=False, copy=False)
