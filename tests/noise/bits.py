"""Chosen bits for the samplers, and the laws that must come out, by mpmath."""

import random
from bisect import bisect_right
from contextlib import contextmanager
from fractions import Fraction

import mpmath
import numpy as np

from internals import inject_bits

mp = mpmath.mp.clone()
mp.prec = 600

ONES = (1 << 64) - 1


def word(value, bits=64):
    """The bytes from which `random_bits(bits)` makes `value`."""
    return value.to_bytes(bits // 8, "big")


class Tape:
    """A source that plays its parts in order, one for each request, and notes what was asked for.

    A part is bytes, or a function from the number of bytes asked for. Running off the end is an error,
    unless `then` is given: the byte that follows for ever, or a function.
    """

    def __init__(self, *parts, then=None):
        self.parts = list(parts)
        self.then = then
        self.requests = []

    def __call__(self, count):
        self.requests.append(count)
        if self.parts:
            part = self.parts.pop(0)
        else:
            assert self.then is not None, f"{count} bytes more than were foreseen"
            part = self.then
        if isinstance(part, int):
            part = bytes([part]) * count
        if callable(part):
            part = part(count)
        assert len(part) == count, f"{count} bytes were asked for, {len(part)} foreseen"
        return part


@contextmanager
def playing(*parts, then=None):
    tape = Tape(*parts, then=then)
    with inject_bits(tape):
        yield tape
    assert not tape.parts, "bits were left over"


def seeded(seed):
    """A source for tests that must see the same bits in every run; it notes what it gave."""
    generator = random.Random(seed)
    return Tape(then=generator.randbytes)


def real(x):
    return mp.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mp.mpf(x)


def scaled(x, bits):
    """⌊2^bits·x⌋ of an mpmath number: its first bits."""
    return int(mp.floor(mp.ldexp(x, bits)))


# Each law as a function j → Pr[size < j].


def geometric(scale):
    rate = -1 / real(scale)
    return lambda j: 1 - mp.exp(j * rate)


def discrete_laplace(scale):
    q = mp.exp(-1 / real(scale))
    return lambda j: 1 - 2 * q**j / (1 + q) if j else mp.zero


def rounded_gaussian(sigma):
    return lambda j: mp.erf((2 * j - 1) / (2 * real(sigma)) / mp.sqrt(2)) if j else mp.zero


def half_gaussian(variance):
    return _summed(variance, 1)


def gaussian_stairs(variance):
    return lambda j: -mp.expm1(-j * j / (2 * real(variance)))


def discrete_gaussian(variance):
    return _summed(variance, 2)


def _summed(variance, times):
    variance = real(variance)
    sums, k = [mp.zero, mp.one], 1
    while True:
        weight = mp.exp(-k * k / (2 * variance))
        if weight < mp.ldexp(1, -mp.prec):
            break
        sums.append(sums[-1] + times * weight)
        k += 1
    return lambda j: sums[j] / sums[-1] if j < len(sums) else mp.one


def thresholds(law, bits=64):
    """⌊2^bits·Pr[size < j]⌋ for j = 1, 2, … up to the last below 2^bits − 1."""
    results, j = [], 1
    while True:
        results.append(scaled(law(j), bits))
        if results[-1] >= (1 << bits) - 1:
            return results
        j += 1


def value_at(result, u):
    """The value at a U that begins with `u`, unless it is a tie; `found` as from `thresholds`."""
    value = bisect_right(result, u)
    assert value == 0 or result[value - 1] != u, "a tie: choose other bits"
    return value


def draw_at(table, us, *, negative=False):
    """What the shipped `draw` gives where the uniform numbers begin with the 64 bits `us`."""
    us = np.asarray(us, dtype=np.uint64)
    prefix = np.uint64(15 if table._signed else 16)
    cells = (us >> np.uint64(64) - prefix).astype(np.uint16) | np.uint16(negative << 15)
    waiting = np.flatnonzero(table._get_guide()[cells] == np.iinfo(np.int16).min)

    def refine(count):
        nonlocal waiting
        lanes = count // 8
        part, waiting = waiting[:lanes], waiting[lanes:]
        fresh = np.zeros(lanes, dtype=np.uint64)
        fresh[: part.size] = us[part] << prefix
        return fresh.tobytes()

    with playing(cells.tobytes(), then=refine):
        return table.draw(us.size)
