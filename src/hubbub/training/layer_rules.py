"""Layers whose gradients are known example by example from what went in and what came back.

Each rule runs its layer as it is (or, where a layer hides its steps, the same steps in the open), and writes
down a site: where the gradient of its output will be found, and how to make pieces of it.

A layer without a rule is no problem: the model is then differentiated example by example (`gradients`).

Proof: docs/proofs/dpsgd.md, "Layers"; every rule is compared with `torch.func` in tests/learn/test_layers.py
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from hubbub.errors import Unsupported
from hubbub.training.gradient_storage import (
    DenseGradient,
    FactoredGradient,
    PerExampleGradient,
    SparseGradient,
    factored_gradient,
)

__all__ = ["Tape", "Unrolled", "rule_for", "unrolled"]

Pieces = Iterable[tuple[nn.Parameter, PerExampleGradient]]
Rule = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Site:
    """Where a layer's output gradients are found, and how pieces are made of them."""

    edges: tuple[GradientEdge, ...]
    pieces: Callable[..., Pieces]


@dataclass(eq=False)
class Tape:
    """What the layers of one forward pass wrote down, for `units` units of equally many examples."""

    units: int
    turned: bool = False
    """Whether products have the examples in columns: some kernels treat rows by where they are."""
    sites: list[Site] = field(default_factory=list)
    kept: list[tuple[Tensor, int]] = field(default_factory=list)
    hidden: int = 0
    """Numbers that layers have in memory beside what they were given."""

    def linear(self, native: Callable[[], Tensor], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + c; as the layer does it, or turned: W·xᵀ, in which an example's place does not matter."""
        if not self.turned:
            return native()
        product = torch.mm(weight, x.reshape(-1, x.shape[-1]).t())
        if bias is not None:
            product = product + bias[:, None]
        return product.t().contiguous().view(*x.shape[:-1], -1)

    def keep(self, tensor: Tensor) -> Tensor:
        """What a layer was given, for afterwards; `unchanged` tells whether it still is what it was."""
        saved = tensor.detach()
        self.kept.append((saved, saved._version))  # noqa: SLF001 - autograd's own count of writes
        return saved

    @property
    def held(self) -> int:
        """Numbers that one unit has in memory, as far as layers know."""
        return (self.hidden + sum(tensor.numel() for tensor, _ in self.kept)) // max(1, self.units)

    @property
    def unchanged(self) -> bool:
        """Whether no in-place operation wrote over what a layer was given."""
        return all(tensor._version == version for tensor, version in self.kept)  # noqa: SLF001

    def at(self, outputs: Iterable[Tensor], pieces: Callable[..., Pieces]) -> None:
        """Write down a site. The edge is that of now: a later in-place operation does not move it."""
        self.sites.append(Site(tuple(get_gradient_edge(output) for output in outputs), pieces))

    def rows(self, tensor: Tensor, width: int) -> Tensor:
        """All that belongs to each unit: units × positions × width."""
        return tensor.reshape(self.units, -1, width).to(_working(tensor))


def _working(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for a layer, if there is one; for its own class, as subclasses may do something else."""
    if isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)) and module.proj_size:
        return None
    if isinstance(module, nn.MultiheadAttention) and not (
        module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn  # noqa: SLF001
    ):
        return None
    return _RULES.get(type(module))


def _wanted(parameter: nn.Parameter | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _product(
    tape: Tape, weight: nn.Parameter, bias: nn.Parameter | None, a: Callable[[], Tensor], b: Tensor
) -> Pieces:
    """Of y = x·Wᵀ + c: b ⊗ a for the weight, b for the bias."""
    gradients = tape.rows(b, b.shape[-1])
    known = None
    if _wanted(weight):
        piece = factored_gradient(gradients, a())
        if isinstance(piece, FactoredGradient) and gradients.shape[1] == 1:
            known = piece.norms[1][:, 0]
        yield weight, piece
    if bias is not None and bias.requires_grad:
        yield (
            bias,
            DenseGradient(gradients[:, 0] if gradients.shape[1] == 1 else gradients.sum(1), known=known),
        )


def _linear(tape: Tape, module: Any, native: Rule, x: Tensor) -> Tensor:
    y = tape.linear(partial(native, x), x, module.weight, module.bias)
    saved = tape.keep(x)
    a = lambda: tape.rows(saved, saved.shape[-1])  # noqa: E731
    tape.at([y], lambda b: _product(tape, module.weight, module.bias, a, b))
    return y


def _convolution(tape: Tape, module: Any, native: Rule, x: Tensor) -> Tensor:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if layout is not None:
        # Images as rows of pixels: unfolding is then a view, and the kernels are faster.
        x = x.contiguous(memory_format=layout)
    y: Tensor = native(x)
    saved = tape.keep(x)

    def pieces(b: Tensor) -> Pieces:
        groups, kernel = module.groups, module.kernel_size
        gradients = tape.rows(b.movedim(1, -1), b.shape[1])
        if _wanted(module.weight):
            patches = _patches(saved, module)  # examples × positions × kernel × channels
            size, channels = patches.shape[2], patches.shape[3]
            each, arranged = (
                channels // groups,
                partial(_as_weight, kernel=kernel, channels=channels // groups),
            )
            if groups == 1:
                yield (
                    module.weight,
                    factored_gradient(gradients, tape.rows(patches, size * channels), arranged),
                )
            else:
                split = tape.rows(patches, size * channels).unflatten(2, (size, groups, each))
                parts = torch.einsum("utgq,utkgc->ugqkc", gradients.unflatten(2, (groups, -1)), split)
                yield module.weight, DenseGradient(parts.flatten(1, 2).flatten(2), arranged)
        if _wanted(module.bias):
            yield module.bias, DenseGradient(gradients.sum(1))

    tape.at([y], pieces)
    return y


def _as_weight(sums: Tensor, kernel: tuple[int, ...], channels: int) -> Tensor:
    """From (…, q, kernel·channels) to (…, q, channels, *kernel)."""
    return sums.unflatten(2, (*kernel, channels)).movedim(-1, 2)


def _patches(x: Tensor, module: Any) -> Tensor:
    """What each position of a convolution sees: a strided view of the padded input, written out once."""
    sides = module._reversed_padding_repeated_twice  # noqa: SLF001
    if any(sides):
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = F.pad(x, sides, mode=mode)
    pixels = x.movedim(1, -1).contiguous()
    spans = [
        (length - dilation * (size - 1) - 1) // stride + 1
        for length, size, stride, dilation in zip(
            pixels.shape[1:-1], module.kernel_size, module.stride, module.dilation, strict=True
        )
    ]
    first, *steps, last = pixels.stride()
    moves = [step * stride for step, stride in zip(steps, module.stride, strict=True)]
    within = [step * dilation for step, dilation in zip(steps, module.dilation, strict=True)]
    seen = pixels.as_strided(
        (pixels.shape[0], *spans, *module.kernel_size, pixels.shape[-1]), (first, *moves, *within, last)
    )
    positions, kernel = len(spans), len(module.kernel_size)
    return seen.flatten(1, positions).flatten(2, 1 + kernel)


def _embedding(tape: Tape, module: Any, native: Rule, tokens: Tensor) -> Tensor:
    y: Tensor = native(tokens)
    saved = tokens.clone()  # rows are told apart by tokens: another number could be another example's row

    def pieces(b: Tensor) -> Pieces:
        flat = saved.reshape(tape.units, -1)
        gradients = tape.rows(b, module.embedding_dim)
        if module.padding_idx is not None:
            gradients = gradients.masked_fill((flat == module.padding_idx)[..., None], 0.0)
        yield module.weight, SparseGradient.of(flat, gradients, module.weight.shape)

    tape.at([y], pieces)
    return y


def _over_last(
    tape: Tape, module: Any, native: Rule, x: Tensor, *, standard: Callable[[Any, Tensor], Tensor]
) -> Tensor:
    """LayerNorm and RMSNorm: weights along the last dimensions."""
    y: Tensor = native(x)
    saved = tape.keep(x)

    def pieces(b: Tensor) -> Pieces:
        size = module.weight.numel()
        gradients, shape = tape.rows(b, size), module.weight.shape
        if _wanted(module.weight):
            scaled = gradients * tape.rows(standard(module, saved), size)
            yield module.weight, DenseGradient(scaled.sum(1).unflatten(1, shape))
        if _wanted(getattr(module, "bias", None)):
            yield module.bias, DenseGradient(gradients.sum(1).unflatten(1, shape))

    tape.at([y], pieces)
    return y


def _over_channels(tape: Tape, module: Any, native: Rule, x: Tensor) -> Tensor:
    """GroupNorm: a weight for each channel."""
    y: Tensor = native(x)
    saved = tape.keep(x)

    def pieces(b: Tensor) -> Pieces:
        channels = module.num_channels
        gradients = tape.rows(b.movedim(1, -1), channels)
        if _wanted(module.weight):
            standard = F.group_norm(saved, module.num_groups, eps=module.eps)
            yield (
                module.weight,
                DenseGradient((gradients * tape.rows(standard.movedim(1, -1), channels)).sum(1)),
            )
        if _wanted(module.bias):
            yield module.bias, DenseGradient(gradients.sum(1))

    tape.at([y], pieces)
    return y


def _attention(
    tape: Tape,
    module: nn.MultiheadAttention,
    native: Rule,  # noqa: ARG001 - the layer's own way hides its steps
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,  # noqa: FBT001, FBT002 - torch's own signature
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,  # noqa: FBT001, FBT002
    is_causal: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention with its three products in the open."""
    given = [query, key, value]
    if not module.batch_first:
        given = [x.transpose(0, 1) for x in given]
    weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    if given[0] is given[1] is given[2] or (query is key and key is value):
        joint = F.linear(given[0], module.in_proj_weight, module.in_proj_bias)
        inputs, outputs = [tape.keep(given[0])], [joint]
        projected = list(joint.chunk(3, dim=-1))
    else:
        projected = [F.linear(x, w, c) for x, w, c in zip(given, weights, biases, strict=True)]
        inputs, outputs = [tape.keep(x) for x in given], projected

    def pieces(*bs: Tensor) -> Pieces:
        products = [
            list(
                _product(
                    tape, module.in_proj_weight, module.in_proj_bias, partial(tape.rows, a, a.shape[-1]), b
                )
            )
            for a, b in zip(inputs, bs, strict=True)
        ]
        for same in zip(*products, strict=True):
            parameter = same[0][0]
            found = [piece for _, piece in same]
            yield (
                parameter,
                found[0]
                if len(found) == 1
                else DenseGradient(torch.cat([part.dense() for part in found], dim=1)),
            )

    if module.in_proj_weight.requires_grad or _wanted(module.in_proj_bias):
        tape.at(outputs, pieces)
    heads = [x.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for x in projected]
    mask = _mask(attn_mask, key_padding_mask, heads[0], module.num_heads)
    causal = is_causal and attn_mask is None
    rate = module.dropout if module.training else 0.0
    attended: Tensor
    seen: Tensor | None = None
    if need_weights:
        scores = heads[0] @ heads[1].mT * heads[0].shape[-1] ** -0.5
        shares = F.dropout((scores if mask is None else scores + mask).softmax(-1), rate)
        attended = shares @ heads[2]
        seen = shares.mean(1) if average_attn_weights else shares
    else:
        q, k, v = heads
        attended = F.scaled_dot_product_attention(q, k, v, mask, rate, causal)
    out: Tensor = module.out_proj(attended.transpose(1, 2).flatten(2))
    return (out if module.batch_first else out.transpose(0, 1)), seen


def _mask(attention: Tensor | None, padding: Tensor | None, like: Tensor, heads: int) -> Tensor | None:
    """Both masks as one that is added to the scores."""
    total: Tensor | None = None
    if attention is not None:
        total = _added(attention, like)
        if total.dim() == 3:
            total = total.unflatten(0, (-1, heads))
    if padding is not None:
        hidden = _added(padding, like)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))


def _recurrent(tape: Tape, module: Any, native: Rule, x: Tensor, state: Any = None) -> Any:  # noqa: ARG001
    """LSTM, GRU and RNN, unrolled: what goes into the gates is then to be seen."""

    def note(step: Unrolled) -> None:
        tape.hidden += sum(gates.numel() for gates in step.outputs)
        tape.at(step.outputs, lambda *bs: step.pieces(tape, bs))

    return unrolled(module, x, state, note)


_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.modules.linear.NonDynamicallyQuantizableLinear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: partial(
        _over_last, standard=lambda module, x: F.layer_norm(x, module.normalized_shape, eps=module.eps)
    ),
    nn.RMSNorm: partial(
        _over_last, standard=lambda module, x: F.rms_norm(x, module.normalized_shape, eps=module.eps)
    ),
    nn.GroupNorm: _over_channels,
    nn.MultiheadAttention: _attention,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
    nn.RNN: _recurrent,
}


# Recurrent layers with their steps in the open: LSTM, GRU and RNN, as torch defines them.
#
# All steps' inputs to the gates are one product, made before the recurrence; so are their gradients
# afterwards. The recurrent product's gradients are those of the gates too, against the state before each
# step.


@dataclass(frozen=True, eq=False)
class Unrolled:
    """One layer in one direction: what went in, the states before each step, and the gates' outputs."""

    outputs: tuple[Tensor, ...]
    weights: tuple[nn.Parameter, ...]
    """Input weight, recurrent weight, and their biases if there are any."""
    inputs: Tensor
    states: Tensor

    def pieces(self, tape: "Tape", bs: Sequence[Tensor]) -> Iterable[tuple[nn.Parameter, PerExampleGradient]]:
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
            yield (
                weight,
                DenseGradient(b.sum(1)) if place >= 2 else factored_gradient(b, tape.rows(a, a.shape[-1])),
            )


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
