"""Every example's gradient, one way or another.

    Recorded    one forward and one backward pass; layers write down what is needed (`layers`)
    Functional  `torch.func`: each example by itself, all at once; for layers without a rule
    OneByOne    each example by itself, one after another; for what `torch.func` cannot do

All give the same pieces. Which way serves a model is found out beforehand, on random numbers (`check`).
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, _engine_run_backward

from hubbub.errors import InvalidInput
from hubbub.training.gradient_storage import DenseGradient, PerExampleGradient
from hubbub.training.isolation import alike, exact_products, restore_state
from hubbub.training.layer_rules import Rule, Tape, rule_for
from hubbub.training.operation_trace import (
    Changed,
    Drifting,
    OperationTrace,
    Settings,
    TraceRecorder,
    settings_of,
)

__all__ = ["Augment", "Functional", "GradientMethod", "LayerRules", "Loop", "Objective", "backwards"]

Found = dict[nn.Parameter, PerExampleGradient]
Augment = Callable[..., Any]


class Objective(nn.Module):
    """The loss of each example under a model: what is differentiated."""

    def __init__(
        self, model: nn.Module, losses: Callable[..., Tensor], augment: Augment | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.losses = losses
        self.augment = augment
        self.within_one: frozenset[int] = frozenset()
        """Of which of an example's tensors made-up numbers must be from 0 to 1, as some losses' targets."""

    def forward(self, *batch: Tensor) -> Tensor:
        """One number for each example."""
        examples = batch[0].shape[0]
        if self.augment is not None:
            with torch.no_grad():
                changed = self.augment(*batch)
            batch = (changed, *batch[1:]) if isinstance(changed, Tensor) else tuple(changed)
        found = self.losses(self.model, *batch)
        if not isinstance(found, Tensor) or found.dim() == 0 or found.shape[0] != examples:
            raise InvalidInput(
                "the loss is not one number for each example",
                why="each example's gradient is clipped by itself",
                fix='return the losses of the batch as a vector, such as with reduction="none"',
            )
        return found.flatten(1).mean(1) if found.dim() > 1 else found


@dataclass(eq=False)
class GradientMethod(ABC):
    """Abstract: a way to every unit's gradient."""

    objective: Objective
    parameters: Sequence[nn.Parameter]
    name: str = ""
    turned: bool = False
    """Whether products have the examples in columns."""

    @property
    def is_alone(self) -> bool:
        """Whether every unit is computed by itself."""
        return False

    def begin(self) -> None:  # noqa: B027 - most have nothing to do
        """A new lot."""

    @property
    def has_moved(self) -> bool:
        """Whether the model was computed with other numbers than in the lot before."""
        return False

    def change(self, *, within: bool) -> None:  # noqa: ARG002 - for those that can
        """The model is not what it was when this way was chosen: choose again; perhaps within a lot."""
        raise Changed

    @abstractmethod
    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """Of units × m examples, of which unit j's losses count with weights_j: its gradient, as pieces."""


def _flat(batch: Sequence[Tensor]) -> list[Tensor]:
    """Units × m examples as one batch."""
    return [tensor.flatten(0, 1) for tensor in batch]


@dataclass(eq=False)
class LayerRules(GradientMethod):
    """One forward pass, one backward pass to the layers' outputs, and pieces from both."""

    name: str = "book-keeping: one backward pass"
    held: int = 0
    """Numbers that one unit has in memory while its gradient is made, as far as layers know."""
    program: OperationTrace | None = None
    """What was looked at: rules hold for that alone."""
    is_compared: bool = False
    """Whether what is done is compared with it: from the first lot on."""
    _reals: bytes | None = None
    _reals_before: bytes | None = None
    _outside: dict[Any, Tensor] = field(default_factory=dict)
    """What was in tensors from outside, by their place among these and their shape."""
    _outside_before: dict[Any, Tensor] = field(default_factory=dict)
    _rules: dict[nn.Module, Rule] = field(init=False)
    _settings: dict[nn.Module, Settings] = field(init=False)

    def __post_init__(self) -> None:
        mine = set(self.parameters)
        self._rules, self._settings = {}, {}
        for module in self.objective.model.modules():
            rule = rule_for(module)
            if rule is not None and "forward" not in module.__dict__ and any(p in mine for p in _own(module)):
                self._rules[module] = rule
                self._settings[module] = settings_of(module)

    @property
    def missing(self) -> list[str]:
        """Classes of layers that have parameters but no rule."""
        mine = set(self.parameters)
        covered = {p for module in self._rules for p in _own(module)}
        return sorted(
            {
                type(module).__name__
                for module in self.objective.model.modules()
                if any(p in mine and p not in covered for p in module.parameters(recurse=False))
            }
        )

    def begin(self) -> None:
        """As `Way`."""
        self._reals_before, self._reals = self._reals, None
        self._outside_before, self._outside = self._outside, {}

    @property
    def has_moved(self) -> bool:
        """As `Way`."""
        before = self._outside_before
        return self._reals is not None and (
            self._reals != self._reals_before
            or not all(which in before and alike(before[which], x) for which, x in self._outside.items())
        )

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`; raises `Changed` where the model does not do what was looked at."""
        tape, flat = Tape(weights.shape[0], self.turned), _flat(batch)
        heard = TraceRecorder(flat, self.program.lasting) if self.program and self.is_compared else None
        listening: Any = heard or nullcontext()
        with self._recording(tape, heard), listening:
            losses = self.objective(*flat)
        outside = () if heard is None else heard.outside or ()
        if heard is not None:
            heard.outside = None
        edges = [edge for site in tape.sites for edge in site.edges]
        shares = weights.flatten().to(losses.dtype)
        with listening:
            gradients = iter(backwards(losses, edges, shares) if edges else ())
        if heard is not None:
            self._compare(heard, outside)
        self.held = tape.held
        found: dict[nn.Parameter, list[PerExampleGradient]] = {}
        if not tape.unchanged:
            raise InvalidInput(
                "an in-place operation writes over what a layer was given",
                why="that layer's gradients are made of it",
                fix="use the operation that makes a new tensor",
            )
        with torch.no_grad(), exact_products():
            for site in tape.sites:
                ours = [next(gradients) for _ in site.edges]
                if any(one is None for one in ours):
                    if all(one is None for one in ours):
                        continue
                    raise InvalidInput(
                        "a layer's output is used in part only",
                        why="the gradient of the rest is not known",
                        fix="use all of what the layer gives",
                    )
                for parameter, piece in site.pieces(*ours):
                    found.setdefault(parameter, []).append(piece)
            # One parameter in several places: its gradients add up before they are measured.
            return {
                parameter: pieces[0] if len(pieces) == 1 else DenseGradient(_summed(pieces))
                for parameter, pieces in found.items()
            }

    def _compare(self, heard: TraceRecorder, outside: Sequence[Tensor]) -> None:
        if self.program is None or not self.program.is_of(heard):
            raise Changed
        if self._reals is None:
            self._reals = heard.reals
        elif self._reals != heard.reals:
            raise Drifting
        for place, tensor in enumerate(outside):
            # By shape: some follow how many examples a chunk has.
            which = place, tensor.shape
            if which not in self._outside:
                self._outside[which] = tensor.detach().clone()
            elif not alike(self._outside[which], tensor.detach()):
                raise Drifting

    @contextmanager
    def _recording(self, tape: Tape, heard: TraceRecorder | None = None) -> Iterator[None]:
        for number, (module, rule) in enumerate(self._rules.items()):
            forward = partial(rule, tape, module, module.forward)
            if heard is not None:
                forward = partial(heard.layer, number, self._settings[module], module, forward)
            module.__dict__["forward"] = forward
        try:
            yield
        finally:
            for module in self._rules:
                del module.__dict__["forward"]


def backwards(losses: Tensor, edges: Sequence[GradientEdge], shares: Tensor) -> Sequence[Tensor | None]:
    """As `torch.autograd.grad`, which those who listen to calls would hear as a whole, and nothing within."""
    found: Sequence[Tensor | None] = _engine_run_backward(
        (losses,),
        (shares,),
        False,  # the graph is not kept
        False,  # nor made of the way back
        tuple(edges),
        True,  # some may not be used
        accumulate_grad=False,
    )
    return found


def _own(module: nn.Module) -> list[nn.Parameter]:
    """Parameters that a layer's rule sees to."""
    return list(module.parameters(recurse=False))


def _summed(pieces: Sequence[PerExampleGradient]) -> Tensor:
    total = pieces[0].dense().clone()
    for piece in pieces[1:]:
        total += piece.dense()
    return total


@dataclass(eq=False)
class Functional(GradientMethod):
    """`torch.func.vmap` of `torch.func.grad`: B gradients written out."""

    name: str = "torch.func: example by example, all at once"

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`."""
        named = _named(self.objective, self.parameters)

        def of_one(given: Mapping[str, Tensor], share: Tensor, *examples: Tensor) -> Tensor:
            losses: Tensor = torch.func.functional_call(self.objective, dict(given), examples)
            return (losses * share).sum()

        each = torch.func.vmap(
            torch.func.grad(of_one), in_dims=(None, 0, *[0] * len(batch)), randomness="different"
        )
        with warnings.catch_warnings():
            # That it is slow is what `name` says.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            found = each({name: p.detach() for name, p in named.items()}, weights, *batch)
        return {named[name]: DenseGradient(values) for name, values in found.items()}


@dataclass(eq=False)
class Loop(GradientMethod):
    """A loop: slow, and right for everything that can be differentiated."""

    name: str = "one by one: an example after another"

    @property
    def is_alone(self) -> bool:
        """As `Way`."""
        return True

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`."""
        each: list[list[Any]] = [[] for _ in self.parameters]
        for place in range(weights.shape[0]):
            # Copies, as kernels may mind where in memory numbers begin.
            mine = [tensor[place].clone() for tensor in batch]
            with restore_state(self.objective, weights=True):
                total = (self.objective(*mine) * weights[place]).sum()
                gradients = torch.autograd.grad(total, list(self.parameters), allow_unused=True)
            for kept, gradient, parameter in zip(each, gradients, self.parameters, strict=True):
                kept.append(torch.zeros_like(parameter) if gradient is None else gradient.to_dense())
        return {p: DenseGradient(torch.stack(kept)) for p, kept in zip(self.parameters, each, strict=True)}


def _named(objective: Objective, parameters: Sequence[nn.Parameter]) -> dict[str, nn.Parameter]:
    mine = set(parameters)
    return {name: p for name, p in objective.named_parameters() if p in mine}
