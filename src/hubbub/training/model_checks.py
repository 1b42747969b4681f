"""Model checks before a run, and the choice of the gradient method.

All checks run on random numbers, before anything is charged. A model is refused if it mixes examples, keeps
statistics of them, or has hooks. Otherwise the fastest gradient method is chosen that agrees with
differentiating one example after another.
During the run the model's operations are compared with those that were checked (`CheckedMethod`).

Proof: docs/proofs/dpsgd.md, "Every step is checked"
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter

import torch
from torch import Tensor, nn

from hubbub.errors import HubbubError, InvalidInput, Refused
from hubbub.training.example_independence import PRIMES, examples_are_independent
from hubbub.training.operation_trace import TraceChanged, ValuesChanged
from hubbub.training.per_example_gradients import (
    Functional,
    GradientMethod,
    Gradients,
    LayerRules,
    Loop,
    Objective,
)
from hubbub.training.state_isolation import (
    check_matmul_precision,
    python_and_numpy_positions,
    restore_state,
    seed_generators,
    suppress_warnings,
    tensors_equal,
)

__all__ = [
    "CheckedMethod",
    "check_model",
    "check_padding_example",
    "choose_gradient_method",
    "compare_traces",
    "has_global_hooks",
    "has_hooks",
    "random_batch",
    "restore_modes",
]


_AGREEMENT_TOLERANCE = 1e-3
"""Relative difference of gradients: far above rounding, far below that of a wrong rule."""

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_hooks_of = attrgetter(*_HOOKS)
_TORCH_UTILS = "torch.nn.utils."

_ALTERNATIVE = "use GroupNorm or LayerNorm, which look at one example at a time"


def check_model(model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
    """Refuse models that are known, by the classes of their layers, not to keep examples independent."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"the model is of type {type(model).__name__}",
            why="it must be a torch module",
            fix="pass an nn.Module",
        )
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        raise InvalidInput(
            "the model is compiled",
            why="the layers of a compiled model cannot be observed",
            fix="pass the original model: they share their weights",
        )
    if not parameters:
        raise InvalidInput(
            "the model has no parameter that the optimizer trains",
            why="there is nothing to learn",
            fix="pass the optimizer parameters of the model that require gradients",
        )
    check_matmul_precision()
    kinds = {parameter.dtype for parameter in parameters}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise InvalidInput(
            "the parameters are not all float32, or all float64",
            why="their sums are computed in one precision",
            fix="keep the parameters in float32; inside the model, autocast may use less",
        )
    if has_global_hooks():
        raise _hook_error("torch has hooks for all modules")
    for parameter in parameters:
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):  # noqa: SLF001
            raise _hook_error("a parameter has hooks")
        if parameter.device.type != "cpu" or not parameter.is_floating_point():
            raise InvalidInput(
                "a parameter is not a real number on the CPU",
                why="sums and noise are computed there",
                fix="move the model to the CPU",
            )
        if hasattr(parameter, "grad_sample"):
            raise _hook_error("a parameter has grad_sample")
    for module in model.modules():
        name = type(module).__name__
        _refuse_reparametrized(module, name)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the class they all share
            if isinstance(module, nn.modules.instancenorm._InstanceNorm):  # noqa: SLF001
                continue
            raise Refused(f"the model has a {name}", why="it mixes the examples of a batch", fix=_ALTERNATIVE)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:  # noqa: SLF001
            raise Refused(
                f"the model has a {name} that keeps statistics",
                why="they are computed from examples, and would be released without noise",
                fix="pass track_running_stats=False",
            )
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and (
            module.max_norm is not None or module.scale_grad_by_freq
        ):
            raise Refused(
                f"the model has an {name} with max_norm or scale_grad_by_freq",
                why="they depend on the tokens of a whole batch",
                fix="omit these arguments",
            )
        if has_hooks(module):
            raise _hook_error(f"a {name} has hooks")


def _refuse_reparametrized(module: nn.Module, name: str) -> None:
    """Refuse torch utilities that recompute weights, unless they depend on the weights alone."""
    # By name: torch.nn.utils.spectral_norm is the function, which shadows the module of its class.
    hooks = module._forward_pre_hooks.values()  # noqa: SLF001
    ours = [hook for hook in hooks if type(hook).__module__.startswith(_TORCH_UTILS)]
    kinds = {type(hook).__name__ for hook in ours}
    if "SpectralNorm" in kinds or (name == "_SpectralNorm" and module.training):
        raise Refused(
            "the model has a layer with spectral_norm",
            why="each call updates its estimate of the norm, so the release would tell how many calls "
            "there were, which depends on how many examples are in the lots",
            fix="use torch.nn.utils.parametrizations.weight_norm; or parametrizations.spectral_norm with "
            "layer.parametrizations.eval(), which keeps the estimate fixed",
        )
    if kinds:
        raise InvalidInput(
            f"a {name} computes its weight in a hook of torch ({min(kinds)})",
            why="hooks are refused, because they may observe examples",
            fix="use torch.nn.utils.parametrizations instead, such as weight_norm; or make the weight an "
            "ordinary parameter again, with torch.nn.utils.remove_weight_norm or prune.remove",
        )


def has_hooks(module: nn.Module) -> bool:
    """True if a module has hooks."""
    return any(_hooks_of(module))


def has_global_hooks() -> bool:
    """True if hooks are registered for all modules."""
    return any(getattr(nn.modules.module, f"_global{hooks}") for hooks in _HOOKS)


def _hook_error(what: str) -> InvalidInput:
    return InvalidInput(
        what,
        why="a hook, perhaps of another library, can observe every example",
        fix="create the model again, or remove its hooks",
    )


def choose_gradient_method(
    objective: Objective, parameters: Sequence[nn.Parameter], padding: Sequence[Tensor], width: int
) -> GradientMethod:
    """The fastest gradient method that agrees with computing one example after another."""
    sizes = {size for x in padding for size in x.shape}
    few = next(n for n in count(3, 2) if n not in sizes)
    objective.unit_interval_tensors = _find_unit_interval_tensors(objective, padding, few, width)
    with (
        seed_generators(0),
        restore_state(objective, weights=True),
        suppress_warnings(),
        restore_modes(objective.model),
    ):
        batch = random_batch(objective, padding, few, width)
        before = [tensor.clone() for tensor in _released_tensors(objective.model)]
        generators = python_and_numpy_positions()
        _check_computable(objective, batch)
        after = _released_tensors(objective.model)
        if len(after) != len(before) or not all(map(tensors_equal, before, after)):
            raise Refused(
                "the model writes into its own buffers or parameters",
                why="they would depend on the examples, and be released without noise",
                fix="use layers that keep no statistics",
            )
        elsewhere = python_and_numpy_positions() != generators
        _refuse_mixing(objective, batch)
        if elsewhere:
            return Loop(
                objective, parameters, f"{Loop.name} (the model draws from the generators of Python or numpy)"
            )
        return _choose_agreeing(objective, parameters, batch, padding)


def _find_unit_interval_tensors(
    objective: Objective, padding: Sequence[Tensor], units: int, width: int
) -> frozenset[int]:
    """The fewest tensors that need trial values in [0, 1] for the objective to be computable."""
    floats = [place for place, x in enumerate(padding) if x.is_floating_point()]
    candidates = [frozenset(places) for places in ([], *([one] for one in reversed(floats)), floats)]
    for objective.unit_interval_tensors in candidates:
        with (
            seed_generators(0),
            restore_state(objective, weights=True),
            suppress_warnings(),
            restore_modes(objective.model),
        ):
            is_computed = _can_compute(objective, random_batch(objective, padding, units, width))
        if is_computed:
            return objective.unit_interval_tensors
    return frozenset()


def _can_compute(objective: Objective, batch: list[Tensor]) -> bool:
    try:
        objective(*[x.flatten(0, 1) for x in batch])
    except Exception:  # noqa: BLE001 - on random numbers; the reason is reported later
        return False
    return True


def _released_tensors(model: nn.Module) -> list[Tensor]:
    return [*model.buffers(), *(p.detach() for p in model.parameters())]


@contextmanager
def restore_modes(model: nn.Module) -> Iterator[None]:
    """Restore which modules are in training mode."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _choose_agreeing(
    objective: Objective, parameters: Sequence[nn.Parameter], batch: list[Tensor], padding: Sequence[Tensor]
) -> GradientMethod:
    fast = LayerRules(objective, parameters)
    why = (
        f"no rule for {', '.join(fast.layers_without_rule)}"
        if fast.layers_without_rule
        else "its layer rules do not reproduce the gradients"
    )
    # Inputs tried only in [0, 1] might be mixed elsewhere. Targets, the last tensor, come after the model.
    is_tried = objective.unit_interval_tensors <= {len(padding) - 1} and (
        len(padding) > 1 or not objective.unit_interval_tensors
    )
    if not fast.layers_without_rule and is_tried:
        fast.expected_trace = examples_are_independent(fast, _prime_batches(objective, padding))
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    slow = Loop(objective, parameters)
    reference = slow.gradients(batch, weights)
    if not _gradients_agree(reference, slow.gradients(batch, weights)):
        # The model is random, such as with dropout: compare without.
        objective.model.eval()
        reference = slow.gradients(batch, weights)
        if not _gradients_agree(reference, slow.gradients(batch, weights)):
            return Loop(objective, parameters, f"{Loop.name} (the model is random)")
    if not fast.layers_without_rule and fast.expected_trace is None:
        why = "examples may mix on other data"
    elif fast.expected_trace is not None and _reproduces(fast, reference, batch, weights):
        return fast
    together = Functional(objective, parameters, f"{Functional.name} ({why})")
    if _reproduces(together, reference, batch, weights):
        return together
    return Loop(objective, parameters, f"{Loop.name} ({why}, and torch.func fails)")


def _prime_batches(objective: Objective, padding: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Random batches with a prime number of examples."""
    for prime in PRIMES:
        if not any(size % prime == 0 for x in padding for size in x.shape if size):
            yield [x.flatten(0, 1) for x in random_batch(objective, padding, prime, 1)]


def random_batch(objective: Objective, padding: Sequence[Tensor], units: int, width: int) -> list[Tensor]:
    """A batch of random examples."""
    return [
        _random_tensor(x, units, width, place in objective.unit_interval_tensors)
        for place, x in enumerate(padding)
    ]


def _random_tensor(padding: Tensor, units: int, width: int, unit_interval_tensors: bool) -> Tensor:  # noqa: FBT001 - ours alone
    shape = (units, width, *padding.shape)
    if padding.is_floating_point():
        draw = torch.rand if unit_interval_tensors else torch.randn
        return draw(shape, dtype=padding.dtype)
    if padding.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    return torch.randint(0, 2, shape, dtype=padding.dtype)


def check_padding_example(
    method: GradientMethod, padding: Sequence[Tensor], width: int, microbatch_size: int
) -> None:
    """Refuse padding that cannot be computed: it would show whether a lot fills its microbatches."""
    with seed_generators(4), restore_state(method.objective), suppress_warnings():
        batch = [x.expand(microbatch_size, width, *x.shape).clone() for x in padding]
        try:
            method.gradients(batch, torch.zeros(microbatch_size, width))
        except Exception:  # noqa: BLE001 - on padding; whatever it is, padding cannot be computed
            raise InvalidInput(
                "the model cannot be computed on examples that are all zero",
                why="microbatches are filled up with such padding",
                fix="pass padding_example=, one artificial example that the model can compute",
            ) from None


def compare_traces(
    method: GradientMethod, padding: Sequence[Tensor], width: int, microbatch_size: int
) -> GradientMethod:
    """The same method, which from now on compares traces; or a loop if the trace is not stable."""
    if not isinstance(method, LayerRules):
        return method
    method.compares_traces = True
    with seed_generators(6), restore_state(method.objective), suppress_warnings():
        batch = random_batch(method.objective, padding, microbatch_size, width)
        try:
            method.gradients(batch, torch.full(batch[0].shape[:2], 1 / width))
        except TraceChanged:
            why = "its operations depend on more than the batch size"
            return Loop(method.objective, method.parameters, f"{Loop.name} ({why})")
        except Exception:  # noqa: BLE001, S110 - on random numbers; an example that fails is left out
            pass
    return method


def _check_computable(objective: Objective, batch: list[Tensor]) -> None:
    """Refuse an objective that cannot be computed on random examples."""
    try:
        losses = objective(*[x.flatten(0, 1).clone() for x in batch])
    except HubbubError:
        raise
    except Exception as error:
        message = str(error).partition("\n")[0]  # about random numbers
        raise InvalidInput(
            f"the model cannot be computed on random examples: {type(error).__name__}: {message}",
            why="it is tried beforehand on normal numbers, or numbers in [0, 1], and on integers 0 and 1",
            fix="check that the data have the types the model takes, labels start at 0, and any batch "
            "size works",
        ) from error
    if not losses.requires_grad:
        raise InvalidInput(
            "the loss does not depend on the trained parameters",
            why="there would be no gradient",
            fix="compute the loss from the model's output",
        )


def _refuse_mixing(objective: Objective, batch: list[Tensor]) -> None:
    """Refuse an objective in which one example's loss depends on another example."""
    flat = [x.flatten(0, 1) for x in batch]
    once, again = (_first_loss(objective, flat) for _ in range(2))
    if once is not None and again is not None and not torch.allclose(once, again, equal_nan=True):
        raise Refused(
            "the model or the augmentation draws from its own random generator",
            why="if its seed is known, so are the draws of each position in a lot",
            fix="draw from the global generator of torch, numpy or Python, which is seeded afresh for "
            "each lot",
        )
    mixes = False
    for others in (_opposite, _large, torch.zeros_like, _ignored):
        changed = [
            torch.cat([x[:1], (_opposite if place in objective.unit_interval_tensors else others)(x[1:])])
            for place, x in enumerate(flat)
        ]
        one, other = _first_loss(objective, flat), _first_loss(objective, changed)
        if other is not None and one is not None:
            mixes |= not torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
    inputs = [x.requires_grad_() for x in flat if x.is_floating_point()]
    if inputs and not mixes:
        with restore_state(objective):
            first = objective(*[x.clone() for x in flat])[0]
        gradients = torch.autograd.grad(first, inputs, allow_unused=True) if first.requires_grad else ()
        mixes = any(g is not None and bool((g[1:] != 0).any()) for g in gradients)
    if mixes:
        raise Refused(
            "one example's loss depends on another example",
            why="a clipped gradient would then not be one example's",
            fix=f"make outputs and targets of one shape, and keep examples independent; {_ALTERNATIVE}",
        )


def _first_loss(objective: Objective, flat: list[Tensor]) -> Tensor | None:
    """The first example's loss, with the same random numbers each time; None if it cannot be computed."""
    with torch.no_grad(), seed_generators(3), restore_state(objective):
        try:
            return objective(*[x.clone() for x in flat])[0]
        except Exception:  # noqa: BLE001 - on random numbers; whatever it is, this could not be tried
            return None


def _opposite(x: Tensor) -> Tensor:
    return ~x if x.dtype == torch.bool else 1 - x


def _large(x: Tensor) -> Tensor:
    return 100 * x + 7 if x.is_floating_point() else x


def _ignored(x: Tensor) -> Tensor:
    """Values that losses ignore: labels of −100, and NaN."""
    return torch.full_like(x, math.nan if x.is_floating_point() else -100) if x.dtype != torch.bool else x


def _reproduces(method: GradientMethod, reference: Gradients, batch: list[Tensor], weights: Tensor) -> bool:
    try:
        with restore_state(method.objective):
            return _gradients_agree(reference, method.gradients([x.clone() for x in batch], weights))
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, this method is not used
        return False


def _gradients_agree(reference: Gradients, candidate: Gradients) -> bool:
    if not set(candidate) <= set(reference):
        return False
    for parameter, gradient in reference.items():
        truth = gradient.dense()
        other = candidate[parameter].dense() if parameter in candidate else torch.zeros_like(truth)
        if (
            not torch.isfinite(other).all()
            or (truth - other).norm() > _AGREEMENT_TOLERANCE * truth.norm() + 1e-6
        ):
            return False
    return True


# During the run

_MAX_RECHECKS = 4
"""A model that changes its operations more often than this is differentiated by `Loop`."""


class CheckedMethod(GradientMethod):
    """A gradient method that is chosen again when the model's operations change.

    A model that now mixes examples is refused, as it would have been before the run. If random examples are
    still treated as before, examples are computed one after another from then on.
    """

    def __init__(self, method: GradientMethod, choose_again: Callable[[], GradientMethod]) -> None:
        super().__init__(method.objective, method.parameters, method.name)
        self.method = method
        self._choose_again = choose_again
        self._rechecks = 0
        self._was_rechecked = False

    @property
    def is_per_unit(self) -> bool:
        """See `GradientMethod`."""
        return self.method.is_per_unit

    def start_lot(self) -> None:
        """See `GradientMethod`."""
        self._was_rechecked = False
        self.method.start_lot()

    @property
    def values_changed(self) -> bool:
        """See `GradientMethod`."""
        return self._was_rechecked or self.method.values_changed

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """See `GradientMethod`."""
        return self.method.gradients(batch, weights)

    def recheck(self, *, within_lot: bool) -> None:
        """See `GradientMethod`: choose again, by what the model does now to random examples.

        Within a lot that must not have changed: the lot's first examples were computed with it.
        """
        self._rechecks += 1
        method = self._choose_again() if self._rechecks <= _MAX_RECHECKS else self.method
        is_same = _method_and_trace(method) == _method_and_trace(self.method)
        if within_lot and not is_same:
            raise ValuesChanged
        if not method.is_per_unit and is_same:
            method = Loop(
                self.objective, self.parameters, f"{Loop.name} (its operations change during the run)"
            )
        self.method, self.name, self._was_rechecked = method, method.name, True


def _method_and_trace(method: GradientMethod) -> object:
    return type(method), method.expected_trace if isinstance(method, LayerRules) else None
