"""The least noise that keeps a promise, for whatever the noise is put into.

Proof: docs/proofs/engine.md, "Calibration"
"""

import math
from collections.abc import Callable
from fractions import Fraction

from hubbub.errors import InvalidInput, Unsupported
from hubbub.loss.closed import rough_log
from hubbub.loss.loss import Loss
from hubbub.rational import Number, below_one, positive

__all__ = ["calibrate"]

_CLOSE = 1e-8
"""How far above the least the noise may be, relatively."""
_MOST_STEPS = 80


def calibrate(
    family: Callable[[Fraction], Loss], epsilon: Number, delta: Number = 0, *, guess: Number = 1
) -> float:
    """The least noise, to eight digits, at which `family(noise)` is (ε, δ)-private.

    The family gives the loss for any noise above 0, less for more noise: one Gaussian answer, many, a
    training run, or a schedule of different noises that all grow with one number.

    >>> round(calibrate(lambda sigma: Loss.gaussian(1 / sigma), epsilon=1, delta=1e-5), 6)
    3.730632
    >>> rate = Fraction(256, 60000)
    >>> sigma = calibrate(lambda sigma: Loss.gaussian(1 / sigma).sampled(rate) * 14063, epsilon=2, delta=1e-5)
    >>> round(sigma, 4)
    1.2242

    Guarantee: the loss with the noise returned has been computed to keep the promise, rounded up.
    Assumes: nothing of the family; if it is not falling, the noise may not be the least.
    Proof: docs/proofs/engine.md, "Calibration"
    """
    most, chance = positive(epsilon, "epsilon"), below_one(delta, "delta")

    def excess(log_noise: float) -> float:
        """Above 0 where the noise is too small: smooth wherever the loss is."""
        loss = family(Fraction(math.exp(log_noise)))
        if not isinstance(loss, Loss):
            raise InvalidInput(
                f"the family gave something of type {type(loss).__name__}",
                why="it is asked for the loss at a noise",
                fix="pass a function such as lambda sigma: Loss.gaussian(1 / sigma)",
            )
        if not chance:
            found = loss.epsilon()
            return (
                rough_log(Fraction(found) / most) if 0 < found < math.inf else math.copysign(50.0, found - 1)
            )
        found = loss.delta(most)
        return rough_log(Fraction(found) / chance) if found > 0 else -700.0

    # Without δ it is a matter of sums, and quick.
    close = _CLOSE if chance else _CLOSE / 2**12
    noise = _root(excess, max(-190.0, min(190.0, rough_log(positive(guess, "guess")))), close)
    # ε and δ are bounded by themselves: the promise is checked as it will be read.
    more = close / 2
    while family(Fraction(noise)).epsilon(chance) > most:
        noise, more = noise * (1 + more), 2 * more
    return noise


def _root(excess: Callable[[float], float], start: float, close: float) -> float:
    """e^x for the least x at which excess(x) ≤ 0, found to be so."""
    low, high = start, start
    at_low = at_high = excess(start)
    step = 0.5
    while at_high > 0:
        low, at_low, high = high, at_high, high + step
        at_high, step = excess(high), 2 * step
        if high > 200:
            raise _out_of_reach()
    while at_low <= 0:
        high, at_high, low = low, at_low, low - step
        at_low, step = excess(low), 2 * step
        if low < -200:
            raise _out_of_reach()
    moved, known = 0, [(low, at_low), (high, at_high)]
    for _ in range(_MOST_STEPS):
        slope = (at_low - at_high) / (high - low)
        # Near enough to the root, or to the other end.
        if high - low <= close or -at_high <= close * slope:
            break
        # By the last three points, or false position; an end that stays counts less (the Illinois rule).
        middle = _inverse(known[-3:])
        if middle is None or not low < middle < high:
            middle = low + at_low / slope
        # A hair to the safe side.
        middle = min(max(middle + close / 2, low + close / 2), high - close / 4)
        at = excess(middle)
        known.append((middle, at))
        if at > 0:
            low, at_low, at_high = middle, at, at_high / 2 if moved < 0 else at_high
            moved = -1
        else:
            high, at_high, at_low = middle, at, at_low / 2 if moved > 0 else at_low
            moved = 1
    return math.exp(high)


def _inverse(points: list[tuple[float, float]]) -> float | None:
    """Where the parabola x(value) through three points has the value 0."""
    values = {at for _, at in points}
    if len(values) < 3 or not all(map(math.isfinite, values)):
        return None
    total = 0.0
    for x, at in points:
        others = [other for _, other in points if other != at]
        total += x * math.prod(other / (other - at) for other in others)
    return total


def _out_of_reach() -> Unsupported:
    return Unsupported(
        "no noise keeps this promise, or the least one is out of reach",
        why="the loss did not cross it between noise of e^-200 and e^200",
        fix="check that the loss falls with the noise, or choose a larger epsilon or delta",
    )
