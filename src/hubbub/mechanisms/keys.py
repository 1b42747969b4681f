"""Private selection of group keys: which keys may be shown, where it is private which ones there are.

Each unit is bounded to some keys. Of every key that occurs, the number of its units gets noise, and it is
kept where that reaches a bar: never where nobody has it; of a single unit so rarely that δ pays for it.

Proof: docs/proofs/keys.md
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, final

import numpy as np

from hubbub.bounded import LARGEST, Sensitivity, unwrap
from hubbub.errors import InvalidInput, Unsupported
from hubbub.loss import Loss, largest_mu, refuse_large_delta
from hubbub.loss.normal import outside
from hubbub.mechanisms.accuracy import least_whole
from hubbub.mechanisms.mechanism import Mechanism, check_sensitivity
from hubbub.mechanisms.scores import Integers
from hubbub.noise import LARGEST_SCALE, geometric, rounded_gaussian, uniform
from hubbub.noise.real import exp_neg, quotient
from hubbub.noise.table import MOST, enough
from hubbub.rational import Number, ceil_sqrt, positive, probability, round_up, shown_up, whole
from hubbub.release import Release

__all__ = ["GaussianKeys", "GeometricKeys", "Keys", "select_keys"]

Chance: TypeAlias = tuple[Fraction, Fraction]  # between which it lies

_BITS, _RAREST = 160, 1200
"""A chance below 2^-1200 is said to be as much: no δ that is a double, shared by 2^48 keys, is as small."""


class Keys(Mechanism):
    """Abstract: a key is kept where the number of its units, plus noise of a symmetric law, reaches a bar."""

    groups: int
    """How many keys' numbers one unit can move, each by one: under substitution both units' keys count."""

    error_is: ClassVar[str] = "none"

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

    def keeps(self, units: int) -> float:
        """The chance that a key of so many units is kept, rounded down."""
        return max(0.0, -round_up(-self._chance(whole(units, "units", least=0))[0]))

    def least_units(self, confidence: Number = 0.95) -> int:
        """The least number of units whose key is kept with at least this chance."""
        wanted = probability(confidence, "confidence")
        return least_whole(lambda units: self._chance(units)[0] >= wanted)

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
        >>> release = GeometricKeys.of(groups=1, epsilon=1, delta=1e-6).release([900, 1, 800])
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
        return Release(kept, self.loss(), self, bounded.unit, bounded.is_asserted, cells=max(1, kept.size))

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """A selection of keys has no error: a key is kept or not."""
        raise InvalidInput(
            "a selection of keys has no error",
            why="a key is kept or not, and a rare one hardly ever",
            fix="use keeps(units) or least_units(confidence)",
        )

    def _check(self, scale: Fraction) -> None:
        object.__setattr__(self, "groups", whole(self.groups, "groups"))
        if max(scale, Fraction(self.groups)) > LARGEST_SCALE or self._bar > LARGEST:
            raise Unsupported(
                "the scale of the noise or the groups are above 2^48, or what is to be reached above 2^61",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="choose a larger epsilon or delta, or fewer groups",
            )

    def _said(self, noise: str) -> str:
        many = f"at most {self.groups} key{'s' * (self.groups > 1)} of one unit"
        return f"Keys whose units, with {noise}, are {self._bar} or more; {many}: {self.loss()}"


@final
@dataclass(frozen=True)
class GeometricKeys(Keys):
    """Noise with Pr[x] ∝ e^(−ε|x|) on −k…k; a key is kept where its units plus noise exceed the cut k.

    The optimum for one key (Desfontaines, Voss, Gipson, Mandayam 2022): no other rule that is private with
    this ε and δ keeps a key of any number of units with a larger chance.

    >>> mechanism = GeometricKeys.of(groups=1, epsilon=1, delta=1e-6)
    >>> print(mechanism)
    Keys whose units, with geometric noise of scale 1 within ±14, are 15 or more; at most 1 key of one unit:
    ε = 1, δ = 3.84264e-07
    >>> mechanism.least_units(0.95), round(mechanism.keeps(17), 3)
    (17, 0.964)

    Guarantee: G keys, each (ε, δ)-private with the δ of a key of one unit, composed: (Gε, 1 − (1 − δ)^G).
    Assumes: one unit moves at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/keys.md
    """

    epsilon: Fraction  # of one key
    cut: int
    groups: int

    kind: ClassVar[str] = "geometric-keys/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "cut", whole(self.cut, "cut"))
        self._check(1 / self.epsilon)

    @classmethod
    def of(cls, *, groups: int, epsilon: Number, delta: Number, population: int | None = None) -> Self:
        """The least cut that is (ε, δ)-private, each of a unit's keys paying its share of both."""
        rate, each = _shares(groups, epsilon, delta, population)
        return cls(rate, 1 + least_whole(lambda more: cls(rate, 1 + more, groups).delta <= each), groups)

    def loss(self) -> Loss:
        """That of G mechanisms which are (ε, δ)-private."""
        return Loss.approximate(self.epsilon, self.delta) * self.groups

    @property
    def _bar(self) -> int:
        return self.cut + 1

    def _reaches(self, least: int) -> Chance:
        """(q^m − q^(k+1))/(1 + q − 2q^(k+1)) with q = e^−ε; nothing above k."""
        if least > self.cut:
            return Fraction(0), Fraction(0)
        rate = self.epsilon
        # As many bits more as the chance is small, and as cancel where q is close to 1.
        close = max(0, rate.denominator.bit_length() - rate.numerator.bit_length())
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
        return self._said(f"geometric noise of scale {shown_up(1 / self.epsilon)} within ±{self.cut}")


@final
@dataclass(frozen=True)
class GaussianKeys(Keys):
    """Rounded Gaussian noise of standard deviation σ; a key is kept where its units plus noise reach τ.

    Where one unit has many keys it keeps rarer ones than `GeometricKeys`: its noise grows by √G, not by G.

    >>> print(GaussianKeys.of(groups=30, epsilon=1, delta=1e-6))
    Keys whose units, with Gaussian noise of σ = 23.909, are 134 or more; at most 30 keys of one unit:
    ε = 0, δ = 4.48913e-07, Gaussian μ = 0.229087

    Guarantee: a Gaussian curve with μ² = G/σ², and δ = 1 − Pr[1 + noise < τ]^G beside it.
    Assumes: one unit moves at most G of the numbers of units, by one each; uniform random bits.
    Proof: docs/proofs/keys.md
    """

    sigma: Fraction
    threshold: int
    groups: int

    kind: ClassVar[str] = "gaussian-keys/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive(self.sigma, "sigma"))
        object.__setattr__(self, "threshold", whole(self.threshold, "threshold", least=2))
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
        part = probability(share, "share")
        mu = largest_mu(rate * groups, (1 - part) * each * groups)
        # A double, rounded up; what is too wide stays so, and is refused.
        sigma = Fraction(round_up(min(ceil_sqrt(Fraction(groups)) / mu, Fraction(2 * LARGEST_SCALE))))
        more = least_whole(lambda more: cls(sigma, 2 + more, groups).delta <= part * each)
        return cls(sigma, 2 + more, groups)

    def loss(self) -> Loss:
        """The Gaussian curve for keys that others have too, and δ for those that only one unit has."""
        alone = Loss.approximate(0, self.delta) * self.groups
        return Loss.gaussian_squared(self.groups / self.sigma**2) + alone

    @property
    def _bar(self) -> int:
        return self.threshold

    def _reaches(self, least: int) -> Chance:
        """Pr[σZ ≥ m − ½]."""
        far = (2 * least - 1) / (2 * self.sigma)
        if 5 * far**2 >= 7 * _RAREST:  # Pr[Z ≥ x] ≤ e^(−x²/2), and ln 2 < 0.7
            return Fraction(0), Fraction(1, 1 << _RAREST)
        bits = _BITS + ceil(far**2 * 3 / 4)
        low, high = outside(far, bits)
        return Fraction(low, 2 << bits), Fraction(high, 2 << bits)

    def _noise(self, size: int) -> Integers:
        return rounded_gaussian(self.sigma, size)

    def __str__(self) -> str:
        return self._said(f"Gaussian noise of σ = {shown_up(self.sigma)}")


def select_keys(
    *, groups: int, epsilon: Number, delta: Number, population: int | None = None
) -> GeometricKeys | GaussianKeys:
    """Geometric or Gaussian, whichever keeps a key with chance ½ from fewer units on.

    >>> [type(select_keys(groups=groups, epsilon=1, delta=1e-6)).__name__ for groups in (1, 30)]
    ['GeometricKeys', 'GaussianKeys']
    """
    one = GeometricKeys.of(groups=groups, epsilon=epsilon, delta=delta, population=population)
    other = GaussianKeys.of(groups=groups, epsilon=epsilon, delta=delta, population=population)
    return one if one.least_units(0.5) <= other.least_units(0.5) else other


def _shares(groups: Any, epsilon: Any, delta: Any, population: Any) -> tuple[Fraction, Fraction]:
    """ε and δ for each of the keys of one unit."""
    count, allowed = whole(groups, "groups"), probability(delta, "delta")
    refuse_large_delta(allowed, population)
    return positive(epsilon, "epsilon") / count, allowed / count
