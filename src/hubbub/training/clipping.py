"""The sum of a lot's clipped per-example gradients, in integers, and its release by the Gaussian mechanism.

Every unit's gradient is scaled to at most `_CLIP_SHARE`·C, using an upper bound of its norm. The sum of a
microbatch of at most 384 units is rounded to an integer grid, and microbatches are added in integers. One
unit therefore moves the integers by at most C (in grid steps), floating-point error included.

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
from hubbub.mechanisms import Gaussian
from hubbub.noise import MAX_SCALE
from hubbub.numbers import ceil_sqrt
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.training.examples import Microbatch
from hubbub.training.gradient_storage import UNIT_ROUNDOFF
from hubbub.training.operation_trace import TraceChanged, ValuesChanged
from hubbub.training.per_example_gradients import GradientMethod, Gradients
from hubbub.training.state_isolation import (
    full_precision,
    python_and_numpy_positions,
    restore_state,
    suppress_warnings,
)
from hubbub.unit import Unit

__all__ = [
    "MAX_MICROBATCH_SIZE",
    "MICROBATCH_MULTIPLE",
    "ClippedSum",
    "ClippingThreshold",
    "ParameterGroup",
    "sum_clipped_gradients",
]

MAX_MICROBATCH_SIZE = 384
"""Units per microbatch: up to this size the rounding of the sum stays within its allowance."""
MICROBATCH_MULTIPLE = 32
"""Microbatch sizes are multiples of this. The widest kernels process two registers of 16 numbers at a time
and the remainder one by one, with different last bits; a multiple of 32 leaves no remainder."""
_CLIP_SHARE = 0.99
"""Gradients are clipped to this share of C; the rest is for rounding."""
_ROUNDING_ALLOWANCE = 0.0075
"""The rounding error allowed for one microbatch's sum, relative to C; neighbours differ in four such sums."""
_GRID_FINENESS = 1 << 10
"""Rounding d numbers to the grid moves them by less than C/1024 in total."""
_DOUBLE_ROUNDING = 1 + 2.0**-40
"""Covers the roundings of a few operations on doubles."""
_MAX_NORM = 2.0**60
"""Gradients that are longer, or not finite, contribute nothing: their weights would underflow."""
_MIN_NOISE_MULTIPLIER = Fraction(1, 10**9)
_MIN_NORM = 1e-16
"""Added to every norm: covers underflow below the smallest float32."""
_SQRT_MAX_SIZE = 1 << 20
"""No group has more than 2^40 numbers, so ℓ1 ≤ 2^20·ℓ2."""
_COUNT_STEPS = 1 << 16
"""Grid steps per half unit of an adaptive-clipping count, so that rounding its noise loses nothing."""


@dataclass(frozen=True, eq=False)
class ParameterGroup:
    """Parameters that are clipped together, concatenated to one vector."""

    name: str
    parameters: tuple[nn.Parameter, ...]

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(parameter.numel() for parameter in self.parameters)


@dataclass(frozen=True)
class ClippingThreshold:
    """The clipping norm C, the noise multiplier σ, and the integer grid that goes with them.

    The noise is always 2^k grid steps, so one grid step is σ·C/2^k.

    >>> ClippingThreshold.of(norm=1.0, noise_multiplier=Fraction(2), size=100).noise_steps
    32768
    """

    norm: float
    noise_multiplier: Fraction
    noise_steps: int
    """The noise's standard deviation in grid steps: a power of two."""

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, norm: float, noise_multiplier: Fraction, size: int) -> "ClippingThreshold":
        """The coarsest grid that is fine enough for `size` coordinates."""
        if not 1e-8 <= norm <= 1e8:
            raise InvalidInput(
                "clipping_norm is outside 1e-8 to 1e8",
                why="gradients are single-precision numbers",
                fix="scale the loss by a public factor, and the clipping norm with it",
            )
        if noise_multiplier < _MIN_NOISE_MULTIPLIER:
            raise InvalidInput(
                "noise_multiplier is below 10^-9",
                why="sums on so fine a grid would not be exact, and nothing would be protected",
                fix="pass a larger noise_multiplier",
            )
        steps = noise_multiplier * _GRID_FINENESS * ceil_sqrt(Fraction(max(1, size)))
        noise_steps = 1 << max(6, math.ceil(steps).bit_length())
        if noise_steps > MAX_SCALE:
            raise InvalidInput(
                "noise_multiplier is too large for this number of parameters",
                why="the noise would not be exact in 64 bits",
                fix="pass a smaller noise_multiplier",
            )
        return cls(norm, noise_multiplier, noise_steps)

    @cached_property
    def grid_step(self) -> float:
        """One grid step, in the units of the gradient."""
        return float(self.noise_multiplier) * self.norm / self.noise_steps

    @cached_property
    def mechanism(self) -> Gaussian:
        """The Gaussian mechanism of one step, without its amplification by sampling.

        One unit moves the integers by at most C, that is noise_steps/σ grid steps.
        """
        l2 = self.noise_steps / self.noise_multiplier
        return Gaussian(Fraction(self.noise_steps), Sensitivity(l2 * _SQRT_MAX_SIZE, l2=l2))


class UnitNorms(NamedTuple):
    """Upper bounds for each unit of a microbatch: its norm, its magnitude, and the depth of roundings.

    The depth is that of a full microbatch: a unit's weight must not depend on how many others there are.
    """

    norms: NDArray[np.float64]
    magnitudes: NDArray[np.float64]
    rounding_depth: int


class ClippedSum:
    """The sum of one parameter group's clipped gradients over a lot, in integers."""

    def __init__(self, group: ParameterGroup, threshold: ClippingThreshold, microbatch_size: int) -> None:
        self.group = group
        self.threshold = threshold
        self._microbatch_size = microbatch_size
        dtype = max((p.dtype for p in group.parameters), key=lambda dtype: dtype.itemsize)
        dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self._microbatch_sum = torch.zeros(group.size, dtype=dtype)
        self._total = torch.zeros(group.size, dtype=torch.int64)
        self._within_norm_balance = 0
        self._is_empty = True
        self._gradient = torch.zeros(group.size, dtype=dtype)
        self._sum_views, self._gradient_views = (
            _parameter_views(group, x) for x in (self._microbatch_sum, self._gradient)
        )

    def start_lot(self, threshold: ClippingThreshold) -> None:
        """Begin a new lot, clipped by this threshold."""
        self.threshold = threshold
        self._is_empty = True
        self._within_norm_balance = 0

    def measure(self, gradients: Gradients, units: int) -> UnitNorms:
        """Upper bounds of each unit's norm in this group, and of the magnitude that rounding scales with."""
        assert units <= self._microbatch_size
        ours = [gradients[p] for p in self.group.parameters if p in gradients]
        squared_norms, squared_magnitudes = np.zeros(units), np.zeros(units)
        for gradient in ours:
            squared_norms += gradient.squared_norms
            squared_magnitudes += gradient.squared_magnitudes
        depth = max((gradient.rounding_depth(self._microbatch_size) for gradient in ours), default=1)
        norms, magnitudes = (
            np.sqrt(squared) * _DOUBLE_ROUNDING + _MIN_NORM for squared in (squared_norms, squared_magnitudes)
        )
        return UnitNorms(norms, magnitudes, depth)

    def add(self, gradients: Gradients, measured: UnitNorms, is_used: NDArray[np.bool_]) -> None:
        """Add one microbatch: clip its gradients, sum them, and round the sum to the grid."""
        weights = torch.from_numpy(self._weights(measured, is_used))
        for parameter, view in zip(self.group.parameters, self._sum_views, strict=True):
            gradient = gradients.get(parameter)
            if gradient is None:
                view.zero_()
            else:
                gradient.write_weighted_sum(weights, view)
        rounded = self._microbatch_sum.round_()
        # The first microbatch is copied, not added, which saves a pass over memory.
        self._total.copy_(rounded) if self._is_empty else self._total.add_(rounded.to(torch.int64))
        self._is_empty = False

    def _weights(self, measured: UnitNorms, is_used: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The factor for each gradient, which bounds its norm and its rounding error."""
        norms, magnitudes, depth = measured
        within = int((is_used & (norms <= self.threshold.norm)).sum())
        self._within_norm_balance += 2 * within - int(is_used.sum())
        # Rounding is relative to the magnitude, so that is clipped as well, to what the allowance covers.
        max_ratio = _ROUNDING_ALLOWANCE / (4 * self._microbatch_size * (depth + 8) * UNIT_ROUNDOFF)
        lengths = np.maximum(norms, magnitudes / max_ratio)
        factors = np.minimum(_CLIP_SHARE * self.threshold.norm / lengths, 1.0)
        # In grid steps, so that the sum only has to be rounded.
        return np.where(is_used, factors / self.threshold.grid_step, 0.0)

    def bounded(self, unit: Unit) -> Bounded:
        """The lot's exact sum in grid steps, with its sensitivity. It holds until the next lot starts."""
        if self._is_empty:
            self._total.zero_()
        sensitivity = self.threshold.mechanism.sensitivity
        return Bounded.borrow(self._total.numpy(), sensitivity, unit, "clipped gradients")

    def release_gradients(self, unit: Unit, lot_size: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Release the sum with Gaussian noise, and yield each parameter's share of it as a gradient."""
        release = self.threshold.mechanism.release(self.bounded(unit))
        self._is_empty = True
        self._total.zero_()  # no exact sum stays in memory
        self._microbatch_sum.zero_()
        scale = self.threshold.grid_step / lot_size
        np.multiply(release.value, scale, out=self._gradient.numpy(), casting="unsafe")
        for parameter, view in zip(self.group.parameters, self._gradient_views, strict=True):
            yield parameter, view.detach()  # a tensor of its own, which the caller may change

    def release_share_within_norm(self, unit: Unit, lot_size: int, noise_stddev: Fraction) -> float:
        """Release the share of gradients within C, for adaptive clipping; once per lot.

        The count is centred: each gradient within C counts +1/2, every other −1/2, so one unit moves it by
        1/2.
        """
        balance, self._within_norm_balance = self._within_norm_balance, 0
        sensitivity = Sensitivity(_COUNT_STEPS)
        count = Bounded(balance * _COUNT_STEPS, sensitivity, unit, "centred count of gradients")
        release = Gaussian(2 * noise_stddev * _COUNT_STEPS, sensitivity).release(count)
        share: float = release.value / _COUNT_STEPS / 2 / lot_size + 0.5
        return share


def _parameter_views(group: ParameterGroup, numbers: Tensor) -> list[Tensor]:
    """Views of one long vector, in the shapes of the group's parameters."""
    sizes = [p.numel() for p in group.parameters]
    return [part.view(p.shape) for p, part in zip(group.parameters, numbers.split(sizes), strict=True)]


def sum_clipped_gradients(
    sums: Sequence[ClippedSum], method: GradientMethod, microbatches: Iterable[Microbatch]
) -> None:
    """Add the microbatches of a lot to the sums.

    Guarantee: between neighbours each sum moves in ℓ2 by at most its threshold's clipping norm.
    Assumes: the gradient of one unit in a microbatch depends on that unit alone; single-precision sums err
        as IEEE 754 says.
    Proof: docs/proofs/dpsgd.md
    """
    with suppress_warnings():
        method.start_lot()
        within_lot = False
        for microbatch in microbatches:
            gradients, is_present = _gradients_or_recheck(method, microbatch, within_lot=within_lot)
            with full_precision(), torch.no_grad():
                _add(sums, gradients, is_present)
            within_lot = True
        if method.values_changed:
            # Constants must not change within a lot. That is also checked if the lot is one microbatch, on
            # padding, so that the check does not depend on who is in the lot.
            _gradients_or_recheck(method, microbatch.padding_only(MICROBATCH_MULTIPLE), within_lot=True)


def _add(sums: Sequence[ClippedSum], gradients: Gradients, is_present: Tensor) -> None:
    measured = [total.measure(gradients, is_present.numel()) for total in sums]
    # Gradients that are not finite, or too large for single-precision squares, contribute nothing.
    is_finite = np.logical_and.reduce([(m.norms < _MAX_NORM) & (m.magnitudes < _MAX_NORM) for m in measured])
    is_used = is_present.numpy() & is_finite
    if not is_finite.all():
        is_invalid = torch.from_numpy(~is_finite)
        gradients = {parameter: gradient.mask_out(is_invalid) for parameter, gradient in gradients.items()}
    for total, norms in zip(sums, measured, strict=True):
        total.add(gradients, norms, is_used)


def _gradients_or_recheck(
    method: GradientMethod, microbatch: Microbatch, *, within_lot: bool
) -> tuple[Gradients, Tensor]:
    """A microbatch's gradients; where the model's operations changed, its method is chosen again first."""
    try:
        while True:
            try:
                return _compute_gradients(method, microbatch)
            except TraceChanged:
                method.recheck(within_lot=within_lot)
    except ValuesChanged:
        raise Refused(
            "constants of the model change within a lot",
            why="an example's gradient would depend on the microbatch it happens to be in",
            fix="change schedules between steps, in the loop over the trainer",
        ) from None


def _compute_gradients(method: GradientMethod, microbatch: Microbatch) -> tuple[Gradients, Tensor]:
    """A microbatch's gradients, and a mask of present units; an example that fails is treated as padding."""
    gradients = _try_gradients(method, microbatch)
    if gradients is None:
        # The exception is about one unit, and its text would reveal it: nothing of it is kept.
        microbatch = microbatch.keep_only(_computable_units(method, microbatch))
        gradients = _try_gradients(method, microbatch)
    if gradients is None:
        raise EngineFailed(
            "the model cannot be computed on this microbatch",
            why="it fails on a batch of examples, each of which it can compute alone",
            fix="make the model treat every example independently, or pass a smaller microbatch_size",
        )
    return gradients, microbatch.is_present


def _try_gradients(method: GradientMethod, microbatch: Microbatch) -> Gradients | None:
    """The gradients, or None if they cannot be computed."""
    before = None if method.is_per_unit else python_and_numpy_positions()
    try:
        with restore_state(method.objective):
            # A copy: the model may write into its input, which is needed again if this attempt fails.
            gradients = method.gradients([x.clone() for x in microbatch.batch], microbatch.weights)
    except (KeyboardInterrupt, TraceChanged, ValuesChanged):
        raise
    except BaseException:  # noqa: BLE001 - libraries panic with exceptions that are not Exceptions
        return None
    if before is not None and before != python_and_numpy_positions():
        raise TraceChanged  # one draw was shared by the whole microbatch
    return gradients


def _computable_units(method: GradientMethod, microbatch: Microbatch) -> Tensor:
    """A mask of the units that can be computed: each is tried in its own position, with padding elsewhere."""
    is_computable = torch.zeros_like(microbatch.is_present)
    for position in torch.nonzero(microbatch.is_present).flatten().tolist():
        mask = torch.zeros_like(microbatch.is_present)
        mask[position] = True
        alone = microbatch.select(position) if method.is_per_unit else microbatch.keep_only(mask)
        is_computable[position] = _try_gradients(method, alone) is not None
    return is_computable
