"""Counting in an engine: the tables of a domain, as exact integers. Rows never leave it.

The rows of the table, as any query reads them, are put into cells by their own values; rows outside the
domain are left out. Each row of a unit above the limit then has an integer weight, so small that all of them
together stay within it. All tables are sums of the same weights, many of them in one scan.

Proof: docs/proofs/bounding.md, "Weights by rows"
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from sqlglot import exp

from hubbub.engines.engine import Engine
from hubbub.engines.schema import UNIT, Key, Kind
from hubbub.engines.total_functions import format_double
from hubbub.errors import InvalidInput
from hubbub.sql.bounding_sql import bin_index, capped_weight, clamped_sum, clamped_total, parse_template
from hubbub.sql.complementary_parts import is_finite
from hubbub.sql.query import Query
from hubbub.synthesis.counting import WEIGHT_BITS, Integers
from hubbub.synthesis.domain import Column, ColumnKind, Domain, to_date
from hubbub.unit import Unit

__all__ = ["EngineCounts", "plan_scans"]

_MAX_SCAN_TABLES, _MAX_SCAN_CELLS = 64, 1 << 20
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

    def count_many(self, tables: Iterable[Names]) -> dict[Names, Integers]:
        """Several tables: the largest are counted, the others are sums of these."""
        distinct = list(dict.fromkeys(tables))
        sets = {names: self.domain.ordered(names) for names in distinct}
        largest = _largest(list(dict.fromkeys(sets.values())))
        counts: dict[Names, Integers] = {}
        for scan in plan_scans(self.domain, sorted(set(largest.values()))):
            counts.update(self._scan(scan))
        answers = {}
        for names in distinct:
            whole = largest[sets[names]]
            table = counts[whole].sum(
                axis=tuple(axis for axis, name in enumerate(whole) if name not in sets[names])
            )
            order = [sets[names].index(name) for name in names]
            answers[names] = np.asarray(table, dtype=np.int64).transpose(order)
        return answers

    def histogram(self, name: str, cuts: Sequence[Fraction]) -> Integers:
        """The counts of one column with other cuts."""
        column = self.domain.column(name).with_cuts(cuts)
        return self.with_domain(self.domain.with_columns(column)).count((name,))

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

    def _scan(self, tables: Sequence[Names]) -> dict[Names, Integers]:
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
            table = np.zeros(self.domain.shape(names), dtype=np.int64)
            index = tuple(columns[place][rows] for place in places)
            table[index] = batch["m0"][rows] if places else batch["m0"].sum()
            answers[names] = table
        return answers

    def _statement(
        self, tables: Sequence[Names], used: Names
    ) -> tuple[exp.Select, Mapping[str, Sequence[Key]]]:
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
        text = (
            f"WITH {stages}, _inside AS (SELECT * FROM {last} WHERE {inside}), {units}"
            f"_weighted AS ({weighted}) "
            f"SELECT {places}{', ' if places else ''}{total} AS m0 FROM _weighted{by}"
        )
        tree = parse_template(text).copy()
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
            if not column.is_binned and column.categories
        }

    def _cell(self, place: int, source: str) -> str:
        """SQL for the cell of a row in one column; −1 outside the domain."""
        column, key = self.domain.columns[place], f"{source}.k{place}"
        null = -1 if column.null_cell is None else column.null_cell
        other = -1 if column.other_cell is None else column.other_cell
        if not column.is_binned:
            code = f"COALESCE(_keys{place}.place, {other})" if column.categories else str(other)
            missing = f"{key} IS NULL"
            if self.query.keys[place].kind is Kind.NUMBER:
                missing = f"NOT ({is_finite(key)}) OR {missing}"
            return f"CASE WHEN {missing} THEN {null} ELSE {code} END"
        # Values below the first cut or above the last one are in the outer bins.
        index = bin_index(f"{key} <", [_literal(column, cut) for cut in column.cuts])
        present = is_finite(key) if column.kind is ColumnKind.NUMBERS else f"{key} IS NOT NULL"
        return f"CASE WHEN {present} THEN {index} ELSE {null} END"


def plan_scans(domain: Domain, tables: Iterable[Names]) -> Iterator[list[Names]]:
    """Divide tables into scans of bounded size: which of them share one depends on public sizes alone."""
    scan: list[Names] = []
    cells = 0
    for names in tables:
        size = domain.cells(names)
        columns = {name for each in (*scan, names) for name in each}
        if scan and (len(scan) == _MAX_SCAN_TABLES or cells + size > _MAX_SCAN_CELLS or len(columns) > 60):
            yield scan
            scan, cells = [], 0
        scan.append(names)
        cells += size
    if scan:
        yield scan


def _largest(tables: Sequence[Names]) -> dict[Names, Names]:
    """For each table a table of the list that contains its columns and is contained in no other."""
    chosen: list[tuple[frozenset[str], Names]] = []
    result: dict[Names, Names] = {}
    for names in sorted(tables, key=len, reverse=True):
        own = frozenset(names)
        result[names] = next((whole for known, whole in chosen if own <= known), names)
        if result[names] == names:
            chosen.append((own, names))
    return result


def _literal(column: Column, cut: Fraction) -> str:
    return f"DATE '{to_date(cut)}'" if column.kind is ColumnKind.DATES else format_double(cut)
