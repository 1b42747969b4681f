"""Privacy loss distributions (PLDs) on a grid of losses, pessimistic or optimistic, and their composition.

A pair enters bin by bin: the P-mass of the outcomes with a loss between two neighbouring grid points, and the
loss of all of them taken as one. Splitting a bin onto its two ends so that P and Q keep their masses can only
help the adversary ("connect the dots"): a pessimistic estimate, off by O(h²). Merging the outcomes around a
point into one can only hurt her: an optimistic estimate, off by O(h²), too. If all losses lie on one grid,
both are exact.

Proof: docs/proofs/pld.md
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub.accounting.dominating_pairs import MIN_MASS, BinMasses, DominatingPair
from hubbub.accounting.float_bounds import Uncertified

__all__ = [
    "MAX_POINTS",
    "MAX_TILTED_DEVIATION",
    "ComposedPld",
    "DiscretizedPld",
    "TiltedPld",
    "chernoff_reach",
    "union_probability",
]

Doubles = NDArray[np.float64]

_UNIT_ROUNDOFF = 2.0**-53
_MAX_BINS = 1 << 21
BATCH = 1 << 16
"""Bins computed at a time: they fit a processor's cache."""


@dataclass(frozen=True)
class DiscretizedPld:
    """P-masses at losses origin + (start + k)·step: a pair that dominates another, or is dominated by it.

    Guarantee: made by `above`, its δ(ε − slack) is at least the law's δ(ε); made by `below`, its
        δ(ε + slack) is at most that; made by `exact`, both. So it stays when grids are composed.
    Assumes: the law's masses, each to within `unsure`.
    Proof: docs/proofs/pld.md
    """

    step: float
    origin: float
    start: int
    mass: Doubles
    mass_error: Doubles
    loss_error: float
    infinity_mass_upper: float
    """An upper bound of the mass of infinite losses."""
    infinity_mass_lower: float
    """A lower bound of the mass of infinite losses."""
    split_deviation: float = 0.0
    """If pessimistic: how far a loss was moved by splitting, as a standard deviation."""
    mass_rounded_up: float = 0.0
    """If pessimistic: the mass that was moved up to the first point."""

    @classmethod
    def pessimistic(
        cls, pair: DominatingPair, step: float, *, origin: float = 0.0, within: tuple[float, float]
    ) -> "DiscretizedPld":
        """Connect the dots: a dominating pair. Losses outside `within` are rounded up, to ∞ above it."""
        start, points = _grid_points(step, origin, within)
        bins = _bin_masses(pair, np.concatenate([[-math.inf], points, [math.inf]]))
        p, rough = bins.p[1:-1], bins.relative_mass_error[1:-1]
        rise = bins.loss_error[1:-1] + 4 * _UNIT_ROUNDOFF * (np.abs(points[1:]) + step)
        loss = bins.loss[1:-1] + rise
        # Of the cell's P-mass, what goes to its upper end.
        upper = (np.expm1(points[:-1] - loss) / math.expm1(-step)).clip(0.0, 1.0)
        over = np.maximum(loss - points[1:], 4 * rise)[p > 0]
        mass, mass_error = np.zeros(points.size), np.zeros(points.size)
        mass[0], mass_error[0] = bins.p[0], bins.p[0] * bins.relative_mass_error[0]
        for ends, share in ((slice(None, -1), 1 - upper), (slice(1, None), upper)):
            mass[ends] += p * share
            mass_error[ends] += p * share * rough
        return cls(
            step=step,
            origin=origin,
            start=start,
            mass=mass,
            mass_error=mass_error,
            loss_error=float(over.max(initial=0.0)),
            infinity_mass_upper=pair.infinity_mass * (1 + 4 * _UNIT_ROUNDOFF)
            + float(bins.p[-1]) * 1.01
            + 2 * MIN_MASS * points.size,
            infinity_mass_lower=pair.infinity_mass * (1 - 4 * _UNIT_ROUNDOFF),
            split_deviation=step / 2,
            mass_rounded_up=float(bins.p[0]) * 1.01 + MIN_MASS,
        )

    @classmethod
    def optimistic(
        cls,
        pair: DominatingPair,
        step: float,
        *,
        origin: float = 0.0,
        within: tuple[float, float],
        tilt: float = 1.0,
    ) -> "DiscretizedPld":
        """Outcomes merged around each point: a dominated pair. The tilt weighs where accuracy matters."""
        start, points = _grid_points(step, origin, within)
        edges = np.concatenate([[-math.inf], points - step / 2, [points[-1] + step / 2, math.inf]])
        bins = _bin_masses(pair, edges)
        for centred in () if pair.is_discrete else (True, False):
            # Edges are moved until merged losses lie at their points, and where that fails, above.
            lack = np.where(bins.p[1:-1] > MIN_MASS, points - bins.loss[1:-1], 0.0)
            short = np.maximum(lack[:-1], lack[1:]).clip(min=0.0)
            edges[2:-2] += ((lack[:-1] + lack[1:]) / 2 if centred else 1.5 * short).clip(-step / 4, step / 4)
            bins = _bin_masses(pair, edges)
        p = np.where(bins.p > MIN_MASS, bins.p, 0.0)
        loss = (bins.loss - bins.loss_error)[1:-1] - 4 * _UNIT_ROUNDOFF * (np.abs(points) + step)
        loss_error = _best_shift(points - loss, p[1:-1], tilt * loss, step)
        mass, mass_error = np.zeros(points.size + 1), np.zeros(points.size + 1)
        # Rounded down to the point itself, less the slack, or to the one before.
        place = np.floor((loss + loss_error - points) / step).clip(-2, 0)
        for ends, inner in ((slice(1, None), place == 0), (slice(None, -1), place == -1)):
            mass[ends] += np.where(inner, p[1:-1], 0.0)
            mass_error[ends] += np.where(inner, p[1:-1] * bins.relative_mass_error[1:-1], 0.0)
        mass[-1] += p[-1]
        mass_error[-1] += p[-1] * bins.relative_mass_error[-1]
        infinity_mass = pair.infinity_mass * (1 - 4 * _UNIT_ROUNDOFF)
        return cls(
            step,
            origin,
            start - 1,
            mass,
            mass_error,
            loss_error,
            infinity_mass_upper=1.0,
            infinity_mass_lower=infinity_mass,
        )

    @classmethod
    def exact(
        cls, pair: DominatingPair, step: float, *, origin: float = 0.0, within: tuple[float, float]
    ) -> "DiscretizedPld":
        """Atoms that lie on the grid: both estimates at once. Losses outside `within` are left out."""
        start, points = _grid_points(step, origin, within)
        edges = np.concatenate([[-math.inf], points - step / 2, [points[-1] + step / 2, math.inf]])
        bins = _bin_masses(pair, edges)
        off = pair.atoms - origin
        aside = np.abs(off - step * np.rint(off / step)).max() + 4 * _UNIT_ROUNDOFF * np.abs(points).max()
        p = bins.p[1:-1]
        rest = float(bins.p[0] + bins.p[-1]) * 1.01 + 2 * MIN_MASS * points.size
        return cls(
            step=step,
            origin=origin,
            start=start,
            mass=p,
            mass_error=p * bins.relative_mass_error[1:-1],
            loss_error=float(aside + bins.loss_error.max()),
            infinity_mass_upper=pair.infinity_mass * (1 + 4 * _UNIT_ROUNDOFF) + rest,
            infinity_mass_lower=pair.infinity_mass * (1 - 4 * _UNIT_ROUNDOFF),
        )


def _bin_masses(pair: DominatingPair, edges: Doubles) -> BinMasses:
    """The masses of all bins, a batch at a time."""
    batches = [pair.bin_masses(edges[start : start + BATCH + 1]) for start in range(0, edges.size - 1, BATCH)]
    return BinMasses(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))


def _grid_points(step: float, origin: float, within: tuple[float, float]) -> tuple[int, Doubles]:
    """The number of the first grid point, and all points: they enclose the range with one to spare."""
    first, last = math.floor((within[0] - origin) / step) - 1, math.ceil((within[1] - origin) / step) + 1
    if last - first > _MAX_BINS:
        raise Uncertified
    return first, np.asarray(origin + step * np.arange(first, last + 1), dtype=np.float64)


def _best_shift(lack: Doubles, p: Doubles, power: Doubles, step: float) -> float:
    """The best shift of all points down, so that few merged losses lie below their point."""
    kept_points = p > 0
    if not kept_points.any():
        return 0.0
    weight = p[kept_points] * np.exp(power[kept_points] - float(power[kept_points].max()))
    weight /= weight.sum()
    lack = lack[kept_points]
    choices = np.unique(np.concatenate([[0.0], lack[lack > 0].max(initial=0.0) * 1.5 ** -np.arange(60.0)]))
    # A loss that still lies below goes down a whole step.
    missed = np.cumsum(np.histogram(lack, [*choices, math.inf], weights=weight)[0][::-1])[::-1]
    missed[-1] = 0.0
    return float(choices[np.argmin(choices + step * missed)])


MAX_TILTED_DEVIATION = 0.4
"""Up to this deviation, in units of 1/tilt, splitting is proved to raise δ only a little."""

_ROW_SIZE = 1024


class _Value(NamedTuple):
    """δ on the grid at one ε."""

    value: float
    error: float
    """Its error."""
    excess: float
    """An upper bound of what splitting added."""
    fall: float
    """−dδ/dε: e^ε times the Q-mass in it."""


@dataclass(frozen=True)
class TiltedPld:
    """The composed PLD times e^(tilt·loss): accurate for δ around the ε it was tilted to."""

    step: float
    first_loss: float
    """The loss of the first probability."""
    probabilities: Doubles
    tilt: float
    peak: int
    """The index that exponents are relative to; it may lie outside the window."""
    moment: float
    relative: float
    """The relative error of e^moment and of sums."""
    error: float
    """The ℓ2 norm of the errors of the probabilities."""
    tail_mass: float
    """The probability outside the window."""
    loss_error: float
    """The largest distance of the composed loss from the grid."""
    infinity_mass_upper: float
    """An upper bound of the probability that any loss is infinite."""
    infinity_mass_lower: float
    """A lower bound of the probability that any loss is infinite."""
    split_deviation: float
    mass_rounded_up: float
    """As of `DiscretizedPld`, composed; `delta_lower` takes both off."""

    def delta_upper(self, epsilon: float) -> float:
        """An upper bound of δ(ε)."""
        bins = self.evaluate(epsilon - self.loss_error - 4 * _UNIT_ROUNDOFF * abs(epsilon))
        return min(1.0, self.infinity_mass_upper + bins.value + bins.error)

    def delta_lower(self, epsilon: float) -> float:
        """A lower bound of δ(ε)."""
        bins = self.evaluate(epsilon + self.loss_error + 4 * _UNIT_ROUNDOFF * abs(epsilon))
        return self.infinity_mass_lower + max(0.0, bins.value - bins.error - bins.excess)

    def epsilon_upper(self, delta: float, start: float) -> float:
        """An ε ≥ 0 at which δ surely holds, about the least one; infinite if none is found."""
        most = (delta - self.infinity_mass_upper) * (1 - 4 * _UNIT_ROUNDOFF)
        root = self._root(most, start, 1) if most > 0 else math.inf
        return max(0.0, root + self.loss_error + 8 * _UNIT_ROUNDOFF * abs(root))

    def epsilon_lower(self, delta: float, start: float) -> float:
        """An ε ≥ 0 below which δ surely does not hold, about the largest one."""
        root = self._root((delta - self.infinity_mass_lower) * (1 + 4 * _UNIT_ROUNDOFF), start, -1)
        return max(0.0, root - self.loss_error - 8 * _UNIT_ROUNDOFF * abs(root))

    def evaluate(self, epsilon: float) -> _Value:
        """δ(ε) of the finite losses, on the grid."""
        skip = min(max(0, math.floor((epsilon - self.first_loss) / self.step) + 1), self.probabilities.size)
        # ε enters only here, so that a rounded gap is a rounded ε.
        gap = self.first_loss + self.step * skip - epsilon
        steps = self.tilt * self.step * (self.peak - skip)
        power = steps + self.tilt * gap + self.moment
        if power > 700:
            return _Value(0.0, math.inf, math.inf, 0.0)
        # Terms below e^-60 are left out, and allowed for.
        probabilities = self.probabilities[skip : skip + int(60 / (self.tilt * self.step)) + 2]
        rows = probabilities.size // _ROW_SIZE
        rest = np.zeros(_ROW_SIZE)
        rest[: probabilities.size - rows * _ROW_SIZE] = probabilities[rows * _ROW_SIZE :]
        # 1 − e^−(a+b) = (1 − e^−a) + e^−a·(1 − e^−b): sums of products, in which nothing cancels.
        inner = self.step * np.arange(_ROW_SIZE)
        outer = max(0.0, gap) + self.step * _ROW_SIZE * np.arange(rows + 1)
        weight, start, share = np.exp(-self.tilt * inner), np.exp(-self.tilt * outer), -np.expm1(-outer)
        sides = np.stack([weight, weight * -np.expm1(-inner)], axis=1)
        parts = np.vstack([probabilities[: rows * _ROW_SIZE].reshape(rows, _ROW_SIZE) @ sides, rest @ sides])

        value = float((start * (share * parts[:, 0] + (1 - share) * parts[:, 1])).sum())
        peak = math.exp(power)
        squares = np.square(sides).sum(axis=0)
        kernel = np.square(start) * (np.square(share) * squares[0] + np.square(1 - share) * squares[1])
        lost = 1.001 * self.error * math.sqrt(2 * float(kernel.sum())) + self.tail_mass
        lost += (self.relative + 8 * _UNIT_ROUNDOFF * abs(steps)) * abs(value)
        lost += 2 * math.exp(-60) * (1 + self.error * self.probabilities.size)
        fall = float((start * parts[:, 0]).sum()) - value
        return _Value(peak * value, peak * lost, self._excess(epsilon, peak), peak * fall)

    def _excess(self, epsilon: float, peak: float) -> float:
        """An upper bound of what splitting added to δ(ε): only losses close to ε count.

        Splitting moves the whole loss by H with E[e^−H] = 1 and tails as those of a normal law of this
        spread: δ is raised by no more than 2.5·spread·E[e^(−(L−ε)²/2(1.01·spread)²)].
        """
        if not self.split_deviation:
            return 0.0
        if self.split_deviation > 0.01 or self.tilt * self.split_deviation > MAX_TILTED_DEVIATION:
            return math.inf
        wide = 1.01 * self.split_deviation
        low = math.floor((epsilon - 10 * wide - self.first_loss) / self.step)
        high = math.ceil((epsilon + 10 * wide - self.first_loss) / self.step) + 1
        near = slice(max(0, low), max(0, high))
        gap = self.first_loss + self.step * np.arange(self.probabilities.size)[near] - epsilon
        bump = np.exp(-self.tilt * gap - np.square(gap / wide) / 2)
        share = 1.001 * float((self.probabilities[near] * bump).sum())
        share += self.error * math.sqrt(float(np.square(bump).sum())) + self.tail_mass
        return peak * (2.5 * self.split_deviation * share + math.exp(-45) + self.mass_rounded_up)

    def _root(self, target: float, start: float, sign: int) -> float:
        """An ε with value + error ≤ target (sign 1), or value − error ≥ target (−1); ±∞ if none is found."""
        low, high, x = -math.inf, math.inf, start
        for step in range(60):
            bins = self.evaluate(x)
            size = bins.value + (bins.error if sign > 0 else -bins.error - bins.excess)
            low, high = (x, high) if size > target or math.isinf(size) else (low, x)
            move = _newton_step(size, target, bins.fall)
            if abs(move) <= 2.0**-46 * abs(x):
                break
            if not low < x + move < high:
                # Halve, or where one side is open, go there in growing steps.
                far = 2.0**step / self.tilt
                move = (low + high) / 2 - x if math.isfinite(high - low) else far if low == x else -far
            x += move
        pad = 2.0**-48 * (abs(x) + 1 / self.tilt)
        for _ in range(12):
            bins = self.evaluate(x + sign * pad)
            if sign * (target - bins.value) >= bins.error + (0.0 if sign > 0 else bins.excess):
                return x + sign * pad
            pad *= 8
        return sign * math.inf


def _newton_step(size: float, target: float, fall: float) -> float:
    """A Newton step from δ = `size`: exact for δ = A − B·e^ε, and along e^−aε if that is far."""
    if not (0 < size < math.inf and fall > 0):
        return math.nan
    if abs(size - target) < 0.5 * min(size, fall):
        return math.log1p((size - target) / fall)
    return size / fall * math.log(size / target)


Complexes = NDArray[np.complex128]

MAX_POINTS = 1 << 22

STAGE_ERROR = 8 * _UNIT_ROUNDOFF
"""The error of one of the log₂ N stages of a transform, in units of Σ|x|."""


@dataclass(frozen=True)
class ComposedPld:
    """PLDs on grids of one step, with counts, composed by a fast Fourier transform.

    Tilting by e^(cL) before the transform keeps the relative accuracy of a tiny δ.
    """

    plds: Sequence[tuple[DiscretizedPld, int]]

    def tilted(self, tilt: float, log_tail: float = 45.0) -> "TiltedPld":
        """The composed PLD, tilted to be accurate around one ε, except for a tail of e^−log_tail."""
        step = self.plds[0][0].step
        tilted = [_Tilted.of(pld, count, tilt) for pld, count in self.plds]
        # All places are counted in steps from the sum of the origins.
        middle = math.fsum(term.count * (term.peak + term.mean) for term in tilted)
        bottom = sum(term.count * (term.peak + int(term.places[0])) for term in tilted)
        top = sum(term.count * (term.peak + int(term.places[-1])) for term in tilted)
        variance = math.fsum(term.count * term.variance for term in tilted)
        low = chernoff_reach(lambda s: _log_moment(tilted, -s), variance, log_tail)
        high = chernoff_reach(lambda s: _log_moment(tilted, s), variance, log_tail)
        first, last = max(bottom, math.floor(middle - low) - 1), min(top, math.ceil(middle + high) + 1)
        length = 1 << max(4, (last - first).bit_length())
        if length > MAX_POINTS:
            raise Uncertified
        spectrum, error = _spectrum(tilted, length)
        start = sum(term.count * term.peak for term in tilted)
        origin = math.fsum(term.count * term.pld.origin for term in tilted)
        loss_error = math.fsum(
            term.count * (term.pld.loss_error + 4 * _UNIT_ROUNDOFF * abs(term.pld.origin)) for term in tilted
        )
        return TiltedPld(
            step=step,
            first_loss=origin + step * first,
            probabilities=np.roll(np.fft.irfft(spectrum, length), start - first),
            tilt=tilt,
            peak=start - first,
            moment=math.fsum(term.count * term.moment for term in tilted),
            relative=math.fsum(4 * _UNIT_ROUNDOFF * term.count * (1 + abs(term.moment)) for term in tilted)
            + 2.0**-42,
            error=error,
            tail_mass=0.0 if (first, last) == (bottom, top) else 2 * math.exp(1 - log_tail),
            loss_error=loss_error
            + 4 * _UNIT_ROUNDOFF * (abs(origin) + step * (max(abs(first), abs(last)) + length)),
            infinity_mass_upper=union_probability(
                [(term.pld.infinity_mass_upper, term.count) for term in tilted]
            )
            * (1 + 16 * _UNIT_ROUNDOFF),
            infinity_mass_lower=union_probability(
                [(term.pld.infinity_mass_lower, term.count) for term in tilted]
            )
            * (1 - 16 * _UNIT_ROUNDOFF),
            split_deviation=math.sqrt(math.fsum(term.count * term.pld.split_deviation**2 for term in tilted)),
            mass_rounded_up=math.fsum(term.count * term.mass_rounded_up for term in tilted),
        )


def union_probability(probabilities: Sequence[tuple[float, int]]) -> float:
    """The probability that any of some independent events happens, each with a count."""
    if any(chance >= 1 for chance, _ in probabilities):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-chance) for chance, count in probabilities))


@dataclass(frozen=True)
class _Tilted:
    """A PLD times e^(c·loss), normalized."""

    pld: DiscretizedPld
    count: int
    peak: int
    """The index of the largest tilted mass: exponents and places are relative to it."""
    places: NDArray[np.int64]
    masses: Doubles
    moment: float
    """ln E[e^(c(L − peak))]."""
    mean: float
    variance: float
    error: float
    """The error of all tilted masses together."""
    mass_rounded_up: float
    """The tilted mass that was moved up to the first point."""

    @classmethod
    def of(cls, pld: DiscretizedPld, count: int, tilt: float) -> "_Tilted":
        """Tilt one PLD."""
        kept_points = np.flatnonzero(pld.mass > MIN_MASS)
        if not kept_points.size:
            raise Uncertified
        rate = tilt * pld.step
        power = np.log(pld.mass[kept_points]) + rate * kept_points
        place = int(kept_points[power.argmax()])
        # Masses below e^-600 of the largest are left out: they are subnormal, and slow.
        kept_points = kept_points[power > power.max() - 600]
        places = kept_points - place
        factor = np.exp(rate * places)
        weight = pld.mass[kept_points] * factor
        total = float(weight.sum())
        weight /= total
        mean = float(weight @ places)
        lost = float(pld.mass_error[kept_points] @ factor) / total + 4 * _UNIT_ROUNDOFF * rate * float(
            weight @ np.abs(places)
        )
        return cls(
            pld=pld,
            count=count,
            peak=pld.start + place,
            places=places,
            masses=weight,
            moment=math.log(total),
            mean=mean,
            variance=float(weight @ np.square(places - mean)),
            error=lost + 16 * _UNIT_ROUNDOFF,
            mass_rounded_up=pld.mass_rounded_up * math.exp(-rate * place) / total,
        )

    @cached_property
    def logs(self) -> Doubles:
        """The logarithms of the masses."""
        return np.log(self.masses)


def _log_moment(tilted: Sequence[_Tilted], s: float) -> float:
    """The logarithm of E[e^(s·(J − E[J]))] of the composed loss J, in steps; rounded up."""
    total = []
    for term in tilted:
        power = term.logs + s * term.places
        peak = float(power.max())
        log_sum = math.log(float(np.exp(np.maximum(power - peak, -600.0)).sum()))
        lost = (
            8
            * _UNIT_ROUNDOFF
            * (1 + abs(peak) + abs(s) * (abs(term.mean) + float(np.abs(term.places[[0, -1]]).max())))
        )
        total.append(term.count * (log_sum + peak - s * term.mean + lost))
    return math.fsum(total)


def chernoff_reach(log_moment: Callable[[float], float], variance: float, log_tail: float) -> float:
    """The distance from the mean beyond which less than e^−log_tail lies, by Chernoff's bound."""
    near = math.sqrt(2 * log_tail / max(variance, 1e-12))
    best = (log_moment(near) + log_tail) / near
    for factor in (0.5, 2.0):
        s = near * factor
        while (chernoff_reach := (log_moment(s) + log_tail) / s) < 0.999 * best and 1e-9 < s / near < 1e9:
            best, s = chernoff_reach, s * factor
    return best


def _spectrum(tilted: Sequence[_Tilted], length: int) -> tuple[Complexes, float]:
    """The transform of the composition, and the ℓ2 norm of the error of its inverse."""
    stages = (math.log2(length) + 2) * STAGE_ERROR
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    log_size, growth = np.zeros(length // 2 + 1), np.zeros(length // 2 + 1)
    for term in tilted:
        own = np.fft.rfft(np.bincount(term.places % length, weights=term.masses, minlength=length))
        size = np.abs(own) + (term.error + stages)
        log_size += term.count * np.log(size)
        growth += term.count * (term.error + stages) / size
        spectrum *= power_by_squaring(own, term.count)
    error = np.exp(np.maximum(log_size, -600.0)) * (growth + stages)
    return spectrum, 1.01 * math.sqrt(2 * float(np.square(error).sum()) / length)


def power_by_squaring(base: Complexes, count: int) -> Complexes:
    """base^count, by squaring."""
    result = base if count & 1 else np.ones_like(base)
    while count := count >> 1:
        base = base * base
        result = result * base if count & 1 else result
    return result
