"""Batch invariance: an example's gradient must not depend on its position in a batch, or on other examples.

The proof assumes this of the kernels. It is tried bit for bit on random numbers, at the shapes of the run.

Proof: docs/proofs/dpsgd.md, "Assumptions"
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hubbub.training.clipping import MICROBATCH_MULTIPLE
from hubbub.training.gradient_storage import FactoredGradient, PerExampleGradient, SparseGradient
from hubbub.training.model_checks import random_batch, restore_modes
from hubbub.training.per_example_gradients import GradientMethod, LayerRules, Loop, Objective
from hubbub.training.state_isolation import restore_state, seed_generators, suppress_warnings

__all__ = ["check_batch_invariance"]

_ROUNDING_TOLERANCE = 1e-6
"""Relative difference: the last bits of single precision."""
_HASH_FACTOR = 0x1E3779B97F4A7C15
"""Spreads bits over all 64; overflow is discarded."""


def check_batch_invariance(
    method: GradientMethod,
    padding: Sequence[Tensor],
    width: int,
    microbatch_size: int,
    *,
    require_exact: bool = False,
) -> tuple[GradientMethod, bool, int]:
    """Choose a variant in which an example's gradient depends neither on its position nor on other examples.

    Random layers are switched off for the trial. A method that can transpose its products does so if that
    helps. A method with gradients that move by more than the last bits when an example moves is replaced by
    `Loop`.

    Args:
        method: The method to check.
        padding: One example of the data's shape.
        width: Examples per unit.
        microbatch_size: Units per microbatch.
        require_exact: Accept only methods that are exact to the bit, as counting norms requires.

    Returns:
        The method, whether it is exact to the bit, and the number that must divide the size of a lot's last
        microbatch: the microbatch size itself if kernels depend on it.
    """
    if isinstance(method, Loop):
        return method, True, 1
    objective: Objective = method.objective
    with seed_generators(1), suppress_warnings(), restore_modes(objective.model):
        batch = random_batch(objective, padding, microbatch_size, width)
        if _is_random(objective, batch):
            objective.model.eval()
        if _is_random(objective, batch):
            # Something random cannot be switched off, such as an augmentation.
            return Loop(objective, method.parameters, f"{Loop.name} (the model is random)"), True, 1
        deviation = math.inf
        for transposed in (False, True) if isinstance(method, LayerRules) else (False,):
            method.transposed = transposed
            deviation = min(deviation, _placement_deviation(method, batch))
            if deviation == 0:
                cut = microbatch_size % MICROBATCH_MULTIPLE == 0 and _is_invariant_to_size(method, batch)
                return method, True, MICROBATCH_MULTIPLE if cut else microbatch_size
    method.transposed = False
    if deviation > _ROUNDING_TOLERANCE or require_exact:
        why = "gradients depend on the position in the batch"
        return Loop(objective, method.parameters, f"{Loop.name} ({why})"), True, 1
    return method, False, microbatch_size


def _is_random(objective: Objective, batch: list[Tensor]) -> bool:
    losses = []
    for _ in range(2):
        with torch.no_grad(), restore_state(objective):
            losses.append(objective(*[x.flatten(0, 1).clone() for x in batch]))
    return not torch.equal(*losses)


def _placement_deviation(method: GradientMethod, batch: list[Tensor]) -> float:
    """Maximum relative change of a gradient when its example is moved; ∞ if other examples change it."""
    units = batch[0].shape[0]
    order = torch.arange(units).roll(units // 2 + 1)
    half = units // 2
    more = random_batch(method.objective, [x[0, 0] for x in batch], units - half, batch[0].shape[1])
    others = [torch.cat([x[:half], y]) for x, y in zip(batch, more, strict=True)]
    elsewhere = [x[order] for x in batch]
    first, mixed, moved = (_hash_gradients(method, each) for each in (batch, others, elsewhere))
    if not all(torch.equal(mixed[p][:half], bits[:half]) for p, bits in first.items()):
        return math.inf
    if all(torch.equal(moved[p], bits[order]) for p, bits in first.items()):
        return 0.0
    gradients, again = _gradient_tensors(method, batch), _gradient_tensors(method, elsewhere)
    return max(_relative_difference(again[p], values[order]) for p, values in gradients.items())


def _relative_difference(one: Tensor, other: Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    one, other = one.reshape(len(one), -1).double(), other.reshape(len(other), -1).double()
    return float(((one - other).norm(dim=1) / other.norm(dim=1).clamp_min(1e-30)).max())


def _is_invariant_to_size(method: GradientMethod, batch: list[Tensor]) -> bool:
    """True if all smaller microbatch sizes that may occur give the same gradients."""
    whole = _hash_gradients(method, batch)
    return all(
        p in whole and torch.equal(bits, whole[p][:size])  # the stored form may depend on the size
        for size in range(
            batch[0].shape[0] - MICROBATCH_MULTIPLE, 0, -MICROBATCH_MULTIPLE
        )  # descending, to reuse memory
        for p, bits in _hash_gradients(method, [x[:size] for x in batch]).items()
    )


def _hash_gradients(method: GradientMethod, batch: list[Tensor]) -> dict[tuple[nn.Parameter, str], Tensor]:
    """A 64-bit hash of each example's gradient; storing the gradients would take too much memory."""
    return {what: _hash_rows(values) for what, values in _gradient_tensors(method, batch).items()}


def _hash_rows(values: Tensor) -> Tensor:
    flat = values.reshape(len(values), -1)
    factors = (2 * torch.arange(flat.shape[1]) + 1) * _HASH_FACTOR  # all odd, and all different
    sums = torch.empty(len(flat), dtype=torch.int64)
    for start in range(0, len(flat), MICROBATCH_MULTIPLE):
        part = flat[start : start + MICROBATCH_MULTIPLE] + 0  # turns −0 into 0
        whole = part.view({4: torch.int32, 8: torch.int64}[part.element_size()])
        sums[start : start + MICROBATCH_MULTIPLE] = (whole * factors).sum(1)
    return sums


def _gradient_tensors(method: GradientMethod, batch: list[Tensor]) -> dict[tuple[nn.Parameter, str], Tensor]:
    """All gradients and norms, with the same random numbers in random layers each time."""
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    with seed_generators(2), restore_state(method.objective):
        gradients = method.gradients([x.clone() for x in batch], weights)
        return {
            (p, what): tensor
            for p, gradient in gradients.items()
            for what, tensor in _tensors_of(gradient).items()
        }


def _tensors_of(gradient: PerExampleGradient) -> dict[str, Tensor]:
    """The tensors that must not change: norms, and the gradients or the factors that represent them."""
    norms = {
        "norm": torch.from_numpy(gradient.squared_norms),
        "magnitude": torch.from_numpy(gradient.squared_magnitudes),
    }
    if isinstance(gradient, FactoredGradient):
        return {"a": gradient.a, "b": gradient.b, **norms}
    if isinstance(gradient, SparseGradient):
        rows, values = gradient.pack()
        return {"rows": rows, "values": values, **norms}
    return {"gradient": gradient.dense(), **norms}
