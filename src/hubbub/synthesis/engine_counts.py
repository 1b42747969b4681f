"""Counting in an engine: the tables of a domain, as exact integers. Rows never leave it.

The rows of the table, as any query reads them, are put into cells by their own values; rows outside the
domain are left out. Each row of a unit above the limit then has an integer weight, so small that all of them
together stay within it. All tables are sums of the same weights, many of them in one scan.

Proof: docs/proofs/bounding.md, "Weights by rows"
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import cached_property

import numpy as np
import sqlglot
from sqlglot import exp

from hubbub.engines.dialect import KEY_PLACE
from hubbub.engines.engine import Engine
from hubbub.engines.schema import UNIT, Key, Kind
from hubbub.engines.total_functions import datetime_literal, format_double, number_literal, text_literal
from hubbub.errors import InvalidInput
from hubbub.sql.bounding_sql import bin_call, bin_index, capped_weight, clamped_sum, clamped_total
from hubbub.sql.complementary_parts import is_finite
from hubbub.sql.query import Query
from hubbub.synthesis.counting import WEIGHT_BITS, Integers, merge_shape
from hubbub.synthesis.domain import Column, ColumnKind, Domain, to_date
from hubbub.unit import Unit

__all__ = ["MANY_TABLES", "MAX_NUMBERED_TABLES", "EngineCounts", "plan_scans"]

_MAX_SCAN_TABLES, _MAX_SCAN_CELLS = 64, 1 << 20
MANY_TABLES, MAX_NUMBERED_TABLES = 512, 2048
_MAX_SCAN_COLUMNS = 60
"""The columns of a table are one integer of 64 bits."""
_MAX_NESTED_ENDS = 8
_MAX_LISTED_KEYS = 256
_LISTED_KINDS = {Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN, Kind.DATE}
_BLOCK_COLUMNS = 20
_STAGE_COLUMNS = 24
_GIVEN = "_given"
Names = tuple[str, ...]


@dataclass(frozen=True)
class EngineCounts:
    """The rows of one table in an engine, in the cells of a domain.

    Guarantee: as `Counts`; weights and cells of a row depend on its unit's rows alone.
    Assumes: `query` groups by the columns of the domain, in their order.
    Proof: docs/proofs/bounding.md, "Weights by rows"
    """

    engine: Engine
    query: Query
    domain: Domain
    unit: Unit
    max_weight: int

    @property
    def scale(self) -> int:
        """The count of a row of full weight."""
        return 1 << WEIGHT_BITS if self.query.is_keyed else 1

    def count(self, names: Names) -> Integers:
        """The table of these columns."""
        return self.count_many([names])[names]

    def count_many(
        self, tables: Iterable[Names], groups: Mapping[str, Integers] | None = None
    ) -> dict[Names, Integers]:
        """Several tables: the largest are counted, the others are sums of these."""
        distinct = list(dict.fromkeys(tables))
        sets = {names: self.domain.ordered(names) for names in distinct}
        largest = _largest(list(dict.fromkeys(sets.values())))
        merged = groups or {}
        # Cells that are merged may be far too many to number: only those with rows are looked at.
        whole = {names for names in largest.values() if not any(name in merged for name in names)}
        by_numbers = self._counts_by_numbers(len(whole))
        counts: dict[Names, Integers] = {}
        for scan in plan_scans(self.domain, whole, by_numbers=by_numbers):
            counts.update(self._scan_by_numbers(scan) if by_numbers else self._scan(scan, {}))
        for scan in plan_scans(self.domain, set(largest.values()) - whole):
            counts.update(self._scan(scan, merged))
        answers = {}
        for names in distinct:
            host = largest[sets[names]]
            table = counts[host].sum(
                axis=tuple(axis for axis, name in enumerate(host) if name not in sets[names])
            )
            order = [sets[names].index(name) for name in names]
            answers[names] = np.asarray(table, dtype=np.int64).transpose(order)
        return answers

    def histogram(self, name: str, cuts: Sequence[Fraction]) -> Integers:
        """The counts of one column with other cuts."""
        column = self.domain.column(name).with_cuts(cuts)
        # Without rules and functions: it would take long to compute which of these cells are possible.
        columns = (column if each.name == name else each for each in self.domain.columns)
        return self.with_domain(Domain(tuple(columns))).count((name,))

    def with_domain(self, domain: Domain) -> "EngineCounts":
        """The same rows with other bins."""
        if domain.names != self.domain.names:
            raise InvalidInput(
                "the other domain has other columns",
                why="only bins may change: rows are in the same columns",
                fix="make the counts for the other columns",
            )
        return replace(self, domain=domain)

    def compile(self) -> tuple[str, ...]:
        """The SQL of a small scan, in the engine's dialect; it refuses what the engine cannot say."""
        sql, _ = self._statement([self.domain.names[:1]], self.domain.names[:1])
        return (self.engine.compile(sql),)

    # SQL

    def _counts_by_numbers(self, tables: int) -> bool:
        """Whether cells are numbered: many grouping sets take DuckDB minutes, and gigabytes."""
        is_wide = len(self.domain.columns) > _MAX_SCAN_COLUMNS
        return self.engine.dialect == "duckdb" and (is_wide or tables > MANY_TABLES)

    def _scan(self, tables: Sequence[Names], groups: Mapping[str, Integers]) -> dict[Names, Integers]:
        """Several tables in one scan."""
        used = self.domain.ordered({name for names in tables for name in names})
        sql, key_sets = self._statement(tables, used)
        batch = self.engine.execute(sql, key_sets)
        columns = [batch[f"p{place}"] for place in range(len(used))]
        # Which table a row of the result belongs to: of the columns it is not grouped by, −1.
        pattern = np.zeros(batch["m0"].size, dtype=np.int64)
        for place, column in enumerate(columns):
            pattern |= (column >= 0).astype(np.int64) << place
        answers = {}
        for names in tables:
            places = [used.index(name) for name in names]
            rows = np.flatnonzero(pattern == sum(1 << place for place in places))
            table = np.zeros(merge_shape(self.domain, names, groups), dtype=np.int64)
            index = [columns[place][rows] for place in places]
            own = [
                groups[name][each] if name in groups else each
                for name, each in zip(names, index, strict=True)
            ]
            if names:
                np.add.at(table, tuple(own), batch["m0"][rows])
            else:
                table[()] = batch["m0"].sum()
            answers[names] = table
        return answers

    def _scan_by_numbers(self, tables: Sequence[Names]) -> dict[Names, Integers]:
        """Very many tables in one scan: all their cells are numbered, and a row counts in one of each."""
        used = self.domain.ordered({name for names in tables for name in names})
        sizes = [self.domain.cells(names) for names in tables]
        starts = np.cumsum([0, *sizes])
        sql, key_sets = self._statement(tables, used, starts)
        batch = self.engine.execute(sql, key_sets)
        cells = np.zeros(starts[-1], dtype=np.int64)
        cells[batch["p0"]] = batch["m0"]
        parts = np.split(cells, starts[1:-1])
        return {
            names: part.reshape(self.domain.shape(names)) for names, part in zip(tables, parts, strict=True)
        }

    def _number(self, names: Names, start: int) -> str:
        """SQL for the number of a row's cell in a table, from the number of its first cell on."""
        terms, stride = [], 1
        for name in reversed(names):
            terms.append(f"c{self.domain.index(name)} * {stride}")
            stride *= self.domain.column(name).size
        return " + ".join([str(start), *terms])

    def _statement(
        self, tables: Sequence[Names], used: Names, starts: Integers | None = None
    ) -> tuple[exp.Select, Mapping[str, Sequence[Key]]]:
        """The SQL of a scan: by grouping sets; or by the numbers of cells, if it is said where they start."""
        code = {name: f"c{self.domain.index(name)}" for name in self.domain.names}
        is_keyed = self.query.is_keyed
        stages, last = self._coded_stages()
        inside = " AND ".join(f"{each} >= 0" for each in code.values())
        weighted = "SELECT * FROM _inside"
        units = ""
        if is_keyed:
            weight = capped_weight("COUNT(*)", self.max_weight, WEIGHT_BITS)
            units = f"_units AS (SELECT {UNIT}, {weight} AS w FROM _inside GROUP BY {UNIT}), "
            own = ", ".join(f"_inside.{code[name]}" for name in used)
            columns = f"{own}, w" if own else "w"
            weighted = f"SELECT {columns} FROM _inside JOIN _units ON _inside.{UNIT} = _units.{UNIT}"
        total = clamped_sum("w") if is_keyed else clamped_total("COUNT(*)")
        places = ", ".join(f"COALESCE({code[name]}, -1) AS p{place}" for place, name in enumerate(used))
        sets = ", ".join(f"({', '.join(code[name] for name in names)})" for names in tables)
        by = f" GROUP BY GROUPING SETS ({sets})" if used else ""
        if starts is not None:
            numbers = ", ".join(map(self._number, tables, starts))
            weighted = (
                f"SELECT UNNEST([{numbers}]) AS p0{', w' if is_keyed else ''} FROM ({weighted}) AS _rows"
            )
            places, by = "p0", " GROUP BY p0"
        text = (
            f"WITH {stages}, _inside AS (SELECT * FROM {last} WHERE {inside}), {units}"
            f"_weighted AS ({weighted}) "
            f"SELECT {places}{', ' if places else ''}{total} AS m0 FROM _weighted{by}"
        )
        # Not kept, as other templates are: a statement of many bins takes tens of megabytes.
        tree = sqlglot.parse_one(text, read="duckdb")
        assert isinstance(tree, exp.Select)
        rows_cte = exp.CTE(this=self.query.rows.copy(), alias=exp.TableAlias(this=exp.to_identifier(_GIVEN)))
        clause = tree.args["with_"]
        clause.set("expressions", [rows_cte, *clause.expressions])
        return tree, self._key_sets

    def _coded_stages(self) -> tuple[str, str]:
        """CTEs that put rows into cells, and the name of the last one.

        DuckDB looks for the best order of joins, which takes it seconds for a hundred of them: then columns
        are coded in stages.
        """
        count = len(self.domain.columns)
        is_slow = self.engine.dialect == "duckdb" and len(self._key_sets) > 2 * _STAGE_COLUMNS
        width = _STAGE_COLUMNS if is_slow else count
        stages, source = [], _GIVEN
        for number, start in enumerate(range(0, count, width)):
            own = range(start, min(count, start + width))
            carried = [UNIT] if self.query.is_keyed else []
            carried += [f"c{place}" for place in range(start)]
            carried += [f"k{place}" for place in range(own.stop, count)]
            listed = [f"{source}.{name} AS {name}" for name in carried]
            listed += [f"{self._cell(place, source)} AS c{place}" for place in own]
            joins = " ".join(
                f"LEFT JOIN _keys{place} ON {source}.k{place} = _keys{place}.key"
                for place in own
                if f"_keys{place}" in self._key_sets
            )
            how = "AS MATERIALIZED" if is_slow else "AS"
            stages.append(f"_coded{number} {how} (SELECT {', '.join(listed)} FROM {source} {joins})")
            source = f"_coded{number}"
        return ", ".join(stages), source

    @cached_property
    def _key_sets(self) -> dict[str, Sequence[Key]]:
        return {
            f"_keys{place}": column.categories
            for place, column in enumerate(self.domain.columns)
            if not column.is_binned and column.categories and not self._is_listed(column)
        }

    def _is_listed(self, column: Column) -> bool:
        """True if a column's categories are written into the statement, and not joined as a table."""
        kind = self.query.keys[self.domain.index(column.name)].kind
        is_short = len(column.categories) <= _MAX_LISTED_KEYS and kind in _LISTED_KINDS
        return self.engine.dialect == "spark" and is_short

    def _cell(self, place: int, source: str) -> str:
        """SQL for the cell of a row in one column; −1 outside the domain."""
        column, key = self.domain.columns[place], f"{source}.k{place}"
        null = -1 if column.null_cell is None else column.null_cell
        other = -1 if column.other_cell is None else column.other_cell
        if not column.is_binned:
            code = f"_keys{place}.place"
            if self._is_listed(column):
                code = f"{KEY_PLACE}({', '.join([key, *map(_key_literal, column.categories)])})"
            code = f"COALESCE({code}, {other})" if column.categories else str(other)
            missing = f"{key} IS NULL"
            if self.query.keys[place].kind is Kind.NUMBER:
                missing = f"NOT ({is_finite(key)}) OR {missing}"
            return f"CASE WHEN {missing} THEN {null} ELSE {code} END"
        # Values below the first cut or above the last one are in the outer bins.
        ends = [_literal(column, cut) for cut in column.cuts]
        is_nested = self.engine.dialect == "duckdb" or len(ends) <= _MAX_NESTED_ENDS
        index = bin_index(f"{key} <", ends) if is_nested else bin_call(key, ends)
        present = is_finite(key) if column.kind is ColumnKind.NUMBERS else f"{key} IS NOT NULL"
        return f"CASE WHEN {present} THEN {index} ELSE {null} END"


def plan_scans(domain: Domain, tables: Iterable[Names], *, by_numbers: bool = False) -> Iterator[list[Names]]:
    """Divide tables into scans of bounded size: which of them share one depends on public sizes alone.

    Every scan puts all rows into cells of all columns, which takes longest where there are many columns. So
    tables of the same few blocks of columns are counted together.
    """

    def place(names: Names) -> tuple[list[int], list[int]]:
        columns = sorted(map(domain.index, names))
        return sorted({column // _BLOCK_COLUMNS for column in columns}), columns

    most_tables = MAX_NUMBERED_TABLES if by_numbers else _MAX_SCAN_TABLES
    most_columns = len(domain.columns) if by_numbers else _MAX_SCAN_COLUMNS
    scan: list[Names] = []
    columns: set[str] = set()
    cells = 0
    for names in sorted(tables, key=place):
        size, all_columns = domain.cells(names), columns.union(names)
        is_full = len(scan) == most_tables or len(all_columns) > most_columns
        if scan and (is_full or cells + size > _MAX_SCAN_CELLS):
            yield scan
            scan, all_columns, cells = [], set(names), 0
        scan.append(names)
        columns, cells = all_columns, cells + size
    if scan:
        yield scan


def _largest(tables: Sequence[Names]) -> dict[Names, Names]:
    """For each table a table of the list that contains its columns and is contained in no other."""
    chosen: dict[str, list[tuple[frozenset[str], Names]]] = {}
    result: dict[Names, Names] = {}
    for names in sorted(tables, key=len, reverse=True):
        own = frozenset(names)
        # Of the tables with one of its columns: there may be very many tables.
        candidates = min((chosen.get(name, []) for name in names), key=len) if names else []
        result[names] = next((whole for known, whole in candidates if own < known), names)
        if result[names] == names:
            for name in names:
                chosen.setdefault(name, []).append((own, names))
    if () in result:
        result[()] = min((names for names in result if names), key=len, default=())
    return result


def _key_literal(key: Key) -> str:
    node: exp.Expr
    if isinstance(key, str):
        node = text_literal(key)
    elif isinstance(key, bool):
        node = exp.Boolean(this=key)
    elif isinstance(key, date):
        node = datetime_literal(key)
    else:
        assert key is not None
        node = number_literal(key)
    return node.sql("duckdb")


def _literal(column: Column, cut: Fraction) -> str:
    return f"DATE '{to_date(cut)}'" if column.kind is ColumnKind.DATES else format_double(cut)
