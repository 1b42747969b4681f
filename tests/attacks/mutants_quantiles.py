"""Weak versions of quantile selection, each with the hole that one attack finds."""

from collections import Counter
from fractions import Fraction
from itertools import accumulate

_POWER = 4
"""ε = 4·ln 2: all probabilities are rational."""


def _law(scores, factor):
    weights = {(cell,): Fraction(1, 2 ** int(factor * score)) for cell, score in enumerate(scores)}
    total = sum(weights.values())
    return {cell: weight / total for cell, weight in weights.items()}, Fraction(2) ** _POWER


def _scores(counts, rank):
    """How far the rank is from those of each cell."""
    until = list(accumulate(counts))
    before = [0, *until[:-1]]
    return [max(0, low - rank, rank - high) for low, high in zip(before, until, strict=True)]


def half_the_span(counts):
    """A75: a row moves F − N/2 by ½, so the rate is 2ε, as if scores moved to one side only."""
    return _law(_scores(counts, Fraction(sum(counts), 2)), 2 * _POWER)


def round_numbers_of_the_rows(counts):
    """A85: of the round numbers only those that occur in the rows weigh more."""
    law, most = _law(_scores(counts, Fraction(sum(counts), 2)), _POWER)
    weights = {cell: chance * (50 if counts[cell[0]] else 1) for cell, chance in law.items()}
    total = sum(weights.values())
    return {cell: weight / total for cell, weight in weights.items()}, most


def rank_rounded_by_the_data(counts):
    """A76: the rank is that of a row, ⌈N/2⌉ with the N of the data: it moves by 1 where N/2 moves by ½."""
    return _law(_scores(counts, -(-sum(counts) // 2)), _POWER)


def rows_counted_as_they_are(rows):
    """A77: each row of a cell counts one, and the noise is that of one row."""
    return Counter(int(x * 4096) for _, x in rows), 1


def moved_by_exact_counts(rows, released):
    """A92: the maximum is moved to where rows are, not to where noisy counts show them."""
    selected = released[0] / 16 * 8 / 2**15
    beyond = sorted(x for x in rows if x > selected)
    return beyond[-4] if len(beyond) > 3 else selected
