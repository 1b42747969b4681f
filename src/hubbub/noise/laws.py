"""The laws, each as the steps of its distribution function (see `table`).

All start from e^−x and Pr[|Z| < x] as enclosures and multiply outward-rounded intervals on from
there, with bits to spare.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import count

from hubbub.noise.real import Enclosure, central, exp_neg, quotient

__all__ = [
    "bell",
    "bell_stairs",
    "discrete_gaussian_size",
    "discrete_laplace_size",
    "geometric",
    "rounded_gaussian_size",
]

_SPARE = 32


def geometric(scale: Fraction, bits: int) -> Iterator[Enclosure]:
    """Pr[X = k] ∝ e^(−k/scale), k ≥ 0: Cⱼ = 1 − qʲ with q = e^(−1/scale)."""
    work = bits + _SPARE
    one = 1 << work
    for low, high in _powers(exp_neg(1 / scale, work), work):  # pragma: no branch - they never end
        yield one - high >> _SPARE, -(low - one >> _SPARE)


def discrete_laplace_size(scale: Fraction, bits: int) -> Iterator[Enclosure]:
    """|X| where Pr[X = k] ∝ e^(−|k|/scale): Cⱼ = 1 − 2qʲ/(1+q)."""
    work = bits + _SPARE
    one = 1 << work
    q = exp_neg(1 / scale, work)
    factor = quotient((2 << work, 2 << work), (one + q[0], one + q[1]), work)
    for low, high in _powers(q, work):  # pragma: no branch - they never end
        tail = low * factor[0] >> work, (high * factor[1] >> work) + 1
        yield one - tail[1] >> _SPARE, -(tail[0] - one >> _SPARE)


def rounded_gaussian_size(sigma: Fraction, bits: int) -> Iterator[Enclosure]:
    """|X| where X = σZ rounded to the nearest integer: Cⱼ = Pr[|σZ| < j − ½]."""
    for j in count(1):  # pragma: no branch - it never ends
        yield central((2 * j - 1) / (2 * sigma), bits)


def bell(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """Pr[X = k] ∝ e^(−k²/2·variance) for k ≥ 0."""
    return _normalised(_bell_weights(variance, bits + _SPARE), bits)


def bell_stairs(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """The step k of e^(−k²/2·variance) that a uniform height is under: Cⱼ = 1 − e^(−j²/2·variance)."""
    one = 1 << bits + _SPARE
    weights, _ = _bell_weights(variance, bits + _SPARE)
    for low, high in weights[1:]:
        yield one - high >> _SPARE, -(low - one >> _SPARE)
    while True:
        yield (1 << bits) - 1, 1 << bits


def discrete_gaussian_size(variance: Fraction, bits: int) -> Iterator[Enclosure]:
    """|X| where Pr[X = k] ∝ e^(−k²/2·variance) for all integers k: every size but 0 counts twice."""
    weights, rest = _bell_weights(variance, bits + _SPARE)
    twice = [(low, high) if k == 0 else (2 * low, 2 * high) for k, (low, high) in enumerate(weights)]
    return _normalised((twice, 2 * rest), bits)


def _powers(q: Enclosure, work: int) -> Iterator[Enclosure]:
    """q, q², q³, …"""
    low, high = q
    while True:
        yield low, high
        low = low * q[0] >> work
        high = (high * q[1] >> work) + 1


def _bell_weights(variance: Fraction, work: int) -> tuple[list[Enclosure], int]:
    """e^(−k²/2·variance) for k = 0, 1, … down to one unit, and an upper bound of the rest's sum."""
    one = 1 << work
    r = exp_neg(1 / (2 * variance), work)
    square = r[0] * r[0] >> work, (r[1] * r[1] >> work) + 1
    low, high = one, one
    step = r  # r^(2k+1), the ratio of the next weight to this one
    weights = []
    while high > 1:
        weights.append((low, high))
        low, high = low * step[0] >> work, (high * step[1] >> work) + 1
        step = step[0] * square[0] >> work, (step[1] * square[1] >> work) + 1
    # The weights left out start below `high` and shrink at least by `step` each.
    return weights, -(-(high << work) // (one - step[1]))


def _normalised(weights_and_rest: tuple[list[Enclosure], int], bits: int) -> Iterator[Enclosure]:
    """Partial sums over the total; where the weights end, all that is known is Cⱼ < 1."""
    weights, rest = weights_and_rest
    total = sum(low for low, _ in weights), sum(high for _, high in weights) + rest
    low = high = 0
    for weight in weights:
        low, high = low + weight[0], high + weight[1]
        # Cⱼ < 1 always: a bound above 1 is the rounding's.
        yield (low << bits) // total[1], min(-(-(high << bits) // total[0]), 1 << bits)
    while True:
        yield (low << bits) // total[1], 1 << bits
