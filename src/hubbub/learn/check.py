"""What is looked at before anything is charged, and on random numbers only: can this model be trained so?

A model is refused where examples mix, where it keeps statistics of them, or where something else listens in.
Then the fastest way to its gradients is taken that agrees with differentiating one example after another.
"""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hubbub.errors import InvalidInput, Refused
from hubbub.learn.gradients import Found, Functional, Objective, OneByOne, Recorded, Way
from hubbub.learn.pieces import Outer, Piece

__all__ = ["chosen_way", "refuse_model", "steadiness"]

_CLOSE = 1e-3
"""Relative: far above rounding, far below a wrong rule."""

_GRAIN = 16
"""Lanes of the widest kernels: chunks are cut to multiples of it."""

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
    for parameter in parameters:
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


def steadiness(way: Way, blank: Sequence[Tensor], width: int, chunk: int) -> tuple[bool, int]:
    """Whether an example's gradient is the same, bit for bit, in every place and beside any others.

    What the proof assumes of the kernels, tried on random numbers at the very shapes they will run at. A way
    that can turn its products is turned if that makes it so. Also: the grain to whose multiples a lot's last
    chunk may be cut, instead of being filled up; the whole chunk if kernels mind how many there are.
    """
    if isinstance(way, OneByOne):
        return True, 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        batch = [_random(x, chunk, width) for x in blank]
        for turned in (False, True) if isinstance(way, Recorded) else (False,):
            way.turned = turned
            if _is_steady(way, batch):
                grain = _GRAIN if chunk % _GRAIN == 0 and _is_steady_in_parts(way, batch) else chunk
                return True, grain
    way.turned = False
    return False, chunk


def _is_steady(way: Way, batch: list[Tensor]) -> bool:
    units = batch[0].shape[0]
    order = torch.arange(units).roll(units // 2 + 1)
    others = [torch.cat([x[: units // 2], _random(x[0, 0], units - units // 2, x.shape[1])]) for x in batch]
    first, moved, mixed = (_alike(way, tried) for tried in (batch, [x[order] for x in batch], others))
    return all(
        torch.equal(moved[p], values[order]) and torch.equal(mixed[p][: units // 2], values[: units // 2])
        for p, values in first.items()
    )


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
    if not fast.missing and _works(fast, reference, batch, weights):
        return fast
    together = Functional(objective, parameters, f"{Functional.name} ({why})")
    if _works(together, reference, batch, weights):
        return together
    return OneByOne(objective, parameters, f"{OneByOne.name} ({why}, and torch.func cannot)")


def _random(blank: Tensor, units: int, width: int) -> Tensor:
    shape = (units, width, *blank.shape)
    if blank.is_floating_point():
        return torch.randn(shape, dtype=blank.dtype)
    if blank.dtype == torch.bool:
        return torch.rand(shape) < 0.5
    return torch.randint(0, 2, shape, dtype=blank.dtype)


def _refuse_mixing(objective: Objective, batch: list[Tensor]) -> None:
    """One example's loss must not move with another example."""
    flat = [x.flatten(0, 1) for x in batch]
    changed = [x.clone() for x in flat]
    for x in changed:
        x[1:] = 1 - x[1:] if not x.is_floating_point() and x.dtype != torch.bool else x[1:].flip(0)
    with torch.no_grad():
        state = torch.random.get_rng_state()
        first = objective(*flat)
        torch.random.set_rng_state(state)
        second = objective(*changed)
    inputs = [x.requires_grad_() for x in flat if x.is_floating_point()]
    mixes = not torch.allclose(first[0], second[0], rtol=1e-4, atol=1e-6, equal_nan=True)
    if inputs and not mixes:
        one = objective(*flat)[0]
        gradients = torch.autograd.grad(one, inputs, allow_unused=True) if one.requires_grad else ()
        mixes = any(g is not None and bool((g[1:] != 0).any()) for g in gradients)
    if mixes:
        raise Refused(
            "one example's loss depends on another example",
            why="a gradient that is clipped would then not be one example's",
            fix=f"see that the model and the loss treat every example by itself; {_INSTEAD}",
        )


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
