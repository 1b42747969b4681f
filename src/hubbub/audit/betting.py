"""E-processes against (ε, δ): bets on events that were found on past samples, and what they are worth.

Two players draw from two laws P (answers on x) and Q (answers on x′). A bet pays f(X)·g(Y) on one draw of
each. If no (ε, δ)-private pair of laws makes E[f(X)] + E[g(Y)] exceed 2, the capital of a gambler who bets
again and again is a supermartingale, however bets are chosen from past draws; that it ever reaches 1/α has
probability at most α. Capital is evidence.

Proof: docs/proofs/sequential-audit.md
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bet", "Constraints", "choose_bet", "payoff_bound", "threshold_candidates"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CANDIDATES = 64
"""Thresholds that are tried for each half-line."""
_MAX_SORTED = 50_000
"""Thresholds are chosen from at most this many draws of each input."""
_OVERFIT = 1.0
"""Twice the log-likelihood that the best of many thresholds gains by chance, about; stakes shrink by it."""
_MAX_POSTERIOR = 1 - 1e-9
"""No bet stakes everything on what was never seen."""


@dataclass(frozen=True)
class Constraints:
    """A grid of claims: each claim is a row of pairs (ε, δ), all of which hold if the claim does."""

    epsilon: Floats
    """Shape (claims, pairs)."""
    delta: Floats
    """Shape (claims, pairs)."""

    @property
    def posterior(self) -> Floats:
        """The most that one outcome may shift even odds under ε: e^ε/(1 + e^ε)."""
        posterior: Floats = 1 / (1 + np.exp(-self.epsilon))
        return posterior


def payoff_bound(on_x: Floats, on_y: Floats, epsilon: float, delta: float) -> float:
    """Return an upper bound of E_P[f] + E_Q[g] over all (ε, δ)-private pairs of laws (P, Q).

    Args:
        on_x: f at each outcome, non-negative.
        on_y: g at each outcome, non-negative.
        epsilon: ε of the claim.
        delta: δ of the claim.

    >>> round(payoff_bound(np.array([1.0, 1.0]), np.array([1.0, 1.0]), 1.0, 0.0), 12)
    2.0

    Guarantee: no pair of laws with P(E) ≤ e^ε Q(E) + δ and Q(E) ≤ e^ε P(E) + δ for all E has a larger sum.
    Proof: docs/proofs/sequential-audit.md
    """
    ratio = math.exp(epsilon)
    high, low = float((ratio * on_x + on_y).max()), float((on_x + ratio * on_y).max())
    if ratio == 1:
        alpha = beta = high / 2
    else:
        alpha = (ratio * high - low) / (ratio**2 - 1)
        beta = (ratio * low - high) / (ratio**2 - 1)
    slack = max(0.0, float(on_x.max()) - alpha) + max(0.0, float(on_y.max()) - beta)
    return alpha + beta + delta * slack


@dataclass(frozen=True)
class Bet:
    """For each claim of a grid: two half-lines of a score, and the stakes on them.

    A stake is the posterior probability, from even odds, that the gambler believes in; the direction says of
    which input. A stake at the claim's own posterior wins and loses nothing.
    """

    constraints: Constraints
    pair: Integers
    """The pair (ε, δ) of each claim that is bet against."""
    above: Floats
    """Bet on the outcomes with a score above this."""
    below: Floats
    """Bet on the outcomes with a score of at most this; never more than `above`."""
    stake_above: Floats
    stake_below: Floats
    x_above: NDArray[np.bool_]
    """True if outcomes above are believed to come from x."""
    x_below: NDArray[np.bool_]
    log_likelihood: Floats
    """The gain on past samples, in nats."""

    def payoffs(self) -> tuple[Floats, Floats]:
        """Return log f and log g of each claim, for outcomes below, between and above: shape (claims, 3).

        Guarantee: E[f(X)]·E[g(Y)] ≤ 1 under each claim.
        Proof: docs/proofs/sequential-audit.md
        """
        rows = np.arange(self.pair.size)
        null = self.constraints.posterior[rows, self.pair]
        delta = self.constraints.delta[rows, self.pair]
        on_x, on_y = np.zeros((null.size, 3)), np.zeros((null.size, 3))
        for cell, stake, is_x in (
            (0, self.stake_below, self.x_below),
            (2, self.stake_above, self.x_above),
        ):
            win, lose = np.log(stake / null), np.log((1 - stake) / (1 - null))
            on_x[:, cell] = np.where(is_x, win, lose)
            on_y[:, cell] = np.where(is_x, lose, win)
        # c·f + g = 1 + c or f + c·g = 1 + c in every cell, so that the bound is 2 + δ(max f − 1 + max g − 1).
        most = np.expm1(on_x.max(axis=1)) + np.expm1(on_y.max(axis=1))
        cost = np.log1p(delta * most / 2)[:, None]
        return on_x - cost, on_y - cost

    def log_gain(self, x: Floats, y: Floats) -> Floats:
        """Return the logarithm of what the bet on each claim pays, for scores of draws.

        Draws are equally many on both inputs, or on each by a fair coin.
        """
        log_x, log_y = self.payoffs()
        counted_x, counted_y = (_count(scores, self.below, self.above) for scores in (x, y))
        gain: Floats = (counted_x * log_x + counted_y * log_y).sum(axis=1)
        return gain

    @property
    def is_neutral(self) -> bool:
        """True if nothing is at stake for any claim."""
        return bool((self.log_likelihood <= 0).all())


def _count(scores: Floats, below: Floats, above: Floats) -> Floats:
    """Count scores at most `below`, between, and above `above`; what is not a number is between."""
    ends = np.unique(np.concatenate([below, above]))
    finite = scores[~np.isnan(scores)]
    # How many scores are at most each end.
    at_most = np.cumsum(np.bincount(np.searchsorted(ends, finite, side="left"), minlength=ends.size + 1))
    low = at_most[np.searchsorted(ends, below)]
    high = finite.size - at_most[np.searchsorted(ends, above)]
    return np.stack([low, scores.size - low - high, high], axis=1).astype(np.float64)


def threshold_candidates(x: Floats, y: Floats) -> Floats:
    """Return scores at which to cut: quantiles of both samples, more of them in the tails."""
    pooled = np.sort(np.concatenate([x, y]))
    pooled = pooled[~np.isnan(pooled)]
    if not pooled.size:
        return pooled
    tail = np.unique(np.geomspace(1, max(1, pooled.size // 2), _CANDIDATES // 4).astype(np.int64))
    middle = np.linspace(0, pooled.size - 1, _CANDIDATES // 2).astype(np.int64)
    places = np.unique(np.concatenate([tail - 1, pooled.size - 1 - tail, middle]))
    cuts = pooled[places[places >= 0]]
    # Above such a score, and from it on: an atom is an event by itself.
    before = np.searchsorted(pooled, cuts, side="left") - 1
    cuts = np.unique(np.concatenate([cuts, pooled[before[before >= 0]]]))
    # Half-way to the next score: a threshold on an atom puts it on one side, whatever rounding does.
    following = pooled[np.minimum(np.searchsorted(pooled, cuts, side="right"), pooled.size - 1)]
    with np.errstate(invalid="ignore", over="ignore"):
        between = np.where(following > cuts, cuts / 2 + following / 2, cuts)
    return np.unique(np.where(np.isfinite(between) & (between < following), between, cuts))


def choose_bet(x: Floats, y: Floats, constraints: Constraints, overfit: float = _OVERFIT) -> Bet:
    """Choose half-lines and stakes for each claim, from scores of past draws.

    Of unequally many on x and x′ it takes the latest of the longer sample.

    Args:
        x: scores of draws on x.
        y: scores of draws on x′.
        constraints: the claims.
        overfit: twice the log-likelihood that is gained by chance; larger if the score is the best of many.
    """
    claims, pairs = constraints.epsilon.shape
    draws = min(x.size, y.size)
    x, y = x[x.size - draws :], y[y.size - draws :]
    # Where to cut is seen on some draws, how often each side occurs is counted on all of them.
    cuts = threshold_candidates(x[-_MAX_SORTED:], y[-_MAX_SORTED:])
    if not cuts.size:
        return _neutral(constraints)
    # The last one has counts of what is above all cuts, and of what is not a number.
    counts_x, counts_y = (
        np.bincount(np.searchsorted(cuts, scores), minlength=cuts.size + 1) for scores in (x, y)
    )
    below_x, below_y = (np.cumsum(counts[:-1]) for counts in (counts_x, counts_y))
    above_x = draws - int(np.isnan(x).sum()) - below_x
    above_y = draws - int(np.isnan(y).sum()) - below_y
    null, delta = constraints.posterior[..., None], constraints.delta[..., None]
    gain_above, stake_above, x_above = _best_direction(above_x, above_y, draws, null, delta)
    gain_below, stake_below, x_below = _best_direction(below_x, below_y, draws, null, delta)
    place_above = gain_above.argmax(axis=2)
    # The half-line below ends at or before the one above begins; it may be the best of all, too.
    best_until = np.maximum.accumulate(gain_below, axis=2)
    grid = np.ix_(np.arange(claims), np.arange(pairs))
    total = gain_above[(*grid, place_above)] + best_until[(*grid, place_above)]
    pair = total.argmax(axis=1)
    rows = np.arange(claims)
    high = place_above[rows, pair]
    allowed = np.where(np.arange(cuts.size) <= high[:, None], gain_below[rows, pair], -1.0)
    low = allowed.argmax(axis=1)
    at_null = constraints.posterior[rows, pair]

    def shrink(gain: Floats, stake: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            share = np.maximum(0.0, 1 - overfit / 2 / np.where(gain > 0, gain, 1e-300))
        stake_used: Floats = at_null + (stake - at_null) * share
        return stake_used

    gains = gain_above[rows, pair, high], gain_below[rows, pair, low]
    return Bet(
        constraints,
        pair,
        cuts[high],
        cuts[low],
        shrink(gains[0], stake_above[rows, pair, high]),
        shrink(gains[1], stake_below[rows, pair, low]),
        x_above[rows, pair, high],
        x_below[rows, pair, low],
        np.maximum(0.0, gains[0] - overfit / 2) + np.maximum(0.0, gains[1] - overfit / 2),
    )


def _best_direction(
    in_x: Integers, in_y: Integers, draws: int, null: Floats, delta: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the gain, the stake and the direction of the best bet on each event against each claim."""
    p, q = (in_x + 0.5) / (draws + 1), (in_y + 0.5) / (draws + 1)
    gain_x, stake_x = _best_stake(p, q, null, delta)
    gain_y, stake_y = _best_stake(q, p, null, delta)
    is_x = gain_x >= gain_y
    return draws * np.where(is_x, gain_x, gain_y), np.where(is_x, stake_x, stake_y), is_x


def _best_stake(p: Floats, q: Floats, null: Floats, delta: Floats) -> tuple[Floats, Floats]:
    """Return the largest mean gain of a bet on an event of probabilities p and q, and its stake s.

    It maximizes p·ln(s/b) + q·ln((1−s)/(1−b)) − δ(s/b − 1): a quadratic equation.
    """
    price = delta / null
    middle = p + q + price
    stake = 2 * p / (middle + np.sqrt(np.maximum(0.0, middle**2 - 4 * price * p)))
    stake = np.clip(stake, null, _MAX_POSTERIOR)
    gain = p * np.log(stake / null) + q * np.log((1 - stake) / (1 - null)) - delta * (stake / null - 1)
    return np.maximum(gain, 0.0), stake


def _neutral(constraints: Constraints) -> Bet:
    claims = constraints.epsilon.shape[0]
    null = constraints.posterior[:, 0]
    nothing = np.zeros(claims, dtype=bool)
    return Bet(
        constraints,
        np.zeros(claims, dtype=np.int64),
        np.full(claims, np.inf),
        np.full(claims, -np.inf),
        null,
        null,
        nothing,
        nothing,
        np.zeros(claims),
    )
