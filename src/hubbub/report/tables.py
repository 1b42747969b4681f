"""Plans and results as text: the cells of a table, and what a query cost in a few lines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hubbub.escaping import escape
from hubbub.numbers import format_estimate, format_percent, format_up

if TYPE_CHECKING:
    from hubbub.sql.composite_plan import AnyPlan
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = [
    "DIGITS",
    "align_rows",
    "describe_cost",
    "describe_plan",
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
            # Exact values have no intervals either, but they are numbers, where keys are objects.
            format_cell = _format_exact if is_exact and column.values.dtype != object else format_key
            columns.append([format_cell(value) for value in column.values.tolist()])
        else:
            header.append(f"{format_percent(confidence)} interval")
            columns += _format_intervals(column)
    return [header, *(list(row) for row in zip(*columns, strict=True))]


def _format_intervals(column: "ResultColumn") -> list[list[str]]:
    values, intervals = [], []
    assert column.low is not None
    assert column.high is not None
    for value, low, high in zip(column.values, column.low, column.high, strict=True):
        width = (float(high) - float(low)) / 2
        values.append(format_estimate(float(value), width))
        intervals.append(f"{format_estimate(float(low), width)} … {format_estimate(float(high), width)}")
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


def _describe_mechanisms(label: Mapping[str, Any]) -> list[str]:
    """Return the noise, and how quantiles were selected."""
    names = label["mechanism"].split(", ")
    noises = [name for name in names if name != _EXPONENTIAL]
    selected = [f"quantiles by the {_EXPONENTIAL}"] if _EXPONENTIAL in names else []
    return [*([f"{', '.join(noises)} noise"] if noises else []), *selected]


def describe_cost(plan: "AnyPlan", label: Mapping[str, Any]) -> list[str]:
    """Return what was spent, for which unit, and how, in a few lines."""
    rows = label.get("rows per unit")
    estimated = " (estimated privately)" if label.get("rows per unit estimated privately") else ""
    bounds = [f"at most {rows} rows per unit{estimated}"] if rows and plan.query.is_keyed else []
    if label.get("groups per unit"):
        origin = " (estimated privately)" if label.get("groups per unit estimated privately") else ""
        bounds.append(f"at most {label['groups per unit']} groups per unit{origin}")
    how = [f"selected by {label['mechanism']}"] if plan.query.is_top else _describe_mechanisms(label)
    parts = [*how, f"keys {label['keys']}" if plan.query.keys else "", *bounds]
    cost = f"{format_cost(plan)} for {plan.unit}"
    spent = f"spent: {cost}"
    if label.get("asked before"):
        when = f"as of {label['as of']}, version {label['version']} of the data"
        spent = f"asked before, {when}: {cost} was spent then, nothing now"
    above, covers = label.get("units above a contribution bound"), label.get("interval covers")
    return [
        spent,
        f"how: {'; '.join(part for part in parts if part)}",
        *([f"intervals cover {covers}"] if covers and bounds and not plan.query.is_top else []),
        *(
            f"{kind} per unit: {limit}"
            for kind, limit in label.get("limits", {}).items()
            if "estimated" in limit
        ),
        *([f"units above a contribution bound: {above}"] if above else []),
        *([str(label["nothing shown"])] if "nothing shown" in label else []),
        *(str(note) for note in label.get("notes", ())),
    ]
