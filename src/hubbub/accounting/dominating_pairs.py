"""Dominating pairs of continuous noise, and the privacy loss of a pair bin by bin.

A pair (P, Q) stands for the output distributions of a mechanism on two neighbouring databases, in one
direction: its privacy loss is L = ln(P/Q) under P. A pair answers the accountants' questions: moments of L
for the Fourier accountant, masses between losses for the PLD accountant. The answers are doubles; each says
how far off it may be, and the accountants allow for that.

Proof: docs/proofs/dominating-pairs.md
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.float_bounds import log1p

__all__ = [
    "MAX_TERMS",
    "MIN_MASS",
    "BinMasses",
    "BoundedRangePair",
    "ContinuousPair",
    "DominatingPair",
    "GaussianPair",
    "LaplacePair",
    "NormalBins",
    "graded_grid",
    "normal_bins",
    "normal_masses",
    "widen",
]

Complexes = NDArray[np.complex128]
Doubles = NDArray[np.float64]

_TAIL_DEVIATIONS = 40.0
"""Beyond this many standard deviations a normal distribution has less than 1e-300."""
MIN_MASS = 1e-300
"""Masses below it may be missing or wrong; upper bounds add it for each bin."""

# survives: From how much work on it is left to others is free.
MAX_TERMS = 1 << 19
"""Losses times points of a transform: what takes longer is left to the PLD accountant."""
_UNIT_ROUNDOFF = 2.0**-53
# survives: Where one formula takes over from the other is free: both are good there.
_MAX_SERIES_SIZE = 0.5
"""Up to here (in half-widths times distance) a bin's normal mass is summed by a series."""


class BinMasses(NamedTuple):
    """The masses of bins of losses, each bin taken as one outcome."""

    p: Doubles
    q: Doubles
    loss: Doubles
    """ln(p/q) of each bin, more accurate than from p and q."""
    relative_mass_error: Doubles
    """The relative error of each p and q above 1e-300."""
    loss_error: Doubles
    """The error of each loss."""


class DominatingPair(Protocol):
    """A pair of distributions (P, Q), through its privacy loss L = ln(P/Q) under P."""

    @property
    def support(self) -> tuple[float, float]:
        """An interval that holds all finite losses."""

    @property
    def coarse_grid(self) -> Doubles:
        """Losses between which the density is smooth enough for a coarse PLD."""

    @property
    def atoms(self) -> Doubles:
        """Losses with positive probability."""

    @property
    def is_discrete(self) -> bool:
        """True if there are only atoms."""

    @property
    def infinity_mass(self) -> float:
        """The P-mass of outcomes impossible under Q: an infinite loss."""

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """The masses of losses in (edges[k], edges[k+1]]; edges may repeat, and be infinite."""


class ContinuousPair:
    """Defaults for a pair with a density of losses on all reals."""

    @property
    def infinity_mass(self) -> float:
        """No loss is infinite."""
        return 0.0

    @property
    def support(self) -> tuple[float, float]:
        """Any loss is possible."""
        return -math.inf, math.inf

    @property
    def atoms(self) -> Doubles:
        """None."""
        return np.zeros(0)

    @property
    def is_discrete(self) -> bool:
        """False: losses have a density."""
        return False


def graded_grid(max_loss: float) -> Doubles:
    """Losses evenly over ±max_loss, and closer together at both ends."""
    near = np.linspace(0, min(80.0, max_loss), 257)
    return np.unique(np.concatenate([near - max_loss, np.linspace(-max_loss, max_loss, 65), max_loss - near]))


def widen(low: float, high: float, by: float = 16 * _UNIT_ROUNDOFF) -> tuple[float, float]:
    """An interval that holds the true one, of which these ends are rounded."""
    return low - by * abs(low), high + by * abs(high)


class NormalBins(NamedTuple):
    """Normal masses as share·φ(place), which neither underflows nor cancels."""

    place: Doubles
    share: Doubles
    narrow: NDArray[np.bool_]


def normal_bins(left: Doubles, right: Doubles, half: Doubles) -> NormalBins:
    """Normal masses between left and right, 2·half apart: more accurate than from their difference.

    A narrow bin is 2d·φ(z)·Σ He₂ⱼ(z)·d²ʲ/(2j+1)! around its middle z; for a wide one, Mills' ratio at both
    ends gives the difference of the tails, over φ at the end that is closer to zero.
    """
    place = left / 2 + right / 2
    size = half * (np.abs(place) + 6)
    # survives: Where one formula takes over from the other is free: both are good there.
    narrow = size <= _MAX_SERIES_SIZE
    share = np.empty(place.size)
    # Most bins are so narrow that few terms are enough.
    # survives: Where one formula takes over from the other is free: both are good there.
    for some in (size <= _MAX_SERIES_SIZE / 16, narrow & (size > _MAX_SERIES_SIZE / 16)):
        # survives: A few terms more.
        share[some] = (
            2 * half[some] * _normal_mean_ratio(place[some], half[some], float(size[some].max(initial=0.0)))
        )
    wide = ~narrow
    flip = right[wide] <= 0
    near, far = np.where(flip, -right[wide], left[wide]), np.where(flip, -left[wide], right[wide])
    place[wide] = np.where(flip, -1.0, 1.0) * np.maximum(near, 0.0)
    mills, beyond = _mills(np.abs(near)), _mills(np.abs(far))
    # φ at the ends against φ at the place; if the bin holds zero, it is all but two tails.
    own = np.exp(-np.square(np.minimum(near, 0.0)) / 2)
    fall = np.exp(-np.where(near < 0, far * far / 2, half[wide] * (near + far)))
    share[wide] = np.where(near < 0, math.sqrt(2 * math.pi) - own * mills, mills) - fall * beyond
    return NormalBins(place, share, narrow)


def normal_masses(normal: NormalBins) -> Doubles:
    """The masses as doubles."""
    return np.asarray(np.exp(-np.square(normal.place) / 2) / math.sqrt(2 * math.pi) * normal.share)


def _normal_mean_ratio(z: Doubles, half: Doubles, size: float) -> Doubles:
    """The mean of φ over z ± half, over φ(z): Σ He₂ⱼ(z)·half²ʲ/(2j+1)!, where (|z| + 6)·half ≤ size ≤ ½."""
    total = np.ones(z.size)
    square, before, now, scale = half * half, np.ones(z.size), z, np.ones(z.size)
    j, rest = 1, size * size / 6
    # survives: When the series is cut is free, if what is left is below 2^-55.
    while rest > 2.0**-60:
        even = z * now - (2 * j - 1) * before
        before, now = even, z * even - 2 * j * now
        scale = scale * square / ((2 * j) * (2 * j + 1))
        total += even * scale
        j += 1
        # survives: When the series is cut is free, if what is left is below 2^-55. When the series
        # is cut is free: here a few terms later.
        rest *= size * size / ((2 * j) * (2 * j + 1))
    return total


def _mills(x: Doubles) -> Doubles:
    """Pr[Z > x]/φ(x) for x ≥ 0."""
    far = x > 8
    out = np.empty(x.size)
    root = math.sqrt(0.5)
    out[~far] = [math.erfc(y * root) * math.exp(y * y / 2) * math.sqrt(math.pi / 2) for y in x[~far].tolist()]
    tail = x[far]
    for n in range(30, 0, -1):
        tail = x[far] + n / tail
    out[far] = 1 / tail
    return out


@dataclass(frozen=True)
class GaussianPair(ContinuousPair):
    """Gaussian noise: L is normal with mean μ²/2 and variance μ² under P.

    >>> GaussianPair(1.0).derivatives(2.0)
    (3.0, 2.5, 1.0)
    """

    mu_squared: float

    @property
    def coarse_grid(self) -> Doubles:
        """Losses a tenth of a deviation apart, around P's mean and around Q's."""
        mu = math.sqrt(self.mu_squared)
        z = mu * np.linspace(-_TAIL_DEVIATIONS, _TAIL_DEVIATIONS, 801)
        return np.union1d(z - self.mu_squared / 2, z + self.mu_squared / 2)

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = μ²(z + z²)/2."""
        return self.mu_squared / 2 * (z + z * z)

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        return self.mu_squared / 2 * (c + c * c), self.mu_squared * (0.5 + c), self.mu_squared

    def decay(self, t: Doubles, c: float) -> Doubles:
        """ln|e^(K(c+it) − K(c))| = −μ²t²/2, at every c."""
        return -self.mu_squared * t * t / 2 + 0 * c

    def moment_error(self, z: Complexes) -> Doubles:
        """K is computed to some units of itself."""
        return 0 * z.real

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]].

        >>> GaussianPair(1.0).bin_masses(np.array([-np.inf, 0.5, np.inf])).p
        array([0.5, 0.5])
        """
        mu = math.sqrt(self.mu_squared)
        bound = mu * (mu / 2 + _TAIL_DEVIATIONS)
        inner = edges.clip(-bound, bound)
        left, right = inner[:-1], inner[1:]
        half, middle = (right - left) / (2 * mu), left / 2 + right / 2
        ours, theirs = (
            normal_bins(left / mu + shift, right / mu + shift, half) for shift in (-mu / 2, mu / 2)
        )
        # φ(z₀)/φ(z₁) = e^((z₁² − z₀²)/2), which is e^ℓ itself where both stand in the middle.
        apart = (theirs.place - ours.place) / 2 * (theirs.place + ours.place)
        narrow = ours.narrow & theirs.narrow
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(narrow, middle, apart) + np.log(ours.share / theirs.share)
        loss[half == 0] = middle[half == 0]
        # A rounded z is off by some units of `shift`; the rest is lost in wide bins.
        shift = np.abs(middle) / mu + half + mu
        relative_mass_error = (
            4 * _UNIT_ROUNDOFF * (4 + np.maximum(np.abs(ours.place), np.abs(theirs.place)) * shift)
        )
        loss_error = 16 * _UNIT_ROUNDOFF * (1 + np.abs(middle))
        relative_mass_error[~narrow] += 512 * _UNIT_ROUNDOFF
        size = np.maximum(np.abs(ours.place), np.abs(theirs.place))
        loss_error[~narrow] += 1024 * _UNIT_ROUNDOFF + 16 * _UNIT_ROUNDOFF * ((half + size) * shift)[~narrow]
        return BinMasses(normal_masses(ours), normal_masses(theirs), loss, relative_mass_error, loss_error)


@dataclass(frozen=True)
class LaplacePair(ContinuousPair):
    """Laplace noise of scale b on a sensitivity of ε·b.

    Under P the loss is ε with probability ½, −ε with probability e^−ε/2, and has the density
    e^((L − ε)/2)/4 between.

    >>> LaplacePair(1.0).bin_masses(np.array([-1.0, 0.0, 0.5, 1.0])).p.round(4)
    array([0.1193, 0.0861, 0.6106])
    """

    epsilon: float

    @property
    def support(self) -> tuple[float, float]:
        """±ε."""
        return widen(-self.epsilon, self.epsilon)

    @property
    def atoms(self) -> Doubles:
        """Both ends."""
        return np.array([-self.epsilon, self.epsilon])

    @property
    def coarse_grid(self) -> Doubles:
        """Losses evenly over the support, and closer together at both ends."""
        return graded_grid(self.epsilon)

    def log_moment(self, z: Complexes) -> Complexes:
        """K(z) = rz + ln(1 + z·(e^(−2w) − 1)/(1 + 2z)) with w = (z + ½)·r, for Re z > −½.

        It keeps its relative accuracy where it is small.
        """
        r, w = self.epsilon, (z + 0.5) * self.epsilon
        out = np.empty(z.shape, dtype=np.complex128)
        far = (w.real > 20) | (r > 1)
        out[far] = z[far] * r + log1p(np.expm1(-2 * w[far]) * z[far] / (1 + 2 * z[far]))
        if far.all():
            return out
        z, w = z[~far], w[~far]
        # e^K = e^(−r/2)·(cosh w + (r/2)·sinh(w)/w) is 1 at z = 0: summed from there, so that nothing cancels.
        start = r / 2
        near = np.abs(w) <= 1.5
        sinhc = np.empty(z.shape, dtype=np.complex128)
        sinhc[~near] = np.sinh(w[~near]) / w[~near] - math.sinh(start) / start
        # Σ (w²ʲ − s²ʲ)/(2j+1)!, where a·(aʲ − bʲ) + (a − b)·bʲ is the next difference.
        first, square = (z * (z + 1) * r * r)[near], w[near] ** 2
        difference, total, power, factor = first, np.zeros_like(first), 1.0, 6.0
        for j in range(1, 14):
            total += difference / factor
            factor *= (2 * j + 2) * (2 * j + 3)
            power *= start * start
            difference = square * difference + first * power
        sinhc[near] = total
        cosh = 2 * np.sinh((z + 1) * r / 2) * np.sinh(z * r / 2)
        out[~far] = log1p(math.exp(-start) * (cosh + start * sinhc))
        return out

    def derivatives(self, c: float) -> tuple[float, float, float]:
        """K, K′ and K″ at a real c."""
        r = self.epsilon
        w = (c + 0.5) * r
        t = math.tanh(w)
        if abs(w) < 0.005:
            parts = 1 - w * w / 3, w / 3 - 2 * w**3 / 15, 1 / 3 - w * w / 15
        else:
            parts = t / w, 1 / w - t / (w * w), t / w - 2 / (w * w) + 2 * t / w**3
        size, first, second = 1 + r / 2 * parts[0], t + r / 2 * parts[1], 1 + r / 2 * parts[2]
        moment = float(self.log_moment(np.array([complex(c)]))[0].real)
        return moment, r * first / size, r * r * (second / size - (first / size) ** 2)

    def log_moment_upper(self, c: float) -> float:
        """K at a real c > 0."""
        return float(self.log_moment(np.array([complex(c)]))[0].real)

    def decay(self, t: Doubles, c: float) -> Doubles:
        """An upper bound of ln|e^(K(c+is) − K(c))| for all s ≥ t: losses between the atoms decay.

        e^K is e^(−r/2)·(cosh w + r/2·sinh(w)/w) at w = a + irt, and |cosh w|² = cosh²a − sin²(rt),
        |sinh w|² = sinh²a + sin²(rt).

        Proof: docs/proofs/fourier.md, "Decay"
        """
        r = self.epsilon
        a = (c + 0.5) * r
        if a > 300:
            return 0 * t
        cosh, sinh = math.cosh(a), math.sinh(a)
        turn = r * t
        # Up to π/2 both parts fall; then cells in which sin² rises or falls, and what lies beyond them.
        edges = np.linspace(math.pi / 2, 4 * math.pi, 113)
        squares = np.sin(edges) ** 2
        least, most = np.minimum(squares[1:], squares[:-1]), np.maximum(squares[1:], squares[:-1])
        cells = np.sqrt(cosh**2 - least) + r / 2 * np.sqrt((sinh**2 + most) / (a * a + edges[:-1] ** 2))
        cells = np.maximum.accumulate(np.append(cells, 0.0)[::-1])[::-1]
        after = cells[np.clip(np.searchsorted(edges, turn, side="right") - 1, 0, cells.size - 1)]
        beyond = cosh * (1 + r / 2 / np.maximum(turn, edges[-1]))
        first = np.minimum(turn, math.pi / 2)
        start = np.sqrt(np.maximum(0.0, cosh**2 - np.sin(first) ** 2)) + r / 2 * np.sqrt(
            (sinh**2 + np.sin(first) ** 2) / (a * a + first**2)
        )
        bound = np.maximum(np.maximum(after, beyond), np.where(turn < math.pi / 2, start, 0.0))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return np.asarray(np.minimum(0.0, np.log(bound / (cosh + r / 2 * (sinh / a))) + 1e-13))

    def moment_error(self, z: Complexes) -> Doubles:
        """How many units of 2^-48 e^K(z) is off, of e^K(Re z), beyond some units of K."""
        r = self.epsilon
        small = (np.abs((z + 0.5) * r) <= 1.5) & (r <= 1)
        return np.asarray(np.where(small, 4 * np.abs(z * (z + 1)) * r * r, 4 + np.abs(z) * r))

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        r = self.epsilon
        inner = edges.clip(-r, r)
        left, right = inner[:-1], inner[1:]
        share = -np.expm1((left - right) / 2) / 2
        p, q = share * np.exp((right - r) / 2), share * np.exp(-(left + r) / 2)
        loss = left / 2 + right / 2
        tail = math.exp(-r) / 2
        relative_mass_error, loss_error = (
            np.full(p.size, _UNIT_ROUNDOFF * (16 + 2 * min(r, 700.0))),
            np.full(p.size, 16 * _UNIT_ROUNDOFF * min(4 * r, r + 1)),
        )
        for place, often, seldom in ((r, 0.5, tail), (-r, tail, 0.5)):
            k = int(np.searchsorted(edges, place)) - 1
            if 0 <= k < p.size:
                loss[k] = _merge_atom((place, often, seldom), (float(loss[k]), float(p[k]), float(q[k])))
                p[k] += often
                q[k] += seldom
        return BinMasses(p, q, loss, relative_mass_error, loss_error)


@dataclass(frozen=True)
class BoundedRangePair(ContinuousPair):
    """The worst pair with losses in one interval of length ε: a density ∝ e^(L/2) on ±ε.

    >>> BoundedRangePair(1.0).bin_masses(np.array([-1.0, 0.0, 1.0])).p.round(4)
    array([0.3775, 0.6225])
    """

    epsilon: float

    @property
    def support(self) -> tuple[float, float]:
        """±ε."""
        max_loss = self.epsilon * (1 + 16 * _UNIT_ROUNDOFF)
        return -max_loss, max_loss

    @property
    def coarse_grid(self) -> Doubles:
        """Losses evenly over the support, and closer together at both ends."""
        return graded_grid(self.epsilon)

    def bin_masses(self, edges: Doubles) -> BinMasses:
        """P- and Q-mass of losses in (edges[k], edges[k+1]]."""
        w = self.epsilon
        inner = edges.clip(-w, w)
        left, right = inner[:-1], inner[1:]
        share = np.expm1((left - right) / 2) / math.expm1(-w)
        p, q = share * np.exp((right - w) / 2), share * np.exp(-(left + w) / 2)
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        relative_mass_error = np.full(p.size, _UNIT_ROUNDOFF * (24 + 2 * min(w, 700.0)))
        # survives: How much is allowed for rounding is free, if it is some units more than is lost.
        return BinMasses(
            p,
            q,
            left / 2 + right / 2,
            relative_mass_error,
            np.full(p.size, 16 * _UNIT_ROUNDOFF * min(4 * w, w + 1)),
        )


def _merge_atom(atom: tuple[float, float, float], rest: tuple[float, float, float]) -> float:
    """The loss of an atom and the rest of its bin, (loss, p, q) each, taken as one outcome."""
    (place, often, seldom), (loss, p, q) = atom, rest
    ours, theirs = p + often, q + seldom
    if not p and not q:
        return place
    if ours and abs(place - loss) <= 1:
        return place - math.log1p(p / ours * math.expm1(place - loss))
    if ours and theirs:
        return math.log(ours) - math.log(theirs)
    if ours:
        # So large a loss that Q's masses are no doubles: −ln of the mean of e^−L.
        return loss - math.log(p / ours + often / ours * math.exp(min(0.0, loss - place)))
    return loss
