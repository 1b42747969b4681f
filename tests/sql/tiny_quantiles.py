"""Quantile selection on tiny grids, and its law in fractions."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import lcm

import numpy as np

from hubbub.sql.quantile_grid import QuantileGrid
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection, _blocks, _Rows, _split

__all__ = [
    "NEGLIGIBLE",
    "TinyGrid",
    "cells_of",
    "exact_law",
    "first_scores",
    "make_selection",
    "parts_of",
    "power_of_two",
    "vectors",
    "worst_ratio",
]


NEGLIGIBLE = "hubbub.sql.quantile_selection._NEGLIGIBLE"


@dataclass(frozen=True)
class TinyGrid(QuantileGrid):
    """A few cells of given weights."""

    weights: tuple[int, ...] = (3, 1, 2)
    round_numbers: tuple[tuple[int, int, int], ...] = ()
    """Cells with a round number: which, in which part, and the further weight of that part."""

    @cached_property
    def edges(self):
        return np.arange(len(self.weights) + 1, dtype=np.float64)

    @cached_property
    def measure(self):
        return np.array(self.weights)

    @cached_property
    def round_part(self):
        values = np.full(len(self.weights) + 1, -1)
        for cell, part, _ in self.round_numbers:
            values[cell] = part
        return values

    @cached_property
    def extra_measure(self):
        values = np.zeros(len(self.weights) + 1, np.int64)
        for cell, _, weight in self.round_numbers:
            values[cell] = weight
        return values

    def weight_of(self, position):
        cell, part = divmod(position, self.parts)
        return int(self.measure[cell] + (part == self.round_part[cell]) * self.extra_measure[cell])


def make_selection(
    fractions, weight, *, is_one=False, weights=(3, 1, 2), parts=2, epsilon=Fraction(1), round_numbers=()
):
    bounds = Fraction(0), Fraction(len(weights))
    grid = TinyGrid(bounds, parts, not round_numbers, weights, round_numbers)
    targets = tuple(map(Fraction, fractions))
    return QuantileSelection(grid, targets, Fraction(epsilon), Fraction(weight), is_one)


def cells_of(*groups):
    """The counts of some groups, each a list of the counts of all its cells."""
    table = np.array(groups, dtype=np.int64)
    group, cell = np.nonzero(table)
    return CellCounts(len(table), group, cell, table[group, cell])


def vectors(cells, most):
    """All counts of a number of cells that add up to at most `most`."""
    return [each for each in product(range(most + 1), repeat=cells) if sum(each) <= most]


def power_of_two(selection):
    """The k for which all probabilities are rational at ε = k·ln 2."""
    rates = [selection._rate(step) / (2 * step.fraction.denominator) for step in selection.steps]
    return lcm(*(Fraction(rate / selection.epsilon).denominator for rate in rates))


def exact_law(selection, counts):
    """The probability of each tuple of positions in the only group, at ε = power_of_two·ln 2."""
    return _law(selection, _rows(selection, counts), 0, len(selection.targets))


def _rows(selection, counts):
    size, cells = selection.grid.parts, selection.grid.cells
    arguments = cells_of(counts)
    ends = np.zeros(1, np.int64), np.full(1, cells * size)
    return _Rows(
        arguments.group, arguments.cell * size, np.full(arguments.cell.size, size), arguments.tally, *ends
    )


def first_scores(selection, counts):
    """The score of each position for the quantile that is selected first."""
    step = selection.steps[0]
    blocks, totals = _blocks(_rows(selection, counts))
    result = selection._candidates(blocks, step, selection._goal(step, totals))
    at = np.zeros(selection.grid.cells * selection.grid.parts, dtype=np.int64)
    for first, score, weight, _ in zip(*(part.tolist() for part in result), strict=True):
        at[parts_of(selection.grid, first, weight)] = score
    return at


def _law(selection, rows, start, stop, *, level=0):
    if start == stop:
        return {(): Fraction(1)}
    middle, power = selection._first(start, stop, level), power_of_two(selection)
    step = next(each for each in selection.steps if each.which == middle)
    blocks, totals = _blocks(rows)
    result = selection._candidates(blocks, step, selection._goal(step, totals))
    rate = selection._rate(step) / (2 * step.fraction.denominator) / selection.epsilon * power
    chances = {}
    for first, score, weight, _ in zip(*(part.tolist() for part in result), strict=True):
        exponent = rate * score
        assert exponent.denominator == 1
        for position in parts_of(selection.grid, first, weight):
            chances[position] = Fraction(selection.grid.weight_of(position), 2 ** int(exponent))
    total, out = sum(chances.values()), {}
    for position, chance in chances.items():
        at = np.array([position])
        left = _law(selection, _split(rows, at, is_left=True), start, middle, level=level + 1)
        right = _law(selection, _split(rows, at, is_left=False), middle + 1, stop, level=level + 1)
        for (one, p), (two, q) in product(left.items(), right.items()):
            out[*one, position, *two] = chance / total * p * q
    return out


def parts_of(grid, first, weight):
    """The positions of a candidate: a run is as many parts as its weight is of."""
    results = [first]
    while (left := weight - sum(map(grid.weight_of, results))) > 0:
        results.append(results[-1] + 1)
    assert left == 0
    return results


def worst_ratio(one, other):
    """The largest and the least ratio of the probabilities of an outcome."""
    assert one.keys() == other.keys()
    ratios = [one[outcome] / other[outcome] for outcome in one]
    return max(ratios), min(ratios)
