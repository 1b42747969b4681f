"""Reads a noisy histogram of sizes: which limit has the least error, and how much lies above it.

A limit L cuts off what is above it, and its noise grows with L. The best limit is near the size that only
about 1/ε units exceed, where a noisy histogram shows nothing but noise. So the tail is extrapolated: the
reading *climbs* to the last bins that stand out from the noise, takes every tail of three families (heavy:
log-quadratic in the logarithm of the size, as Pareto's and the lognormal tail are; light: of a gamma law, as
geometric and Poisson ones nearly are; cut: log-linear up to an end, as a uniform law is) as a hypothesis,
weighs them by their likelihood, and takes the limit with the least expected regret, also between the ends of
bins: these are wide, as each has noise of its own. Everything here is post-processing of released counts: no
rule could be less private.

`benchmarks/limits.py` measures the regret of this rule on many laws.

Proof: docs/proofs/bounding.md, "The limit on rows"
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.sql.bounding_sql import MAGNITUDE_ENDS

__all__ = ["ROW_BINS", "ROW_LIMITS", "ROW_SIZES", "VALUE_SIZES", "LimitChoice", "SizeBins"]

Floats = NDArray[np.float64]

_WINDOWS = (1, 2, 4, 8, 16)
"""Bins are looked at in windows of these widths: many units may be spread over many bins."""
_START_ALARMS = 1000
"""Noise is taken for sizes that may be anywhere once in about this many queries."""
_FALSE_ALARMS, _DROP_ALARMS = 20.0, 5.0
"""Noise is taken for a bin S times larger than those before once in about this many times S queries."""
_VALLEY = 8.0
"""Between two modes some bin has less than a quarter of the units, and fewer by this many times the noise."""
_DENSITY_FALL = 3.0
"""Within a bin, units are taken to be fewer toward its upper end, by e to this."""
_PLACES = (np.arange(16) + 0.5) / 16
"""Where the units of a bin are taken to be, as shares of its width, where a limit is within it."""
_MISFIT, _VALUE_MISFIT = 0.1, 0.15
"""No law is exactly of the families: a bin may be off by about this share; of values, by more."""
_SLOPES = (0.0, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.3, 1.7, 2.3, 3.0, 5.0, 8.0)
_CURVATURES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.06, 0.09, 0.12, 0.18, 0.25, 0.35, 0.5)
_ENDS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18)
_AMPLITUDES = np.exp(np.linspace(-1.0, 0.6, 12))
_RATES = tuple(0.1 * 600 ** (step / 19) for step in range(20))
"""By how much gamma tails fall from their first bin to one twice as large: with e to this."""
_POWERS = (0.0, 0.5, 1.0, 1.5)
"""How they rise before, as multiples of the rate: 1 if the first bin is the largest."""
_LIGHT_PRIOR, _CUT_PRIOR, _PARETO_WEIGHT, _SHARP_WEIGHT = 0.3, 0.3, 8.0, 5.0
"""How much is expected beforehand of light tails, of the others that end, of straight and of sharp ones.

Sizes of values have no light tails here: in bins twice as wide, lognormal ones would be taken for these, and
cut too soon.
"""
_NEGLIGIBLE = 0.2
"""Fewer units than this are none."""
_THETA = np.linspace(0.05, 0.99, 40)
_LOG_MOMENT = -np.log(1 - _THETA**2)


@dataclass(frozen=True)
class LimitChoice:
    """A limit that was chosen from a noisy histogram."""

    index: int
    """Which of the bins' limits it is."""
    limit: float
    share_above: float
    """An estimate of the share of all contributions that lies above the limit and is cut off."""
    regret: float
    """The expected error over that of the best limit, by the same hypotheses: 1 if the limit is certain."""


@dataclass(frozen=True)
class SizeBins:
    """Bins of sizes by their upper ends, and how to read noisy counts of units in them."""

    ends: tuple[float, ...]
    """Ascending; what is larger than the last is in its bin."""
    start: float = 0.0
    """The start of the first bin; sizes are above it."""
    step: float = 1.0
    """The distance of two sizes: 1 where they are whole numbers, 0 where they are not."""
    starts_at_largest: bool = False
    """True if sizes may be anywhere, so that the climb starts at the bin with the largest count."""
    back: int = 12
    """The tail is fitted from the largest of this many bins below the last that stands out."""
    divisions: int = 1
    """The number of parts into which limits divide each bin, as far as there are whole numbers."""

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits that may be chosen, ascending: the ends of the bins, and those within bins."""
        return _limits_of(self)

    def choose(
        self,
        counts: Sequence[float] | NDArray[np.int64] | Floats,
        scale: float,
        noise: Sequence[float] | Floats,
        *,
        groups: int = 1,
    ) -> LimitChoice:
        """The limit of the least expected regret.

        Args:
            counts: the noisy number of units in each bin.
            scale: the scale of their noise.
            noise: for each of `limits`, the mean absolute noise of an answer.
            groups: the number of answers over which the contributions are spread.
        """
        seen = np.asarray(counts, dtype=np.float64)
        widths = np.asarray(noise, dtype=np.float64)
        laws, weights = self._tails(seen, scale)
        over = laws @ _excess_of(self)
        error = _mean_error(over / groups, widths)
        # A limit counts by its error over that of the best limit: laws with large errors do not decide alone.
        regret = weights @ (error / error.min(axis=1, keepdims=True))
        index = int(np.argmin(regret))
        above, total = _median(over[:, index], weights), _median(laws @ self._middles, weights)
        return LimitChoice(index, float(self.limits[index]), _share(above, total), float(regret[index]))

    def share_above(
        self, counts: Sequence[float] | NDArray[np.int64] | Floats, scale: float, limit: float
    ) -> float:
        """An estimate of the share of all contributions that a limit cuts off."""
        return _share(*self.totals(counts, scale, limit))

    def totals(
        self, counts: Sequence[float] | NDArray[np.int64] | Floats, scale: float, limit: float
    ) -> tuple[float, float]:
        """Estimates of what lies above a limit, and of all contributions."""
        laws, weights = self._tails(np.asarray(counts, dtype=np.float64), scale)
        over = laws @ _excess_over(self, (limit,))[:, 0]
        return _median(over, weights), _median(laws @ self._middles, weights)

    def is_visible(self, counts: Sequence[float] | NDArray[np.int64] | Floats, scale: float) -> bool:
        """True if some units stand out from the noise; otherwise what a limit cuts off cannot be estimated.

        Units that are all of one size far from the first, and too few for a climb to it, do not.
        """
        seen = np.asarray(counts, dtype=np.float64)
        return bool(seen[0] > scale * math.log(_FALSE_ALARMS)) or self._climb(seen, scale) > 0

    # Sizes that may be anywhere

    def find_start(self, seen: Floats, scale: float) -> int | None:
        """The largest bin of the narrowest window that stands out from the noise; None if there is none."""
        sums = np.concatenate([[0.0], np.cumsum(seen)])
        for width in _WINDOWS:
            inside = sums[width:] - sums[:-width]
            begin = int(np.argmax(inside))
            if inside[begin] > self.clear_count(scale, width):
                return begin + int(np.argmax(seen[begin : begin + width]))
        return None

    def clear_count(self, scale: float, width: int = _WINDOWS[-1]) -> float:
        """The count above which this number of bins in a row stands out, wherever they are."""
        rare = math.log(_START_ALARMS * 2 * len(self.ends))
        if width == 1:
            return scale * rare
        return scale * float(_quantile(width, np.array([rare + math.log(len(_WINDOWS))]))[0])

    # The families of tails

    @property
    def _edges(self) -> Floats:
        return np.concatenate([[self.start], np.array(self.ends)])

    @property
    def _middles(self) -> Floats:
        return _middles_of(self)

    def _tails(self, seen: Floats, scale: float) -> tuple[Floats, Floats]:
        """Hypotheses of the exact counts, and their weights."""
        last = self._climb(seen, scale)
        first = self._mode(seen, scale, last)
        shapes, prior = _shapes_of(self, first)
        base = max(float(seen[first]), scale)
        tails = (_AMPLITUDES[:, np.newaxis, np.newaxis] * base * shapes).reshape(-1, shapes.shape[1])
        spread = scale + (_MISFIT if self.step else _VALUE_MISFIT) * tails
        fit = -(np.abs(seen[first:] - tails) / spread + np.log(spread)).sum(axis=1)
        likelihood = fit + np.tile(prior, len(_AMPLITUDES))
        weights = np.exp(likelihood - likelihood.max())
        is_likely = weights > 1e-4  # of the largest: the others change nothing
        weights, tails = weights[is_likely] / weights[is_likely].sum(), tails[is_likely]
        body = np.tile(np.maximum(seen[:first], 0), (len(tails), 1))
        laws = np.hstack([body, tails])
        return np.where(laws < _NEGLIGIBLE, 0, laws), weights

    def _mode(self, seen: Floats, scale: float, last: int) -> int:
        """The largest of some bins up to the last that stands out, but none beyond a valley.

        The tails of what lies before a valley say nothing of the units behind it.
        """
        mode = last
        for place in range(last - 1, max(0, last - self.back) - 1, -1):
            if seen[place] > seen[mode]:
                mode = place
            elif seen[place] < min(seen[mode] / 4, seen[mode] - _VALLEY * scale):
                break
        return mode

    def _climb(self, seen: Floats, scale: float) -> int:
        """The last bin that stands out, reached by steps; noise takes long ones rarely.

        A step to a bin S times larger may cost S times the noise, so it is taken by mistake once in S times.
        """
        sums = np.concatenate([[0.0], np.cumsum(seen)])
        bins, sizes = np.arange(len(self.ends)), np.array(self.ends)
        here = 0
        if self.starts_at_largest:
            start = self.find_start(seen, scale)
            here = int(np.argmax(seen)) if start is None else start
        while True:
            window = (-1, 0)
            rare = np.log(_FALSE_ALARMS * len(_WINDOWS) * (sizes / sizes[here]).clip(1))
            rare = rare + 2 * np.log(np.maximum(bins - here, 1))
            for width in _WINDOWS:
                begins = bins - width + 1
                inside = np.where(begins > here, sums[bins + 1] - sums[np.maximum(begins, 0)], -np.inf)
                hits = np.flatnonzero(inside > scale * _quantile(width, rare))
                if hits.size and hits[-1] > window[0]:
                    window = int(hits[-1]), int(hits[-1]) - width + 1
            if window[0] < 0:
                return here
            top, bottom = window
            while top > bottom:  # a window that stands out may be empty at its upper end
                half = (top - bottom + 1) // 2
                alarms = np.log(_DROP_ALARMS * sizes[[top]] / sizes[top - half])
                if sums[top + 1] - sums[top + 1 - half] > scale * _quantile(half, alarms)[0]:
                    bottom = top + 1 - half
                else:
                    top -= half
            here = top


def _quantile(width: int, rare: Floats) -> Floats:
    """A Chernoff bound: a sum of `width` Laplace draws of scale 1 exceeds it with chance e^−rare at most."""
    return np.asarray(((width * _LOG_MOMENT + rare[..., np.newaxis]) / _THETA).min(axis=-1))


def _median(values: Floats, weights: Floats) -> float:
    """The weighted median: where the noise hides the tail, a few laws with enormous ones do not decide."""
    order = np.argsort(values)
    place = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order[min(place, values.size - 1)]])


def _share(part: float, total: float) -> float:
    return min(1.0, max(0.0, part / total)) if total > 0 else 0.0


def _mean_error(bias: Floats, noise: Floats) -> Floats:
    """E|X − bias| of Laplace noise X with E|X| = noise; other laws are close."""
    return np.asarray(bias + noise * np.exp(-bias / noise))


@lru_cache(maxsize=16)
def _middles_of(bins: SizeBins) -> Floats:
    edges = bins._edges  # noqa: SLF001 - of this module
    return np.asarray(np.sqrt((edges[:-1] + bins.step) * edges[1:]))


@lru_cache(maxsize=16)
def _limits_of(bins: SizeBins) -> tuple[float, ...]:
    edges = bins._edges  # noqa: SLF001 - of this module
    limits = set(bins.ends)
    for low, high in itertools.pairwise(edges[1:].tolist()):
        between = low * (high / low) ** (np.arange(1, bins.divisions) / bins.divisions)
        limits |= {each for each in np.rint(between).tolist() if low < each < high}
    return tuple(sorted(limits))


@lru_cache(maxsize=16)
def _excess_of(bins: SizeBins) -> Floats:
    """What a unit of one bin has above each of the limits that may be chosen, on average."""
    return _excess_over(bins, bins.limits)


def _excess_over(bins: SizeBins, limits: Sequence[float]) -> Floats:
    """What a unit of one bin has above each limit: a bin's middle stands for it, but for limits within it."""
    edges, cuts = bins._edges, np.asarray(limits, dtype=np.float64)  # noqa: SLF001 - of this module
    excess = np.maximum(_middles_of(bins)[:, np.newaxis] - cuts, 0)
    if bins.divisions == 1:
        return np.asarray(excess)
    weights = np.exp(-_DENSITY_FALL * _PLACES)
    for bin_, (low, high) in enumerate(zip(edges[:-1] + 0.5, edges[1:] + 0.5, strict=True)):
        inside = (cuts > edges[bin_]) & (cuts < edges[bin_ + 1])
        sizes = low * (high / low) ** _PLACES
        over = np.maximum(sizes[:, np.newaxis] - cuts[inside], 0)
        excess[bin_, inside] = weights @ over / weights.sum()
    return np.asarray(excess)


@lru_cache(maxsize=256)
def _shapes_of(bins: SizeBins, first: int) -> tuple[Floats, Floats]:
    """The tails of all families from a bin on, relative to it, and the logarithms of their prior weights."""
    # In quarters of an octave, between whole numbers where sizes are whole.
    edges = 4 * np.log2(bins._edges + bins.step / 2)  # noqa: SLF001 - of this module
    width = np.minimum(np.diff(edges), 4.0)
    away = ((edges[1:] + edges[:-1]) / 2)[first:]
    away = away - away[0]
    slopes, curvatures = (part.reshape(-1, 1) for part in np.meshgrid(_SLOPES, _CURVATURES, indexing="ij"))
    smooth = np.exp(-slopes * away - curvatures * away**2 / 2)
    weights = np.where(curvatures[:, 0] == 0, _PARETO_WEIGHT, 1.0)
    gentle = [slope for slope in _SLOPES if slope < 1]
    slopes, ends = (part.reshape(-1, 1) for part in np.meshgrid(gentle, _ENDS, indexing="ij"))
    cut = np.exp(-slopes * away) * (np.arange(away.size) <= ends)
    cut_weights = np.where(ends[:, 0] == 0, _SHARP_WEIGHT, 1.0)
    rates, powers = (part.reshape(-1, 1) for part in np.meshgrid(_RATES, _POWERS, indexing="ij"))
    further = away * math.log(2) / 4
    light = np.exp(np.maximum(rates * (powers * further - np.expm1(further)), -700))
    light = light if bins.step else light[:0]
    shapes = np.vstack([smooth, cut, light]) * (width[first:] / width[first])
    rest = 1 - _LIGHT_PRIOR
    shares = rest * (1 - _CUT_PRIOR), rest * _CUT_PRIOR, _LIGHT_PRIOR
    families = weights, cut_weights, np.ones(len(light))
    prior = np.concatenate([share * each / each.sum() for share, each in zip(shares, families, strict=True)])
    return shapes, np.log(prior)


ROW_BINS: tuple[int, ...] = (
    *range(1, 7),
    *(math.isqrt(math.isqrt(1 << step)) for step in range(13, 80, 2)),
    2**20 - 1,
)
"""The upper ends of bins: all numbers up to 6, then two to a doubling, up to 2^20.

With four to a doubling each bin has as much noise and half of the units.
"""
ROW_SIZES = SizeBins(ROW_BINS, back=6, divisions=4)
"""Rows, or groups, of a unit."""
ROW_LIMITS: tuple[int, ...] = tuple(map(int, ROW_SIZES.limits))
"""The limits that may be chosen: the ends of the bins, and up to three within each."""
VALUE_SIZES = SizeBins(
    (*MAGNITUDE_ENDS[1:], 2.0**64), start=MAGNITUDE_ENDS[0], step=0.0, starts_at_largest=True
)
"""Sizes of values of one sign: each bin's upper end may be a bound."""
