"""Whether one operation keeps examples apart, whatever numbers it is given.

A batch that is followed once (`whose`) is followed with the weights, switches and schedules of that moment: a
filter along examples whose neighbours weigh nothing, or a mean that is multiplied by zero, mixes nothing yet.
So every operation is also tried by itself: all reals are made up, those of weights and constants too, and
those of one example are changed. What comes out may differ in the rows of that example alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

__all__ = ["EITHER", "Order", "far_apart", "kept_rows", "orders_of", "place_in"]

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
