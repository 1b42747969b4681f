"""What is looked at before anything is charged, and on random numbers only: can this model be trained so?

A model is refused where examples mix, where it keeps statistics of them, or where something else listens in.
Then the fastest way to its gradients is taken that agrees with differentiating one example after another.
"""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hubbub.errors import InvalidInput, Refused
from hubbub.learn.gradients import Found, Functional, Objective, OneByOne, Recorded, Way
from hubbub.learn.pieces import Outer, Piece

__all__ = ["chosen_way", "refuse_model", "steadiness"]

_CLOSE = 1e-3
"""Relative: far above rounding, far below a wrong rule."""

_ROUNDING = 1e-5
"""Relative: what the last bits of single precision may come to in a few layers."""
_GRAIN = 16
"""Lanes of the widest kernels: chunks are cut to multiples of it."""

_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)

_INSTEAD = "use GroupNorm or LayerNorm, which look at one example at a time"


def refuse_model(model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
    """Refuse what is known not to keep examples apart, by its class."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"the model is of type {type(model).__name__}",
            why="it must be a torch module",
            fix="pass an nn.Module",
        )
    if not parameters:
        raise InvalidInput(
            "the model has no parameter that the optimizer trains",
            why="there would be nothing to learn",
            fix="pass the optimizer the model's parameters, some of which require gradients",
        )
    if torch.get_float32_matmul_precision() != "highest":
        raise InvalidInput(
            "matrices are multiplied with less than single precision",
            why="how far sums err would not be known",
            fix='call torch.set_float32_matmul_precision("highest")',
        )
    kinds = {parameter.dtype for parameter in parameters}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise InvalidInput(
            "the parameters are not all float32, or all float64",
            why="their sums are made in one precision",
            fix="keep the parameters in float32; within the model, autocast may use less",
        )
    if any(getattr(nn.modules.module, name) for name in _GLOBAL_HOOKS):
        raise _left_over("torch has hooks for all modules")
    for parameter in parameters:
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):  # noqa: SLF001
            raise _left_over("a parameter has hooks")
        if parameter.device.type != "cpu" or not parameter.is_floating_point():
            raise InvalidInput(
                "a parameter is not a real number on the processor",
                why="sums and noise are made there",
                fix="move the model to the CPU",
            )
        if hasattr(parameter, "grad_sample"):
            raise _left_over("a parameter has grad_sample")
    for module in model.modules():
        name = type(module).__name__
        if isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - the class they all share
            if isinstance(module, nn.modules.instancenorm._InstanceNorm):  # noqa: SLF001
                continue
            raise Refused(f"the model has a {name}", why="it mixes the examples of a batch", fix=_INSTEAD)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:  # noqa: SLF001
            raise Refused(
                f"the model has a {name} that keeps statistics",
                why="they are made of examples, and would be released without noise",
                fix="pass track_running_stats=False",
            )
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and (
            module.max_norm is not None or module.scale_grad_by_freq
        ):
            raise Refused(
                f"the model has an {name} with max_norm or scale_grad_by_freq",
                why="they depend on which tokens a whole batch holds",
                fix="leave them out",
            )
        if any(
            getattr(module, hooks)
            for hooks in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        ):
            raise _left_over(f"a {name} has hooks")


def _left_over(what: str) -> InvalidInput:
    return InvalidInput(
        what,
        why="something else, perhaps another library, listens to every example that passes",
        fix="make the model anew, or remove its hooks",
    )


def chosen_way(
    objective: Objective, parameters: Sequence[nn.Parameter], blank: Sequence[Tensor], width: int
) -> Way:
    """The fastest way that gives the gradients which one example after another has."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        units = next(n for n in (3, 5, 7, 11, 13) if not any(n in x.shape for x in blank))
        batch = [_random(x, units, width) for x in blank]
        buffers = [buffer.clone() for buffer in objective.model.buffers()]
        _refuse_mixing(objective, batch)
        if any(not torch.equal(a, b) for a, b in zip(buffers, objective.model.buffers(), strict=True)):
            raise Refused(
                "the model writes into its own buffers",
                why="they would hold something of the examples, and be released without noise",
                fix="use layers that keep no statistics",
            )
        was_training = objective.model.training
        modes = {module: module.training for module in objective.model.modules()}
        try:
            return _agreeing(objective, parameters, batch)
        finally:
            objective.model.train(was_training)
            for module, mode in modes.items():
                module.training = mode


def steadiness(way: Way, blank: Sequence[Tensor], width: int, chunk: int) -> tuple[Way, bool, int]:
    """A way under which an example's gradient is the same in every place and beside any others.

    What the proof assumes of the kernels, tried on random numbers at the very shapes they will run at, bit
    for bit; random layers are switched off for it. A way that can turn its products is turned if that
    makes it so. One that differs by more than rounding is not taken. Also whether it was bit for bit, and the
    grain to whose multiples a lot's last chunk may be cut: the whole chunk if kernels mind its size.
    """
    if isinstance(way, OneByOne):
        return way, True, 1
    objective: Objective = way.objective
    modes = {module: module.training for module in objective.model.modules()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        batch = [_random(x, chunk, width) for x in blank]
        try:
            if _is_random(objective, batch):
                objective.model.eval()
            if _is_random(objective, batch):
                # Something draws that cannot be switched off, such as an augmentation.
                return OneByOne(objective, way.parameters, f"{OneByOne.name} (it draws at random)"), True, 1
            apart = math.inf
            for turned in (False, True) if isinstance(way, Recorded) else (False,):
                way.turned = turned
                apart = min(apart, _unsteadiness(way, batch))
                if apart == 0:
                    cut = chunk % _GRAIN == 0 and _is_steady_in_parts(way, batch)
                    return way, True, _GRAIN if cut else chunk
        finally:
            for module, mode in modes.items():
                module.training = mode
    way.turned = False
    if apart > _ROUNDING:
        why = "an example's place in a batch matters"
        return OneByOne(objective, way.parameters, f"{OneByOne.name} ({why})"), True, 1
    return way, False, chunk


def _is_random(objective: Objective, batch: list[Tensor]) -> bool:
    with torch.no_grad():
        one, other = (objective(*[x.flatten(0, 1) for x in batch]) for _ in range(2))
    return not torch.equal(one, other)


def _unsteadiness(way: Way, batch: list[Tensor]) -> float:
    """How far an example's gradient moves, relatively, when it is elsewhere or others are beside it."""
    units = batch[0].shape[0]
    order = torch.arange(units).roll(units // 2 + 1)
    others = [torch.cat([x[: units // 2], _random(x[0, 0], units - units // 2, x.shape[1])]) for x in batch]
    first, moved, mixed = (_alike(way, tried) for tried in (batch, [x[order] for x in batch], others))
    return max(
        max(_apart(moved[p], values[order]), _apart(mixed[p][: units // 2], values[: units // 2]))
        for p, values in first.items()
    )


def _apart(one: Tensor, other: Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    return float((one - other).abs().max() / other.abs().max().clamp_min(1e-30))


def _is_steady_in_parts(way: Way, batch: list[Tensor]) -> bool:
    """Whether chunks of every size that may occur agree with the whole one."""
    whole = _alike(way, batch)
    return all(
        torch.equal(values, whole[p][:size])
        for size in range(_GRAIN, batch[0].shape[0], _GRAIN)
        for p, values in _alike(way, [x[:size] for x in batch]).items()
    )


def _alike(way: Way, batch: list[Tensor]) -> dict[nn.Parameter, Tensor]:
    """All gradients, written out, with the same random numbers in random layers each time."""
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return {p: _kept(piece) for p, piece in way.gradients(batch, weights).items()}


def _kept(piece: Piece) -> Tensor:
    """What must not change: the gradients, or where they are many the factors they are made of."""
    return torch.cat([piece.a, piece.b], dim=2) if isinstance(piece, Outer) else piece.dense()


def _agreeing(objective: Objective, parameters: Sequence[nn.Parameter], batch: list[Tensor]) -> Way:
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    slow = OneByOne(objective, parameters)
    reference = slow.gradients(batch, weights)
    if not _agree(reference, slow.gradients(batch, weights)):
        # It draws random numbers, as dropout does: compared without.
        objective.model.eval()
        reference = slow.gradients(batch, weights)
    fast = Recorded(objective, parameters)
    why = f"no rule for {', '.join(fast.missing)}" if fast.missing else "its layers' rules do not cover it"
    if not fast.missing and not _is_static(objective, batch):
        why = "which rows are whose may depend on the data"
    elif not fast.missing and _works(fast, reference, batch, weights):
        return fast
    together = Functional(objective, parameters, f"{Functional.name} ({why})")
    if _works(together, reference, batch, weights):
        return together
    return OneByOne(objective, parameters, f"{OneByOne.name} ({why}, and torch.func cannot)")


class _Seen(TorchDispatchMode):
    """Whether something ran that may move one example's rows by what another, or itself, holds."""

    def __init__(self, examples: int) -> None:
        super().__init__()
        self.examples = examples
        self.is_static = True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it, and look at what it was."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if name in _MOVING or (name in _DRAWING and not self._by_example(out)):
            self.is_static = False
        elif name in _REDUCING and first is not None and first.dim():
            place = 2 if name in {"norm", "linalg_vector_norm"} else 1
            dims = args[place] if len(args) > place else None
            dims = [dims] if isinstance(dims, int) else dims
            if not isinstance(dims, (list, tuple)) or not dims or any(d % first.dim() == 0 for d in dims):
                self.is_static = False
        return out

    def _by_example(self, out: Any) -> bool:
        drawn = out[0] if isinstance(out, (tuple, list)) else out
        return isinstance(drawn, Tensor) and drawn.dim() > 0 and drawn.shape[0] == self.examples


# By the names of their kernels: what picks, sorts or counts rows, or asks for a number to branch on;
_MOVING = {
    "index", "index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_put",
    "index_copy", "index_fill", "_index_put_impl", "_unsafe_index", "sort", "argsort", "topk", "kthvalue",
    "median", "mode", "nonzero", "masked_select", "masked_scatter", "take", "unique_consecutive", "_unique",
    "_unique2", "unique_dim", "_local_scalar_dense", "is_nonzero", "equal", "repeat_interleave", "bincount",
    "histc",     "multinomial", "randperm", "searchsorted", "bucketize", "set",
}  # fmt: skip
# what draws at random, which each example must do for itself;
_DRAWING = {
    "native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like",
    "uniform", "normal", "normal_functional", "exponential", "random", "geometric", "cauchy", "log_normal",
    "poisson", "rrelu_with_noise",
}  # fmt: skip
# and what reduces, which may not be over the examples.
_REDUCING = {
    "sum", "mean", "max", "min", "amax", "amin", "any", "all", "prod", "std", "var", "var_mean", "std_mean",
    "logsumexp", "norm", "linalg_vector_norm", "argmax", "argmin", "count_nonzero", "aminmax",
}  # fmt: skip


def _is_static(objective: Objective, batch: list[Tensor]) -> bool:
    """Whether the same operations run whatever the examples hold, and none moves rows by what they hold."""
    flat = [x.flatten(0, 1) for x in batch]
    modes = {module: module.training for module in objective.model.modules()}
    with torch.no_grad(), _Seen(flat[0].shape[0]) as seen:
        objective(*flat)
    for module, mode in modes.items():
        module.training = mode
    return seen.is_static


def _random(blank: Tensor, units: int, width: int) -> Tensor:
    shape = (units, width, *blank.shape)
    if blank.is_floating_point():
        return torch.randn(shape, dtype=blank.dtype)
    if blank.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    return torch.randint(0, 2, shape, dtype=blank.dtype)


def _refuse_mixing(objective: Objective, batch: list[Tensor]) -> None:
    """One example's loss must not move with another example, whatever that holds."""
    flat = [x.flatten(0, 1) for x in batch]
    mixes = False
    for others in (_opposite, _large, torch.zeros_like, _ignored):
        changed = [torch.cat([x[:1], others(x[1:])]) for x in flat]
        one, other = _first_loss(objective, flat), _first_loss(objective, changed)
        if other is not None and one is not None:
            mixes |= not torch.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)
    inputs = [x.requires_grad_() for x in flat if x.is_floating_point()]
    if inputs and not mixes:
        first = objective(*flat)[0]
        gradients = torch.autograd.grad(first, inputs, allow_unused=True) if first.requires_grad else ()
        mixes = any(g is not None and bool((g[1:] != 0).any()) for g in gradients)
    if mixes:
        raise Refused(
            "one example's loss depends on another example",
            why="a gradient that is clipped would then not be one example's",
            fix=f"see that the model and the loss treat every example by itself; {_INSTEAD}",
        )


def _first_loss(objective: Objective, flat: list[Tensor]) -> Tensor | None:
    """Of the first example, with the same random numbers each time; None where the others cannot be."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        try:
            return objective(*flat)[0]
        except (RuntimeError, IndexError, ValueError):
            return None


def _opposite(x: Tensor) -> Tensor:
    return -x if x.is_floating_point() else ~x if x.dtype == torch.bool else 1 - x


def _large(x: Tensor) -> Tensor:
    return 100 * x + 7 if x.is_floating_point() else x


def _ignored(x: Tensor) -> Tensor:
    """What losses leave out: labels of −100, and numbers that are none."""
    return torch.full_like(x, math.nan if x.is_floating_point() else -100) if x.dtype != torch.bool else x


def _works(way: Way, reference: Found, batch: list[Tensor], weights: Tensor) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = way.gradients(batch, weights)
            return _agree(reference, found)
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, this way is not taken
        return False


def _agree(reference: Found, found: Found) -> bool:
    if not set(found) <= set(reference):
        return False
    for parameter, piece in reference.items():
        truth = piece.dense()
        other = found[parameter].dense() if parameter in found else torch.zeros_like(truth)
        if not torch.isfinite(other).all() or (truth - other).norm() > _CLOSE * truth.norm() + 1e-6:
            return False
    return True
