"""Checks that no operation of a model mixes the examples of a batch, whatever values it is computed on.

Layer rules assign row block j of a tensor to example j. That is valid if the same operations run for all
examples, and none of them moves rows by their values, or combines rows of different examples. To check this,
a
batch with a prime number of examples is followed through the forward and backward pass, operation by
operation:
which tensors derive from examples, and which one dimension counts examples (the only multiple of the prime).
Then one example is changed: no other example's inputs to any operation, and no other example's gradients, may
change.

That run uses the current weights, switches and schedules: a filter along examples with zero weights, or a
batch mean multiplied by zero, does not mix anything yet. So every operation is also tried separately, on
random values for all reals, weights and constants included: only the changed example's rows may differ.

A model that fails the check is not wrong; its gradients are computed by another method. For a model that
passes,
the operations are recorded, and every step is compared with them (`operation_trace`).

Proof: docs/proofs/dpsgd.md, "Assumptions", 3
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from hubbub.training.layer_rules import LayerRecorder
from hubbub.training.operation_trace import OperationTrace, TraceRecorder, name_tensors
from hubbub.training.per_example_gradients import LayerRules, backward
from hubbub.training.state_isolation import restore_state, seed_generators

__all__ = [
    "EITHER_ORDER",
    "PRIMES",
    "Order",
    "differs",
    "example_dimension",
    "examples_are_independent",
    "find_row_orders",
    "orders_consistent_with",
]

Projection = tuple[Any, Tensor]
"""A tensor's shape, and one number per index along the dimension of examples."""

_ROUNDING_TOLERANCE = 1e-6
"""Relative: smaller differences are rounding. Mixing shows far larger ones in some operation."""
_REPLACEMENT_REAL = 0.5
"""Replaces reals that are not tensors: not zero, and not so large that it hides the rest."""


Order = frozenset[bool]
"""Possible orders of several rows per example: one example after another, or (True) interleaved."""
EITHER_ORDER: Order = frozenset({False, True})


def orders_consistent_with(moved: Tensor, examples: int, place: int) -> Order:
    """The orders in which only one example's rows changed."""
    blocks, rest = divmod(moved.numel(), examples)
    if rest:
        return frozenset()
    where = moved.nonzero()[:, 0]
    is_at_place = {False: where // max(1, blocks) == place, True: where % examples == place}
    return frozenset(order for order, there in is_at_place.items() if there.all())


def differs(numbers: Tensor, others: Tensor) -> Tensor:
    """A mask of differences above rounding."""
    return (numbers - others).abs() > _ROUNDING_TOLERANCE * torch.maximum(
        numbers.abs().max(), others.abs().max()
    )


def example_dimension(tensor: Tensor, examples: int) -> int | None:
    """The one dimension that counts examples, if it is unique."""
    dimensions = [dim for dim, size in enumerate(tensor.shape) if size and size % examples == 0]
    return dimensions[0] if len(dimensions) == 1 else None


def find_row_orders(
    func: Any,
    arguments: tuple[Any, Any],
    ours: Callable[[Tensor], bool],
    project: Callable[[Tensor], Projection],
    examples: int,
    *,
    orders: Order,
) -> list[Order] | None:
    """The possible orders of examples in each output; None if an output's rows mix examples.

    Tried on random values, with inputs in each of these orders; at least one of them must keep rows separate.
    """
    before = torch.default_generator.get_state()
    try:
        trials = [
            trial
            for interleaved in sorted(orders)
            if (trial := _trial_orders(func, arguments, ours, project, examples, interleaved=interleaved))
            is not None
        ]
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, independence was not shown
        return None
    finally:
        torch.default_generator.set_state(before)
    return [frozenset().union(*same) for same in zip(*trials, strict=True)] if trials else None


def _trial_orders(
    func: Any,
    arguments: tuple[Any, Any],
    is_ours: Callable[[Tensor], bool],
    project: Callable[[Tensor], Projection],
    examples: int,
    *,
    interleaved: bool,
) -> list[Order] | None:
    leaves, shape = tree_flatten(arguments)
    ours = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and is_ours(x)]
    place = examples // 2
    trials: list[list[Order]] = []
    for replaces_reals in (False, True) if any(type(x) is float for x in leaves) else (False,):
        projections = []
        for numbers in _trial_inputs(
            leaves, ours, examples, place, interleaved=interleaved, replaces_reals=replaces_reals
        ):
            torch.default_generator.manual_seed(7)
            args, kwargs = tree_unflatten(numbers, shape)
            projections.append(
                [project(x) for x in tree_leaves(func(*args, **kwargs)) if isinstance(x, Tensor)]
            )
        trials.append([_consistent_orders(x, y, examples, place) for x, y in zip(*projections, strict=True)])
    orders = [frozenset.intersection(*same) for same in zip(*trials, strict=True)]
    return orders if all(orders) else None


def _consistent_orders(one: Projection, other: Projection, examples: int, place: int) -> Order:
    """The orders in which only one example's rows differ; other outputs are checked later."""
    (shape, numbers), (its_shape, others) = one, other
    if shape != its_shape:
        return frozenset()
    if torch.equal(numbers, others) or numbers.numel() == 1:
        return EITHER_ORDER
    return orders_consistent_with(differs(numbers, others), examples, place)


def _trial_inputs(
    leaves: list[Any], ours: list[int], examples: int, place: int, *, interleaved: bool, replaces_reals: bool
) -> Iterator[list[Any]]:
    """The operation's inputs with random values; then the same with one example changed."""
    torch.default_generator.manual_seed(5)
    once, again = list(leaves), list(leaves)
    for number, x in enumerate(leaves):
        if replaces_reals and type(x) is float:
            once[number] = again[number] = _REPLACEMENT_REAL
        elif isinstance(x, Tensor) and not (x.is_floating_point() and x.numel()):
            once[number], again[number] = x.clone(), x.clone()
        elif isinstance(x, Tensor):
            memory = _random_values(
                1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True)), x
            )
            other = memory.clone()
            if number in ours:
                _change_example(other, x, examples, place, interleaved=interleaved)
            once[number], again[number] = (m.as_strided(x.shape, x.stride()) for m in (memory, other))
    return iter((once, again))


def _random_values(count: int, like: Tensor) -> Tensor:
    """Random values in (0, 1]: every function of reals is defined there."""
    return torch.rand(count, dtype=torch.float64).mul_(0.75).add_(0.25).to(like.dtype)


def _change_example(memory: Tensor, like: Tensor, examples: int, place: int, *, interleaved: bool) -> None:
    """Change the values of one example in the memory of a tensor."""
    along = example_dimension(like, examples)
    assert along is not None
    # Repeated numbers are stored once.
    sizes = [1 if step == 0 else size for size, step in zip(like.shape, like.stride(), strict=True)]
    each = like.shape[along] // examples
    rows = slice(place, None, examples) if interleaved else slice(place * each, (place + 1) * each)
    seen = memory.as_strided(sizes, like.stride())
    if sizes[along] > 1:
        part = seen.movedim(along, 0)[rows]
        part.copy_(_random_values(part.numel(), like).view(part.shape))


# Following a batch through the model

PRIMES = (7, 11, 13, 17, 19, 23)
"""Batch sizes to try: a hidden size may be a multiple of some of them."""
_REQUIRED_BATCHES = 2
"""Two batch sizes must pass: with one, another dimension could be mistaken for that of examples."""


def examples_are_independent(
    method: LayerRules, batches: Iterable[Sequence[Tensor]]
) -> OperationTrace | None:
    """The trace of the operations on these batches, each of prime size, if they keep examples independent."""
    recorders: list[TraceRecorder] = []
    for batch in batches:
        # Change another example, in another way, each time.
        place = (1, batch[0].shape[0] - 3)[len(recorders) % 2]
        trace = _trace_if_independent(method, list(batch), place, is_blank=len(recorders) % 2 == 1)
        recorders += [] if trace is None else [trace]
        if len(recorders) == _REQUIRED_BATCHES:
            return OperationTrace.of(*recorders)
    return None


def _trace_if_independent(
    method: LayerRules, batch: list[Tensor], place: int, *, is_blank: bool
) -> TraceRecorder | None:
    changed = [x.clone() for x in batch]
    for number, x in enumerate(changed):
        x[place] = (
            0 if is_blank else _other_values(x[place], number in method.objective.unit_interval_tensors)
        )
    try:
        with torch.no_grad(), restore_state(method.objective, weights=True):
            method.objective(*[x.clone() for x in batch])  # creates caches, which then stay
        first, other = _follow(method, batch), _follow(method, changed)
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, the batch could not be followed
        return None
    if first is None or other is None or first[1].calls != other[1].calls:
        return None
    return first[1] if _differs_only_at(first[0], other[0], batch[0].shape[0], place) else None


def _other_values(x: Tensor, unit_interval_tensors: bool) -> Tensor:  # noqa: FBT001 - ours alone
    if x.is_floating_point():
        another = torch.randn_like(x)
        return another.sigmoid() if unit_interval_tensors else another
    return ~x if x.dtype == torch.bool else 1 - x


def _follow(method: LayerRules, batch: list[Tensor]) -> tuple[list[Projection], TraceRecorder] | None:
    """Follow a batch forward and backward: projections of all operations' inputs; None if examples mix."""
    inputs = [x.clone() for x in batch]
    recorder, objective = _TrialRecorder(batch[0].shape[0]), method.objective
    with seed_generators(5), restore_state(objective, weights=True):
        follower = _ExampleFollower(inputs, [*objective.parameters(), *objective.buffers()])
        trace = _CallRecorder(inputs, name_tensors(objective), follower.refuse_derived)
        follower.trace = trace
        with follower, method._recording(recorder, trace), trace:  # noqa: SLF001 - as in gradients()
            losses = objective(*inputs)
        trace.on_external_tensor = follower.trace = None  # the backward pass runs hardly any Python
        edges = [edge for record in recorder.records for edge in record.edges]
        shares = torch.ones(losses.shape, dtype=losses.dtype)
        with follower, trace:
            back = backward(losses, edges, shares) if edges and losses.requires_grad else ()
    if not follower.is_independent or trace.values_were_read or not follower.is_by_example(losses):
        return None
    with torch.no_grad():
        norms = [
            gradient.squared_norms
            for parameter_gradients, outputs in recorder.trials
            for _, gradient in parameter_gradients(*outputs)
        ]
        ends = [losses.detach(), *(x for x in back if x is not None), *map(torch.from_numpy, norms)]
        return follower.projections + [follower.project(x) for x in ends], trace


class _CallRecorder(TraceRecorder):
    """A trace recorder that knows whether a call is running; operations outside calls are hidden from it."""

    is_in_call = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """See `TraceRecorder`."""
        self.is_in_call = True
        try:
            return super().__torch_function__(func, types, args, kwargs)
        finally:
            self.is_in_call = False

    def layer(self, *args: Any, **kwargs: Any) -> Any:
        """See `TraceRecorder`."""
        before, self.is_in_call = self.is_in_call, True
        try:
            return super().layer(*args, **kwargs)
        finally:
            self.is_in_call = before


class _TrialRecorder(LayerRecorder):
    """A recorder that tries the rules on the layers' outputs in place of their gradients."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.trials: list[tuple[Any, list[Tensor]]] = []

    def record(self, outputs: Iterable[Tensor], parameter_gradients: Any) -> None:
        """See `LayerRecorder`."""
        tensors = list(outputs)
        self.trials.append((parameter_gradients, [output.detach() + 1 for output in tensors]))
        super().record(tensors, parameter_gradients)


def _differs_only_at(first: list[Projection], other: list[Projection], prime: int, place: int) -> bool:
    """True if only the changed example's numbers differ."""
    if [shape for shape, _ in first] != [shape for shape, _ in other]:
        return False
    return all(
        bool(torch.equal(numbers, others) or orders_consistent_with(differs(numbers, others), prime, place))
        for (_, numbers), (_, others) in zip(first, other, strict=True)
    )


_EXAMPLE_MAJOR: Order = frozenset({False})


class _ExampleFollower(TorchDispatchMode):
    """Follows which tensors derive from examples, and whether an operation combines examples."""

    def __init__(self, batch: list[Tensor], parameters: list[Tensor]) -> None:
        super().__init__()
        self._prime = batch[0].shape[0]
        self._alive = [*batch, *parameters]
        self._derived = {_storage_id(x) for x in batch}
        self._parameters = {_storage_id(x) for x in parameters}
        self.is_independent = True
        self.trace: _CallRecorder | None = None
        """The recorder that must see all operations, during the forward pass."""
        self.projections: list[Projection] = []
        self._projected: dict[int, set[Any]] = {}
        self._projection_weights: dict[int, Tensor] = {}
        self._orders: dict[Any, Order] = {}
        """The possible orders of tensors with several rows per example."""

    def is_by_example(self, tensor: Tensor) -> bool:
        """True if a tensor derives from examples, and exactly one dimension counts them."""
        return _storage_id(tensor) in self._derived and self._count_example_dimensions(tensor) == 1

    def refuse_derived(self, tensor: Tensor) -> None:
        """Refuse an external tensor that derives from examples: next time it may derive from others."""
        self.is_independent &= _storage_id(tensor) not in self._derived

    def project(self, tensor: Tensor) -> Projection:
        """A linear projection that shows where a tensor differs from another; per example if possible."""
        if self._count_example_dimensions(tensor) == 1:
            along = self._example_dimension_of(tensor)
            rows = tensor.detach().movedim(along, 0).reshape(tensor.shape[along], -1)
        else:
            rows = tensor.detach().reshape(1, -1)
        rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
        length = rows.shape[1]
        if length not in self._projection_weights:
            self._projection_weights[length] = (
                torch.arange(1, length + 1, dtype=torch.float64).mul_(1.7).cos_()
            )
        rows = rows.to(torch.float64).nan_to_num(nan=3.0, posinf=5.0, neginf=-7.0)
        return tensor.shape, rows @ self._projection_weights[length]

    def _project_inputs(self, inputs: list[Tensor]) -> None:
        """Project an operation's inputs, once until somebody writes into them."""
        for tensor in inputs:
            memory, *part = _view_key(tensor)
            known = self._projected.setdefault(memory, set())
            if memory not in self._parameters and tuple(part) not in known:
                known.add(tuple(part))
                self._alive.append(tensor)
                self.projections.append(self.project(tensor))

    def _count_example_dimensions(self, tensor: Tensor) -> int:
        return sum(size % self._prime == 0 for size in tensor.shape if size)

    def _example_dimension_of(self, tensor: Tensor) -> int:
        return next(dim for dim, size in enumerate(tensor.shape) if size and size % self._prime == 0)

    def _view_keeps_examples(self, tensor: Tensor, view: Tensor) -> bool:
        """True if examples have the same positions in a view as in its base.

        With as many rows per example they are in the same order; otherwise one example follows another.
        """
        if self._count_example_dimensions(view) != 1:
            return False
        counts = [x.shape[self._example_dimension_of(x)] for x in (tensor, view)]
        if counts[0] != counts[1] and False not in self._orders.get(_view_key(tensor), EITHER_ORDER):
            return False
        each = [1 if counts[0] == counts[1] else count // self._prime for count in counts]
        places, expected = (
            (torch.arange(count) // rows).view(
                [-1 if dim == self._example_dimension_of(x) else 1 for dim in range(x.dim())]
            )
            for x, count, rows in zip((tensor, view), counts, each, strict=True)
        )
        memory = torch.full((tensor.untyped_storage().nbytes() // tensor.itemsize,), -1)
        memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(places)
        seen = memory.as_strided(view.shape, view.stride(), view.storage_offset())
        return bool((seen == expected).all())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and check it."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - these accesses are not the model's
            inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            self._project_inputs(inputs)
            ours = [x for x in inputs if _storage_id(x) in self._derived]
            name = func.overloadpacket.__name__.strip("_")
            is_empty = name.startswith(("empty", "new_empty"))  # uninitialized memory
            orders = (
                self._find_row_orders(func, args, kwargs)
                if ours and self.is_independent and not is_empty
                else []
            )
            self.is_independent = (
                self.is_independent and orders is not None and not (ours and self._is_outside_calls(name))
            )
            state = torch.default_generator.get_state()
            out = func(*args, **kwargs)
            outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            for x in outputs if is_empty else outputs[1:] if name in _AUXILIARY_OUTPUTS else ():
                x.zero_()  # not a difference between examples
            if not torch.equal(state, torch.default_generator.get_state()):
                self.is_independent &= bool(outputs) and self._count_example_dimensions(outputs[0]) == 1
            for memory in map(_storage_id, _written_tensors(func, args, kwargs)):
                self.is_independent &= memory not in self._parameters
                self._projected.pop(memory, None)
            if ours:
                outputs = outputs[:1] if name in _AUXILIARY_OUTPUTS else outputs
                self._alive += outputs
                self._orders |= dict(zip(map(_view_key, outputs), orders or (), strict=False))
                self._derived |= {_storage_id(x) for x in outputs}
                apart = all(self._count_example_dimensions(x) == 1 for x in ours) and all(
                    self._count_example_dimensions(x) < 2 for x in inputs
                )
                self.is_independent &= (
                    apart
                    and name not in _MOVING_OPERATIONS
                    and self._avoids_example_dimension(name, args, kwargs)
                )
                self.is_independent &= name != "as_strided" or self._view_keeps_examples(args[0], outputs[0])
        return out

    def _is_outside_calls(self, name: str) -> bool:
        """True if an operation runs outside all recorded calls, as in compiled code."""
        return self.trace is not None and not self.trace.is_in_call and name not in _WRAPPER_OPERATIONS

    def _find_row_orders(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Order] | None:
        """See `find_row_orders`: the possible orders of examples in the outputs, for any values."""
        order, several = EITHER_ORDER, False
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor) and _storage_id(x) in self._derived:
                along = example_dimension(x, self._prime)
                if along is None:
                    return None
                if x.shape[along] > self._prime:
                    order &= self._orders.get(_view_key(x), EITHER_ORDER)
                several |= x.shape[along] > self._prime
        return find_row_orders(
            func,
            (args, kwargs),
            lambda x: _storage_id(x) in self._derived,
            self.project,
            self._prime,
            orders=order if several else _EXAMPLE_MAJOR,
        )

    def _avoids_example_dimension(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True if an operation along a dimension avoids the dimension of examples."""
        if name == "embedding":
            return _storage_id(args[0]) not in self._derived
        if name not in _DIMENSION_ARGUMENT:
            return True
        first, place = args[0], _DIMENSION_ARGUMENT[name]
        dims = args[place] if len(args) > place else kwargs.get("dim", kwargs.get("dims"))
        dims = [dims] if isinstance(dims, int) else dims
        if not isinstance(dims, (list, tuple)) or not dims:
            return False
        return all(first.shape[dim] % self._prime for dim in dims)


def _storage_id(tensor: Tensor) -> int:
    """The identity of its memory: a view derives from whatever its base derives from."""
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - the same for all tensors that share it
    return identity


def _view_key(tensor: Tensor) -> tuple[Any, ...]:
    """The identity of this view of its memory."""
    return _storage_id(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _written_tensors(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes into."""
    for place, declaration in enumerate(func._schema.arguments):  # noqa: SLF001 - torch's own declaration
        if declaration.alias_info is not None and declaration.alias_info.is_write:
            argument = args[place] if place < len(args) else kwargs.get(declaration.name)
            yield from (x for x in tree_leaves(argument) if isinstance(x, Tensor))


_WRAPPER_OPERATIONS = {"detach", "alias", "view"}
"""Operations of torch itself on the results of a function with its own backward."""

# Kernels that select, sort or count rows by value, or return a number to branch on.
_MOVING_OPERATIONS = {
    "index", "index_put", "index_put_impl", "unsafe_index", "nonzero", "masked_select", "masked_scatter",
    "take", "put", "unique_consecutive", "unique", "unique2", "unique_dim", "local_scalar_dense",
    "is_nonzero", "equal", "repeat_interleave", "bincount", "histc", "multinomial", "searchsorted",
    "bucketize", "set", "as_strided_scatter", "native_batch_norm", "native_batch_norm_legit",
    "cudnn_batch_norm", "batch_norm_with_update", "pack_padded_sequence",
}  # fmt: skip
# Kernels along a dimension, which must not be that of the examples: the position of this argument.
_DIMENSION_ARGUMENT = {
    **dict.fromkeys((
        "gather", "index_select", "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode",
        "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "flip",
        "safe_softmax", "fft_c2c", "fft_r2c", "fft_c2r", "scatter", "scatter_add", "scatter_reduce",
        "index_add", "index_copy", "index_fill", "index_reduce",
    ), 1),
    "roll": 2,
}  # fmt: skip
_DIMENSION_ARGUMENT |= {"topk": 2, "kthvalue": 2}
# Kernels with a second output, the sum of the labels' weights, which is unused if losses are not reduced.
_AUXILIARY_OUTPUTS = {"nll_loss_forward", "nll_loss2d_forward"}
