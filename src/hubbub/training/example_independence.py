"""Whether one operation keeps examples apart, whatever numbers it is given.

A batch that is followed once (`whose`) is followed with the weights, switches and schedules of that moment: a
filter along examples whose neighbours weigh nothing, or a mean that is multiplied by zero, mixes nothing yet.
So every operation is also tried by itself: all reals are made up, those of weights and constants too, and
those of one example are changed. What comes out may differ in the rows of that example alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from hubbub.training.isolation import restore_state, starting_from
from hubbub.training.layer_rules import Tape
from hubbub.training.operation_trace import OperationTrace, TraceRecorder, lasting_of
from hubbub.training.per_example_gradients import LayerRules, backwards

__all__ = [
    "EITHER",
    "PRIMES",
    "Order",
    "examples_are_independent",
    "far_apart",
    "kept_rows",
    "orders_of",
    "place_in",
]

Print = tuple[Any, Tensor]
"""Of a tensor: its shape, and a number for each place along the dimension of examples."""

_ROUNDING = 1e-6
"""Relative: less is no change. What one example adds to another's rows is far more somewhere on its way."""
_SCALE = 0.5
"""In the place of reals that are no tensors: neither nothing, nor so much that it hides the rest."""


Order = frozenset[bool]
"""How examples of several rows may lie along a dimension: one after another, or (True) all first rows."""
EITHER: Order = frozenset({False, True})


def orders_of(moved: Tensor, examples: int, place: int) -> Order:
    """The orders in which it was only one example's rows that moved."""
    blocks, rest = divmod(moved.numel(), examples)
    if rest:
        return frozenset()
    where = moved.nonzero()[:, 0]
    is_there = {False: where // max(1, blocks) == place, True: where % examples == place}
    return frozenset(order for order, there in is_there.items() if there.all())


def far_apart(numbers: Tensor, others: Tensor) -> Tensor:
    """Where they differ by more than rounding."""
    return (numbers - others).abs() > _ROUNDING * torch.maximum(numbers.abs().max(), others.abs().max())


def place_in(tensor: Tensor, examples: int) -> int | None:
    """The one dimension along which examples are counted."""
    found = [dim for dim, size in enumerate(tensor.shape) if size and size % examples == 0]
    return found[0] if len(found) == 1 else None


def kept_rows(
    func: Any,
    given: tuple[Any, Any],
    ours: Callable[[Tensor], bool],
    print_of: Callable[[Tensor], Print],
    examples: int,
    *,
    orders: Order,
) -> list[Order] | None:
    """The orders of examples in each tensor that comes out; None where their rows are not their own alone.

    Tried in made-up numbers, with what is given in one of these orders: at least in one it must be so.
    """
    before = torch.default_generator.get_state()
    try:
        found = [
            made
            for turned in sorted(orders)
            if (made := _made_in(func, given, ours, print_of, examples, turned=turned)) is not None
        ]
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, it was not found to keep them
        return None
    finally:
        torch.default_generator.set_state(before)
    return [frozenset().union(*same) for same in zip(*found, strict=True)] if found else None


def _made_in(
    func: Any,
    given: tuple[Any, Any],
    is_ours: Callable[[Tensor], bool],
    print_of: Callable[[Tensor], Print],
    examples: int,
    *,
    turned: bool,
) -> list[Order] | None:
    leaves, shape = tree_flatten(given)
    ours = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and is_ours(x)]
    place = examples // 2
    found: list[list[Order]] = []
    for scaled in (False, True) if any(type(x) is float for x in leaves) else (False,):
        prints = []
        for numbers in _tried(leaves, ours, examples, place, turned=turned, scaled=scaled):
            torch.default_generator.manual_seed(7)
            args, kwargs = tree_unflatten(numbers, shape)
            prints.append([print_of(x) for x in tree_leaves(func(*args, **kwargs)) if isinstance(x, Tensor)])
        found.append([_order(x, y, examples, place) for x, y in zip(*prints, strict=True)])
    made = [frozenset.intersection(*same) for same in zip(*found, strict=True)]
    return made if all(made) else None


def _order(one: Print, other: Print, examples: int, place: int) -> Order:
    """In which orders nothing but one example's rows moved; what has no rows of examples is seen to later."""
    (shape, numbers), (its_shape, others) = one, other
    if shape != its_shape:
        return frozenset()
    if torch.equal(numbers, others) or numbers.numel() == 1:
        return EITHER
    return orders_of(far_apart(numbers, others), examples, place)


def _tried(
    leaves: list[Any], ours: list[int], examples: int, place: int, *, turned: bool, scaled: bool
) -> Iterator[list[Any]]:
    """What the operation is given, with other numbers; then once more with one example changed."""
    torch.default_generator.manual_seed(5)
    once, again = list(leaves), list(leaves)
    for number, x in enumerate(leaves):
        if scaled and type(x) is float:
            once[number] = again[number] = _SCALE
        elif isinstance(x, Tensor) and not (x.is_floating_point() and x.numel()):
            once[number], again[number] = x.clone(), x.clone()
        elif isinstance(x, Tensor):
            memory = _made_up(
                1 + sum((size - 1) * step for size, step in zip(x.shape, x.stride(), strict=True)), x
            )
            other = memory.clone()
            if number in ours:
                _change(other, x, examples, place, turned=turned)
            once[number], again[number] = (m.as_strided(x.shape, x.stride()) for m in (memory, other))
    return iter((once, again))


def _made_up(count: int, like: Tensor) -> Tensor:
    """Above zero and at most one: every function of reals can be computed there, and differs."""
    return torch.rand(count, dtype=torch.float64).mul_(0.75).add_(0.25).to(like.dtype)


def _change(memory: Tensor, like: Tensor, examples: int, place: int, *, turned: bool) -> None:
    """Other numbers for one example, where it is in the memory of such a tensor."""
    along = place_in(like, examples)
    assert along is not None
    # What is repeated is there once.
    sizes = [1 if step == 0 else size for size, step in zip(like.shape, like.stride(), strict=True)]
    each = like.shape[along] // examples
    rows = slice(place, None, examples) if turned else slice(place * each, (place + 1) * each)
    seen = memory.as_strided(sizes, like.stride())
    if sizes[along] > 1:
        part = seen.movedim(along, 0)[rows]
        part.copy_(_made_up(part.numel(), like).view(part.shape))


# Whether the rows of a batch stay whose they are, whatever examples hold: followed through a model.
#
# Rules for layers (`layers`) take row block j for example j. That holds where the same operations run for all
# examples, and none of them moves rows by what is in them, or brings rows of different examples together. So
# a batch of a prime number of examples is followed through the model and back, operation by operation: which
# tensors are made of examples, and along which one dimension examples are counted, as that alone is a
# multiple
# of the prime. Once more with one example changed: then nothing else may change that any operation is given,
# nor what rules make of any other example. And every operation is tried by itself on other numbers
# (`operations`), as weights, switches and schedules will be others at later steps. What is not found so is
# not
# wrong: its gradients are then found example by example. What is found so is written down (`program`), and
# every step is compared with it.
#
# Proved in docs/proofs/dpsgd.md, "What is assumed", 3

PRIMES = (7, 11, 13, 17, 19, 23)
"""Numbers of examples that are tried: hidden sizes may be multiples of some."""
_ENOUGH = 2
"""With so many of them it must be found so: a lost dimension could be mistaken for another once."""


def examples_are_independent(way: LayerRules, batches: Iterable[Sequence[Tensor]]) -> OperationTrace | None:
    """What is done to these batches, each of a prime number of examples, if rows stay with their examples."""
    found: list[TraceRecorder] = []
    for batch in batches:
        # Another example, and another change, each time.
        place = (1, batch[0].shape[0] - 3)[len(found) % 2]
        heard = _stay(way, list(batch), place, is_blank=len(found) % 2 == 1)
        found += [] if heard is None else [heard]
        if len(found) == _ENOUGH:
            return OperationTrace.of(*found)
    return None


def _stay(way: LayerRules, batch: list[Tensor], place: int, *, is_blank: bool) -> TraceRecorder | None:
    changed = [x.clone() for x in batch]
    for number, x in enumerate(changed):
        x[place] = 0 if is_blank else _another(x[place], number in way.objective.within_one)
    try:
        with torch.no_grad(), restore_state(way.objective, weights=True):
            way.objective(*[x.clone() for x in batch])  # what is made once, and kept for good, is made now
        first, other = _followed(way, batch), _followed(way, changed)
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, it was not followed
        return None
    if first is None or other is None or first[1].calls != other[1].calls:
        return None
    return first[1] if _is_alone(first[0], other[0], batch[0].shape[0], place) else None


def _another(x: Tensor, within_one: bool) -> Tensor:  # noqa: FBT001 - ours alone
    if x.is_floating_point():
        another = torch.randn_like(x)
        return another.sigmoid() if within_one else another
    return ~x if x.dtype == torch.bool else 1 - x


def _followed(way: LayerRules, batch: list[Tensor]) -> tuple[list[Print], TraceRecorder] | None:
    """What every operation was given there and back, and what rules made of it; None where rows may move."""
    given = [x.clone() for x in batch]
    tape, objective = _Sites(batch[0].shape[0]), way.objective
    with starting_from(5), restore_state(objective, weights=True):
        followed = _Followed(given, [*objective.parameters(), *objective.buffers()])
        heard = _Heard(given, lasting_of(objective), followed.refuse_made)
        followed.heard = heard
        with followed, way._recording(tape, heard), heard:  # noqa: SLF001 - as gradients are found
            losses = objective(*given)
        heard.unknown = followed.heard = None  # on the way back there is hardly any Python
        edges = [edge for site in tape.sites for edge in site.edges]
        shares = torch.ones(losses.shape, dtype=losses.dtype)
        with followed, heard:
            back = backwards(losses, edges, shares) if edges and losses.requires_grad else ()
    if not followed.stays or heard.was_read or not followed.is_by_example(losses):
        return None
    with torch.no_grad():
        made = [piece.squares for pieces, outputs in tape.made for _, piece in pieces(*outputs)]
        ends = [losses.detach(), *(x for x in back if x is not None), *map(torch.from_numpy, made)]
        return followed.prints + [followed.print_of(x) for x in ends], heard


class _Heard(TraceRecorder):
    """Also whether a call is being made: what runs between calls is hidden from those who listen to them."""

    within = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """As `TraceRecorder`."""
        self.within = True
        try:
            return super().__torch_function__(func, types, args, kwargs)
        finally:
            self.within = False

    def layer(self, *args: Any, **kwargs: Any) -> Any:
        """As `TraceRecorder`."""
        before, self.within = self.within, True
        try:
            return super().layer(*args, **kwargs)
        finally:
            self.within = before


class _Sites(Tape):
    """A tape that has layers' outputs stand for their gradients: rules are tried on them."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.made: list[tuple[Any, list[Tensor]]] = []

    def at(self, outputs: Iterable[Tensor], pieces: Any) -> None:
        """As `Tape`."""
        kept = list(outputs)
        self.made.append((pieces, [output.detach() + 1 for output in kept]))
        super().at(kept, pieces)


def _is_alone(first: list[Print], other: list[Print], prime: int, place: int) -> bool:
    """Whether nothing differs but what is made of the example that was changed."""
    if [shape for shape, _ in first] != [shape for shape, _ in other]:
        return False
    return all(
        bool(torch.equal(numbers, others) or orders_of(far_apart(numbers, others), prime, place))
        for (_, numbers), (_, others) in zip(first, other, strict=True)
    )


_FIRST: Order = frozenset({False})


class _Followed(TorchDispatchMode):
    """Which tensors are made of examples, and whether an operation brought examples together."""

    def __init__(self, batch: list[Tensor], lasting: list[Tensor]) -> None:
        super().__init__()
        self._prime = batch[0].shape[0]
        self._kept = [*batch, *lasting]
        self._made = {_memory(x) for x in batch}
        self._lasting = {_memory(x) for x in lasting}
        self.stays = True
        self.heard: _Heard | None = None
        """Who listens to calls, while all operations must be theirs."""
        self.prints: list[Print] = []
        self._printed: dict[int, set[Any]] = {}
        self._signs: dict[int, Tensor] = {}
        self._orders: dict[Any, Order] = {}
        """Of tensors with several rows for each example: the order that these may be in."""

    def is_by_example(self, tensor: Tensor) -> bool:
        """Whether it is made of examples, and has just one dimension along which they are counted."""
        return _memory(tensor) in self._made and self._counted(tensor) == 1

    def refuse_made(self, tensor: Tensor) -> None:
        """What is made of examples, and nobody heard of, may be made of others next time."""
        self.stays &= _memory(tensor) not in self._made

    def print_of(self, tensor: Tensor) -> Print:
        """Enough of a tensor to see where it differs from another: of each example, if these are counted."""
        if self._counted(tensor) == 1:
            along = self._along(tensor)
            rows = tensor.detach().movedim(along, 0).reshape(tensor.shape[along], -1)
        else:
            rows = tensor.detach().reshape(1, -1)
        rows = torch.view_as_real(rows).flatten(1) if rows.is_complex() else rows
        length = rows.shape[1]
        if length not in self._signs:
            self._signs[length] = torch.arange(1, length + 1, dtype=torch.float64).mul_(1.7).cos_()
        rows = rows.to(torch.float64).nan_to_num(nan=3.0, posinf=5.0, neginf=-7.0)
        return tensor.shape, rows @ self._signs[length]

    def _look(self, given: list[Tensor]) -> None:
        """Take prints of what an operation is given, once for as long as nobody writes into it."""
        for tensor in given:
            memory, *part = _part(tensor)
            known = self._printed.setdefault(memory, set())
            if memory not in self._lasting and tuple(part) not in known:
                known.add(tuple(part))
                self._kept.append(tensor)
                self.prints.append(self.print_of(tensor))

    def _counted(self, tensor: Tensor) -> int:
        return sum(size % self._prime == 0 for size in tensor.shape if size)

    def _along(self, tensor: Tensor) -> int:
        return next(dim for dim, size in enumerate(tensor.shape) if size and size % self._prime == 0)

    def _is_seen_alike(self, tensor: Tensor, view: Tensor) -> bool:
        """Whether the places of examples in a view are theirs in what it is of.

        With as many rows for each they are in the same order; else one example comes after another.
        """
        if self._counted(view) != 1:
            return False
        counts = [x.shape[self._along(x)] for x in (tensor, view)]
        if counts[0] != counts[1] and False not in self._orders.get(_part(tensor), EITHER):
            return False
        each = [1 if counts[0] == counts[1] else count // self._prime for count in counts]
        places, wanted = (
            (torch.arange(count) // rows).view([-1 if dim == self._along(x) else 1 for dim in range(x.dim())])
            for x, count, rows in zip((tensor, view), counts, each, strict=True)
        )
        memory = torch.full((tensor.untyped_storage().nbytes() // tensor.itemsize,), -1)
        memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(places)
        seen = memory.as_strided(view.shape, view.stride(), view.storage_offset())
        return bool((seen == wanted).all())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it, and look at what it was."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - what is looked at here, the model has not read
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            self._look(given)
            ours = [x for x in given if _memory(x) in self._made]
            name = func.overloadpacket.__name__.strip("_")
            is_empty = name.startswith(("empty", "new_empty"))  # and holds whatever was in memory
            orders = self._kept_rows(func, args, kwargs) if ours and self.stays and not is_empty else []
            self.stays = self.stays and orders is not None and not (ours and self._is_hidden(name))
            drawn = torch.default_generator.get_state()
            out = func(*args, **kwargs)
            made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
            for x in made if is_empty else made[1:] if name in _BESIDE else ():
                x.zero_()  # what it holds is no difference
            if not torch.equal(drawn, torch.default_generator.get_state()):
                self.stays &= bool(made) and self._counted(made[0]) == 1
            for memory in map(_memory, _written(func, args, kwargs)):
                self.stays &= memory not in self._lasting
                self._printed.pop(memory, None)
            if ours:
                made = made[:1] if name in _BESIDE else made
                self._kept += made
                self._orders |= dict(zip(map(_part, made), orders or (), strict=False))
                self._made |= {_memory(x) for x in made}
                apart = all(self._counted(x) == 1 for x in ours) and all(self._counted(x) < 2 for x in given)
                self.stays &= apart and name not in _MOVING and self._is_within(name, args, kwargs)
                self.stays &= name != "as_strided" or self._is_seen_alike(args[0], made[0])
        return out

    def _is_hidden(self, name: str) -> bool:
        """Whether it runs where no call is being made, as in compiled code."""
        return self.heard is not None and not self.heard.within and name not in _WRAPPING

    def _kept_rows(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Order] | None:
        """As `kept_rows`: in which order examples come out of it, whatever numbers it is given."""
        order, several = EITHER, False
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor) and _memory(x) in self._made:
                along = place_in(x, self._prime)
                if along is None:
                    return None
                if x.shape[along] > self._prime:
                    order &= self._orders.get(_part(x), EITHER)
                several |= x.shape[along] > self._prime
        return kept_rows(
            func,
            (args, kwargs),
            lambda x: _memory(x) in self._made,
            self.print_of,
            self._prime,
            orders=order if several else _FIRST,
        )

    def _is_within(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what looks along a dimension does not look along that of the examples."""
        if name == "embedding":
            return _memory(args[0]) not in self._made
        if name not in _ALONG:
            return True
        first, place = args[0], _ALONG[name]
        dims = args[place] if len(args) > place else kwargs.get("dim", kwargs.get("dims"))
        dims = [dims] if isinstance(dims, int) else dims
        if not isinstance(dims, (list, tuple)) or not dims:
            return False
        return all(first.shape[dim] % self._prime for dim in dims)


def _memory(tensor: Tensor) -> int:
    """Where its numbers are: a part of a tensor is made of what the whole is made of."""
    found: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - the same for all that share it
    return found


def _part(tensor: Tensor) -> tuple[Any, ...]:
    """Which part of which memory it is."""
    return _memory(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """What an operation writes into."""
    for place, said in enumerate(func._schema.arguments):  # noqa: SLF001 - what torch says of it
        if said.alias_info is not None and said.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(said.name)
            yield from (x for x in tree_leaves(given) if isinstance(x, Tensor))


_WRAPPING = {"detach", "alias", "view"}
"""What torch itself does with the results of a function that has a backward of its own."""

# By the names of kernels: what picks, sorts or counts rows anywhere, or asks for a number to branch on;
_MOVING = {
    "index", "index_put", "index_put_impl", "unsafe_index", "nonzero", "masked_select", "masked_scatter",
    "take", "put", "unique_consecutive", "unique", "unique2", "unique_dim", "local_scalar_dense",
    "is_nonzero", "equal", "repeat_interleave", "bincount", "histc", "multinomial", "searchsorted",
    "bucketize", "set", "as_strided_scatter", "native_batch_norm", "native_batch_norm_legit",
    "cudnn_batch_norm", "batch_norm_with_update", "pack_padded_sequence",
}  # fmt: skip
# what looks along a dimension, which must not be that of the examples: where its name is found;
_ALONG = {
    **dict.fromkeys((
        "gather", "index_select", "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode",
        "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "flip",
        "safe_softmax", "fft_c2c", "fft_r2c", "fft_c2r", "scatter", "scatter_add", "scatter_reduce",
        "index_add", "index_copy", "index_fill", "index_reduce",
    ), 1),
    "roll": 2,
}  # fmt: skip
_ALONG |= {"topk": 2, "kthvalue": 2}
# and what gives the sum of the labels' weights beside, which is nothing where losses are not added up.
_BESIDE = {"nll_loss_forward", "nll_loss2d_forward"}
