"""Audit training sequentially: repeated runs with canaries, black-box or white-box, until it is sure.

Each run flips a fair coin for every canary, trains with those that came up heads, and returns a score for
each canary. It is high if the canary seems to have taken part: minus its loss (black-box), or what the noisy
gradients show (white-box). The audit guesses the coins with the most extreme scores. Under (ε, δ) the share
of right guesses is at most e^ε times the share of wrong ones, plus δ, in the mean; it bets against that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.audit.claims import Claim
from hubbub.errors import InvalidInput
from hubbub.noise import bernoulli
from hubbub.numbers import Number, format_down, format_percent, parse_integer, parse_probability

__all__ = ["RunsAudit", "audit_runs", "runs_needed"]

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]
_FRACTIONS = (1.0, 0.5, 0.2, 0.05)
"""Guess the coins of all canaries, or only of those with the most extreme scores."""
_STAKES = np.array([0.05, 0.1, 0.2, 0.4, 0.7, 0.95])
"""Shares of the largest stake."""


@dataclass(frozen=True)
class RunsAudit:
    """The result of an audit over several training runs."""

    symbol: str
    claimed: float
    at: str
    lower: float
    """A lower bound that holds with this confidence."""
    confidence: float
    refuted: bool
    runs: int
    canaries: int
    right: float
    """The mean share of right guesses, where all coins are guessed."""

    def __str__(self) -> str:
        verdict = "VIOLATION" if self.refuted else "no violation found"
        claim = f"{self.symbol} = {self.claimed:g}{' ' + self.at if self.at else ''}"
        return (
            f"{verdict}: {self.symbol} ≥ {format_down(self.lower, 3)} with "
            f"{format_percent(round(self.confidence, 12))} confidence (claimed {claim}); {self.runs} runs "
            f"with {self.canaries} canaries, {format_percent(round(self.right, 3))} of coins guessed right"
        )


def audit_runs(
    run: Callable[[Coins], Floats],
    *,
    claim: Claim,
    canaries: int,
    runs: int = 40,
    confidence: Number = 0.95,
    stop_early: bool = True,
) -> RunsAudit:
    """Train again and again with random canaries, and bet that their coins can be guessed too well.

    Args:
        run: Trains with the canaries that have True, and returns a score for each canary from what the run
            released: higher if it seems to have taken part.
        claim: What each run claims for adding or removing one canary, such as `Claim.gaussian(0.5)`.
        canaries: The number of canaries.
        runs: The most runs.
        confidence: The probability with which the lower bound holds.
        stop_early: Stop when the claim is refuted.

    Guarantee: if every run keeps the claim, `refuted` is true with probability at most 1 − confidence, and so
        is a `lower` bound above the truth, whenever the audit stops.
    Assumes: scores depend on the run's releases alone, not on the coins.
    Proof: docs/proofs/audit.md
    """
    count = parse_integer(canaries, "canaries", minimum=10)
    most, level = parse_integer(runs, "runs"), float(parse_probability(confidence, "confidence"))
    process = _Process(claim, 1 - level)
    for _ in range(most):
        coins = np.asarray(bernoulli(0.5, size=count), dtype=bool)
        scores = np.asarray(run(coins.copy()), dtype=np.float64)
        if scores.shape != (count,):
            raise InvalidInput(
                "the run returned another number of scores than there are canaries",
                why="each canary's coin is guessed from its own score",
                fix="return an array with one score for each canary",
            )
        process.add(_guess(scores, coins))
        if stop_early and process.is_refuted:
            break
    return process.report(count, level)


def runs_needed(claimed: float, actual: float, confidence: float = 0.95) -> int:
    """Return about how many runs refute a claimed share of right minus wrong guesses, given the actual one.

    That share is the total variation distance, δ at ε = 0: 2Φ(μ/2) − 1 for Gaussian DP.

    >>> runs_needed(0.383, 0.683)  # a clipping norm twice too high, at a noise multiplier of 1
    16
    """
    gain = max(0.0, math.log1p((actual - claimed) / (1 + claimed)))
    return math.ceil(math.log(1 / (1 - confidence)) / gain) if gain else 10**9


def _guess(scores: Floats, coins: Coins) -> Floats:
    """Return the shares of right and of wrong guesses, for each fraction: shape (fractions, 2)."""
    order = np.argsort(np.nan_to_num(scores), kind="stable")
    shares = []
    for fraction in _FRACTIONS:
        half = max(1, int(fraction * scores.size) // 2)
        right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
        shares.append((right / scores.size, (2 * half - right) / scores.size))
    return np.array(shares)


class _Process:
    """Capital against each claim of a grid; bets are chosen on past runs."""

    def __init__(self, claim: Claim, failure: float) -> None:
        self.claim, self.failure = claim, failure
        self.grid = claim.grid()
        self.constraints = claim.constraints(self.grid)
        self.past: list[Floats] = []
        self.log_wealth = np.zeros(self.grid.size)
        self.peak = np.zeros(self.grid.size)

    def add(self, shares: Floats) -> None:
        """Settle the bets on a new run, then remember it."""
        if self.past:
            self.log_wealth += self._settle(shares)
            self.peak = np.maximum(self.peak, self.log_wealth)
        self.past.append(shares)

    def _excess(self, shares: Floats) -> Floats:
        """What is right beyond the claim: shape (claims, pairs, fractions); its mean is at most 0."""
        ratio = np.exp(self.constraints.epsilon)[:, :, None]
        excess: Floats = shares[:, 0] - ratio * shares[:, 1] - self.constraints.delta[:, :, None]
        return excess

    def _settle(self, shares: Floats) -> Floats:
        largest = 1 / (np.exp(self.constraints.epsilon) + self.constraints.delta)[:, :, None]
        gains = np.zeros((self.grid.size, self.constraints.epsilon.shape[1], len(_FRACTIONS), _STAKES.size))
        for past in self.past:
            gains += np.log1p(_STAKES * (largest * self._excess(past))[..., None])
        flat = gains.reshape(self.grid.size, -1)
        best = flat.argmax(axis=1)
        rows = np.arange(self.grid.size)
        stake = np.where(flat[rows, best] > 0, _STAKES[best % _STAKES.size], 0.0)
        place = (best // _STAKES.size) % len(_FRACTIONS)
        pair = best // _STAKES.size // len(_FRACTIONS)
        now = (largest * self._excess(shares))[rows, pair, place]
        settled: Floats = np.log1p(stake * now)
        return settled

    @property
    def _crossed(self) -> NDArray[np.bool_]:
        crossed: NDArray[np.bool_] = np.logical_and.accumulate(self.peak >= math.log(1 / self.failure) + 1e-9)
        return crossed

    @property
    def is_refuted(self) -> bool:
        return bool(self._crossed[int(np.searchsorted(self.grid, self.claim.value))])

    def report(self, canaries: int, confidence: float) -> RunsAudit:
        crossed = self._crossed
        return RunsAudit(
            self.claim.symbol,
            self.claim.value,
            self.claim.at,
            float(self.grid[np.flatnonzero(crossed)[-1]]) if crossed.any() else 0.0,
            confidence,
            self.is_refuted,
            len(self.past),
            canaries,
            float(np.mean([shares[0, 0] for shares in self.past])),
        )
