"""Means, variances, correlations and slopes from the noisy sums of a partition, each with its interval.

A mean, a variance, a covariance, a correlation or a slope θ makes some combination of the exact sums zero.
Its weights depend on θ and on a few numbers besides: the means, and how the two spreads compare. These are
enclosed first, at a small part of what may go wrong. Every θ counts for which the noisy combination is no
further from zero than noise goes (Fieller), with the weights anywhere they may be.

Proof: docs/proofs/intervals.md, "Moments"
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.mechanisms import Gaussian, Laplace
from hubbub.mechanisms.confidence_intervals import (
    combination_width,
    ratio_interval,
    sum_width,
    width_from_norms,
)
from hubbub.numbers import Number, parse_rational

__all__ = [
    "Estimate",
    "Floats",
    "Moments",
    "Noise",
    "estimate_linear",
    "estimate_quotient",
    "linear_half_width",
]

Noise = Laplace | Gaussian
Floats = NDArray[np.float64]

_ASIDE = Fraction(1, 32)
"""The part of what may go wrong that each number besides is enclosed with."""
_PASSES = 3
_FEW = 16
_ROUNDING = 2.0**-48
"""A sum of a few doubles is off by less than this share of what was added."""


@dataclass(frozen=True)
class Estimate:
    """A value for each group, and where the exact answer of the bounded query lies, of values as they are."""

    value: Floats
    low: Floats
    high: Floats


def estimate_linear(
    noisy: Floats, weights: Floats, noise: Noise, confidence: Number, *, off: float = 0.0
) -> Estimate:
    """A weighted sum of each row's integers, which is `off` by so much at most from what it stands for.

    Guarantee: the exact one lies between the ends, with at least this confidence.
    Proof: docs/proofs/intervals.md, "Moments", "The grid"
    """
    value = noisy @ weights
    # Doubles are rounded, too.
    width = (
        linear_half_width(weights, noise, confidence) + off + _ROUNDING * (np.abs(noisy) @ np.abs(weights))
    )
    return Estimate(value, value - width, value + width)


def linear_half_width(weights: Floats, noise: Noise, confidence: Number) -> float:
    """How far Σ weight·answer is off at most.

    Guarantee: with at least this confidence. For few integers it is the least whole width, and never none.
    Proof: docs/proofs/intervals.md, "Moments"
    """
    return _linear_half_width(
        tuple(np.abs(weights[weights != 0]).tolist()), noise, parse_rational(confidence, "confidence")
    )


@lru_cache(maxsize=1024)
def _linear_half_width(weights: tuple[float, ...], noise: Noise, confidence: Fraction) -> float:
    wide = float(combination_width(noise, weights, confidence))
    # Wide noise is as good as continuous.
    if len(set(weights)) == 1 and len(weights) <= _FEW and noise.scale < 1000:
        # No interval is a point, however rarely there is any noise.
        whole = max(1, sum_width(noise, len(weights), confidence))
        wide = min(wide, weights[0] * whole * (1 + 2.0**-50))
    return wide


@dataclass(frozen=True)
class _Span:
    """Numbers that are known to lie between two ends."""

    low: Floats
    high: Floats

    def __mul__(self, other: "_Span") -> "_Span":
        corners = [one * two for one in (self.low, self.high) for two in (other.low, other.high)]
        return _Span(np.minimum.reduce(corners), np.maximum.reduce(corners))

    def __sub__(self, other: "_Span") -> "_Span":
        return _Span(self.low - other.high, self.high - other.low)

    def __add__(self, other: "_Span") -> "_Span":
        return _Span(self.low + other.low, self.high + other.high)

    @property
    def column(self) -> "_Span":
        """One number a group, to be set against all parts."""
        return _Span(self.low[:, np.newaxis], self.high[:, np.newaxis])

    @property
    def largest(self) -> Floats:
        return np.maximum(np.abs(self.low), np.abs(self.high))


def _exactly(numbers: Floats) -> _Span:
    return _Span(numbers, numbers)


@dataclass(frozen=True, eq=False)
class Moments:
    """Noisy sums of Bernstein polynomials of one or two values between 0 and 1, a row for each group.

    Guarantee: each interval holds the exact answer for the exact sums, with at least its confidence.
    Assumes: `noisy` is the exact sums plus independent draws of the noise; the exact ones are of one or
        more rows, each weighted.
    Proof: docs/proofs/intervals.md, "Moments"
    """

    noisy: Floats
    degrees: tuple[int, ...]
    """For each value 1, for t and 1 − t; or 2, for t², 2t(1 − t) and (1 − t)²."""
    noise: Noise
    step: Fraction
    """The value of one step, in rows."""
    off: float = 0.0
    """How far each exact sum may be, in steps, from that of values that were not rounded."""

    # Sums

    @cached_property
    def _count(self) -> Floats:
        return np.asarray(self.noisy.sum(axis=1))

    @cached_property
    def _rounding(self) -> Floats:
        return np.asarray(_ROUNDING * np.abs(self.noisy).sum(axis=1))

    def _points(self, which: int) -> tuple[Floats, Floats]:
        """For each part p and q, so that (t − a)² is Σ part·(p − a)(q − a), and t − a half of both."""
        ends = {1: ([1.0, 0.0], [1.0, 0.0]), 2: ([1.0, 1.0, 0.0], [1.0, 0.0, 0.0])}[self.degrees[which]]
        one, two = (np.array(end) for end in ends)
        if len(self.degrees) == 1:
            return one, two
        other = self.degrees[1 - which] + 1
        if which == 0:
            return np.repeat(one, other), np.repeat(two, other)
        return np.tile(one, other), np.tile(two, other)

    def _places(self, which: int) -> Floats:
        one, two = self._points(which)
        return np.asarray((one + two) / 2)

    def _squares(self, which: int, centre: Floats) -> Floats:
        """Σ(t − centre)²."""
        one, two = self._points(which)
        around = centre[:, np.newaxis]
        return np.asarray((self.noisy * (one - around) * (two - around)).sum(axis=1))

    def _products(self, one: Floats, two: Floats) -> Floats:
        """Σ(t − one)(s − two)."""
        first, second = self._places(0) - one[:, np.newaxis], self._places(1) - two[:, np.newaxis]
        return np.asarray((self.noisy * first * second).sum(axis=1))

    # Answers

    def mean(self, confidence: Number, which: int = 0) -> Estimate:
        """The mean, between 0 and 1."""
        if self.degrees == (1,):
            one, two = self.noisy.T
            return Estimate(*ratio_interval(one, two, self.noise, confidence, offset=self.off))
        places = self._places(which)
        top = self.noisy @ places
        whole = _Span(np.zeros_like(top), np.ones_like(top))
        above, below = _exactly(places[np.newaxis, :]), _exactly(np.ones_like(places)[np.newaxis, :])
        rare = 1 - parse_rational(confidence, "confidence")
        span = self._solved(_exactly(top), _exactly(self._count), above, below, start=whole, rare=rare)
        return _clip_to_span(np.where(self._count > 0, top / _positive(self._count), 0.5), span)

    def variance(self, confidence: Number, *, is_sample: bool) -> Estimate:
        """The variance, where the values lie between 0 and 1: at most ½ of a sample, or ¼."""
        rare = 1 - parse_rational(confidence, "confidence")
        aside = rare * _ASIDE
        mean = self.mean(1 - aside)
        less, factor = self._lost(aside, is_sample=is_sample)
        rest = rare - aside * (1 + is_sample)
        span = self._variance(0, mean, less, factor, rest)
        own = self._squares(0, mean.value) / _positive(self._count)
        return _clip_to_span(own * self._factor(is_sample=is_sample), span)

    def covariance(self, confidence: Number, *, is_sample: bool) -> Estimate:
        """The covariance of two values between 0 and 1."""
        rare = 1 - parse_rational(confidence, "confidence")
        aside = rare * _ASIDE
        one, two = self.mean(1 - aside, 0), self.mean(1 - aside, 1)
        less, factor = self._lost(aside, is_sample=is_sample)
        most = np.sqrt(_most(one) * _most(two)) * factor
        span = self._solved(
            self._between(one, two),
            _exactly(self._count) - less,
            self._crossed(one, two),
            _exactly(np.ones((1, self.noisy.shape[1]))),
            start=_Span(-most, most),
            rare=rare - aside * (2 + is_sample),
        )
        own = self._products(one.value, two.value) / _positive(self._count)
        return _clip_to_span(own * self._factor(is_sample=is_sample), span)

    def correlation(self, confidence: Number) -> Estimate:
        """The correlation of two values, both of degree 2."""
        rare = 1 - parse_rational(confidence, "confidence")
        aside = rare * _ASIDE
        means = [self.mean(1 - aside, which) for which in (0, 1)]
        nothing, once = _exactly(np.zeros_like(self._count)), np.ones_like(self._count)
        one, two = (self._variance(which, means[which], nothing, once, aside) for which in (0, 1))
        # How the spreads compare: their geometric mean is half of ratio·one + two/ratio, at the true ratio.
        least = np.sqrt(two.low / _positive(one.high))
        most = np.sqrt(two.high / _positive(one.low))
        ratio = _Span(least, most)
        inverse = _Span(1 / _positive(most), 1 / _positive(least))
        half = _exactly(np.array([[0.5]]))
        below = half * (
            ratio.column * self._squared(0, means[0]) + inverse.column * self._squared(1, means[1])
        )
        squares = [self._around(which, means[which]) for which in (0, 1)]
        ends = [(r * squares[0].high + squares[1].high / _positive(r)) / 2 for r in (least, most)]
        bottom = _Span(
            np.sqrt(np.maximum(squares[0].low, 0) * np.maximum(squares[1].low, 0)), np.maximum(*ends)
        )
        is_known = (one.low > 0) & (two.low > 0)
        bottom = _Span(np.where(is_known, bottom.low, 0.0), np.where(is_known, bottom.high, 1.0))
        above, top = self._crossed(*means), self._between(*means)
        span = self._solved(top, bottom, above, below, start=_Span(-once, once), rare=rare - 4 * aside)
        spread = self._squares(0, means[0].value) * self._squares(1, means[1].value)
        own = self._products(means[0].value, means[1].value) / np.sqrt(_positive(spread))
        return _clip_to_span(np.where(spread > 0, own, 0.0), span)

    def slope(self, confidence: Number, of: int) -> Estimate:
        """The slope of the least-squares line over the value `of`, both of degree 2.

        Where the noise does not show that this value varies at all, the slope may be any number.
        """
        rare = 1 - parse_rational(confidence, "confidence")
        aside = rare * _ASIDE
        means = [self.mean(1 - aside, which) for which in (0, 1)]
        nothing, once = _exactly(np.zeros_like(self._count)), np.ones_like(self._count)
        spreads = [self._variance(which, means[which], nothing, once, aside) for which in (0, 1)]
        is_known = spreads[of].low > 0
        # No slope is steeper than the ratio of the two deviations.
        most = np.where(is_known, np.sqrt(spreads[1 - of].high / _positive(spreads[of].low)), 1.0)
        span = self._solved(
            self._between(*means),
            self._around(of, means[of]),
            self._crossed(*means),
            self._squared(of, means[of]),
            start=_Span(-most, most),
            rare=rare - 4 * aside,
        )
        squares = self._squares(of, means[of].value)
        own = np.where(squares > 0, self._products(means[0].value, means[1].value) / _positive(squares), 0.0)
        low, high = np.where(is_known, span.low, -np.inf), np.where(is_known, span.high, np.inf)
        return _clip_to_span(own, _Span(low, high))

    # Between which ends

    def _solved(
        self, top: _Span, bottom: _Span, above: _Span, below: _Span, *, start: _Span, rare: Fraction
    ) -> _Span:
        """Where θ lies if Σ(above − θ·below)·exact is 0 for some weights within their ends.

        `top` and `bottom` are Σ above·noisy and Σ below·noisy for any such weights; θ is within `start`.
        """
        span = start
        is_known = bottom.low > 0
        least, most = (np.where(is_known, end, 1.0) for end in (bottom.low, bottom.high))
        for _ in range(_PASSES):
            weights = (above - span.column * below).largest
            l1, l2, linf = weights.sum(axis=1), np.sqrt((weights * weights).sum(axis=1)), weights.max(axis=1)
            width = width_from_norms(self.noise, l1, l2, linf, 1 - rare) + self._rounding + self.off * l1
            down, up = top.low - width, top.high + width
            low = np.maximum(span.low, np.minimum(down / least, down / most))
            high = np.minimum(span.high, np.maximum(up / least, up / most))
            span = _Span(np.where(is_known, low, span.low), np.where(is_known, high, span.high))
        # Sums so far below zero that nothing explains them say nothing.
        is_empty = span.low > span.high
        return _Span(np.where(is_empty, start.low, span.low), np.where(is_empty, start.high, span.high))

    def _variance(self, which: int, mean: Estimate, less: _Span, factor: Floats, rare: Fraction) -> _Span:
        """The variance of a value, given an enclosure of its mean: Σ(t − mean)² by the count, or one less."""
        bottom = _exactly(self._count) - less
        below = _exactly(np.ones((1, self.noisy.shape[1])))
        start = _Span(np.zeros_like(factor), _most(mean) * factor)
        return self._solved(
            self._around(which, mean), bottom, self._squared(which, mean), below, start=start, rare=rare
        )

    def _lost(self, aside: Fraction, *, is_sample: bool) -> tuple[_Span, Floats]:
        """What a sample takes from its count, in steps, and the most that this multiplies a variance by.

        One row; but of less than two rows half of them, so that no variance is more than doubled.
        """
        if not is_sample:
            return _exactly(np.zeros_like(self._count)), np.ones_like(self._count)
        row = float(1 / self.step)
        ones = np.ones(self.noisy.shape[1])
        least = estimate_linear(self.noisy, ones, self.noise, 1 - aside, off=self.off * len(ones)).low
        less = _Span(np.where(least >= 2 * row, row, 0.0), np.full_like(least, row))
        return less, np.where(least >= 2 * row, least / np.maximum(least - row, row), 2.0)

    def _factor(self, *, is_sample: bool) -> Floats:
        rows = self._count * float(self.step)
        return np.where(rows >= 2, rows / np.maximum(rows - 1, 1), 2.0) if is_sample else np.ones_like(rows)

    def _around(self, which: int, mean: Estimate) -> _Span:
        """Σ(t − a)² for all a between the ends of the mean; the count is positive."""
        nearest = np.clip(self.noisy @ self._places(which) / _positive(self._count), mean.low, mean.high)
        ends = [self._squares(which, end) for end in (mean.low, mean.high)]
        return _Span(self._squares(which, nearest), np.maximum(*ends))

    def _between(self, one: Estimate, two: Estimate) -> _Span:
        """Σ(t − a)(s − b) for all a and b between the ends of the means: it is largest at a corner."""
        corners = [self._products(a, b) for a in (one.low, one.high) for b in (two.low, two.high)]
        return _Span(np.minimum.reduce(corners), np.maximum.reduce(corners))

    def _squared(self, which: int, mean: Estimate) -> _Span:
        """The weights of the parts in Σ(t − a)²."""
        within = _Span(mean.low, mean.high).column
        one, two = (_exactly(points[np.newaxis, :]) for points in self._points(which))
        return (one - within) * (two - within)

    def _crossed(self, one: Estimate, two: Estimate) -> _Span:
        """The weights of the parts in Σ(t − a)(s − b)."""
        first, second = (_exactly(self._places(which)[np.newaxis, :]) for which in (0, 1))
        return (first - _Span(one.low, one.high).column) * (second - _Span(two.low, two.high).column)


def _clip_to_span(value: Floats, span: _Span) -> Estimate:
    return Estimate(np.clip(value, span.low, span.high), span.low, span.high)


def _most(mean: Estimate) -> Floats:
    """The largest m(1 − m) between the ends: no variance of values between 0 and 1 is larger."""
    nearest = np.clip(0.5, mean.low, mean.high)
    return np.asarray(nearest * (1 - nearest))


def _positive(numbers: Floats) -> Floats:
    """What may be divided by; where it is none, the quotient is not used."""
    return np.where(numbers > 0, numbers, 1.0)


def estimate_quotient(
    noisy: Floats,
    top: Floats,
    bottom: Floats,
    *,
    plus: tuple[float, float],
    noise: Noise,
    confidence: Number,
    off: float = 0.0,
) -> Estimate:
    """Σ top·answer over Σ bottom·answer, a number added to each; over what may be zero, anything.

    Guarantee: the exact one lies between the ends, with at least this confidence.
    Assumes: `noisy` is the exact integers plus independent draws of the noise; the exact divisor is not zero.
    Proof: docs/proofs/intervals.md, "Moments"
    """
    if not bottom.any() and plus[1]:
        alone = estimate_linear(noisy, top, noise, confidence, off=off * float(np.abs(top).sum()))
        value, *ends = ((part + plus[0]) / plus[1] for part in (alone.value, alone.low, alone.high))
        return Estimate(value, np.minimum(*ends), np.maximum(*ends))
    rare = 1 - parse_rational(confidence, "confidence")
    aside = rare * _ASIDE
    # Weights of at most one, so that what doubles lose is known.
    scales = [float(np.abs(weights).max()) or 1.0 for weights in (top, bottom)]
    weights = [top / scales[0], bottom / scales[1]]
    sums = []
    for each, number, scale in zip(weights, plus, scales, strict=True):
        estimate = estimate_linear(noisy, each, noise, 1 - aside, off=off * float(np.abs(each).sum()))
        sums.append(
            Estimate(*(part + number / scale for part in (estimate.value, estimate.low, estimate.high)))
        )
    one, two = sums
    crosses = (two.low <= 0) & (two.high >= 0)
    corners = [a / np.where(crosses, 1.0, b) for a in (one.low, one.high) for b in (two.low, two.high)]
    span = Moments(noisy, (), noise, Fraction(1), off)._solved(  # noqa: SLF001 - of this file
        _exactly(one.value),
        _exactly(two.value),
        _exactly(weights[0][np.newaxis, :]),
        _exactly(weights[1][np.newaxis, :]),
        start=_Span(np.minimum.reduce(corners), np.maximum.reduce(corners)),
        rare=rare - 2 * aside,
    )
    value = np.where(two.value == 0, np.nan, one.value / np.where(two.value == 0, 1.0, two.value))
    low, high = np.where(crosses, -np.inf, span.low), np.where(crosses, np.inf, span.high)
    return Estimate(*(scales[0] / scales[1] * part for part in (np.clip(value, low, high), low, high)))
