"""Quantiles from a noisy tree of counts.

The public range is cut into equal bins, and bins are counted at several sizes. A rank is then a sum of
few noisy counts, and all counts together are made consistent by least squares, which costs no privacy.

Proof: docs/proofs/intervals.md
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms import Gaussian, Laplace
from hubbub.mechanisms.confidence_intervals import width_from_norms
from hubbub.numbers import Number, parse_integer, parse_nonnegative, parse_probability, parse_rational
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity

__all__ = ["Quantile", "Tree"]

Floats = NDArray[np.float64]

_MAX_LEAVES = 2**22
_MAX_AT_ONCE = 2**19
_ROUNDING = 2.0**-50
"""A sum of n doubles is off by less than n times this share of what was added."""


class Quantile(NamedTuple):
    """An estimate, and the ends between which the exact quantile lies with the confidence asked for."""

    value: float
    low: float
    high: float


class _Norms(NamedTuple):
    """The norms of the weights that noisy counts have in a rank, one for each edge."""

    l1: Floats
    l2: Floats
    linf: Floats


@dataclass(frozen=True)
class Tree:
    """Counts of branching^depth equal bins of [low, high], and of all their groups but the whole.

    >>> tree = Tree(0, 100, branching=4, depth=2)
    >>> exact = tree.nodes([2, 9], [300, 100])  # rows by bin
    >>> exact.tolist()
    [300, 0, 100, 0, 0, 0, 300, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0]
    >>> noise = Laplace.of(sensitivity=tree.sensitivity(1), epsilon=1)
    >>> [median] = tree.quantiles(exact, noise, [0.5])
    >>> round(median.value, 1), median.low, median.high
    (16.7, 12.5, 18.75)

    Guarantee: what one unit moves of `nodes` is within `sensitivity`.
    Assumes: the bounds are public, not taken from the data.
    Proof: docs/proofs/intervals.md
    """

    low: Fraction
    high: Fraction
    branching: int = 16
    depth: int = 4

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, parse_rational(getattr(self, name), name))
        object.__setattr__(self, "branching", parse_integer(self.branching, "branching", minimum=2))
        object.__setattr__(self, "depth", parse_integer(self.depth, "depth"))
        if self.low >= self.high:
            raise InvalidInput(
                "low is not below high", why="there would be no bins", fix="pass the lower bound first"
            )
        if self.depth > _MAX_LEAVES or self.leaves > _MAX_LEAVES:
            raise Unsupported(
                f"the tree has more than {_MAX_LEAVES} bins",
                why="every bin is released",
                fix="pass a smaller branching or depth",
            )

    @property
    def leaves(self) -> int:
        """How many bins there are; bin i holds what is from edges[i] on and below edges[i + 1]."""
        return int(self.branching**self.depth)

    @cached_property
    def edges(self) -> Floats:
        """The ends of the bins, from low to high."""
        share = np.arange(self.leaves + 1) / self.leaves
        # So that neither end is rounded away.
        return np.asarray(float(self.low) * (1 - share) + float(self.high) * share)

    def sensitivity(self, weight: Number) -> Sensitivity:
        """How far `nodes` move where a unit moves the bins' counts by at most `weight` in ℓ1.

        >>> print(Tree(0, 1).sensitivity(1))
        ℓ1 ≤ 4, ℓ2 ≤ 2, ℓ∞ ≤ 1
        """
        most = parse_nonnegative(weight, "weight")
        return Sensitivity(self.depth * most, l2_squared=self.depth * most * most, linf=most)

    def nodes(self, leaf_indices: ArrayLike, leaf_counts: ArrayLike) -> NDArray[np.int64]:
        """The exact counts of all groups, from the largest down to the bins, from those of some bins.

        Each bin is named once, as by GROUP BY. Each of them is clamped to ±2^61, so none overflows.

        Guarantee: between neighbours they move within `sensitivity` of how far the bins' counts move.
        Proof: docs/proofs/intervals.md
        """
        where, counts = np.asarray(leaf_indices), np.asarray(leaf_counts)
        level = np.zeros(self.leaves, dtype=np.int64)
        if where.ndim != 1 or where.shape != counts.shape:
            raise _malformed()
        if where.size:
            is_whole = where.dtype.kind == counts.dtype.kind == "i"
            if not is_whole or where.min() < 0 or where.max() >= self.leaves:
                raise _malformed()
            if np.unique(where).size < where.size:
                raise _malformed()
            level[where] = counts.astype(np.int64)
        return np.asarray(self._filled(level[np.newaxis])[0])

    def filled(self, bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """As `nodes`, of many trees, from the counts of all their bins: a table of (trees, counts).

        Guarantee: as for `nodes`.
        Proof: docs/proofs/intervals.md
        """
        if bins.ndim != 2 or bins.shape[1] != self.leaves or bins.dtype.kind != "i":
            raise _malformed()
        return self._filled(bins.astype(np.int64))

    def _filled(self, bins: NDArray[np.int64]) -> NDArray[np.int64]:
        levels = [np.clip(bins, -MAX_MAGNITUDE, MAX_MAGNITUDE)]
        for depth in range(self.depth - 1, 0, -1):
            children = levels[-1].reshape(len(bins), self.branching**depth, self.branching)
            levels.append(_clamped_sum(children))
        return np.concatenate(levels[::-1], axis=1)

    def quantiles(
        self,
        noisy: ArrayLike,
        mechanism: Laplace | Gaussian,
        fractions: Iterable[Number],
        confidence: Number = 0.95,
    ) -> list[Quantile]:
        """The values below which these fractions of the rows lie, each with an interval of its own.

        A larger fraction has no smaller value. Where the data may well be empty, the interval is everything.

        Guarantee: the least t in [low, high] with F(t) ≥ fraction·N lies in the interval, with at least this
            confidence, for the exact counts F and N > 0 of rows up to t and of all rows.
        Assumes: `noisy` is `nodes` plus independent draws of the mechanism's law.
        Proof: docs/proofs/intervals.md
        """
        parts = self.tables(np.asarray(noisy)[np.newaxis], mechanism, fractions, confidence)
        return [Quantile(*(float(part[0]) for part in ends)) for ends in zip(*parts, strict=True)]

    def tables(
        self,
        noisy: ArrayLike,
        mechanism: Laplace | Gaussian,
        fractions: Iterable[Number],
        confidence: Number = 0.95,
    ) -> tuple[Floats, Floats, Floats]:
        """As `quantiles`, of many trees: values, and both ends, as tables of (fractions, trees).

        Guarantee: as for `quantiles`, each tree and fraction by itself.
        Assumes: each row of `noisy` is `nodes` plus independent draws of the mechanism's law.
        Proof: docs/proofs/intervals.md
        """
        table = self._checked(noisy)
        chosen = [parse_probability(fraction, "fraction") for fraction in fractions]
        certain = parse_probability(confidence, "confidence")
        out = np.empty((3, len(chosen), len(table)))
        # A few trees at a time: what is made of them should stay near the processor.
        few = max(1, _MAX_AT_ONCE // self.size)
        for start in range(0, len(table), few):
            part = slice(start, start + few)
            ranks, off = self._ranks(table[part].astype(np.float64))
            wide = float(_widths(self, mechanism, None, certain)[0])
            for place, fraction in enumerate(chosen):
                value = self._values(ranks, off, fraction)
                low, high = np.full_like(value, self.edges[0]), np.full_like(value, self.edges[-1])
                full = np.flatnonzero(ranks[:, -1] > wide)
                if full.size:
                    widths = _widths(self, mechanism, fraction, certain)
                    low[full], high[full] = self._ends(ranks[full], off[full], widths, fraction)
                out[:, place, part] = value, np.minimum(low, value), np.maximum(high, value)
        return out[0], out[1], out[2]

    def _ends(self, ranks: Floats, off: Floats, widths: Floats, fraction: Fraction) -> tuple[Floats, Floats]:
        """The first and the last edge of the bins in which the quantile may lie."""
        wide = widths + off[:, np.newaxis]
        beyond = ranks - float(fraction) * ranks[:, -1:]
        # The quantile's bin begins below the target rank, and does not end below it. Of the ranks one
        # such bin is there, since the first is 0 and the last all.
        likely = (beyond[:, :-1] <= wide[:, :-1]) & (beyond[:, 1:] >= -wide[:, 1:])
        last = self.leaves - likely[:, ::-1].argmax(axis=1)
        return self.edges[likely.argmax(axis=1)], self.edges[last]

    def _values(self, ranks: Floats, off: Floats, fraction: Fraction) -> Floats:
        """Where the sorted ranks pass the target, on a straight line inside the bin.

        Clamped and sorted, ranks are nowhere further from the true ones than before.
        """
        total = np.maximum(ranks[:, -1:], 0)
        target = float(fraction) * total - off[:, np.newaxis]
        within = np.clip(ranks, 0, total)
        is_before = within < target
        before = is_before.sum(axis=1)
        # Of sorted ranks, the last before the target and the first after it.
        below = np.where(is_before, within, -np.inf).max(axis=1)
        above = np.where(is_before, np.inf, within).min(axis=1)
        is_first = before == 0
        share = (target[:, 0] - np.where(is_first, 0, below)) / np.where(is_first, 1, above - below)
        start = np.maximum(before - 1, 0)
        inside = self.edges[start] * (1 - share) + self.edges[start + 1] * share
        return np.asarray(np.where(is_first, self.edges[0], inside))

    def rank_error(
        self, mechanism: Laplace | Gaussian, confidence: Number = 0.95, *, fraction: Number = 0.5
    ) -> float:
        """How many rows too early or too late an answer comes at most, but for those of its own bin.

        >>> tree = Tree(0, 100)
        >>> round(tree.rank_error(Laplace.of(sensitivity=tree.sensitivity(1), epsilon=1)))
        118

        Guarantee: with at least this confidence the bin of the value that `quantiles` gives begins at a rank
            of at most fraction·N plus this, and ends at one of at least fraction·N less this.
        Assumes: as for `quantiles`; the sums of doubles are not rounded.
        Proof: docs/proofs/intervals.md
        """
        # For all edges at once, since the answer chooses its own.
        rare = (1 - parse_probability(confidence, "confidence")) / (self.leaves + 1)
        return float(_widths(self, mechanism, parse_probability(fraction, "fraction"), 1 - rare).max())

    @property
    def size(self) -> int:
        """The number of counts."""
        return sum(self.branching**level for level in range(1, self.depth + 1))

    def _checked(self, noisy: ArrayLike) -> NDArray[Any]:
        table = np.asarray(noisy)
        if table.ndim != 2 or table.shape[1] != self.size or not np.isfinite(table).all():
            raise InvalidInput(
                "the noisy counts are not those of this tree",
                why=f"it has {self.size} of them",
                fix="pass what was released of nodes()",
            )
        return table

    @cached_property
    def _shares(self) -> list[float]:
        """From the largest groups to the bins: what a group's own count weighs against that of its parts.

        It is the variance of the weighted mean, too, where each noisy count has variance 1.
        """
        shares = [1.0]
        for _ in range(self.depth - 1):
            parts = self.branching * shares[-1]
            shares.append(parts / (1 + parts))
        return shares[::-1]

    def _ranks(self, table: Floats) -> tuple[Floats, Floats]:
        """The rank of every edge, and by how much sums of doubles may be off; a row for each tree."""
        sizes = [self.branching**level for level in range(1, self.depth + 1)]
        levels = np.split(table, np.cumsum(sizes)[:-1], axis=1)
        ranks = np.zeros((len(table), self.leaves + 1))
        np.cumsum(self._consistent(levels), axis=1, out=ranks[:, 1:])
        return ranks, _ROUNDING * self.leaves * np.abs(table).sum(axis=1)

    def _consistent(self, levels: list[Floats]) -> Floats:
        """The bins' counts that fit all noisy counts best: least squares (Hay et al. 2010)."""
        means = [levels[-1]]
        for level, share in zip(levels[-2::-1], self._shares[-2::-1], strict=True):
            means.append(share * level + (1 - share) * self._grouped(means[-1]).sum(axis=2))
        fitted = means.pop()
        while means:
            parts = self._grouped(means.pop())
            # What the parts lack of the whole is shared out evenly.
            lack = (fitted - parts.sum(axis=2)) / self.branching
            fitted = (parts + lack[:, :, np.newaxis]).reshape(len(parts), parts.shape[1] * self.branching)
        return fitted

    def _grouped(self, level: Floats) -> Floats:
        return level.reshape(len(level), level.shape[1] // self.branching, self.branching)

    @cached_property
    def _means(self) -> tuple[Floats, Floats]:
        """By level, the ℓ1 and ℓ∞ norms of the weights that noisy counts have in one group's mean."""
        sums, tops = [1.0], [1.0]
        for share in self._shares[-2::-1]:
            sums.append(share + (1 - share) * self.branching * sums[-1])
            tops.append(max(share, (1 - share) * tops[-1]))
        return np.array(sums[::-1]), np.array(tops[::-1])

    @property
    def _total(self) -> _Norms:
        """The norms of the weights that noisy counts have in the number of all rows."""
        sums, tops = self._means
        return _Norms(self.branching * sums[:1], np.sqrt([self.branching * self._shares[0]]), tops[:1])

    def _norms(self, fraction: Fraction) -> _Norms:
        """The norms of the weights that noisy counts have in rank − fraction·total, at every edge."""
        edge, size = np.arange(self.leaves), self.leaves
        l1, square, linf = (np.zeros(self.leaves) for _ in range(3))
        # What each group of a level has in common: the share of the group above that lies before the edge.
        before, carried = np.full(self.leaves, float(fraction)), np.zeros(self.leaves)
        for share, total, top in zip(self._shares, *self._means, strict=True):
            size //= self.branching
            lefts, edge = edge // size, edge % size
            rights, inside = self.branching - 1 - lefts, edge / size
            left, right, own = (weight - before + carried for weight in (1.0, 0.0, inside))
            l1 += (lefts * np.abs(left) + rights * np.abs(right)) * total + share * np.abs(own)
            square += (lefts * left**2 + rights * right**2) * share + (share * own) ** 2
            sides = np.maximum((lefts > 0) * np.abs(left), (rights > 0) * np.abs(right))
            linf = np.maximum(linf, np.maximum(top * sides, share * np.abs(own)))
            before, carried = inside, (1 - share) * own
        last = (float(1 - fraction) * norm for norm in self._total)
        columns = zip((l1, np.sqrt(square), linf), last, strict=True)
        return _Norms(*(np.concatenate(norms) for norms in columns))


@lru_cache(maxsize=32)
def _widths(
    tree: Tree, mechanism: Laplace | Gaussian, fraction: Fraction | None, confidence: Fraction
) -> Floats:
    """How far rank − fraction·total is off at every edge, or the total: the same for every release."""
    norms = tree._total if fraction is None else tree._norms(fraction)  # noqa: SLF001 - a method's cache leaks
    return width_from_norms(mechanism, *norms, confidence)


def _clamped_sum(children: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sums along the last axis, held within ±2^61: of numbers within it, two never overflow."""
    total = children[..., 0]
    for place in range(1, children.shape[-1]):
        total = np.clip(total + children[..., place], -MAX_MAGNITUDE, MAX_MAGNITUDE)
    return total


def _malformed() -> InvalidInput:
    return InvalidInput(
        "the bins' counts are not whole numbers, one for each of some bins",
        why="each group's count is the sum of its bins' counts",
        fix="pass two vectors of integers of one length: distinct bins from 0 on, and their counts",
    )
