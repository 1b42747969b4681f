"""Private selection: report the candidate with about the highest score.

Scores are integers with ℓ∞ sensitivity Δ: one unit may move every score, each by at most Δ. The mechanisms
share one rate r: ε/2Δ in general, and ε/Δ for monotone scores, which adding a unit never lowers. Counts are
monotone under add/remove; no scores are monotone under substitution.

Proof: docs/proofs/selection.md
"""

from abc import abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, parse_spendable_epsilon
from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.additive_mechanism import AdditiveMechanism
from hubbub.mechanisms.mechanism import (
    Integers,
    Mechanism,
    add_laplace_noise,
    check_integer_sensitivity,
    check_scores,
    check_sensitivity,
    computed_once,
    laplace_difference_tail,
    make_release,
)
from hubbub.mechanisms.noise_tails import smallest_integer
from hubbub.noise import MAX_SCALE, bernoulli_exp_each
from hubbub.noise.enclosures import exp_neg, log
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.numbers import Number, format_up, parse_integer, parse_positive, parse_probability
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity

__all__ = [
    "Exponential",
    "PermuteAndFlip",
    "ReportNoisyMax",
    "ReportNoisyMaxWithGap",
    "SelectAndMeasure",
    "Selection",
    "TopK",
    "WinnerWithGap",
    "WinnerWithScore",
    "select_and_measure",
]


class WinnerWithGap(NamedTuple):
    """A selected candidate, and by how much less its noisy score would still have won."""

    winner: int
    gap: int


@dataclass(frozen=True, repr=False)
class Selection(Mechanism):
    """Abstract: selects one of several candidates by integer scores."""

    sensitivity: Sensitivity
    """The largest move of a score by one unit: its ℓ∞ norm counts."""
    epsilon: Fraction
    monotone: bool = False
    """True if adding a unit never lowers a score: user-asserted."""

    error_kind: ClassVar[str] = "regret"

    _has_bounded_range: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_integer_sensitivity(self.sensitivity, self.monotone)
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        self._check_scale()

    def _check_scale(self) -> None:
        """Refuse a scale that cannot be sampled exactly; coins and weights can be, at any rate."""

    @classmethod
    def of(
        cls,
        *,
        sensitivity: Sensitivity | Number,
        epsilon: Number,
        monotone: bool = False,
        allow_large_epsilon: bool = False,
    ) -> Self:
        """Make the mechanism with this ε.

        Args:
            sensitivity: how far one unit can move each score, in ℓ∞.
            epsilon: the ε of one release.
            monotone: true if adding a unit never lowers a score; it halves the noise.
            allow_large_epsilon: confirms a large ε, as for `Budget`.
        """
        return cls(
            Sensitivity.of(sensitivity), parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), monotone
        )

    @cached_property
    def rate(self) -> Fraction:
        """r: the rate at which the probability of a candidate falls with its distance from the best."""
        return self.epsilon / (self.sensitivity.linf * (1 if self.monotone else 2))

    @property
    def rho(self) -> Fraction:
        """The ρ of zCDP of one release: ε²/8 if its range is bounded by ε, else ε²/2 as for any pure ε.

        Only the exponential mechanism has bounded range: between two neighbours its log-ratios lie in one
        interval of length ε. Those of permute-and-flip and report noisy max do not.

        >>> Exponential.of(sensitivity=1, epsilon=1).rho, PermuteAndFlip.of(sensitivity=1, epsilon=1).rho
        (Fraction(1, 8), Fraction(1, 2))
        """
        return self.epsilon**2 / (8 if self._has_bounded_range else 2)

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return the loss: bounded range ε for the exponential mechanism, else pure ε."""
        return (
            PrivacyLoss.bounded_range(self.epsilon)
            if self._has_bounded_range
            else PrivacyLoss.pure(self.epsilon)
        )

    def release(self, value: Any) -> Release[int]:
        """Select by a Bounded vector of integer scores, or a list with user-asserted sensitivity."""
        bounded, scores = check_scores(value, self.sensitivity, monotone=self.monotone)
        return make_release(self, self._select(scores), bounded, monotone=self.monotone)

    def release_many(self, value: Any, count: int) -> Release[Any]:
        """Select `count` times, independently: a list, as one release with the loss of all."""
        times = parse_integer(count, "count")
        bounded, scores = check_scores(value, self.sensitivity, monotone=self.monotone)
        selected = [self._select(scores) for _ in range(times)]
        release = make_release(self, selected, bounded, monotone=self.monotone)
        return replace(release, loss=release.loss * times)

    @abstractmethod
    def _select(self, scores: Integers) -> int | WinnerWithGap:
        """Return the value to be released."""

    def _describe_scores(self) -> str:
        moves = "raises" if self.monotone else "moves"
        bound = f"at most {format_up(self.sensitivity.linf)}"
        return f"integer scores that one unit {moves} by {bound}: {self.loss()}"


@final
@dataclass(frozen=True, repr=False)
class PermuteAndFlip(Selection):
    """Permute-and-flip: coins with Pr[heads] = e^(−r·(best − score)), and one of the heads at random.

    The same as visiting the candidates in random order and stopping at the first head, because the order is
    independent of the coins. Here all coins are flipped, so that the running time does not reveal the first
    head.

    >>> mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    11
    >>> print(mechanism)
    Permute-and-flip on integer scores that one unit moves by at most 1: ε = 0.5

    Guarantee: ε-differential privacy; the regret is never larger than the exponential mechanism's.
    Assumes: between neighbours each score moves by at most Δ (monotone: all in one direction); uniform
        random bits. It is ε²/2-zCDP, not ε²/8-zCDP: for zCDP use `Exponential`.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "permute-and-flip/1"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates."""
        level = parse_probability(confidence, "confidence")
        # Half the exponential mechanism's odds, where that is the better bound.
        return _regret(self.rate, _others(coordinates) * min(Fraction(1, 2), level) / (1 - level))

    def _select(self, scores: Integers) -> int:
        return _first_in_random_order(bernoulli_exp_each(self.rate, scores.max() - scores))

    def __str__(self) -> str:
        return f"Permute-and-flip on {self._describe_scores()}"


@final
@dataclass(frozen=True, repr=False)
class Exponential(Selection):
    """The exponential mechanism: each candidate with probability proportional to e^(r·score).

    Sampled by inversion of one uniform number U. Floats decide only where U is far from every edge; otherwise
    integers decide, with as many digits of U as it takes. So no weight underflows, however far apart the
    scores are.

    >>> mechanism = Exponential.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([0, 10**12, -(10**12)]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    14
    >>> print(mechanism)
    Exponential mechanism on integer scores that one unit moves by at most 1: ε = 0.5

    Guarantee: ε-differential privacy, and ε²/8-zCDP (bounded range ε).
    Assumes: between neighbours each score moves by at most Δ (monotone: all in one direction); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "exponential/1"

    _has_bounded_range: ClassVar[bool] = True

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates.

        It is tight: attained by one candidate ahead and all others equally far behind.
        """
        level = parse_probability(confidence, "confidence")
        return _regret(self.rate, _others(coordinates) * level / (1 - level))

    def _select(self, scores: Integers) -> int:
        gaps = scores.max() - scores
        with np.errstate(under="ignore"):
            # For the float filter e^-700 is 0; integers decide close cases.
            # survives: Where the floats of the filter are cut is free: e^-699 is far below the
            # margin, too.
            power = np.minimum(float(min(self.rate, Fraction(700))) * gaps.astype(np.float64), 700.0)
        edges = np.concatenate([[0.0], np.cumsum(np.exp(-power))])
        u = random_bits(64)
        at = (u >> 11) * 2.0**-53 * edges[-1]
        margin = edges[-1] * (scores.size + 16) * 2.0**-48
        # survives: The errors are proved to be below the margin, so at the margin either way
        # decides the same.
        if np.abs(edges - at).min() > margin:
            return int(np.searchsorted(edges, at)) - 1
        return _locate_by_integers(u, self.rate, gaps.tolist())

    def __str__(self) -> str:
        return f"Exponential mechanism on {self._describe_scores()}"


@dataclass(frozen=True, repr=False)
class _NoisyMax(Selection):
    """Abstract: the largest score after discrete Laplace noise of scale 1/r on each."""

    @cached_property
    def _scale(self) -> Fraction:
        return 1 / self.rate

    def _check_scale(self) -> None:
        if self.rate * MAX_SCALE < 1:
            raise Unsupported(
                "the noise is wider than 2^48",
                why="its law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon",
            )

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates.

        A union bound over the candidates that are that far behind and overtake the best one by noise.
        """
        allowed = 1 - parse_probability(confidence, "confidence")
        others = _others(coordinates)
        # survives: How many spare bits are carried is free: what is rounded up from one more or
        # less is still a bound.
        bits = 192 + others.bit_length() + allowed.denominator.bit_length()
        # survives: A bound rounded up from an irrational number does not meet a rational one.
        return smallest_integer(lambda m: others * laplace_difference_tail(self.rate, m + 1, bits) <= allowed)


@final
@dataclass(frozen=True, repr=False)
class ReportNoisyMax(_NoisyMax):
    """Report noisy max: the index of the largest score after discrete Laplace noise of scale 1/r on each.

    The scale is 2Δ/ε in general and Δ/ε for monotone scores. Integers tie; an independent random order breaks
    ties. The noisy score is not released and would not be free: see `ReportNoisyMaxWithGap` and
    `select_and_measure`.

    >>> mechanism = ReportNoisyMax.of(sensitivity=1, epsilon=0.5, monotone=True)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    8
    >>> print(mechanism)
    Report noisy max with Laplace noise of scale 2 on integer scores that one unit raises by at most 1: ε =
    0.5

    Guarantee: ε-differential privacy.
    Assumes: between neighbours each score moves by at most Δ (monotone: all in one direction); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "report-noisy-max/1"

    def _select(self, scores: Integers) -> int:
        noisy = add_laplace_noise(scores, self._scale)
        return _first_in_random_order(noisy == noisy[noisy.argmax()])

    def __str__(self) -> str:
        scale = format_up(1 / self.rate)
        return f"Report noisy max with Laplace noise of scale {scale} on {self._describe_scores()}"


@final
@dataclass(frozen=True, repr=False)
class ReportNoisyMaxWithGap(_NoisyMax):
    """Report noisy max with gap: for the same ε, also by how much less the noisy score would still have won.

    That is the distance to the runner-up, minus one if the runner-up would win a tie. On integers the plain
    distance is not private if ties are broken in a fixed order, as by argmax: a distance of 0 reveals who
    may be tied with the winner, and the winner's noise does not hide it. For random tie-breaking we know
    neither a proof nor a violation, so the plain distance is not released.

    >>> mechanism = ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1)
    >>> winner, gap = mechanism.release([10, 10_000, 20]).value
    >>> winner, 9_000 < gap < 11_000
    (1, True)
    >>> print(mechanism)
    Report noisy max with gap, Laplace noise of scale 2 on integer scores that one unit moves by at most 1:
    ε = 1

    Guarantee: ε-differential privacy, of index and gap together.
    Assumes: between neighbours each score moves by at most Δ (monotone: all in one direction); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "report-noisy-max-with-gap/1"

    if TYPE_CHECKING:

        def release(self, value: Any) -> Release[WinnerWithGap]:  # type: ignore[override]
            """Release the winner with its gap."""

    def _select(self, scores: Integers) -> WinnerWithGap:
        if scores.size < 2:
            raise InvalidInput(
                "there is only one candidate",
                why="a gap is the lead over another candidate",
                fix="pass two scores or more, or use ReportNoisyMax",
            )
        noisy, order = add_laplace_noise(scores, self._scale), _random_order(scores.size)
        # survives: Any number below 0 is below all priorities.
        index = int(np.where(noisy == noisy[noisy.argmax()], order, -1).argmax())
        # The score that the winner needed: that of each other one, plus one if that one wins ties.
        # survives: They differ at the winner only, which is then left out.
        needed = np.delete(noisy + (order > order[index]), index).max()
        return WinnerWithGap(index, int(noisy[index]) - int(needed))

    def __str__(self) -> str:
        scale = format_up(1 / self.rate)
        return f"Report noisy max with gap, Laplace noise of scale {scale} on {self._describe_scores()}"


def _others(coordinates: Any) -> int:
    return parse_integer(coordinates, "coordinates") - 1


def _regret(rate: Fraction, odds: Fraction) -> int:
    """Return the least m ≥ 0 with odds·e^(−rate·(m+1)) ≤ 1, by a logarithm rounded up."""
    # survives: The logarithm of 1, rounded up, is one unit: the answer is 0 as well.
    if odds <= 1:
        return 0
    return ceil(Fraction(log(odds, 128)[1], 1 << 128) / rate) - 1


def _random_priorities(count: int) -> Integers:
    """Return independent uniform numbers of 63 bits."""
    return (np.frombuffer(random_bytes(8 * count), dtype=np.uint64) >> np.uint64(1)).view(np.int64)


def _random_order(count: int) -> Integers:
    """Return distinct numbers in uniformly random order, independent of the scores."""
    while True:
        priorities = _random_priorities(count)
        ordered = np.sort(priorities)
        # They are independent and identically distributed: if no two are equal, all orders are equally
        # likely.
        if not (ordered[1:] == ordered[:-1]).any():
            return priorities


def _first_in_random_order(among: NDArray[np.bool_]) -> int:
    """Return one of the candidates in `among`, each with the same probability."""
    while True:
        # All candidates get a priority, so that the work does not depend on how many are in `among`.
        # survives: Any number below 0 is below all priorities.
        priorities = np.where(among, _random_priorities(among.size), -1)
        first = priorities.argmax()
        # Only the highest must be unique: given that, it is anybody's with the same probability.
        if np.count_nonzero(priorities == priorities[first]) == 1:
            return int(first)


def _locate_by_integers(u: int, rate: Fraction, gaps: list[int]) -> int:
    """Return the j with W₀ + … + Wⱼ₋₁ ≤ U·W < W₀ + … + Wⱼ for weights e^(−rate·gap), from 64 bits of U on."""
    bits = 64
    while True:
        # survives: With fewer bits more digits of U are read, with more bits fewer; what is decided
        # is the same. With fewer bits more digits of U are read; what is decided is the same.
        work = bits + len(gaps).bit_length() + 8
        weight = {gap: exp_neg(rate * gap, work) for gap in set(gaps)}
        lows = list(accumulate(weight[gap][0] for gap in gaps))
        highs = list(accumulate(weight[gap][1] for gap in gaps))
        # All edges before this candidate's are at or below U; is its own above?
        place = bisect_right(highs, u * lows[-1] >> bits)
        # survives: Where they differ more digits of U are read; what is decided is the same.
        if (u + 1) * highs[-1] <= lows[place] << bits:
            return place
        # survives: Random bits come by whole bytes: 65 are 64.
        u, bits = u << 64 | random_bits(64), bits + 64


# Composed selections: the k best, and a winner with its noisy score (docs/proofs/selection.md).


class WinnerWithScore(NamedTuple):
    """A selected candidate, and its score with fresh noise."""

    winner: int
    score: int | float


@final
@dataclass(frozen=True, repr=False)
class TopK(Mechanism):
    """The k best candidates by peeling: select one, remove it, select again.

    >>> mechanism = TopK(PermuteAndFlip.of(sensitivity=1, epsilon=0.5), k=2)
    >>> mechanism.release([10, 10_000, 20_000]).value
    [2, 1]
    >>> print(mechanism)
    Top 2 by peeling, each round: Permute-and-flip on integer scores that one unit moves by at most 1: ε =
    0.5; in total ε = 1

    Guarantee: kε-differential privacy.
    Assumes: the same as one round. Removing a published candidate moves no other score.
    Proof: docs/proofs/selection.md
    """

    mechanism: PermuteAndFlip | Exponential | ReportNoisyMax
    k: int

    kind: ClassVar[str] = "top-k/1"
    error_kind: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        _check_index_only(self.mechanism)
        object.__setattr__(self, "k", parse_integer(self.k, "k"))

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return k times the loss of one round."""
        return self.mechanism.loss() * self.k

    @property
    def rho(self) -> Fraction:
        """The ρ of zCDP of one release: k times that of one round."""
        return self.mechanism.rho * self.k

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of every round at once.

        The i-th selected score then also lies within it of the i-th best of all `coordinates` scores.
        """
        self._check_enough(parse_integer(coordinates, "coordinates"))
        failure = (1 - parse_probability(confidence, "confidence")) / self.k
        return self.mechanism.error(1 - failure, coordinates=coordinates)

    def release(self, value: Any) -> Release[list[int]]:
        """Release the k selected indices, in the order of selection."""
        inner = self.mechanism
        bounded, scores = check_scores(value, inner.sensitivity, monotone=inner.monotone)
        self._check_enough(scores.size)
        left = np.arange(scores.size)
        selected: list[int] = []
        for _ in range(self.k):
            place = inner._select(scores[left])  # noqa: SLF001 - a round is a selection not yet released
            selected.append(int(left[place]))
            left = np.delete(left, place)
        return make_release(self, selected, bounded, monotone=inner.monotone)

    def _check_enough(self, candidates: int) -> None:
        if candidates < self.k:
            raise InvalidInput(
                f"k is {self.k}, and the number of candidates is {candidates}",
                why="a candidate is selected at most once",
                fix="pass a smaller k, or more candidates",
            )

    def __str__(self) -> str:
        return f"Top {self.k} by peeling, each round: {self.mechanism}; in total {self.loss()}"


@final
@dataclass(frozen=True, repr=False)
class SelectAndMeasure(Mechanism):
    """A selection, then the selected score with fresh additive noise.

    Guarantee: the sum of the two losses.
    Assumes: the same as the two mechanisms. The noise that selected the score is not reused.
    Proof: docs/proofs/selection.md
    """

    select: PermuteAndFlip | Exponential | ReportNoisyMax
    measure: AdditiveMechanism

    kind: ClassVar[str] = "select-and-measure/1"
    error_kind: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        _check_index_only(self.select)
        if not isinstance(self.measure, AdditiveMechanism):
            raise InvalidInput(
                f"measure is of type {type(self.measure).__name__}",
                why="a score is measured with additive noise",
                fix="pass Laplace.of(…) or Gaussian.of(…)",
            )

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return the sum of the losses of selection and measurement."""
        return self.select.loss() + self.measure.loss()

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret; the error of the score is `measure.error(confidence)`."""
        return self.select.error(confidence, coordinates=coordinates)

    def release(self, value: Any) -> Release[WinnerWithScore]:
        """Release the index of the winner and its noisy score."""
        bounded, scores = check_scores(value, self.select.sensitivity, monotone=self.select.monotone)
        # One score moves by at most the ℓ∞ of all; checked before anything is selected.
        one = Sensitivity(bounded.sensitivity.linf)
        norm = self.measure._norm  # noqa: SLF001 - the measurement checks it too, but too late
        # survives: Only the sensitivity of this stand-in is looked at.
        check_sensitivity(Bounded(0, one, bounded.unit, bounded.derivation), self.measure.sensitivity, norm)
        index = self.select._select(scores)  # noqa: SLF001 - released below, together with its score
        score = self.measure.release(Bounded(int(scores[index]), one, bounded.unit, bounded.derivation)).value
        return make_release(self, WinnerWithScore(index, score), bounded, monotone=self.select.monotone)

    def __str__(self) -> str:
        return f"{self.select}; then its score with {self.measure}; in total {self.loss()}"


def select_and_measure(
    scores: Any, select: PermuteAndFlip | Exponential | ReportNoisyMax, measure: AdditiveMechanism
) -> Release[WinnerWithScore]:
    """Select a candidate and measure its score with fresh noise.

    Args:
        scores: a Bounded vector of integer scores, or a list with user-asserted sensitivity.
        select: the mechanism that selects.
        measure: the mechanism that measures.

    >>> from hubbub.mechanisms import Laplace
    >>> select = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> release = select_and_measure([10, 10_000, 20], select, Laplace.of(sensitivity=1, epsilon=0.25))
    >>> release.value.winner, 9_000 < release.value.score < 11_000, str(release.loss)
    (1, True, 'ε = 0.75')

    Guarantee: the sum of the two losses.
    Assumes: the same as the two mechanisms.
    Proof: docs/proofs/selection.md
    """
    return SelectAndMeasure(select, measure).release(scores)


def _check_index_only(mechanism: Any) -> None:
    if not isinstance(mechanism, (PermuteAndFlip, Exponential, ReportNoisyMax)):
        raise InvalidInput(
            f"the selection is of type {type(mechanism).__name__}",
            why="it must release one index and nothing else",
            fix="pass PermuteAndFlip.of(…), Exponential.of(…) or ReportNoisyMax.of(…)",
        )
