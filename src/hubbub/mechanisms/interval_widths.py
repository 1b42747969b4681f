"""How far sums, differences and ratios of noisy answers stray: widths for independent draws of one law.

A query releases many integers with the noise of one mechanism, and shows what is computed from them.
Widths are in the answers' own units, and rounded up.

Proof: docs/proofs/intervals.md
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.additive import Gaussian, Laplace
from hubbub.mechanisms.error_bounds import half_width, laplace_sum_tail, rounded_gaussian_tail
from hubbub.numbers import Number, parse_integer, parse_probability, round_up

__all__ = ["combination_width", "mixed_combination_width", "ratio_interval", "sum_width", "width_from_norms"]

Floats = NDArray[np.float64]

_UP = 1 + 2.0**-30
"""What takes a few hundred operations in doubles, none of which cancels, is off by far less."""
_FINE = 2**20
"""Quantiles of the continuous laws are taken from the laws on steps, so many steps to one scale."""
_SPLITS = Fraction(1, 64), Fraction(1, 8), Fraction(1, 2)
"""The share of what may go wrong that may be spent on the rounding of many terms to steps."""
_RATIOS = 1024
_EXACT_TERMS = 256
_FEW_TERMS = 16
_HALVINGS = 50
_TINY = float(np.finfo(float).tiny)
_LEAST = Fraction(1, 2**1000)


def sum_width(mechanism: Laplace | Gaussian, terms: int, confidence: Number = 0.95) -> float:
    """How far the sum of `terms` answers is off at most, with this confidence.

    For Laplace noise on integers it is the least whole number, up to 256 terms.

    >>> counts = Laplace.of(sensitivity=1, epsilon=1)
    >>> sum_width(counts, 1), sum_width(counts, 2), sum_width(counts, 100)
    (3, 4, 27)

    Guarantee: |sum − exact| is within it, with at least this confidence.
    Assumes: independent draws of the mechanism's law.
    Proof: docs/proofs/intervals.md
    """
    count = parse_integer(terms, "terms")
    if isinstance(mechanism, Laplace) and count <= _EXACT_TERMS:
        step = mechanism.grid or Fraction(1)
        wide = half_width(partial(laplace_sum_tail, mechanism.scale / step, count), confidence, 1)
        return wide if mechanism.grid is None else round_up((wide + Fraction(count, 2)) * step)
    bound = float(width_from_norms(mechanism, count, math.sqrt(count), 1, confidence))
    return math.floor(bound) if mechanism.grid is None else bound


def combination_width(mechanism: Laplace | Gaussian, weights: ArrayLike, confidence: Number = 0.95) -> Floats:
    """How far Σ weight·answer is off at most, each combination by itself, with this confidence.

    The last axis of `weights` are the terms of a combination, so that a table of (coordinates, terms) has as
    many widths as coordinates.

    >>> counts = Laplace.of(sensitivity=1, epsilon=0.01)
    >>> combination_width(counts, [[1, 0], [1, -1], [0.5, 0.5]]).round()
    array([301., 413., 207.])

    Guarantee: |Σ weight·answer − exact| is within it, with at least this confidence.
    Assumes: independent draws of the mechanism's law.
    Proof: docs/proofs/intervals.md
    """
    table = np.abs(np.asarray(weights, dtype=np.float64))
    if table.ndim == 0 or not np.isfinite(table).all():
        raise InvalidInput(
            "the weights are not a vector or table of finite numbers",
            why="a combination has a weight for each answer",
            fix="pass weights of shape (terms,) or (coordinates, terms)",
        )
    l1, l2, linf = table.sum(-1), np.sqrt((table * table).sum(-1)), table.max(-1, initial=0)
    if isinstance(mechanism, Laplace) and table.shape[-1] in {1, 2}:
        return _in_units(mechanism, lambda rare: _pair_width(linf, l1 - linf, rare), l1, l2, confidence)
    return width_from_norms(mechanism, l1, l2, linf, confidence)


def width_from_norms(
    mechanism: Laplace | Gaussian, l1: ArrayLike, l2: ArrayLike, linf: ArrayLike, confidence: Number = 0.95
) -> Floats:
    """How far a combination is off at most of whose weights only the norms are known.

    >>> counts = Gaussian.of(sensitivity=1, epsilon=0.1, delta=1e-6)
    >>> print(width_from_norms(counts, 30, 30**0.5, 1).round())
    402.0

    Guarantee: |Σ weight·answer − exact| is within it, with at least this confidence, for any weights whose
        ℓ1, ℓ2 and ℓ∞ norms are no larger.
    Assumes: independent draws of the mechanism's law.
    Proof: docs/proofs/intervals.md
    """
    one, two, most = np.broadcast_arrays(*(np.asarray(norm, dtype=np.float64) for norm in (l1, l2, linf)))
    if isinstance(mechanism, Gaussian):
        return _in_units(mechanism, lambda rare: _normal_quantile(rare) * two, one, two, confidence)
    return _in_units(mechanism, lambda rare: _laplace_width(one, two, most, rare), one, two, confidence)


def mixed_combination_width(
    parts: Sequence[tuple[Laplace | Gaussian, ArrayLike]], confidence: Number = 0.95
) -> float:
    """How far a combination of integers is off at most that were released by several mechanisms.

    Each part is a mechanism and the weights of what it released.

    >>> coarse, fine = (Laplace.of(sensitivity=1, epsilon=epsilon) for epsilon in (0.01, 0.02))
    >>> many = [(coarse, 1)], [(fine, 1)], [(coarse, 0.2), (fine, 0.8)]
    >>> [round(mixed_combination_width(parts)) for parts in many]
    [301, 151, 132]

    Guarantee: |Σ weight·answer − exact| is within it, with at least this confidence.
    Assumes: independent draws of the mechanisms' laws.
    Proof: docs/proofs/intervals.md, "Several mechanisms"
    """
    rare = _rare(confidence)
    if not parts or any(mechanism.grid is not None for mechanism, _ in parts):
        raise Unsupported(
            "answers are combined that are not integers", why="their steps differ", fix="combine integers"
        )
    kinds = [[part for part in parts if isinstance(part[0], kind)] for kind in (Laplace, Gaussian)]
    if not all(kinds):
        return float(_alike(parts, rare)) * _UP
    # Both kinds: what may go wrong is shared out between them, in the best of a few ways.
    shares = (Fraction(1, 16), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(15, 16))
    return min(float(_alike(kinds[0], rare * u) + _alike(kinds[1], rare * (1 - u))) for u in shares) * _UP


def _alike(parts: Sequence[tuple[Laplace | Gaussian, ArrayLike]], rare: Fraction) -> Floats:
    """The width for parts of one kind, in steps."""
    weights = [np.abs(np.asarray(each, dtype=np.float64).reshape(-1)) for _, each in parts]
    plain = np.concatenate(weights)
    wide = np.concatenate(
        [each * round_up(mechanism.scale) for (mechanism, _), each in zip(parts, weights, strict=True)]
    )
    l1, l2, linf = (np.asarray(norm) for norm in (wide.sum(), np.sqrt((wide * wide).sum()), wide.max()))
    is_gaussian = isinstance(parts[0][0], Gaussian)

    def continuous(often: Fraction) -> Floats:
        if is_gaussian:
            return np.asarray(_normal_quantile(often) * l2)
        if wide.size <= 2:
            return _pair_width(linf, l1 - linf, often)
        few = _unlike_width(tuple(wide.tolist()), often) if wide.size <= _FEW_TERMS else math.inf
        return np.minimum(_laplace_width(l1, l2, linf, often), few)

    return _on_steps(
        continuous,
        np.asarray(plain.sum()),
        np.asarray(np.sqrt((plain * plain).sum())),
        rare,
        is_gaussian=is_gaussian,
    )


def ratio_interval(
    top: ArrayLike,
    bottom: ArrayLike,
    mechanism: Laplace | Gaussian,
    confidence: Number = 0.95,
    *,
    off: float = 0.0,
) -> tuple[Floats, Floats, Floats]:
    """The shares A/(A + B) of exact A, B ≥ 0, of which noisy `top` and `bottom` are known.

    (estimate, low, high), each an array: a mean is such a share where A = Σ w·a and B = Σ w·(1 − a).
    Every share p counts for which (1−p)·top − p·bottom is no further from 0 than noise goes (Fieller), and
    `off` besides: so far may A and B each be from what the noise was added to.

    >>> counts = Laplace.of(sensitivity=1, epsilon=1)
    >>> [ends.round(2).tolist() for ends in ratio_interval([30, 2], [70, -1], counts)]
    [[0.3, 1.0], [0.27, 0.0], [0.33, 1.0]]

    Guarantee: low ≤ A/(A + B) ≤ high, each coordinate by itself, with at least this confidence.
    Assumes: independent draws of the mechanism's law; A, B ≥ 0 and not both 0.
    Proof: docs/proofs/intervals.md
    """
    scale, step, rounding = _steps(mechanism)
    rare = _rare(confidence)
    above, below = np.broadcast_arrays(
        *(np.asarray(half, dtype=np.float64) / float(step) for half in (top, bottom))
    )
    quantile = _normal_quantile(rare)
    # The weights 1−p and p add up to one; and doubles are rounded.
    slack = (0.5 if isinstance(mechanism, Gaussian) else 1.0) + rounding + off / float(step)
    slack = slack + 2.0**-50 * (np.abs(above) + np.abs(below))

    def excluded(p: Floats) -> NDArray[np.bool_]:
        away = np.abs((1 - p) * above - p * below) / _UP - slack
        if isinstance(mechanism, Gaussian):
            return np.asarray(away > quantile * scale * np.hypot(1 - p, p))
        light, heavy = np.minimum(p, 1 - p), np.maximum(p, 1 - p)
        return np.asarray(_pair_tail(light / heavy, np.maximum(away, 0) / (heavy * scale)) < float(rare))

    # Where the difference is zero, or else the end where it is nearer to zero.
    crosses = np.where(
        above * below >= 0, _share(np.abs(above), np.abs(below)), np.abs(above) > np.abs(below)
    )
    low, high = (
        np.where(excluded(end), _edge(excluded, end, crosses), end) for end in (0 * crosses, 0 * crosses + 1)
    )
    nothing = excluded(crosses)  # halves so far below zero that no share explains them
    low, high = np.where(nothing, 0.0, low), np.where(nothing, 1.0, high)
    return np.clip(_share(np.maximum(above, 0), np.maximum(below, 0)), low, high), low, high


def _share(one: Floats, two: Floats) -> Floats:
    return np.where(one + two > 0, one / np.maximum(one + two, _TINY), 0.5)


def _edge(excluded: Callable[[Floats], NDArray[np.bool_]], outside: Floats, inside: Floats) -> Floats:
    """Between a share that is excluded and one that is not: the last that is, by halving."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        is_out = excluded(middle)
        outside, inside = np.where(is_out, middle, outside), np.where(is_out, inside, middle)
    return outside


def _steps(mechanism: Laplace | Gaussian) -> tuple[float, Fraction, float]:
    """The scale in steps, the step, and how far an exact value may be from its step."""
    step = mechanism.grid or Fraction(1)
    return round_up(mechanism.scale / step), step, 0.0 if mechanism.grid is None else 0.5


def _rare(confidence: Number) -> Fraction:
    rare = 1 - parse_probability(confidence, "confidence")
    if rare < _LEAST:
        raise Unsupported(
            "confidence is within 2^-1000 of 1",
            why="doubles do not tell such tails apart",
            fix="pass a confidence further from 1",
        )
    return rare


def _in_units(
    mechanism: Laplace | Gaussian,
    continuous: Callable[[Fraction], Floats],
    l1: Floats,
    l2: Floats,
    confidence: Number,
) -> Floats:
    """The width for the law on steps, from that for the continuous law of scale 1."""
    scale, step, rounding = _steps(mechanism)
    is_gaussian = isinstance(mechanism, Gaussian)
    wide = _on_steps(
        lambda rare: scale * continuous(rare), l1, l2, _rare(confidence), is_gaussian=is_gaussian
    )
    return np.asarray((wide + rounding * l1) * float(step) * _UP)


def _on_steps(
    continuous: Callable[[Fraction], Floats], l1: Floats, l2: Floats, rare: Fraction, *, is_gaussian: bool
) -> Floats:
    """The width for laws on steps of one, from that for the continuous laws of the same scales."""
    # All roundings at their worst; or what independent ones add up to but for a share of `rare`.
    wide = continuous(rare) + (0.5 if is_gaussian else 1.0) * l1
    for split in _SPLITS:
        if is_gaussian:
            often = math.sqrt(math.log(2 / (rare * split)) / 2)
        else:
            often = math.sqrt(math.log(1 / split) * 2 / 3) if split < 0.5 else 0.0
        wide = np.minimum(wide, continuous(rare - rare * split) + often * l2)
    return wide


@lru_cache(maxsize=256)
def _normal_quantile(rare: Fraction) -> float:
    """A z with Pr[|Z| > z] ≤ rare."""
    return (half_width(partial(rounded_gaussian_tail, Fraction(_FINE)), 1 - rare, 1) + 0.5) / _FINE


@lru_cache(maxsize=256)
def _sum_quantile(terms: int, rare: Fraction) -> float:
    """A t with Pr[|Y₁ + … + Y_terms| > t] ≤ rare, for the continuous Laplace law of scale 1."""
    beyond = partial(laplace_sum_tail, Fraction(_FINE), terms)
    return (half_width(beyond, 1 - rare, 1) + terms) / _FINE


def _pair_tail(ratio: Floats, far: Floats) -> Floats:
    """Pr[|Y₁ + ratio·Y₂| > far] for the continuous Laplace law of scale 1, 0 ≤ ratio ≤ 1.

    (e^−far − ratio²·e^(−far/ratio))/(1 − ratio²), written so that nothing cancels.
    """
    x = far * (1 - ratio) / np.maximum(ratio, 1e-200)
    fall = np.where(x < 1e-9, 1.0, -np.expm1(-x) / np.maximum(x, 1e-9))
    return np.asarray(np.exp(-far) * (1 + ratio * far / (1 + ratio) * fall))


@lru_cache(maxsize=64)
def _pair_quantiles(rare: Fraction) -> Floats:
    """For ratios of 0, 1/1024, … 1, a t with Pr[|Y₁ + ratio·Y₂| > t] ≤ rare."""
    ratio = np.linspace(0, 1, _RATIOS + 1)
    low, high = np.zeros_like(ratio), np.full_like(ratio, _sum_quantile(2, rare))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = _pair_tail(ratio, middle) <= float(rare)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high


def _pair_width(large: Floats, small: Floats, rare: Fraction) -> Floats:
    """A t with Pr[|large·Y₁ + small·Y₂| > t] ≤ rare; their ratio is rounded up, which only widens it."""
    ratio = np.clip(small / np.maximum(large, _TINY), 0, 1)
    return np.asarray(large * _pair_quantiles(rare)[np.ceil(ratio * _RATIOS).astype(int)])


@lru_cache(maxsize=256)
def _unlike_width(scales: tuple[float, ...], rare: Fraction) -> float:
    """A t with Pr[|Σ Y| > t] ≤ rare for Laplace draws of unlike scales; infinite where doubles cannot tell.

    The tail is Σ part·e^(−t/scale) with the parts of the partial fractions of Π 1/(1 + scale²θ²).
    """
    squares = [Fraction(scale) ** 2 for scale in scales if scale]
    if len(set(squares)) < len(squares):
        return math.inf
    shares = [
        float(math.prod((one / (one - other) for other in squares if other != one), start=Fraction(1)))
        for one in squares
    ]
    lost = sum(map(abs, shares)) * 2.0**-45
    if lost > float(rare) / 64:
        return math.inf
    sizes = [scale for scale in scales if scale]
    low, high = 0.0, max(sizes) * len(sizes) * 800.0
    for _ in range(2 * _HALVINGS):
        middle = (low + high) / 2
        tail = sum(share * math.exp(-middle / size) for share, size in zip(shares, sizes, strict=True))
        low, high = (low, middle) if tail + lost <= float(rare) else (middle, high)
    return high


def _laplace_width(l1: Floats, l2: Floats, linf: Floats, rare: Fraction) -> Floats:
    """A t with Pr[|Σ c·Y| > t] ≤ rare, for the continuous Laplace law of scale 1."""
    largest = np.maximum(linf, _TINY)
    # As a normal law of random variance, whose tail is below K·e^(λ·variance), for any point x of touch.
    squares = (l2 / largest) ** 2
    wide = np.full(squares.shape, math.inf)
    for x in _normal_quantile(rare) * np.linspace(0.68, 1, 17):
        tail = math.erfc(x / math.sqrt(2))
        slope = 2 * x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) / tail
        spare = math.log(tail / rare) - slope / 2
        if spare < 0:
            theta = -np.expm1(spare / np.maximum(squares, 1))
            wide = np.minimum(wide, x * np.sqrt(slope / theta))
    # No worse than ⌈ℓ1/ℓ∞⌉ weights that all are the largest.
    terms = np.ceil(l1 / largest / _UP)
    for few in np.unique(terms[(terms >= 1) & (terms <= _FEW_TERMS)]):
        wide = np.where(terms == few, np.minimum(wide, _sum_quantile(int(few), rare)), wide)
    return np.asarray(linf * wide)
