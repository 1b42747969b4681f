"""A lot's clipped gradients, added up exactly: floats become integers chunk by chunk.

Every unit's gradient is scaled to at most `_TIGHT`·C by an upper bound of its norm; what a chunk of at most
384 units adds up to goes onto an integer grid; chunks add up in integers. So one unit moves the integers by
no more than C, in steps of the grid, floating point included.

Proof: docs/proofs/dpsgd.md
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hubbub.errors import EngineFailed, InvalidInput, Refused
from hubbub.noise import MAX_SCALE, rounded_gaussian
from hubbub.numbers import ceil_sqrt
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.training.examples import Microbatch
from hubbub.training.gradient_storage import UNIT
from hubbub.training.isolation import drawn_elsewhere, exact_products, quiet, restore_state
from hubbub.training.operation_trace import Changed, Drifting
from hubbub.training.per_example_gradients import Found, GradientMethod
from hubbub.unit import Unit

__all__ = [
    "GRAIN",
    "MOST_CHUNK",
    "ClippedSums",
    "ClippingThreshold",
    "ParameterGroup",
    "sum_clipped_gradients",
]

MOST_CHUNK = 384
"""Units in a chunk: for so many the sum's rounding stays within what is allowed for it."""
GRAIN = 32
"""Chunks are cut to multiples of it. The widest kernels do two registers of 16 numbers at a time, and what is
left over one by one, with other last bits: of one number for each example none may be left over."""
_TIGHT = 0.99
"""Clipped to this share of C: the rest of it is for rounding."""
_ALLOWED = 0.0075
"""Of C: what the rounding of a chunk's sum may come to; four such sums differ between neighbours."""
_FINE = 1 << 10
"""The grid is so fine that rounding d numbers to it moves them by less than C/1024 in all."""
_HAIR = 1 + 2.0**-40
"""For the roundings of a few doubles."""
_LONGEST = 2.0**60
"""Longer gradients, and what is no number, add nothing: their weights could not be held."""
_BLOCK = 1 << 17
"""Numbers that get their noise at a time."""
_LEAST_NOISE = Fraction(1, 10**9)
_LEAST = 1e-16
"""Added to every norm: covers what is lost below the smallest float32."""


@dataclass(frozen=True, eq=False)
class ParameterGroup:
    """Parameters that are clipped together, one after another in one long vector."""

    name: str
    parameters: tuple[nn.Parameter, ...]

    @property
    def size(self) -> int:
        """How many numbers they are."""
        return sum(parameter.numel() for parameter in self.parameters)


@dataclass(frozen=True)
class ClippingThreshold:
    """Clip to `clip`, with noise σ·clip: and the grid that goes with them.

    The noise is 2^k grid steps, always; so the grid's step is σ·C/2^k.

    >>> ClippingThreshold.of(clip=1.0, sigma=Fraction(2), size=100).noise
    32768
    """

    clip: float
    sigma: Fraction
    noise: int
    """The noise's σ in grid steps: a power of two."""

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, clip: float, sigma: Fraction, size: int) -> "ClippingThreshold":
        """The coarsest grid that is fine enough for so many numbers."""
        if not 1e-8 <= clip <= 1e8:
            raise InvalidInput(
                "clip is outside 1e-8 to 1e8",
                why="gradients are single-precision numbers",
                fix="scale the loss by a public number, and the clip with it",
            )
        if sigma < _LEAST_NOISE:
            raise InvalidInput(
                "sigma is below 10^-9",
                why="the grid would be too fine for sums to be exact on it, and nothing would be protected",
                fix="pass a larger sigma",
            )
        steps = sigma * _FINE * ceil_sqrt(Fraction(max(1, size)))
        noise = 1 << max(6, math.ceil(steps).bit_length())
        if noise > MAX_SCALE:
            raise InvalidInput(
                "sigma is too large for so many parameters",
                why="the noise would not be exact in 64 bits",
                fix="pass a smaller sigma",
            )
        return cls(clip, sigma, noise)

    @cached_property
    def step(self) -> float:
        """One grid step, as a gradient."""
        return float(self.sigma) * self.clip / self.noise

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one unit moves the integers: C, in grid steps."""
        reach = self.noise / self.sigma
        return Sensitivity(reach * _ROOT_OF_MOST, l2=reach)


_ROOT_OF_MOST = 1 << 20
"""No group has more than 2^40 numbers, so ℓ1 ≤ 2^20·ℓ2."""


class Measured(NamedTuple):
    """Of each unit in a chunk: upper bounds of its norm and reach; and the longest chain of roundings.

    The chain is that of a whole chunk: a unit's weight must not follow how many others there are.
    """

    norms: NDArray[np.float64]
    reach: NDArray[np.float64]
    chain: int


class ClippedSums:
    """A lot's sum in the making: integers, in doubles that hold them exactly."""

    def __init__(self, group: ParameterGroup, threshold: ClippingThreshold, chunk: int) -> None:
        self.group = group
        self.threshold = threshold
        self._most_units = chunk
        kind = max((p.dtype for p in group.parameters), key=lambda kind: kind.itemsize)
        kind = torch.float64 if kind == torch.float64 else torch.float32
        self._chunk = torch.zeros(group.size, dtype=kind)
        self._total = torch.zeros(group.size, dtype=torch.float64)
        self._below = 0
        self._started = False
        self._gradient = torch.zeros(group.size, dtype=kind)
        self._places, self._gradients = (_places(group, x) for x in (self._chunk, self._gradient))

    def start(self, threshold: ClippingThreshold) -> None:
        """A new lot."""
        self.threshold = threshold
        self._started = False
        self._below = 0

    def measured(self, pieces: Found, units: int) -> "Measured":
        """Upper bounds of each unit's norm in this group, and of what rounding is relative to."""
        assert units <= self._most_units
        ours = [pieces.get(parameter) for parameter in self.group.parameters]
        squares, reach = np.zeros(units), np.zeros(units)
        for piece in ours:
            if piece is not None:
                squares += piece.squares
                reach += piece.reach
        chain = max((piece.chain(self._most_units) for piece in ours if piece is not None), default=1)
        return Measured(np.sqrt(squares) * _HAIR + _LEAST, np.sqrt(reach) * _HAIR + _LEAST, chain)

    def add(self, pieces: Found, measured: "Measured", good: NDArray[np.bool_]) -> None:
        """One chunk's gradients, clipped, added up and rounded to the grid."""
        weights = torch.from_numpy(self._weights(measured, good))
        for parameter, place in zip(self.group.parameters, self._places, strict=True):
            piece = pieces.get(parameter)
            if piece is None:
                place.zero_()
            else:
                piece.add_up(weights, place)
        rounded = self._chunk.round_()
        # The first chunk is written, not added: a pass over memory less.
        self._total.add_(rounded) if self._started else self._total.copy_(rounded)
        self._started = True

    def _weights(self, measured: "Measured", good: NDArray[np.bool_]) -> NDArray[np.float64]:
        """What each gradient is multiplied by: its norm is then at most C, and so is what rounding sees."""
        norms, reach, chain = measured
        self._below += 2 * int((good & (norms <= self.threshold.clip)).sum()) - int(good.sum())
        # Rounding is relative to the reach: clip that as well, to what the allowance is for.
        most = _ALLOWED / (4 * self._most_units * (chain + 8) * UNIT)
        longest = np.maximum(norms, reach / most)
        shares = np.minimum(_TIGHT * self.threshold.clip / longest, 1.0)
        # In steps of the grid, so that the sum need only be rounded.
        return np.where(good, shares / self.threshold.step, 0.0)

    def noisy(self, lot: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Each parameter's part of the lot's sum with its noise, as a gradient.

        The noise is added in integers, which doubles hold exactly; block by block, as they stay in the cache.
        """
        if not self._started:
            self._total.zero_()
        scale = self.threshold.step / lot
        total, gradient = self._total.numpy(), self._gradient.numpy()
        for start in range(0, self.group.size, _BLOCK):
            part = total[start : start + _BLOCK]
            part += rounded_gaussian(self.threshold.noise, size=part.size)
            np.multiply(part, scale, out=gradient[start : start + _BLOCK], casting="unsafe")
        self._started = False
        self._chunk.zero_()  # nothing exact stays behind
        for parameter, place in zip(self.group.parameters, self._gradients, strict=True):
            yield parameter, place.detach()  # one of its own: who takes it may do with it as he likes

    def bounded(self, unit: Unit) -> Bounded:
        """The lot's exact sum in grid steps, with how far one unit can move it."""
        if not self._started:
            self._total.zero_()
        return Bounded(self._total.numpy(), self.threshold.sensitivity, unit, "clipped gradients")

    def below(self, unit: Unit) -> Bounded:
        """How many gradients were within C, less how many were not; for adaptive clipping. Told once."""
        counted, self._below = self._below, 0
        return Bounded(counted, Sensitivity(1), unit, "one count up or down")


def _places(group: ParameterGroup, numbers: Tensor) -> list[Tensor]:
    """Where each parameter is in one long vector, in its shape."""
    sizes = [p.numel() for p in group.parameters]
    return [part.view(p.shape) for p, part in zip(group.parameters, numbers.split(sizes), strict=True)]


def sum_clipped_gradients(
    sums: Sequence[ClippedSums], way: GradientMethod, chunks: Iterable[Microbatch]
) -> None:
    """Add the lot's chunks to the sums.

    Guarantee: between neighbours each sum moves by no more than its threshold says, in ℓ2.
    Assumes: what comes out for one unit of a chunk depends on that unit alone; single precision sums err as
        IEEE 754 says.
    Proof: docs/proofs/dpsgd.md
    """
    with quiet():
        way.begin()
        within = False
        for chunk in chunks:
            found, there = _as_looked_at(way, chunk, within=within)
            with exact_products(), torch.no_grad():
                _add(sums, found, there)
            within = True
        if way.has_moved:
            # Whether these numbers stay is seen also where a lot has one chunk, whoever is in it.
            _as_looked_at(way, chunk.blanks(GRAIN), within=True)


def _add(sums: Sequence[ClippedSums], found: Found, there: Tensor) -> None:
    measured = [total.measured(found, there.numel()) for total in sums]
    # What is not a number, or too large for the squares of single precision, adds nothing.
    finite = np.logical_and.reduce([(m.norms < _LONGEST) & (m.reach < _LONGEST) for m in measured])
    good = there.numpy() & finite
    if not finite.all():
        bad = torch.from_numpy(~finite)
        found = {parameter: piece.without(bad) for parameter, piece in found.items()}
    for total, one in zip(sums, measured, strict=True):
        total.add(found, one, good)


def _as_looked_at(way: GradientMethod, chunk: Microbatch, *, within: bool) -> tuple[Found, Tensor]:
    """A chunk's gradients, by what was looked at: where the model does something else, that is looked at."""
    try:
        while True:
            try:
                return _computed(way, chunk)
            except Changed:
                way.change(within=within)
    except Drifting:
        raise Refused(
            "the numbers that the model is computed with change within a lot",
            why="an example would be treated by which chunk it happens to be in",
            fix="change schedules between steps, in the loop over the trainer",
        ) from None


def _computed(way: GradientMethod, chunk: Microbatch) -> tuple[Found, Tensor]:
    """A chunk's gradients, and which are there; an example that cannot be computed is as if it were blank."""
    found = _tried(way, chunk)
    if found is None:
        # What raised is one unit's doing, and its text would tell of it: nothing of it is kept.
        chunk = chunk.only(_able(way, chunk))
        found = _tried(way, chunk)
    if found is None:
        raise EngineFailed(
            "the model cannot be computed on this chunk",
            why="it fails on examples together that it can do one by one",
            fix="see that it treats every example by itself, or make the chunk smaller",
        )
    return found, chunk.good


def _tried(way: GradientMethod, chunk: Microbatch) -> Found | None:
    """The gradients, or nothing."""
    before = None if way.is_alone else drawn_elsewhere()
    try:
        with restore_state(way.objective):
            # A copy: what a model writes into its input must not be there when it is tried again.
            found = way.gradients([x.clone() for x in chunk.batch], chunk.weights)
    except (KeyboardInterrupt, Changed, Drifting):
        raise
    except BaseException:  # noqa: BLE001 - libraries panic with what is no Exception
        return None
    if before is not None and before != drawn_elsewhere():
        raise Changed  # one draw for all of the chunk, and another for the next
    return found


def _able(way: GradientMethod, chunk: Microbatch) -> Tensor:
    """Which units can be computed: each in its own place, all others blank; one by one, each alone."""
    able = torch.zeros_like(chunk.good)
    for place in torch.nonzero(chunk.good).flatten().tolist():
        here = torch.zeros_like(chunk.good)
        here[place] = True
        alone = chunk.at(place) if way.is_alone else chunk.only(here)
        able[place] = _tried(way, alone) is not None
    return able
