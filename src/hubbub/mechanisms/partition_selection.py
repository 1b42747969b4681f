"""Partition selection: choosing privately which group keys may be published.

Each unit contributes to a bounded number of groups. Every group key that occurs is kept if its number of
units, plus noise, reaches a threshold. A key that no unit has is never kept, and a key of a single unit is
kept with probability at most δ.

Two kinds of mechanism: `PartitionSelection` releases the keys alone, `StabilityHistogram` the keys with their
noisy counts.

Proof: docs/proofs/partition-selection.md
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, largest_mu, refuse_large_delta
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.mechanisms.laplace_gaussian import Gaussian, Laplace
from hubbub.mechanisms.mechanism import Integers, Mechanism, check_sensitivity
from hubbub.mechanisms.noise_tails import half_width, smallest_integer
from hubbub.noise import MAX_SCALE, geometric, rounded_gaussian, uniform
from hubbub.noise.enclosures import divide, exp_neg, normal_tail
from hubbub.noise.float_grid import add_integers
from hubbub.noise.inversion import MAX_DRAW, lanes_needed
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    format_up,
    parse_integer,
    parse_positive,
    parse_probability,
    round_down,
    round_up,
)
from hubbub.release import Release
from hubbub.sensitivity import MAX_MAGNITUDE, Sensitivity, unwrap

__all__ = [
    "GaussianPartitionSelection",
    "PartitionSelection",
    "StabilityHistogram",
    "TruncatedGeometricSelection",
    "choose_partition_selection",
]

Enclosed: TypeAlias = tuple[Fraction, Fraction]
"""A lower and an upper bound of a probability."""

# survives: How many bits are carried is free: an enclosure from one more still encloses.
_BITS, _MAX_TAIL_BITS = 160, 1200
"""A probability below 2^-1200 is rounded up to it: no double δ, split over 2^48 keys, is as small."""


class PartitionSelection(Mechanism):
    """Abstract: a group key is kept if its number of units plus symmetric noise reaches the threshold."""

    max_groups: int
    """The maximum number of groups that one unit can change, each by one; under substitution, both units."""
    threshold: int
    """The noisy number of units at which a key is kept: 2 or more."""

    error_kind: ClassVar[str] = "none"

    @abstractmethod
    def _tail(self, m: int) -> Enclosed:
        """Enclose Pr[noise ≥ m], for m ≥ 1."""

    @abstractmethod
    def _draw_noise(self, size: int) -> Integers:
        """Draw the noise; draws beyond ±2^62 saturate there."""

    @property
    def delta(self) -> Fraction:
        """The probability that a key of one unit is kept, rounded up."""
        return self.keep_probability_bounds(1)[1]

    def keep_probability(self, units: int) -> float:
        """Return the probability that a key with this number of units is kept, rounded down."""
        return max(0.0, round_down(self.keep_probability_bounds(parse_integer(units, "units", minimum=0))[0]))

    def min_units(self, confidence: Number = 0.95) -> int:
        """Return the least number of units at which a key is kept with at least this probability."""
        level = parse_probability(confidence, "confidence")
        return smallest_integer(lambda units: self.keep_probability_bounds(units)[0] >= level)

    def keep_probability_bounds(self, units: int) -> Enclosed:
        """Enclose the probability that a key with this number of units is kept."""
        if units < 1:
            return Fraction(0), Fraction(0)
        if units < self.threshold:
            return self._tail(self.threshold - units)
        # The law is symmetric: Pr[X ≥ −m] = 1 − Pr[X ≥ m + 1].
        low, high = self._tail(units - self.threshold + 1)
        return 1 - high, 1 - low

    def release(self, value: Any) -> Release[NDArray[np.intp]]:
        """Release the sorted positions of the keys that are kept.

        Publish only the keys at these positions, sorted. The positions themselves reveal how many keys lie
        between them, so map them to the keys at once:

        >>> names = ["Bern", "Uri", "Zug"]
        >>> mechanism = TruncatedGeometricSelection.of(max_groups=1, epsilon=1, delta=1e-6)
        >>> mechanism.release([900, 1, 800]).map(lambda kept: [names[place] for place in kept]).value
        ['Bern', 'Zug']

        Args:
            value: a vector with the number of units of every key that occurs.

        Guarantee: the set of kept keys costs nobody more than `loss()`, and the number of keys that occur
            is not revealed.
        Assumes: one unit changes at most `max_groups` of the numbers, by one each, and a key that does not
            occur is missing or has a number below 1; uniform random bits.
        Proof: docs/proofs/partition-selection.md
        """
        declared = Sensitivity(self.max_groups, linf=1)
        bounded = check_sensitivity(check_sensitivity(value, declared, "l1"), declared, "linf")
        units = unwrap(bounded)
        if not isinstance(units, np.ndarray) or units.dtype.kind != "i":
            raise InvalidInput(
                "the value is not a list of integers",
                why="a key is kept by its number of units",
                fix="pass a vector with the number of units of every key that occurs",
            )
        noisy = units + self._draw_noise(units.size)  # within ±2^61 and ±2^62, so this fits
        places = np.flatnonzero((units >= 1) & (noisy >= self.threshold))  # the number of keys is private
        return Release(
            places, self.loss(), self, bounded.unit, bounded.is_user_asserted, coordinates=max(1, places.size)
        )

    # survives: It has no error, and says so whatever the confidence.
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """Refuse: a key is kept or not."""
        raise InvalidInput(
            "partition selection has no error",
            why="a key is kept or not",
            fix="use keep_probability(units) or min_units(confidence)",
        )

    def _check(self, scale: Fraction) -> None:
        object.__setattr__(self, "max_groups", parse_integer(self.max_groups, "max_groups"))
        if max(scale, Fraction(self.max_groups)) > MAX_SCALE or self.threshold > MAX_MAGNITUDE:
            raise Unsupported(
                "the scale of the noise or max_groups is above 2^48, or the threshold above 2^61",
                why="the law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon} or {delta}, or fewer groups",
            )

    def _describe(self, noise: str) -> str:
        bound = f"at most {self.max_groups} group{'s' * (self.max_groups > 1)} per unit"
        return f"Group keys of {self.threshold} or more units after {noise}; {bound}: {self.loss()}"


@final
@dataclass(frozen=True, repr=False)
class TruncatedGeometricSelection(PartitionSelection):
    """Noise with Pr[x] ∝ e^(−ε|x|) on −k…k; a key is kept if its number of units plus noise exceeds k.

    It is optimal for one key (Desfontaines, Voss, Gipson, Mandayam 2022): no other rule with this ε and δ
    keeps a key of any number of units with a larger probability.

    >>> mechanism = TruncatedGeometricSelection.of(max_groups=1, epsilon=1, delta=1e-6)
    >>> print(mechanism)
    Group keys of 15 or more units after geometric noise of scale 1 within ±14; at most 1 group per unit:
    ε = 1, δ = 3.84264e-7
    >>> mechanism.min_units(0.95), round(mechanism.keep_probability(17), 3)
    (17, 0.964)

    Guarantee: G = `max_groups` keys, each (ε, δ)-private, composed: (Gε, 1 − (1 − δ)^G).
    Assumes: one unit changes at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/partition-selection.md
    """

    epsilon: Fraction
    """The ε of one key."""
    truncation: int
    """k, the largest magnitude of the noise."""
    max_groups: int

    kind: ClassVar[str] = "truncated-geometric-selection/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "truncation", parse_integer(self.truncation, "truncation"))
        self._check(1 / self.epsilon)

    @classmethod
    def of(cls, *, max_groups: int, epsilon: Number, delta: Number, population: int | None = None) -> Self:
        """Make the selection with the least truncation; ε and δ are split evenly over the groups.

        Args: as in `GaussianPartitionSelection.of`.
        """
        rate, each = _split_evenly(max_groups, epsilon, delta, population)
        return cls(
            rate, 1 + smallest_integer(lambda more: cls(rate, 1 + more, max_groups).delta <= each), max_groups
        )

    def loss(self) -> PrivacyLoss:
        """Return the loss of `max_groups` composed (ε, δ)-private mechanisms."""
        return PrivacyLoss.approximate(self.epsilon, self.delta) * self.max_groups

    @property
    def threshold(self) -> int:  # type: ignore[override]
        """The noisy number of units at which a key is kept."""
        return self.truncation + 1

    def _tail(self, m: int) -> Enclosed:
        """(q^m − q^(k+1))/(1 + q − 2q^(k+1)) with q = e^−ε; 0 above k."""
        if m > self.truncation:
            return Fraction(0), Fraction(0)
        rate = self.epsilon
        # More bits where the probability is small, and where q is close to 1 and terms cancel.
        # survives: How many bits are carried is free: an enclosure from one more or less still
        # encloses.
        close = max(0, rate.denominator.bit_length() - rate.numerator.bit_length())
        # survives: How many bits are carried is free: with fewer the enclosure is wider, and still
        # encloses. How many bits are carried is free: with more the enclosure is narrower.
        bits = _BITS + close + min(_MAX_TAIL_BITS, ceil(rate * m * 3 / 2))
        one, (q, near, end) = 1 << bits, (exp_neg(rate * far, bits) for far in (1, m, self.threshold))
        top = max(0, near[0] - end[1]), near[1] - end[0]
        low, high = divide(top, (one + q[0] - 2 * end[1], one + q[1] - 2 * end[0]), bits)
        return Fraction(low, one), Fraction(high, one)

    def _draw_noise(self, size: int) -> Integers:
        draws = np.empty(0, dtype=np.int64)
        while draws.size < size:
            tries = lanes_needed(2 * (size - draws.size))
            sizes, minus = self._draw_magnitudes(tries), uniform(2, tries)
            # −0 is rejected, so that zero has one sign.
            draws = np.append(draws, (sizes * (1 - 2 * minus))[sizes >= minus])
        return draws[:size]

    def _draw_magnitudes(self, size: int) -> Integers:
        """Pr[s] ∝ e^(−εs) on 0…k: a geometric variable modulo k + 1."""
        draws = geometric(1 / self.epsilon, size)
        sizes: Integers = draws % self.threshold
        for lane in np.flatnonzero(draws == MAX_DRAW):  # saturated; the law is memoryless, so it starts anew
            sizes[lane] = (MAX_DRAW + geometric(1 / self.epsilon)) % self.threshold
        return sizes

    def __str__(self) -> str:
        return self._describe(
            f"geometric noise of scale {format_up(1 / self.epsilon)} within ±{self.truncation}"
        )


@final
@dataclass(frozen=True, repr=False)
class GaussianPartitionSelection(PartitionSelection):
    """Rounded Gaussian noise; a key is kept if its number of units plus noise reaches the threshold τ.

    For many groups per unit it keeps rarer keys than `TruncatedGeometricSelection`: its noise grows with
    √G, not with G.

    >>> print(GaussianPartitionSelection.of(max_groups=30, epsilon=1, delta=1e-6))
    Group keys of 134 or more units after Gaussian noise of σ = 23.909; at most 30 groups per unit:
    ε = 0, δ = 4.48913e-7, Gaussian μ = 0.229087

    Guarantee: the loss of a Gaussian with μ² = G/σ², composed with δ = 1 − Pr[1 + noise < τ]^G.
    Assumes: one unit changes at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/partition-selection.md
    """

    sigma: Fraction
    threshold: int
    max_groups: int

    kind: ClassVar[str] = "gaussian-partition-selection/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", parse_positive(self.sigma, "sigma"))
        object.__setattr__(self, "threshold", parse_integer(self.threshold, "threshold", minimum=2))
        self._check(self.sigma)

    @classmethod
    def of(
        cls,
        *,
        max_groups: int,
        epsilon: Number,
        delta: Number,
        share: Number = 0.5,
        population: int | None = None,
    ) -> Self:
        """Make the selection with the least σ and threshold that is (ε, δ)-private.

        Args:
            max_groups: the maximum number of groups that one unit can change.
            epsilon: the ε of one release.
            delta: the δ of one release.
            share: the share of δ for keys of a single unit; the rest is for the Gaussian.
            population: the public number of units, if known; δ must then be below 1/population.
        """
        rate, each = _split_evenly(max_groups, epsilon, delta, population)
        part = parse_probability(share, "share")
        mu = largest_mu(rate * max_groups, (1 - part) * each * max_groups)
        # A double, rounded up; a σ that is too wide stays too wide, and is refused.
        sigma = Fraction(round_up(min(ceil_sqrt(Fraction(max_groups)) / mu, Fraction(2 * MAX_SCALE))))
        # survives: They are equal only by chance, and then the threshold is one higher: δ still
        # holds.
        more = smallest_integer(lambda more: cls(sigma, 2 + more, max_groups).delta <= part * each)
        return cls(sigma, 2 + more, max_groups)

    def loss(self) -> PrivacyLoss:
        """Return the Gaussian loss for keys that others have too, composed with δ for those of one unit."""
        alone = PrivacyLoss.approximate(0, self.delta) * self.max_groups
        return PrivacyLoss.gaussian_from_mu_squared(self.max_groups / self.sigma**2) + alone

    def _tail(self, m: int) -> Enclosed:
        """Pr[σZ ≥ m − ½]."""
        far = (2 * m - 1) / (2 * self.sigma)
        if 5 * far**2 >= 7 * _MAX_TAIL_BITS:  # Pr[Z ≥ x] ≤ e^(−x²/2), and ln 2 < 0.7
            return Fraction(0), Fraction(1, 1 << _MAX_TAIL_BITS)
        # survives: How many bits are carried is free: with fewer the enclosure is wider, and still
        # encloses.
        bits = _BITS + ceil(far**2 * 3 / 4)
        low, high = normal_tail(far, bits)
        return Fraction(low, 2 << bits), Fraction(high, 2 << bits)

    def _draw_noise(self, size: int) -> Integers:
        return rounded_gaussian(self.sigma, size)

    def __str__(self) -> str:
        return self._describe(f"Gaussian noise of σ = {format_up(self.sigma)}")


def choose_partition_selection(
    *, max_groups: int, epsilon: Number, delta: Number, population: int | None = None
) -> TruncatedGeometricSelection | GaussianPartitionSelection:
    """Return the geometric or the Gaussian selection, whichever keeps a key of fewer units half the time.

    Args: as in `GaussianPartitionSelection.of`.
    Guarantee: that of the selection it returns; the choice looks at public numbers only.
    Proof: docs/proofs/partition-selection.md

    >>> [type(choose_partition_selection(max_groups=n, epsilon=1, delta=1e-6)).__name__ for n in (1, 30)]
    ['TruncatedGeometricSelection', 'GaussianPartitionSelection']
    """
    one = TruncatedGeometricSelection.of(
        max_groups=max_groups, epsilon=epsilon, delta=delta, population=population
    )
    other = GaussianPartitionSelection.of(
        max_groups=max_groups, epsilon=epsilon, delta=delta, population=population
    )
    return one if one.min_units(0.5) <= other.min_units(0.5) else other


def _split_evenly(max_groups: Any, epsilon: Any, delta: Any, population: Any) -> tuple[Fraction, Fraction]:
    """Return ε and δ of each group of one unit."""
    count, allowed = parse_integer(max_groups, "max_groups"), parse_probability(delta, "delta")
    refuse_large_delta(allowed, population)
    return parse_positive(epsilon, "epsilon") / count, allowed / count


# The stability-based histogram (docs/proofs/partition-selection.md): the noise that protects a count also
# selects its key, so that selection costs nothing but a δ.

Floats = NDArray[np.float64]

_MILLS_FROM = 20.0
"""From this many σ on, a normal tail is enclosed by the first terms of Mills' ratio."""
_ROUNDING_SLACK = 1 + 2.0**-30
"""Covers the rounding of a few operations in doubles, none of which cancels."""


@final
@dataclass(frozen=True, repr=False)
class StabilityHistogram(Mechanism):
    """The stability-based histogram: group keys with noisy counts that reach a threshold.

    >>> noise = Laplace.of(sensitivity=1, epsilon=1)
    >>> mechanism = StabilityHistogram.of(noise=noise, max_groups=1, delta=1e-6)
    >>> print(mechanism)
    Group keys with noisy counts of 15 or more; at most 1 group per unit:
    Laplace noise of scale 1 on integers: ε = 1; δ = 6.07897e-7 for keys of a single unit

    Guarantee: the loss of the noise, composed with δ, the probability that a single unit's key is released.
    Assumes: counts are not negative, and 0 for a key that does not occur; one unit moves at most `max_groups`
        counts, within the sensitivity of the noise, and all in one direction if it is added or removed;
        uniform random bits.
    Proof: docs/proofs/partition-selection.md
    """

    noise: Laplace | Gaussian
    threshold: int
    max_groups: int
    """The maximum number of groups that one unit can change; under substitution, of both units."""

    kind: ClassVar[str] = "stability-histogram/1"
    error_kind: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Laplace | Gaussian) or self.noise.grid is not None:
            raise InvalidInput(
                "the noise is not Laplace or Gaussian noise on integers",
                why="counts are integers and are compared exactly with the threshold",
                fix="pass Laplace.of(…) or Gaussian.of(…) without real=True",
            )
        object.__setattr__(self, "max_groups", parse_integer(self.max_groups, "max_groups"))
        # From here on the tails are convex; the proof of δ needs that.
        minimum = math.floor(self.noise.sensitivity.linf) + 1
        object.__setattr__(self, "threshold", parse_integer(self.threshold, "threshold", minimum=minimum))
        if self.threshold > MAX_MAGNITUDE or self.max_groups > MAX_SCALE:
            raise Unsupported(
                "the threshold is above 2^61, or max_groups above 2^48",
                why="the law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon} or {delta}, or fewer groups",
            )

    @classmethod
    def of(
        cls, *, noise: Laplace | Gaussian, max_groups: int, delta: Number, population: int | None = None
    ) -> Self:
        """Make the histogram with the least threshold at which keys of a single unit cost at most δ.

        Args: as in `VectorStabilityHistogram.of`.
        """
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        minimum = math.floor(noise.sensitivity.linf) + 1
        more = smallest_integer(
            lambda more: (
                minimum + more > MAX_MAGNITUDE or cls(noise, minimum + more, max_groups).delta <= allowed
            )
        )
        return cls(noise, minimum + more, max_groups)

    @property
    def delta(self) -> Fraction:
        """The largest probability that a key of a single unit is released, rounded up."""
        sensitivity = self.noise.sensitivity
        largest = math.floor(sensitivity.linf)
        full, rest = divmod(math.floor(sensitivity.l1), largest) if largest else (0, 0)
        # The tail is convex, so in the worst case some keys have the largest count, one the rest, others 0.
        full = min(full, self.max_groups)
        parts = [(full, largest)]
        if full < self.max_groups:
            parts += [(1, rest), (self.max_groups - full - 1, 0)]
        return min(
            Fraction(1),
            sum((many * self._release_probability(count)[1] for many, count in parts), Fraction(0)),
        )

    def _release_probability(self, count: int) -> Enclosed:
        """Enclose Pr[count + noise ≥ threshold]."""
        # The law is symmetric: Pr[X ≥ m] is half of Pr[|X| > m − 1], and Pr[X ≥ −m] = 1 − Pr[X ≥ m + 1].
        away = self.threshold - count
        far = Fraction(away) / self.noise.scale
        # More bits where the tail is small.
        small = abs(far) if isinstance(self.noise, Laplace) else far**2 / 2
        bits = _BITS + min(_MAX_TAIL_BITS, math.ceil(small * 3 / 2))
        low, high = self.noise._tail((away if away > 0 else 1 - away) - 1, bits)  # noqa: SLF001 - its law
        ends = Fraction(low, 2 << bits), Fraction(high, 2 << bits)
        return ends if away > 0 else (1 - ends[1], 1 - ends[0])

    def min_count(self, confidence: Number = 0.95) -> int:
        """Return the least count at which a key is released with at least this probability.

        >>> StabilityHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1).min_count(0.95)
        17
        """
        level = parse_probability(confidence, "confidence")
        return 1 + smallest_integer(lambda more: self._release_probability(1 + more)[0] >= level)

    def loss(self) -> PrivacyLoss:
        """Return the loss of the noise, composed with δ for keys of a single unit."""
        return self.noise.loss() + PrivacyLoss.approximate(0, self.delta)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """Refuse: the error of a released count depends on how far above the threshold it is."""
        raise InvalidInput(
            "a stability-based histogram has no single error",
            why="counts are released only if their noise lifts them above the threshold",
            fix="use interval(noisy) for released counts, and noise.error() before the release",
        )

    def release(self, value: Any) -> Release[NDArray[np.int64]]:
        """Release a table with the positions of the released keys, sorted, and their noisy counts.

        The positions reveal how many keys lie between them, so map them to the keys at once:

        >>> names = ["Bern", "Uri", "Zug"]
        >>> mechanism = StabilityHistogram.of(noise=Laplace.of(sensitivity=1, epsilon=1), max_groups=1,
        ...     delta=1e-6)
        >>> mechanism.release([900, 1, 800]).map(lambda rows: [names[place] for place, _ in rows]).value
        ['Bern', 'Zug']

        Args:
            value: a vector with the count of every key that occurs.

        Guarantee: keys and counts together cost nobody more than `loss()`, and the number of keys that
            occur is not revealed.
        Assumes: the same as the mechanism.
        Proof: docs/proofs/partition-selection.md
        """
        declared = self.noise.sensitivity
        bounded = value
        for norm in ("l1", "l2_squared", "linf"):
            bounded = check_sensitivity(bounded, declared, norm)
        counts = unwrap(bounded)
        if not isinstance(counts, np.ndarray) or counts.dtype.kind != "i":
            raise InvalidInput(
                "the value is not a list of integers",
                why="keys are released by their counts",
                fix="pass a vector with the count of every key that occurs",
            )
        noisy: Any = add_integers(counts.astype(np.int64), self.noise._draw_noise(counts.size))  # noqa: SLF001 - its own draws
        places = np.flatnonzero((counts >= 1) & (noisy >= self.threshold))
        table = np.stack([places.astype(np.int64), noisy[places].astype(np.int64)], axis=1)
        return Release(
            table, self.loss(), self, bounded.unit, bounded.is_user_asserted, coordinates=max(1, places.size)
        )

    def interval(self, noisy: Sequence[int] | Integers, confidence: Number = 0.95) -> tuple[Floats, Floats]:
        """Return (low, high), a confidence interval of the exact count for each released noisy count.

        It holds conditionally on the release: a noisy count just above the threshold may come from any
        smaller count, so its interval is wide.

        >>> mechanism = StabilityHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1)
        >>> [end.tolist() for end in mechanism.interval([15, 18, 40])]
        [[0.0, 0.0, 37.0], [18.0, 21.0, 43.0]]

        Guarantee: given that a key is released, its interval holds with at least this confidence.
        Proof: docs/proofs/partition-selection.md
        """
        counts = np.asarray(noisy) if len(noisy) else np.empty(0, dtype=np.int64)
        if counts.dtype.kind != "i" or (counts.size and int(counts.min()) < self.threshold):
            raise Refused(
                "a noisy count is not an integer, or below the threshold",
                why="it would not be released",
                fix="pass released counts",
            )
        rare = 1 - parse_probability(confidence, "confidence")
        # Conditioning on the release only raises the noise, so the upper end holds as without it.
        wide = half_width(self.noise._tail, confidence, 1)  # noqa: SLF001 - its law
        high = _to_doubles(counts + wide, np.inf)

        def excluded(count: Integers) -> NDArray[np.bool_]:
            """Return where so large a noisy count is too rare, even given that the key is released."""
            return np.asarray(_ROUNDING_SLACK * self._conditional_tail(counts, count) <= float(rare / 2))

        # The probability rises with the count. 0 is never excluded: nothing is known below 1.
        below, above = np.zeros_like(counts), counts.copy()
        low = np.where(excluded(np.ones_like(counts)), 1, 0)
        below = np.maximum(below, low)
        while np.any(above - below > 1):
            middle = below + (above - below) // 2
            out = excluded(middle)
            below, above = np.where(out, middle, below), np.where(out, above, middle)
        return np.where(low > 0, _to_doubles(above, -np.inf), 0.0), high

    def _conditional_tail(self, noisy: Integers, count: Integers) -> Floats:
        """Pr[count + X ≥ noisy] / Pr[count + X ≥ threshold], accurate but for the last digits."""
        over, gap = noisy - count, self.threshold - count
        if isinstance(self.noise, Laplace):
            scale = float(self.noise.scale)
            # Above zero both tails are powers of q, so their ratio depends on the distance alone.
            half = 1 / (1 + math.exp(-1 / scale))
            upper = np.exp(-np.maximum(over - np.maximum(gap, 1), 0) / scale)
            reached = np.where(gap >= 1, 1.0, 1 - half * np.exp(np.minimum(gap - 1, 0) / scale))
            inside = np.where(gap >= 1, upper, half * np.exp(-np.maximum(over, 1) / scale) / reached)
            return np.where(over >= 1, inside, 1.0)
        sigma = float(self.noise.scale)
        # e^(−x²/2) is taken out of both tails, because the difference of squares does not cancel.
        squares = (over - gap) * ((over + gap - 1) / sigma**2)
        up, down = _log_scaled_tail((over - 0.5) / sigma)[1], _log_scaled_tail((gap - 0.5) / sigma)[0]
        return np.asarray(np.exp(np.minimum(up - down - squares / 2, 0.0)))

    def __str__(self) -> str:
        bound = f"at most {self.max_groups} group{'s' * (self.max_groups > 1)} per unit"
        return (
            f"Group keys with noisy counts of {self.threshold} or more; {bound}: "
            f"{self.noise}; δ = {format_up(self.delta)} for keys of a single unit"
        )


def _to_doubles(whole: Integers, away: float) -> Floats:
    """Convert to doubles, rounded outward beyond 2^53."""
    near = whole.astype(np.float64)
    return np.where(np.abs(near) < 2.0**53, near, np.nextafter(near, away))


def _log_scaled_tail(x: Any) -> tuple[Floats, Floats]:
    """Enclose ln Pr[Z ≥ x] + x²/2, but for the last digits."""
    far = np.maximum(x, _MILLS_FROM)
    # φ(x)·x/(1 + x²) ≤ Pr[Z ≥ x] ≤ φ(x)/x
    constant = -math.log(2 * math.pi) / 2
    clipped = np.clip(x, -_MILLS_FROM, _MILLS_FROM)
    near = np.log([math.erfc(each / math.sqrt(2)) / 2 for each in clipped.tolist()]) + np.square(x) / 2
    low = np.where(x < _MILLS_FROM, near, constant - np.log(far + 1 / far))
    return low, np.where(x < _MILLS_FROM, near, constant - np.log(far))
