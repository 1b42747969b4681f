"""What a run is given: its optimizers, what they train, each example's loss, and who is protected.

What is not of its kind, or would promise more than is kept, is said here, before anything is computed.
"""

import copy
import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hubbub.accounting import Budget, PrivacyLoss, PrivacyOdometer, refuse_large_epsilon
from hubbub.accounting.in_memory_account import resolve_account
from hubbub.accounting.serialization import cost_from_json, loss_to_json
from hubbub.errors import InvalidInput, Refused, Unsupported
from hubbub.training.batch_sampling import FixedSizeSampling
from hubbub.unit import Neighbours, Unit

__all__ = ["losses_of", "optimizers_of", "refuse_little_noise", "refuse_mistaken", "trained_by", "unit_of"]

_LARGEST_DELTA = Fraction(1, 1000)
_NO_EPSILON = Fraction(10**9)
"""Where none is large enough."""


def refuse_mistaken(target: Any, account: Any) -> None:
    """What is not of its kind, or not said."""
    resolve_account(account)
    if target is not None and not isinstance(target, Budget):
        raise InvalidInput(
            f"target is of type {type(target).__name__}",
            why="ε and δ are a budget",
            fix="pass such as Budget(2, 1e-5)",
        )
    if account is not None and not callable(getattr(account, "charge", None)):
        raise InvalidInput(
            f"account is of type {type(account).__name__}",
            why="the run is charged to it",
            fix="pass the account of a data set, or InMemoryAccount(Budget(2, 1e-5))",
        )


def refuse_little_noise(loss: PrivacyLoss, *, allow: bool) -> None:
    """Refuse noise with which ε is above 20, at the largest δ that needs no population, unless confirmed."""
    found = PrivacyOdometer.epsilon_of(cost_from_json(loss_to_json(loss)), _LARGEST_DELTA)
    try:
        refuse_large_epsilon(_NO_EPSILON if found is None else found, allow=allow)
    except Refused as refusal:
        raise Refused(
            f"sigma is so small that {refusal.templates[0]}",
            why=refusal.why,
            fix="pass a larger sigma, fewer steps or a target; or confirm it with {allow_large_epsilon=True}",
        ) from None


def unit_of(unit: Any, units: Any, rate: Any) -> Unit:
    """Who is protected: a row, or the key that units are told apart by."""
    if (unit.key if isinstance(unit, Unit) else unit) is not None and units is None:
        raise InvalidInput(
            "unit is given without units",
            why="every example would be protected by itself, and not all that are one person's together",
            fix="pass units=, the key of each example; where each is another's, units=range(len(x))",
        )
    if units is not None and isinstance(unit, Unit) and unit.key is None:
        raise InvalidInput(
            "units are given, and the unit is a row",
            why="a row's share of a lot then follows what else its unit has, so that it weighs more",
            fix="pass the name of the key as unit=, or no units",
        )
    neighbours = Neighbours.SUBSTITUTE if isinstance(rate, FixedSizeSampling) else Neighbours.ADD_REMOVE
    if not isinstance(unit, Unit):
        return Unit(unit or ("unit" if units is not None else None), neighbours)
    if unit.neighbours is not neighbours or unit.window is not None:
        raise InvalidInput(
            f"the run would not protect {unit}",
            why=f"units of these lots are protected under {neighbours.value}, in all their rows",
            fix="pass the name of the key",
        )
    return unit


def optimizers_of(given: Any) -> list[torch.optim.Optimizer]:
    """One optimizer, or several, of those that take one gradient a step."""
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    if not found or not all(isinstance(one, torch.optim.Optimizer) for one in found):
        raise InvalidInput(
            "optimizer is not a torch optimizer, nor several",
            why="it takes the private gradients",
            fix="pass such as torch.optim.SGD(model.parameters(), lr=0.1)",
        )
    if any(isinstance(one, (torch.optim.LBFGS, torch.optim.SparseAdam)) for one in found):
        raise Unsupported(
            "this optimizer asks for more than one dense gradient a step",
            why="each would be another look at the data",
            fix="use SGD, Adam or another first-order optimizer",
        )
    return found


def trained_by(model: Any, optimizers: list[torch.optim.Optimizer]) -> dict[str, nn.Parameter]:
    """What the optimizers hold of the model's parameters, by name."""
    held = [p for one in optimizers for group in one.param_groups for p in group["params"]]
    named = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in held):
        raise InvalidInput(
            "the model has lazy parameters",
            why="their shapes are not known yet",
            fix="run the model once on public data",
        )
    if {id(p) for p in held} - {id(p) for p in named.values()}:
        raise InvalidInput(
            "the optimizer holds parameters that are not the model's",
            why="they would get no gradients",
            fix="pass the optimizer of this model; another model's is stepped in your loop",
        )
    ids = {id(p) for p in held}
    return {name: p for name, p in named.items() if p.requires_grad and id(p) in ids}


def losses_of(loss: Any, objective: Any, tensors: int) -> Callable[..., Tensor]:
    """Each example's loss under a model."""
    if (loss is None) == (objective is None):
        raise InvalidInput(
            "not just one of loss and objective is given",
            why="one of them is learned by",
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
    return _OfOutputs(_unreduced(loss))


class _OfOutputs(nn.Module):
    """A loss of outputs and targets; a module, so that what such a loss keeps is put back like a model's."""

    def __init__(self, each: Callable[..., Tensor]) -> None:
        super().__init__()
        self.each = each

    def forward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """One number for each example."""
        return self.each(model(x), y)


def _unreduced(loss: Any) -> Callable[..., Tensor]:
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        apart: Any = copy.deepcopy(loss)
        apart.reduction = "none"
        return apart
    try:
        reduces = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        reduces = False
    return partial(loss, reduction="none") if reduces else loss
