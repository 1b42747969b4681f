"""Confidence intervals of sums, weighted sums and ratios of noisy answers with independent noise.

A query releases many integers with the noise of one mechanism and returns functions of them. Widths are in
the units of the answers, and rounded up. β is the probability that an interval fails: 1 − confidence.

Proof: docs/proofs/intervals.md
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import InvalidInput, Unsupported
from hubbub.mechanisms.laplace_gaussian import Gaussian, Laplace
from hubbub.mechanisms.noise_tails import half_width, laplace_sum_tail, rounded_gaussian_tail
from hubbub.numbers import Number, parse_integer, parse_probability, round_up

__all__ = ["combination_width", "mixed_combination_width", "ratio_interval", "sum_width", "width_from_norms"]

Floats = NDArray[np.float64]

_ROUNDING_SLACK = 1 + 2.0**-30
"""Covers the rounding of a few hundred operations in doubles, none of which cancels."""
_STEPS_PER_SCALE = 2**20
"""Quantiles of the continuous laws are taken from the discrete laws, with this many steps per scale."""
_ROUNDING_SHARES = Fraction(1, 64), Fraction(1, 8), Fraction(1, 2)
"""Shares of β to spend on the rounding of many terms to steps."""
_RATIOS = 1024
_MAX_EXACT_TERMS = 256
_MAX_FEW_TERMS = 16
_HALVINGS = 50
_TINY = float(np.finfo(float).tiny)
_MIN_BETA = Fraction(1, 2**1000)


def sum_width(mechanism: Laplace | Gaussian, terms: int, confidence: Number = 0.95) -> float:
    """Return a bound on the error of a sum of `terms` answers.

    For Laplace noise on integers it is the least integer, up to 256 terms.

    >>> counts = Laplace.of(sensitivity=1, epsilon=1)
    >>> sum_width(counts, 1), sum_width(counts, 2), sum_width(counts, 100)
    (3, 4, 27)

    Guarantee: |sum − exact| is within the bound, with at least this confidence.
    Assumes: independent noise of this mechanism.
    Proof: docs/proofs/intervals.md
    """
    count = parse_integer(terms, "terms")
    if isinstance(mechanism, Laplace) and count <= _MAX_EXACT_TERMS:
        step = mechanism.grid or Fraction(1)
        width = half_width(partial(laplace_sum_tail, mechanism.scale / step, count), confidence, 1)
        return width if mechanism.grid is None else round_up((width + Fraction(count, 2)) * step)
    bound = float(width_from_norms(mechanism, count, math.sqrt(count), 1, confidence))
    return math.floor(bound) if mechanism.grid is None else bound


def combination_width(mechanism: Laplace | Gaussian, weights: ArrayLike, confidence: Number = 0.95) -> Floats:
    """Return a bound on the error of Σ weight·answer, for each row of weights by itself.

    Args:
        mechanism: the mechanism that released the answers.
        weights: of shape (terms,) or (combinations, terms).
        confidence: the probability with which each bound holds, at least.

    >>> counts = Laplace.of(sensitivity=1, epsilon=0.01)
    >>> combination_width(counts, [[1, 0], [1, -1], [0.5, 0.5]]).round()
    array([301., 413., 207.])

    Guarantee: |Σ weight·answer − exact| is within the bound, with at least this confidence.
    Assumes: independent noise of this mechanism.
    Proof: docs/proofs/intervals.md
    """
    table = np.abs(np.asarray(weights, dtype=np.float64))
    if table.ndim == 0 or not np.isfinite(table).all():
        raise InvalidInput(
            "the weights are not a vector or table of finite numbers",
            why="a combination has a weight for each answer",
            fix="pass weights of shape (terms,) or (combinations, terms)",
        )
    l1, l2, linf = table.sum(-1), np.sqrt((table * table).sum(-1)), table.max(-1, initial=0)
    if isinstance(mechanism, Laplace) and table.shape[-1] in {1, 2}:
        return _in_value_units(mechanism, lambda beta: _pair_width(linf, l1 - linf, beta), l1, l2, confidence)
    return width_from_norms(mechanism, l1, l2, linf, confidence)


def width_from_norms(
    mechanism: Laplace | Gaussian, l1: ArrayLike, l2: ArrayLike, linf: ArrayLike, confidence: Number = 0.95
) -> Floats:
    """Return a bound on the error of Σ weight·answer from the norms of the weights.

    >>> counts = Gaussian.of(sensitivity=1, epsilon=0.1, delta=1e-6)
    >>> print(width_from_norms(counts, 30, 30**0.5, 1).round())
    402.0

    Guarantee: |Σ weight·answer − exact| is within the bound, with at least this confidence, for any weights
        with ℓ1, ℓ2 and ℓ∞ norms up to these.
    Assumes: independent noise of this mechanism.
    Proof: docs/proofs/intervals.md
    """
    one, two, most = np.broadcast_arrays(*(np.asarray(norm, dtype=np.float64) for norm in (l1, l2, linf)))
    if isinstance(mechanism, Gaussian):
        return _in_value_units(mechanism, lambda beta: _normal_quantile(beta) * two, one, two, confidence)
    return _in_value_units(mechanism, lambda beta: _laplace_width(one, two, most, beta), one, two, confidence)


def mixed_combination_width(
    parts: Sequence[tuple[Laplace | Gaussian, ArrayLike]], confidence: Number = 0.95
) -> float:
    """Return a bound on the error of Σ weight·answer, for integers released by several mechanisms.

    Args:
        parts: pairs of a mechanism and the weights of its answers.
        confidence: the probability with which the bound holds, at least.

    >>> coarse, fine = (Laplace.of(sensitivity=1, epsilon=epsilon) for epsilon in (0.01, 0.02))
    >>> many = [(coarse, 1)], [(fine, 1)], [(coarse, 0.2), (fine, 0.8)]
    >>> [round(mixed_combination_width(parts)) for parts in many]
    [301, 151, 132]

    Guarantee: |Σ weight·answer − exact| is within the bound, with at least this confidence.
    Assumes: independent noise of these mechanisms.
    Proof: docs/proofs/intervals.md, "Several mechanisms"
    """
    beta = _failure_probability(confidence)
    if not parts or any(mechanism.grid is not None for mechanism, _ in parts):
        raise Unsupported(
            "some answers are not integers", why="their grids differ", fix="combine integers only"
        )
    kinds = [[part for part in parts if isinstance(part[0], kind)] for kind in (Laplace, Gaussian)]
    if not all(kinds):
        return float(_one_kind_width(parts, beta)) * _ROUNDING_SLACK
    # Both kinds: β is share between them, in the best of a few ratios.
    shares = (Fraction(1, 16), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(15, 16))
    widths = (
        _one_kind_width(kinds[0], beta * share) + _one_kind_width(kinds[1], beta * (1 - share))
        for share in shares
    )
    return min(map(float, widths)) * _ROUNDING_SLACK


def _one_kind_width(parts: Sequence[tuple[Laplace | Gaussian, ArrayLike]], beta: Fraction) -> Floats:
    """Return the width for mechanisms of one kind, in steps."""
    weights = [np.abs(np.asarray(each, dtype=np.float64).reshape(-1)) for _, each in parts]
    plain = np.concatenate(weights)
    scaled = np.concatenate(
        [each * round_up(mechanism.scale) for (mechanism, _), each in zip(parts, weights, strict=True)]
    )
    l1, l2, linf = (
        np.asarray(norm) for norm in (scaled.sum(), np.sqrt((scaled * scaled).sum()), scaled.max())
    )
    is_gaussian = isinstance(parts[0][0], Gaussian)

    def continuous(beta: Fraction) -> Floats:
        if is_gaussian:
            return np.asarray(_normal_quantile(beta) * l2)
        if scaled.size <= 2:
            return _pair_width(linf, l1 - linf, beta)
        few = math.inf
        if scaled.size <= _MAX_FEW_TERMS:
            few = _distinct_scales_width(tuple(scaled.tolist()), beta)
        return np.minimum(_laplace_width(l1, l2, linf, beta), few)

    return _on_steps(
        continuous,
        np.asarray(plain.sum()),
        np.asarray(np.sqrt((plain * plain).sum())),
        beta,
        is_gaussian=is_gaussian,
    )


def ratio_interval(
    top: ArrayLike,
    bottom: ArrayLike,
    mechanism: Laplace | Gaussian,
    confidence: Number = 0.95,
    *,
    offset: float = 0.0,
) -> tuple[Floats, Floats, Floats]:
    """Return (estimate, low, high) of the ratio A/(A + B), given noisy values of A, B ≥ 0.

    A mean is such a ratio, with A = Σ w·a and B = Σ w·(1 − a). By Fieller's method, the interval holds
    every p for which (1−p)·top − p·bottom is within the noise of 0.

    Args:
        top: noisy values of A.
        bottom: noisy values of B.
        mechanism: the mechanism that released them.
        confidence: the probability with which each interval holds, at least.
        offset: how far A and B may each be from the values that the noise was added to.

    >>> counts = Laplace.of(sensitivity=1, epsilon=1)
    >>> [ends.round(2).tolist() for ends in ratio_interval([30, 2], [70, -1], counts)]
    [[0.3, 1.0], [0.27, 0.0], [0.33, 1.0]]

    Guarantee: low ≤ A/(A + B) ≤ high, each coordinate by itself, with at least this confidence.
    Assumes: independent noise of this mechanism; A, B ≥ 0 and not both 0.
    Proof: docs/proofs/intervals.md
    """
    scale, step, rounding = _steps(mechanism)
    beta = _failure_probability(confidence)
    above, below = np.broadcast_arrays(
        *(np.asarray(half, dtype=np.float64) / float(step) for half in (top, bottom))
    )
    quantile = _normal_quantile(beta)
    # The weights 1−p and p add up to one; doubles are rounded.
    slack = (0.5 if isinstance(mechanism, Gaussian) else 1.0) + rounding + offset / float(step)
    slack = slack + 2.0**-50 * (np.abs(above) + np.abs(below))

    def excluded(p: Floats) -> NDArray[np.bool_]:
        away = np.abs((1 - p) * above - p * below) / _ROUNDING_SLACK - slack
        if isinstance(mechanism, Gaussian):
            return np.asarray(away > quantile * scale * np.hypot(1 - p, p))
        light, heavy = np.minimum(p, 1 - p), np.maximum(p, 1 - p)
        return np.asarray(_pair_tail(light / heavy, np.maximum(away, 0) / (heavy * scale)) < float(beta))

    # The p where the difference is zero, or else the end where it is closest to zero.
    crosses = np.where(
        above * below >= 0, _share(np.abs(above), np.abs(below)), np.abs(above) > np.abs(below)
    )
    low, high = (
        np.where(excluded(end), _bisect(excluded, end, crosses), end)
        for end in (0 * crosses, 0 * crosses + 1)
    )
    nothing = excluded(crosses)  # values so far below zero that no p explains them
    low, high = np.where(nothing, 0.0, low), np.where(nothing, 1.0, high)
    return np.clip(_share(np.maximum(above, 0), np.maximum(below, 0)), low, high), low, high


def _share(one: Floats, two: Floats) -> Floats:
    return np.where(one + two > 0, one / np.maximum(one + two, _TINY), 0.5)


def _bisect(excluded: Callable[[Floats], NDArray[np.bool_]], outside: Floats, inside: Floats) -> Floats:
    """Bisect between an excluded p and one that is not, and return the last excluded one."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        is_out = excluded(middle)
        outside, inside = np.where(is_out, middle, outside), np.where(is_out, inside, middle)
    return outside


def _steps(mechanism: Laplace | Gaussian) -> tuple[float, Fraction, float]:
    """Return the scale in steps, the step, and the largest distance of an exact value from its step."""
    step = mechanism.grid or Fraction(1)
    return round_up(mechanism.scale / step), step, 0.0 if mechanism.grid is None else 0.5


def _failure_probability(confidence: Number) -> Fraction:
    beta = 1 - parse_probability(confidence, "confidence")
    if beta < _MIN_BETA:
        raise Unsupported(
            "confidence is within 2^-1000 of 1",
            why="doubles cannot resolve such tails",
            fix="pass a smaller confidence",
        )
    return beta


def _in_value_units(
    mechanism: Laplace | Gaussian,
    continuous: Callable[[Fraction], Floats],
    l1: Floats,
    l2: Floats,
    confidence: Number,
) -> Floats:
    """Return the width for the mechanism, from that for the continuous law of scale 1."""
    scale, step, rounding = _steps(mechanism)
    is_gaussian = isinstance(mechanism, Gaussian)
    width = _on_steps(
        lambda beta: scale * continuous(beta),
        l1,
        l2,
        _failure_probability(confidence),
        is_gaussian=is_gaussian,
    )
    return np.asarray((width + rounding * l1) * float(step) * _ROUNDING_SLACK)


def _on_steps(
    continuous: Callable[[Fraction], Floats], l1: Floats, l2: Floats, beta: Fraction, *, is_gaussian: bool
) -> Floats:
    """Return the width for integer laws, from that for the continuous laws of the same scales."""
    # The sum of the worst roundings; or a bound on independent ones that fails with a share of β.
    width = continuous(beta) + (0.5 if is_gaussian else 1.0) * l1
    for share in _ROUNDING_SHARES:
        if is_gaussian:
            rounding = math.sqrt(math.log(2 / (beta * share)) / 2)
        else:
            rounding = math.sqrt(math.log(1 / share) * 2 / 3) if share < 0.5 else 0.0
        width = np.minimum(width, continuous(beta - beta * share) + rounding * l2)
    return width


@lru_cache(maxsize=256)
def _normal_quantile(beta: Fraction) -> float:
    """Return a z with Pr[|Z| > z] ≤ β."""
    tail = partial(rounded_gaussian_tail, Fraction(_STEPS_PER_SCALE))
    return (half_width(tail, 1 - beta, 1) + 0.5) / _STEPS_PER_SCALE


@lru_cache(maxsize=256)
def _sum_quantile(terms: int, beta: Fraction) -> float:
    """Return a t with Pr[|Y₁ + … + Y_terms| > t] ≤ β, for the continuous Laplace law of scale 1."""
    tail = partial(laplace_sum_tail, Fraction(_STEPS_PER_SCALE), terms)
    return (half_width(tail, 1 - beta, 1) + terms) / _STEPS_PER_SCALE


def _pair_tail(ratio: Floats, far: Floats) -> Floats:
    """Return Pr[|Y₁ + ratio·Y₂| > far] for the continuous Laplace law of scale 1, 0 ≤ ratio ≤ 1.

    (e^−far − ratio²·e^(−far/ratio))/(1 − ratio²), written so that nothing cancels.
    """
    x = far * (1 - ratio) / np.maximum(ratio, 1e-200)
    fall = np.where(x < 1e-9, 1.0, -np.expm1(-x) / np.maximum(x, 1e-9))
    return np.asarray(np.exp(-far) * (1 + ratio * far / (1 + ratio) * fall))


@lru_cache(maxsize=64)
def _pair_quantiles(beta: Fraction) -> Floats:
    """Return a t with Pr[|Y₁ + ratio·Y₂| > t] ≤ β for each ratio of 0, 1/1024, … 1."""
    ratio = np.linspace(0, 1, _RATIOS + 1)
    low, high = np.zeros_like(ratio), np.full_like(ratio, _sum_quantile(2, beta))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = _pair_tail(ratio, middle) <= float(beta)
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high


def _pair_width(large: Floats, small: Floats, beta: Fraction) -> Floats:
    """Return a t with Pr[|large·Y₁ + small·Y₂| > t] ≤ β; rounding the ratio up only widens it."""
    ratio = np.clip(small / np.maximum(large, _TINY), 0, 1)
    return np.asarray(large * _pair_quantiles(beta)[np.ceil(ratio * _RATIOS).astype(int)])


@lru_cache(maxsize=256)
def _distinct_scales_width(scales: tuple[float, ...], beta: Fraction) -> float:
    """Return a t with Pr[|Σ Y| > t] ≤ β for Laplace draws of distinct scales; inf if doubles cancel too much.

    The tail is Σ c·e^(−t/scale) with the coefficients c of the partial fractions of Π 1/(1 + scale²θ²).
    """
    squares = [Fraction(scale) ** 2 for scale in scales if scale]
    if len(set(squares)) < len(squares):
        return math.inf
    shares = [
        float(math.prod((one / (one - other) for other in squares if other != one), start=Fraction(1)))
        for one in squares
    ]
    lost = sum(map(abs, shares)) * 2.0**-45
    if lost > float(beta) / 64:
        return math.inf
    sizes = [scale for scale in scales if scale]
    low, high = 0.0, max(sizes) * len(sizes) * 800.0
    for _ in range(2 * _HALVINGS):
        middle = (low + high) / 2
        tail = sum(share * math.exp(-middle / size) for share, size in zip(shares, sizes, strict=True))
        low, high = (low, middle) if tail + lost <= float(beta) else (middle, high)
    return high


def _laplace_width(l1: Floats, l2: Floats, linf: Floats, beta: Fraction) -> Floats:
    """Return a t with Pr[|Σ c·Y| > t] ≤ β, for the continuous Laplace law of scale 1."""
    largest = np.maximum(linf, _TINY)
    # Y is normal with random variance; its tail is below the tangent K·e^(λ·variance) at any point x.
    squares = (l2 / largest) ** 2
    width = np.full(squares.shape, math.inf)
    for x in _normal_quantile(beta) * np.linspace(0.68, 1, 17):
        tail = math.erfc(x / math.sqrt(2))
        slope = 2 * x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) / tail
        spare = math.log(tail / beta) - slope / 2
        if spare < 0:
            theta = -np.expm1(spare / np.maximum(squares, 1))
            width = np.minimum(width, x * np.sqrt(slope / theta))
    # No worse than ⌈ℓ1/ℓ∞⌉ weights that all equal the largest.
    terms = np.ceil(l1 / largest / _ROUNDING_SLACK)
    for few in np.unique(terms[(terms >= 1) & (terms <= _MAX_FEW_TERMS)]):
        width = np.where(terms == few, np.minimum(width, _sum_quantile(int(few), beta)), width)
    return np.asarray(linf * width)
