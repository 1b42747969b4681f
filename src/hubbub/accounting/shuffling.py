"""Amplification by shuffling: one report hides among its clones.

Of n − 1 other reports of an ε-DP local randomizer, C ~ Bin(n − 1, e^−ε) look as if they came from one of the
two neighbours' data, evenly (Feldman, McMillan and Talwar 2021). An observer sees two counts.

Proof: docs/proofs/dominating-pairs.md, "Shuffling"
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.discrete_pairs import DiscretePair, epsilon_delta_pair
from hubbub.accounting.events import Event
from hubbub.accounting.float_bounds import Uncertified, float_above, float_below
from hubbub.numbers import format_up

__all__ = ["ShuffledReports"]

Doubles = NDArray[np.float64]

_TAIL_DEVIATIONS = 38.5
"""Beyond this many deviations, and some more for skewness, a binomial distribution has less than 1e-300."""
MAX_OUTCOMES = 1 << 21
BINS = 1 << 13
# survives: From where on it is left to others is free.
_MIN_EPSILON, _MAX_EPSILON, _MAX_REPORTS = Fraction(1, 10**9), 40, 10**9
_MASS_ERROR, _LOSS_ERROR = 1e-10, 1e-12


@dataclass(frozen=True)
class ShuffledReports(Event):
    """Shuffled local reports, each of this ε."""

    epsilon: Fraction
    reports: int

    def dominating_pair(self, *, added: bool, upper: bool) -> DiscretePair:  # noqa: ARG002
        """Two counts under two mirrored distributions; beyond the range of doubles, one report."""
        # survives: From where on it is left to others is free.
        if not (_MIN_EPSILON <= self.epsilon <= _MAX_EPSILON and self.reports <= _MAX_REPORTS):
            if upper:
                return epsilon_delta_pair(self.epsilon)
            raise Uncertified
        # survives: A unit of ε is less than what is allowed for losses.
        return clone_pair(
            float_above(self.epsilon) if upper else float_below(self.epsilon), self.reports, upper=upper
        )

    @property
    def relation(self) -> str:
        """One unit's data is substituted."""
        return "substitution"

    @property
    def max_loss(self) -> Fraction:
        """ε: it may happen that no other report is a clone."""
        return self.epsilon

    def __str__(self) -> str:
        return f"{self.reports} shuffled reports of ε = {format_up(self.epsilon)}"


@lru_cache(maxsize=32)
def clone_pair(epsilon: float, reports: int, *, upper: bool) -> DiscretePair:
    """Atoms that dominate the pair (up), or are dominated by it."""
    clones, probabilities, rest = _clone_counts(reports - 1, epsilon, upper=upper)
    keep, lose, apart = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon)), math.tanh(epsilon / 2)
    losses, ours, theirs = [], [], []
    for count, chance in zip(clones.tolist(), probabilities.tolist(), strict=True):
        m = count + 1
        first = outcome_window(m, 0.5)
        twice = 2 * chance * binomial_probabilities(m, first, 0.5, 0.5) / m
        p, q = (twice * (keep * a + lose * b) for a, b in ((first, m - first), (m - first, first)))
        # ln(p/q), without losing what is small; of mirror images, the same.
        more, less = np.maximum(first, m - first), np.minimum(first, m - first)
        size = np.log1p(apart * (more - less) / (keep * less + lose * more))
        losses.append(np.where(more == first, size, -size))
        ours.append(p)
        theirs.append(q)
    loss, p, q = (np.concatenate(some) for some in (losses, ours, theirs))
    has_mass = p + q > 0
    return _bin_outcomes(loss[has_mass], p[has_mass], q[has_mass], rest if upper else 0.0, upper=upper)


def _clone_counts(n: int, epsilon: float, *, upper: bool) -> tuple[NDArray[np.int64], Doubles, float]:
    """Numbers of clones and their chances; rounded down (up: fewer hide less) to a few levels, or up."""
    chance = math.exp(-epsilon)
    counts = outcome_window(n, chance)
    probabilities = binomial_probabilities(n, counts, chance, -math.expm1(-epsilon))
    # survives: How many levels there are is free: either way they are rounded to the safe side.
    each = 2 * _TAIL_DEVIATIONS * math.sqrt(n * chance / 4 + 1)
    # survives: How many levels there are is free: either way they are rounded to the safe side.
    levels = max(1, min(counts.size, int(MAX_OUTCOMES / each)))
    edges = np.unique(np.linspace(0, counts.size, levels + 1).astype(np.int64))
    grouped = np.add.reduceat(probabilities, edges[:-1])
    return counts[edges[:-1] if upper else edges[1:] - 1], grouped, 1e-290


def outcome_window(n: int, chance: float) -> NDArray[np.int64]:
    """Where all but 1e-300 of Bin(n, chance) lies."""
    reach = _TAIL_DEVIATIONS * math.sqrt(n * chance * (1 - chance)) + 500
    low, high = max(0, math.floor(n * chance - reach)), min(n, math.ceil(n * chance + reach))
    return np.arange(low, high + 1)


def binomial_probabilities(n: int, k: NDArray[np.int64], chance: float, other: float) -> Doubles:
    """Bin(n, chance) at k, to some units: by Stirling's series and the deviance, in which nothing cancels.

    `other` is 1 − chance, known better than from it.
    """
    if n == 0:
        return np.ones(k.size)
    # survives: None and all have formulas of their own: what the other one gives there is not taken.
    inner = np.clip(k, 1, max(1, n - 1)).astype(np.float64)
    rest = np.maximum(n - inner, 1.0)
    log_p = stirling_error(np.array([float(n)])) - stirling_error(inner) - stirling_error(rest)
    log_p -= deviance(inner, n * chance) + deviance(rest, n * other)
    log_p += np.log(n / (2 * math.pi * inner * rest)) / 2
    log_p = np.where(
        k == 0, n * _log_rest(chance, other), np.where(k == n, n * _log_rest(other, chance), log_p)
    )
    return np.asarray(np.exp(np.maximum(log_p, -745.0)))


def _log_rest(chance: float, other: float) -> float:
    """Ln(1 − chance), from what is known better."""
    return math.log1p(-chance) if chance < other else math.log(other)


def stirling_error(n: Doubles) -> Doubles:
    """Ln n! − ln(√(2πn)·(n/e)^n)."""
    small = n < 16
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / n**2) / n**2) / n**2) / n**2) / n
    exact = np.array([math.lgamma(x + 1) - (x + 0.5) * math.log(x) + x for x in range(1, 16)]) - (
        math.log(2 * math.pi) / 2
    )
    return np.where(small, exact[np.minimum(n, 15.0).astype(int) - 1], series)


def deviance(x: Doubles, mean: float) -> Doubles:
    """x·ln(x/mean) + mean − x."""
    t = (x - mean) / mean
    near = np.abs(t) < 0.1
    # (1 + t)·ln(1 + t) − t = t²/2 − t³/6 + t⁴/12 − …
    # survives: What stands where the other formula is taken is free.
    s = np.where(near, t, 0.0)
    series = sum((-1) ** j * s**j / (j * (j - 1)) for j in range(2, 18))
    direct = x * np.log(np.where(near, 1.0, x / mean)) + mean - x
    return np.asarray(np.where(near, mean * series, direct))


def _bin_outcomes(
    loss: Doubles, p: Doubles, q: Doubles, infinity_mass: float, *, upper: bool
) -> DiscretePair:
    """Outcomes split onto a few losses (up), or merged into a few."""
    if loss.size <= BINS:
        atoms, first, second = (tuple(some.tolist()) for some in (loss, p, q))
        return DiscretePair(
            atoms,
            first,
            second,
            infinity_mass,
            relative_mass_error=_MASS_ERROR,
            relative_loss_error=_LOSS_ERROR,
        )
    low, high, bins = float(loss.min()), float(loss.max()), BINS
    step = (high - low) / bins
    # survives: No loss is below the least.
    place = np.clip(((loss - low) / step).astype(np.int64), 0, bins - 1)
    points = low + step * np.arange(bins + 1)
    if not upper:
        ours, theirs = (np.bincount(place, weights=mass, minlength=bins) for mass in (p, q))
        # survives: A bin that Q's mass lies in has some of P's, too.
        has_mass = (ours > 0) & (theirs > 0)
        ours, theirs = ours[has_mass], theirs[has_mass]
        losses = np.log(ours / theirs)
        atoms, first, second = (tuple(x.tolist()) for x in (losses, ours, theirs))
        return DiscretePair(
            atoms, first, second, relative_mass_error=_MASS_ERROR, relative_loss_error=_LOSS_ERROR
        )
    share = (np.expm1(points[place] - loss) / math.expm1(-step)).clip(0.0, 1.0)
    # survives: A sum is as long as its last place, whatever the least length.
    ours = np.bincount(place, weights=p * (1 - share), minlength=bins + 1)
    # survives: A sum is as long as its last place, whatever the least length.
    ours += np.bincount(place + 1, weights=p * share, minlength=bins + 1)
    # Rounding is a matter of losses, too: they are raised a little.
    losses = points + 1e-12 * (abs(low) + abs(high))
    # survives: A bin that Q's mass lies in has some of P's, too.
    has_mass = ours > 0
    return DiscretePair(
        tuple(losses[has_mass].tolist()),
        tuple(ours[has_mass].tolist()),
        tuple((ours[has_mass] * np.exp(-losses[has_mass])).tolist()),
        infinity_mass,
        0.0,
        relative_mass_error=_MASS_ERROR,
    )
