"""The way that was chosen for a model, for as long as the model does what it did when it was looked at.

Proof: docs/proofs/dpsgd.md, "Every step is the one that was looked at"
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter

import torch
from torch import Tensor, nn

from hubbub.errors import HubbubError, InvalidInput, Refused
from hubbub.training.clipping import GRAIN
from hubbub.training.example_independence import PRIMES, examples_are_independent
from hubbub.training.gradient_storage import FactoredGradient, PerExampleGradient, SparseGradient
from hubbub.training.isolation import (
    alike,
    drawn_elsewhere,
    quiet,
    refuse_rough_products,
    restore_state,
    starting_from,
)
from hubbub.training.operation_trace import Changed, Drifting
from hubbub.training.per_example_gradients import (
    Found,
    Functional,
    GradientMethod,
    LayerRules,
    Loop,
    Objective,
)

__all__ = [
    "CheckedMethod",
    "are_all_hooked",
    "check_batch_invariance",
    "check_model",
    "choose_gradient_method",
    "compare_methods",
    "is_hooked",
    "refuse_failing_blanks",
]

_OFTEN = 4
"""A model that is something else more often than this is differentiated one example after another."""


class CheckedMethod(GradientMethod):
    """A way that is left, and chosen again, where the model does something else than it was chosen for.

    A model that now mixes examples is refused, as it would have been before the run. Where made-up examples
    are still treated as before, examples are computed one after another from then on.
    """

    def __init__(self, way: GradientMethod, again: Callable[[], GradientMethod]) -> None:
        super().__init__(way.objective, way.parameters, way.name)
        self.way = way
        self._again = again
        self._looks = 0
        self._is_new = False

    @property
    def is_alone(self) -> bool:
        """As `Way`."""
        return self.way.is_alone

    def begin(self) -> None:
        """As `Way`."""
        self._is_new = False
        self.way.begin()

    @property
    def has_moved(self) -> bool:
        """As `Way`."""
        return self._is_new or self.way.has_moved

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`."""
        return self.way.gradients(batch, weights)

    def change(self, *, within: bool) -> None:
        """As `Way`: look again, at what the model does now, on made-up examples.

        Within a lot it must still do to these what it did: the lot's first examples were computed so.
        """
        self._looks += 1
        found = self._again() if self._looks <= _OFTEN else self.way
        is_same = _program(found) == _program(self.way)
        if within and not is_same:
            raise Drifting
        if not found.is_alone and is_same:
            found = Loop(self.objective, self.parameters, f"{Loop.name} (it changes as it goes)")
        self.way, self.name, self._is_new = found, found.name, True


def _program(way: GradientMethod) -> object:
    return type(way), way.program if isinstance(way, LayerRules) else None


# What is looked at before anything is charged, and on random numbers only: can this model be trained so?
#
# A model is refused where examples mix, where it keeps statistics of them, or where something else listens
# in.
# Then the fastest way to its gradients is taken that agrees with differentiating one example after another.

_CLOSE = 1e-3
"""Relative: far above rounding, far below a wrong rule."""

_ROUNDING = 1e-6
"""Relative: the last bits of single precision."""

_ODD = 0x1E3779B97F4A7C15
"""Spreads bits over all of 64; what overflows is cut."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_hooks_of = attrgetter(*_HOOKS)
_UTILS = "torch.nn.utils."

_INSTEAD = "use GroupNorm or LayerNorm, which look at one example at a time"


def check_model(model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
    """Refuse what is known not to keep examples apart, by its class."""
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"the model is of type {type(model).__name__}",
            why="it must be a torch module",
            fix="pass an nn.Module",
        )
    if any(type(module).__name__ == "OptimizedModule" for module in model.modules()):
        raise InvalidInput(
            "the model is compiled",
            why="each layer must be seen at its work, and those of a compiled one are not",
            fix="pass the model that was compiled: they share their weights",
        )
    if not parameters:
        raise InvalidInput(
            "the model has no parameter that the optimizer trains",
            why="there would be nothing to learn",
            fix="pass the optimizer the model's parameters, some of which require gradients",
        )
    refuse_rough_products()
    kinds = {parameter.dtype for parameter in parameters}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise InvalidInput(
            "the parameters are not all float32, or all float64",
            why="their sums are made in one precision",
            fix="keep the parameters in float32; within the model, autocast may use less",
        )
    if are_all_hooked():
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
        _refuse_reparametrized(module, name)
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
        if is_hooked(module):
            raise _left_over(f"a {name} has hooks")


def _refuse_reparametrized(module: nn.Module, name: str) -> None:
    """Refuse what torch itself computes weights by before each call, if that is no function of them alone."""
    # By their names: torch.nn.utils.spectral_norm is the function, which hides the module of its class.
    ours = [hook for hook in module._forward_pre_hooks.values() if type(hook).__module__.startswith(_UTILS)]  # noqa: SLF001
    kinds = {type(hook).__name__ for hook in ours}
    if "SpectralNorm" in kinds or (name == "_SpectralNorm" and module.training):
        raise Refused(
            "the model has a layer with spectral_norm",
            why="each call moves its estimate of the norm on, so that what is released would tell how many "
            "calls there were, and that follows how many examples are in the lots",
            fix="use torch.nn.utils.parametrizations.weight_norm; or parametrizations.spectral_norm with "
            "layer.parametrizations.eval(), which keeps the estimate as it is",
        )
    if kinds:
        raise InvalidInput(
            f"a {name} computes its weight in a hook of torch's own ({min(kinds)})",
            why="what a hook does cannot be told from listening to examples",
            fix="use what torch.nn.utils.parametrizations has instead, as weight_norm; or make the weight a "
            "plain one again, as torch.nn.utils.remove_weight_norm and prune.remove do",
        )


def is_hooked(module: nn.Module) -> bool:
    """Whether something listens to a module."""
    return any(_hooks_of(module))


def are_all_hooked() -> bool:
    """Whether something listens to all modules."""
    return any(getattr(nn.modules.module, f"_global{hooks}") for hooks in _HOOKS)


def _left_over(what: str) -> InvalidInput:
    return InvalidInput(
        what,
        why="something else, perhaps another library, listens to every example that passes",
        fix="make the model anew, or remove its hooks",
    )


def choose_gradient_method(
    objective: Objective, parameters: Sequence[nn.Parameter], blank: Sequence[Tensor], width: int
) -> GradientMethod:
    """The fastest way that gives the gradients which one example after another has."""
    sizes = {size for x in blank for size in x.shape}
    few = next(n for n in count(3, 2) if n not in sizes)
    objective.within_one = _within_one(objective, blank, few, width)
    with starting_from(0), restore_state(objective, weights=True), quiet(), _keeping_modes(objective.model):
        batch = _made_up(objective, blank, few, width)
        before = [tensor.clone() for tensor in _released(objective.model)]
        generators = drawn_elsewhere()
        _refuse_failing(objective, batch)
        after = _released(objective.model)
        if len(after) != len(before) or not all(map(alike, before, after)):
            raise Refused(
                "the model writes into its own buffers or parameters",
                why="they would hold something of the examples, and be released without noise",
                fix="use layers that keep no statistics",
            )
        elsewhere = drawn_elsewhere() != generators
        _refuse_mixing(objective, batch)
        if elsewhere:
            return Loop(objective, parameters, f"{Loop.name} (it draws by Python or numpy)")
        return _agreeing(objective, parameters, batch, blank)


def _within_one(objective: Objective, blank: Sequence[Tensor], units: int, width: int) -> frozenset[int]:
    """Which tensors' numbers must be from 0 to 1 for it to be computed: the fewest that will do."""
    floats = [place for place, x in enumerate(blank) if x.is_floating_point()]
    tried = [frozenset(places) for places in ([], *([one] for one in reversed(floats)), floats)]
    for objective.within_one in tried:
        with (
            starting_from(0),
            restore_state(objective, weights=True),
            quiet(),
            _keeping_modes(objective.model),
        ):
            is_computed = _is_computed(objective, _made_up(objective, blank, units, width))
        if is_computed:
            return objective.within_one
    return frozenset()


def _is_computed(objective: Objective, batch: list[Tensor]) -> bool:
    try:
        objective(*[x.flatten(0, 1) for x in batch])
    except Exception:  # noqa: BLE001 - on random numbers; what it is is said later
        return False
    return True


def _released(model: nn.Module) -> list[Tensor]:
    return [*model.buffers(), *(p.detach() for p in model.parameters())]


@contextmanager
def _keeping_modes(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def check_batch_invariance(
    way: GradientMethod, blank: Sequence[Tensor], width: int, chunk: int, *, to_the_bit: bool = False
) -> tuple[GradientMethod, bool, int]:
    """A way under which an example's gradient is the same in every place and beside any others.

    What the proof assumes of the kernels, tried on random numbers at the very shapes they will run at, bit
    for bit; random layers are switched off for it. A way that can turn its products is turned if that
    makes it so. One that differs by more than the last bits of an example that is moved is not taken. Also
    whether it was bit for bit, and the grain to whose multiples a lot's last chunk may be cut: the whole
    chunk if kernels mind its size. Where norms are counted, last bits matter: `to_the_bit` takes no less.
    """
    if isinstance(way, Loop):
        return way, True, 1
    objective: Objective = way.objective
    with starting_from(1), quiet(), _keeping_modes(objective.model):
        batch = _made_up(objective, blank, chunk, width)
        if _is_random(objective, batch):
            objective.model.eval()
        if _is_random(objective, batch):
            # Something draws that cannot be switched off, such as an augmentation.
            return Loop(objective, way.parameters, f"{Loop.name} (it draws at random)"), True, 1
        apart = math.inf
        for turned in (False, True) if isinstance(way, LayerRules) else (False,):
            way.turned = turned
            apart = min(apart, _unsteadiness(way, batch))
            if apart == 0:
                cut = chunk % GRAIN == 0 and _is_steady_in_parts(way, batch)
                return way, True, GRAIN if cut else chunk
    way.turned = False
    if apart > _ROUNDING or to_the_bit:
        why = "an example's place in a batch matters"
        return Loop(objective, way.parameters, f"{Loop.name} ({why})"), True, 1
    return way, False, chunk


def _is_random(objective: Objective, batch: list[Tensor]) -> bool:
    losses = []
    for _ in range(2):
        with torch.no_grad(), restore_state(objective):
            losses.append(objective(*[x.flatten(0, 1).clone() for x in batch]))
    return not torch.equal(*losses)


def _unsteadiness(way: GradientMethod, batch: list[Tensor]) -> float:
    """How far a gradient moves when its example is elsewhere, beside its length; ∞ if others move it."""
    units = batch[0].shape[0]
    order = torch.arange(units).roll(units // 2 + 1)
    half = units // 2
    more = _made_up(way.objective, [x[0, 0] for x in batch], units - half, batch[0].shape[1])
    others = [torch.cat([x[:half], y]) for x, y in zip(batch, more, strict=True)]
    elsewhere = [x[order] for x in batch]
    first, mixed, moved = (_bits(way, tried) for tried in (batch, others, elsewhere))
    if not all(torch.equal(mixed[p][:half], bits[:half]) for p, bits in first.items()):
        return math.inf
    if all(torch.equal(moved[p], bits[order]) for p, bits in first.items()):
        return 0.0
    written, again = _alike(way, batch), _alike(way, elsewhere)
    return max(_apart(again[p], values[order]) for p, values in written.items())


def _apart(one: Tensor, other: Tensor) -> float:
    if torch.equal(one, other):
        return 0.0
    one, other = one.reshape(len(one), -1).double(), other.reshape(len(other), -1).double()
    return float(((one - other).norm(dim=1) / other.norm(dim=1).clamp_min(1e-30)).max())


def _is_steady_in_parts(way: GradientMethod, batch: list[Tensor]) -> bool:
    """Whether chunks of every size that may occur agree with the whole one."""
    whole = _bits(way, batch)
    return all(
        p in whole and torch.equal(bits, whole[p][:size])  # what is kept as factors may follow the size
        for size in range(batch[0].shape[0] - GRAIN, 0, -GRAIN)  # falling: memory is used again
        for p, bits in _bits(way, [x[:size] for x in batch]).items()
    )


def _bits(way: GradientMethod, batch: list[Tensor]) -> dict[tuple[nn.Parameter, str], Tensor]:
    """For each example 64 bits that stand for all its numbers: written out they take too much to be kept."""
    return {what: _sum_of_bits(values) for what, values in _alike(way, batch).items()}


def _sum_of_bits(values: Tensor) -> Tensor:
    flat = values.reshape(len(values), -1)
    factors = (2 * torch.arange(flat.shape[1]) + 1) * _ODD  # all odd, and no two alike
    sums = torch.empty(len(flat), dtype=torch.int64)
    for start in range(0, len(flat), GRAIN):
        part = flat[start : start + GRAIN] + 0  # so that −0 is 0
        whole = part.view({4: torch.int32, 8: torch.int64}[part.element_size()])
        sums[start : start + GRAIN] = (whole * factors).sum(1)
    return sums


def _alike(way: GradientMethod, batch: list[Tensor]) -> dict[tuple[nn.Parameter, str], Tensor]:
    """All gradients, written out, and norms, with the same random numbers in random layers each time."""
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    with starting_from(2), restore_state(way.objective):
        found = way.gradients([x.clone() for x in batch], weights)
        return {(p, what): kept for p, piece in found.items() for what, kept in _kept(piece).items()}


def _kept(piece: PerExampleGradient) -> dict[str, Tensor]:
    """What must not change: norms, and the gradients, or where they are many the factors they are made of."""
    norms = {"norm": torch.from_numpy(piece.squares), "reach": torch.from_numpy(piece.reach)}
    if isinstance(piece, FactoredGradient):
        return {"a": piece.a, "b": piece.b, **norms}
    if isinstance(piece, SparseGradient):
        rows, values = piece.packed()
        return {"rows": rows, "values": values, **norms}
    return {"gradient": piece.dense(), **norms}


def _agreeing(
    objective: Objective, parameters: Sequence[nn.Parameter], batch: list[Tensor], blank: Sequence[Tensor]
) -> GradientMethod:
    fast = LayerRules(objective, parameters)
    why = f"no rule for {', '.join(fast.missing)}" if fast.missing else "its layers' rules do not cover it"
    # Inputs that were tried from 0 to 1 alone could be mixed elsewhere; targets come after the model.
    is_tried = objective.within_one <= {len(blank) - 1} and (len(blank) > 1 or not objective.within_one)
    if not fast.missing and is_tried:
        fast.program = examples_are_independent(fast, _batches(objective, blank))
    weights = torch.full(batch[0].shape[:2], 1 / batch[0].shape[1])
    slow = Loop(objective, parameters)
    reference = slow.gradients(batch, weights)
    if not _agree(reference, slow.gradients(batch, weights)):
        # It draws random numbers, as dropout does: compared without.
        objective.model.eval()
        reference = slow.gradients(batch, weights)
        if not _agree(reference, slow.gradients(batch, weights)):
            return Loop(objective, parameters, f"{Loop.name} (it draws at random)")
    if not fast.missing and fast.program is None:
        why = "which rows are whose cannot be told for all data"
    elif fast.program is not None and _works(fast, reference, batch, weights):
        return fast
    together = Functional(objective, parameters, f"{Functional.name} ({why})")
    if _works(together, reference, batch, weights):
        return together
    return Loop(objective, parameters, f"{Loop.name} ({why}, and torch.func cannot)")


def _batches(objective: Objective, blank: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Random examples, as many as each of the primes says."""
    for prime in PRIMES:
        if not any(size % prime == 0 for x in blank for size in x.shape if size):
            yield [x.flatten(0, 1) for x in _made_up(objective, blank, prime, 1)]


def _made_up(objective: Objective, blank: Sequence[Tensor], units: int, width: int) -> list[Tensor]:
    """So many random examples."""
    return [_random(x, units, width, place in objective.within_one) for place, x in enumerate(blank)]


def _random(blank: Tensor, units: int, width: int, within_one: bool) -> Tensor:  # noqa: FBT001 - ours alone
    shape = (units, width, *blank.shape)
    if blank.is_floating_point():
        draw = torch.rand if within_one else torch.randn
        return draw(shape, dtype=blank.dtype)
    if blank.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    return torch.randint(0, 2, shape, dtype=blank.dtype)


def refuse_failing_blanks(way: GradientMethod, blank: Sequence[Tensor], width: int, chunk: int) -> None:
    """What fills up chunks must be computable: else it would show whether a lot fills its chunks."""
    with starting_from(4), restore_state(way.objective), quiet():
        batch = [x.expand(chunk, width, *x.shape).clone() for x in blank]
        try:
            way.gradients(batch, torch.zeros(chunk, width))
        except Exception:  # noqa: BLE001 - on blanks; whatever it is, they cannot be computed
            raise InvalidInput(
                "the model cannot be computed on examples that are all zero",
                why="chunks are filled up with such blanks",
                fix="pass example=, one made-up example that it can be computed on",
            ) from None


def compare_methods(way: GradientMethod, blank: Sequence[Tensor], width: int, chunk: int) -> GradientMethod:
    """The same way, which from now on sees that the model does what was looked at; if it ever does."""
    if not isinstance(way, LayerRules):
        return way
    way.is_compared = True
    with starting_from(6), restore_state(way.objective), quiet():
        batch = _made_up(way.objective, blank, chunk, width)
        try:
            way.gradients(batch, torch.full(batch[0].shape[:2], 1 / width))
        except Changed:
            why = "what it does to a batch follows more than its size"
            return Loop(way.objective, way.parameters, f"{Loop.name} ({why})")
        except Exception:  # noqa: BLE001, S110 - on random numbers; an example that fails is left out
            pass
    return way


def _refuse_failing(objective: Objective, batch: list[Tensor]) -> None:
    """It must be computable at all."""
    try:
        losses = objective(*[x.flatten(0, 1).clone() for x in batch])
    except HubbubError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]  # about made-up numbers
        raise InvalidInput(
            f"the model cannot be computed on made-up examples: {type(error).__name__}: {said}",
            why="it is tried on normal numbers, or some from 0 to 1, and integers 0 and 1, beforehand",
            fix="see that types are those it takes, labels count from 0, and batches may be of any size",
        ) from error
    if not losses.requires_grad:
        raise InvalidInput(
            "the loss does not depend on what is trained",
            why="there would be no gradient",
            fix="compute it from what the model gives",
        )


def _refuse_mixing(objective: Objective, batch: list[Tensor]) -> None:
    """One example's loss must not move with another example, whatever that holds."""
    flat = [x.flatten(0, 1) for x in batch]
    once, again = (_first_loss(objective, flat) for _ in range(2))
    if once is not None and again is not None and not torch.allclose(once, again, equal_nan=True):
        raise Refused(
            "something draws at random from a generator of its own",
            why="who knows its seed would know which draws each place in a lot gets",
            fix="draw from torch's, numpy's or Python's own generator: these are seeded afresh for each lot",
        )
    mixes = False
    for others in (_opposite, _large, torch.zeros_like, _ignored):
        changed = [
            torch.cat([x[:1], (_opposite if place in objective.within_one else others)(x[1:])])
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
            why="a gradient that is clipped would then not be one example's",
            fix=f"see that outputs and targets have one shape, and examples stay apart; {_INSTEAD}",
        )


def _first_loss(objective: Objective, flat: list[Tensor]) -> Tensor | None:
    """Of the first example, with the same random numbers each time; None where the others cannot be."""
    with torch.no_grad(), starting_from(3), restore_state(objective):
        try:
            return objective(*[x.clone() for x in flat])[0]
        except Exception:  # noqa: BLE001 - on random numbers; whatever it is, this could not be tried
            return None


def _opposite(x: Tensor) -> Tensor:
    return ~x if x.dtype == torch.bool else 1 - x


def _large(x: Tensor) -> Tensor:
    return 100 * x + 7 if x.is_floating_point() else x


def _ignored(x: Tensor) -> Tensor:
    """What losses leave out: labels of −100, and numbers that are none."""
    return torch.full_like(x, math.nan if x.is_floating_point() else -100) if x.dtype != torch.bool else x


def _works(way: GradientMethod, reference: Found, batch: list[Tensor], weights: Tensor) -> bool:
    try:
        with restore_state(way.objective):
            return _agree(reference, way.gradients([x.clone() for x in batch], weights))
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
