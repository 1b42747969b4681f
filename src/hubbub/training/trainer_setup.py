"""`make_private`: validates its arguments, checks the model, plans the noise, and returns a trainer.

    trainer = make_private(model, optimizer, data, loss=F.cross_entropy, clipping_norm=1.0,
                           sampling_rate=0.01, steps=1000, budget=Budget(3, 1e-5), account=None)
    for step in trainer:
        scheduler.step()
    release = trainer.release()

Arguments of the wrong type, and runs that would promise more than they keep, are refused before anything is
computed.

Proof: docs/proofs/dpsgd.md
"""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hubbub.accounting import Account, Budget, PrivacyLoss, refuse_large_epsilon
from hubbub.accounting.budget import LARGE_DELTA
from hubbub.accounting.in_memory_account import UNSPECIFIED, Unspecified, resolve_account
from hubbub.accounting.serialization import loss_to_json, stored_loss
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.numbers import Number, parse_integer, parse_probability
from hubbub.training.batch_invariance import check_batch_invariance
from hubbub.training.batch_sampling import NumberSchedule, ShuffledSampling
from hubbub.training.clipping import MAX_MICROBATCH_SIZE, MICROBATCH_MULTIPLE
from hubbub.training.clipping_schedule import AdaptiveClipping, Schedule
from hubbub.training.examples import Examples
from hubbub.training.model_checks import (
    CheckedMethod,
    check_model,
    check_padding_example,
    choose_gradient_method,
    compare_traces,
)
from hubbub.training.per_example_gradients import Augment, GradientMethod, Loop, Objective
from hubbub.training.trainer import Trainer
from hubbub.unit import Neighbours, Unit

__all__ = ["make_private"]

_MICROBATCH_NUMBERS = 1 << 20
"""Numbers that the layers may save for one microbatch: a few megabytes, which stay in the processor's
cache."""
_UNBOUNDED_EPSILON = Fraction(10**9)
"""Stands for ε where none is large enough."""

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


def make_private(
    model: nn.Module,
    optimizer: Optimizers,
    data: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    objective: Callable[..., Tensor] | None = None,
    clipping_norm: NumberSchedule | AdaptiveClipping | Mapping[str, NumberSchedule | AdaptiveClipping],
    sampling_rate: NumberSchedule | ShuffledSampling,
    steps: int,
    budget: Budget | None = None,
    noise_multiplier: NumberSchedule | Mapping[str, NumberSchedule] | None = None,
    lot_size: int | None = None,
    account: Account | Unspecified | None = UNSPECIFIED,
    units: Any = None,
    unit: str | Unit | None = None,
    examples_per_unit: int = 1,
    augmentations: int = 1,
    augment: Augment | None = None,
    ema_decay: Number | None = None,
    microbatch_size: int | None = None,
    padding_example: Sequence[Any] | Mapping[str, Any] | None = None,
    allow_large_epsilon: bool = False,
) -> "Trainer":
    """Plan and check a private training run.

    Nothing is read until the run starts. It is charged then, or earlier by `Trainer.charge()`.

    Args:
        model: A torch module that treats every example independently.
        optimizer: One torch optimizer or several. Their parameters are trained, all others are frozen.
        data: Tensors, arrays or a torch Dataset: inputs and targets.
        loss: A function of (outputs, targets), such as torch's own.
        objective: Instead of `loss`: a function of (model, *example tensors) with one number per example.
        clipping_norm: The ℓ2 norm C to which each unit's gradient is clipped: a number, a table or function
            of the step, `AdaptiveClipping`, or a mapping of layer names to any of these.
        sampling_rate: The probability of a unit to be in a lot: a number, a table or a function of the step;
            or `ShuffledSampling`.
        steps: The number of steps, each on one lot.
        budget: The (ε, δ) of the whole run; the noise is calibrated to it.
        noise_multiplier: σ, the noise's standard deviation in units of the clipping norm: a number, a table
            or function of the step, or a mapping of layer names. With a budget, only its proportions count.
        lot_size: The public expected batch size, by which sums are divided. If omitted: the sampling rate
            times the budget's public population, or else 1/sampling_rate, as for a lot of √N out of N.
        account: The account that is charged when the run starts, or earlier by `charge()`; None, which must
            be explicit, for no account.
        units: The key of each example's privacy unit. If omitted, every example is a unit.
        unit: The name of that key.
        examples_per_unit: The maximum number of one unit's examples in a lot.
        augmentations: The number of augmented copies of an example, averaged before clipping.
        augment: A function that changes each example of a batch independently, at random.
        ema_decay: The decay of an exponential moving average of the weights, which is then released.
        microbatch_size: The number of units computed at a time; the model sees batches of exactly this size.
        padding_example: An example that belongs to nobody: tensors, or a dictionary of them if the dataset's
            items are dictionaries. It fills unused places. Needed if the data do not tell their shapes.
        allow_large_epsilon: Confirms noise so small that ε is large, as for `Budget`, if no budget is given.

    >>> model = nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(500, 2), torch.randint(2, (500,))
    >>> trainer = make_private(model, optimizer, (x, y), loss=nn.functional.cross_entropy, clipping_norm=1.0,
    ...                        sampling_rate=0.1, steps=20, budget=Budget(2, 1e-5), account=None)
    >>> trainer.epsilon(1e-5) <= 2
    True
    >>> for step in trainer:
    ...     pass
    >>> trainer.release().label()["unit"]
    'one row, add/remove'

    Guarantee: everything that comes out of the run (weights after every step, optimizer states, averages)
        together has at most the privacy loss `trainer.privacy_loss`.
    Assumes: the initial weights are public, and the model treats every example independently; arithmetic is
        as docs/proofs/dpsgd.md says; nobody observes how long a step takes.
    Proof: docs/proofs/dpsgd.md
    """
    _check_budget_and_account(budget, account)
    privacy_unit = _parse_unit(unit, units, sampling_rate)
    optimizers = _parse_optimizers(optimizer)
    by_name = _trained_parameters(model, optimizers)
    parameters = list(by_name.values())
    check_model(model, parameters)
    schedule = Schedule.of(
        by_name,
        clipping_norm=clipping_norm,
        sampling_rate=sampling_rate,
        steps=steps,
        noise_multiplier=noise_multiplier,
        budget=budget,
        lot_size=lot_size,
    )
    if budget is None:
        _refuse_small_noise(schedule.sampler.privacy_loss, allow=allow_large_epsilon)
    examples = Examples(
        data,
        units=units,
        examples_per_unit=examples_per_unit,
        augmentations=augmentations,
        padding_example=padding_example,
        dtype=next((p.dtype for p in parameters), torch.float32),
    )
    each_loss = Objective(model, _per_example_loss(loss, objective, len(examples.padding)), augment)
    shape = examples.padding, examples.width
    method = choose_gradient_method(each_loss, parameters, *shape)
    saved_numbers = getattr(method, "numbers_per_unit", _MICROBATCH_NUMBERS // 64)
    size = _choose_microbatch_size(microbatch_size, schedule.lot_size, saved_numbers)
    is_adaptive = any(isinstance(norm, AdaptiveClipping) for norm in schedule.clipping_norms)
    # Adaptive clipping counts norms, so there even last bits matter.
    method, is_exact, multiple = check_batch_invariance(method, *shape, size, require_exact=is_adaptive)
    check_padding_example(method, *shape, size)

    def choose_again() -> GradientMethod:
        """The gradient method for what the model does now, at the same microbatch size."""
        again = choose_gradient_method(each_loss, parameters, *shape)
        again, is_still_exact, its_multiple = check_batch_invariance(
            again, *shape, size, require_exact=is_adaptive or is_exact
        )
        if not is_still_exact or multiple % its_multiple:
            return Loop(each_loss, parameters)
        return compare_traces(again, *shape, size)

    if isinstance(sampling_rate, ShuffledSampling) and sampling_rate.population != examples._unit_count:  # noqa: SLF001 - public here
        raise InvalidInput(
            "population is not the number of units",
            why="shuffled lots are accounted for a public number of units",
            fix="pass the number of units as population, or use Poisson sampling",
        )
    return Trainer(
        model,
        optimizers,
        schedule,
        examples,
        method=CheckedMethod(compare_traces(method, *shape, size), choose_again),
        account=resolve_account(account),
        unit=privacy_unit,
        microbatch_size=size,
        microbatch_multiple=multiple,
        is_batch_invariant=is_exact,
        ema_decay=None if ema_decay is None else float(parse_probability(ema_decay, "ema_decay")),
        delta=budget.delta if budget is not None else None,
    )


def _choose_microbatch_size(size: int | None, lot_size: int, numbers_per_unit: int) -> int:
    """Small enough to stay in the cache, large enough to be fast; by default no larger than a usual lot."""
    if size is None:
        largest_lot = lot_size + 4 * math.sqrt(lot_size)
        needed = math.ceil(largest_lot / MICROBATCH_MULTIPLE) * MICROBATCH_MULTIPLE
        fitting = _MICROBATCH_NUMBERS // max(1, numbers_per_unit) // MICROBATCH_MULTIPLE * MICROBATCH_MULTIPLE
        return min(needed, MAX_MICROBATCH_SIZE, max(MICROBATCH_MULTIPLE, fitting))
    parsed = parse_integer(size, "microbatch_size")
    if parsed > MAX_MICROBATCH_SIZE:
        raise InvalidInput(
            f"microbatch_size is above {MAX_MICROBATCH_SIZE}",
            why="the sensitivity does not cover the rounding of longer sums",
            fix=f"pass at most {MAX_MICROBATCH_SIZE}; lots may be of any size",
        )
    return parsed


def _check_budget_and_account(budget: Any, account: Any) -> None:
    """Refuse a budget or an account of the wrong type."""
    resolve_account(account)
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidInput(
            f"budget is of type {type(budget).__name__}",
            why="ε and δ of the run are given as a Budget",
            fix="pass a Budget, such as Budget(2, 1e-5)",
        )
    if account is not None and not callable(getattr(account, "charge", None)):
        raise InvalidInput(
            f"account is of type {type(account).__name__}",
            why="the run is charged to it",
            fix="pass the account of a dataset, or InMemoryAccount(Budget(2, 1e-5))",
        )


def _refuse_small_noise(loss: PrivacyLoss, *, allow: bool) -> None:
    """Refuse noise with which ε is large at δ = 1/1000, unless the caller confirmed it."""
    epsilon = stored_loss(loss_to_json(loss)).epsilon(LARGE_DELTA)
    try:
        refuse_large_epsilon(_UNBOUNDED_EPSILON if math.isinf(epsilon) else Fraction(epsilon), allow=allow)
    except Refused as refusal:
        raise Refused(
            f"noise_multiplier is so small that {refusal.templates[0]}",
            why=refusal.why,
            fix="pass a larger noise_multiplier, fewer steps or a budget; or confirm with "
            "{allow_large_epsilon=True}",
        ) from None


def _parse_unit(unit: Any, units: Any, sampling_rate: Any) -> Unit:
    """The privacy unit: a row, or the key that groups examples."""
    if (unit.key if isinstance(unit, Unit) else unit) is not None and units is None:
        raise InvalidInput(
            "unit is given without units",
            why="each example would be protected alone, not all examples of one person together",
            fix="pass units=, the key of each example; if every example has its own, units=range(len(x))",
        )
    if units is not None and isinstance(unit, Unit) and unit.key is None:
        raise InvalidInput(
            "units are given, but the unit is a row",
            why="a row's weight in a lot would then depend on the other rows of its unit",
            fix="pass the name of the key as unit=, or omit units",
        )
    is_shuffled = isinstance(sampling_rate, ShuffledSampling)
    neighbours = Neighbours.SUBSTITUTE if is_shuffled else Neighbours.ADD_REMOVE
    if not isinstance(unit, Unit):
        return Unit(unit or ("unit" if units is not None else None), neighbours)
    if unit.neighbours is not neighbours or unit.window is not None:
        raise InvalidInput(
            f"the run would not protect {unit}",
            why=f"with this sampling, units are protected under {neighbours.value}, in all their rows",
            fix="pass the name of the key",
        )
    return unit


def _parse_optimizers(optimizer: Any) -> list[torch.optim.Optimizer]:
    """One optimizer or several, all of which use one gradient per step."""
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    if not optimizers or not all(isinstance(one, torch.optim.Optimizer) for one in optimizers):
        raise InvalidInput(
            "optimizer is not a torch optimizer, nor a list of them",
            why="it applies the private gradients",
            fix="pass a torch optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1)",
        )
    if any(isinstance(one, (torch.optim.LBFGS, torch.optim.SparseAdam)) for one in optimizers):
        raise Unsupported(
            "this optimizer needs more than one dense gradient per step",
            why="each gradient would be another access to the data",
            fix="use SGD, Adam or another first-order optimizer",
        )
    return optimizers


def _trained_parameters(model: Any, optimizers: list[torch.optim.Optimizer]) -> dict[str, nn.Parameter]:
    """The model's parameters that the optimizers train, by name."""
    optimized = [p for one in optimizers for group in one.param_groups for p in group["params"]]
    parameters = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in optimized):
        raise InvalidInput(
            "the model has lazy parameters",
            why="their shapes are not known yet",
            fix="run the model once on public data",
        )
    if {id(p) for p in optimized} - {id(p) for p in parameters.values()}:
        raise InvalidInput(
            "the optimizer has parameters that are not the model's",
            why="they would get no gradients",
            fix="pass the optimizer of this model; step another model's optimizer in your own loop",
        )
    ids = {id(p) for p in optimized}
    return {name: p for name, p in parameters.items() if p.requires_grad and id(p) in ids}


def _per_example_loss(loss: Any, objective: Any, tensors: int) -> Callable[..., Tensor]:
    """The loss of each example under a model, as a function of the model and a batch."""
    if (loss is None) == (objective is None):
        raise InvalidInput(
            "loss and objective are both given, or both missing",
            why="exactly one of them is minimized",
            fix="pass loss=, a function of outputs and targets, or objective=, of the model and a batch",
        )
    if objective is not None:
        return objective
    if tensors != 2:
        raise InvalidInput(
            "the data are not inputs and targets",
            why="loss is a function of outputs and targets",
            fix="pass two tensors, or objective=, a function of the model and all tensors",
        )
    return _OutputLoss(_unreduced(loss))


class _OutputLoss(nn.Module):
    """A loss of outputs and targets. A module, so that its state is restored like the model's."""

    def __init__(self, unreduced: Callable[..., Tensor]) -> None:
        super().__init__()
        self.unreduced = unreduced

    def forward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """One number per example."""
        return self.unreduced(model(x), y)


def _unreduced(loss: Any) -> Callable[..., Tensor]:
    """The loss without its reduction over the batch."""
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        unreduced: Any = copy.deepcopy(loss)
        unreduced.reduction = "none"
        return unreduced
    try:
        has_reduction = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        has_reduction = False
    return partial(loss, reduction="none") if has_reduction else loss
