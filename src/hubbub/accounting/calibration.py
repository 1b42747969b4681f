"""Calibration: the least noise of a mechanism, a composition or a training run for a target (ε, δ).

Proof: docs/proofs/composition.md, "Calibration"
"""

import math
from collections.abc import Callable
from fractions import Fraction

from hubbub.accounting.closed_form import rough_log
from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import Number, parse_below_one, parse_positive

__all__ = ["calibrate"]

_TOLERANCE, _PURE_TOLERANCE = 1e-8, 2e-12
"""How far above the least the noise may be, relatively; without δ, losses are sums, and fast."""
# survives: Up to which noise is looked for is free, as long as doubles hold it.
_MAX_LOG_NOISE = 200.0
"""Noise is searched between e^-200 and e^200."""
# survives: What stands for an infinite logarithm is free, if it is far.
_LOG_INFINITY = 700.0
"""Stands for the logarithm of zero, and of an infinite ε."""
# survives: When steps begin to halve, and when they end, only decides how many are made: the last place is
# returned only where the promise holds.
_BISECT_AFTER, MAX_STEPS = 8, 120
"""From this many steps on every other one bisects, so that the search ends for any curve."""


def calibrate(
    family: Callable[[Fraction], PrivacyLoss], epsilon: Number, delta: Number = 0, *, guess: Number = 1
) -> float:
    """The least noise, to eight digits, at which `family(noise)` is (ε, δ)-private.

    Args:
        family: The loss for any noise above 0, less for more noise: of one Gaussian release, of many, of a
            training run, or of a schedule of noises that all grow with one number.
        epsilon: The target ε.
        delta: The target δ.
        guess: Where the search begins.

    >>> round(calibrate(lambda sigma: PrivacyLoss.gaussian(1 / sigma), epsilon=1, delta=1e-5), 6)
    3.730632
    >>> rate = Fraction(256, 60000)
    >>> def training(sigma):
    ...     return PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * 14063
    >>> round(calibrate(training, epsilon=2, delta=1e-5), 4)
    1.2242

    Guarantee: the loss at the returned noise has been computed, rounded up, to meet the target.
    Assumes: nothing of the family; if it does not fall, the noise may not be the least.
    Proof: docs/proofs/composition.md, "Calibration"
    """
    most, chance = parse_positive(epsilon, "epsilon"), parse_below_one(delta, "delta")

    def excess(log_noise: float) -> float:
        """Positive if the noise is too small; as smooth as the loss."""
        loss = family(Fraction(math.exp(log_noise)))
        if not isinstance(loss, PrivacyLoss):
            raise InvalidInput(
                f"the family returned a value of type {type(loss).__name__}",
                why="it must return the privacy loss at a noise",
                fix="pass a function such as lambda sigma: PrivacyLoss.gaussian(1 / sigma)",
            )
        value, allowed = (loss.delta(most), chance) if chance else (loss.epsilon(), most)
        if not 0 < value < math.inf:
            return _LOG_INFINITY if value else -_LOG_INFINITY
        return rough_log(Fraction(value) / allowed)

    close = _TOLERANCE if chance else _PURE_TOLERANCE
    noise = _root(
        excess, max(-_MAX_LOG_NOISE, min(_MAX_LOG_NOISE, rough_log(parse_positive(guess, "guess")))), close
    )
    # ε and δ are bounded separately: the target is checked as it will be read.
    # survives: The first step on is free, if it is small.
    more = close / 2
    # survives: An ε that is just the promised one keeps the promise; a hair more noise does, too.
    while family(Fraction(noise)).epsilon(chance) > most:
        # survives: How fast steps grow is free.
        noise, more = noise * (1 + more), 2 * more
    return noise


def _root(excess: Callable[[float], float], start: float, close: float) -> float:
    """e^x for about the least x with excess(x) ≤ 0, which has been computed."""
    low = high = start
    at_low = at_high = excess(start)
    step = 0.5
    # survives: Of just 0 the search begins a step further out, and comes to the same. The search begins
    # a step further out, and comes to the same.
    while at_high > 0:
        low, at_low, high = high, at_high, high + step
        # survives: That noise is not looked for further out is said a step later.
        if high > _MAX_LOG_NOISE:
            raise _out_of_reach()
        at_high, step = excess(high), 2 * step
    # survives: Of just 0 the search begins a step further out, and comes to the same.
    while at_low <= 0:
        high, at_high, low = low, at_low, low - step
        # survives: That noise is not looked for further out is said a step later.
        if low < -_MAX_LOG_NOISE:
            raise _out_of_reach()
        at_low, step = excess(low), 2 * step
    known = [(low, at_low), (high, at_high)]
    for attempt in range(MAX_STEPS):
        # Near enough to the other end, or to the root.
        # survives: Just as close as is enough is not met by doubles, or needs one step more. Near
        # the end both are about 0; how early it stops only decides how close it is.
        if high - low <= close or -at_high * (high - low) <= close * (at_low - at_high):
            break
        # survives: When steps begin to halve is free. Through four points a curve is as good a
        # guess as through three.
        middle = _inverse(known[-3:]) if attempt < _BISECT_AFTER or attempt % 2 else (low + high) / 2
        # survives: A guess at an end is moved inside by the next line.
        if middle is None or not low < middle < high:
            # By false position: closer to the less noise, for which losses are computed sooner.
            middle = low + (high - low) * at_low / (at_low - at_high)
        # A hair to the safe side.
        # survives: By how much a guess is moved to the safe side, and kept off the ends, is free. A
        # guess beyond the end that holds is not met: it is moved by half of what is close enough.
        middle = min(middle + close / 2, high - close / 4)
        at = excess(middle)
        known.append((middle, at))
        # survives: Of just 0 the end is a hair further out.
        if at > 0:
            low, at_low = middle, at
        else:
            high, at_high = middle, at
    return math.exp(high)


def _inverse(points: list[tuple[float, float]]) -> float | None:
    """Inverse quadratic interpolation: x at value 0 of the parabola x(value) through three points."""
    values = {at for _, at in points}
    # survives: Of fewer different values it gives another guess, which is as free as any.
    if len(values) < 3:
        return None
    total = 0.0
    for x, at in points:
        others = [other for _, other in points if other != at]
        total += x * math.prod(other / (other - at) for other in others)
    return total


def _out_of_reach() -> Unsupported:
    return Unsupported(
        "no noise between e^-200 and e^200 meets the target",
        why="the loss does not cross the target there",
        fix="check that the loss falls with the noise, or choose a larger {epsilon} or {delta}",
    )
