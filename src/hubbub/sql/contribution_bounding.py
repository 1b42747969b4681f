"""Contribution bounding per unit: engine SQL that returns exact integers, and their sensitivity.

Where keys are public a unit is *weighted*: each of its rows counts an integer weight, so small that all
of them together stay within the bound; no row is sampled, no row is sorted. Where keys are selected
privately a unit above the bound keeps some of its keys, chosen by a hash of the unit and the key. What is
counted is split into non-negative parts that sum to one for every row, so that counts, means and variances
are measured together for the price of one count.

Weights and choices depend on the unit's own rows alone. The sums are of integers, and are clamped to ±2^61.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubbub.engines.schema import UNIT, Bounds
from hubbub.engines.total_functions import format_double
from hubbub.errors import InvalidInput
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity
from hubbub.sql.bounded_rows import BoundedRows
from hubbub.sql.bounding_sql import (
    MAGNITUDE_ENDS,
    MAGNITUDES,
    bin_index,
    capped_weight,
    capped_weights,
    clamped_sum,
    clamped_total,
    count_bits,
    left_join,
    neighbour_sensitivity,
    rounded_sensitivity,
    value_bits,
    whole_value_bits,
)
from hubbub.sql.complementary_parts import WEIGHT_BITS, Partition, clamped, is_finite
from hubbub.sql.number_functions import exact_sum, step_bits
from hubbub.sql.query import BoundedAggregate
from hubbub.unit import Neighbours

__all__ = ["ContributionBounding"]

_BIN_BITS = 30
"""Bins, which are many, are released as they are added up: a row that counts whole counts 2^30 in them."""
_WHOLE = Partition.rows()


@dataclass(frozen=True)
class ContributionBounding(BoundedRows):
    """The weighting or selection of a query's rows, for known contribution bounds."""

    # Sums over rows

    def sums(self, partition: Partition) -> BoundedAggregate:
        """The weighted sum of each part, in each group."""
        if self._counts_first_rows(partition):
            return self._first_rows()
        parts = partition.parts
        cells = len(parts) * self._groups_touched
        bits, spare = self._released_bits(partition, cells)
        if self._is_by_group:
            inner = ", ".join(f"SUM({part}) AS p{place}" for place, part in enumerate(parts))
            weighted = self._weighted_pairs_cte(inner, partition)
            totals = [f"SUM(CAST(w * p{place} AS HUGEINT))" for place in range(len(parts))]
        else:
            weighted = (
                self._weighted_rows_cte(partition)
                if self._keeps_all_keys
                else self._weighted_kept_rows_cte(partition)
            )
            totals = partition.totals(is_weighted=self.query.is_keyed)
        if not self.query.is_keyed and partition == _WHOLE:
            weighted, totals = f"WITH _weighted AS (SELECT * FROM _rows{self._where()})", ["COUNT(*)"]
        outputs = {f"m{place}": clamped_total(total, spare) for place, total in enumerate(totals)}
        if not self.query.is_public:
            is_by_row = self.query.is_keyed and not self._is_by_group
            outputs["u"] = (
                clamped_sum("CASE WHEN r = n THEN 1 ELSE 0 END") if is_by_row else clamped_total("COUNT(*)")
            )
        listed = ", ".join(f"{total} AS {name}" for name, total in outputs.items())
        text = f"{weighted} SELECT {self._key_list}{listed} FROM _weighted{self._group_by}"
        # Rows that are units are counted first, and what is no public key is left out of what comes of it.
        sql = self._parse_over_rows(text, *outputs, is_late=not self.query.is_keyed)
        sensitivity = self._sensitivity(1 << bits, is_signed=partition.has_both_signs)
        sensitivity = rounded_sensitivity(sensitivity, cells, spare)
        step = Fraction(1, 1 << bits)
        return BoundedAggregate(
            sql,
            len(parts),
            sensitivity,
            step,
            self._rule,
            self._key_sets,
            counts_units="u" in outputs,
            is_weighted=self.query.is_keyed,
        )

    def _released_bits(self, partition: Partition, cells: int) -> tuple[int, int]:
        """Number of bits of a row in released sums, and number of additional bits in the engine."""
        if not self.query.is_keyed:
            return partition.bits, partition.spare
        if not partition.spare:
            return count_bits(cells)
        return value_bits(partition)

    def _counts_first_rows(self, partition: Partition) -> bool:
        """True if only rows are counted and a unit keeps some of them: which of one key does not matter."""
        return partition == _WHOLE and not self._keeps_all_keys and not self._is_by_group

    def _first_rows(self) -> BoundedAggregate:
        """The number of rows per key, among the first rows of each unit in the order of its hashed keys."""
        keys = ", ".join(self._key_names)
        order = f"OVER (PARTITION BY {UNIT} ORDER BY {self._keep_order(keys)})"
        condition, ranks = f"n <= {self._rows}", f"ROW_NUMBER() {order} AS n"
        if self._groups < self._rows:
            condition, ranks = f"{condition} AND d <= {self._groups}", f"{ranks}, DENSE_RANK() {order} AS d"
        ranked = f"SELECT {keys}, {ranks} FROM _rows"
        count = clamped_total("COUNT(*)")
        text = f"SELECT {self._key_list}{count} AS m0 FROM ({ranked}) AS _ranked WHERE {condition}"
        sql = self._parse_over_rows(text + self._group_by, "m0")
        return BoundedAggregate(sql, 1, self._sensitivity(1), Fraction(1), "First rows", self._key_sets)

    def histogram(
        self, place: int, bounds: Bounds, bin_of: str, bins: int, *, levels: int
    ) -> BoundedAggregate:
        """The weighted number of values in each of `bins` bins, at most 65,536.

        `bin_of` is SQL for the bin of a value v within the bounds. The bins are released with the sums of
        `levels` − 1 coarser ones: each row is in `levels` of them.
        """
        x = f"x{place}"
        # As small integers around zero: engines count these fast. Shifted back they would overflow.
        middle = bins // 2
        values_of = f"SELECT {self._key_list}{clamped(x, bounds)} AS v, w FROM _weighted WHERE {is_finite(x)}"
        small = f"CAST({bin_of} - {middle} AS SMALLINT) AS small"
        inner = f"SELECT {self._key_list}{small}, w FROM ({values_of}) AS _values"
        by = ", ".join([*self._key_names, "small"])
        values = Partition(("1",), 0, columns=(x,))
        if self._is_by_group:
            weighted = self._rows_weighted_by_pairs_cte(values)
        elif self._keeps_all_keys:
            weighted = self._weighted_rows_cte(values, _BIN_BITS)
        else:
            weighted = self._weighted_kept_rows_cte(values, _BIN_BITS)
        total = clamped_sum("w") if self.query.is_keyed else clamped_total("COUNT(*)")
        sql = self._parse_over_rows(
            f"{weighted} SELECT {self._key_list}CAST(small AS INTEGER) + {middle} AS b, {total} AS m0 "
            f"FROM ({inner}) AS _binned GROUP BY {by}",
            "b",
            "m0",
        )
        bits = _BIN_BITS if self.query.is_keyed else 0
        once = self._sensitivity(1 << bits)
        sensitivity = Sensitivity(levels * once.l1, l2_squared=levels * once.l2_squared, linf=once.linf)
        return BoundedAggregate(sql, 1, sensitivity, Fraction(1, 1 << bits), self._rule, self._key_sets, bins)

    def _inside_cte(self, partition: Partition) -> str:
        """WITH `_inside`: the rows within the public keys, and what is asked of them."""
        by = [UNIT, *self._key_names] if self.query.is_keyed else self._key_names
        return f"WITH _inside AS ({partition.over(f'SELECT * FROM _rows{self._where()}', by)})"

    def _weighted_rows_cte(self, partition: Partition, bits: int = WEIGHT_BITS) -> str:
        """WITH … `_weighted`: the rows with their weight w."""
        if not self.query.is_keyed:
            return f"{self._inside_cte(partition)}, _weighted AS (SELECT *, 1 AS w FROM _inside)"
        return f"{self._inside_cte(partition)}, {self._weights_cte('_inside', bits)}"

    def _weighted_kept_rows_cte(self, partition: Partition, bits: int = WEIGHT_BITS) -> str:
        """WITH … `_weighted`: the rows of the keys that each unit keeps, with their weight w.

        Of the rows of one unit and key, r = n in one. To sort rows is faster than to find keys first.
        """
        keys = ", ".join(self._key_names)
        order = f"OVER (PARTITION BY {UNIT} ORDER BY {self._keep_order(keys)})"
        ranks = f"DENSE_RANK() {order} AS d, RANK() {order} AS r, ROW_NUMBER() {order} AS n"
        ranked = f"SELECT *, {ranks} FROM _inside"
        kept_rows = f"SELECT * FROM ({ranked}) AS _ranked WHERE d <= {self._groups}"
        return f"{self._inside_cte(partition)}, _kept AS ({kept_rows}), {self._weights_cte('_kept', bits)}"

    def _weights_cte(self, table: str, bits: int) -> str:
        """`_weighted`: the rows of a table, each with the share w of its unit's limit."""
        # Joining all units is faster than joining only those above the limit.
        units = (
            f"SELECT {UNIT}, {capped_weight('COUNT(*)', self._rows, bits)} AS w FROM {table} GROUP BY {UNIT}"
        )
        if self._keeps_all_keys and self.query.keys and self.bounds.groups is not None:
            by = ", ".join([UNIT, *self._key_names])
            pairs = f"SELECT {by}, COUNT(*) AS c FROM {table} GROUP BY {by}"
            rows = capped_weight("CAST(SUM(c) AS BIGINT)", self._rows, bits)
            share = f"LEAST({rows}, {capped_weight('COUNT(*)', self._groups, bits)})"
            units = f"SELECT {UNIT}, {share} AS w FROM ({pairs}) AS _pairs GROUP BY {UNIT}"
        weighted = f"SELECT {table}.*, w FROM {table} JOIN _units ON {table}.{UNIT} = _units.{UNIT}"
        return f"_units AS ({units}), _weighted AS ({weighted})"

    def _weighted_pairs_cte(self, sums: str, partition: Partition, bits: int = WEIGHT_BITS) -> str:
        """WITH … `_weighted`: each unit's sums in each group that it keeps, with the weight w of its rows."""
        inside = self._inside_cte(partition)
        keys = ", ".join(self._key_names)
        more = f", {sums}" if sums else ""
        pairs = f"_pairs AS (SELECT {UNIT}, {keys}, COUNT(*) AS c{more} FROM _inside GROUP BY {UNIT}, {keys})"
        one = 1 << bits
        if self.query.is_public:
            weight = f"(COALESCE(g, {one}) * LEAST(c, {self._rows_per_group})) // c"
            weighted = f"SELECT _pairs.*, {weight} AS w FROM {left_join('_pairs', '_many')}"
            many = f"_many AS ({capped_weights('_pairs', self._groups, bits)})"
            return f"{inside}, {pairs}, {many}, _weighted AS ({weighted})"
        weighted = f"SELECT *, ({one} * LEAST(c, {self._rows_per_group})) // c AS w FROM _kept"
        return f"{inside}, {pairs}, {self._kept_values_cte(keys, self._groups)}, _weighted AS ({weighted})"

    def _rows_weighted_by_pairs_cte(self, partition: Partition) -> str:
        """WITH … `_weighted`: the rows, each with the weight of its unit in its group."""
        same = " AND ".join(f"_inside.{key} IS NOT DISTINCT FROM _by_pair.{key}" for key in self._key_names)
        inner = self._weighted_pairs_cte("", partition, _BIN_BITS).replace("_weighted AS", "_by_pair AS")
        rows = (
            f"SELECT _inside.*, w FROM _inside JOIN _by_pair ON _inside.{UNIT} = _by_pair.{UNIT} AND {same}"
        )
        return f"{inner}, _weighted AS ({rows})"

    def _sensitivity(self, one: int, *, is_signed: bool = False) -> Sensitivity:
        """How far one unit moves the vector, if a row that counts whole counts `one` in all its parts."""
        whole = Fraction(one)
        if not self.query.is_keyed:
            return neighbour_sensitivity(self.neighbours, whole, whole**2, whole, is_signed=is_signed)
        if self._is_by_group:
            each, groups = whole * self._rows_per_group, self._groups
            return neighbour_sensitivity(
                self.neighbours, each * groups, each**2 * groups, each, is_signed=is_signed
            )
        most = whole * self._rows
        return neighbour_sensitivity(self.neighbours, most, most**2, most, is_signed=is_signed)

    @property
    def _groups_touched(self) -> int:
        """The maximum number of groups in which one unit can move the sums."""
        if not self.query.keys:
            return 1
        both = 1 if self.neighbours is Neighbours.ADD_REMOVE else 2
        most = both * (self._groups if self.query.is_keyed else 1)
        if not self.query.is_public:
            return most
        return self.query.cells if self.query.is_keyed else min(self.query.cells, both)

    # Which limits hold

    @property
    def _keeps_all_keys(self) -> bool:
        """True if a unit keeps all its keys."""
        return self.query.is_public or not self.query.is_keyed

    @property
    def _is_by_group(self) -> bool:
        """True if groups, and rows in each, are bounded; False if all rows of a unit are, together."""
        if not self.query.keys or not self.query.is_keyed or self.bounds.rows_per_group is None:
            return False
        return self.bounds.groups is not None or not self.query.is_public

    @property
    def _rows(self) -> int:
        if self.bounds.rows is None and not self.query.keys:  # all rows are one group
            return self.bounds.rows_per_group or 1
        return self.bounds.rows or 1

    @property
    def _rows_per_group(self) -> int:
        return self.bounds.rows_per_group or self.bounds.rows or 1

    @property
    def _groups(self) -> int:
        """The number of groups in which a unit has full weight, or the number of keys that it keeps."""
        groups = self._rows if self.bounds.groups is None else self.bounds.groups
        # Nobody is in more groups than there are.
        return min(groups, max(1, self.query.cells)) if self.query.is_public else groups

    @property
    def _rule(self) -> str:
        if not self.query.is_keyed:
            return "Rows that are units"
        if not self.query.is_public:
            return "Kept keys"
        return "Weights by groups" if self._is_by_group else "Weights by rows"

    # Units, and what each of them makes in a group

    def units(self) -> BoundedAggregate:
        """The number of units per group; a unit in more groups than its bound has less weight in each."""
        if not self.query.is_keyed:
            return self.sums(Partition.rows())
        if not self.query.keys:
            sql = self._parse_over_rows(
                f"SELECT {clamped_sum('1')} AS m0 FROM (SELECT DISTINCT {UNIT} FROM _rows) AS _units"
            )
            return BoundedAggregate(sql, 1, Sensitivity(1), Fraction(1), "Units")
        if not self.query.is_public:
            return self.key_candidates()
        groups = self._groups
        bits, spare = count_bits(self._groups_touched)
        pairs = f"SELECT DISTINCT {UNIT}, {', '.join(self._key_names)} FROM _rows{self._where()}"
        total = clamped_total(f"SUM(COALESCE(g, {1 << WEIGHT_BITS}))", spare)
        sql = self._parse_over_rows(
            f"WITH _pairs AS ({pairs}), _many AS ({capped_weights('_pairs', groups, WEIGHT_BITS)}) "
            f"SELECT {self._key_list}{total} AS m0 FROM {left_join('_pairs', '_many')}{self._group_by}",
            "m0",
        )
        one = Fraction(1 << bits)
        sensitivity = neighbour_sensitivity(self.neighbours, one * groups, one**2 * groups, one)
        sensitivity = rounded_sensitivity(sensitivity, self._groups_touched, spare)
        return BoundedAggregate(sql, 1, sensitivity, 1 / one, "Units", self._key_sets, is_weighted=True)

    def key_candidates(self) -> BoundedAggregate:
        """The number of units that keep each key, a bounded number of keys per unit; for private keys."""
        groups = self._groups if self.query.is_keyed else 1
        if self.query.is_keyed:
            keys = ", ".join(self._key_names)
            inside = f"WITH _inside AS (SELECT * FROM _rows{self._where()})"
            pairs = f"_pairs AS (SELECT DISTINCT {UNIT}, {keys} FROM _inside)"
            rows = f"{inside}, {pairs}, {self._kept_values_cte(keys, groups)}"
        else:
            rows = f"WITH _kept AS (SELECT * FROM _rows{self._where()})"
        units = clamped_total("COUNT(*)")
        sql = self._parse_over_rows(
            f"{rows} SELECT {self._key_list}{units} AS m0, {units} AS u FROM _kept{self._group_by}", "m0", "u"
        )
        sensitivity = neighbour_sensitivity(self.neighbours, Fraction(groups), Fraction(groups), Fraction(1))
        return BoundedAggregate(
            sql,
            1,
            sensitivity,
            Fraction(1),
            "Kept keys",
            self._key_sets,
            counts_units=not self.query.is_public,
        )

    def per_group(
        self, inner: str, argument: int | None, bounds: Bounds, *, is_mean: bool
    ) -> BoundedAggregate:
        """The sum or mean over units of their own count, sum or mean in a group, clamped."""
        self._check_keyed()
        column = "*" if argument is None else f"x{argument}"
        if inner == "count":
            own = f"CAST(COUNT({column}) AS DOUBLE) AS x0"
        else:
            own = f"{exact_sum(column, step_bits(bounds), is_mean=inner == 'mean')} AS x0"
        if is_mean:
            partition = Partition.powers({0: 1}, {0: bounds}, with_missing=False)
        else:
            partition = Partition.signed(0, bounds)
        bits, spare = value_bits(partition)
        names = [f"m{place}" for place in range(len(partition.parts))]
        listed = [
            f"{clamped_total(total, spare)} AS m{place}"
            for place, total in enumerate(partition.totals(is_weighted=True))
        ]
        if not self.query.is_public:
            names.append("u")
            listed.append(f"{clamped_total('COUNT(*)')} AS u")
        totals = ", ".join(listed)
        one, groups = 1 << WEIGHT_BITS, self._groups if self.query.keys else 1
        by = ", ".join([UNIT, *self._key_names])
        inside = f"WITH _inside AS (SELECT * FROM _rows{self._where()})"
        own_rows = f"SELECT {by}, {own} FROM _inside GROUP BY {by}"
        pairs = f"_pairs AS ({partition.over(own_rows, [UNIT, *self._key_names])})"
        if not self.query.is_public:
            kept_values = self._kept_values_cte(", ".join(self._key_names), groups)
            weighted = f"{kept_values}, _weighted AS (SELECT *, {one} AS w FROM _kept)"
        else:
            rows = f"SELECT _pairs.*, COALESCE(g, {one}) AS w FROM {left_join('_pairs', '_many')}"
            weighted = f"_many AS ({capped_weights('_pairs', groups, WEIGHT_BITS)}), _weighted AS ({rows})"
        text = f"{inside}, {pairs}, {weighted} SELECT {self._key_list}{totals} FROM _weighted{self._group_by}"
        sql = self._parse_over_rows(text, *names)
        each = Fraction(1 << bits)
        both = partition.has_both_signs
        sensitivity = neighbour_sensitivity(
            self.neighbours, each * groups, each**2 * groups, each, is_signed=both
        )
        rule, size = "What a unit makes in a group", len(partition.parts)
        sensitivity = rounded_sensitivity(sensitivity, size * self._groups_touched, spare)
        step = Fraction(1, 1 << bits)
        return BoundedAggregate(
            sql, size, sensitivity, step, rule, self._key_sets, counts_units="u" in names, is_weighted=True
        )

    def contribution_histogram(self, ends: Sequence[int], *, of_groups: bool = False) -> BoundedAggregate:
        """The number of units by number of rows, or of groups, in bins with these upper ends."""
        self._check_keyed()
        rows = f"SELECT * FROM _rows{self._where()}"
        if of_groups:
            rows = f"SELECT DISTINCT {', '.join([UNIT, *self._key_names])} FROM _rows{self._where()}"
        inside = f"SELECT {UNIT}, COUNT(*) AS n FROM ({rows}) AS _counted_rows GROUP BY {UNIT}"
        # By whole numbers: the last bit of a logarithm is not the same on every engine.
        index = bin_index("n <=", [str(end) for end in ends[:-1]])
        binned = f"SELECT {index} AS b FROM ({inside}) AS _counted"
        sql = self._parse_over_rows(
            f"SELECT b, {clamped_sum('1')} AS m0 FROM ({binned}) AS _sizes GROUP BY b"
        )
        sensitivity = neighbour_sensitivity(self.neighbours, Fraction(1), Fraction(1), Fraction(1))
        return BoundedAggregate(
            sql, 1, sensitivity, Fraction(1), "The limit on rows", self._key_sets, len(ends)
        )

    def units_above_bounds(self) -> BoundedAggregate:
        """Numbers of units above a contribution bound, which count for less than they have, and of others."""
        inside = f"WITH _inside AS (SELECT * FROM _rows{self._where()})"
        by = ", ".join([UNIT, *self._key_names])
        over = []
        if self._excess_conditions:
            over.append(
                f"SELECT {UNIT} FROM (SELECT {by}, COUNT(*) AS c FROM _inside GROUP BY {by}) AS _pairs "
                f"GROUP BY {UNIT} HAVING {' OR '.join(self._excess_conditions)}"
            )
        for kind in self.query.aggregates:
            if kind.is_distinct:
                x = f"x{kind.arguments[0]}"
                values = f"SELECT DISTINCT {by}, {x} FROM _inside WHERE {x} IS NOT NULL"
                over.append(
                    f"SELECT {UNIT} FROM ({values}) AS _values GROUP BY {UNIT} HAVING COUNT(*) > {self._rows}"
                )
        if not over or not self.query.is_keyed:
            raise InvalidInput(
                "a report on bounding is asked for, and nothing is bounded",
                why="each unit counts once, whatever its rows are",
                fix="leave the report out",
            )
        units = f"(SELECT DISTINCT {UNIT} FROM _inside) AS _units"
        over_or_not = (f"CASE WHEN _over.{UNIT} IS NULL THEN {no} ELSE {1 - no} END" for no in (0, 1))
        m0, m1 = (clamped_sum(each) for each in over_or_not)
        sql = self._parse_over_rows(
            f"{inside}, _over AS ({' UNION '.join(over)}) "
            f"SELECT {m0} AS m0, {m1} AS m1 FROM {left_join(units, '_over', '_units')}"
        )
        sensitivity = neighbour_sensitivity(self.neighbours, Fraction(1), Fraction(1), Fraction(1))
        return BoundedAggregate(
            sql, 2, sensitivity, Fraction(1), "Units above a contribution bound", self._key_sets
        )

    @property
    def _excess_conditions(self) -> list[str]:
        """Conditions under which a unit's rows are weighted down or left out, from its counts per group."""
        kinds = [kind for kind in self.query.aggregates if not kind.is_distinct]
        tests = []
        if any(kind.kind != "units" and kind.per_group is None for kind in kinds):
            tests.append(
                f"MAX(c) > {self._rows_per_group}" if self._is_by_group else f"SUM(c) > {self._rows}"
            )
        is_told = self.bounds.groups is not None
        if (
            self.query.keys
            and kinds
            and (is_told or self._is_by_group or not self._keeps_all_keys or not tests)
        ):
            tests.append(f"COUNT(*) > {self._groups}")
        return tests

    def magnitude_histogram(self, place: int) -> BoundedAggregate:
        """The weighted number of values of each sign and power of two, over all groups together."""
        x = f"x{place}"
        ends = [format_double(end) for end in MAGNITUDE_ENDS]
        far = (
            f"SELECT {x} AS x, {bin_index(f'ABS({x}) <', ends)} AS far, w FROM _weighted WHERE {is_finite(x)}"
        )
        signed = f"CASE WHEN x > 0 THEN far ELSE -far END + {len(MAGNITUDE_ENDS)}"
        inner = f"SELECT {signed} AS b, w FROM ({far}) AS _far"
        sql = self._parse_over_rows(
            f"{self._weighted_rows_cte(Partition(('1',), 0, columns=(x,)), _BIN_BITS)} "
            f"SELECT b, {clamped_sum('w')} AS m0 FROM ({inner}) AS _binned GROUP BY b"
        )
        one = 1 << _BIN_BITS if self.query.is_keyed else 1
        sensitivity, step = self._sensitivity(one), Fraction(1, one)
        return BoundedAggregate(
            sql, 1, sensitivity, step, "Bounds that are found", self._key_sets, MAGNITUDES
        )

    # Distinct values

    def distinct_values(self, place: int) -> BoundedAggregate:
        """The number of distinct values per group, among those that units keep."""
        ctes, most = self._kept_pairs(place)
        total = f"CAST(LEAST(COUNT(DISTINCT x{place}), {MAX_MAGNITUDE}) AS BIGINT)"
        sql = self._parse_over_rows(
            f"{ctes} SELECT {self._key_list}{total} AS m0 FROM _kept{self._group_by}", "m0", chooses=True
        )
        sensitivity = neighbour_sensitivity(
            self.neighbours, Fraction(most), Fraction(most) ** 2, Fraction(most)
        )
        return BoundedAggregate(sql, 1, sensitivity, Fraction(1), "Distinct values", self._key_sets)

    def distinct_sums(self, place: int, partition: Partition) -> BoundedAggregate:
        """The sum of each part over the distinct values of a group, among those that units keep.

        Guarantee: a unit has at most as many new values as it keeps pairs, each of which is one in all parts.
        Proof: docs/proofs/bounding.md, "Distinct values"
        """
        ctes, most = self._kept_pairs(place)
        columns = ", ".join([*self._key_names, f"x{place}"])
        values = f"SELECT DISTINCT {columns} FROM _kept"
        weighted = (
            f"_weighted AS (SELECT *, 1 AS w FROM ({partition.over(values, self._key_names)}) AS _parts)"
        )
        bits, spare = whole_value_bits(partition)
        outputs = {
            f"m{each}": clamped_total(total, spare)
            for each, total in enumerate(partition.totals(is_weighted=False))
        }
        listed = ", ".join(f"{total} AS {name}" for name, total in outputs.items())
        sql = self._parse_over_rows(
            f"{ctes}, {weighted} SELECT {self._key_list}{listed} FROM _weighted{self._group_by}",
            *outputs,
            chooses=True,
        )
        one = Fraction(1 << bits)
        whole = neighbour_sensitivity(
            self.neighbours, most * one, (most * one) ** 2, most * one, is_signed=partition.has_both_signs
        )
        both = 1 if self.neighbours is Neighbours.ADD_REMOVE else 2
        groups = min(self.query.cells, both * most) if self.query.is_public else both * most
        sensitivity = rounded_sensitivity(whole, len(outputs) * groups, spare)
        return BoundedAggregate(sql, len(outputs), sensitivity, 1 / one, "Distinct values", self._key_sets)

    def _kept_pairs(self, place: int) -> tuple[str, int]:
        """WITH … `_kept`: the pairs of a group and a value that each unit keeps; and how many they are."""
        inside = f"WITH _inside AS (SELECT * FROM _rows{self._where(f'x{place} IS NOT NULL')})"
        if not self.query.is_keyed:
            return f"{inside}, _kept AS (SELECT * FROM _inside)", 1
        values = ", ".join([*self._key_names, f"x{place}"])
        pairs = f"_pairs AS (SELECT DISTINCT {UNIT}, {values} FROM _inside)"
        return f"{inside}, {pairs}, {self._kept_values_cte(values, self._rows)}", self._rows

    def _check_keyed(self) -> None:
        if not self.query.is_keyed:
            raise InvalidInput(
                "contributions per group are bounded where each row is a unit",
                why="a unit has one row, in one group",
                fix="declare bounds for the column instead",
            )
