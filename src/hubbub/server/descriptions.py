"""Declarations, plans and errors as records: what doors show of them."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hubbub import errors
from hubbub.accounting.codec import canonical_json
from hubbub.engines.schema import Column, Kind, Table
from hubbub.errors import HubbubError
from hubbub.ledger.entries import Entry
from hubbub.server.service_types import ColumnDescription, ResultColumnDescription, TableDescription
from hubbub.sql.composite_plan import AnyPlan, CompositePlan
from hubbub.sql.plan import Plan
from hubbub.sql.result import Result

__all__ = ["describe_table", "result_columns", "status_of", "with_text", "without_text"]

_MAX_KEYS = 1000
_PAID_TEXT = "-- the question of another analyst, of which you paid for the answer too"
_STATUS: tuple[tuple[type[HubbubError], int, str], ...] = (
    (errors.AccessDenied, 403, "access_denied"),
    (errors.Unavailable, 503, "unavailable"),
    (errors.BudgetExceeded, 402, "budget_exceeded"),
    (errors.Refused, 422, "refused"),
    (errors.Unsupported, 422, "unsupported"),
    (errors.InvalidInput, 400, "invalid_input"),
    (errors.Halted, 409, "halted"),
    (errors.EngineFailed, 500, "engine_failed"),
    (errors.LedgerFailed, 503, "ledger_failed"),
    (HubbubError, 500, "error"),
)


_BY_PARAMETER: dict[tuple[type[HubbubError], str | None], tuple[int, str]] = {
    (errors.AccessDenied, "authorization"): (401, "not_signed_in"),
    (errors.AccessDenied, "dataset"): (404, "not_found"),
    (errors.AccessDenied, "entry"): (404, "not_found"),
    (errors.InvalidInput, "idempotency_key"): (409, "conflict"),
    (errors.Unavailable, "requests_per_minute"): (429, "too_many_requests"),
    (errors.Unavailable, "authorization"): (429, "too_many_requests"),
}
"""By kind and parameter, where that says more."""


def status_of(error: HubbubError) -> tuple[int, str]:
    """Return the HTTP status and the code of an error.

    >>> status_of(errors.InvalidInput("epsilon is 0", why="it takes infinite noise", fix="pass another"))
    (400, 'invalid_input')
    """
    by_parameter = _BY_PARAMETER.get((type(error), error.parameter))
    if by_parameter is not None:
        return by_parameter
    return next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))


def result_columns(plan: AnyPlan) -> tuple[ResultColumnDescription, ...]:
    """Return the columns of the answer to a plan, in the order of `Result.to_dict`; no row decides them."""
    if isinstance(plan, CompositePlan):
        names, kinds, carried = plan.outer.names, plan.outer.kinds, plan.outer.carried
        ends = {f"{name}_{end}" for name in carried for end in ("low", "high")}
        plain = [(name, kind) for name, kind in zip(names, kinds, strict=True) if name not in ends]
        described = [(name, kind, "estimate" if name in carried else "value") for name, kind in plain]
    else:
        described = [_describe_output(plan, index) for index in range(len(plan.query.outputs))]
    out = []
    for name, kind, part in described:
        out.append(ResultColumnDescription(name, kind, part))
        if part == "estimate":
            out += [ResultColumnDescription(f"{name}_{end}", Kind.NUMBER, end) for end in ("low", "high")]
    return tuple(out)


def _describe_output(plan: Plan, index: int) -> tuple[str, Kind, str]:
    each = plan.post_processing.outputs[index]
    kind = each.typed.kind or Kind.NUMBER
    if each.output.key is not None:
        return each.output.name, kind, "key"
    has_interval = plan.bounded.intervals and not plan.query.is_top
    is_estimate = has_interval and kind is Kind.NUMBER and bool(each.calls)
    return each.output.name, kind, "estimate" if is_estimate else "value"


def with_text(result: Result, sql: str) -> Result:
    """Return a result with a label in the text of its reader: others asked the same in theirs.

    Guarantee: no text of another analyst, such as a comment, is in the label.
    """

    def change(fact: Any) -> Any:
        if isinstance(fact, (list, tuple)):
            return [change(each) for each in fact]
        if not isinstance(fact, Mapping):
            return fact
        return {name: sql if name == "query" else change(each) for name, each in fact.items()}

    return replace(result, facts=change(result.facts))


def without_text(entry: Entry) -> Entry:
    """Return a charge of somebody else as one may see it who paid for its answer: not the text."""
    return replace(entry, text=canonical_json({**entry.body, "description": _PAID_TEXT}))


def describe_table(table: Table) -> TableDescription:
    """Return what is declared of a table."""
    return TableDescription(table.name, tuple(map(_describe_column, table.columns)), table.is_public)


def _describe_column(column: Column) -> ColumnDescription:
    bounds = None if column.bounds is None else (_number(column.bounds[0]), _number(column.bounds[1]))
    keys = None if column.keys is None else tuple(column.keys[:_MAX_KEYS])
    count = None if column.keys is None else len(column.keys)
    return ColumnDescription(column.name, column.kind, column.is_unit, bounds, keys, count)


def _number(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else repr(float(value))
