"""What a refused question could be instead: its fields with the fix applied, to click; nothing runs by it."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from fractions import Fraction

import sqlglot
from sqlglot import exp

from hubbub.errors import HubbubError
from hubbub.server.console import texts
from hubbub.server.service_types import BudgetReport

__all__ = ["find_rewrites", "spell"]

_SETTING = re.compile(r"\{(epsilon|delta|rows_per_unit|groups_per_unit)=([^{}]+)\}")
"""Settings that a refusal's fix names with a value, and the editor has a field for."""
_ESTIMATED = re.compile(r"\{bounds=([^{}=]+=auto)\}")
_UNKNOWN = re.compile(r"there is no (?:column|table) '([^']+)'|the function (\w+) is not known")
_UNGROUPED = re.compile(r"the column '([^']+)' is neither grouped by nor aggregated")
_STAR = re.compile(r"\bselect\s+\*", re.IGNORECASE)
_NAME = re.compile(r"\w+")


def spell(name: str, value: str | None) -> str:
    """Spell a parameter as the editor's field is labelled."""
    label = texts.SETTINGS.get(name, name)
    if value is None:
        return label
    return f"{label}: {value}" if name in {"bounds", "keys", "error"} else f"{label} = {value}"


def find_rewrites(
    error: HubbubError, values: Mapping[str, str], budget: BudgetReport | None = None
) -> dict[str, dict[str, str]]:
    """Return the fields of the editor that would fix a question, by the words of the link to them.

    Args:
        error: the refusal.
        values: the fields of the editor now.
        budget: whoever asks has no more δ than is left of it.
    """
    what, _, fix = error.templates
    out: dict[str, dict[str, str]] = {}
    for name, stated in _SETTING.findall(fix):
        value = stated
        if name == "delta" and budget is not None:
            value = min(stated, budget.left_delta, key=Fraction)
            if Fraction(value) == 0:
                continue
        changed = {**values, name: value}
        if name == "epsilon":
            changed.pop("error", None)
        out[texts.APPLY.format(setting=spell(name, value))] = changed
    for estimated in _ESTIMATED.findall(fix):
        bounds = "; ".join(filter(None, [values.get("bounds", "").strip(), estimated]))
        words = texts.APPLY_ESTIMATED.format(column=estimated.partition("=")[0])
        out[words] = {**values, "bounds": bounds}
    sql = values.get("sql", "")
    for words, changed_sql in _rewrite_sql(sql, what, fix).items():
        if changed_sql != sql:
            out[words] = {**values, "sql": changed_sql}
    return out


def _rewrite_sql(sql: str, what: str, fix: str) -> dict[str, str]:
    unknown, ungrouped = _UNKNOWN.match(what), _UNGROUPED.match(what)
    if unknown is not None:
        wrong = unknown[1] or unknown[2]
        names = {name.lower(): name for name in _NAME.findall(fix) if len(name) > 1}
        match = get_close_matches(wrong.lower(), names, 1)
        if not match:
            return {}
        right = names[match[0]]
        changed = re.sub(rf"(?<!\w){re.escape(wrong)}(?!\w)", lambda _: right, sql, flags=re.IGNORECASE)
        return {texts.WRITE_INSTEAD.format(right=right, wrong=wrong): changed}
    if what.startswith("SELECT * "):
        return {texts.COUNT_ROWS: _STAR.sub("SELECT COUNT(*) AS n", sql)}
    if ungrouped is not None:
        return {texts.GROUP_BY.format(column=ungrouped[1]): _group_by(sql, ungrouped[1])}
    return {}


def _group_by(sql: str, column: str) -> str:
    """The query by groups of a column, with a count if it has no aggregate."""
    try:
        tree = sqlglot.parse_one(sql, read="duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return sql
    if not isinstance(tree, exp.Select) or tree.find(exp.Subquery, exp.With) is not None:
        return sql
    grouped = tree.group_by(exp.column(column))
    if grouped.find(exp.AggFunc) is None:
        grouped = grouped.select("COUNT(*) AS n")
    return grouped.sql(dialect="duckdb")
