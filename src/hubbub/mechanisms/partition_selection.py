"""Private selection of group keys: which keys may be shown, where it is private which ones there are.

Each unit is bounded to some keys. Of every key that occurs, the number of its units gets noise, and it is
kept where that reaches a bar: never where nobody has it; of a single unit so rarely that δ pays for it.

Proof: docs/proofs/keys.md
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
from hubbub.mechanisms.additive import Gaussian, Laplace
from hubbub.mechanisms.error_bounds import half_width, smallest_integer
from hubbub.mechanisms.mechanism import Integers, Mechanism, check_sensitivity
from hubbub.noise import MAX_SCALE, geometric, rounded_gaussian, uniform
from hubbub.noise.enclosures import exp_neg, outside, quotient
from hubbub.noise.float_grid import add_integers
from hubbub.noise.inversion import MOST, enough
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    format_up,
    parse_integer,
    parse_positive,
    parse_probability,
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

Chance: TypeAlias = tuple[Fraction, Fraction]  # between which it lies

# survives: How many bits are carried is free: an enclosure from one more still encloses.
_BITS, _RAREST = 160, 1200
"""A chance below 2^-1200 is said to be as much: no δ that is a double, shared by 2^48 keys, is as small."""


class PartitionSelection(Mechanism):
    """Abstract: a key is kept where the number of its units, plus noise of a symmetric law, reaches a bar."""

    groups: int
    """How many keys' numbers one unit can move, each by one: under substitution both units' keys count."""

    error_kind: ClassVar[str] = "none"

    @property
    @abstractmethod
    def _bar(self) -> int:
        """What the noisy number of units has to reach: 2 or more."""

    @abstractmethod
    def _reaches(self, least: int) -> Chance:
        """Pr[noise ≥ least], for least ≥ 1."""

    @abstractmethod
    def _noise(self, size: int) -> Integers:
        """Draw from the law; what lies beyond ±2^62 is held as that."""

    @property
    def delta(self) -> Fraction:
        """The chance that a key of one unit is kept, rounded up."""
        return self._chance(1)[1]

    def keep_probability(self, units: int) -> float:
        """The chance that a key of so many units is kept, rounded down."""
        return max(0.0, -round_up(-self._chance(parse_integer(units, "units", minimum=0))[0]))

    def min_units(self, confidence: Number = 0.95) -> int:
        """The least number of units whose key is kept with at least this chance."""
        wanted = parse_probability(confidence, "confidence")
        return smallest_integer(lambda units: self._chance(units)[0] >= wanted)

    def _chance(self, units: int) -> Chance:
        if units < 1:
            return Fraction(0), Fraction(0)
        if units < self._bar:
            return self._reaches(self._bar - units)
        # The law is symmetric: Pr[X ≥ −m] = 1 − Pr[X ≥ m + 1].
        low, high = self._reaches(units - self._bar + 1)
        return 1 - high, 1 - low

    def release(self, value: Any) -> Release:
        """The sorted positions of the keys that are kept, given the number of units of each that occurs.

        Only the keys there may be shown, in an order that does not depend on the others. The positions
        themselves tell how many lie between, so map them at once:

        >>> names = ["Bern", "Uri", "Zug"]
        >>> release = TruncatedGeometricSelection.of(groups=1, epsilon=1, delta=1e-6).release([900, 1, 800])
        >>> release.map(lambda kept: [names[place] for place in kept]).value
        ['Bern', 'Zug']

        Guarantee: the set of keys kept costs nobody more than `loss()`, and how many occur is not told.
        Assumes: one unit moves at most `groups` of the numbers, by one each, and a key that does not occur
            has none, or a number below 1; uniform random bits.
        Proof: docs/proofs/keys.md
        """
        declared = Sensitivity(self.groups, linf=1)
        bounded = check_sensitivity(check_sensitivity(value, declared, "l1"), declared, "linf")
        units = unwrap(bounded)
        if not isinstance(units, np.ndarray) or units.dtype.kind != "i":
            raise InvalidInput(
                "the value is not a list of integers",
                why="keys are kept by how many units each has",
                fix="pass a vector with the number of units of every key that occurs",
            )
        noisy = units + self._noise(units.size)  # within ±2^61 and ±2^62, so this fits
        kept = np.flatnonzero((units >= 1) & (noisy >= self._bar))  # how many there were is private
        return Release(
            kept, self.loss(), self, bounded.unit, bounded.is_user_asserted, coordinates=max(1, kept.size)
        )

    # survives: It has no error, and says so whatever the confidence.
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """A selection of keys has no error: a key is kept or not."""
        raise InvalidInput(
            "a selection of keys has no error",
            why="a key is kept or not, and a rare one hardly ever",
            fix="use keep_probability(units) or min_units(confidence)",
        )

    def _check(self, scale: Fraction) -> None:
        object.__setattr__(self, "groups", parse_integer(self.groups, "groups"))
        if max(scale, Fraction(self.groups)) > MAX_SCALE or self._bar > MAX_MAGNITUDE:
            raise Unsupported(
                "the scale of the noise or the groups are above 2^48, or what is to be reached above 2^61",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon} or {delta}, or fewer groups",
            )

    def _said(self, noise: str) -> str:
        many = f"at most {self.groups} key{'s' * (self.groups > 1)} of one unit"
        return f"Keys whose units, with {noise}, are {self._bar} or more; {many}: {self.loss()}"


@final
@dataclass(frozen=True)
class TruncatedGeometricSelection(PartitionSelection):
    """Noise with Pr[x] ∝ e^(−ε|x|) on −k…k; a key is kept where its units plus noise exceed the cut k.

    The optimum for one key (Desfontaines, Voss, Gipson, Mandayam 2022): no other rule that is private with
    this ε and δ keeps a key of any number of units with a larger chance.

    >>> mechanism = TruncatedGeometricSelection.of(groups=1, epsilon=1, delta=1e-6)
    >>> print(mechanism)
    Keys whose units, with geometric noise of scale 1 within ±14, are 15 or more; at most 1 key of one unit:
    ε = 1, δ = 3.84264e-7
    >>> mechanism.min_units(0.95), round(mechanism.keep_probability(17), 3)
    (17, 0.964)

    Guarantee: G keys, each (ε, δ)-private with the δ of a key of one unit, composed: (Gε, 1 − (1 − δ)^G).
    Assumes: one unit moves at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/keys.md
    """

    epsilon: Fraction  # of one key
    cut: int
    groups: int

    kind: ClassVar[str] = "truncated-geometric-selection/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "cut", parse_integer(self.cut, "cut"))
        self._check(1 / self.epsilon)

    @classmethod
    def of(cls, *, groups: int, epsilon: Number, delta: Number, population: int | None = None) -> Self:
        """The least cut that is (ε, δ)-private, each of a unit's keys paying its share of both."""
        rate, each = _shares(groups, epsilon, delta, population)
        return cls(rate, 1 + smallest_integer(lambda more: cls(rate, 1 + more, groups).delta <= each), groups)

    def loss(self) -> PrivacyLoss:
        """That of G mechanisms which are (ε, δ)-private."""
        return PrivacyLoss.approximate(self.epsilon, self.delta) * self.groups

    @property
    def _bar(self) -> int:
        return self.cut + 1

    def _reaches(self, least: int) -> Chance:
        """(q^m − q^(k+1))/(1 + q − 2q^(k+1)) with q = e^−ε; nothing above k."""
        if least > self.cut:
            return Fraction(0), Fraction(0)
        rate = self.epsilon
        # As many bits more as the chance is small, and as cancel where q is close to 1.
        # survives: How many bits are carried is free: an enclosure from one more or less still
        # encloses.
        close = max(0, rate.denominator.bit_length() - rate.numerator.bit_length())
        # survives: How many bits are carried is free: with fewer the enclosure is wider, and still
        # encloses. How many bits are carried is free: with more the enclosure is narrower.
        bits = _BITS + close + min(_RAREST, ceil(rate * least * 3 / 2))
        one, (q, near, end) = 1 << bits, (exp_neg(rate * far, bits) for far in (1, least, self._bar))
        top = max(0, near[0] - end[1]), near[1] - end[0]
        low, high = quotient(top, (one + q[0] - 2 * end[1], one + q[1] - 2 * end[0]), bits)
        return Fraction(low, one), Fraction(high, one)

    def _noise(self, size: int) -> Integers:
        found = np.empty(0, dtype=np.int64)
        while found.size < size:
            tries = enough(2 * (size - found.size))
            drawn, minus = self._sizes(tries), uniform(2, tries)
            # Zero has one sign: the other is tried again.
            found = np.append(found, (drawn * (1 - 2 * minus))[drawn >= minus])
        return found[:size]

    def _sizes(self, size: int) -> Integers:
        """Pr[s] ∝ e^(−εs) on 0…k: a geometric variable modulo k + 1."""
        drawn = geometric(1 / self.epsilon, size)
        sizes: Integers = drawn % self._bar
        for lane in np.flatnonzero(drawn == MOST):  # cut there; it has no memory, so it goes on as it began
            sizes[lane] = (MOST + geometric(1 / self.epsilon)) % self._bar
        return sizes

    def __str__(self) -> str:
        return self._said(f"geometric noise of scale {format_up(1 / self.epsilon)} within ±{self.cut}")


@final
@dataclass(frozen=True)
class GaussianPartitionSelection(PartitionSelection):
    """Rounded Gaussian noise of standard deviation σ; a key is kept where its units plus noise reach τ.

    Where one unit has many keys it keeps rarer ones than `TruncatedGeometricSelection`: its noise grows by
    √G, not by G.

    >>> print(GaussianPartitionSelection.of(groups=30, epsilon=1, delta=1e-6))
    Keys whose units, with Gaussian noise of σ = 23.909, are 134 or more; at most 30 keys of one unit:
    ε = 0, δ = 4.48913e-7, Gaussian μ = 0.229087

    Guarantee: a Gaussian curve with μ² = G/σ², and δ = 1 − Pr[1 + noise < τ]^G beside it.
    Assumes: one unit moves at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/keys.md
    """

    sigma: Fraction
    threshold: int
    groups: int

    kind: ClassVar[str] = "gaussian-partition-selection/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", parse_positive(self.sigma, "sigma"))
        object.__setattr__(self, "threshold", parse_integer(self.threshold, "threshold", minimum=2))
        self._check(self.sigma)

    @classmethod
    def of(
        cls,
        *,
        groups: int,
        epsilon: Number,
        delta: Number,
        share: Number = 0.5,
        population: int | None = None,
    ) -> Self:
        """The least σ and threshold that are (ε, δ)-private; `share` of δ is for keys of a single unit."""
        rate, each = _shares(groups, epsilon, delta, population)
        part = parse_probability(share, "share")
        mu = largest_mu(rate * groups, (1 - part) * each * groups)
        # A double, rounded up; what is too wide stays so, and is refused.
        sigma = Fraction(round_up(min(ceil_sqrt(Fraction(groups)) / mu, Fraction(2 * MAX_SCALE))))
        # survives: They are equal only by chance, and then the threshold is one higher: δ still
        # holds.
        more = smallest_integer(lambda more: cls(sigma, 2 + more, groups).delta <= part * each)
        return cls(sigma, 2 + more, groups)

    def loss(self) -> PrivacyLoss:
        """The Gaussian curve for keys that others have too, and δ for those that only one unit has."""
        alone = PrivacyLoss.approximate(0, self.delta) * self.groups
        return PrivacyLoss.gaussian_from_mu_squared(self.groups / self.sigma**2) + alone

    @property
    def _bar(self) -> int:
        return self.threshold

    def _reaches(self, least: int) -> Chance:
        """Pr[σZ ≥ m − ½]."""
        far = (2 * least - 1) / (2 * self.sigma)
        if 5 * far**2 >= 7 * _RAREST:  # Pr[Z ≥ x] ≤ e^(−x²/2), and ln 2 < 0.7
            return Fraction(0), Fraction(1, 1 << _RAREST)
        # survives: How many bits are carried is free: with fewer the enclosure is wider, and still
        # encloses.
        bits = _BITS + ceil(far**2 * 3 / 4)
        low, high = outside(far, bits)
        return Fraction(low, 2 << bits), Fraction(high, 2 << bits)

    def _noise(self, size: int) -> Integers:
        return rounded_gaussian(self.sigma, size)

    def __str__(self) -> str:
        return self._said(f"Gaussian noise of σ = {format_up(self.sigma)}")


def choose_partition_selection(
    *, groups: int, epsilon: Number, delta: Number, population: int | None = None
) -> TruncatedGeometricSelection | GaussianPartitionSelection:
    """Geometric or Gaussian, whichever keeps a key with chance ½ from fewer units on.

    >>> one, many = (choose_partition_selection(groups=groups, epsilon=1, delta=1e-6) for groups in (1, 30))
    >>> [type(one).__name__, type(many).__name__]
    ['TruncatedGeometricSelection', 'GaussianPartitionSelection']
    """
    one = TruncatedGeometricSelection.of(groups=groups, epsilon=epsilon, delta=delta, population=population)
    other = GaussianPartitionSelection.of(groups=groups, epsilon=epsilon, delta=delta, population=population)
    return one if one.min_units(0.5) <= other.min_units(0.5) else other


def _shares(groups: Any, epsilon: Any, delta: Any, population: Any) -> tuple[Fraction, Fraction]:
    """ε and δ for each of the keys of one unit."""
    count, allowed = parse_integer(groups, "groups"), parse_probability(delta, "delta")
    refuse_large_delta(allowed, population)
    return parse_positive(epsilon, "epsilon") / count, allowed / count


# The stability-based histogram: counts of keys that are not public, shown where they are large enough.
#
# Every key that occurs has its count, with noise, and is shown with it where that reaches a bar. So the noise
# that protects a count selects its key besides: nothing but a δ is paid for that.
#
# Proved in docs/proofs/keys.md

Floats = NDArray[np.float64]

_FAR = 20.0
"""From so many σ on, tails are enclosed by their first terms."""
_UP = 1 + 2.0**-30
"""A few operations in doubles, none of which cancels, are off by far less."""


@final
@dataclass(frozen=True)
class StabilityHistogram(Mechanism):
    """Noise on the count of every key that occurs; key and noisy count are shown where that reaches a bar.

    >>> mechanism = StabilityHistogram.of(noise=Laplace.of(sensitivity=1, epsilon=1), groups=1, delta=1e-6)
    >>> print(mechanism)
    Keys with their counts, where these with noise are 15 or more; at most 1 key of one unit:
    Laplace noise of scale 1 on integers: ε = 1; δ = 6.07897e-7 for keys of one unit alone

    Guarantee: the noise's own loss, and δ: the chance that a key which one unit alone has is shown.
    Assumes: no count is below 0, a key that does not occur has 0; one unit moves the counts by the noise's
        sensitivity, all of them the same way or not at all where it is added or removed, and at most
        `groups` of them; uniform random bits.
    Proof: docs/proofs/keys.md
    """

    noise: Laplace | Gaussian
    threshold: int
    groups: int
    """How many keys' counts one unit can move: under substitution both units' keys count."""

    kind: ClassVar[str] = "stability-histogram/1"
    error_kind: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Laplace | Gaussian) or self.noise.grid is not None:
            raise InvalidInput(
                "the noise is not Laplace or Gaussian noise on integers",
                why="counts are integers, and the bar is met exactly",
                fix="pass Laplace.of(…) or Gaussian.of(…) without real=True",
            )
        object.__setattr__(self, "groups", parse_integer(self.groups, "groups"))
        # From here on the tails are convex, on which the worst case rests.
        least = math.floor(self.noise.sensitivity.linf) + 1
        object.__setattr__(self, "threshold", parse_integer(self.threshold, "threshold", minimum=least))
        if self.threshold > MAX_MAGNITUDE or self.groups > MAX_SCALE:
            raise Unsupported(
                "the bar is above 2^61, or the groups above 2^48",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon} or {delta}, or fewer groups",
            )

    @classmethod
    def of(
        cls, *, noise: Laplace | Gaussian, groups: int, delta: Number, population: int | None = None
    ) -> Self:
        """The least bar at which keys of one unit alone are shown with chance δ at most."""
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        least = math.floor(noise.sensitivity.linf) + 1
        more = smallest_integer(
            lambda more: least + more > MAX_MAGNITUDE or cls(noise, least + more, groups).delta <= allowed
        )
        return cls(noise, least + more, groups)

    @property
    def delta(self) -> Fraction:
        """The chance that a key is shown which one unit alone has, at its worst, rounded up."""
        sensitivity = self.noise.sensitivity
        largest = math.floor(sensitivity.linf)
        full, rest = divmod(math.floor(sensitivity.l1), largest) if largest else (0, 0)
        # The tail is convex: at its worst a unit has a few keys with all it may have, one with the rest.
        full = min(full, self.groups)
        parts = [(full, largest)]
        if full < self.groups:
            parts += [(1, rest), (self.groups - full - 1, 0)]
        return min(Fraction(1), sum((many * self._reaches(count)[1] for many, count in parts), Fraction(0)))

    def _reaches(self, count: int) -> tuple[Fraction, Fraction]:
        """Between which lies Pr[count + noise ≥ bar]."""
        # The law is symmetric: Pr[X ≥ m] is half of Pr[|X| > m − 1], and Pr[X ≥ −m] = 1 − Pr[X ≥ m + 1].
        away = self.threshold - count
        far = Fraction(away) / self.noise.scale
        # As many bits more as the tail is small.
        small = abs(far) if isinstance(self.noise, Laplace) else far**2 / 2
        bits = _BITS + min(_RAREST, math.ceil(small * 3 / 2))
        low, high = self.noise._beyond((away if away > 0 else 1 - away) - 1, bits)  # noqa: SLF001 - its law
        ends = Fraction(low, 2 << bits), Fraction(high, 2 << bits)
        return ends if away > 0 else (1 - ends[1], 1 - ends[0])

    def min_count(self, confidence: Number = 0.95) -> int:
        """The least count whose key is shown with at least this chance.

        >>> StabilityHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1).min_count(0.95)
        17
        """
        wanted = parse_probability(confidence, "confidence")
        return 1 + smallest_integer(lambda more: self._reaches(1 + more)[0] >= wanted)

    def loss(self) -> PrivacyLoss:
        """That of the noise for keys that others have too, and δ for those that only one unit has."""
        return self.noise.loss() + PrivacyLoss.approximate(0, self.delta)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """Counts that are shown had luck as a rule: their error depends on how far above the bar they are."""
        raise InvalidInput(
            "counts that select their keys have no single error",
            why="one just above the bar may come from any below, one far above is off as its noise is",
            fix="use interval(noisy) for counts that were shown, noise.error() for any before they are",
        )

    def release(self, value: Any) -> Release:
        """A table of the places of the keys that are shown, in order, and their noisy counts.

        The places tell how many keys lie between, so map them at once to the keys:

        >>> names = ["Bern", "Uri", "Zug"]
        >>> mechanism = StabilityHistogram.of(noise=Laplace.of(sensitivity=1, epsilon=1), groups=1,
        ...     delta=1e-6)
        >>> mechanism.release([900, 1, 800]).map(lambda found: [names[place] for place, _ in found]).value
        ['Bern', 'Zug']

        Guarantee: keys and counts together cost nobody more than `loss()`, and how many occur is not told.
        Assumes: as the mechanism.
        Proof: docs/proofs/keys.md
        """
        declared = self.noise.sensitivity
        bounded = value
        for norm in ("l1", "l2_squared", "linf"):
            bounded = check_sensitivity(bounded, declared, norm)
        counts = unwrap(bounded)
        if not isinstance(counts, np.ndarray) or counts.dtype.kind != "i":
            raise InvalidInput(
                "the value is not a list of integers",
                why="keys are shown by their counts",
                fix="pass a vector with the count of every key that occurs",
            )
        noisy: Any = add_integers(counts.astype(np.int64), self.noise._noise(counts.size))  # noqa: SLF001 - its own draws
        shown = np.flatnonzero((counts >= 1) & (noisy >= self.threshold))
        table = np.stack([shown.astype(np.int64), noisy[shown].astype(np.int64)], axis=1)
        return Release(
            table, self.loss(), self, bounded.unit, bounded.is_user_asserted, coordinates=max(1, shown.size)
        )

    def interval(self, noisy: Sequence[int] | Integers, confidence: Number = 0.95) -> tuple[Floats, Floats]:
        """Where the exact counts lie of keys that are shown, each by itself: from `low` to `high`.

        It holds of keys that are shown, which had luck as a rule: a count just above the bar may
        come from any below, and its interval says so.

        >>> mechanism = StabilityHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1)
        >>> [end.tolist() for end in mechanism.interval([15, 18, 40])]
        [[0.0, 0.0, 37.0], [18.0, 21.0, 43.0]]

        Guarantee: of a key that is shown, the exact count lies within, with at least this confidence.
        Proof: docs/proofs/keys.md
        """
        given = np.asarray(noisy) if len(noisy) else np.empty(0, dtype=np.int64)
        if given.dtype.kind != "i" or (given.size and int(given.min()) < self.threshold):
            raise Refused(
                "a noisy count is no integer, or below the bar",
                why="it would not be shown",
                fix="pass counts of a release",
            )
        rare = 1 - parse_probability(confidence, "confidence")
        # Given that it is shown a count is not lower than it would be, so this end holds all the more.
        wide = half_width(self.noise._beyond, confidence, 1)  # noqa: SLF001 - its law
        high = _double(given + wide, np.inf)

        def excluded(count: Integers) -> NDArray[np.bool_]:
            """Whether so large a noisy count of it is rare, even among those that are shown."""
            return np.asarray(_UP * self._as_large(given, count) <= float(rare / 2))

        # The chance rises with the count; 0 is never excluded, as nothing is known below 1.
        below, above = np.zeros_like(given), given.copy()
        low = np.where(excluded(np.ones_like(given)), 1, 0)
        below = np.maximum(below, low)
        while np.any(above - below > 1):
            middle = below + (above - below) // 2
            out = excluded(middle)
            below, above = np.where(out, middle, below), np.where(out, above, middle)
        return np.where(low > 0, _double(above, -np.inf), 0.0), high

    def _as_large(self, noisy: Integers, count: Integers) -> Floats:
        """Pr[count + X ≥ noisy] / Pr[count + X ≥ bar], rounded up but for the last digits."""
        over, bar = noisy - count, self.threshold - count
        if isinstance(self.noise, Laplace):
            scale = float(self.noise.scale)
            # Beyond zero both tails are powers of q: what is left is the distance from the bar.
            half = 1 / (1 + math.exp(-1 / scale))
            upper = np.exp(-np.maximum(over - np.maximum(bar, 1), 0) / scale)
            reached = np.where(bar >= 1, 1.0, 1 - half * np.exp(np.minimum(bar - 1, 0) / scale))
            inside = np.where(bar >= 1, upper, half * np.exp(-np.maximum(over, 1) / scale) / reached)
            return np.where(over >= 1, inside, 1.0)
        sigma = float(self.noise.scale)
        # Of both tails the factor e^(−x²/2) is taken out, as the difference of squares does not cancel.
        squares = (over - bar) * ((over + bar - 1) / sigma**2)
        up, down = _log_rest((over - 0.5) / sigma)[1], _log_rest((bar - 0.5) / sigma)[0]
        return np.asarray(np.exp(np.minimum(up - down - squares / 2, 0.0)))

    def __str__(self) -> str:
        many = f"at most {self.groups} key{'s' * (self.groups > 1)} of one unit"
        return (
            f"Keys with their counts, where these with noise are {self.threshold} or more; {many}: "
            f"{self.noise}; δ = {format_up(self.delta)} for keys of one unit alone"
        )


def _double(whole: Integers, away: float) -> Floats:
    """As doubles, rounded outward where they do not hold the integer."""
    near = whole.astype(np.float64)
    return np.where(np.abs(near) < 2.0**53, near, np.nextafter(near, away))


def _log_rest(x: Any) -> tuple[Floats, Floats]:
    """Between which lies ln Pr[Z ≥ x] + x²/2, but for the last digits."""
    far = np.maximum(x, _FAR)
    # φ(x)·x/(1 + x²) ≤ Pr[Z ≥ x] ≤ φ(x)/x
    constant = -math.log(2 * math.pi) / 2
    clipped = np.clip(x, -_FAR, _FAR)
    near = np.log([math.erfc(each / math.sqrt(2)) / 2 for each in clipped.tolist()]) + np.square(x) / 2
    low = np.where(x < _FAR, near, constant - np.log(far + 1 / far))
    return low, np.where(x < _FAR, near, constant - np.log(far))
