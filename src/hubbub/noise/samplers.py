"""Exact integer samplers: the law itself, never an approximation of it.

A sampler returns one Python integer; with `size` a vector; with a list of scales one draw for
each. Single draws need no table for their scale (`large_scales`), except for the discrete Gaussian; vectors
use a table, and above a small scale blocks over a table. Floats only filter: what they cannot decide by
a wide margin is decided by integers.

Proof: docs/proofs/samplers.md
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.noise import inversion, large_scales
from hubbub.noise.enclosures import Real, enclose_fraction, exp_neg
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.noise.inversion import Table, is_below, saturate
from hubbub.noise.large_scales import Blocks
from hubbub.numbers import Number, parse_integer, parse_nonnegative, parse_positive, parse_rational

__all__ = [
    "MAX_SCALE",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "rounded_gaussian",
    "uniform",
]

Integers: TypeAlias = NDArray[np.int64]
Many: TypeAlias = Callable[[int], Integers]

MAX_SCALE = 1 << 48
"""Scales and σ up to here are sampled exactly; beyond it they are refused."""

_SMALL_SCALE = 64
"""Up to this scale (or σ) a table holds the law itself."""
_MAX_DRAWS = 1 << 32
_CHUNK = 1 << 16
"""Tries at a time: their arrays stay in the cache."""
_MAX_SINGLE_DRAWS = 32
"""Vectors of at most this many draws are drawn one by one, without a table of their own."""


@overload
def uniform(bound: int) -> int: ...
@overload
def uniform(bound: int, size: int) -> Integers: ...
def uniform(bound: int, size: int | None = None) -> int | Integers:
    """A uniform integer in [0, bound).

    >>> 0 <= uniform(6) < 6
    True

    Guarantee: exactly this law.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    bound = parse_integer(bound, "bound")
    bits = (bound - 1).bit_length()
    if size is None:
        padding = -bits % 8
        while True:
            # The first draw below the bound: how many it takes is independent of which it is.
            draw = random_bits(bits + padding) >> padding
            if draw < bound:
                return draw
    size = _check_size(size)
    if bits > 62:
        raise Unsupported(
            "bound is above 2^62",
            why="a vector holds 64-bit integers",
            fix="draw one at a time, or choose a smaller bound",
        )
    values, done = np.empty(size, dtype=np.int64), 0
    while done < size:
        # survives: How many are tried at a time is free: the first that fit are taken.
        tries = ((size - done << bits) // bound) * 33 // 32 + 64
        raw = np.frombuffer(random_bytes(8 * min(tries, _CHUNK)), dtype=np.uint64)
        drawn_all = (raw & np.uint64((1 << bits) - 1)).view(np.int64)
        part = drawn_all[drawn_all < bound][: size - done]
        values[done : done + part.size] = part
        done += part.size
    return values


@overload
def bernoulli(p: Number) -> bool: ...
@overload
def bernoulli(p: Number, size: int) -> NDArray[np.bool_]: ...
def bernoulli(p: Number, size: int | None = None) -> bool | NDArray[np.bool_]:
    """True with probability p, a rational between 0 and 1.

    >>> bernoulli(Fraction(1, 1)), bernoulli(Fraction(0, 1))
    (True, False)

    Guarantee: exactly this law.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    exact = parse_rational(p, "p")
    if not 0 <= exact <= 1:
        raise InvalidInput(
            "p is outside 0 to 1", why="it is a probability", fix="pass a number between 0 and 1"
        )
    return _flip_coins(partial(enclose_fraction, exact), size)


@overload
def bernoulli_exp(x: Number) -> bool: ...
@overload
def bernoulli_exp(x: Number, size: int) -> NDArray[np.bool_]: ...
def bernoulli_exp(x: Number, size: int | None = None) -> bool | NDArray[np.bool_]:
    """True with probability e^−x for a rational x ≥ 0.

    >>> bernoulli_exp(0)
    True

    Guarantee: exactly this law.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    return _flip_coins(partial(exp_neg, parse_nonnegative(x, "x")), size)


def bernoulli_exp_each(x: Number, times: Integers) -> NDArray[np.bool_]:
    """For each k ≥ 0 in `times`, True with probability e^(−x·k): the coins of private selection.

    >>> bernoulli_exp_each(1, np.array([0, 10**12])).tolist()
    [True, False]

    Guarantee: exactly this law.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    exact = parse_nonnegative(x, "x")
    # survives: The least of a vector and 1 is as far below 0 as that of a vector and 0.
    if (
        not isinstance(times, np.ndarray)
        or times.ndim != 1
        or times.dtype.kind not in "iu"
        or times.min(initial=0) < 0
    ):
        raise InvalidInput(
            "times is not a vector of whole numbers of at least 0",
            why="each is how often a coin with probability e^-x must come up heads",
            fix="pass a one-dimensional array of integers, none below 0",
        )
    raw = np.frombuffer(random_bytes(8 * times.size), dtype=np.uint64)
    lead = times.astype(np.float64)
    with np.errstate(under="ignore"):
        # Powers of 700 and more are as good as infinite for the filter; integers decide what is close.
        # survives: Chances below e^-699 are as good as 0 for the filter; integers decide what is close.
        lead *= -_filter_rate(exact)
        np.exp(np.maximum(lead, -700.0, out=lead), out=lead)
    lead -= (raw >> np.uint64(11)).view(np.int64) * 2.0**-53
    # survives: What is that close is decided by integers.
    heads: NDArray[np.bool_] = lead > 0
    # survives: Integers may decide more: they decide rightly.
    for lane in (np.abs(lead) < 2.0**-40).nonzero()[0]:
        heads[lane] = is_below(int(raw[lane]), 64, partial(exp_neg, exact * int(times[lane])))
    return heads


@lru_cache(maxsize=2048)
def _filter_rate(x: Fraction) -> float:
    """The rate x as a double that does not overflow."""
    # survives: Where the rate is cut is free: beyond 700 all but 0 times of it are as good as infinite.
    return float(min(x, Fraction(700)))


@overload
def geometric(scale: Number) -> int: ...
@overload
def geometric(scale: Number, size: int) -> Integers: ...
@overload
def geometric(scale: Sequence[Number]) -> Integers: ...
def geometric(scale: Number | Sequence[Number], size: int | None = None) -> int | Integers:
    """Pr[X = k] ∝ e^(−k/scale) for k = 0, 1, 2, …

    >>> geometric(3) >= 0
    True

    Guarantee: exactly this law, for every rational scale up to what is supported.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    return _sample(_GEOMETRIC, scale, size)


@overload
def discrete_laplace(scale: Number) -> int: ...
@overload
def discrete_laplace(scale: Number, size: int) -> Integers: ...
@overload
def discrete_laplace(scale: Sequence[Number]) -> Integers: ...
def discrete_laplace(scale: Number | Sequence[Number], size: int | None = None) -> int | Integers:
    """Pr[X = k] ∝ e^(−|k|/scale) for all integers k.

    >>> discrete_laplace(Fraction(1, 2), size=4).shape
    (4,)

    Guarantee: exactly this law, for every rational scale up to what is supported.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    return _sample(_DISCRETE_LAPLACE, scale, size)


@overload
def rounded_gaussian(sigma: Number) -> int: ...
@overload
def rounded_gaussian(sigma: Number, size: int) -> Integers: ...
@overload
def rounded_gaussian(sigma: Sequence[Number]) -> Integers: ...
def rounded_gaussian(sigma: Number | Sequence[Number], size: int | None = None) -> int | Integers:
    """σZ rounded to the nearest integer: Pr[X = k] = Φ((k+½)/σ) − Φ((k−½)/σ).

    >>> rounded_gaussian([1, 1000, 2**40]).dtype
    dtype('int64')

    Guarantee: exactly this law, for every rational sigma up to what is supported.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    return _sample(_ROUNDED_GAUSSIAN, sigma, size)


@overload
def discrete_gaussian(variance: Number) -> int: ...
@overload
def discrete_gaussian(variance: Number, size: int) -> Integers: ...
@overload
def discrete_gaussian(variance: Sequence[Number]) -> Integers: ...
def discrete_gaussian(variance: Number | Sequence[Number], size: int | None = None) -> int | Integers:
    """Pr[X = k] ∝ e^(−k²/2·variance) for all integers k.

    >>> isinstance(discrete_gaussian(Fraction(9, 4)), int)
    True

    Guarantee: exactly this law, for every rational variance up to what is supported.
    Assumes: the bits of `entropy` are uniform and independent.
    Proof: docs/proofs/samplers.md
    """
    return _sample(_DISCRETE_GAUSSIAN, variance, size)


class _Law(NamedTuple):
    """The samplers of one law: one draw of any scale, and many draws of one scale."""

    name: str
    one: Callable[[Fraction], int]
    many: Callable[[Fraction], Many]
    largest: int


def _sample(law: _Law, scale: Any, size: int | None) -> int | Integers:
    if isinstance(scale, (list, tuple)) or (isinstance(scale, np.ndarray) and scale.ndim == 1):
        if size is not None:
            raise InvalidInput(
                f"both a list for {law.name} and a size are given",
                why="a list gives one draw for each of its members",
                fix="leave size out",
            )
        return _each(law, [_check_scale(law, member) for member in scale])
    exact = _check_scale(law, scale)
    if size is None:
        return law.one(exact)
    size = _check_size(size)
    if size <= _MAX_SINGLE_DRAWS:
        return np.array([saturate(law.one(exact)) for _ in range(size)], dtype=np.int64)
    return law.many(exact)(size)


def _each(law: _Law, scales: list[Fraction]) -> Integers:
    return np.array([saturate(law.one(scale)) for scale in scales], dtype=np.int64)


def _check_scale(law: _Law, scale: Any) -> Fraction:
    # Shortcuts for what most calls pass: a Fraction in range, and not a long one; or an integer.
    # survives: Only a shortcut: what does not take it comes to the same by the longer way.
    if type(scale) is Fraction and 0 < scale.numerator <= law.largest * scale.denominator < 1 << 192:
        return scale
    # survives: Only a shortcut: what does not take it comes to the same by the longer way.
    if type(scale) is int and 0 < scale <= law.largest:
        return _fraction(scale)
    exact = parse_positive(scale, law.name)
    if exact > law.largest:
        raise Unsupported(
            f"{law.name} is above 2^{law.largest.bit_length() - 1}",
            why="beyond that the law would no longer be exact in 64 bits",
            fix="measure in larger units: divide value, sensitivity and scale by one public number",
        )
    return exact


# survives: How many are kept changes none of them.
_fraction = lru_cache(maxsize=2048)(Fraction)


def _check_size(size: Any) -> int:
    # survives: Only a shortcut: what does not take it comes to the same by the longer way.
    if type(size) is int and 0 <= size <= _MAX_DRAWS:
        return size
    count = parse_integer(size, "size", minimum=0)
    if count > _MAX_DRAWS:
        raise Unsupported(
            f"size is above 2^{_MAX_DRAWS.bit_length() - 1}",
            why="such a vector does not fit in memory",
            fix="draw in several parts",
        )
    return count


def _flip_coins(p: Real, size: int | None) -> bool | NDArray[np.bool_]:
    if size is None:
        # survives: Bits are drawn in bytes: of one more the last is cut off again.
        return is_below(random_bits(64), 64, p)
    raw = np.frombuffer(random_bytes(8 * _check_size(size)), dtype=np.uint64)
    low, high = p(64)
    if low == 1 << 64:
        return np.ones(raw.size, dtype=np.bool_)
    heads = raw < np.uint64(low)
    # Between the two bounds 64 bits do not decide; where they meet, they do.
    if low < high:
        for lane in np.flatnonzero(~heads & (raw <= np.uint64(high - 1))):
            heads[lane] = is_below(int(raw[lane]), 64, p)
    return heads


def _one_discrete_laplace(scale: Fraction) -> int:
    while True:
        size, sign = large_scales.floor_exponential(scale)
        # Zero has one sign: the other is tried again.
        if size >= sign:
            # survives: Times or over 1 or -1 is the same.
            return size * (1 - 2 * sign)


def _one_rounded_gaussian(sigma: Fraction) -> int:
    size, sign = large_scales.rounded_normal(sigma)
    # survives: Times or over 1 or -1 is the same.
    return size * (1 - 2 * sign)


def _one_discrete_gaussian(variance: Fraction) -> int:
    size, sign = _one_from(variance)()
    # survives: Times or over 1 or -1 is the same.
    return size * (1 - 2 * sign)


@lru_cache(maxsize=2048)
def _one_from(variance: Fraction) -> Callable[[], tuple[int, int]]:
    if variance > _SMALL_SCALE**2:
        # survives: One draw from blocks is of an integer law whatever vectors would be.
        return Blocks.gaussian(variance, is_rounded=False).draw_one
    return Table(partial(inversion.discrete_gaussian_size, variance)).draw_one


@lru_cache(maxsize=64)
def _many_geometric(scale: Fraction) -> Many:
    if scale > _SMALL_SCALE:
        return Blocks.geometric(scale, is_signed=False).draw
    return Table(partial(inversion.geometric, scale)).draw


@lru_cache(maxsize=64)
def _many_discrete_laplace(scale: Fraction) -> Many:
    if scale > _SMALL_SCALE:
        return Blocks.geometric(scale, is_signed=True).draw
    return Table(partial(inversion.discrete_laplace_size, scale), signed=True).draw


@lru_cache(maxsize=64)
def _many_rounded_gaussian(sigma: Fraction) -> Many:
    if sigma > _SMALL_SCALE:
        return Blocks.gaussian(sigma**2, is_rounded=True).draw
    return Table(partial(inversion.rounded_gaussian_size, sigma), signed=True).draw


@lru_cache(maxsize=64)
def _many_discrete_gaussian(variance: Fraction) -> Many:
    if variance > _SMALL_SCALE**2:
        return Blocks.gaussian(variance, is_rounded=False).draw
    return Table(partial(inversion.discrete_gaussian_size, variance), signed=True).draw


_GEOMETRIC = _Law("scale", lambda scale: large_scales.floor_exponential(scale)[0], _many_geometric, MAX_SCALE)
_DISCRETE_LAPLACE = _Law("scale", _one_discrete_laplace, _many_discrete_laplace, MAX_SCALE)
_ROUNDED_GAUSSIAN = _Law("sigma", _one_rounded_gaussian, _many_rounded_gaussian, MAX_SCALE)
_DISCRETE_GAUSSIAN = _Law("variance", _one_discrete_gaussian, _many_discrete_gaussian, MAX_SCALE**2)
