"""SQL over released tables: post-processing by a locked-down DuckDB in memory.

What was released is public, so any SQL may be computed from it at no cost. It runs on a fresh connection
without files, network, extensions and settings, single-threaded, within limits of memory, time and size, and
holds nothing but released tables. Every construct is on an allow-list, and none depends on time or chance.
Types are determined at planning, by binding the statement on empty tables; casts become TRY_CAST.

Proof: docs/proofs/post-processing.md, "SQL over released tables"
"""

import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.engines.total_functions import SQL_TYPES
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.integer_outputs import integer_outputs
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.typed_expressions import describe_construct

__all__ = [
    "MAX_CELLS",
    "PLANNING_SECONDS",
    "PUBLIC",
    "RELEASED",
    "ReleasedSQL",
    "compile_released_sql",
    "list_functions",
]

RELEASED = "_released"
"""Prefix of the names of released tables."""
PUBLIC = "_public"
"""Prefix of the names of public tables that are joined with them."""
_SECONDS, PLANNING_SECONDS, _MEMORY = 20.0, 5.0, "512MB"
MAX_CELLS, _MAX_CHARACTERS = 1 << 22, 1 << 26
"""The size of a result. Python holds it, outside of DuckDB's limit of memory."""
_BATCH, _SAMPLED_ROWS = 10_000, 1000
_MAX_TEXT, _MAX_REPLACEMENT, _MAX_REPLACES, _MAX_OPERANDS = 1000, 32, 8, 64
"""DuckDB's limit of memory does not hold for texts that functions make: no text becomes long."""


def _classes(names: str) -> tuple[type[exp.Expr], ...]:
    return tuple(getattr(exp, name) for name in names.split())


_STRUCTURE: tuple[type[exp.Expr], ...] = _classes(
    """
    Select From Join Table Subquery Union Intersect Except With CTE TableAlias Identifier Column Alias Star
    Where Group Having Order Ordered Limit Offset Qualify Distinct Window WindowSpec Paren Tuple
    Literal Null Boolean Var DataType DataTypeParam Cast TryCast Interval In Exists Between Is Like
    ILike Not And Or EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Add Sub Mul Div IntDiv Mod Neg Case
    If DPipe Filter WithinGroup IgnoreNulls Pivot Rollup Cube GroupingSets
    """
)
_FUNCTIONS: tuple[type[exp.Expr], ...] = _classes(
    """
    Coalesce Nullif Greatest Least Abs Sign Round Floor Ceil Sqrt Cbrt Pow Exp Ln Log Sin Cos Tan
    Asin Acos Atan Atan2 Upper Lower Trim Length Substring Left Right Concat ConcatWs Replace
    Reverse StrPosition SplitPart StartsWith EndsWith Contains RegexpLike RegexpExtract
    RegexpReplace Extract Year Quarter Month Week Day DayOfWeek DayOfYear Hour Minute TimestampTrunc
    DateTrunc DateDiff DateAdd DateSub TimeToStr Dayname Monthname SafeDivide IsNan IsInf Count
    CountIf Sum Avg Min Max Median Stddev StddevSamp StddevPop Variance VariancePop Corr CovarSamp
    CovarPop Quantile PercentileCont PercentileDisc ArgMax ArgMin AnyValue LogicalAnd LogicalOr
    RowNumber Rank DenseRank PercentRank CumeDist Ntile Lag Lead FirstValue LastValue NthValue
    """
)
_NAMED = {
    *(
        "log2",
        "log10",
        "radians",
        "degrees",
        "trunc",
        "iff",
        "bool_and",
        "bool_or",
        "arg_max",
        "arg_min",
        "max_by",
    ),
    *("min_by", "product", "isfinite", "first", "last", "ltrim", "rtrim", "grouping"),
}
"""Functions that the parser does not know, by their names in DuckDB."""
_ALLOWED = frozenset({*_STRUCTURE, *_FUNCTIONS, exp.Anonymous, exp.AnonymousAggFunc})
_INTEGERS = (
    *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
)
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_INTEGERS, Kind.NUMBER),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), Kind.NUMBER),
    "VARCHAR": Kind.TEXT,
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), Kind.TIMESTAMP),
    '"NULL"': Kind.NUMBER,
    "NULL": Kind.NUMBER,
}  # fmt: skip
_CASTS = {
    *(
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "DOUBLE",
        "FLOAT",
        "DECIMAL",
        "VARCHAR",
        "TEXT",
        "CHAR",
        "NVARCHAR",
    ),
    *("BOOLEAN", "DATE", "TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"),
}
_TEXTS = {"VARCHAR", "TEXT", "CHAR", "NVARCHAR"}
_DUCKDB_NAMES = {
    "TIME_TO_STR": "STRFTIME",
    "STR_POSITION": "POSITION",
    "REGEXP_LIKE": "REGEXP_MATCHES",
    "TIMESTAMP_TRUNC": "DATE_TRUNC",
    "LOGICAL_AND": "BOOL_AND",
    "LOGICAL_OR": "BOOL_OR",
    "VARIANCE_POP": "VAR_POP",
    "DAY_OF_WEEK": "DAYOFWEEK",
    "DAY_OF_YEAR": "DAYOFYEAR",
    "IS_NAN": "ISNAN",
    "IS_INF": "ISINF",
}
Table = Mapping[str, Kind]
"""The columns of a released table."""


def list_functions() -> list[str]:
    """The names of the functions that can be applied to released values."""
    known = {
        _DUCKDB_NAMES.get(each.sql_name(), each.sql_name())
        for each in _FUNCTIONS
        if issubclass(each, exp.Func)
    }
    return sorted(known | {name.upper() for name in _NAMED})


@dataclass(frozen=True)
class ReleasedSQL:
    """A statement over released tables, typed."""

    sql: str
    tables: tuple[Table, ...]
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    carried: frozenset[str] = frozenset()
    """Outputs that are columns of a released table, with the ends of its intervals in `_low` and `_high`."""
    integers: frozenset[str] = frozenset()
    """Outputs that are counts, or made of counts only."""
    public: tuple[Sequence[ResultColumn], ...] = field(default=(), compare=False, repr=False)
    """The public tables, as they were at planning."""

    def evaluate(self, tables: Sequence[Sequence[ResultColumn]]) -> list[ResultColumn] | None:
        """The columns of the result; None if the statement fails on these values.

        It fails too if it takes too long, or its result is too large.

        Guarantee: a function of the released tables alone. It raises nothing.
        Proof: docs/proofs/post-processing.md, "SQL over released tables"
        """
        try:
            with _connect() as connection, _interrupted_after(_SECONDS, connection):
                _fill(connection, self.tables, tables, self.public)
                rows = _fetch(connection.execute(self.sql), len(self.names))
        except duckdb.Error:
            return None
        if rows is None:
            return None
        by_name = dict(
            zip(self.names, zip(*rows, strict=True) if rows else [()] * len(self.names), strict=True)
        )
        columns = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            if any(name == f"{base}_{end}" for base in self.carried for end in ("low", "high")):
                continue
            values = _array(by_name[name], kind)
            ends = [
                np.array([_finite_or(each, default) for each in by_name[f"{name}_{end}"]], dtype=np.float64)
                for end, default in (("low", -math.inf), ("high", math.inf))
                if name in self.carried
            ]
            low, high = ends or (None, None)
            columns.append(ResultColumn(name, values, low, high, kind, name in self.integers))
        return columns


def compile_released_sql(
    statement: exp.Expr,
    tables: Sequence[Table],
    carried: frozenset[str] = frozenset(),
    integers: Sequence[Collection[str]] = (),
    public: Sequence[Sequence[ResultColumn]] = (),
) -> ReleasedSQL:
    """Type a statement over released tables; refuse what is not on the allow-list, before a charge.

    Args:
        statement: a query that names the tables `_released0`, `_released1`, …
        tables: the columns of these.
        carried: outputs with intervals.
        integers: of each table, the columns that are integers.
        public: the public tables that it names `_public0`, `_public1`, …
    """
    _check(statement)
    _check_texts(statement)
    sql = _rewrite(statement.copy()).sql("duckdb", comments=False)
    try:
        with _connect() as connection, _interrupted_after(PLANNING_SECONDS, connection):
            _fill(connection, tables, None, public)
            described = connection.execute(sql).description or []
        # Constants that cannot be converted fail on the first row, and only there.
        with _connect() as connection, _interrupted_after(PLANNING_SECONDS, connection):
            _fill(connection, tables, [_sample(table) for table in tables], public)
            connection.execute(sql).fetchmany(_SAMPLED_ROWS)
    except duckdb.InterruptException:
        raise Unsupported(
            f"the SQL over the released table takes more than {PLANNING_SECONDS:g} s on four rows",
            why="it is tried before anything is charged",
            fix="join released tables on their keys, not each row with each",
        ) from None
    except duckdb.Error as problem:
        message = str(problem).splitlines()[0].replace(RELEASED, "released")
        raise InvalidInput(
            f"the SQL over the released table cannot be used: {message[:200]}",
            why="it is bound before anything is charged, so that it cannot fail afterwards",
            fix="correct it; released numbers are doubles",
        ) from None
    released = {
        f"{RELEASED}{number}": {name: name in own for name in table}
        for number, (table, own) in enumerate(zip(tables, integers, strict=False))
    }
    released |= {f"{PUBLIC}{number}": {c.name: False for c in table} for number, table in enumerate(public)}
    counts = integer_outputs(statement, released)
    names = _number_repeated([name for name, *_ in described])
    if list(counts) != [name.lower() for name in names]:
        counts = {}  # DuckDB names other outputs than we do
    kinds, whole = [], set()
    for name, (_, sql_type, *_) in zip(names, described, strict=True):
        base = str(sql_type).partition("(")[0].upper()
        if base not in _KINDS:
            raise Unsupported(
                f"the output {name[:60]!r} has the type {base[:40]}",
                why="results hold numbers, texts, truth values, dates and timestamps",
                fix="cast it to one of these",
            )
        kinds.append(_KINDS[base])
        if base in _INTEGERS or (counts.get(name.lower(), False) and _KINDS[base] is Kind.NUMBER):
            whole.add(name)
    return ReleasedSQL(
        sql, tuple(tables), tuple(names), tuple(kinds), carried, frozenset(whole), tuple(public)
    )


def _number_repeated(names: Sequence[str]) -> list[str]:
    """The same names, with a number behind those that are there already."""
    unique: dict[str, str] = {}
    for name in names:
        number, free = 1, name
        while free.lower() in unique:
            free, number = f"{name}_{number}", number + 1
        unique[free.lower()] = free
    return list(unique.values())


_SAMPLES: dict[Kind, list[Any]] = {
    Kind.NUMBER: [0.0, 1.0, -1.5, 1000.0],
    Kind.TEXT: ["a", "", "B c", "1"],
    Kind.BOOLEAN: [True, False, True, False],
    Kind.DATE: [date(2024, 2, 29), date(2000, 1, 1), date(2001, 5, 5), date(1999, 12, 31)],
    Kind.TIMESTAMP: [datetime(2024, 2, day, 12, 30) for day in (1, 2, 28, 29)],  # noqa: DTZ001 - no zone in SQL
}


def _sample(table: Table) -> list[ResultColumn]:
    """Some rows of ordinary values, which are nobody's."""
    return [ResultColumn(name, np.array(_SAMPLES[kind], dtype=object)) for name, kind in table.items()]


def _rewrite(statement: exp.Expr) -> exp.Expr:
    """The statement with each node in its total form, from the leaves up."""
    root = statement
    for node in reversed(list(statement.walk())):
        parent, key, index = node.parent, node.arg_key, node.index
        total = _make_total(node)
        if total is node:
            continue
        if parent is None or key is None:
            root = total
        else:
            parent.set(key, total, index=index)
    return root


def _make_total(node: exp.Expr) -> exp.Expr:
    """The node in a form that fails on no value, and makes no long text: casts that fail are NULL."""
    if type(node) in {exp.Cast, exp.TryCast}:
        to = node.args["to"]
        if to.this.name in _TEXTS:
            return _as_text(node.this, to)
        return exp.TryCast(this=node.this, to=to)
    if _is_function(node, "iff") and len(node.expressions) == 3:
        return exp.If(this=node.expressions[0], true=node.expressions[1], false=node.expressions[2])
    if isinstance(node, (exp.Div, exp.IntDiv, exp.Mod, exp.SafeDivide)):
        # A quotient by 0 is NULL, as among outputs.
        divisor = exp.Nullif(this=node.expression, expression=exp.Literal.number(0))
        kind = exp.Mod if isinstance(node, exp.Mod) else exp.Div
        quotient = kind(this=exp.Paren(this=node.this), expression=divisor)
        # Released numbers are doubles, of which // is no whole number.
        return (
            exp.Anonymous(this="TRUNC", expressions=[quotient]) if isinstance(node, exp.IntDiv) else quotient
        )
    if isinstance(node, exp.DPipe):
        for name in ("this", "expression"):
            node.set(name, _as_text(node.args[name]))
        return _cut(node)
    if isinstance(node, (exp.Concat, exp.ConcatWs)):
        node.set("expressions", [_as_text(each) for each in node.expressions])
        return _cut(node)
    return _cut(node) if isinstance(node, (exp.Replace, exp.RegexpReplace)) else node


def _cut(node: exp.Expr) -> exp.Expr:
    return exp.Left(this=node, expression=exp.Literal.number(_MAX_TEXT))


def _as_text(node: exp.Expr, to: exp.DataType | None = None) -> exp.Expr:
    """A value as text, whole numbers without ".0": a count is a whole number, though it is a double here."""
    text = exp.TryCast(this=node.copy(), to=to or exp.DataType.build("TEXT"))
    is_known = isinstance(node, (exp.Literal, exp.Null, exp.Left, exp.Cast))
    if is_known or any(_is_function(each, "typeof") for each in node.walk()):
        return node if to is None else text
    whole = exp.Anonymous(
        this="REGEXP_REPLACE",
        expressions=[text.copy(), exp.Literal.string(r"\.0$"), exp.Literal.string("")],
    )
    kind = exp.Anonymous(this="TYPEOF", expressions=[node.copy()])
    is_double = exp.EQ(this=kind, expression=exp.Literal.string("DOUBLE"))
    return exp.Case(ifs=[exp.If(this=is_double, true=whole)], default=text)


def _is_function(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == name


def _check_texts(statement: exp.Expr) -> None:
    """Refuse what could make long texts: each is held in memory for some thousand rows at once."""
    replaces = list(statement.find_all(exp.Replace, exp.RegexpReplace))
    operands = sum(
        len(node.expressions) or 1 for node in statement.find_all(exp.DPipe, exp.Concat, exp.ConcatWs)
    )
    literals = (len(node.this) for node in statement.find_all(exp.Literal) if node.is_string)
    news = [node.args.get("replacement") for node in replaces]
    is_short = all(
        new is None or (isinstance(new, exp.Literal) and len(new.this) <= _MAX_REPLACEMENT) for new in news
    )
    if (
        len(replaces) > _MAX_REPLACES
        or operands > _MAX_OPERANDS
        or max(literals, default=0) > _MAX_TEXT
        or not is_short
    ):
        raise Unsupported(
            "the SQL over the released table could make long texts",
            why=f"it may hold texts of {_MAX_TEXT} characters, replace {_MAX_REPLACES} times by a text "
            f"of up to {_MAX_REPLACEMENT} that is written out, and concatenate {_MAX_OPERANDS} texts",
            fix="build the texts from the result, in Python",
        )


def _check(statement: exp.Expr) -> None:
    """Refuse constructs that are not on the allow-list."""
    ctes = {cte.alias.lower() for cte in statement.find_all(exp.CTE)}
    for node in statement.walk():
        if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc)):
            if str(node.this).lower() not in _NAMED:
                raise _unknown(node)
        elif type(node) not in _ALLOWED:
            raise _unknown(node)
        if isinstance(node, exp.Table):
            name = node.name.lower()
            is_plain = isinstance(node.this, exp.Identifier) and not node.args.get("db")
            if not is_plain or not (name in ctes or name.startswith((RELEASED, PUBLIC))):
                raise Unsupported(
                    f"the table {node.name[:60]!r} is used beside released values",
                    why="only tables that this query releases can be used there",
                    fix="join it inside the aggregated query",
                )
        if isinstance(node, exp.With) and node.args.get("recursive"):
            raise Unsupported(
                "a recursive WITH is not supported", why="it may not end", fix="write it without recursion"
            )
        if isinstance(node, (exp.Cast, exp.TryCast)):
            to = node.args["to"]
            if getattr(to.this, "name", "") not in _CASTS:
                raise Unsupported(
                    f"a cast to {to.sql('duckdb')[:40]} is not supported here",
                    why="results hold numbers, texts, truth values, dates and timestamps",
                    fix="cast to INTEGER, BIGINT, DOUBLE, DECIMAL, VARCHAR, BOOLEAN, DATE or TIMESTAMP",
                )
        if isinstance(node, exp.Literal) and node.is_string and _is_infinity(node.this):
            raise Unsupported(
                "the text 'infinity' is not supported over released values",
                why="as a date it has no day",
                fix="write a date, or NULL",
            )
        if isinstance(node, exp.Pivot) and not (node.args.get("fields") and not node.args.get("unpivot")):
            raise Unsupported(
                "PIVOT without its list of values is not supported",
                why="the columns of the answer must be known beforehand",
                fix="write PIVOT (SUM(n) FOR column IN ('a', 'b'))",
            )


def _is_infinity(text: str) -> bool:
    return text.strip().lstrip("+-").lower() == "infinity"


def _unknown(node: exp.Expr) -> Unsupported:
    return Unsupported(
        f"{describe_construct(node)} is not supported over released values",
        why="only functions that are known to be deterministic and to read nothing else are",
        fix="compute it from the released table; `hubbub functions` lists the functions",
    )


_LOCKED: dict[str, Any] = {
    "threads": "1",
    "memory_limit": _MEMORY,
    "max_temp_directory_size": "0KiB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
}


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config=_LOCKED)
    connection.execute("SET scalar_subquery_error_on_multiple_rows = false")
    return connection


@contextmanager
def _interrupted_after(seconds: float, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupt what the connection does after some seconds, and all that it does afterwards."""
    done = threading.Event()

    def watch() -> None:
        is_done = done.wait(seconds)
        while not is_done:
            connection.interrupt()
            is_done = done.wait(0.05)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _fill(
    connection: duckdb.DuckDBPyConnection,
    tables: Sequence[Table],
    filled: Sequence[Sequence[ResultColumn]] | None,
    public: Sequence[Sequence[ResultColumn]],
) -> None:
    """Make the tables, released ones empty at planning; then the connection can change no setting."""
    of_public = [({each.name: each.kind or Kind.NUMBER for each in columns}, columns) for columns in public]
    of_released = [(table, filled[place] if filled else ()) for place, table in enumerate(tables)]
    contents = {f"{RELEASED}{number}": each for number, each in enumerate(of_released)}
    contents |= {f"{PUBLIC}{number}": each for number, each in enumerate(of_public)}
    for name, (table, rows) in contents.items():
        columns = ", ".join(f"{_quote(column)} {SQL_TYPES[kind]}" for column, kind in table.items())
        connection.execute(f"CREATE TABLE {name} ({columns})")
        if not rows:
            continue
        listed = _lists(table, rows)
        # A list for each column: single rows take a hundred times as long.
        lists = ", ".join(f"unnest(CAST(? AS {SQL_TYPES[kind]}[]))" for kind in table.values())
        for start in range(0, len(rows[0].values), _BATCH):
            values = [each[start : start + _BATCH] for each in listed]
            connection.execute(f"INSERT INTO {name} SELECT {lists}", values)
    connection.execute("SET lock_configuration = true")


def _fetch(connection: duckdb.DuckDBPyConnection, columns: int) -> list[tuple[Any, ...]] | None:
    """All rows; None if they are too many, or hold too much text."""
    rows: list[tuple[Any, ...]] = []
    characters = 0
    while batch := connection.fetchmany(_BATCH):
        rows += batch
        characters += sum(len(value) for row in batch for value in row if isinstance(value, str))
        if len(rows) * columns > MAX_CELLS or characters > _MAX_CHARACTERS:
            return None
    return rows


def _lists(table: Table, columns: Sequence[ResultColumn]) -> list[list[Any]]:
    by_name: dict[str, Sequence[Any]] = {}
    for column in columns:
        by_name[column.name] = column.values.tolist()
        if column.low is not None and column.high is not None:
            by_name[f"{column.name}_low"] = column.low.tolist()
            by_name[f"{column.name}_high"] = column.high.tolist()
    count = len(columns[0].values)
    return [[_plain(each) for each in by_name.get(name, [None] * count)] for name in table]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _finite_or(value: Any, default: float) -> float:
    return default if value is None or math.isnan(value) else float(value)


def _array(values: Sequence[Any], kind: Kind) -> Any:
    if kind is Kind.NUMBER:
        numbers = [math.nan if value is None else float(value) for value in values]
        return np.array(
            [number if math.isfinite(number) else math.nan for number in numbers], dtype=np.float64
        )
    out = np.empty(len(values), dtype=object)
    if kind is Kind.TIMESTAMP:
        values = [
            datetime(value.year, value.month, value.day) if type(value) is date else value  # noqa: DTZ001 - no zone in SQL
            for value in values
        ]
    if kind in {Kind.DATE, Kind.TIMESTAMP}:  # dates that Python does not know arrive as texts
        values = [value if isinstance(value, date) else None for value in values]
    out[:] = list(values)
    return out


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
