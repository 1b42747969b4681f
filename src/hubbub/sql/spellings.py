"""Other spellings of functions, as SQL Server, Snowflake and older SQL have them, rewritten in DuckDB's.

The meaning stays the same; what comes out is analyzed as if it had been written so.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from fractions import Fraction

from sqlglot import exp

from hubbub.engines.schema import Key, Table
from hubbub.errors import Unsupported
from hubbub.sql.output_names import default_name
from hubbub.sql.parser import PER_ROW

__all__ = ["expand_pivots", "fold_dates", "rename_functions"]

_AGGREGATES: dict[str, type[exp.Expr]] = {
    **dict.fromkeys(("var", "variance_samp"), exp.Variance),
    **dict.fromkeys(("varp", "variance_pop"), exp.VariancePop),
    **dict.fromkeys(("std", "stdev", "stdev_samp"), exp.Stddev),
    **dict.fromkeys(("stdevp", "stdev_pop", "stddevp"), exp.StddevPop),
}


def _null_if_zero(divisor: exp.Expr) -> exp.Expr:
    return exp.Nullif(this=divisor, expression=exp.Literal.number(0))


def _division_or_zero(above: exp.Expr, below: exp.Expr) -> exp.Expr:
    """Snowflake's DIV0: 0 where the divisor is."""
    zero = exp.EQ(this=exp.Paren(this=below.copy()), expression=exp.Literal.number(0))
    quotient = exp.Div(this=exp.Paren(this=above), expression=_null_if_zero(below))
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=zero, true=exp.Literal.number(0))], default=quotient))


def _choice(test: exp.Expr, true: exp.Expr, false: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=test, true=true)], default=false)


def _shifted(unit: exp.Expr, count: exp.Expr, moment: exp.Expr) -> exp.Expr:
    interval = exp.Interval(this=exp.Paren(this=count), unit=exp.Var(this=unit.name.upper()))
    return exp.Add(this=moment, expression=interval)


def _part_of(unit: exp.Expr, moment: exp.Expr) -> exp.Expr:
    return exp.Extract(this=exp.Var(this=unit.name.upper()), expression=moment)


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.Is(this=value, expression=exp.Null()))


def _or_zero(value: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=value, expressions=[exp.Literal.number(0)])


def _parsed(text: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    return exp.StrToTime(this=text, format=pattern)


def _quantile(value: exp.Expr, fraction: exp.Expr) -> exp.Expr:
    return exp.Quantile(this=value, quantile=fraction)


def _ends(text: exp.Expr, suffix: exp.Expr) -> exp.Expr:
    return exp.EndsWith(this=text, expression=suffix)


_CALLS: dict[tuple[str, int], Callable[..., exp.Expr]] = {
    ("iff", 3): _choice,
    ("div0", 2): _division_or_zero,
    ("zeroifnull", 1): _or_zero,
    ("nullifzero", 1): _null_if_zero,
    ("isnull", 1): _is_null,
    ("date_part", 2): _part_of,
    ("datepart", 2): _part_of,
    ("dateadd", 3): _shifted,
    ("timestampadd", 3): _shifted,
    ("try_strptime", 2): _parsed,
    ("approx_percentile", 2): _quantile,
    ("suffix", 2): _ends,
}
"""By name and number of arguments, what makes the same in other words."""


_CHAR_FORMATS = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "DD": "%d",
    "DDD": "%j",
    "HH24": "%H",
    "MI": "%M",
    "SS": "%S",
}
"""Parts of formats as PostgreSQL and Snowflake write them."""


def _rename_formats(statement: exp.Expr) -> None:
    """TO_CHAR(day, 'YYYY-MM') as STRFTIME(day, '%Y-%m')."""
    for node in list(statement.find_all(exp.ToChar)):
        layout = node.args.get("format")
        if not isinstance(layout, exp.Literal) or not layout.is_string:
            continue
        words = re.findall("YYYY|YY|MM|DDD|DD|HH24|MI|SS|[^A-Za-z%\x22]", layout.this.upper())
        if words and "".join(words) == layout.this.upper():
            pattern = "".join(_CHAR_FORMATS.get(word, word) for word in words)
            node.replace(exp.TimeToStr(this=node.this.copy(), format=exp.Literal.string(pattern)))


def rename_functions(statement: exp.Expr) -> None:
    """Other spellings of functions that are known."""
    for node in list(statement.find_all(exp.Anonymous)):
        name = str(node.this).lower()
        parts = [part.copy() for part in node.expressions]
        if name in _AGGREGATES and len(parts) == 1:
            node.replace(_AGGREGATES[name](this=parts[0]))
        elif (name, len(parts)) in _CALLS:
            node.replace(_CALLS[name, len(parts)](*parts))
    for choice in list(statement.find_all(exp.Nvl2)):
        is_there = exp.Not(this=_is_null(choice.this.copy()))
        false = choice.args.get("false")
        choice.replace(_choice(is_there, choice.args["true"].copy(), false.copy() if false else exp.Null()))
    for approximate in list(statement.find_all(exp.ApproxDistinct)):
        approximate.replace(exp.Count(this=exp.Distinct(expressions=[approximate.this.copy()])))
    _rename_quantiles(statement)
    _rename_formats(statement)


def _rename_quantiles(statement: exp.Expr) -> None:
    """APPROX_QUANTILES(x, 4)[OFFSET(1)] as the quantile that it is."""
    for bracket in list(statement.find_all(exp.Bracket)):
        call = bracket.this
        inner = call.expressions[0] if isinstance(call, exp.Anonymous) and str(call.this) == PER_ROW else call
        place = bracket.expressions[0] if len(bracket.expressions) == 1 else None
        if not isinstance(inner, exp.ApproxQuantiles) or not isinstance(place, exp.Literal):
            continue
        parts = inner.expression
        if not isinstance(parts, exp.Literal) or not (place.this + parts.this).isdigit():
            continue
        share = Fraction(int(place.this) - int(bracket.args.get("offset") or 0), int(parts.this))
        if not 0 <= share <= 1:
            continue
        quantile: exp.Expr = exp.PercentileCont(
            this=inner.this.copy(), expression=exp.Literal.number(float(share))
        )
        if share in {0, 1}:
            quantile = (exp.Max if share else exp.Min)(this=inner.this.copy())
        replacement = call.copy()
        if inner is call:
            replacement = quantile
        else:
            replacement.set("expressions", [quantile, *(part.copy() for part in call.expressions[1:])])
        bracket.replace(replacement)


_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}


def fold_dates(statement: exp.Expr) -> None:
    """A date that is written out, plus or minus an interval that is, as a date."""
    for node in reversed(list(statement.find_all(exp.Add, exp.Sub))):
        moment, interval = node.this.unnest(), node.expression
        if not isinstance(interval, exp.Interval) or not isinstance(moment, exp.Cast):
            continue
        number, unit = interval.this, str(interval.args.get("unit") or "").upper()
        is_date = moment.args["to"].this is exp.DataType.Type.DATE and isinstance(moment.this, exp.Literal)
        if not is_date or not isinstance(number, exp.Literal) or not number.this.isdigit():
            continue
        count_of = int(number.this) * (1 if isinstance(node, exp.Add) else -1)
        with suppress(ValueError, OverflowError):
            day = date.fromisoformat(moment.this.this)
            if unit in _MONTHS:
                year, month = divmod(12 * day.year + day.month - 1 + count_of * _MONTHS[unit], 12)
                last = monthrange(year, month + 1)[1]
                day = date(year, month + 1, min(day.day, last))
            elif unit in _DAYS:
                day += timedelta(days=count_of * _DAYS[unit])
            else:
                continue
            literal = exp.Literal.string(day.isoformat())
            node.replace(exp.Cast(this=literal, to=exp.DataType.build("DATE")))


# PIVOT … ON … USING …

_MAX_PIVOT_COLUMNS = 200


def expand_pivots(statement: exp.Expr, tables: Mapping[str, Table]) -> exp.Expr:
    """DuckDB's PIVOT statements, each as a SELECT with FILTER (WHERE column = value) for each value.

    Without a list of values they are the group keys that are declared of the column: both are public.

    Args:
        statement: the syntax tree.
        tables: the tables of the dataset, by their names in lower case.
    """
    ctes = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    tables = {name: table for name, table in tables.items() if name not in ctes}
    for node in reversed(list(statement.find_all(exp.Pivot))):
        select = _expand_pivot(node, tables) if node.args.get("using") or node.args.get("group") else None
        if select is not None and node is statement:
            return select
        if select is not None:
            node.replace(select)
    return statement


def _expand_pivot(node: exp.Pivot, tables: Mapping[str, Table]) -> exp.Select | None:
    source, on = node.this, node.expressions
    if node.args.get("unpivot") or len(on) != 1 or not isinstance(source, (exp.Table, exp.Subquery)):
        return None
    column = on[0].this if isinstance(on[0], exp.In) else on[0]
    if not isinstance(column, exp.Column):
        return None
    keys = _keys_of(source, column.name.lower(), tables)
    values = on[0].expressions if isinstance(on[0], exp.In) else [_literal(key) for key in keys]
    if not values or any(not isinstance(value, exp.Literal) for value in values):
        return None
    calls = node.args.get("using") or [exp.Count(this=exp.Star(), big_int=True)]
    if len(values) * len(calls) > _MAX_PIVOT_COLUMNS:
        raise Unsupported(
            f"PIVOT has more than {_MAX_PIVOT_COLUMNS} columns",
            why="each of them is an aggregate of its own",
            fix="list fewer values, or group by the column",
        )
    group = _pivot_groups(node, column.name.lower(), calls)
    if group is None:
        return None
    select = exp.select(*(key.copy() for key in group))
    for value, call in ((value, call) for value in values for call in calls):
        is_named = isinstance(call, exp.Alias) or len(calls) > 1
        name = f"{value.name}_{call.alias or default_name(call)}" if is_named else value.name
        condition = exp.Where(this=exp.EQ(this=column.copy(), expression=value.copy()))
        filtered = exp.Filter(this=call.unalias().copy(), expression=condition)
        select = select.select(exp.alias_(filtered, name, quoted=True))
    select = select.from_(source.copy())
    if node.args.get("with_") is not None:
        select.set("with_", node.args["with_"].copy())
    return select.group_by(*(key.copy() for key in group)) if group else select


def _pivot_groups(node: exp.Pivot, on: str, calls: Sequence[exp.Expr]) -> list[exp.Expr] | None:
    """What is grouped by: as written, or the columns of a sub-query that are used nowhere else."""
    group = node.args.get("group")
    if group is not None:
        return list(group.expressions)
    inner = node.this.this
    if (
        not isinstance(inner, exp.Select)
        or inner.is_star
        or not all(item.alias_or_name for item in inner.expressions)
    ):
        return None
    used = {on, *(column.name.lower() for call in calls for column in call.find_all(exp.Column))}
    names = [item.alias_or_name for item in inner.expressions if item.alias_or_name.lower() not in used]
    return [exp.column(exp.to_identifier(name, quoted=True)) for name in names]


def _keys_of(source: exp.Expr, name: str, tables: Mapping[str, Table]) -> list[Key]:
    """The group keys that are declared of a column of a table, or of a sub-query of it; in order."""
    if isinstance(source, exp.Subquery):
        inner = source.this
        if not isinstance(inner, exp.Select) or inner.args.get("joins") or inner.args.get("with_"):
            return []
        chosen = [item for item in inner.expressions if item.alias_or_name.lower() == name]
        clause = inner.args.get("from_")
        if clause is None or len(chosen) != 1 or not isinstance(chosen[0], exp.Column):
            return []
        source = clause.this
    table = tables.get(source.name.lower()) if isinstance(source, exp.Table) else None
    columns = [column for column in table.columns if column.name.lower() == name] if table is not None else []
    keys = [key for column in columns for key in column.keys or ()]
    if len(keys) > _MAX_PIVOT_COLUMNS:
        return []
    texts = sorted(key for key in keys if isinstance(key, str))
    return [*texts] or [*sorted(key for key in keys if isinstance(key, float))]


def _literal(key: Key) -> exp.Expr:
    """A key as it is written; a number that is whole without a fraction."""
    if isinstance(key, str):
        return exp.Literal.string(key)
    is_number = isinstance(key, float) and key == int(key) >= 0
    return exp.Literal.number(int(key)) if is_number else exp.Null()  # type: ignore[arg-type] # it is one
