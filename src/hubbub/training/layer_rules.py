"""Layer rules: per-example gradients of a layer from its input and its output's gradient.

Each rule runs its layer unchanged (or, if the layer hides its steps, runs the same steps explicitly) and
records
where the gradient of its output will be found, and how to compute per-example gradients from it.

A model with a layer that has no rule is differentiated by another method (`per_example_gradients`).

Proof: docs/proofs/dpsgd.md, "Layers"; tests/training/test_layer_rules.py compares every rule with
    `torch.func`
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
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

__all__ = ["LayerRecorder", "UnrolledLayer", "rule_for", "unroll"]

ParameterGradients = Iterable[tuple[nn.Parameter, PerExampleGradient]]
Rule = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class LayerRecord:
    """One use of a layer: where its outputs' gradients are found, and how to get per-example gradients."""

    edges: tuple[GradientEdge, ...]
    parameter_gradients: Callable[..., ParameterGradients]


@dataclass(eq=False)
class LayerRecorder:
    """Records the layers of one forward pass on `units` units, each with the same number of examples."""

    units: int
    transposed: bool = False
    """True if products have the examples in columns: some kernels depend on the position of a row."""
    records: list[LayerRecord] = field(default_factory=list)
    saved_inputs: list[tuple[Tensor, int]] = field(default_factory=list)
    extra_numbers: int = 0
    """Numbers that layers save in addition to their inputs."""

    def linear(self, native: Callable[[], Tensor], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x·Wᵀ + c, as the layer computes it or transposed.

        In W·xᵀ the position of an example does not matter.
        """
        if not self.transposed:
            return native()
        product = torch.mm(weight, x.reshape(-1, x.shape[-1]).t())
        if bias is not None:
            product = product + bias[:, None]
        return product.t().contiguous().view(*x.shape[:-1], -1)

    def save_input(self, tensor: Tensor) -> Tensor:
        """Save a layer's input for its rule; `inputs_unchanged` tells whether it was overwritten."""
        saved = tensor.detach()
        self.saved_inputs.append((saved, saved._version))  # noqa: SLF001 - autograd's own count of writes
        return saved

    @property
    def numbers_per_unit(self) -> int:
        """Numbers that the layers save for one unit."""
        return (self.extra_numbers + sum(tensor.numel() for tensor, _ in self.saved_inputs)) // max(
            1, self.units
        )

    @property
    def inputs_unchanged(self) -> bool:
        """True if no in-place operation has overwritten a saved input."""
        return all(tensor._version == version for tensor, version in self.saved_inputs)  # noqa: SLF001

    def record(
        self, outputs: Iterable[Tensor], parameter_gradients: Callable[..., ParameterGradients]
    ) -> None:
        """Record a layer. The edge is taken now: later in-place operations do not move it."""
        self.records.append(
            LayerRecord(tuple(get_gradient_edge(output) for output in outputs), parameter_gradients)
        )

    def by_unit(self, tensor: Tensor, width: int) -> Tensor:
        """The numbers of each unit: units × positions × width."""
        return tensor.reshape(self.units, -1, width).to(_working_dtype(tensor))


def _working_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def rule_for(module: nn.Module) -> Rule | None:
    """The rule for a layer, if there is one. Only for the exact class: subclasses may behave differently."""
    if isinstance(module, (nn.LSTM, nn.GRU, nn.RNN)) and module.proj_size:
        return None
    if isinstance(module, nn.MultiheadAttention) and not (
        module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn  # noqa: SLF001
    ):
        return None
    return RULES.get(type(module))


def _is_trained(parameter: nn.Parameter | None) -> bool:
    return parameter is not None and parameter.requires_grad


def _product_gradients(
    recorder: LayerRecorder,
    weight: nn.Parameter,
    bias: nn.Parameter | None,
    a: Callable[[], Tensor],
    b: Tensor,
) -> ParameterGradients:
    """For y = x·Wᵀ + c: b ⊗ a for the weight, b for the bias."""
    gradients = recorder.by_unit(b, b.shape[-1])
    known_squared_norms = None
    if _is_trained(weight):
        gradient = factored_gradient(gradients, a())
        if isinstance(gradient, FactoredGradient) and gradients.shape[1] == 1:
            known_squared_norms = gradient.norms[1][:, 0]
        yield weight, gradient
    if bias is not None and bias.requires_grad:
        yield (
            bias,
            DenseGradient(
                gradients[:, 0] if gradients.shape[1] == 1 else gradients.sum(1),
                known_squared_norms=known_squared_norms,
            ),
        )


def _linear(recorder: LayerRecorder, module: Any, native: Rule, x: Tensor) -> Tensor:
    y = recorder.linear(partial(native, x), x, module.weight, module.bias)
    saved = recorder.save_input(x)
    a = lambda: recorder.by_unit(saved, saved.shape[-1])  # noqa: E731
    recorder.record([y], lambda b: _product_gradients(recorder, module.weight, module.bias, a, b))
    return y


def _convolution(recorder: LayerRecorder, module: Any, native: Rule, x: Tensor) -> Tensor:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if layout is not None:
        # Channels last: unfolding is then a view, and kernels are faster.
        x = x.contiguous(memory_format=layout)
    y: Tensor = native(x)
    saved = recorder.save_input(x)

    def parameter_gradients(b: Tensor) -> ParameterGradients:
        groups, kernel = module.groups, module.kernel_size
        gradients = recorder.by_unit(b.movedim(1, -1), b.shape[1])
        if _is_trained(module.weight):
            patches = _patches(saved, module)  # examples × positions × kernel × channels
            size, channels = patches.shape[2], patches.shape[3]
            each, arranged = (
                channels // groups,
                partial(_as_weight, kernel=kernel, channels=channels // groups),
            )
            if groups == 1:
                yield (
                    module.weight,
                    factored_gradient(gradients, recorder.by_unit(patches, size * channels), arranged),
                )
            else:
                split = recorder.by_unit(patches, size * channels).unflatten(2, (size, groups, each))
                parts = torch.einsum("utgq,utkgc->ugqkc", gradients.unflatten(2, (groups, -1)), split)
                yield module.weight, DenseGradient(parts.flatten(1, 2).flatten(2), arranged)
        if _is_trained(module.bias):
            yield module.bias, DenseGradient(gradients.sum(1))

    recorder.record([y], parameter_gradients)
    return y


def _as_weight(sums: Tensor, kernel: tuple[int, ...], channels: int) -> Tensor:
    """From (…, q, kernel·channels) to (…, q, channels, *kernel)."""
    return sums.unflatten(2, (*kernel, channels)).movedim(-1, 2)


def _patches(x: Tensor, module: Any) -> Tensor:
    """The input patch of each position of a convolution: a strided view of the padded input, copied once."""
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


def _embedding(recorder: LayerRecorder, module: Any, native: Rule, tokens: Tensor) -> Tensor:
    y: Tensor = native(tokens)
    saved = tokens.clone()  # tokens tell rows apart: an overwritten token could name another example's row

    def parameter_gradients(b: Tensor) -> ParameterGradients:
        flat = saved.reshape(recorder.units, -1)
        gradients = recorder.by_unit(b, module.embedding_dim)
        if module.padding_idx is not None:
            gradients = gradients.masked_fill((flat == module.padding_idx)[..., None], 0.0)
        yield module.weight, SparseGradient.of(flat, gradients, module.weight.shape)

    recorder.record([y], parameter_gradients)
    return y


def _last_dimensions_norm(
    recorder: LayerRecorder,
    module: Any,
    native: Rule,
    x: Tensor,
    *,
    standard: Callable[[Any, Tensor], Tensor],
) -> Tensor:
    """LayerNorm and RMSNorm: weights along the last dimensions."""
    y: Tensor = native(x)
    saved = recorder.save_input(x)

    def parameter_gradients(b: Tensor) -> ParameterGradients:
        size = module.weight.numel()
        gradients, shape = recorder.by_unit(b, size), module.weight.shape
        if _is_trained(module.weight):
            scaled = gradients * recorder.by_unit(standard(module, saved), size)
            yield module.weight, DenseGradient(scaled.sum(1).unflatten(1, shape))
        if _is_trained(getattr(module, "bias", None)):
            yield module.bias, DenseGradient(gradients.sum(1).unflatten(1, shape))

    recorder.record([y], parameter_gradients)
    return y


def _channel_norm(recorder: LayerRecorder, module: Any, native: Rule, x: Tensor) -> Tensor:
    """GroupNorm: one weight per channel."""
    y: Tensor = native(x)
    saved = recorder.save_input(x)

    def parameter_gradients(b: Tensor) -> ParameterGradients:
        channels = module.num_channels
        gradients = recorder.by_unit(b.movedim(1, -1), channels)
        if _is_trained(module.weight):
            standard = F.group_norm(saved, module.num_groups, eps=module.eps)
            yield (
                module.weight,
                DenseGradient((gradients * recorder.by_unit(standard.movedim(1, -1), channels)).sum(1)),
            )
        if _is_trained(module.bias):
            yield module.bias, DenseGradient(gradients.sum(1))

    recorder.record([y], parameter_gradients)
    return y


def _attention(
    recorder: LayerRecorder,
    module: nn.MultiheadAttention,
    native: Rule,  # noqa: ARG001 - the layer's own forward hides its steps
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,  # noqa: FBT001, FBT002 - torch's own signature
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,  # noqa: FBT001, FBT002
    is_causal: bool = False,  # noqa: FBT001, FBT002
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention with its three projections as explicit products."""
    operands = [query, key, value]
    if not module.batch_first:
        operands = [x.transpose(0, 1) for x in operands]
    weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    if operands[0] is operands[1] is operands[2] or (query is key and key is value):
        joint = F.linear(operands[0], module.in_proj_weight, module.in_proj_bias)
        inputs, outputs = [recorder.save_input(operands[0])], [joint]
        projected = list(joint.chunk(3, dim=-1))
    else:
        projected = [F.linear(x, w, c) for x, w, c in zip(operands, weights, biases, strict=True)]
        inputs, outputs = [recorder.save_input(x) for x in operands], projected

    def parameter_gradients(*bs: Tensor) -> ParameterGradients:
        products = [
            list(
                _product_gradients(
                    recorder,
                    module.in_proj_weight,
                    module.in_proj_bias,
                    partial(recorder.by_unit, a, a.shape[-1]),
                    b,
                )
            )
            for a, b in zip(inputs, bs, strict=True)
        ]
        for same in zip(*products, strict=True):
            parameter = same[0][0]
            gradients = [gradient for _, gradient in same]
            yield (
                parameter,
                gradients[0]
                if len(gradients) == 1
                else DenseGradient(torch.cat([part.dense() for part in gradients], dim=1)),
            )

    if module.in_proj_weight.requires_grad or _is_trained(module.in_proj_bias):
        recorder.record(outputs, parameter_gradients)
    heads = [x.unflatten(-1, (module.num_heads, -1)).transpose(1, 2) for x in projected]
    mask = _combine_masks(attn_mask, key_padding_mask, heads[0], module.num_heads)
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


def _combine_masks(
    attention: Tensor | None, padding: Tensor | None, like: Tensor, heads: int
) -> Tensor | None:
    """Both masks as one that is added to the scores."""
    total: Tensor | None = None
    if attention is not None:
        total = _additive_mask(attention, like)
        if total.dim() == 3:
            total = total.unflatten(0, (-1, heads))
    if padding is not None:
        hidden = _additive_mask(padding, like)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _additive_mask(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))


def _recurrent(recorder: LayerRecorder, module: Any, native: Rule, x: Tensor, state: Any = None) -> Any:  # noqa: ARG001
    """LSTM, GRU and RNN, unrolled so that the inputs of the gates are explicit."""

    def record(layer: UnrolledLayer) -> None:
        recorder.extra_numbers += sum(gates.numel() for gates in layer.outputs)
        recorder.record(layer.outputs, lambda *bs: layer.parameter_gradients(recorder, bs))

    return unroll(module, x, state, record)


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.modules.linear.NonDynamicallyQuantizableLinear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.Embedding: _embedding,
    nn.LayerNorm: partial(
        _last_dimensions_norm,
        standard=lambda module, x: F.layer_norm(x, module.normalized_shape, eps=module.eps),
    ),
    nn.RMSNorm: partial(
        _last_dimensions_norm,
        standard=lambda module, x: F.rms_norm(x, module.normalized_shape, eps=module.eps),
    ),
    nn.GroupNorm: _channel_norm,
    nn.MultiheadAttention: _attention,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
    nn.RNN: _recurrent,
}


# Recurrent layers with explicit steps: LSTM, GRU and RNN, as torch defines them.
#
# The inputs of the gates at all steps are one product, computed before the recurrence, and so are their
# gradients afterwards. The recurrent weights' gradients are those of the gates, multiplied by the state
# before each step.


@dataclass(frozen=True, eq=False)
class UnrolledLayer:
    """One layer in one direction: its inputs, the states before each step, and the gates' outputs."""

    outputs: tuple[Tensor, ...]
    weights: tuple[nn.Parameter, ...]
    """Input weight, recurrent weight, and their biases if there are any."""
    inputs: Tensor
    states: Tensor

    def parameter_gradients(
        self, recorder: "LayerRecorder", bs: Sequence[Tensor]
    ) -> Iterable[tuple[nn.Parameter, PerExampleGradient]]:
        """A product with the inputs and one with the states; the biases get the sums."""
        factors = (self.inputs, self.states)
        # Only a GRU's recurrent gates have gradients of their own; elsewhere they equal those of the input
        # gates. Gradients have steps first, per-example gradients have examples first.
        by_example = [recorder.by_unit(b.transpose(0, 1), b.shape[-1]) for b in bs]
        gradients = by_example * 2 if len(bs) == 1 else by_example
        for place, weight in enumerate(self.weights):
            if not weight.requires_grad:
                continue
            b, a = gradients[place % 2], factors[place % 2]
            yield (
                weight,
                DenseGradient(b.sum(1))
                if place >= 2
                else factored_gradient(b, recorder.by_unit(a, a.shape[-1])),
            )


def unroll(module: Any, x: Tensor, state: Any, record: Callable[[UnrolledLayer], None]) -> tuple[Tensor, Any]:
    """Run a recurrent layer, and call `record` for every layer and direction."""
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise Unsupported(
            "a recurrent layer got a packed or unbatched sequence",
            why="the steps of each example must be known",
            fix="pass padded batches with three dimensions",
        )
    if module.batch_first:
        x = x.transpose(0, 1)
    directions = 2 if module.bidirectional else 1
    start = _initial_state(module, x, state, directions)
    last: list[tuple[Tensor, ...]] = []
    for layer in range(module.num_layers):
        sides = []
        for direction in range(directions):
            suffix = f"_l{layer}" + "_reverse" * direction
            names = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if module.bias else ())]
            weights = tuple(getattr(module, name + suffix) for name in names)
            steps = x.flip(0) if direction else x
            place = layer * directions + direction
            seen, final = _RECURRENCES[module.mode](steps, tuple(s[place] for s in start), weights, record)
            sides.append(seen.flip(0) if direction else seen)
            last.append(final)
        x = sides[0] if directions == 1 else torch.cat(sides, dim=-1)
        if module.dropout and layer + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    ends = tuple(torch.stack(kind) for kind in zip(*last, strict=True))
    return (x.transpose(0, 1) if module.batch_first else x), (ends if len(ends) > 1 else ends[0])


def _initial_state(module: Any, x: Tensor, state: Any, directions: int) -> tuple[Tensor, ...]:
    if state is not None:
        return tuple(state) if isinstance(state, (tuple, list)) else (state,)
    zeros = x.new_zeros(module.num_layers * directions, x.shape[1], module.hidden_size)
    return (zeros, zeros) if module.mode == "LSTM" else (zeros,)


LayerState = tuple[Tensor, ...]


def _lstm(
    x: Tensor, start: LayerState, weights: tuple[nn.Parameter, ...], record: Callable[[UnrolledLayer], None]
) -> tuple[Tensor, LayerState]:
    into = F.linear(x, weights[0], weights[2] + weights[3] if len(weights) > 2 else None)
    h, c = start
    states = [h]
    for step in into.unbind(0):
        i, f, g, o = torch.addmm(step, h, weights[1].t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    seen = torch.stack(states[1:])
    record(_unrolled_layer((into,), weights, x, states))
    return seen, (h, c)


def _gru(
    x: Tensor, start: LayerState, weights: tuple[nn.Parameter, ...], record: Callable[[UnrolledLayer], None]
) -> tuple[Tensor, LayerState]:
    into = F.linear(x, weights[0], weights[2] if len(weights) > 2 else None)
    (h,) = start
    # The gradients of the recurrent product are found by adding zeros that require gradients.
    probe = torch.zeros_like(into, requires_grad=True)
    states = [h]
    for step, step_probe in zip(into.unbind(0), probe.unbind(0), strict=True):
        back = F.linear(h, weights[1], weights[3] if len(weights) > 3 else None) + step_probe
        i_r, i_z, i_n = step.chunk(3, 1)
        h_r, h_z, h_n = back.chunk(3, 1)
        z = (i_z + h_z).sigmoid()
        n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
        h = n + z * (h - n)
        states.append(h)
    record(_unrolled_layer((into, probe), weights, x, states))
    return torch.stack(states[1:]), (h,)


def _rnn(
    x: Tensor,
    start: LayerState,
    weights: tuple[nn.Parameter, ...],
    record: Callable[[UnrolledLayer], None],
    *,
    activation: Callable[[Tensor], Tensor],
) -> tuple[Tensor, LayerState]:
    into = F.linear(x, weights[0], weights[2] + weights[3] if len(weights) > 2 else None)
    (h,) = start
    states = [h]
    for step in into.unbind(0):
        h = activation(torch.addmm(step, h, weights[1].t()))
        states.append(h)
    record(_unrolled_layer((into,), weights, x, states))
    return torch.stack(states[1:]), (h,)


def _unrolled_layer(
    outputs: tuple[Tensor, ...], weights: tuple[nn.Parameter, ...], x: Tensor, states: list[Tensor]
) -> UnrolledLayer:
    before = torch.stack([state.detach() for state in states[:-1]], dim=1)
    return UnrolledLayer(outputs, weights, x.detach().transpose(0, 1), before)


_RECURRENCES: dict[str, Callable[..., tuple[Tensor, LayerState]]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": lambda *arguments: _rnn(*arguments, activation=torch.tanh),
    "RNN_RELU": lambda *arguments: _rnn(*arguments, activation=torch.relu),
}
