"""How a query is bounded per unit: engine SQL that gives exact integers, and how far one unit moves them.

Where keys are public a unit is *weighted*: each of its rows counts an integer weight, so small that all
of them together stay within the bound; no row is sampled, no row is sorted. Where keys are selected
privately a unit above the bound keeps some of its keys, chosen by a hash of the unit and the key. What is
counted is split into non-negative parts that sum to one for every row, so that counts, means and variances
are measured together for the price of one count.

Weights and choices depend on the unit's own rows alone. The sums are of integers, and are clamped to ±2^61.

Proof: docs/proofs/bounding.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import sqlglot
from sqlglot import exp

from hubbub.bounded import LARGEST, Sensitivity
from hubbub.errors import InvalidInput
from hubbub.queries.expressions import exact_sum
from hubbub.queries.query import Query
from hubbub.tables.schema import UNIT, Bounds, Key
from hubbub.unit import Neighbours

__all__ = [
    "LEAST_POWER",
    "MAGNITUDES",
    "VALUE_BITS",
    "WEIGHT_BITS",
    "Limits",
    "Measurement",
    "Partition",
    "Weighing",
]

WEIGHT_BITS = 16
"""A row that counts whole counts 2^16."""
VALUE_BITS = 16
"""A value between its bounds is one of 2^16 + 1 steps."""
LEAST_POWER, _POWERS = -32, 96
MAGNITUDES = 2 * _POWERS + 1
"""Bins by sign and power of two, from 2^-32 to 2^64, with one in the middle for what is closer to zero."""
_ROWS = "_rows"
_SALT = "hubbub"


@dataclass(frozen=True)
class Limits:
    """How much one unit may contribute."""

    rows: int | None = None
    """Rows, all groups together; or values of a COUNT(DISTINCT …)."""
    groups: int | None = None
    rows_per_group: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "groups", "rows_per_group"):
            given = getattr(self, name)
            if given is not None and (
                isinstance(given, bool) or not isinstance(given, int) or not 0 < given < 2**20
            ):
                raise InvalidInput(
                    f"{name.replace('_', ' ')} per unit is not a whole number from 1 to 2^20",
                    why="the noise is made for just so much",
                    fix="pass how much one unit may contribute, as 5",
                )


@dataclass(frozen=True)
class Measurement:
    """One query to the engine: for each group some integers, and how far one unit moves them all.

    Guarantee: between neighbouring databases the vector of all its integers moves by `sensitivity` at most.
    Assumes: what `Query` guarantees of its rows; the engine's integers are integers.
    Proof: docs/proofs/bounding.md
    """

    sql: exp.Select
    columns: int
    """How many integers a group has: the columns m0, m1, …"""
    sensitivity: Sensitivity
    step: Fraction
    """What one step is worth, in rows or units."""
    because: str
    """The rule, as a section of the proof page."""
    key_sets: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    bins: int = 1
    """For a histogram of values: how many bins a group has; the column `b` says which."""


@dataclass(frozen=True)
class Partition:
    """Non-negative integer expressions of a row that add up to 2^bits, or to nothing, for every row.

    They are over the columns x0, x1, … of the rows, and over columns that are derived from these first.
    """

    parts: tuple[str, ...]
    bits: int
    derived: tuple[str, ...] = ()
    """Layers of columns, each over those before it: "… AS t0"."""

    @classmethod
    def rows(cls) -> "Partition":
        """Each row counts one."""
        return cls(("1",), 0)

    @classmethod
    def present(cls, place: int, *, with_missing: bool) -> "Partition":
        """Rows that have a value, and if asked for those that have none."""
        parts = [f"CASE WHEN x{place} IS NOT NULL THEN 1 ELSE 0 END"]
        if with_missing:
            parts.append(f"CASE WHEN x{place} IS NULL THEN 1 ELSE 0 END")
        return cls(tuple(parts), 0)

    @classmethod
    def powers(
        cls, degrees: Mapping[int, int], bounds: Mapping[int, Bounds], *, with_missing: bool
    ) -> "Partition":
        """Bernstein polynomials of the given degrees (1 or 2) in each value, and the rows that miss one.

        With t the value's place between its bounds: t and 1 − t; or t², 2t(1 − t) and (1 − t)². Of two
        values, all products. From these sums every mean, variance and covariance follows.
        """
        one = 1 << VALUE_BITS
        first, second, factors = [], [], []
        for place, degree in degrees.items():
            t = f"t{place}"
            first.append(f"{_fixed(place, bounds[place])} AS {t}")
            if degree == 1:
                factors.append([t, f"({one} - {t})"])
            else:
                # Squares are rounded down; what the rounding leaves goes to the middle.
                second += [f"({t} * {t}) >> {VALUE_BITS} AS u{place}"]
                second += [f"(({one} - {t}) * ({one} - {t})) >> {VALUE_BITS} AS v{place}"]
                factors.append([f"u{place}", f"({one} - u{place} - v{place})", f"v{place}"])
        missing = " OR ".join(f"t{place} IS NULL" for place in degrees)
        derived = [", ".join(first)] + ([", ".join(second)] if second else [])
        cells = factors[0]
        if len(factors) == 2:
            # Products too are rounded down; what that leaves goes to the last.
            pairs = [f"({left} * {right}) >> {VALUE_BITS}" for left in factors[0] for right in factors[1]]
            derived.append(", ".join(f"{pair} AS c{place}" for place, pair in enumerate(pairs[:-1])))
            names = [f"c{place}" for place in range(len(pairs) - 1)]
            cells = [*names, f"({one} - {' - '.join(names)})"]
        parts = [f"CASE WHEN {missing} THEN 0 ELSE {cell} END" for cell in cells]
        if with_missing:
            parts.append(f"CASE WHEN {missing} THEN {one} ELSE 0 END")
        return cls(tuple(parts), VALUE_BITS, tuple(derived))

    @classmethod
    def signed(cls, place: int, bounds: Bounds) -> "Partition":
        """The value itself, in steps of the larger of its bounds over 2^16: at most 2^16 either way."""
        most = max(abs(bounds[0]), abs(bounds[1]))
        return cls((f"COALESCE({_steps(place, bounds, Fraction(0), most)}, 0)",), VALUE_BITS)

    def over(self, rows: str) -> str:
        """A SELECT of the rows with the derived columns."""
        for layer in self.derived:
            rows = f"SELECT *, {layer} FROM ({rows}) AS _layer"
        return rows


def _is_finite(name: str) -> str:
    """NaN is above every number here, on every engine."""
    return f"{name} > -1.7976931348623157e308 AND {name} < 1.7976931348623157e308"


def _fixed(place: int, bounds: Bounds) -> str:
    """The place of a value between its bounds, as an integer from 0 to 2^16; NULL for no finite number."""
    return _steps(place, bounds, bounds[0], bounds[1] - bounds[0])


def _steps(place: int, bounds: Bounds, zero: Fraction, whole: Fraction) -> str:
    # Not-a-number to NULL, clamp, scale, floor, cast, clamp again: in this order, on every engine.
    low, high = (float(end) for end in bounds)
    x = f"x{place}"
    clamped = f"CASE WHEN {x} <= {low!r} THEN {low!r} WHEN {x} >= {high!r} THEN {high!r} ELSE {x} END"
    finite = f"CASE WHEN {_is_finite(x)} THEN {clamped} END"
    factor = float((1 << VALUE_BITS) / whole)
    least, most = (round(float((end - zero) / whole) * (1 << VALUE_BITS)) for end in bounds)
    whole_steps = f"CAST(FLOOR(({finite} - {float(zero)!r}) * {factor!r} + 0.5) AS BIGINT)"
    return f"LEAST(GREATEST({whole_steps}, {least}), {most})"


_WHOLE = Partition.rows()


@dataclass(frozen=True)
class Weighing:
    """How the rows of a query are weighed or chosen, for limits that are known."""

    query: Query
    limits: Limits
    neighbours: Neighbours

    # Sums over rows

    def sums(self, partition: Partition, *, is_signed: bool = False) -> Measurement:
        """The weighted sum of each part, in each group."""
        bits = self._bits + partition.bits
        parts = partition.parts
        if self._is_paired:
            inner = ", ".join(f"SUM({part}) AS p{place}" for place, part in enumerate(parts))
            totals = ", ".join(f"{_total(f'w * p{place}')} AS m{place}" for place in range(len(parts)))
            sql = self._with(
                f"{self._weighed_pairs(inner, partition)} SELECT {self._keys}{totals} FROM _weighed{self._by}"
            )
        else:
            totals = ", ".join(f"{_total(f'w * ({part})')} AS m{place}" for place, part in enumerate(parts))
            weighed = self._weighed_rows(partition)
            sql = self._with(f"{weighed} SELECT {self._keys}{totals} FROM _weighed{self._by}")
        moved = self._moved(1 << bits, is_signed=is_signed)
        return Measurement(sql, len(parts), moved, Fraction(1, 1 << bits), self._rule, self._key_sets)

    def histogram(self, place: int, bounds: Bounds, bins: int, levels: int) -> Measurement:
        """The weighted number of values in each of `bins` equal parts of [low, high].

        They are released with the sums of `levels` − 1 coarser ones: each row is in so many cells.
        """
        low, high = (float(end) for end in bounds)
        x = f"x{place}"
        clamped = f"CASE WHEN {x} <= {low!r} THEN {low!r} WHEN {x} >= {high!r} THEN {high!r} ELSE {x} END"
        factor = float(bins / (bounds[1] - bounds[0]))
        bin_of = f"CAST(FLOOR(({clamped} - {low!r}) * {factor!r}) AS BIGINT)"
        inner = (
            f"SELECT {self._keys}LEAST(GREATEST({bin_of}, 0), {bins - 1}) AS b, w FROM _weighed "
            f"WHERE {_is_finite(x)}"
        )
        by = ", ".join([*self._key_names, "b"])
        weighed = self._weighed_rows() if not self._is_paired else self._weighed_by_pairs()
        sql = self._with(
            f"{weighed} SELECT {self._keys}b, {_total('w')} AS m0 FROM ({inner}) AS _binned GROUP BY {by}"
        )
        once = self._moved(1 << self._bits)
        moved = Sensitivity(levels * once.l1, l2_squared=levels * once.l2_squared, linf=once.linf)
        return Measurement(sql, 1, moved, Fraction(1, 1 << self._bits), self._rule, self._key_sets, bins)

    def _weighed_rows(self, partition: Partition = _WHOLE) -> str:
        """WITH … `_weighed`: the rows with their weight w."""
        inside = f"WITH _inside AS ({partition.over(f'SELECT * FROM _rows{self._where()}')})"
        if not self.query.is_keyed:
            return f"{inside}, _weighed AS (SELECT *, 1 AS w FROM _inside)"
        one, rows = 1 << WEIGHT_BITS, self._rows
        # Joining all units is faster than joining only those above the limit.
        share = f"CASE WHEN COUNT(*) > {rows} THEN {rows * one} // COUNT(*) ELSE {one} END"
        units = f"SELECT {UNIT}, {share} AS w FROM _inside GROUP BY {UNIT}"
        weighed = f"SELECT _inside.*, w FROM _inside JOIN _units ON _inside.{UNIT} = _units.{UNIT}"
        return f"{inside}, _units AS ({units}), _weighed AS ({weighed})"

    def _weighed_pairs(self, sums: str, partition: Partition = _WHOLE) -> str:
        """WITH … `_weighed`: each unit's sums in each group that it keeps, with the weight w of its rows."""
        inside = f"WITH _inside AS ({partition.over(f'SELECT * FROM _rows{self._where()}')})"
        keys = ", ".join(self._key_names)
        more = f", {sums}" if sums else ""
        pairs = f"_pairs AS (SELECT {UNIT}, {keys}, COUNT(*) AS c{more} FROM _inside GROUP BY {UNIT}, {keys})"
        one = 1 << WEIGHT_BITS
        if self.query.is_public:
            weight = f"(COALESCE(g, {one}) * LEAST(c, {self._rows_per_group})) // c"
            weighed = f"SELECT _pairs.*, {weight} AS w FROM {_left('_pairs', '_many')}"
            return f"{inside}, {pairs}, _many AS ({_shares('_pairs', self._groups)}), _weighed AS ({weighed})"
        kept = self._kept(keys, self._groups)
        if self.limits.rows_per_group is not None:
            weighed = f"SELECT *, ({one} * LEAST(c, {self.limits.rows_per_group})) // c AS w FROM _kept"
            return f"{inside}, {pairs}, {kept}, _weighed AS ({weighed})"
        heavy = _shares("_kept", self._rows, "SUM(c)")
        weighed = f"SELECT _kept.*, COALESCE(g, {one}) AS w FROM {_left('_kept', '_heavy')}"
        return f"{inside}, {pairs}, {kept}, _heavy AS ({heavy}), _weighed AS ({weighed})"

    def _weighed_by_pairs(self) -> str:
        """WITH … `_weighed`: the rows, each with the weight of its unit in its group."""
        same = " AND ".join(f"_inside.{key} IS NOT DISTINCT FROM _by_pair.{key}" for key in self._key_names)
        inner = self._weighed_pairs("").replace("_weighed AS", "_by_pair AS")
        rows = (
            f"SELECT _inside.*, w FROM _inside JOIN _by_pair ON _inside.{UNIT} = _by_pair.{UNIT} AND {same}"
        )
        return f"{inner}, _weighed AS ({rows})"

    def _moved(self, one: int, *, is_signed: bool = False) -> Sensitivity:
        """How far one unit moves the vector, if a row that counts whole counts `one` in all its parts."""
        whole = Fraction(one)
        if not self.query.is_keyed:
            return _between(self.neighbours, whole, whole**2, whole, is_signed=is_signed)
        if self._is_by_group:
            each, groups = whole * self._rows_per_group, self._groups
            return _between(self.neighbours, each * groups, each**2 * groups, each, is_signed=is_signed)
        most = whole * self._rows
        return _between(self.neighbours, most, most**2, most, is_signed=is_signed)

    # Which limits hold

    @property
    def _bits(self) -> int:
        return WEIGHT_BITS if self.query.is_keyed else 0

    @property
    def _is_paired(self) -> bool:
        """Whether each unit's rows are first added up in each group."""
        return (
            self.query.is_keyed and bool(self.query.keys) and (not self.query.is_public or self._is_by_group)
        )

    @property
    def _is_by_group(self) -> bool:
        """Whether groups, and rows in each group, are limited; or else all rows of a unit together."""
        if not self.query.keys or not self.query.is_keyed:
            return False
        if self.query.is_public:
            return self.limits.groups is not None
        return self.limits.rows_per_group is not None

    @property
    def _rows(self) -> int:
        return self.limits.rows or 1

    @property
    def _rows_per_group(self) -> int:
        return self.limits.rows_per_group or self.limits.rows or 1

    @property
    def _groups(self) -> int:
        """In how many groups a unit counts whole, or how many keys it keeps."""
        if self.limits.groups is not None:
            return self.limits.groups
        return min(self._rows, self.query.cells) if self.query.is_public else self._rows

    @property
    def _rule(self) -> str:
        if not self.query.is_keyed:
            return "Rows that are units"
        if not self.query.is_public:
            return "Kept keys"
        return "Weights by groups" if self._is_by_group else "Weights by rows"

    # Units, and what each of them makes in a group

    def units(self) -> Measurement:
        """How many units there are in each group; in more groups than the limit, each counts less."""
        if not self.query.is_keyed:
            return self.sums(Partition.rows())
        if not self.query.keys:
            sql = self._with(f"SELECT {_total('1')} AS m0 FROM (SELECT DISTINCT {UNIT} FROM _rows) AS _units")
            return Measurement(sql, 1, Sensitivity(1), Fraction(1), "Units")
        if not self.query.is_public:
            return self.candidates()
        one, groups = 1 << WEIGHT_BITS, self._groups
        pairs = f"SELECT DISTINCT {UNIT}, {', '.join(self._key_names)} FROM _rows{self._where()}"
        total = _total(f"COALESCE(g, {one})")
        sql = self._with(
            f"WITH _pairs AS ({pairs}), _many AS ({_shares('_pairs', groups)}) "
            f"SELECT {self._keys}{total} AS m0 FROM {_left('_pairs', '_many')}{self._by}"
        )
        moved = _between(self.neighbours, Fraction(one * groups), Fraction(one * one * groups), Fraction(one))
        return Measurement(sql, 1, moved, Fraction(1, one), "Units", self._key_sets)

    def candidates(self) -> Measurement:
        """For every key how many units keep it, each at most so many keys; the keys are not public."""
        groups = self._groups if self.query.is_keyed else 1
        if self.query.is_keyed:
            keys = ", ".join(self._key_names)
            inside = f"WITH _inside AS (SELECT * FROM _rows{self._where()})"
            pairs = f"_pairs AS (SELECT DISTINCT {UNIT}, {keys} FROM _inside)"
            rows = f"{inside}, {pairs}, {self._kept(keys, groups)}"
        else:
            rows = f"WITH _kept AS (SELECT * FROM _rows{self._where()})"
        sql = self._with(f"{rows} SELECT {self._keys}{_total('1')} AS m0 FROM _kept{self._by}")
        moved = _between(self.neighbours, Fraction(groups), Fraction(groups), Fraction(1))
        return Measurement(sql, 1, moved, Fraction(1), "Kept keys", self._key_sets)

    def per_group(self, inner: str, argument: int | None, bounds: Bounds, *, is_mean: bool) -> Measurement:
        """The sum or mean over units of their own count, sum or mean in a group, clamped."""
        self._check_keyed()
        if inner == "count":
            made = f"CAST(COUNT({'*' if argument is None else f'x{argument}'}) AS DOUBLE)"
        else:
            made = exact_sum(exp.column(f"x{argument}"), is_mean=inner == "mean").sql("duckdb")
        own = f"{made} AS x0"
        if is_mean:
            partition = Partition.powers({0: 1}, {0: bounds}, with_missing=False)
        else:
            partition = Partition.signed(0, bounds)
        bits = WEIGHT_BITS + partition.bits
        totals = ", ".join(
            f"{_total(f'w * ({part})')} AS m{place}" for place, part in enumerate(partition.parts)
        )
        one, groups = 1 << WEIGHT_BITS, self._groups if self.query.keys else 1
        by = ", ".join([UNIT, *self._key_names])
        inside = f"WITH _inside AS (SELECT * FROM _rows{self._where()})"
        pairs = f"_pairs AS ({partition.over(f'SELECT {by}, {own} FROM _inside GROUP BY {by}')})"
        if not self.query.is_public:
            kept = self._kept(", ".join(self._key_names), groups)
            weighed = f"{kept}, _weighed AS (SELECT *, {one} AS w FROM _kept)"
        else:
            rows = f"SELECT _pairs.*, COALESCE(g, {one}) AS w FROM {_left('_pairs', '_many')}"
            weighed = f"_many AS ({_shares('_pairs', groups)}), _weighed AS ({rows})"
        sql = self._with(f"{inside}, {pairs}, {weighed} SELECT {self._keys}{totals} FROM _weighed{self._by}")
        each = Fraction(1 << bits)
        moved = _between(self.neighbours, each * groups, each**2 * groups, each, is_signed=not is_mean)
        step = Fraction(1, 1 << bits)
        return Measurement(
            sql, len(partition.parts), moved, step, "What a unit makes in a group", self._key_sets
        )

    def sizes(self, bins: Sequence[int]) -> Measurement:
        """How many units have how many rows, in bins of four to a doubling."""
        self._check_keyed()
        of = f"LEAST(GREATEST(CAST(CEIL(4 * LN(COUNT(*)) / LN(2) - 1e-9) AS BIGINT), 0), {len(bins) - 1})"
        inside = f"SELECT {UNIT}, {of} AS b FROM _rows{self._where()} GROUP BY {UNIT}"
        sql = self._with(f"SELECT b, {_total('1')} AS m0 FROM ({inside}) AS _sizes GROUP BY b")
        moved = _between(self.neighbours, Fraction(1), Fraction(1), Fraction(1))
        return Measurement(sql, 1, moved, Fraction(1), "The limit on rows", self._key_sets, len(bins))

    def magnitudes(self, place: int) -> Measurement:
        """The weighted number of values of each sign and power of two, over all groups together."""
        x = f"x{place}"
        power = f"CAST(FLOOR(LN(ABS({x})) / LN(2)) AS BIGINT) - {LEAST_POWER} + 1"
        far = f"LEAST(GREATEST({power}, 1), {_POWERS})"
        near = float(Fraction(2) ** LEAST_POWER)
        b = f"CASE WHEN ABS({x}) < {near!r} THEN 0 WHEN {x} > 0 THEN {far} ELSE -{far} END + {_POWERS}"
        inner = f"SELECT {b} AS b, w FROM _weighed WHERE {_is_finite(x)}"
        sql = self._with(
            f"{self._weighed_rows()} SELECT b, {_total('w')} AS m0 FROM ({inner}) AS _binned GROUP BY b"
        )
        moved = self._moved(1 << self._bits)
        step = Fraction(1, 1 << self._bits)
        return Measurement(sql, 1, moved, step, "Bounds that are found", self._key_sets, MAGNITUDES)

    # Distinct values

    def distinct(self, place: int) -> Measurement:
        """How many different values there are in each group, of those that units keep."""
        inside = f"WITH _inside AS (SELECT * FROM _rows{self._where(f'x{place} IS NOT NULL')})"
        most = self._rows if self.query.is_keyed else 1
        if self.query.is_keyed:
            values = ", ".join([*self._key_names, f"x{place}"])
            pairs = f"_pairs AS (SELECT DISTINCT {UNIT}, {values} FROM _inside)"
            kept = f"{inside}, {pairs}, {self._kept(values, most)}"
        else:
            kept = f"{inside}, _kept AS (SELECT * FROM _inside)"
        total = f"CAST(LEAST(COUNT(DISTINCT x{place}), {LARGEST}) AS BIGINT)"
        sql = self._with(f"{kept} SELECT {self._keys}{total} AS m0 FROM _kept{self._by}")
        moved = _between(self.neighbours, Fraction(most), Fraction(most) ** 2, Fraction(most), is_signed=True)
        return Measurement(sql, 1, moved, Fraction(1), "Distinct values", self._key_sets)

    def _kept(self, columns: str, most: int) -> str:
        """`_kept`: of the different values of the columns in `_pairs`, those that each unit keeps.

        Those whose hash is least: a unit within the bound keeps all.
        """
        rank = (
            f"ROW_NUMBER() OVER (PARTITION BY {UNIT} ORDER BY HASH({UNIT}, {columns}, '{_SALT}'), {columns})"
        )
        return f"_kept AS (SELECT * FROM _pairs QUALIFY {rank} <= {most})"

    # Parts of the SQL

    @property
    def _key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.query.keys))]

    @property
    def _keys(self) -> str:
        return "".join(f"{key}, " for key in self._key_names)

    @property
    def _by(self) -> str:
        return f" GROUP BY {', '.join(self._key_names)}" if self.query.keys else ""

    def _where(self, *more: str) -> str:
        """Rows within the public keys only: the others count for nobody."""
        conditions = list(more)
        for place, key in enumerate(self.query.keys):
            if key.values is None:
                continue
            listed = f"k{place} IN (SELECT key FROM _keys{place})"
            conditions.append(f"({listed} OR k{place} IS NULL)" if None in key.values else listed)
        return " WHERE " + " AND ".join(conditions) if conditions else ""

    @property
    def _key_sets(self) -> dict[str, Sequence[Key]]:
        return {
            f"_keys{place}": key.values for place, key in enumerate(self.query.keys) if key.values is not None
        }

    def _check_keyed(self) -> None:
        if not self.query.is_keyed:
            raise InvalidInput(
                "contributions per group are bounded where each row is a unit",
                why="a unit has one row, in one group",
                fix="declare bounds for the column instead",
            )

    def _with(self, text: str) -> exp.Select:
        """The text as a syntax tree, with the query's rows put in for `_rows`."""
        tree = _parsed(text).copy()
        rows = exp.CTE(this=self.query.rows.copy(), alias=exp.TableAlias(this=exp.to_identifier(_ROWS)))
        if rows.find(exp.RowNumber):  # rows read twice could be numbered in two ways
            rows.set("materialized", True)
        clause = tree.args.get("with_")
        if clause is None:
            tree.set("with_", exp.With(expressions=[rows]))
        else:
            clause.set("expressions", [rows, *clause.expressions])
        return tree


@lru_cache(maxsize=256)
def _parsed(text: str) -> exp.Select:
    """Our own text as a tree, which is not to be changed; few texts are made, and parsing takes long."""
    tree = sqlglot.parse_one(text, read="duckdb")
    assert isinstance(tree, exp.Select)
    return tree


def _between(
    neighbours: Neighbours, l1: Fraction, l2_squared: Fraction, linf: Fraction, *, is_signed: bool = False
) -> Sensitivity:
    """How far one unit moves a sum of units' vectors, from the norms of one such vector.

    Added or removed, by that vector. Substituted, by the difference of two: of non-negative ones the squares
    add up and no cell moves by more than before; of others everything may double.
    """
    if neighbours is Neighbours.ADD_REMOVE:
        return Sensitivity(l1, l2_squared=l2_squared, linf=linf)
    if is_signed:
        return Sensitivity(2 * l1, l2_squared=4 * l2_squared, linf=2 * linf)
    return Sensitivity(2 * l1, l2_squared=2 * l2_squared, linf=linf)


def _shares(table: str, limit: int, count: str = "COUNT(*)") -> str:
    """For each unit above the limit, the share g that each of its rows counts, rounded down."""
    share = f"{limit << WEIGHT_BITS} // {count}"
    return f"SELECT {UNIT}, {share} AS g FROM {table} GROUP BY {UNIT} HAVING {count} > {limit}"


def _left(table: str, other: str) -> str:
    return f"{table} LEFT JOIN {other} ON {table}.{UNIT} = {other}.{UNIT}"


def _total(text: str) -> str:
    """A sum of integers, held within ±2^61, 0 where there is none."""
    return f"CAST(LEAST(GREATEST(COALESCE(SUM({text}), 0), {-LARGEST}), {LARGEST}) AS BIGINT)"
