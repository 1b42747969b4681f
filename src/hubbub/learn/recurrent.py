"""Recurrent layers with their steps in the open: LSTM, GRU and RNN, as torch defines them.

All steps' inputs to the gates are one product, made before the recurrence; so are their gradients
afterwards. The recurrent product's gradients are those of the gates too, against the state before each step.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn

from hubbub.errors import Unsupported
from hubbub.learn.pieces import Dense, Piece, outer

if TYPE_CHECKING:
    from hubbub.learn.layers import Tape

__all__ = ["Unrolled", "unrolled"]


@dataclass(frozen=True, eq=False)
class Unrolled:
    """One layer in one direction: what went in, the states before each step, and the gates' outputs."""

    outputs: tuple[Tensor, ...]
    weights: tuple[nn.Parameter, ...]
    """Input weight, recurrent weight, and their biases if there are any."""
    inputs: Tensor
    states: Tensor

    def pieces(self, tape: "Tape", bs: Sequence[Tensor]) -> Iterable[tuple[nn.Parameter, Piece]]:
        """A product with the inputs and one with the states; the biases see the sums."""
        factors = (self.inputs, self.states)
        # A GRU's recurrent gates have gradients of their own; elsewhere they are those of the inputs'.
        # Steps come first in them, examples in what is made of them.
        by_example = [tape.rows(b.transpose(0, 1), b.shape[-1]) for b in bs]
        gradients = by_example * 2 if len(bs) == 1 else by_example
        for place, weight in enumerate(self.weights):
            if not weight.requires_grad:
                continue
            b, a = gradients[place % 2], factors[place % 2]
            yield weight, Dense(b.sum(1)) if place >= 2 else outer(b, tape.rows(a, a.shape[-1]))


def unrolled(module: Any, x: Tensor, state: Any, note: Callable[[Unrolled], None]) -> tuple[Tensor, Any]:
    """Run it, and tell `note` of every layer and direction."""
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise Unsupported(
            "a recurrent layer was given a packed or unbatched sequence",
            why="which steps belong to which example must be seen",
            fix="pass padded batches of three dimensions",
        )
    if module.batch_first:
        x = x.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    start = _start(module, x, state, directions)
    last: list[tuple[Tensor, ...]] = []
    for layer in range(module.num_layers):
        sides = []
        for direction in range(directions):
            suffix = f"_l{layer}" + "_reverse" * direction
            names = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if module.bias else ())]
            weights = tuple(getattr(module, name + suffix) for name in names)
            steps = x.flip(0) if direction else x
            place = layer * directions + direction
            seen, final = _KINDS[module.mode](steps, tuple(s[place] for s in start), weights, note)
            sides.append(seen.flip(0) if direction else seen)
            last.append(final)
        x = sides[0] if directions == 1 else torch.cat(sides, dim=-1)
        if module.dropout and layer + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    ends = tuple(torch.stack(kind) for kind in zip(*last, strict=True))
    return (x.transpose(0, 1) if module.batch_first else x), (ends if len(ends) > 1 else ends[0])


def _start(module: Any, x: Tensor, state: Any, directions: int) -> tuple[Tensor, ...]:
    if state is not None:
        return tuple(state) if isinstance(state, (tuple, list)) else (state,)
    zeros = x.new_zeros(module.num_layers * directions, x.shape[1], module.hidden_size)
    return (zeros, zeros) if module.mode == "LSTM" else (zeros,)


Final = tuple[Tensor, ...]


def _lstm(
    x: Tensor, start: Final, weights: tuple[nn.Parameter, ...], note: Callable[[Unrolled], None]
) -> tuple[Tensor, Final]:
    into = F.linear(x, weights[0], weights[2] + weights[3] if len(weights) > 2 else None)
    h, c = start
    states = [h]
    for step in into.unbind(0):
        i, f, g, o = torch.addmm(step, h, weights[1].t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    seen = torch.stack(states[1:])
    note(_site((into,), weights, x, states))
    return seen, (h, c)


def _gru(
    x: Tensor, start: Final, weights: tuple[nn.Parameter, ...], note: Callable[[Unrolled], None]
) -> tuple[Tensor, Final]:
    into = F.linear(x, weights[0], weights[2] if len(weights) > 2 else None)
    (h,) = start
    # The recurrent product's gates have gradients of their own: a zero that is added shows them.
    probe = torch.zeros_like(into, requires_grad=True)
    states = [h]
    for step, shown in zip(into.unbind(0), probe.unbind(0), strict=True):
        back = F.linear(h, weights[1], weights[3] if len(weights) > 3 else None) + shown
        i_r, i_z, i_n = step.chunk(3, 1)
        h_r, h_z, h_n = back.chunk(3, 1)
        z = (i_z + h_z).sigmoid()
        n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
        h = n + z * (h - n)
        states.append(h)
    note(_site((into, probe), weights, x, states))
    return torch.stack(states[1:]), (h,)


def _plain(
    x: Tensor,
    start: Final,
    weights: tuple[nn.Parameter, ...],
    note: Callable[[Unrolled], None],
    *,
    bend: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Final]:
    into = F.linear(x, weights[0], weights[2] + weights[3] if len(weights) > 2 else None)
    (h,) = start
    states = [h]
    for step in into.unbind(0):
        h = bend(torch.addmm(step, h, weights[1].t()))
        states.append(h)
    note(_site((into,), weights, x, states))
    return torch.stack(states[1:]), (h,)


def _site(
    outputs: tuple[Tensor, ...], weights: tuple[nn.Parameter, ...], x: Tensor, states: list[Tensor]
) -> Unrolled:
    before = torch.stack([state.detach() for state in states[:-1]], dim=1)
    return Unrolled(outputs, weights, x.detach().transpose(0, 1), before)


_KINDS: dict[str, Callable[..., tuple[Tensor, Final]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda *given: _plain(*given, bend=torch.tanh),
    "RNN_RELU": lambda *given: _plain(*given, bend=torch.relu),
}
