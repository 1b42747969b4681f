"""Controlled rounding: values are swapped between rows until the rows have the tables of their model.

Rows are filled in column by column. Where a column depends on many combinations of others, each with one row
or none, that is a sample, and tables of two columns have the noise of a sample on top of the model's.
Swapping one column's values of two rows leaves its own table as it is, and changes one row in four cells of
each table with another column: a swap is made if it brings all these tables together closer to the model's.
All of it is post-processing.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hubbub.synthesis.counting import Integers
from hubbub.synthesis.graphical_model import GraphicalModel, Mask, Reals
from hubbub.synthesis.junction_tree import Variables
from hubbub.synthesis.row_generation import random_rows

__all__ = ["round_to_tables"]

_SWEEPS = 4
_BATCHES = 20
_LEAST_PROGRESS = 0.98
_MAX_LOOKUPS = 4e7
"""Cells that are looked up in one sweep, at most: of more rows, only a part is swapped."""
_MAX_VISITS = 40_000
"""Tables that are looked at in one sweep, at most: of many columns, values are swapped in fewer batches."""
_MAX_CELLS = 4e6


def round_to_tables(
    model: GraphicalModel,
    cells: Mapping[int, Integers],
    focus: int | None = None,
    tables: Mapping[Variables, Reals] | None = None,
    sweeps: int = _SWEEPS,
) -> dict[int, Integers]:
    """Return the rows with values swapped, so that their tables of two columns are closer to the model's.

    Args:
        model: the fitted model.
        cells: the cell of each column, for all rows.
        focus: a column with every two others of which tables are compared, where it is in all cliques.
        tables: what tables of two columns are to be, instead of the model's; without negative cells, and
            0 where a rule excludes a combination.
        sweeps: how often each column is swapped, at most: fewer if hardly anything changes any more.

    Guarantee: each column has the same values as before, in another order; no row has a combination that a
        mask of the model excludes, if none had one.
    """
    rows = {variable: own.copy() for variable, own in cells.items()}
    half = next(iter(rows.values())).size // 2
    variables = [v for v, size in enumerate(model.sizes) if size > 1]
    cells_of_pairs = sum(model.sizes[v] for v in variables) ** 2 / 2
    if focus is not None and not all(focus in clique for clique in model.tree.cliques):
        focus = None
    if focus is not None and cells_of_pairs * model.sizes[focus] > _MAX_CELLS:
        focus = None
    variables = [v for v in variables if v != focus]
    if len(variables) < 2 or not half or cells_of_pairs > _MAX_CELLS:
        return rows
    differences = _Differences(model, rows, variables, focus, tables or {})
    pairs = min(half, int(_MAX_LOOKUPS / (4 * len(variables) ** 2)))
    batches = min(_BATCHES, max(1, _MAX_VISITS // len(variables) ** 2))
    batch = max(1, pairs // batches)
    distance = math.inf
    for _ in range(sweeps):
        before, distance = distance, differences.distance
        if distance > _LEAST_PROGRESS * before:
            break
        for variable in variables:
            chosen = random_rows(2 * half, 2 * pairs)
            middle = chosen.size // 2
            for start in range(0, middle, batch):
                stop = min(middle, start + batch)
                differences.swap(variable, chosen[start:stop], chosen[middle + start : middle + stop])
    return rows


def _scale_to(expected: Reals, pair: Reals) -> Reals:
    """Scale a table of the focus and two columns, such that its table of the two is this one."""
    whole = expected.sum(axis=0)
    scaled: Reals = expected * np.where(whole > 0, pair / np.maximum(whole, 1e-300), 0.0)
    return scaled


class _Differences:
    """The differences between the tables of rows and those of their model. `swap` changes the rows."""

    def __init__(
        self,
        model: GraphicalModel,
        rows: dict[int, Integers],
        variables: list[int],
        focus: int | None,
        tables: Mapping[Variables, Reals],
    ) -> None:
        self._rows, self._variables, self._focus = rows, variables, focus
        self._sizes, self._masks = model.sizes, model.masks
        count = next(iter(rows.values())).size
        self._excess: dict[Variables, Reals] = {}
        self._weights: dict[Variables, Reals] = {}
        swapped = set(variables)
        for pair, expected in model.pairs(focus, swapped.issuperset):
            target = expected
            if pair in tables:
                target = _scale_to(expected, tables[pair]) if focus is not None else tables[pair]
            scaled = np.ravel(target) * (count / max(float(target.sum()), 1.0))
            places = self._base(pair, np.arange(count), None)[0]
            self._excess[pair] = np.bincount(places, minlength=scaled.size) - scaled
            # As in χ²: a difference of some rows matters less where there are many.
            self._weights[pair] = 1 / (np.maximum(scaled, 0.0) + 1)

    @property
    def distance(self) -> float:
        """How many rows are in wrong cells, of all tables."""
        return float(sum(np.abs(each).sum() for each in self._excess.values()))

    def swap(self, variable: int, ones: Integers, twos: Integers) -> None:
        """Swap the column's values between rows `ones` and `twos`, wherever that brings tables closer."""
        own, other = self._rows[variable][ones], self._rows[variable][twos]
        is_open = own != other
        for mask in self._masks:
            if variable in mask.variables:
                is_open &= self._is_possible(mask, variable, other, ones)
                is_open &= self._is_possible(mask, variable, own, twos)
        ones, twos, own, other = (each[is_open] for each in (ones, twos, own, other))
        change = np.zeros(ones.size)
        for pair in self._tables(variable):
            excess, weights = self._excess[pair], self._weights[pair]
            one, stride = self._base(pair, ones, variable)
            two, _ = self._base(pair, twos, variable)
            # The weighted squares of four cells: two have one row less, two have one more.
            table = np.zeros(ones.size)
            for base, values, sign in ((one, own, -2), (two, other, -2), (one, other, 2), (two, own, 2)):
                at = base + values * stride
                table += weights[at] * (1 + sign * excess[at])
            # Where the rows agree on the other columns of the table, it stays the same.
            change += np.where(one == two, 0.0, table)
        good = np.flatnonzero(change < -1e-9)
        # Swaps of a batch do not see each other. No more than an eighth of what is off: they would overshoot.
        tables = self._tables(variable)
        most = int(sum(np.abs(self._excess[pair]).sum() for pair in tables) / (8 * len(tables)))
        if good.size > most + 1:
            good = good[np.argsort(change[good])[: most + 1]]
        ones, twos, own, other = (each[good] for each in (ones, twos, own, other))
        both = np.concatenate([ones, twos])
        self._count(variable, both, -1)
        self._rows[variable][ones], self._rows[variable][twos] = other, own
        self._count(variable, both, 1)

    def _tables(self, variable: int) -> list[Variables]:
        return [(min(variable, v), max(variable, v)) for v in self._variables if v != variable]

    def _base(self, pair: Variables, rows: Integers, variable: int | None) -> tuple[Integers, int]:
        """The cells of rows in the table of two columns and the focus, if one column is 0; and its stride."""
        base, stride, own = np.zeros(rows.size, dtype=np.int64), 1, 0
        for v in reversed(pair if self._focus is None else (self._focus, *pair)):
            if v == variable:
                own = stride
            else:
                base += self._rows[v][rows] * stride
            stride *= self._sizes[v]
        return base, own

    def _is_possible(self, mask: Mask, variable: int, values: Integers, rows: Integers) -> NDArray[np.bool_]:
        possible: NDArray[np.bool_] = mask.possible[
            tuple(values if v == variable else self._rows[v][rows] for v in mask.variables)
        ]
        return possible

    def _count(self, variable: int, rows: Integers, sign: int) -> None:
        for pair in self._tables(variable):
            np.add.at(self._excess[pair], self._base(pair, rows, None)[0], sign)
