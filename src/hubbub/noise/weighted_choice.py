"""Exact choice by weights m·e^(−rate·gap), with integers m and gaps: the exponential mechanism's law.

Many choices are made at once, each among its own candidates. One uniform number U chooses each of them by
inversion. Floats decide where U is far from every edge; otherwise integers decide, with as many digits of U
as it takes.

Proof: docs/proofs/quantiles.md, "The sampler"
"""

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.noise.enclosures import exp_neg
from hubbub.noise.entropy import random_bits, random_bytes

__all__ = ["Choices", "choose_by_floats", "locate_exactly"]

_LOG_ERROR = 2.0**-40
"""What the logarithm of a weight is off by at most, wherever the weight is not negligible."""
_MAX_POWER = 1e6
"""For the floats e^-this is 0, whatever it is multiplied with."""


class Choices(NamedTuple):
    """What was chosen, from which 64 bits of U each, and where floats could not decide."""

    places: NDArray[np.intp]
    words: NDArray[np.uint64]
    undecided: NDArray[np.bool_]


def choose_by_floats(
    multiplicities: NDArray[np.int64], gaps: NDArray[Any], rate: Fraction, starts: NDArray[np.intp]
) -> Choices:
    """For each choice the place of one candidate, with probability proportional to m·e^(−rate·gap).

    Candidates may be left out that together weigh less than 2^-60 of the one that weighs most, if
    `locate_exactly` sees all of them in the same order where a choice is undecided.

    Args:
        multiplicities: integers from 1 to 2^46.
        gaps: integers, at least 0, as 64-bit numbers or Python's.
        rate: above 0.
        starts: where the candidates of each choice begin, at least one; they end where the next choice's do.

    >>> gaps = np.array([0, 10**9, 10**9, 0])
    >>> choose_by_floats(np.array([1, 7, 7, 1]), gaps, Fraction(1, 2), np.array([0, 2])).places.tolist()
    [0, 3]

    Guarantee: a choice that is not undecided is the one that exact weights make of the same U.
    Proof: docs/proofs/quantiles.md, "The sampler"
    """
    ends = np.append(starts[1:], multiplicities.size)
    edges, base = _float_edges(multiplicities, gaps, rate, starts, ends)
    words = np.frombuffer(random_bytes(8 * starts.size), dtype=">u8").astype(np.uint64)
    whole = edges[ends] - base
    at = base + (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 * whole
    # All sums are off by less than this: their weights are, and sums of doubles.
    margin = 4 * _LOG_ERROR * whole + (multiplicities.size + 16) * 2.0**-50 * edges[-1]
    places = np.clip(np.searchsorted(edges, at, side="right") - 1, starts, ends - 1)
    is_close = np.minimum(np.abs(at - edges[places]), np.abs(edges[places + 1] - at)) <= margin
    return Choices(places, words, is_close)


def _float_edges(
    multiplicities: NDArray[np.int64],
    gaps: NDArray[Any],
    rate: Fraction,
    starts: NDArray[np.intp],
    ends: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sums of the weights before each candidate and after the last, and those before each choice.

    The largest weight of each choice is 1.
    """
    # Where a rate is not a double the weights of all gaps but 0 are nothing, or all are alike.
    factor = float(min(max(rate, Fraction(1, 2**900)), Fraction(2**900)))
    own = gaps - np.repeat(np.minimum.reduceat(gaps, starts), ends - starts)
    with np.errstate(over="ignore"):
        power = np.minimum(own.astype(np.float64) * factor, _MAX_POWER)
    logs = np.log(multiplicities) - power
    logs -= np.repeat(np.maximum.reduceat(logs, starts), ends - starts)
    with np.errstate(under="ignore"):
        weights = np.exp(logs)
    edges = np.zeros(weights.size + 1)
    np.cumsum(weights, out=edges[1:])
    return edges, edges[starts]


def locate_exactly(u: int, rate: Fraction, gaps: list[int], multiplicities: list[int]) -> int:
    """The j with W₀ + … + Wⱼ₋₁ ≤ U·W < W₀ + … + Wⱼ for Wⱼ = m·e^(−rate·gap), from 64 bits of U on.

    Guarantee: it is decided by enclosures of all weights, so for a uniform U it has exactly this law.
    Proof: docs/proofs/quantiles.md, "The sampler"
    """
    least, bits = min(gaps), 64
    while True:
        work = bits + len(gaps).bit_length() + 64
        known = {gap: exp_neg(rate * (gap - least), work) for gap in set(gaps)}
        pairs = list(zip(gaps, multiplicities, strict=True))
        lows, highs = (list(accumulate(m * known[gap][end] for gap, m in pairs)) for end in (0, 1))
        # All edges before this candidate's are at or below U; is its own above?
        place = bisect_right(highs, u * lows[-1] >> bits)
        if (u + 1) * highs[-1] <= lows[place] << bits:
            return place
        u, bits = u << 64 | random_bits(64), bits + 64
