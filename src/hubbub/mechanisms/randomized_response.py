"""The local model: each respondent randomizes her own answer, and nobody else sees the truth.

The unit is the respondent. What a crowd of them says costs each of them the ε of her own report, and
how many hold which truth can still be estimated: the noise is known, so it is subtracted.

Proof: docs/proofs/randomized-response.md
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, parse_spendable_epsilon
from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.error_bounds import half_width, rounded_gaussian_tail
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.noise import bernoulli, uniform
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import Number, ceil_sqrt, parse_integer, parse_probability, round_up
from hubbub.release import Release
from hubbub.sensitivity import Bounded, unwrap
from hubbub.unit import Neighbours, Unit

__all__ = ["Estimate", "RandomizedResponse", "UnaryEncoding"]

_RESPONDENT = Unit("respondent", Neighbours.SUBSTITUTE)
_MOST_CATEGORIES = 1 << 24
_MOST_REPORTED = 1 << 33
"""So many bits, one byte each, are made at once at most."""
# survives: How many coins are tossed at a time is free.
_COINS = 1 << 20
"""Coins at a time: each takes eight bytes until it has fallen."""
_WIDER = 1 + 1e-6
"""By so much z² is raised where doubles, good to 1e-9, search for the end of an interval."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """How many respondents hold each truth: unbiased counts, and where the true counts lie."""

    counts: NDArray[np.float64]
    """Right on average; may be below 0 or above the number of respondents."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: Fraction
    """With which each true count lies between low and high, or all of them where asked together."""


class _Local(Mechanism):
    """Abstract: a report that counts for a category with one probability if it is the truth, else another."""

    error_kind: ClassVar[str] = "none"

    categories: int

    @property
    @abstractmethod
    def _rates(self) -> tuple[Fraction, Fraction]:
        """(p, q): how probably a report counts for a category that is the truth, and for one that is not."""

    @property
    @abstractmethod
    def _ways(self) -> int:
        """Of how many categories the intervals can fail one without the other."""

    @abstractmethod
    def _randomized(self, truths: NDArray[np.int64]) -> NDArray[Any]:
        """One report for each truth, by work that does not depend on it."""

    @abstractmethod
    def _tallied(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """How many reports count for each category, and how many there are."""

    def release(self, value: Any) -> Release:
        """Reports of respondents' truths: one category's index, or a vector with one index each.

        Guarantee: whoever sees all reports learns about each respondent's truth no more than `loss()`.
        Assumes: one entry is one respondent, who is not in another vector; uniform random bits.
        Proof: docs/proofs/randomized-response.md
        """
        truth = _indices(value)
        truths = np.atleast_1d(np.asarray(truth, dtype=np.int64))
        if truths.size and (truths.min() < 0 or truths.max() >= self.categories):
            raise InvalidInput(
                "an answer is not one of the categories",
                why=f"they are numbered from 0 to {self.categories - 1}",
                fix="pass the index of each respondent's category, or raise categories",
            )
        reports = self._randomized(truths)
        shown = reports if isinstance(truth, np.ndarray) else reports[0]
        if isinstance(shown, np.integer):
            shown = int(shown)
        coordinates = max(1, truths.size)
        return Release(
            shown, self.loss(), self, _RESPONDENT, user_asserted=False, model="local", coordinates=coordinates
        )

    # survives: It refuses whatever it is asked.
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """A report has no error: it may be anything, whatever the truth is."""
        raise InvalidInput(
            "a report has no error of its own",
            why="only what is estimated from many of them comes close to the truth",
            fix="use estimate_error(respondents) beforehand, or the interval of estimate(reports)",
        )

    def estimate(self, reports: Any, *, confidence: Number = 0.95, simultaneous: bool = False) -> Estimate:
        """How many respondents hold each truth, from their reports: post-processing, so it is free.

        With `simultaneous` all intervals hold at once, else each by itself.

        Guarantee: counts are unbiased; intervals hold with at least this confidence, for every truth.
        Assumes: the reports are this mechanism's, all of them, unchanged.
        Proof: docs/proofs/randomized-response.md
        """
        sure = parse_probability(confidence, "confidence")
        reach = _reach(sure, self._ways if simultaneous else 1)
        if isinstance(reports, Release):
            if reports.source != self or reports.post_processed:
                raise InvalidInput(
                    "the release is another mechanism's, or was post-processed",
                    why="its reports do not follow this mechanism's law",
                    fix="ask the mechanism that made it, with the release as it was",
                )
            reports = reports.value
        counts, respondents = self._tallied(np.asarray(reports))
        if not respondents:
            raise InvalidInput("there are no reports", why="nothing can be estimated", fix="pass reports")
        p, q = self._rates
        low = _mean_above(counts, respondents, reach)
        rest = _mean_above(respondents - counts, respondents, reach)

        def held(rate: Fraction) -> Fraction:
            return respondents * (rate - q) / (p - q)

        return Estimate(
            np.array([float(held(Fraction(int(count), respondents))) for count in counts]),
            np.array([max(0.0, -round_up(-held(Fraction(rate)))) for rate in low]).clip(max=respondents),
            np.array([min(respondents, round_up(held(1 - Fraction(rate)))) for rate in rest]).clip(min=0.0),
            sure,
        )

    def estimate_error(
        self, respondents: int, confidence: Number = 0.95, *, simultaneous: bool = False
    ) -> float:
        """How far an estimated count will be off at most, known before anybody has answered.

        Guarantee: each count (with `simultaneous`, all) is within it, with at least this confidence.
        Proof: docs/proofs/randomized-response.md
        """
        reach = _reach(parse_probability(confidence, "confidence"), self._ways if simultaneous else 1)
        count = parse_integer(respondents, "respondents")
        p, q = self._rates
        # A count of reports is off by at most 1 + z·√(n·v), where v ≤ 1/4 bounds the variance of one; where
        # even the truth is rare, that keeps the count where v is smaller, and so on.
        rate = Fraction(1, 2)
        # survives: Every round gives a bound; one more makes it tighter by next to nothing.
        for _ in range(5):
            off = 1 + ceil_sqrt(reach**2 * count * rate * (1 - rate))
            rate = min(Fraction(1, 2), p + off / count)
        return round_up(off / (p - q))


@dataclass(frozen=True)
class RandomizedResponse(_Local):
    """The truth with probability `keep`, else one of the other categories at random.

    >>> mechanism = RandomizedResponse.coin()
    >>> print(mechanism)
    Randomized response, the truth with probability 0.75, else one of 1 other: ε = 1.09862
    >>> answers = mechanism.release([0, 1, 1, 0])
    >>> answers.model, answers.value.shape
    ('local', (4,))
    >>> mechanism.estimate([1] * 750 + [0] * 250).counts.tolist()
    [0.0, 1000.0]

    Guarantee: ε-differential privacy with ε = ln(keep·(k − 1)/(1 − keep)) for each respondent.
    Assumes: one report of each respondent; uniform random bits.
    Proof: docs/proofs/randomized-response.md
    """

    keep: Fraction
    """The probability that a report is the truth."""
    categories: int = 2

    kind: ClassVar[str] = "randomized-response/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", parse_probability(self.keep, "keep"))
        object.__setattr__(self, "categories", _checked_categories(self.categories))
        if self.keep * self.categories <= 1:
            raise InvalidInput(
                "keep is not above 1/categories",
                why="the report would tell nothing, or rather what the truth is not",
                fix="pass a larger keep",
            )

    @classmethod
    def of(cls, *, epsilon: Number, categories: int = 2, allow_large_epsilon: bool = False) -> Self:
        """The most truthful randomized response with this ε: keep = e^ε/(e^ε + k − 1), rounded down."""
        count = _checked_categories(categories)
        others = (count - 1) * exp_neg(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), 192)[1]
        # survives: By how much the rate is moved to the private side is free, if it is more than
        # losses are rounded up by.
        keep = Fraction((((1 << 384) // ((1 << 192) + others)) - (1 << 92)) >> 128, 1 << 64)
        if keep * count <= 1:
            raise _too_little()
        return cls(keep, count)

    @classmethod
    def coin(cls) -> Self:
        """The textbook's: toss a coin; heads, tell the truth; tails, toss again and say what it says."""
        return cls(Fraction(3, 4), 2)

    def loss(self) -> PrivacyLoss:
        """Pure ε of each respondent, rounded up."""
        return PrivacyLoss.randomized_response(self.keep, self.categories)

    def loss_at(self, outcome: int, value: int, neighbour: int) -> float:
        """The privacy loss of one report: ln Pr[outcome if the truth is value] − ln Pr[… neighbour].

        >>> round(RandomizedResponse.coin().loss_at(1, 1, 0), 6)
        1.098612
        """
        for name, given in (("outcome", outcome), ("value", value), ("neighbour", neighbour)):
            if parse_integer(given, name, minimum=0) >= self.categories:
                raise InvalidInput(
                    f"{name} is not a category",
                    why=f"each is an index from 0 to {self.categories - 1}",
                    fix="pass such an index",
                )
        odds = math.log(self.keep * (self.categories - 1) / (1 - self.keep))
        return odds * ((outcome == value) - (outcome == neighbour))

    @property
    def _rates(self) -> tuple[Fraction, Fraction]:
        return self.keep, (1 - self.keep) / (self.categories - 1)

    @property
    def _ways(self) -> int:
        # Of two categories each is what the other leaves: their intervals hold or fail as one.
        return 1 if self.categories == 2 else self.categories

    def _randomized(self, truths: NDArray[np.int64]) -> NDArray[np.int64]:
        truthful = bernoulli(self.keep, truths.size)
        other = uniform(self.categories - 1, truths.size)
        other += other >= truths
        return np.where(truthful, truths, other)

    def _tallied(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        each = np.atleast_1d(reports)
        if each.ndim != 1 or each.dtype.kind not in "iu" or (each.size and not self._is_valid(each)):
            raise InvalidInput(
                "the reports are not a vector of categories",
                why=f"each is an index from 0 to {self.categories - 1}",
                fix="pass what release() gave",
            )
        return np.bincount(each.astype(np.int64), minlength=self.categories), each.size

    def _is_valid(self, reports: NDArray[Any]) -> bool:
        return bool(reports.min() >= 0 and reports.max() < self.categories)

    def __str__(self) -> str:
        return (
            f"Randomized response, the truth with probability {float(self.keep):.6g}, "
            f"else one of {self.categories - 1} other{'s' if self.categories > 2 else ''}: {self.loss()}"
        )


@dataclass(frozen=True)
class UnaryEncoding(_Local):
    """A bit for each category, each randomized by itself: the better choice where categories are many.

    >>> mechanism = UnaryEncoding.of(epsilon=1, categories=100)
    >>> print(mechanism)
    Unary encoding of 100 categories, a one kept with probability 0.5, made of a zero with 0.268941: ε = 1
    >>> mechanism.release([7, 99]).value.shape
    (2, 100)

    Guarantee: ε-differential privacy with ε = ln(p(1 − q)/(q(1 − p))) for each respondent.
    Assumes: one report of each respondent; uniform random bits.
    Proof: docs/proofs/randomized-response.md
    """

    q: Fraction
    """The probability that a zero becomes a one."""
    categories: int
    p: Fraction = Fraction(1, 2)
    """The probability that a one stays a one; 1/2 makes the estimates best."""

    kind: ClassVar[str] = "unary-encoding/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", parse_probability(self.q, "q"))
        object.__setattr__(self, "p", parse_probability(self.p, "p"))
        object.__setattr__(self, "categories", _checked_categories(self.categories))
        if self.q >= self.p:
            raise InvalidInput(
                "q is not below p",
                why="a one would tell nothing, or rather what the truth is not",
                fix="pass a smaller q or a larger p",
            )

    @classmethod
    def of(cls, *, epsilon: Number, categories: int, allow_large_epsilon: bool = False) -> Self:
        """The encoding with this ε that estimates best: p = 1/2 and q = 1/(e^ε + 1), rounded up."""
        count = _checked_categories(categories)
        ones = exp_neg(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), 192)[1]
        # survives: By how much the rate is moved to the private side is free, if it is more than
        # losses are rounded up by.
        above = -(-(ones << 192) // ((1 << 192) + ones)) + (1 << 92)
        q = Fraction(-(-above >> 128), 1 << 64)
        if 2 * q >= 1:
            raise _too_little()
        return cls(q, count)

    def loss(self) -> PrivacyLoss:
        """Pure ε of each respondent, rounded up."""
        return _pure(self.p * (1 - self.q) / (self.q * (1 - self.p)))

    @property
    def _rates(self) -> tuple[Fraction, Fraction]:
        return self.p, self.q

    @property
    def _ways(self) -> int:
        return self.categories

    def _randomized(self, truths: NDArray[np.int64]) -> NDArray[np.bool_]:
        if truths.size * self.categories > _MOST_REPORTED:
            raise Unsupported(
                "the reports take more than 2^33 bits",
                why="each is held as a byte in memory",
                fix="release fewer respondents at a time",
            )
        reports = np.empty((truths.size, self.categories), dtype=np.bool_)
        # survives: How many coins are tossed at a time is free.
        rows = max(1, _COINS // self.categories)
        for start in range(0, truths.size, rows):
            part = reports[start : start + rows]
            part[:] = bernoulli(self.q, part.size).reshape(part.shape)
            part[np.arange(len(part)), truths[start : start + rows]] = bernoulli(self.p, len(part))
        return reports

    def _tallied(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        each = np.atleast_2d(reports)
        if each.ndim != 2 or each.dtype.kind != "b" or each.shape[1] != self.categories:
            raise InvalidInput(
                "the reports are not a table of bits",
                why=f"each is a row of {self.categories} booleans, one for each category",
                fix="pass what release() gave",
            )
        return each.sum(axis=0), len(each)

    def __str__(self) -> str:
        return (
            f"Unary encoding of {self.categories} categories, a one kept with probability "
            f"{float(self.p):.6g}, made of a zero with {float(self.q):.6g}: {self.loss()}"
        )


def _indices(value: Any) -> int | NDArray[np.int64]:
    """What was given as indices, checked as every value is; its sensitivity is of no account here."""
    if isinstance(value, Bounded):
        raise InvalidInput(
            "the value is a Bounded one",
            why="in the local model each respondent's own answer is randomized, not an aggregate",
            fix="pass the indices themselves, or use Laplace or Gaussian for the aggregate",
        )
    # survives: The sensitivity is not looked at.
    exact = unwrap(Bounded.user_asserted(value, 1))
    if isinstance(exact, int):
        return exact
    if isinstance(exact, np.ndarray) and exact.dtype.kind == "i":
        # survives: A copy of the answers is the same answers.
        return exact.astype(np.int64, copy=False)
    raise InvalidInput(
        "the answers are not whole numbers",
        why="each is the index of a category",
        fix="pass an integer, or a list or array of integers",
    )


def _checked_categories(categories: Any) -> int:
    count = parse_integer(categories, "categories", minimum=2)
    if count > _MOST_CATEGORIES:
        raise Unsupported(
            "there are more than 2^24 categories",
            why="one count is kept for each",
            fix="group them, or hash them into fewer",
        )
    return count


def _too_little() -> Unsupported:
    return Unsupported(
        "epsilon is too small",
        why="in 64 bits the report would not depend on the truth at all",
        fix="choose a larger epsilon, 1e-12 or more",
    )


def _pure(odds: Fraction) -> PrivacyLoss:
    """ε = ln odds, rounded up."""
    return PrivacyLoss.pure(Fraction(log(odds, 128)[1], 1 << 128))


@lru_cache(maxsize=256)
def _reach(confidence: Fraction, ways: int) -> Fraction:
    """The z with Pr[|Z| ≥ z] ≤ (1 − confidence)/ways, to nine digits, rounded up."""
    sure = 1 - (1 - confidence) / ways
    wide = half_width(partial(rounded_gaussian_tail, Fraction(1 << 30)), sure, 1)
    # survives: A reach that is rounded up by 2^-31 more is still one.
    return Fraction(2 * wide + 1, 1 << 31)


def _mean_above(counts: NDArray[np.int64], of: int, reach: Fraction) -> NDArray[np.float64]:
    """The largest mean that a sum of independent bits, seen to be `counts` of `of`, is sure to be above.

    Where n·H(x, m) ≥ z²/2 with x = (count − 1)/n > m, as many or more have probability Φ(−z) at most.
    """
    enough = float(reach) ** 2 / (2 * of) * _WIDER
    some = counts > 1  # of none, or of one, nothing follows
    x, rest = (counts[some] - 1) / of, (of + 1 - counts[some]) / of
    low, high = np.zeros_like(x), x
    # survives: The end that is kept is on the far side, however far the bisection went.
    for _ in range(64):
        middle = (low + high) / 2
        gap = x - middle
        # ln(x/middle): near 0 by the gap, which is exact there; else by the ratio, which never is 0.
        by_gap, by_ratio = -np.log1p(-np.minimum(gap / x, 0.5)), -np.log(middle / x)
        # survives: In between both ways to the logarithm are good.
        entropy = x * np.where(gap < x / 2, by_gap, by_ratio) - rest * np.log1p(gap / rest)
        # survives: The millionth by which the square of z is raised covers what doubles lose, and
        # so the one that is equal.
        is_sure = entropy >= enough
        low, high = np.where(is_sure, middle, low), np.where(is_sure, high, middle)
    means = np.zeros(counts.shape)
    means[some] = low
    return means
