"""Interpretation of a privacy loss: error rates of attacks, posterior beliefs, an explanation in words.

Proof: docs/proofs/interpretation.md
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from hubbub.accounting.composition import RENYI, Composition
from hubbub.accounting.events import Gaussian
from hubbub.accounting.float_bounds import float_above, float_below
from hubbub.errors import InvalidInput
from hubbub.noise.enclosures import exp, exp_neg, normal_tail
from hubbub.numbers import ceil_sqrt, format_down, format_up, round_up

__all__ = ["Posterior", "explain", "posterior", "tradeoff"]

# survives: How many bits are carried is free: an enclosure from one more or less still encloses.
_BITS = 256
# survives: Any ε gives a bound; how far out one is looked for is free.
_MAX_EPSILON = 60.0
# survives: Any ε gives a bound; which ones are tried first is free.
_FIRST_POINTS = (-16.0, -8.0, -4.0, -2.0, -1.0, -0.4, 0.0, 0.4, 1.0, 2.0, 4.0, 8.0, 16.0)
# survives: How many places are tried is free: each gives a bound.
_MAX_REFINEMENTS = 16
# survives: When it stops is free: each place gives a bound.
_TOLERANCE = 1e-9
# survives: Any s before ε gives a bound; which ones are tried is free.
_PERCENTS = (100, 75, 50, 35, 25, 17, 12, 8, 5, 3)


class Posterior(NamedTuple):
    """A bound of an attacker's posterior belief, and the probability that it is exceeded."""

    upper_bound: float
    exception_probability: float


def tradeoff(composition: Composition, alpha: Fraction) -> float:
    """A lower bound of the false negative rate of any test with false positive rate α.

    Every ε ≥ 0 gives two: 1 − δ(ε) − e^ε·α, and e^−ε·(1 − δ(ε) − α).
    """
    if not alpha:
        cut = Composition(tuple((event.truncated(), count) for event, count in composition.events))
        return float_below(1 - cut.infinity_mass_bounds[1])

    def line(epsilon: float) -> Fraction:
        at = Fraction(abs(epsilon))
        # survives: A lower bound, too, is computed, and not used.
        rest = 1 - Fraction(composition.delta(at, lower=False).upper)
        if epsilon >= 0:
            # survives: The two ends are some 2^-256 apart, which is less than what rounding to
            # a double takes off.
            return rest - Fraction(exp(at, _BITS)[1], 1 << _BITS) * alpha
        low, high = exp_neg(at, _BITS)
        # survives: Of nothing either factor makes nothing.
        return Fraction(low if rest > alpha else high, 1 << _BITS) * (rest - alpha)

    if len(composition.events) == 1 and isinstance(composition.events[0][0], Gaussian):
        from statistics import NormalDist

        # The test that asks whether x is above a threshold has its loss there.
        mu = float(ceil_sqrt(composition.events[0][0].mu_squared))
        # survives: Any ε gives a bound: the threshold only has to be about right, which the tests
        # of closeness ask for.
        z = (
            -NormalDist().inv_cdf(max(float(alpha), 5e-324))
            if alpha < Fraction(1, 2)
            else NormalDist().inv_cdf(max(float(1 - alpha), 5e-324))
        )
        # survives: Any ε gives a bound; that far out it is nothing, or all.
        best = line(max(-700.0, min(700.0, mu * z - mu * mu / 2)))
    else:
        top = (
            _MAX_EPSILON
            if composition.max_loss is None
            else min(_MAX_EPSILON, float_above(composition.max_loss))
        )
        best = _maximum(line, -top, min(top, math.log(alpha.denominator) - math.log(alpha.numerator)))
    return max(0.0, float_below(best))


def _maximum(line: Callable[[float], Fraction], low: float, high: float) -> Fraction:
    """About the maximum over an interval of a function concave in e^x: any point gives a bound."""
    # survives: An end stands in the set already.
    places = {low, high, high + 1, *(x for x in _FIRST_POINTS if low < x < high)}
    known = [(0.0, Fraction(0)), *sorted((math.exp(x), line(x)) for x in places)]
    for _ in range(_MAX_REFINEMENTS):
        best = max(range(len(known)), key=lambda k: known[k][1])
        # Between two places it is no higher than where the lines through the next ones meet.
        hopes = [intersection(known[k - 1 : k + 3]) for k in (best - 1, best) if 0 < k < len(known) - 2]
        # survives: Without a hope nothing is looked for.
        height, place = max(hopes, default=(0.0, 0.0))
        # survives: When it stops is free: each place gives a bound.
        if height <= float(known[best][1]) * (1 + _TOLERANCE):
            break
        known = sorted([*known, (place, line(math.log(place)))])
    return max(value for _, value in known)


def intersection(points: list[tuple[float, Fraction]]) -> tuple[float, float]:
    """Height and place where the line through the first two points meets that through the last two."""
    (a, at_a), (b, at_b), (c, at_c), (d, at_d) = ((u, float(value)) for u, value in points)
    rise, fall = (at_b - at_a) / (b - a), (at_d - at_c) / (d - c)
    # survives: It guards a division by 0; that two rounded slopes are just equal was not met.
    if rise <= fall:
        # survives: Without a hope the place does not count. A hope that is no more than what is
        # known, or that costs one try more.
        return 0.0, 0.0
    place = b + (at_c - at_b - fall * (c - b)) / (rise - fall)
    # survives: A hope that is no more than what is known, or that costs one try more. At a place that
    # is known there is nothing to find.
    return (at_b + rise * (place - b), place) if b < place < c else (0.0, 0.0)


def posterior(composition: Composition, prior: Fraction, epsilon: Fraction | None) -> Posterior:
    """p/(p + (1 − p)·e^−ε), and the probability that the loss is above ε."""
    if epsilon is None:
        if composition.max_loss is None:
            raise InvalidInput(
                "the loss has no largest value",
                why="a posterior is bounded only up to some epsilon, with an exception probability",
                fix="pass an {epsilon}, such as loss.epsilon(1e-6)",
            )
        epsilon = composition.max_loss
    # survives: The two ends are 2^-256 apart: where that matters the answer is 1.
    low = Fraction(exp_neg(epsilon, _BITS)[0], 1 << _BITS)
    sure = min(1.0, round_up(prior / (prior + (1 - prior) * low)))
    return Posterior(sure, _exceedance_probability(composition, epsilon))


def _exceedance_probability(composition: Composition, epsilon: Fraction) -> float:
    """An upper bound of Pr[loss > ε]: δ(s) ≥ (1 − e^(s−ε))·Pr[loss > ε] at every s < ε."""
    if composition.max_loss is not None and epsilon >= composition.max_loss:
        return round_up(composition.infinity_mass_bounds[1])
    if len(composition.events) == 1 and isinstance(composition.events[0][0], Gaussian):
        mu = ceil_sqrt(composition.events[0][0].mu_squared)
        z = epsilon / mu - mu / 2
        # survives: The two ends are some 2^-2048 apart, which no double shows.
        half = normal_tail(z, 2048)[1] if z >= 0 else (2 << 2048) - normal_tail(-z, 2048)[0]
        # survives: A tail of a law is no more than 1 before it is rounded.
        return min(1.0, round_up(Fraction(half, 2 << 2048)))
    best = 1.0
    for percent in _PERCENTS:
        at = epsilon * Fraction(100 - percent, 100)
        gap = 1 - Fraction(exp_neg(epsilon - at, _BITS)[1], 1 << _BITS)
        if gap > 0:
            best = min(best, round_up(Fraction(composition.delta(at, lower=False).upper) / gap))
    return best


def explain(loss: Any, delta: Fraction | None) -> str:
    """An explanation of a `PrivacyLoss`, which is defined in a higher module."""
    lines = [f"{loss}."]
    pure = loss.epsilon()
    if math.isfinite(pure):
        lines.append(
            f"Any outcome is at most {_format_ratio(pure)} likelier with a person's data than without, "
            "or the reverse."
        )
    if delta is None and math.isinf(pure):
        delta = Fraction(1, 10**6)
    bounds = None if delta is None else loss.epsilon_bounds(delta)
    if delta is not None and bounds is not None and math.isinf(bounds.upper):
        lines.append(f"At δ = {format_up(delta)} no finite ε holds.")
    elif delta is not None and bounds is not None:
        lines.append(
            f"At δ = {format_up(delta)}, ε is at most {_format(bounds.upper)} and at least "
            f"{format_down(Fraction(bounds.lower))} ({bounds.method}): no event is more than "
            f"{_format_ratio(bounds.upper)} likelier with a person's data than without, up to an "
            f"additive {format_up(delta)}."
        )
        if bounds.method == RENYI:
            lines.append("This bound always holds, but it is loose: no tighter one could be certified.")
    right = Fraction(1, 2) + Fraction(loss.advantage()) / 2
    lines.append(
        "An attacker who knows all other data, and guesses if a person is in, from even odds, is right with "
        f"probability {_format(round_up(right))} at most."
    )
    epsilon = pure if math.isfinite(pure) else loss.epsilon(delta)
    if math.isfinite(epsilon):
        half, tenth = (loss.posterior(prior, epsilon) for prior in (0.5, 0.1))
        but = (
            f", except with probability {_format(half.exception_probability)}"
            if half.exception_probability
            else ""
        )
        lines.append(
            "A belief about a person of 50 % becomes at most "
            f"{_format_percent(half.upper_bound)}, "
            f"and one of 10 % at most {_format_percent(tenth.upper_bound)}{but}."
        )
    return "\n".join(lines)


def _format_percent(chance: float) -> str:
    return f"{format_up(100 * Fraction(chance))} %"


def _format(value: float) -> str:
    return format_up(Fraction(value)) if math.isfinite(value) else "∞"


def _format_ratio(epsilon: float) -> str:
    if epsilon > 700:
        return f"e^{_format(epsilon)} times"
    high = Fraction(exp(Fraction(epsilon), 64)[1] if epsilon else 1 << 64, 1 << 64)
    hundredths = -(-high * 100 // 1)
    # survives: No power of e that is asked for is just 10000.
    return f"{hundredths / 100:.2f} times" if hundredths < 10**6 else f"{format_up(high)} times"
