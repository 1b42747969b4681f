"""Choices that go on: the k best one after another, and a winner whose score is then measured.

Proof: docs/proofs/selection.md
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

from hubbub.bounded import Bounded, Sensitivity
from hubbub.errors import InvalidInput
from hubbub.loss import Loss
from hubbub.mechanisms.additive import Additive
from hubbub.mechanisms.choose import Exponential, LaplaceMax, PermuteAndFlip
from hubbub.mechanisms.mechanism import Mechanism, check_sensitivity
from hubbub.mechanisms.scores import check_scores, released
from hubbub.rational import Number, probability, whole
from hubbub.release import Release

__all__ = ["MeasuredWinner", "TopK", "WithScore", "measure_winner"]


class WithScore(NamedTuple):
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
        return released(self, WithScore(index, score), bounded, monotone=self.select.monotone)

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


def _check_index_only(mechanism: Any) -> None:
    if not isinstance(mechanism, (PermuteAndFlip, Exponential, LaplaceMax)):
        raise InvalidInput(
            f"what chooses is of type {type(mechanism).__name__}",
            why="each round releases one index and nothing else",
            fix="pass PermuteAndFlip.of(…), Exponential.of(…) or LaplaceMax.of(…)",
        )
