"""Noise for the zoo: exact, from hubbub's samplers, so that nothing but the planted bug is wrong."""

import hashlib
from contextlib import contextmanager
from fractions import Fraction

import numpy as np

from hubbub.noise import discrete_laplace, entropy, rounded_gaussian

STEP = 2.0**-12
"""Answers are multiples of this."""


def laplace(scale, count):
    return discrete_laplace(Fraction(scale) / Fraction(STEP), count) * STEP


def gaussian(sigma, count):
    return rounded_gaussian(Fraction(sigma) / Fraction(STEP), count) * STEP


def uniform(count):
    """Uniform on [0, 1), in steps of 2^-53."""
    return (np.frombuffer(entropy.random_bytes(8 * count), dtype=np.uint64) >> np.uint64(11)) * 2.0**-53


def integers(count, below):
    return (uniform(count) * below).astype(np.int64)


@contextmanager
def seeded(seed):
    """Replay chosen bits through the private door: audits in tests are the same each time."""
    bits = np.random.Generator(
        np.random.PCG64(int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:8], "big"))
    )
    with entropy._inject_bits(bits.bytes):
        yield
