"""Private selection: which candidate scores highest, and nothing else about the scores.

Scores are integers. What counts is their ℓ∞ sensitivity Δ: one unit may move every score, each by at
most Δ. All of these share one rate r: ε/2Δ in general, ε/Δ where scores are monotone, that is, where
adding a unit lowers none of them. Counts are monotone under adding and removing; under substitution
nothing is.

Proof: docs/proofs/selection.md
"""

from abc import abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting import PrivacyLoss, parse_spendable_epsilon
from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.additive import AdditiveMechanism
from hubbub.mechanisms.error_bounds import smallest_integer
from hubbub.mechanisms.mechanism import (
    Integers,
    Mechanism,
    check_integer_sensitivity,
    check_scores,
    check_sensitivity,
    laplace_difference_tail,
    noisy,
    released,
)
from hubbub.noise import MAX_SCALE, bernoulli_exp_each
from hubbub.noise.enclosures import exp_neg, log
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.numbers import Number, parse_integer, parse_positive, parse_probability, round_up
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
    """A winner, and by how much less its noisy score would still have won."""

    winner: int
    gap: int


@dataclass(frozen=True)
class Selection(Mechanism):
    """Abstract: chooses one of several candidates by integer scores."""

    sensitivity: Sensitivity
    """How far one unit can move a score: its ℓ∞ counts."""
    epsilon: Fraction
    monotone: bool = False
    """Whether adding a unit lowers no score: the word of whoever makes the mechanism."""

    error_kind: ClassVar[str] = "regret"

    _has_bounded_range: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_integer_sensitivity(self.sensitivity, self.monotone)
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        self._check_rate()

    def _check_rate(self) -> None:
        """Refuse a rate that cannot be sampled exactly: coins and weights can be at any."""

    @classmethod
    def of(
        cls,
        *,
        sensitivity: Sensitivity | Number,
        epsilon: Number,
        monotone: bool = False,
        allow_large_epsilon: bool = False,
    ) -> Self:
        """The mechanism with this ε for scores that one unit moves by at most `sensitivity` each."""
        return cls(
            Sensitivity.of(sensitivity), parse_spendable_epsilon(epsilon, allow=allow_large_epsilon), monotone
        )

    @property
    def rate(self) -> Fraction:
        """How fast the chance of a candidate falls with its distance from the best: r in the proofs."""
        return self.epsilon / (self.sensitivity.linf * (1 if self.monotone else 2))

    @property
    def rho(self) -> Fraction:
        """The zCDP of one release: ε²/8 where the range of the loss is ε, else ε²/2 as for any pure ε.

        Only the exponential mechanism has a bounded range: between two neighbours its log-ratios lie in
        one interval of length ε. Those of permute-and-flip and of noisy maxima lie further apart.

        >>> Exponential.of(sensitivity=1, epsilon=1).rho, PermuteAndFlip.of(sensitivity=1, epsilon=1).rho
        (Fraction(1, 8), Fraction(1, 2))
        """
        return self.epsilon**2 / (8 if self._has_bounded_range else 2)

    def loss(self) -> PrivacyLoss:
        """Pure ε; where the range of the loss is bounded, that."""
        return (
            PrivacyLoss.bounded_range(self.epsilon)
            if self._has_bounded_range
            else PrivacyLoss.pure(self.epsilon)
        )

    def release(self, value: Any) -> Release:
        """Choose by a Bounded vector of integer scores, or by a list whose sensitivity the caller asserts."""
        bounded, scores = check_scores(value, self.sensitivity, monotone=self.monotone)
        return released(self, self._choose(scores), bounded, monotone=self.monotone)

    @abstractmethod
    def _choose(self, scores: Integers) -> int | WinnerWithGap:
        """What is released of these scores."""

    def _how(self) -> str:
        moved = "raises none or each" if self.monotone else "moves each"
        return f"integer scores, where one unit {moved} by at most {self.sensitivity.linf}: {self.loss()}"


@final
@dataclass(frozen=True)
class PermuteAndFlip(Selection):
    """A coin for each candidate, heads with probability e^(−r·(best − score)); one of the heads, evenly.

    Going through the candidates in random order and stopping at the first head is the same: the order
    is independent of the coins, so the first of the heads is each of them with the same chance. Here
    all coins are flipped, so that the work does not tell where the first head was.

    >>> mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    11
    >>> print(mechanism)
    Permute-and-flip on integer scores, where one unit moves each by at most 1: ε = 0.5

    Guarantee: ε-differential privacy; never a larger regret than the exponential mechanism's.
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits. Its zCDP is ε²/2, not ε²/8: where zCDP is what counts, use `Exponential`.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "permute-and-flip/1"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates."""
        sure = parse_probability(confidence, "confidence")
        # Half the exponential mechanism's odds where that is the better of two bounds.
        return _regret(self.rate, _rivals(coordinates) * min(Fraction(1, 2), sure) / (1 - sure))

    def _choose(self, scores: Integers) -> int:
        return _first(bernoulli_exp_each(self.rate, scores.max() - scores), _priorities(scores.size))

    def __str__(self) -> str:
        return f"Permute-and-flip on {self._how()}"


@final
@dataclass(frozen=True)
class Exponential(Selection):
    """The exponential mechanism: each candidate with probability proportional to e^(r·score).

    Sampled by one uniform number U: the candidate in whose share of the whole U falls. Floats only
    filter; where U is close to an edge, integers decide, reading as many digits of U as it takes. So no
    weight is ever too small to count, however far apart the scores are.

    >>> mechanism = Exponential.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([0, 10**12, -(10**12)]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    14
    >>> print(mechanism)
    The exponential mechanism on integer scores, where one unit moves each by at most 1: ε = 0.5

    Guarantee: ε-differential privacy, and ε²/8-zCDP (its range is bounded by ε).
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "exponential/1"

    _has_bounded_range: ClassVar[bool] = True

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates.

        The least that holds for all scores: one candidate ahead, all others just so far behind, attain it.
        """
        sure = parse_probability(confidence, "confidence")
        return _regret(self.rate, _rivals(coordinates) * sure / (1 - sure))

    def _choose(self, scores: Integers) -> int:
        gaps = scores.max() - scores
        with np.errstate(under="ignore"):
            # e^-700 is as good as 0 for the filter; integers decide what is close.
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
        return _share_at(u, self.rate, gaps.tolist())

    def __str__(self) -> str:
        return f"The exponential mechanism on {self._how()}"


@dataclass(frozen=True)
class _Noisy(Selection):
    """Abstract: the largest of the scores after discrete Laplace noise of scale 1/r on each."""

    def _check_rate(self) -> None:
        if self.rate * MAX_SCALE < 1:
            raise Unsupported(
                "the noise is wider than 2^48",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon",
            )

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound on the regret of selecting one of `coordinates` candidates.

        A union bound: some candidate so far behind overtakes the best one by the noise of the two.
        """
        allowed = 1 - parse_probability(confidence, "confidence")
        rivals = _rivals(coordinates)
        # survives: How many spare bits are carried is free: what is rounded up from one more or
        # less is still a bound.
        bits = 192 + rivals.bit_length() + allowed.denominator.bit_length()
        # survives: A bound rounded up from an irrational number does not meet a rational one.
        return smallest_integer(lambda m: rivals * laplace_difference_tail(self.rate, m + 1, bits) <= allowed)


@final
@dataclass(frozen=True)
class ReportNoisyMax(_Noisy):
    """Report noisy max: discrete Laplace noise of scale 1/r on each score, the index of the largest.

    Scale 2Δ/ε in general, Δ/ε for monotone scores. Integers tie; a random order that knows nothing of
    the scores decides between the tied. The noisy score itself is not released and would not be free:
    for that see `ReportNoisyMaxWithGap` and `select_and_measure`.

    >>> mechanism = ReportNoisyMax.of(sensitivity=1, epsilon=0.5, monotone=True)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, coordinates=3)
    8
    >>> print(mechanism)
    The largest after Laplace noise of scale 2 on integer scores, where one unit raises none or each by at
    most 1: ε = 0.5

    Guarantee: ε-differential privacy.
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "report-noisy-max/1"

    def _choose(self, scores: Integers) -> int:
        shown = noisy(scores, 1 / self.rate)
        return _first(shown == shown.max(), _priorities(scores.size))

    def __str__(self) -> str:
        return f"The largest after Laplace noise of scale {round_up(1 / self.rate):.6g} on {self._how()}"


@final
@dataclass(frozen=True)
class ReportNoisyMaxWithGap(_Noisy):
    """Report noisy max, and for the same ε by how much less the winner's noisy score would still have won.

    That is the distance to the runner-up, less one where the runner-up would win a tie. The bare distance
    is not private on integers where ties fall by a fixed order, as with argmax: who may be tied with the
    winner is then told by a distance of 0, and the winner's noise does not hide it. Where ties fall at
    random, we know neither a proof for the bare distance nor a violation; so it is not released.

    >>> mechanism = ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1)
    >>> winner, gap = mechanism.release([10, 10_000, 20]).value
    >>> winner, 9_000 < gap < 11_000
    (1, True)
    >>> print(mechanism)
    The largest, and its lead, after Laplace noise of scale 2 on integer scores, where one unit moves each by
    at most 1: ε = 1

    Guarantee: ε-differential privacy, of index and gap together.
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "report-noisy-max-with-gap/1"

    def _choose(self, scores: Integers) -> WinnerWithGap:
        if scores.size < 2:
            raise InvalidInput(
                "there is one candidate",
                why="a gap is the lead over another",
                fix="pass two scores or more, or use ReportNoisyMax",
            )
        shown, order = noisy(scores, 1 / self.rate), _priorities(scores.size)
        index = _first(shown == shown.max(), order)
        # What the winner had to reach: each other's score, and one more where that one wins ties.
        # survives: They differ at the winner only, which is then left out.
        needed = np.delete(shown + (order > order[index]), index).max()
        return WinnerWithGap(index, int(shown[index]) - int(needed))

    def __str__(self) -> str:
        scale = f"{round_up(1 / self.rate):.6g}"
        return f"The largest, and its lead, after Laplace noise of scale {scale} on {self._how()}"


def _rivals(coordinates: Any) -> int:
    return parse_integer(coordinates, "coordinates") - 1


def _regret(rate: Fraction, odds: Fraction) -> int:
    """The least m ≥ 0 with odds·e^(−rate·(m+1)) ≤ 1, by a logarithm rounded up."""
    # survives: The logarithm of 1, rounded up, is one unit: the answer is 0 as well.
    if odds <= 1:
        return 0
    return ceil(Fraction(log(odds, 128)[1], 1 << 128) / rate) - 1


def _priorities(count: int) -> Integers:
    """Distinct numbers from 0 in an order that is uniform and knows nothing of the scores."""
    while True:
        drawn = np.frombuffer(random_bytes(8 * count), dtype=np.uint64) >> np.uint64(1)
        ordered = np.sort(drawn)
        # Independent and alike, so given that no two are equal each order has the same chance.
        if not (ordered[1:] == ordered[:-1]).any():
            return drawn.view(np.int64)


def _first(among: NDArray[np.bool_], order: Integers) -> int:
    # survives: Any number below 0 is below all priorities.
    return int(np.where(among, order, -1).argmax())


def _share_at(u: int, rate: Fraction, gaps: list[int]) -> int:
    """The j with W₀ + … + Wⱼ₋₁ ≤ U·W < W₀ + … + Wⱼ for weights e^(−rate·gap), given 64 bits of U."""
    bits = 64
    while True:
        # survives: With fewer bits more digits of U are read, with more bits fewer; what is decided
        # is the same. With fewer bits more digits of U are read; what is decided is the same.
        work = bits + len(gaps).bit_length() + 8
        weight = {gap: exp_neg(rate * gap, work) for gap in set(gaps)}
        lows = list(accumulate(weight[gap][0] for gap in gaps))
        highs = list(accumulate(weight[gap][1] for gap in gaps))
        # All edges before this candidate's are at or below U for sure; is its own above?
        place = bisect_right(highs, u * lows[-1] >> bits)
        # survives: Where they differ more digits of U are read; what is decided is the same.
        if (u + 1) * highs[-1] <= lows[place] << bits:
            return place
        # survives: Random bits come by whole bytes: 65 are 64.
        u, bits = u << 64 | random_bits(64), bits + 64


# Choices that go on: the k best one after another, and a winner whose score is then measured.
#
# Proved in docs/proofs/selection.md


class WinnerWithScore(NamedTuple):
    """A winner, and its score as measured with noise of its own."""

    winner: int
    score: int | float


@final
@dataclass(frozen=True)
class TopK(Mechanism):
    """The k best by peeling: choose one, take it out, choose again, k times.

    >>> mechanism = TopK(PermuteAndFlip.of(sensitivity=1, epsilon=0.5), k=2)
    >>> mechanism.release([10, 10_000, 20_000]).value
    [2, 1]
    >>> print(mechanism)
    2 rounds, the chosen one taken out, each: Permute-and-flip on integer scores, where one unit moves each
    by at most 1: ε = 0.5; together ε = 1

    Guarantee: kε-differential privacy.
    Assumes: what a round assumes. Taking out what is already public moves no other score.
    Proof: docs/proofs/selection.md
    """

    mechanism: PermuteAndFlip | Exponential | ReportNoisyMax
    k: int

    kind: ClassVar[str] = "top-k/1"
    error_kind: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        _check_index_only(self.mechanism)
        object.__setattr__(self, "k", parse_integer(self.k, "k"))

    def loss(self) -> PrivacyLoss:
        """The round's, k times."""
        return self.mechanism.loss() * self.k

    @property
    def rho(self) -> Fraction:
        """The zCDP of one release: k times the round's."""
        return self.mechanism.rho * self.k

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """How far each choice lies below the best one left at most, in all rounds at once.

        So the i-th choice lies no further below the i-th best of all `coordinates` candidates either.
        """
        self._check_enough(parse_integer(coordinates, "coordinates"))
        missed = (1 - parse_probability(confidence, "confidence")) / self.k
        return self.mechanism.error(1 - missed, coordinates=coordinates)

    def release(self, value: Any) -> Release:
        """The k chosen indices, in the order in which they were chosen."""
        inner = self.mechanism
        bounded, scores = check_scores(value, inner.sensitivity, monotone=inner.monotone)
        self._check_enough(scores.size)
        left = np.arange(scores.size)
        chosen: list[int] = []
        for _ in range(self.k):
            place = inner._choose(scores[left])  # noqa: SLF001 - a round is a choice not yet released
            chosen.append(int(left[place]))
            left = np.delete(left, place)
        return released(self, chosen, bounded, monotone=inner.monotone)

    def _check_enough(self, candidates: int) -> None:
        if candidates < self.k:
            raise InvalidInput(
                f"k is {self.k}, and the number of candidates {candidates}",
                why="a candidate is chosen at most once",
                fix="choose a smaller k, or pass more candidates",
            )

    def __str__(self) -> str:
        return f"{self.k} rounds, the chosen one taken out, each: {self.mechanism}; together {self.loss()}"


@final
@dataclass(frozen=True)
class SelectAndMeasure(Mechanism):
    """A choice, then the chosen score with additive noise: two mechanisms, two prices.

    Guarantee: the sum of the two losses.
    Assumes: what the two assume. The score is measured afresh: the noise that chose it is not reused.
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
                f"what measures the score is of type {type(self.measure).__name__}",
                why="a score is measured with additive noise",
                fix="pass Laplace.of(…) or Gaussian.of(…)",
            )

    def loss(self) -> PrivacyLoss:
        """The choice's loss and the measurement's."""
        return self.select.loss() + self.measure.loss()

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """The regret of the choice; the score's own error is `measure.error(confidence)`."""
        return self.select.error(confidence, coordinates=coordinates)

    def release(self, value: Any) -> Release:
        """The index of the winner and its score with noise."""
        bounded, scores = check_scores(value, self.select.sensitivity, monotone=self.select.monotone)
        # One score moves by no more than the ℓ∞ of all; this is checked before anything is chosen.
        one = Sensitivity(bounded.sensitivity.linf)
        norm = self.measure._norm  # noqa: SLF001 - the measurement would ask the same, but too late
        # survives: Only the sensitivity of this stand-in is looked at.
        check_sensitivity(Bounded(0, one, bounded.unit, bounded.derivation), self.measure.sensitivity, norm)
        index = self.select._choose(scores)  # noqa: SLF001 - released below, together with its score
        score = self.measure.release(Bounded(int(scores[index]), one, bounded.unit, bounded.derivation)).value
        return released(self, WinnerWithScore(index, score), bounded, monotone=self.select.monotone)

    def __str__(self) -> str:
        return f"{self.select}; then its score by {self.measure}; together {self.loss()}"


def select_and_measure(
    scores: Any, select: PermuteAndFlip | Exponential | ReportNoisyMax, measure: AdditiveMechanism
) -> Release:
    """Choose a candidate, and measure its score with noise of its own, for the sum of the two prices.

    >>> from hubbub.mechanisms import Laplace
    >>> select = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> release = select_and_measure([10, 10_000, 20], select, Laplace.of(sensitivity=1, epsilon=0.25))
    >>> release.value.winner, 9_000 < release.value.score < 11_000, str(release.loss)
    (1, True, 'ε = 0.75')

    Guarantee: the sum of the two losses.
    Assumes: what the two mechanisms assume.
    Proof: docs/proofs/selection.md
    """
    return SelectAndMeasure(select, measure).release(scores)


def _check_index_only(mechanism: Any) -> None:
    if not isinstance(mechanism, (PermuteAndFlip, Exponential, ReportNoisyMax)):
        raise InvalidInput(
            f"what chooses is of type {type(mechanism).__name__}",
            why="each round releases one index and nothing else",
            fix="pass PermuteAndFlip.of(…), Exponential.of(…) or ReportNoisyMax.of(…)",
        )
