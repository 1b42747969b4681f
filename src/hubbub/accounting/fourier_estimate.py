"""An estimate of δ(ε) that proves nothing: it says where a contour is to be planned.

The saddle-point formula is off by a factor of e^30 where single outcomes far out make most of δ. Here the
Fourier integral itself is summed, on few nodes, after the tilted loss is blurred by a normal one, so that
the integrand vanishes soon, whatever the law.

Proof: docs/proofs/fourier.md (any choice of a contour is valid)
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import Uncertified
from hubbub.accounting.fourier_contour import Scan
from hubbub.accounting.smooth_partitions import Window
from hubbub.accounting.subsampled_gaussian import SubsampledGaussians

__all__ = ["BlurredSum", "blurred_sum"]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

# survives: An estimate only: any other is as valid.
_BLUR = 0.6
"""The standard deviation of the normal loss, in units of 1/tilt: it moves ln δ by less than 0.2."""
# survives: An estimate only: any other is as valid.
_EVEN_NODES, _LOSS_NODES = 80, 160
# survives: From how many points on there is no estimate is free.
_MAX_POINTS = 700


@dataclass(frozen=True)
class BlurredSum:
    """The blurred integrand on the points of a contour."""

    tilt: float
    log_peak: float
    t: Doubles
    terms: Complexes

    def log_delta(self, epsilon: float) -> float:
        """About ln δ(ε); −∞ where the sum is lost in rounding."""
        total = float((self.terms * np.exp(-1j * self.t * epsilon)).real.sum())
        return math.log(total) + self.log_peak - self.tilt * epsilon if total > 0 else -math.inf


def blurred_sum(
    law: SubsampledGaussians, near: Window, scan: Scan, epsilon: float, log_delta: float
) -> BlurredSum:
    """Sum for one kind of step, with outcomes far out left away.

    Args:
        law: the steps.
        near: the division below which outcomes are summed.
        scan: the cumulants of these outcomes.
        epsilon: about where it is to be evaluated.
        log_delta: about ln δ there.
    """
    plan = scan.choose(epsilon, log_delta, float(law.counts.sum()))
    tilt, (count,) = plan.tilt, law.counts
    step = 2 * math.pi / plan.period
    points = math.sqrt(2 * (max(0.0, plan.loss) + 5)) / _BLUR * tilt / step + 2
    if not points <= _MAX_POINTS:
        raise Uncertified
    x = _nodes(law, near, tilt)
    width = np.diff(x, prepend=x[:, :1]) + np.diff(x, append=x[:, -1:])
    log_ratio = law.log_ratio(x)
    with np.errstate(divide="ignore"):
        whole = law.log_density(x, tilt, log_ratio) + np.log(width * near.below(x))
    chance, loss = np.exp(whole - whole.max())[0], law.loss(log_ratio)[0]
    chance /= chance.sum()
    loss = loss - chance @ loss
    t: Doubles = step * np.arange(int(points), dtype=np.float64)
    half = t[:, None] * (loss / 2)
    # e^(2ix) − 1 = −2·sin²x + 2i·sin x·cos x.
    sine = np.sin(half)
    turns = -2 * (sine * sine) @ chance + 2j * ((sine * np.cos(half)) @ chance)
    power = float(count) * np.log1p(turns) - (t * _BLUR / tilt) ** 2 / 2
    at = int(np.flatnonzero(scan.tilts == tilt)[0])
    z = tilt + 1j * t
    kernel = step / math.pi / (z * (1 + z))
    kernel[0] /= 2
    turn = 1j * t * float(scan.mean[at])
    return BlurredSum(tilt, float(scan.moment[at]), t, np.exp(power + turn) * kernel)


def _nodes(law: SubsampledGaussians, near: Window, tilt: float) -> Doubles:
    """Nodes that are even in x, and nodes that are even in ln r, where it turns fast."""
    low, high = (float(end[0]) for end in law.outline(tilt))
    high = max(low + float(law.sigmas[0]), min(high, float((near.at + 4 * near.width)[0])))
    top = float(law.log_ratio(np.array([[high]]))[0, 0])
    even = np.linspace(low, high, _EVEN_NODES)
    turns = law.outcome(top * np.arange(1, _LOSS_NODES) / _LOSS_NODES)
    return np.sort(np.concatenate([even, turns[(turns > low) & (turns < high)]]))[None, :]
