"""Values as parts of one: non-negative integers that add up to the same for every row.

With t a value's place between its bounds, a row is split into t and 1 − t, or t², 2t(1 − t) and (1 − t)²:
so counts, means and variances are measured together for the price of one count.

Proof: docs/proofs/bounding.md, "Parts of one"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from hubbub.engines.schema import Bounds
from hubbub.engines.total_functions import format_double

__all__ = ["FINE_BITS", "TINY", "VALUE_BITS", "WEIGHT_BITS", "Partition", "clamped", "is_finite"]

VALUE_BITS = 16
"""Sums of values are released in steps of 2^-16 of a value's bounds."""
FINE_BITS = 45
"""Each value is rounded to one of 2^45 + 1 steps between its bounds."""
WEIGHT_BITS = 39
"""A row that counts whole weighs 2^39: what is cut of weights, a step a row, is nothing for 2^28 rows."""
TINY = format_double(2.0**-500)
"""Much less than a step between any bounds: what is smaller may be taken for 0."""


@dataclass(frozen=True)
class Partition:
    """Non-negative integer expressions of a row that add up to 2^(bits + spare), or to nothing, in all rows.

    They are over the columns x0, x1, … of the rows, and over columns that are derived from these first.
    """

    parts: tuple[str, ...]
    bits: int
    """Number of bits that a row of full weight has in the released sums."""
    derived: tuple[str, ...] = ()
    """Layers of columns, each over those before it: "… AS t0"."""
    has_both_signs: bool = False
    """True if its one part may be above and below zero."""
    columns: tuple[str, ...] = ()
    """Of the rows and of those that are derived, what the parts are made of."""
    cells: tuple[str, ...] = ()
    """Of values: the parts of a row that has them, else NULL; the last is what the others leave of one."""
    missing: str = ""
    """True for a row without them."""
    spare: int = 0
    """Number of additional bits of a row in the engine: sums are rounded once, not each of their rows."""

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
        return cls(tuple(parts), 0, columns=(f"x{place}",))

    @classmethod
    def powers(
        cls, degrees: Mapping[int, int], bounds: Mapping[int, Bounds], *, with_missing: bool
    ) -> "Partition":
        """Bernstein polynomials of the given degrees (1 or 2) in each value, and the rows that miss one.

        With t the value's place between its bounds: t and 1 − t; or t², 2t(1 − t) and (1 − t)². Of two
        values, all products. From these sums every mean, variance and covariance follows.
        """
        one = 1 << FINE_BITS
        places = [f"{_fixed(place, bounds[place])} AS t{place}" for place in degrees]
        squares = [
            f"{_product(f't{place}', f't{place}')} AS u{place}" for place in degrees if degrees[place] == 2
        ]
        # The parts of each value, added up one after the other; the last sum is one.
        sums = [
            [f"t{place}"] if degrees[place] == 1 else [f"u{place}", f"(2 * t{place} - u{place})"]
            for place in degrees
        ]
        missing = " OR ".join(f"t{place} IS NULL" for place in degrees)
        derived = [", ".join(layer) for layer in (places, squares) if layer]
        columns = [f"t{place}" for place in degrees]
        columns += [f"u{place}" for place in degrees if degrees[place] == 2]
        cells = _differences([*sums[0], str(one)])
        if len(sums) == 2:
            # Each part of the first value is split by the second; what is rounded adds up all the same.
            splits, wholes, cells = [], cells, []
            for row, whole in enumerate(wholes):
                names = [f"c{row}_{place}" for place in range(len(sums[1]))]
                columns += names
                splits += [
                    f"{_product(whole, part)} AS {name}" for part, name in zip(sums[1], names, strict=True)
                ]
                cells += _differences([*names, whole])
            derived.append(", ".join(splits))
        parts = [f"CASE WHEN {missing} THEN 0 ELSE {cell} END" for cell in cells]
        if with_missing:
            parts.append(f"CASE WHEN {missing} THEN {one} ELSE 0 END")
        return cls(
            tuple(parts),
            VALUE_BITS,
            tuple(derived),
            columns=tuple(columns),
            cells=tuple(cells),
            missing=missing,
            spare=FINE_BITS - VALUE_BITS,
        )

    @classmethod
    def signed(cls, place: int, bounds: Bounds) -> "Partition":
        """The value itself, in steps of the larger of its bounds over 2^45: at most 2^45 either way."""
        most = max(abs(bounds[0]), abs(bounds[1]))
        steps = f"COALESCE({_steps(place, bounds, Fraction(0), most)}, 0)"
        both = bounds[0] < 0 < bounds[1]
        spare = FINE_BITS - VALUE_BITS
        name = f"t{place}"
        return cls(
            (name,), VALUE_BITS, (f"{steps} AS {name}",), has_both_signs=both, columns=(name,), spare=spare
        )

    def over(self, rows: str, by: Sequence[str]) -> str:
        """A SELECT of the rows: these columns, and those that the parts are made of."""
        for layer in self.derived:
            rows = f"SELECT *, {layer} FROM ({rows}) AS _layer"
        return f"SELECT {', '.join([*by, *self.columns]) or '1 AS one'} FROM ({rows}) AS _layer"

    def totals(self, *, is_weighted: bool) -> list[str]:
        """The sum of each part over rows that weigh w; or that all count whole, if they are not weighed."""
        if not self.cells:
            if self.spare and is_weighted:
                return [_weighed(part) for part in self.parts]
            return ["SUM(w)" if part == "1" else f"SUM(w * ({part}))" for part in self.parts]
        # One part follows from the others: a product for each row is what takes time.
        one = 1 << (self.bits + self.spare)
        sums = [_weighed(cell) if is_weighted else f"SUM({cell})" for cell in self.cells]
        known = f"{one} * CAST(SUM(CASE WHEN {self.missing} THEN 0 ELSE w END) AS HUGEINT)"
        sums[-1] = " - ".join([known, *sums[:-1]])
        if len(self.parts) > len(self.cells):
            sums.append(f"{one} * CAST(SUM(CASE WHEN {self.missing} THEN w ELSE 0 END) AS HUGEINT)")
        return sums


def _weighed(part: str) -> str:
    """The sum of w times the part. Rows that count whole, mostly all, need no product wider than 64 bits."""
    whole = 1 << WEIGHT_BITS
    light = f"COALESCE(SUM(CASE WHEN w = {whole} THEN {part} END), 0)"
    heavy = f"COALESCE(SUM(CASE WHEN w < {whole} THEN CAST(w AS HUGEINT) * {part} END), 0)"
    return f"({whole} * CAST({light} AS HUGEINT) + {heavy})"


def _product(left: str, right: str) -> str:
    """A product of two numbers between 0 and 1, in steps, rounded to the nearest.

    In doubles: their rounding is monotone, so no product is larger than its factors.
    """
    product = f"CAST({left} AS DOUBLE) * CAST({right} AS DOUBLE) * {format_double(2.0**-FINE_BITS)}"
    return f"CAST(FLOOR({product} + 0.5e0) AS BIGINT)"


def _differences(sums: Sequence[str]) -> list[str]:
    return [sums[0], *(f"({above} - {below})" for below, above in pairwise(sums))]


def is_finite(name: str) -> str:
    """NaN is above every number here, on every engine."""
    return f"{name} > -1.7976931348623157e308 AND {name} < 1.7976931348623157e308"


def _fixed(place: int, bounds: Bounds) -> str:
    """The place of a value between its bounds, as an integer from 0 to 2^45; NULL for no finite number."""
    return _steps(place, bounds, bounds[0], bounds[1] - bounds[0])


def clamped(x: str, bounds: Bounds) -> str:
    """The column between its bounds; so close to the lower one that a step is no double, it is that."""
    low, high = (format_double(end) for end in bounds)
    least = format_double(float(bounds[0]) + float(TINY))
    return f"CASE WHEN {x} <= {least} THEN {low} WHEN {x} >= {high} THEN {high} ELSE {x} END"


def _steps(place: int, bounds: Bounds, zero: Fraction, whole: Fraction) -> str:
    # Not-a-number to NULL, clamp, scale, floor, clamp again, cast: in this order, on every engine. LEAST and
    # GREATEST pass over NULL on some engines, so what is NULL never comes to them.
    x = f"x{place}"
    value = clamped(x, bounds)
    if zero == 0 and bounds[0] < 0:
        value = f"CASE WHEN ABS({x}) < {TINY} THEN 0.0e0 ELSE {value} END"
    factor = format_double((1 << FINE_BITS) / whole)
    least, most = (round((end - zero) / whole * (1 << FINE_BITS)) for end in bounds)
    steps = f"FLOOR(({value} - {format_double(zero)}) * {factor} + 0.5e0)"
    inside = f"CAST(LEAST(GREATEST({steps}, {least}), {most}) AS BIGINT)"
    return f"CASE WHEN {is_finite(x)} THEN {inside} END"
