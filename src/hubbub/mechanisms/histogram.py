"""The stability-based histogram: counts of keys that are not public, shown where they are large enough.

Every key that occurs has its count, with noise, and is shown with it where that reaches a bar. So the noise
that protects a count selects its key besides: nothing but a δ is paid for that.

Proof: docs/proofs/keys.md
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NoReturn, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import LARGEST, unwrap
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.loss import Loss, refuse_large_delta
from hubbub.mechanisms.accuracy import half_width, least_whole
from hubbub.mechanisms.additive import Gaussian, Laplace
from hubbub.mechanisms.mechanism import Mechanism, check_sensitivity
from hubbub.noise import LARGEST_SCALE
from hubbub.noise.grid import add_integers
from hubbub.rational import Number, probability, shown_up, whole
from hubbub.release import Release

__all__ = ["StableHistogram"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS, _RAREST = 160, 1200
"""No δ that is a double, shared by 2^48 keys, is below 2^-1200."""
_FAR = 20.0
"""From so many σ on, tails are enclosed by their first terms."""
_UP = 1 + 2.0**-30
"""A few operations in doubles, none of which cancels, are off by far less."""


@final
@dataclass(frozen=True)
class StableHistogram(Mechanism):
    """Noise on the count of every key that occurs; key and noisy count are shown where that reaches a bar.

    >>> mechanism = StableHistogram.of(noise=Laplace.of(sensitivity=1, epsilon=1), groups=1, delta=1e-6)
    >>> print(mechanism)
    Keys with their counts, where these with noise are 15 or more; at most 1 key of one unit:
    Laplace noise of scale 1 on integers: ε = 1; δ = 6.07897e-07 for keys of one unit alone

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

    kind: ClassVar[str] = "stable-histogram/1"
    error_is: ClassVar[str] = "none"

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Laplace | Gaussian) or self.noise.grid is not None:
            raise InvalidInput(
                "the noise is not Laplace or Gaussian noise on integers",
                why="counts are integers, and the bar is met exactly",
                fix="pass Laplace.of(…) or Gaussian.of(…) without real=True",
            )
        object.__setattr__(self, "groups", whole(self.groups, "groups"))
        # From here on the tails are convex, on which the worst case rests.
        least = math.floor(self.noise.sensitivity.linf) + 1
        object.__setattr__(self, "threshold", whole(self.threshold, "threshold", least=least))
        if self.threshold > LARGEST or self.groups > LARGEST_SCALE:
            raise Unsupported(
                "the bar is above 2^61, or the groups above 2^48",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="choose a larger epsilon or delta, or fewer groups",
            )

    @classmethod
    def of(
        cls, *, noise: Laplace | Gaussian, groups: int, delta: Number, population: int | None = None
    ) -> Self:
        """The least bar at which keys of one unit alone are shown with chance δ at most."""
        allowed = probability(delta, "delta")
        refuse_large_delta(allowed, population)
        least = math.floor(noise.sensitivity.linf) + 1
        more = least_whole(
            lambda more: least + more > LARGEST or cls(noise, least + more, groups).delta <= allowed
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

    def least_count(self, confidence: Number = 0.95) -> int:
        """The least count whose key is shown with at least this chance.

        >>> StableHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1).least_count(0.95)
        17
        """
        wanted = probability(confidence, "confidence")
        return 1 + least_whole(lambda more: self._reaches(1 + more)[0] >= wanted)

    def loss(self) -> Loss:
        """That of the noise for keys that others have too, and δ for those that only one unit has."""
        return self.noise.loss() + Loss.approximate(0, self.delta)

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
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
        >>> mechanism = StableHistogram.of(noise=Laplace.of(sensitivity=1, epsilon=1), groups=1, delta=1e-6)
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
        return Release(table, self.loss(), self, bounded.unit, bounded.is_asserted, cells=max(1, shown.size))

    def interval(self, noisy: Sequence[int] | Integers, confidence: Number = 0.95) -> tuple[Floats, Floats]:
        """Where the exact counts lie of keys that are shown, each by itself: from `low` to `high`.

        It holds of keys that are shown, which had luck as a rule: a count just above the bar may
        come from any below, and its interval says so.

        >>> mechanism = StableHistogram(Laplace.of(sensitivity=1, epsilon=1), 15, 1)
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
        rare = 1 - probability(confidence, "confidence")
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
            f"{self.noise}; δ = {shown_up(self.delta)} for keys of one unit alone"
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
