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
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import Bounded, Sensitivity, unwrap
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.loss import Loss
from hubbub.mechanisms.accuracy import least_whole
from hubbub.mechanisms.additive import Additive
from hubbub.mechanisms.mechanism import Mechanism, check_sensitivity
from hubbub.noise import LARGEST_SCALE, bernoulli_exp_each, discrete_laplace, geometric
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.real import exp_neg, log
from hubbub.noise.table import MOST
from hubbub.rational import Number, positive, probability, round_up, whole
from hubbub.release import Release
from hubbub.unit import Neighbours, Unit

__all__ = [
    "Choice",
    "Exponential",
    "LaplaceMax",
    "LaplaceMaxWithGap",
    "MeasuredWinner",
    "PermuteAndFlip",
    "TopK",
    "WithGap",
    "WithScore",
    "check_monotone",
    "check_scores",
    "check_whole",
    "measure_winner",
    "noisy",
    "overtaking",
]

Integers: TypeAlias = NDArray[np.int64]


class WithGap(NamedTuple):
    """A winner, and by how much less its noisy score would still have won."""

    winner: int
    gap: int


class WithScore(NamedTuple):
    """A winner, and its score as measured with noise of its own."""

    winner: int
    score: int | float


@dataclass(frozen=True)
class Choice(Mechanism):
    """Abstract: chooses one of several candidates by integer scores."""

    sensitivity: Sensitivity
    """How far one unit can move a score: its ℓ∞ counts."""
    epsilon: Fraction
    monotone: bool = False
    """Whether adding a unit lowers no score: the word of whoever makes the mechanism."""

    error_is: ClassVar[str] = "regret"

    _has_bounded_range: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(self.sensitivity, self.monotone)
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        self._check_rate()

    def _check_rate(self) -> None:
        """Refuse a rate that cannot be sampled exactly: coins and weights can be at any."""

    @classmethod
    def of(cls, *, sensitivity: Sensitivity | Number, epsilon: Number, monotone: bool = False) -> Self:
        """The mechanism with this ε for scores that one unit moves by at most `sensitivity` each."""
        return cls(Sensitivity.of(sensitivity), positive(epsilon, "epsilon"), monotone)

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

    def loss(self) -> Loss:
        """Pure ε."""
        return Loss.pure(self.epsilon)

    def release(self, value: Any) -> Release:
        """Choose by a Bounded vector of integer scores, or by a list whose sensitivity the caller asserts."""
        bounded, scores = check_scores(value, self.sensitivity, monotone=self.monotone)
        return _released(self, self._choose(scores), bounded, monotone=self.monotone)

    @abstractmethod
    def _choose(self, scores: Integers) -> int | WithGap:
        """What is released of these scores."""

    def _how(self) -> str:
        moved = "raises none or each" if self.monotone else "moves each"
        return f"integer scores, where one unit {moved} by at most {self.sensitivity.linf}: {self.loss()}"


@final
@dataclass(frozen=True)
class PermuteAndFlip(Choice):
    """A coin for each candidate, heads with probability e^(−r·(best − score)); one of the heads, evenly.

    Going through the candidates in random order and stopping at the first head is the same: the order
    is independent of the coins, so the first of the heads is each of them with the same chance. Here
    all coins are flipped, so that the work does not tell where the first head was.

    >>> mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, cells=3)
    11
    >>> print(mechanism)
    Permute-and-flip on integer scores, where one unit moves each by at most 1: ε = 0.5

    Guarantee: ε-differential privacy; never a larger regret than the exponential mechanism's.
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits. Its zCDP is ε²/2, not ε²/8: where zCDP is what counts, use `Exponential`.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "permute-and-flip/1"

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """How far the choice among `cells` candidates lies below the best at most, with this confidence."""
        sure = probability(confidence, "confidence")
        # Half the exponential mechanism's odds where that is the better of two bounds.
        return _regret(self.rate, _rivals(cells) * min(Fraction(1, 2), sure) / (1 - sure))

    def _choose(self, scores: Integers) -> int:
        return _first(bernoulli_exp_each(self.rate, scores.max() - scores), _priorities(scores.size))

    def __str__(self) -> str:
        return f"Permute-and-flip on {self._how()}"


@final
@dataclass(frozen=True)
class Exponential(Choice):
    """The exponential mechanism: each candidate with probability proportional to e^(r·score).

    Sampled by one uniform number U: the candidate in whose share of the whole U falls. Floats only
    filter; where U is close to an edge, integers decide, reading as many digits of U as it takes. So no
    weight is ever too small to count, however far apart the scores are.

    >>> mechanism = Exponential.of(sensitivity=1, epsilon=0.5)
    >>> mechanism.release([0, 10**12, -(10**12)]).value
    1
    >>> mechanism.error(0.95, cells=3)
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

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """How far the choice among `cells` candidates lies below the best at most, with this confidence.

        The least that holds for all scores: one candidate ahead, all others just so far behind, attain it.
        """
        sure = probability(confidence, "confidence")
        return _regret(self.rate, _rivals(cells) * sure / (1 - sure))

    def _choose(self, scores: Integers) -> int:
        gaps = scores.max() - scores
        with np.errstate(under="ignore"):
            # e^-700 is as good as 0 for the filter; integers decide what is close.
            power = np.minimum(float(min(self.rate, Fraction(700))) * gaps.astype(np.float64), 700.0)
        edges = np.concatenate([[0.0], np.cumsum(np.exp(-power))])
        u = random_bits(64)
        at = (u >> 11) * 2.0**-53 * edges[-1]
        margin = edges[-1] * (scores.size + 16) * 2.0**-48
        if np.abs(edges - at).min() > margin:
            return int(np.searchsorted(edges, at)) - 1
        return _share_at(u, self.rate, gaps.tolist())

    def __str__(self) -> str:
        return f"The exponential mechanism on {self._how()}"


@dataclass(frozen=True)
class _Noisy(Choice):
    """Abstract: the largest of the scores after discrete Laplace noise of scale 1/r on each."""

    def _check_rate(self) -> None:
        if self.rate * LARGEST_SCALE < 1:
            raise Unsupported(
                "the noise is wider than 2^48",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon",
            )

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """How far the choice among `cells` candidates lies below the best at most, with this confidence.

        A union bound: some candidate so far behind overtakes the best one by the noise of the two.
        """
        allowed = 1 - probability(confidence, "confidence")
        rivals = _rivals(cells)
        bits = 192 + rivals.bit_length() + allowed.denominator.bit_length()
        return least_whole(lambda m: rivals * overtaking(self.rate, m + 1, bits) <= allowed)


@final
@dataclass(frozen=True)
class LaplaceMax(_Noisy):
    """Report noisy max: discrete Laplace noise of scale 1/r on each score, the index of the largest.

    Scale 2Δ/ε in general, Δ/ε for monotone scores. Integers tie; a random order that knows nothing of
    the scores decides between the tied. The noisy score itself is not released and would not be free:
    for that see `LaplaceMaxWithGap` and `measure_winner`.

    >>> mechanism = LaplaceMax.of(sensitivity=1, epsilon=0.5, monotone=True)
    >>> mechanism.release([10, 10_000, 20]).value
    1
    >>> mechanism.error(0.95, cells=3)
    8
    >>> print(mechanism)
    The largest after Laplace noise of scale 2 on integer scores, where one unit raises none or each by at
    most 1: ε = 0.5

    Guarantee: ε-differential privacy.
    Assumes: between neighbours each score moves by at most Δ (monotone: all the same way); uniform
        random bits.
    Proof: docs/proofs/selection.md
    """

    kind: ClassVar[str] = "laplace-max/1"

    def _choose(self, scores: Integers) -> int:
        shown = noisy(scores, 1 / self.rate)
        return _first(shown == shown.max(), _priorities(scores.size))

    def __str__(self) -> str:
        return f"The largest after Laplace noise of scale {round_up(1 / self.rate):.6g} on {self._how()}"


@final
@dataclass(frozen=True)
class LaplaceMaxWithGap(_Noisy):
    """Report noisy max, and for the same ε by how much less the winner's noisy score would still have won.

    That is the distance to the runner-up, less one where the runner-up would win a tie. The bare distance
    is not private on integers where ties fall by a fixed order, as with argmax: who may be tied with the
    winner is then told by a distance of 0, and the winner's noise does not hide it.

    >>> mechanism = LaplaceMaxWithGap.of(sensitivity=1, epsilon=1)
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

    kind: ClassVar[str] = "laplace-max-with-gap/1"

    def _choose(self, scores: Integers) -> WithGap:
        if scores.size < 2:
            raise InvalidInput(
                "there is one candidate",
                why="a gap is the lead over another",
                fix="pass two scores or more, or use LaplaceMax",
            )
        shown, order = noisy(scores, 1 / self.rate), _priorities(scores.size)
        index = _first(shown == shown.max(), order)
        # What the winner had to reach: each other's score, and one more where that one wins ties.
        needed = np.delete(shown + (order > order[index]), index).max()
        return WithGap(index, int(shown[index]) - int(needed))

    def __str__(self) -> str:
        scale = f"{round_up(1 / self.rate):.6g}"
        return f"The largest, and its lead, after Laplace noise of scale {scale} on {self._how()}"


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

    mechanism: PermuteAndFlip | Exponential | LaplaceMax
    k: int

    kind: ClassVar[str] = "top-k/1"
    error_is: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        _check_index_only(self.mechanism)
        object.__setattr__(self, "k", whole(self.k, "k"))

    def loss(self) -> Loss:
        """The round's, k times."""
        return self.mechanism.loss() * self.k

    @property
    def rho(self) -> Fraction:
        """The zCDP of one release: k times the round's."""
        return self.mechanism.rho * self.k

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """How far each choice lies below the best one left at most, in all rounds at once.

        So the i-th choice lies no further below the i-th best of all `cells` candidates either.
        """
        self._check_enough(whole(cells, "cells"))
        missed = (1 - probability(confidence, "confidence")) / self.k
        return self.mechanism.error(1 - missed, cells=cells)

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
        return _released(self, chosen, bounded, monotone=inner.monotone)

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
class MeasuredWinner(Mechanism):
    """A choice, then the chosen score with additive noise: two mechanisms, two prices.

    Guarantee: the sum of the two losses.
    Assumes: what the two assume. The score is measured afresh: the noise that chose it is not reused.
    Proof: docs/proofs/selection.md
    """

    select: PermuteAndFlip | Exponential | LaplaceMax
    measure: Additive

    kind: ClassVar[str] = "measured-winner/1"
    error_is: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        _check_index_only(self.select)
        if not isinstance(self.measure, Additive):
            raise InvalidInput(
                f"what measures the score is of type {type(self.measure).__name__}",
                why="a score is measured with additive noise",
                fix="pass Laplace.of(…) or Gaussian.of(…)",
            )

    def loss(self) -> Loss:
        """The choice's loss and the measurement's."""
        return self.select.loss() + self.measure.loss()

    def error(self, confidence: Number = 0.95, *, cells: int = 1) -> float:
        """The regret of the choice; the score's own error is `measure.error(confidence)`."""
        return self.select.error(confidence, cells=cells)

    def release(self, value: Any) -> Release:
        """The index of the winner and its score with noise."""
        bounded, scores = check_scores(value, self.select.sensitivity, monotone=self.select.monotone)
        # One score moves by no more than the ℓ∞ of all; this is checked before anything is chosen.
        one = Sensitivity(bounded.sensitivity.linf)
        norm = self.measure._norm  # noqa: SLF001 - the measurement would ask the same, but too late
        check_sensitivity(Bounded(0, one, bounded.unit, bounded.because), self.measure.sensitivity, norm)
        index = self.select._choose(scores)  # noqa: SLF001 - released below, together with its score
        score = self.measure.release(Bounded(int(scores[index]), one, bounded.unit, bounded.because)).value
        return _released(self, WithScore(index, score), bounded, monotone=self.select.monotone)

    def __str__(self) -> str:
        return f"{self.select}; then its score by {self.measure}; together {self.loss()}"


def measure_winner(
    scores: Any, select: PermuteAndFlip | Exponential | LaplaceMax, measure: Additive
) -> Release:
    """Choose a candidate, and measure its score with noise of its own, for the sum of the two prices.

    >>> from hubbub.mechanisms import Laplace
    >>> select = PermuteAndFlip.of(sensitivity=1, epsilon=0.5)
    >>> release = measure_winner([10, 10_000, 20], select, Laplace.of(sensitivity=1, epsilon=0.25))
    >>> release.value.winner, 9_000 < release.value.score < 11_000, str(release.loss)
    (1, True, 'ε = 0.75')

    Guarantee: the sum of the two losses.
    Assumes: what the two mechanisms assume.
    Proof: docs/proofs/selection.md
    """
    return MeasuredWinner(select, measure).release(scores)


def check_whole(sensitivity: Any, monotone: Any) -> None:
    """Refuse a sensitivity that integer scores cannot have, and a `monotone` that is no plain yes or no."""
    if not isinstance(sensitivity, Sensitivity):
        raise InvalidInput(
            f"the sensitivity is of type {type(sensitivity).__name__}",
            why="nobody could say how far one unit moves a score",
            fix="make the mechanism with of(sensitivity=…)",
        )
    if sensitivity.linf == 0 or sensitivity.linf.denominator != 1:
        raise InvalidInput(
            "the ℓ∞ sensitivity is 0 or not a whole number",
            why="integers move by whole numbers, and what nobody can move needs no mechanism",
            fix="scale real scores to integers by a public factor, and pass the sensitivity of these",
        )
    if not isinstance(monotone, bool):
        raise InvalidInput(
            f"monotone is of type {type(monotone).__name__}",
            why="half the noise rests on it, so it is said plainly",
            fix="pass True only where adding a unit lowers no score, else False",
        )


def check_monotone(unit: Unit, *, monotone: bool) -> None:
    """Refuse the smaller noise of monotone scores under substitution."""
    if monotone and unit.neighbours is Neighbours.SUBSTITUTE:
        raise Refused(
            "monotone scores under substitution",
            why="a substituted unit may raise one score and lower another",
            fix="make the mechanism with monotone=False, or protect a unit that is added or removed",
        )


def check_scores(value: Any, sensitivity: Sensitivity, *, monotone: bool) -> tuple[Bounded, Integers]:
    """The value as a Bounded that the mechanism was calibrated for, and its integers."""
    bounded = check_sensitivity(value, sensitivity, "linf")
    check_monotone(bounded.unit, monotone=monotone)
    exact = unwrap(bounded)
    if not isinstance(exact, np.ndarray) or exact.dtype.kind != "i":
        raise InvalidInput(
            "the scores are not a list of integers",
            why="only integers are compared exactly",
            fix="scale them to integers by a public factor, and pass the sensitivity of these",
        )
    if exact.size == 0:
        raise InvalidInput(
            "there are no scores", why="nothing can be chosen from nothing", fix="pass one score or more"
        )
    return bounded, exact.astype(np.int64, copy=False)


def noisy(values: Integers, scale: Fraction) -> NDArray[Any]:
    """Values plus discrete Laplace noise: 64-bit integers, or Python's where noise was cut at ±2^62.

    Such noise goes on as a geometric variable (it has no memory), so that the law is the whole law.
    """
    noise = discrete_laplace(scale, values.size)
    total: NDArray[Any] = values + noise  # values within ±2^61, so this fits
    cut = np.flatnonzero(np.abs(noise) == MOST)
    if cut.size:
        total = total.astype(object)
        for lane in cut:
            total[lane] += geometric(scale) * int(np.sign(noise[lane]))
    return total


def overtaking(rate: Fraction, distance: int, bits: int) -> Fraction:
    """Pr[X − Y ≥ distance] for two discrete Laplace variables of scale 1/rate, rounded up; distance ≥ 0.

    q^c·((c+1)(1−q) + q + 2q²/(1+q))/(1+q)² with q = e^−rate.

    >>> round(float(overtaking(Fraction(1), 1, 64)), 4)
    0.3598
    """
    one = 1 << bits
    low, high = (Fraction(end, one) for end in exp_neg(rate, bits))
    far = Fraction(exp_neg(rate * distance, bits)[1], one)
    inner = (distance + 1) * (1 - low) + high + 2 * high**2 / (1 + low)
    return far * inner / (1 + low) ** 2


def _released(mechanism: Mechanism, value: Any, bounded: Bounded, *, monotone: bool) -> Release:
    # No rule proves that scores are monotone, so that is a person's word too.
    asserted = bounded.is_asserted or monotone
    return Release(value, mechanism.loss(), mechanism, bounded.unit, asserted=asserted, cells=bounded.cells)


def _check_index_only(mechanism: Any) -> None:
    if not isinstance(mechanism, (PermuteAndFlip, Exponential, LaplaceMax)):
        raise InvalidInput(
            f"what chooses is of type {type(mechanism).__name__}",
            why="each round releases one index and nothing else",
            fix="pass PermuteAndFlip.of(…), Exponential.of(…) or LaplaceMax.of(…)",
        )


def _rivals(cells: Any) -> int:
    return whole(cells, "cells") - 1


def _regret(rate: Fraction, odds: Fraction) -> int:
    """The least m ≥ 0 with odds·e^(−rate·(m+1)) ≤ 1, by a logarithm rounded up."""
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
    return int(np.where(among, order, -1).argmax())


def _share_at(u: int, rate: Fraction, gaps: list[int]) -> int:
    """The j with W₀ + … + Wⱼ₋₁ ≤ U·W < W₀ + … + Wⱼ for weights e^(−rate·gap), given 64 bits of U."""
    bits = 64
    while True:
        work = bits + len(gaps).bit_length() + 8
        weight = {gap: exp_neg(rate * gap, work) for gap in set(gaps)}
        lows = list(accumulate(weight[gap][0] for gap in gaps))
        highs = list(accumulate(weight[gap][1] for gap in gaps))
        # All edges before this candidate's are at or below U for sure; is its own above?
        place = bisect_right(highs, u * lows[-1] >> bits)
        if (u + 1) * highs[-1] <= lows[place] << bits:
            return place
        u, bits = u << 64 | random_bits(64), bits + 64
