"""Gradient methods: three ways to compute per-example gradients.

    LayerRules  one forward and one backward pass, and a rule for each layer (`layer_rules`)
    Functional  `torch.func`: vectorized over examples; for models with layers that have no rule
    Loop        one example after another; for models that `torch.func` cannot differentiate

All give the same gradients. The method for a model is chosen beforehand, on random numbers (`model_checks`).
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
from hubbub.training.layer_rules import LayerRecorder, Rule, rule_for
from hubbub.training.operation_trace import (
    OperationTrace,
    Settings,
    TraceChanged,
    TraceRecorder,
    ValuesChanged,
    settings_of,
)
from hubbub.training.state_isolation import full_precision, restore_state, tensors_equal

__all__ = ["Augment", "Functional", "GradientMethod", "LayerRules", "Loop", "Objective", "backward"]

Gradients = dict[nn.Parameter, PerExampleGradient]
Augment = Callable[..., Any]


class Objective(nn.Module):
    """The loss of each example under a model: the function that is differentiated."""

    def __init__(
        self, model: nn.Module, losses: Callable[..., Tensor], augment: Augment | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.losses = losses
        self.augment = augment
        self.unit_interval_tensors: frozenset[int] = frozenset()
        """Positions of example tensors that need random trial values in [0, 1]."""

    def forward(self, *batch: Tensor) -> Tensor:
        """One number per example."""
        examples = batch[0].shape[0]
        if self.augment is not None:
            with torch.no_grad():
                changed = self.augment(*batch)
            batch = (changed, *batch[1:]) if isinstance(changed, Tensor) else tuple(changed)
        losses = self.losses(self.model, *batch)
        if not isinstance(losses, Tensor) or losses.dim() == 0 or losses.shape[0] != examples:
            raise InvalidInput(
                "the loss is not one number per example",
                why="each example's gradient is clipped separately",
                fix='return the losses of the batch as a vector, for example with reduction="none"',
            )
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


@dataclass(eq=False)
class GradientMethod(ABC):
    """Abstract: a way to compute the gradient of every unit."""

    objective: Objective
    parameters: Sequence[nn.Parameter]
    name: str = ""
    transposed: bool = False
    """True if products are computed with the examples in columns."""

    @property
    def is_per_unit(self) -> bool:
        """True if every unit is computed separately."""
        return False

    def start_lot(self) -> None:  # noqa: B027 - most have nothing to do
        """Begin a new lot."""

    @property
    def values_changed(self) -> bool:
        """True if constants of the model differ from those of the previous lot."""
        return False

    def recheck(self, *, within_lot: bool) -> None:  # noqa: ARG002 - for those that can
        """Choose the method again, because the model's operations changed; perhaps within a lot."""
        raise TraceChanged

    @abstractmethod
    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """The gradient of each unit's weighted loss.

        Args:
            batch: Tensors of units × m examples.
            weights: Units × m: the weight of each example's loss.
        """


def _flat(batch: Sequence[Tensor]) -> list[Tensor]:
    """Units × m examples as one batch."""
    return [tensor.flatten(0, 1) for tensor in batch]


@dataclass(eq=False)
class LayerRules(GradientMethod):
    """One forward pass, one backward pass to the layers' outputs, and per-example gradients from both."""

    name: str = "layer rules: one forward and one backward pass"
    numbers_per_unit: int = 0
    """Numbers that the layers save for one unit until its gradient is computed."""
    expected_trace: OperationTrace | None = None
    """The operations that were checked; the rules are valid only for these."""
    compares_traces: bool = False
    """True if the operations of each microbatch are compared with the expected trace."""
    _reals: bytes | None = None
    _previous_reals: bytes | None = None
    _external_values: dict[Any, Tensor] = field(default_factory=dict)
    """Values of external tensors, by their position among these and their shape."""
    _previous_external_values: dict[Any, Tensor] = field(default_factory=dict)
    _rules: dict[nn.Module, Rule] = field(init=False)
    _settings: dict[nn.Module, Settings] = field(init=False)

    def __post_init__(self) -> None:
        mine = set(self.parameters)
        self._rules, self._settings = {}, {}
        for module in self.objective.model.modules():
            rule = rule_for(module)
            if (
                rule is not None
                and "forward" not in module.__dict__
                and any(p in mine for p in _own_parameters(module))
            ):
                self._rules[module] = rule
                self._settings[module] = settings_of(module)

    @property
    def layers_without_rule(self) -> list[str]:
        """Classes of layers that have parameters but no rule."""
        mine = set(self.parameters)
        covered = {p for module in self._rules for p in _own_parameters(module)}
        return sorted(
            {
                type(module).__name__
                for module in self.objective.model.modules()
                if any(p in mine and p not in covered for p in module.parameters(recurse=False))
            }
        )

    def start_lot(self) -> None:
        """See `GradientMethod`."""
        self._previous_reals, self._reals = self._reals, None
        self._previous_external_values, self._external_values = self._external_values, {}

    @property
    def values_changed(self) -> bool:
        """See `GradientMethod`."""
        before = self._previous_external_values
        return self._reals is not None and (
            self._reals != self._previous_reals
            or not all(
                which in before and tensors_equal(before[which], x)
                for which, x in self._external_values.items()
            )
        )

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """See `GradientMethod`; raises `TraceChanged` if the model's operations are not the expected ones."""
        recorder, flat = LayerRecorder(weights.shape[0], self.transposed), _flat(batch)
        trace = (
            TraceRecorder(flat, self.expected_trace.named_tensors)
            if self.expected_trace and self.compares_traces
            else None
        )
        recording: Any = trace or nullcontext()
        with self._recording(recorder, trace), recording:
            losses = self.objective(*flat)
        outside = () if trace is None else trace.external_tensors or ()
        if trace is not None:
            trace.external_tensors = None
        edges = [edge for record in recorder.records for edge in record.edges]
        shares = weights.flatten().to(losses.dtype)
        with recording:
            gradients = iter(backward(losses, edges, shares) if edges else ())
        if trace is not None:
            self._compare(trace, outside)
        self.numbers_per_unit = recorder.numbers_per_unit
        by_parameter: dict[nn.Parameter, list[PerExampleGradient]] = {}
        if not recorder.inputs_unchanged:
            raise InvalidInput(
                "an in-place operation overwrites the input of a layer",
                why="the layer's gradients are computed from its input",
                fix="use the out-of-place operation",
            )
        with torch.no_grad(), full_precision():
            for record in recorder.records:
                ours = [next(gradients) for _ in record.edges]
                if any(one is None for one in ours):
                    if all(one is None for one in ours):
                        continue
                    raise InvalidInput(
                        "only a part of a layer's output is used",
                        why="the gradient of the rest is not known",
                        fix="use the whole output of the layer",
                    )
                for parameter, gradient in record.parameter_gradients(*ours):
                    by_parameter.setdefault(parameter, []).append(gradient)
            # The gradients of a parameter that is used in several places are added before they are measured.
            return {
                parameter: gradients[0] if len(gradients) == 1 else DenseGradient(_sum_dense(gradients))
                for parameter, gradients in by_parameter.items()
            }

    def _compare(self, trace: TraceRecorder, outside: Sequence[Tensor]) -> None:
        if self.expected_trace is None or not self.expected_trace.matches(trace):
            raise TraceChanged
        if self._reals is None:
            self._reals = trace.reals
        elif self._reals != trace.reals:
            raise ValuesChanged
        for place, tensor in enumerate(outside):
            # By shape: the shape of some tensors depends on the number of examples in the microbatch.
            which = place, tensor.shape
            if which not in self._external_values:
                self._external_values[which] = tensor.detach().clone()
            elif not tensors_equal(self._external_values[which], tensor.detach()):
                raise ValuesChanged

    @contextmanager
    def _recording(self, recorder: LayerRecorder, trace: TraceRecorder | None = None) -> Iterator[None]:
        for number, (module, rule) in enumerate(self._rules.items()):
            forward = partial(rule, recorder, module, module.forward)
            if trace is not None:
                forward = partial(trace.layer, number, self._settings[module], module, forward)
            module.__dict__["forward"] = forward
        try:
            yield
        finally:
            for module in self._rules:
                del module.__dict__["forward"]


def backward(losses: Tensor, edges: Sequence[GradientEdge], shares: Tensor) -> Sequence[Tensor | None]:
    """As `torch.autograd.grad`, which a function mode would see as one call, without the calls inside."""
    gradients: Sequence[Tensor | None] = _engine_run_backward(
        (losses,),
        (shares,),
        False,  # keep_graph
        False,  # create_graph
        tuple(edges),
        True,  # allow_unreachable
        accumulate_grad=False,
    )
    return gradients


def _own_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that a layer's rule covers."""
    return list(module.parameters(recurse=False))


def _sum_dense(gradients: Sequence[PerExampleGradient]) -> Tensor:
    total = gradients[0].dense().clone()
    for gradient in gradients[1:]:
        total += gradient.dense()
    return total


@dataclass(eq=False)
class Functional(GradientMethod):
    """`torch.func.vmap` of `torch.func.grad`: B gradients, written out."""

    name: str = "torch.func: vectorized over examples"

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """See `GradientMethod`."""
        parameters = _named_parameters(self.objective, self.parameters)

        def of_one(values: Mapping[str, Tensor], share: Tensor, *examples: Tensor) -> Tensor:
            losses: Tensor = torch.func.functional_call(self.objective, dict(values), examples)
            return (losses * share).sum()

        each = torch.func.vmap(
            torch.func.grad(of_one), in_dims=(None, 0, *[0] * len(batch)), randomness="different"
        )
        with warnings.catch_warnings():
            # `name` already says that it is slow.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            by_name = each({name: p.detach() for name, p in parameters.items()}, weights, *batch)
        return {parameters[name]: DenseGradient(values) for name, values in by_name.items()}


@dataclass(eq=False)
class Loop(GradientMethod):
    """A loop over the units: slow, but correct for everything that can be differentiated."""

    name: str = "loop: one example after another"

    @property
    def is_per_unit(self) -> bool:
        """See `GradientMethod`."""
        return True

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """See `GradientMethod`."""
        each: list[list[Any]] = [[] for _ in self.parameters]
        for place in range(weights.shape[0]):
            # Copies, because kernels may depend on the alignment of memory.
            mine = [tensor[place].clone() for tensor in batch]
            with restore_state(self.objective, weights=True):
                total = (self.objective(*mine) * weights[place]).sum()
                gradients = torch.autograd.grad(total, list(self.parameters), allow_unused=True)
            for rows, gradient, parameter in zip(each, gradients, self.parameters, strict=True):
                rows.append(torch.zeros_like(parameter) if gradient is None else gradient.to_dense())
        return {p: DenseGradient(torch.stack(rows)) for p, rows in zip(self.parameters, each, strict=True)}


def _named_parameters(objective: Objective, parameters: Sequence[nn.Parameter]) -> dict[str, nn.Parameter]:
    mine = set(parameters)
    return {name: p for name, p in objective.named_parameters() if p in mine}
