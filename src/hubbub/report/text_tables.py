"""Plans and results as text: the cells of a table, and what a query cost in a few lines."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubbub.escaping import escape
from hubbub.numbers import (
    format_estimate,
    format_high,
    format_low,
    format_nearest,
    format_percent,
    format_up,
)

if TYPE_CHECKING:
    from hubbub.sql.composite_plan import AnyPlan
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = [
    "DIGITS",
    "align_rows",
    "count_of",
    "describe_cost",
    "describe_cuts",
    "describe_facts",
    "describe_plan",
    "describe_post_processing",
    "describe_spent",
    "format_cost",
    "format_key",
    "format_rows",
]

_EXPONENTIAL = "exponential mechanism"
"""As labels name the mechanism that selects quantiles."""

DIGITS = 12
"""Significant digits of ε and δ."""


def format_key(value: Any) -> str:
    r"""Format a group key; it may come from the data, so nothing in it may control the terminal.

    A number is a name here, such as a year, not a quantity: its digits are not grouped.

    >>> format_key(2024.0), format_key(None), format_key("a" + chr(27) + "[2J")
    ('2024', 'NULL', 'a\\x1b[2J')
    """
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return _format_exact(value).replace(",", "")
    return escape(value)


def _format_exact(value: float) -> str:
    return format_estimate(value, 0.0 if value.is_integer() else abs(value) / 1000)


def format_rows(result: "Result", *, is_exact: bool = False) -> list[list[str]]:
    """Return the cells of the table as text, the header first; each interval is a column of its own."""
    confidence = float(result.facts.get("confidence", 0.95))
    header: list[str] = []
    columns: list[list[str]] = []
    for column in result.columns:
        header.append(format_key(column.name))
        if column.low is None or column.high is None:
            columns.append(
                [_format_alone(value, column, is_exact=is_exact) for value in column.values.tolist()]
            )
        else:
            header.append(f"{format_percent(confidence)} interval")
            columns += _format_intervals(column)
    return [header, *(list(row) for row in zip(*columns, strict=True))]


def _format_alone(value: Any, column: "ResultColumn", *, is_exact: bool) -> str:
    """A key, or an answer without an interval: keys are objects, answers are numbers."""
    if column.values.dtype == object or not isinstance(value, float):
        return format_key(value)
    if math.isnan(value):
        return "NULL"
    if is_exact or column.is_integer:
        return _format_exact(value)
    return format_nearest(value)


def _format_intervals(column: "ResultColumn") -> list[list[str]]:
    values, intervals = [], []
    assert column.low is not None
    assert column.high is not None
    for value, low, high in zip(
        column.values.tolist(), column.low.tolist(), column.high.tolist(), strict=True
    ):
        # Of an integer all digits are shown; else the interval says how many mean something.
        width = 0.0 if column.is_integer else (high - low) / 2
        values.append(format_estimate(value, width))
        is_known = not math.isnan(value)
        intervals.append(f"{format_low(low, width)} … {format_high(high, width)}" if is_known else "")
    return [values, intervals]


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return each row as one line, with the cells in columns.

    >>> align_rows([["region", "n"], ["North", "5"]])
    ['region  n', 'North   5']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def format_cost(plan: "AnyPlan") -> str:
    """Return the ε of a plan, and its δ if there is one, rounded up."""
    delta = f", δ = {format_up(plan.delta, DIGITS)}" if plan.delta else ""
    return f"ε = {format_up(plan.epsilon, DIGITS)}{delta}"


def describe_plan(plan: "AnyPlan", *, explain: bool) -> dict[str, Any]:
    """Return what a plan says, as JSON can hold it."""
    return {
        **plan.label(),
        "errors": {output.name: error for output, error in plan.errors},
        "notes": [note.strip() for note in plan.notes()],
        **({"explain": plan.explain().splitlines()} if explain else {}),
    }


def count_of(count: int, noun: str) -> str:
    """Return a number of things, as people say it.

    >>> count_of(1, "row"), count_of(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_SHOWN_FACTS = ("mechanism", "keys", "rows per unit", "groups per unit", "interval covers", "as of")


def describe_facts(facts: Mapping[str, Any]) -> list[str]:
    """Return what a label says for people, in a few lines."""
    epsilon, delta = (facts.get(name) for name in ("epsilon", "delta"))
    cost = f"ε = {format_up(Fraction(epsilon))}" if epsilon else ""
    cost += f", δ = {format_up(Fraction(delta))}" if epsilon and delta and Fraction(delta) else ""
    unit = f"for one {facts['unit']} ({facts.get('neighbours', '')})" if "unit" in facts else ""
    lines = [f"spent: {cost} {unit}".strip()] if cost else []
    lines += [f"{name}: {facts[name]}" for name in _SHOWN_FACTS if facts.get(name) is not None]
    extra = ("selected by luck", "nothing shown", "post-processing failed")
    lines += [str(facts[name]) for name in extra if name in facts]
    notes = (str(note).strip() for note in facts.get("notes", ()))
    return [*lines, *describe_post_processing(facts), *notes]


def _describe_mechanisms(label: Mapping[str, Any]) -> list[str]:
    """Return the noise, and how quantiles were selected."""
    names = label["mechanism"].split(", ")
    noises = [name for name in names if name != _EXPONENTIAL]
    selected = [f"quantiles by the {_EXPONENTIAL}"] if _EXPONENTIAL in names else []
    return [*([f"{', '.join(noises)} noise"] if noises else []), *selected]


def describe_post_processing(label: Mapping[str, Any]) -> list[str]:
    """Return which columns were computed from released ones, and what they are, a line each."""
    return [f"{name}: {note}" for name, note in label.get("post-processed", {}).items()]


def describe_cuts(label: Mapping[str, Any], *, declared: bool = False) -> list[str]:
    """Return what contribution bounds and bounds of values cut off, a line each.

    Args:
        label: the label of an answer.
        declared: also list limits of which it is not estimated, and say where intervals cover the truth.
    """
    limits = label.get("limits", {})
    if not isinstance(limits, Mapping):  # `Dataset.limits` says in one sentence what its table is of
        return []
    covers = label.get("interval covers") or ""
    is_truth = declared and limits and covers.startswith("the exact answer") and "bounded" not in covers
    return [
        *(f"{kind} per unit: {limit}" for kind, limit in limits.items() if declared or "estimated" in limit),
        *([f"intervals cover {covers}"] if is_truth else []),
        *(f"{name}: {share}" for name, share in label.get("values beyond bounds", {}).items()),
    ]


def describe_spent(cost: str, label: Mapping[str, Any]) -> str:
    """Return that so much was spent, or when it was, if the ledger had the answer."""
    if not label.get("asked before"):
        return f"spent: {cost}"
    when = f"as of {label['as of']}, version {label['version']} of the data"
    return f"asked before, {when}: {cost} was spent then, nothing now"


def describe_cost(plan: "AnyPlan", label: Mapping[str, Any]) -> list[str]:
    """Return what was spent, for which unit, and how, in a few lines."""
    rows = label.get("rows per unit")
    estimated = " (estimated privately)" if label.get("rows per unit estimated privately") else ""
    bounds = [f"at most {count_of(rows, 'row')} per unit{estimated}"] if rows and plan.query.is_keyed else []
    if label.get("groups per unit"):
        origin = " (estimated privately)" if label.get("groups per unit estimated privately") else ""
        bounds.append(f"at most {count_of(label['groups per unit'], 'group')} per unit{origin}")
    how = [f"selected by {label['mechanism']}"] if plan.query.is_top else _describe_mechanisms(label)
    parts = [*how, f"keys {label['keys']}" if plan.query.keys else "", *bounds]
    above, covers = label.get("units above a contribution bound"), label.get("interval covers")
    return [
        describe_spent(f"{format_cost(plan)} for {plan.unit}", label),
        f"how: {'; '.join(part for part in parts if part)}",
        *([f"intervals cover {covers}"] if covers and bounds and not plan.query.is_top else []),
        *describe_cuts(label),
        *([f"units above a contribution bound: {above}"] if above else []),
        *([str(label["nothing shown"])] if "nothing shown" in label else []),
        *([str(label["selected by luck"])] if "selected by luck" in label else []),
        *describe_post_processing(label),
        *(str(note) for note in label.get("notes", ())),
    ]
