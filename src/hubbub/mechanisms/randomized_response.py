"""The local model: each respondent randomizes their own answer, and nobody else sees the truth.

The unit is the respondent. All reports together cost each respondent the ε of their own report. The true
counts can still be estimated, because the law of the noise is known.

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
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.noise_tails import half_width, rounded_gaussian_tail
from hubbub.noise import bernoulli, uniform
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import (
    Number,
    ceil_sqrt,
    format_nearest,
    parse_integer,
    parse_probability,
    round_down,
    round_up,
)
from hubbub.release import Release
from hubbub.sensitivity import Bounded, unwrap
from hubbub.unit import Neighbours, Unit

__all__ = ["Estimate", "LocalMechanism", "RandomizedResponse", "UnaryEncoding"]

_RESPONDENT = Unit("respondent", Neighbours.SUBSTITUTE)
_MAX_CATEGORIES = 1 << 24
_MAX_BITS = 1 << 33
"""The maximum number of bits of one release; each takes a byte."""
# survives: How many coins are tossed at a time is free.
_CHUNK = 1 << 20
"""The number of coins drawn at a time; each needs eight random bytes."""
_ROUNDING_SLACK = 1 + 1e-6
"""z² is raised by this factor where an end of an interval is found in doubles, which are good to 1e-9."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimated counts of each category, with confidence intervals."""

    counts: NDArray[np.float64]
    """Unbiased; may be below 0 or above the number of respondents."""
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    confidence: Fraction
    """The probability that each true count (if simultaneous, every one) lies between low and high."""


class LocalMechanism(Mechanism):
    """Abstract: a report supports the true category with probability p, and any other with probability q."""

    error_kind: ClassVar[str] = "none"

    categories: int

    @property
    @abstractmethod
    def _report_probabilities(self) -> tuple[Fraction, Fraction]:
        """(p, q): the probability that a report supports the true category, and any other one."""

    @property
    @abstractmethod
    def _independent_categories(self) -> int:
        """The number of categories with intervals that can fail separately."""

    @abstractmethod
    def _randomize(self, truths: NDArray[np.int64]) -> NDArray[Any]:
        """Draw one report for each truth, in a time that does not depend on it."""

    @abstractmethod
    def _tally(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        """Return the number of reports that support each category, and the number of reports."""

    def release(self, value: Any) -> Release:
        """Release randomized reports.

        Args:
            value: the index of one respondent's category, or a vector with one index per respondent.

        Guarantee: all reports together cost each respondent at most `loss()`.
        Assumes: one entry is one respondent, who is in no other vector; uniform random bits.
        Proof: docs/proofs/randomized-response.md
        """
        truth = _indices(value)
        truths = np.atleast_1d(np.asarray(truth, dtype=np.int64))
        if truths.size and (truths.min() < 0 or truths.max() >= self.categories):
            raise InvalidInput(
                "an answer is not one of the categories",
                why=f"categories are numbered from 0 to {self.categories - 1}",
                fix="pass the index of each respondent's category, or more categories",
            )
        reports = self._randomize(truths)
        answer = reports if isinstance(truth, np.ndarray) else reports[0]
        if isinstance(answer, np.integer):
            answer = int(answer)
        coordinates = max(1, truths.size)
        return Release(
            answer,
            self.loss(),
            self,
            _RESPONDENT,
            user_asserted=False,
            model="local",
            coordinates=coordinates,
        )

    # survives: It refuses whatever it is asked.
    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:  # noqa: ARG002 - as every mechanism's
        """Refuse: a report may be any category, whatever the truth is."""
        raise InvalidInput(
            "a report has no error of its own",
            why="only an estimate from many reports is close to the truth",
            fix="use estimate_error(respondents) in advance, or the interval of estimate(reports)",
        )

    def estimate(self, reports: Any, *, confidence: Number = 0.95, simultaneous: bool = False) -> Estimate:
        """Estimate the number of respondents in each category. It is post-processing, so it costs nothing.

        Args:
            reports: a release of this mechanism, or its value.
            confidence: the probability with which the intervals hold, at least.
            simultaneous: if true, all intervals hold at once.

        Guarantee: counts are unbiased, and intervals hold with at least this confidence, whatever the truth.
        Assumes: `reports` are all reports of this mechanism, unchanged.
        Proof: docs/proofs/randomized-response.md
        """
        sure = parse_probability(confidence, "confidence")
        quantile = _normal_quantile(sure, self._independent_categories if simultaneous else 1)
        if isinstance(reports, Release):
            if reports.source != self or reports.post_processed:
                raise InvalidInput(
                    "the release is another mechanism's, or was post-processed",
                    why="its reports do not follow this mechanism's law",
                    fix="pass the unprocessed release to the mechanism that made it",
                )
            reports = reports.value
        counts, respondents = self._tally(np.asarray(reports))
        if not respondents:
            raise InvalidInput(
                "there are no reports", why="nothing can be estimated", fix="pass a report or more"
            )
        p, q = self._report_probabilities
        low = _lower_bound_of_mean(counts, respondents, quantile)
        rest = _lower_bound_of_mean(respondents - counts, respondents, quantile)

        def unbias(rate: Fraction) -> Fraction:
            return respondents * (rate - q) / (p - q)

        return Estimate(
            np.array([float(unbias(Fraction(int(count), respondents))) for count in counts]),
            np.array([max(0.0, round_down(unbias(Fraction(rate)))) for rate in low]).clip(max=respondents),
            np.array([min(respondents, round_up(unbias(1 - Fraction(rate)))) for rate in rest]).clip(min=0.0),
            sure,
        )

    def estimate_error(
        self, respondents: int, confidence: Number = 0.95, *, simultaneous: bool = False
    ) -> float:
        """Return a bound on the error of an estimated count, before any report is made.

        Guarantee: each error (if simultaneous, every one) is within the bound with at least this confidence.
        Proof: docs/proofs/randomized-response.md
        """
        quantile = _normal_quantile(
            parse_probability(confidence, "confidence"), self._independent_categories if simultaneous else 1
        )
        count = parse_integer(respondents, "respondents")
        p, q = self._report_probabilities
        # A count of reports is off by at most 1 + z·√(n·v), where v ≤ 1/4 bounds the variance of one
        # report. If even the true category is rarely reported, the rate is small, so v is, and the bound is
        # iterated.
        rate = Fraction(1, 2)
        # survives: Every round gives a bound; one more makes it tighter by next to nothing.
        for _ in range(5):
            off = 1 + ceil_sqrt(quantile**2 * count * rate * (1 - rate))
            rate = min(Fraction(1, 2), p + off / count)
        return round_up(off / (p - q))


@dataclass(frozen=True, repr=False)
class RandomizedResponse(LocalMechanism):
    """Randomized response: the truth with probability `keep`, else one of the other categories at random.

    >>> mechanism = RandomizedResponse.coin()
    >>> print(mechanism)
    Randomized response, the truth with probability 0.75, else one of 1 other: ε = 1.09862
    >>> answers = mechanism.release([0, 1, 1, 0])
    >>> answers.model, answers.value.shape
    ('local', (4,))
    >>> mechanism.estimate([1] * 750 + [0] * 250).counts.tolist()
    [0.0, 1000.0]

    Guarantee: ε-differential privacy with ε = ln(keep·(k − 1)/(1 − keep)) for each respondent.
    Assumes: one report per respondent; uniform random bits.
    Proof: docs/proofs/randomized-response.md
    """

    keep: Fraction
    """The probability that a report is the truth."""
    categories: int = 2

    kind: ClassVar[str] = "randomized-response/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", parse_probability(self.keep, "keep"))
        object.__setattr__(self, "categories", _check_categories(self.categories))
        if self.keep * self.categories <= 1:
            raise InvalidInput(
                "keep is not above 1/categories",
                why="a report would not favour the truth",
                fix="pass a larger keep",
            )

    @classmethod
    def of(cls, *, epsilon: Number, categories: int = 2, allow_large_epsilon: bool = False) -> Self:
        """Make the most truthful randomized response with this ε: keep = e^ε/(e^ε + k − 1), rounded down.

        Args:
            epsilon: the ε of each respondent.
            categories: the number k of possible answers.
            allow_large_epsilon: confirms an ε that protects almost nobody.
        """
        count = _check_categories(categories)
        others = (count - 1) * exp_neg(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), 192)[1]
        # survives: By how much the rate is moved to the private side is free, if it is more than
        # losses are rounded up by.
        keep = Fraction((((1 << 384) // ((1 << 192) + others)) - (1 << 92)) >> 128, 1 << 64)
        if keep * count <= 1:
            raise _epsilon_too_small()
        return cls(keep, count)

    @classmethod
    def coin(cls) -> Self:
        """Make Dwork & Roth's: on heads tell the truth; on tails flip again and report that coin."""
        return cls(Fraction(3, 4), 2)

    def loss(self) -> PrivacyLoss:
        """Return the loss of each respondent: pure ε, rounded up."""
        return PrivacyLoss.randomized_response(self.keep, self.categories)

    def loss_at(self, outcome: int, value: int, neighbour: int) -> float:
        """Return the privacy loss of a report: ln Pr[outcome | value] − ln Pr[outcome | neighbour].

        Args:
            outcome: the reported category.
            value: the true category.
            neighbour: the other category that it could have been.

        >>> round(RandomizedResponse.coin().loss_at(1, 1, 0), 6)
        1.098612
        """
        for name, index in (("outcome", outcome), ("value", value), ("neighbour", neighbour)):
            if parse_integer(index, name, minimum=0) >= self.categories:
                raise InvalidInput(
                    f"{name} is not a category",
                    why=f"each is an index from 0 to {self.categories - 1}",
                    fix="pass such an index",
                )
        odds = math.log(self.keep * (self.categories - 1) / (1 - self.keep))
        return odds * ((outcome == value) - (outcome == neighbour))

    @property
    def _report_probabilities(self) -> tuple[Fraction, Fraction]:
        return self.keep, (1 - self.keep) / (self.categories - 1)

    @property
    def _independent_categories(self) -> int:
        # With two categories each count determines the other, so their intervals hold or fail together.
        return 1 if self.categories == 2 else self.categories

    def _randomize(self, truths: NDArray[np.int64]) -> NDArray[np.int64]:
        truthful = bernoulli(self.keep, truths.size)
        other = uniform(self.categories - 1, truths.size)
        other += other >= truths
        return np.where(truthful, truths, other)

    def _tally(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        each = np.atleast_1d(reports)
        if each.ndim != 1 or each.dtype.kind not in "iu" or (each.size and not self._is_valid(each)):
            raise InvalidInput(
                "the reports are not a vector of categories",
                why=f"each is an index from 0 to {self.categories - 1}",
                fix="pass the value of release()",
            )
        return np.bincount(each.astype(np.int64), minlength=self.categories), each.size

    def _is_valid(self, reports: NDArray[Any]) -> bool:
        return bool(reports.min() >= 0 and reports.max() < self.categories)

    def __str__(self) -> str:
        return (
            f"Randomized response, the truth with probability {format_nearest(self.keep)}, "
            f"else one of {self.categories - 1} other{'s' if self.categories > 2 else ''}: {self.loss()}"
        )


@dataclass(frozen=True, repr=False)
class UnaryEncoding(LocalMechanism):
    """Unary encoding: one bit per category, each randomized by itself. Better for many categories.

    >>> mechanism = UnaryEncoding.of(epsilon=1, categories=100)
    >>> print(mechanism)
    Unary encoding of 100 categories, Pr[1 → 1] = 0.5, Pr[0 → 1] = 0.268941: ε = 1
    >>> mechanism.release([7, 99]).value.shape
    (2, 100)

    Guarantee: ε-differential privacy with ε = ln(p(1 − q)/(q(1 − p))) for each respondent.
    Assumes: one report per respondent; uniform random bits.
    Proof: docs/proofs/randomized-response.md
    """

    q: Fraction
    """The probability that a zero becomes a one."""
    categories: int
    p: Fraction = Fraction(1, 2)
    """The probability that a one stays a one; 1/2 gives the best estimates."""

    kind: ClassVar[str] = "unary-encoding/1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", parse_probability(self.q, "q"))
        object.__setattr__(self, "p", parse_probability(self.p, "p"))
        object.__setattr__(self, "categories", _check_categories(self.categories))
        if self.q >= self.p:
            raise InvalidInput(
                "q is not below p",
                why="a report would not favour the truth",
                fix="pass a smaller q or a larger p",
            )

    @classmethod
    def of(cls, *, epsilon: Number, categories: int, allow_large_epsilon: bool = False) -> Self:
        """Make the encoding with this ε and the best estimates: p = 1/2 and q = 1/(e^ε + 1), rounded up.

        Args:
            epsilon: the ε of each respondent.
            categories: the number of possible answers.
            allow_large_epsilon: confirms an ε that protects almost nobody.
        """
        count = _check_categories(categories)
        ones = exp_neg(parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), 192)[1]
        # survives: By how much the rate is moved to the private side is free, if it is more than
        # losses are rounded up by.
        above = -(-(ones << 192) // ((1 << 192) + ones)) + (1 << 92)
        q = Fraction(-(-above >> 128), 1 << 64)
        if 2 * q >= 1:
            raise _epsilon_too_small()
        return cls(q, count)

    def loss(self) -> PrivacyLoss:
        """Return the loss of each respondent: pure ε, rounded up."""
        return _pure(self.p * (1 - self.q) / (self.q * (1 - self.p)))

    @property
    def _report_probabilities(self) -> tuple[Fraction, Fraction]:
        return self.p, self.q

    @property
    def _independent_categories(self) -> int:
        return self.categories

    def _randomize(self, truths: NDArray[np.int64]) -> NDArray[np.bool_]:
        if truths.size * self.categories > _MAX_BITS:
            raise Unsupported(
                "the reports take more than 2^33 bits",
                why="each takes a byte of memory",
                fix="release fewer respondents at a time",
            )
        reports = np.empty((truths.size, self.categories), dtype=np.bool_)
        # survives: How many coins are tossed at a time is free.
        rows = max(1, _CHUNK // self.categories)
        for start in range(0, truths.size, rows):
            part = reports[start : start + rows]
            part[:] = bernoulli(self.q, part.size).reshape(part.shape)
            part[np.arange(len(part)), truths[start : start + rows]] = bernoulli(self.p, len(part))
        return reports

    def _tally(self, reports: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
        each = np.atleast_2d(reports)
        if each.ndim != 2 or each.dtype.kind != "b" or each.shape[1] != self.categories:
            raise InvalidInput(
                "the reports are not a table of bits",
                why=f"each is a row of {self.categories} booleans, one for each category",
                fix="pass the value of release()",
            )
        return each.sum(axis=0), len(each)

    def __str__(self) -> str:
        return (
            f"Unary encoding of {self.categories} categories, Pr[1 → 1] = {format_nearest(self.p)}, "
            f"Pr[0 → 1] = {format_nearest(self.q)}: {self.loss()}"
        )


def _indices(value: Any) -> int | NDArray[np.int64]:
    """Return the indices, checked as every value is. Their sensitivity is not used."""
    if isinstance(value, Bounded):
        raise InvalidInput(
            "the value is a Bounded",
            why="the local model randomizes each respondent's answer, not an aggregate",
            fix="pass the indices, or use Laplace or Gaussian for the aggregate",
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


def _check_categories(categories: Any) -> int:
    count = parse_integer(categories, "categories", minimum=2)
    if count > _MAX_CATEGORIES:
        raise Unsupported(
            "there are more than 2^24 categories",
            why="each category has a count in memory",
            fix="group them, or hash them into fewer categories",
        )
    return count


def _epsilon_too_small() -> Unsupported:
    return Unsupported(
        "epsilon is too small",
        why="in 64 bits the report would not depend on the truth",
        fix="choose a larger epsilon, 1e-12 or more",
    )


def _pure(odds: Fraction) -> PrivacyLoss:
    """ε = ln odds, rounded up."""
    return PrivacyLoss.pure(Fraction(log(odds, 128)[1], 1 << 128))


@lru_cache(maxsize=256)
def _normal_quantile(confidence: Fraction, categories: int) -> Fraction:
    """Return the z with Pr[|Z| ≥ z] ≤ (1 − confidence)/categories, to nine digits, rounded up."""
    sure = 1 - (1 - confidence) / categories
    wide = half_width(partial(rounded_gaussian_tail, Fraction(1 << 30)), sure, 1)
    # survives: A quantile that is rounded up by 2^-31 more is still one.
    return Fraction(2 * wide + 1, 1 << 31)


def _lower_bound_of_mean(counts: NDArray[np.int64], of: int, quantile: Fraction) -> NDArray[np.float64]:
    """Return a lower confidence bound of the mean of `of` independent bits, `counts` of which are one.

    If n·KL(x, m) ≥ z²/2 with x = (count − 1)/n > m, then `count` or more ones have probability at most Φ(−z).
    """
    divergence = float(quantile) ** 2 / (2 * of) * _ROUNDING_SLACK
    some = counts > 1  # zero or one ones bound nothing
    x, rest = (counts[some] - 1) / of, (of + 1 - counts[some]) / of
    low, high = np.zeros_like(x), x
    # survives: The end that is kept is on the far side, however far the bisection went.
    for _ in range(64):
        middle = (low + high) / 2
        gap = x - middle
        # ln(x/middle): near 0 by the gap, which is exact there; else by the ratio, which never is 0.
        by_gap, by_ratio = -np.log1p(-np.minimum(gap / x, 0.5)), -np.log(middle / x)
        # survives: In between both ways to compute the logarithm are good.
        entropy = x * np.where(gap < x / 2, by_gap, by_ratio) - rest * np.log1p(gap / rest)
        # survives: The millionth by which the square of z is raised covers what doubles lose, and
        # so the one that is equal.
        is_sure = entropy >= divergence
        low, high = np.where(is_sure, middle, low), np.where(is_sure, high, middle)
    means = np.zeros(counts.shape)
    means[some] = low
    return means
