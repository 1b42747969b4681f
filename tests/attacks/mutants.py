"""Weak versions, kept so that every attack is seen to find what it looks for. Nothing else uses them.

Each is what some library did, or what ours would be with one thought left out.
"""

import math
import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hubbub import InvalidInput, noise
from hubbub.noise.entropy import random_bits

# Floats


def inverse_laplace(x, n):
    """A01: the textbook's inversion on doubles; the logarithm reaches only some of the doubles."""
    u = np.random.random(n) + 2.0**-53
    return x + np.random.choice([-1.0, 1.0], n) * (-10.0 * np.log(u))


def added_to_a_double(x, n):
    """A02: NumPy's noise added to a double; the rounding of the sum shows how large x was."""
    return x + np.random.laplace(scale=1.0, size=n)


def single_precision(x, n):
    """A03: noise from 23 random bits in single precision: few enough to list all that can come out."""
    u = ((np.random.randint(0, 1 << 23, n) + 1) / np.float32(1 << 23)).astype(np.float32)
    sign = np.random.choice(np.array([-1, 1], dtype=np.float32), n)
    return (np.float32(x) + sign * (np.float32(-10) * np.log(u))).astype(np.float64)


def noise_cast_to_double(value, noise):
    """A04: noise beyond 2^53 becomes a double before it is added: its last bits hide nothing."""
    return int(float(noise)) + value


def float_sum(rows):
    """A16: the sensitivity of real numbers, claimed for a sum of doubles."""
    total = 0.0
    for row in rows:
        total += min(max(row, -(2.0**53)), 2.0**53)
    return Fraction(total), Fraction(2**53)


# Integers


def integers_through_doubles(x, n):
    """A05: integers made doubles before the noise is added."""
    return [int(float(x) + float(noise.discrete_laplace(1))) for _ in range(n)]


def wrapping_sum(rows):
    """A06: 64 bits, and no look at whether the sum fits."""
    clamped = np.clip(np.array(rows, dtype=np.int64), 0, 1 << 61)
    return Fraction(int(clamped.sum())), Fraction(1 << 61)


def nan_passes_the_clamp(rows):
    """A07: no comparison with NaN is true, so clamping lets it through."""
    total = float(np.clip(np.array(rows, dtype=float), 0.0, 50.0).sum())
    return total, Fraction(50)


def bounds_from_the_rows(rows):
    """A14: the sensitivity is read off the data."""
    return Fraction(sum(map(Fraction, rows))), Fraction(max(map(abs, rows)))


def bounds_not_enforced(rows):
    """A15: bounds are asked for, and believed."""
    return Fraction(sum(map(Fraction, rows))), Fraction(50)


@dataclass
class StaleBounds:
    """A30: what was checked is not what is used: the array is the caller's, the sensitivity a note."""

    value: Any
    sensitivity: int

    def read(self):
        return self.value

    def release(self, sensitivity):
        return self.value + noise.discrete_laplace(sensitivity, size=len(self.value))


def not_clamped(value, noise):
    """A18: a draw is cut at the largest that fits, the sum is not."""
    return value + noise


def truncated_noise(x, n):
    """A18: noise cut at ±3, so what is released beyond 3 tells that x was not 0."""
    return x + np.clip(noise.discrete_laplace(1, size=n), -3, 3)


# Samplers


def negative_zero(scale):
    """A17: a sign for every geometric draw: zero comes from both, twice as often as it should."""

    def draw(n):
        signs = noise.bernoulli(Fraction(1, 2), size=n)
        return np.where(signs, 1, -1) * noise.geometric(scale, size=n)

    return draw


def laplace_5_percent_short(scale):
    """A19: the scale is 5 % too small."""
    return lambda n: noise.discrete_laplace(scale * Fraction(19, 20), size=n)


def gaussian_5_percent_short(sigma):
    """A19: σ is 5 % too small."""
    return lambda n: noise.rounded_gaussian(sigma * Fraction(19, 20), size=n)


def discrete_gaussian_5_percent_short(sigma):
    """A19: σ is 5 % too small."""
    return lambda n: noise.discrete_gaussian((sigma * Fraction(19, 20)) ** 2, size=n)


def geometric_5_percent_short(scale):
    """A19: the scale is 5 % too small."""
    return lambda n: noise.geometric(scale * Fraction(19, 20), size=n)


def bit_off_by_one(n):
    """A20: a coin of ¾ by the digit of ¾ at which the first head falls, read one place too far."""
    digits = [1, 1, *[0] * 62]
    first = [64 - (random_bits(64) | 1).bit_length() for _ in range(n)]
    return [digits[min(place + 1, 63)] for place in first]


def response_5_percent_loud(epsilon):
    """A20: the truth is told as for an ε 5 % larger."""
    keep = Fraction(1 / (1 + math.exp(-1.05 * epsilon)))
    return lambda n: noise.bernoulli(keep, size=n).astype(np.int64)


def discrete_gaussian_with_the_continuous_claim(sigma):
    """A22: the discrete law, charged as if it were the continuous one."""
    return lambda x, n: x + noise.discrete_gaussian(Fraction(sigma) ** 2, size=n)


# Time


def flip_by_flip():
    """A24: a geometric draw by flipping coins until one falls on tails; its time is its value."""
    count = 0
    while noise.bernoulli_exp(Fraction(1, 10)):
        count += 1
    return count


def flip_by_flip_vector():
    """A24: the same for many: as many rounds as the largest needs."""
    alive = np.ones(64, dtype=bool)
    draws = np.zeros(64, dtype=np.int64)
    while alive.any():
        alive &= noise.bernoulli_exp(Fraction(1, 5), size=64)
        draws += alive
    return draws


# Parameters


def naive_calibration(epsilon, delta):
    """A23: δ as the difference of two doubles near each other; where it is tiny only rounding is left."""

    def spent(sigma):
        first, second = ((1 + math.erf(z / math.sqrt(2))) / 2 for z in _arguments(sigma, epsilon))
        return first - math.exp(epsilon) * second

    low, high = 1e-3, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= delta else (middle, high)
    return Fraction(high)


def _arguments(sigma, epsilon):
    return 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma


def unchecked_laplace(sensitivity, epsilon):
    """A27: every comparison with NaN is false, so it passes those that would refuse it."""
    if epsilon <= 0 or sensitivity < 0:
        raise InvalidInput("a parameter is out of range", why="there is no such noise", fix="pass another")
    return sensitivity / epsilon


def failing_count(rows):
    """A29: what a row makes the predicate raise comes out, the row with it."""
    return sum(1 for row in rows if int(row) > 0)


def shows_what_it_refuses(value):
    """A29: an error that means well."""
    if not isinstance(value, int) or abs(value) > 2**61:
        raise ValueError(f"cannot release {value!r}")
    return value + noise.discrete_laplace(1)


# Entropy

ANOTHER_GENERATOR = """
import numpy as np

def release(value, seed=None):
    return value + np.random.default_rng(seed).laplace()
"""
"""A25: a module that draws its noise elsewhere."""

_SEED = 20250101
_own = threading.local()


def seeded_at_import():
    """A26: a generator of its own for each thread, all made from the seed of the program's start."""
    if not hasattr(_own, "generator"):
        _own.generator = np.random.default_rng(_SEED)
    return _own.generator.bytes(16)


# Selection


def strict_tail(scale, m):
    """A11: Pr[|X| > m], where the code asks whether |X| ≥ m."""
    q = math.exp(-1 / scale)
    return 2 * q ** (m + 1) / (1 + q)


def strict_gaussian_tail(sigma, m):
    """A11: the same for the rounded Gaussian."""
    return math.erfc((m + 0.5) / sigma / math.sqrt(2))


def strictly_above(epsilon):
    """A11: "above" by > where ≥ was analysed: on integers the two differ by all that ties."""

    def ask(query, threshold):
        return query + noise.discrete_laplace(4 / epsilon) > threshold + noise.discrete_laplace(2 / epsilon)

    return ask


def keys_above_charged_as(sigma, threshold):
    """A11: keys are kept by ≥, but δ is that of >."""
    return strict_gaussian_tail(sigma, threshold - 1) / 2


def keys_with_noise_cut_short(epsilon, cut):
    """A18: the bar is made for noise up to `cut`, and the noise is cut at half of that."""
    half = cut // 2
    return lambda units, n: units + np.clip(noise.discrete_laplace(1 / epsilon, size=n), -half, half) > cut


def histogram_of_what_is_there(rows):
    """A12: one cell for each category that occurs."""
    counts = [rows.count(category) for category in sorted(set(rows))]
    return np.array(counts) + noise.discrete_laplace(1, size=len(counts))


def bounded_range_charge(epsilon):
    """A21: permute-and-flip charged ε²/8, which only the exponential mechanism's bounded range allows."""
    return Fraction(epsilon) ** 2 / 8


def underflowing_coin(x):
    """A28: e^−x as a double against 53 bits: below 2^-53 it never falls, above 1 − 2^-54 always."""
    return (random_bits(64) >> 11) * 2.0**-53 < math.exp(-x)


def underflowing_choice(scores, rate):
    """A28: weights as doubles: a score far behind has none."""
    edges = np.cumsum(np.exp(float(rate) * (np.array(scores, dtype=float) - max(scores))))
    return int(np.searchsorted(edges, (random_bits(64) >> 11) * 2.0**-53 * edges[-1], side="right"))


def flip_until_heads(scores, rate):
    """A24: permute-and-flip that stops at the first head: how long that takes tells of the other scores."""
    left = [int(score) for score in scores]
    best = max(left)
    while True:
        score = left.pop(noise.uniform(len(left)))
        if noise.bernoulli_exp(rate * (best - score)):
            return score
