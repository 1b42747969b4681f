"""Group keys that are selected by the total of their own noisy parts: means and sums need no other selection.

An aggregate such as AVG releases several non-negative integers for each key, parts of one that add up to the
rows of the key. Their noise protects the parts, and the noisy total selects the key: no ε is spent on that.

Proof: docs/proofs/partition-selection.md
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NoReturn, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, refuse_large_delta
from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.laplace_gaussian import Gaussian, Laplace
from hubbub.mechanisms.mechanism import Integers, Mechanism, check_sensitivity
from hubbub.mechanisms.noise_tails import laplace_sum_tail, smallest_integer
from hubbub.noise import MAX_SCALE
from hubbub.noise.enclosures import normal_tail
from hubbub.noise.float_grid import add_integers
from hubbub.numbers import Number, ceil_sqrt, format_up, parse_integer, parse_probability
from hubbub.release import Release
from hubbub.sensitivity import MAX_MAGNITUDE, unwrap

__all__ = ["VectorStabilityHistogram"]

_BITS, _MAX_TAIL_BITS = 160, 1200
"""A probability below 2^-1200 is rounded up to it."""
_RAREST = Fraction(1, 1 << 990)
"""Intervals are taken at 1 minus this at most: there are none within 2^-1000 of 1."""
_MAX_PARTS = 64
_EVEN, _RARE = Fraction(1, 2), Fraction(1, 2**10)
"""Probabilities of release by which intervals are widened, besides that of a key of total 1."""
_HALF_BITS = 32


@final
@dataclass(frozen=True, repr=False)
class VectorStabilityHistogram(Mechanism):
    """The stability-based histogram of vectors: keys with a noisy total of parts at or above a threshold.

    >>> from hubbub.sensitivity import Sensitivity
    >>> noise = Laplace.of(sensitivity=Sensitivity(1), epsilon=1)
    >>> mechanism = VectorStabilityHistogram.of(noise=noise, max_groups=1, parts=2, key_total=1, delta=1e-6)
    >>> print(mechanism)
    Group keys with a noisy total of 2 parts of 17 or more; at most 1 group per unit:
    Laplace noise of scale 1 on integers: ε = 1; δ = 6.80338e-7 for keys of a single unit

    Guarantee: the loss of the noise, composed with δ: the probability that a key of a single unit is
        released.
    Assumes: parts are not negative, and all 0 for a key that does not occur; one unit moves the parts of at
        most `max_groups` keys, within the sensitivity of the noise, and the total of one key by at most
        `key_total`, all in one direction if it is added or removed; uniform random bits.
    Proof: docs/proofs/partition-selection.md
    """

    noise: Laplace | Gaussian
    threshold: int
    max_groups: int
    """The maximum number of groups that one unit can change; under substitution, of both units."""
    parts: int
    """Number of integers of a key."""
    key_total: int
    """By how much one unit can move the total of one key."""

    kind: ClassVar[str] = "vector-stability-histogram/1"
    error_kind: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Laplace | Gaussian) or self.noise.grid is not None:
            raise InvalidInput(
                "the noise is not Laplace or Gaussian noise on integers",
                why="totals are integers and are compared exactly with the threshold",
                fix="pass Laplace.of(…) or Gaussian.of(…) without real=True",
            )
        for name in ("max_groups", "parts", "key_total"):
            object.__setattr__(self, name, parse_integer(getattr(self, name), name))
        # From here on the tails are convex; the proof of δ needs that.
        threshold = parse_integer(self.threshold, "threshold", minimum=self.key_total + 1)
        object.__setattr__(self, "threshold", threshold)
        if threshold > MAX_MAGNITUDE or self.max_groups > MAX_SCALE or self.parts > _MAX_PARTS:
            raise Unsupported(
                "the threshold is above 2^61, max_groups above 2^48, or there are more than 64 parts",
                why="the law would no longer be exact in 64 bits",
                fix="choose a larger {epsilon} or {delta}, or fewer groups",
            )

    @classmethod
    def of(
        cls,
        *,
        noise: Laplace | Gaussian,
        max_groups: int,
        parts: int,
        key_total: int,
        delta: Number,
        population: int | None = None,
    ) -> Self:
        """Make the histogram with the least threshold at which keys of a single unit cost at most δ.

        Args:
            noise: the noise of each coordinate.
            max_groups: the maximum number of groups that one unit can change.
            parts: the number of coordinates of a key.
            key_total: the largest total that one unit can give a key of its own.
            delta: the δ for keys of a single unit.
            population: the public number of units, if known; δ must then be below 1/population.
        """
        allowed = parse_probability(delta, "delta")
        refuse_large_delta(allowed, population)
        minimum = parse_integer(key_total, "key_total") + 1

        def fits(more: int) -> bool:
            threshold = minimum + more
            return (
                threshold > MAX_MAGNITUDE
                or cls(noise, threshold, max_groups, parts, key_total).delta <= allowed
            )

        return cls(noise, minimum + smallest_integer(fits), max_groups, parts, key_total)

    @property
    def delta(self) -> Fraction:
        """The largest probability that a key of a single unit is released, rounded up."""
        full, rest = divmod(math.floor(self.noise.sensitivity.l1), self.key_total)
        # The tail is convex, so in the worst case some keys have the largest total, one the rest, others 0.
        full = min(full, self.max_groups)
        corners = [(full, self.key_total)]
        if full < self.max_groups:
            corners += [(1, rest), (self.max_groups - full - 1, 0)]
        chance = sum((many * self._tail(self.threshold - total)[1] for many, total in corners), Fraction(0))
        return min(Fraction(1), chance)

    def _tail(self, m: int) -> tuple[Fraction, Fraction]:
        """Enclose Pr[noise of the total ≥ m]."""
        if m <= 0:  # the law is symmetric: Pr[S ≥ −m] = 1 − Pr[S ≥ m + 1]
            low, high = self._tail(1 - m)
            return 1 - high, 1 - low
        rarest = Fraction(1, 1 << _MAX_TAIL_BITS)
        if isinstance(self.noise, Laplace):
            # Pr[S ≥ m] ≤ 2^parts·e^(−m/2·scale), by Chernoff's bound; and ln 2 < 0.7.
            if 5 * m >= 7 * (_MAX_TAIL_BITS + self.parts) * self.noise.scale:
                return Fraction(0), rarest
            bits = _BITS + min(_MAX_TAIL_BITS, math.ceil(Fraction(m) / self.noise.scale * 3 / 2))
            ends = laplace_sum_tail(self.noise.scale, self.parts, m - 1, bits)
            return Fraction(ends[0], 2 << bits), max(Fraction(ends[1], 2 << bits), rarest)
        # Each rounded draw is within ½ of its Gaussian, and the sum of these has variance parts · σ².
        up, down = (self._normal_tail(m + sign * Fraction(self.parts, 2), sign) for sign in (1, -1))
        return up[0], down[1]

    def _normal_tail(self, m: Fraction, sign: int) -> tuple[Fraction, Fraction]:
        """Enclose Pr[√parts·σ·Z ≥ m], from below if the sign is 1, from above if it is −1."""
        if m < 0:
            low, high = self._normal_tail(-m, -sign)
            return 1 - high, 1 - low
        root = ceil_sqrt(Fraction(self.parts))
        far = m / (self.noise.scale * (root if sign < 0 else self.parts / root))
        if 5 * far**2 >= 7 * _MAX_TAIL_BITS:  # Pr[Z ≥ x] ≤ e^(−x²/2), and ln 2 < 0.7
            return Fraction(0), Fraction(1, 1 << _MAX_TAIL_BITS)
        bits = _BITS + math.ceil(far**2 * 3 / 4)
        ends = normal_tail(far, bits)
        return Fraction(ends[0], 2 << bits), Fraction(ends[1], 2 << bits)

    def min_count(self, confidence: Number = 0.95) -> int:
        """Return the least total at which a key is released with at least this probability.

        >>> from hubbub.sensitivity import Sensitivity
        >>> noise = Laplace.of(sensitivity=Sensitivity(1), epsilon=1)
        >>> VectorStabilityHistogram(noise, 17, 1, 2, 1).min_count(0.95)
        20
        """
        level = parse_probability(confidence, "confidence")
        return 1 + smallest_integer(lambda more: self._tail(self.threshold - 1 - more)[0] >= level)

    def loss(self) -> PrivacyLoss:
        """Return the loss of the noise, composed with δ for keys of a single unit."""
        return self.noise.loss() + PrivacyLoss.approximate(0, self.delta)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """Refuse: the error of a released part depends on how far above the threshold its total is."""
        raise InvalidInput(
            "a stability-based histogram has no single error",
            why="keys are released only if noise lifts them above the threshold",
            fix="use noise.error() before the release, and levels(confidence) for released keys",
        )

    def release(self, value: Any) -> Release[NDArray[np.int64]]:
        """Release a table with the positions of the released keys, sorted, and their noisy parts.

        The positions reveal how many keys lie between them, so map them to the keys at once.

        Args:
            value: a vector with the parts of every key that occurs, one key after the other.

        Guarantee: keys and parts together cost nobody more than `loss()`, and the number of keys that
            occur is not revealed.
        Assumes: the same as the mechanism.
        Proof: docs/proofs/partition-selection.md
        """
        bounded = value
        for norm in ("l1", "l2_squared", "linf"):
            bounded = check_sensitivity(bounded, self.noise.sensitivity, norm)
        integers = unwrap(bounded)
        if not isinstance(integers, np.ndarray) or integers.dtype.kind != "i" or integers.size % self.parts:
            raise InvalidInput(
                "the value is not a list of integers, or has a key without all its parts",
                why="keys are released by the totals of their parts",
                fix="pass a vector with the parts of every key that occurs, one key after the other",
            )
        exact = integers.astype(np.int64).reshape(-1, self.parts)
        draws = self.noise._draw_noise(integers.size)  # noqa: SLF001 - its own draws
        noisy = np.asarray(add_integers(exact.reshape(-1), draws)).astype(np.int64).reshape(exact.shape)
        positions = np.flatnonzero((exact > 0).any(axis=1) & self._reaches(noisy, self.threshold))
        table = np.hstack([positions.astype(np.int64)[:, np.newaxis], noisy[positions]])
        return Release(
            table,
            self.loss(),
            self,
            bounded.unit,
            bounded.is_user_asserted,
            coordinates=max(1, positions.size),
        )

    @staticmethod
    def _reaches(noisy: Integers, least: int) -> NDArray[np.bool_]:
        """Return where the total of a row is `least` or more; the total may need more than 64 bits."""
        mask = (1 << _HALF_BITS) - 1
        low = (noisy & mask).sum(axis=1)
        high = (noisy >> _HALF_BITS).sum(axis=1) + (low >> _HALF_BITS)
        low &= mask
        top, rest = least >> _HALF_BITS, least & mask
        return np.asarray((high > top) | ((high == top) & (low >= rest)))

    def levels(self, noisy: Integers, confidence: Number = 0.95) -> list[tuple[Fraction, NDArray[np.bool_]]]:
        """Return pairs of a confidence and the released keys with intervals that are to be taken at it.

        A plain interval, as without any selection, at this larger confidence holds at `confidence` given that
        the key is released.

        Args:
            noisy: the released parts, a row for each key.
            confidence: the confidence of intervals, given that a key is released.

        Guarantee: given that a key is released, its interval holds with at least this confidence.
        Assumes: intervals at a larger confidence contain those at a smaller one.
        Proof: docs/proofs/partition-selection.md
        """
        half = (1 - parse_probability(confidence, "confidence")) / 2
        left = np.ones(len(noisy), dtype=np.bool_)
        out = []
        for chance in (_EVEN, _RARE):
            # The least total released with this probability, and from where on smaller ones are excluded.
            total = self.threshold - self._last_tail_from(chance)
            if total <= 1:
                break
            near = half * self._tail(self.threshold - total + 1)[0]
            if not near:  # one step less is released with a chance below 2^-1200: no count excludes it
                break
            start = total - 1 + self._first_tail_below(near)
            inside = left & self._reaches(noisy, start)
            out.append((_confidence(half * self._tail(self.threshold - total)[0]), inside))
            left = left & ~inside
        out.append((_confidence(half * self._tail(self.threshold - 1)[0]), left))
        return out

    def _last_tail_from(self, chance: Fraction) -> int:
        """Return the largest m ≥ 0 with Pr[noise of the total ≥ m] at least this chance, or 0."""
        return smallest_integer(lambda m: self._tail(1 + m)[0] < chance)

    def _first_tail_below(self, chance: Fraction) -> int:
        """Return the least m ≥ 0 with Pr[noise of the total ≥ m] at most this chance."""
        return smallest_integer(lambda m: self._tail(m)[1] <= chance)

    def __str__(self) -> str:
        bound = f"at most {self.max_groups} group{'s' * (self.max_groups > 1)} per unit"
        return (
            f"Group keys with a noisy total of {self.parts} parts of {self.threshold} or more; {bound}: "
            f"{self.noise}; δ = {format_up(self.delta)} for keys of a single unit"
        )


def _confidence(rare: Fraction) -> Fraction:
    """Return 1 − rare, rounded up to few bits; what is rarer than 2^-990 counts as this much."""
    rare = max(rare, _RAREST)
    bits = 20 + max(0, rare.denominator.bit_length() - rare.numerator.bit_length())
    least = max(1, math.floor(rare * (1 << bits)))
    return 1 - Fraction(least, 1 << bits)
