"""Examples as a trainer wants them: units, in chunks of one public shape.

Tensors, arrays, or a torch Dataset. What depends on one example stays with it: one that cannot be read, or
is of another shape, is a blank that adds nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset, default_collate

from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import parse_integer
from hubbub.training.batch_sampling import _shuffled
from hubbub.unit import group_rows_by_unit

__all__ = ["Examples", "Microbatch"]

Fetch = Callable[[NDArray[np.int64]], tuple[list[Tensor], Tensor]]
"""The examples at these places, blanks for −1 and what cannot be read; and which there are."""
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32}


@dataclass(frozen=True, eq=False)
class Microbatch:
    """A batch of public shape: units × m examples; unused places are blank, and weigh nothing."""

    batch: list[Tensor]
    weights: Tensor
    """Units × m: what each example's loss counts for in its unit's."""
    good: Tensor
    """Which places hold a unit."""
    blank: list[Tensor]
    """One example of the shape, of nobody."""

    def only(self, here: Tensor) -> "Microbatch":
        """The same with blanks everywhere else."""
        filled = [
            torch.where(here.view(-1, *[1] * (x.dim() - 1)), x, blank)
            for x, blank in zip(self.batch, self.blank, strict=True)
        ]
        return replace(self, batch=filled, weights=self.weights * here[:, None], good=self.good & here)

    def blanks(self, units: int) -> "Microbatch":
        """Nobody, in as many places of it."""
        here = slice(0, units)
        batch = [x[here] for x in self.batch]
        few = replace(self, batch=batch, weights=self.weights[here], good=self.good[here])
        return few.only(torch.zeros_like(few.good))

    def at(self, place: int) -> "Microbatch":
        """One unit of it, and nothing else."""
        here = slice(place, place + 1)
        batch = [x[here] for x in self.batch]
        return replace(self, batch=batch, weights=self.weights[here], good=self.good[here])


class Examples:
    """A data set, by units. How many there are is private: nothing shows it."""

    def __init__(
        self,
        data: Any,
        *,
        units: Any = None,
        per_unit: int = 1,
        copies: int = 1,
        example: Any = None,
        kind: torch.dtype = torch.float32,
    ) -> None:
        self.per_unit = parse_integer(per_unit, "per_unit")
        self.copies = parse_integer(copies, "copies")
        self._fetch, count, self.blank = _source(data, example, kind)
        self.is_code = not _are_tensors(data)
        """Whether somebody else's code gives the examples."""
        self._members: list[NDArray[np.int64]] | None = None
        self._count = count
        if units is not None:
            self._members = group_rows_by_unit(units, count)
            self._count = len(self._members)
        elif self.per_unit > 1:
            raise InvalidInput(
                "per_unit is given without units",
                why="nobody could say which examples are one person's",
                fix="pass units=, the key of each example",
            )

    @property
    def _units(self) -> int:
        return self._count

    @property
    def width(self) -> int:
        """Examples that a unit has in a chunk: public."""
        return self.per_unit * self.copies

    def chunks(self, lot: NDArray[np.int64], size: int, grain: int) -> Iterator[Microbatch]:
        """The lot, `size` units at a time; the last chunk is filled up with blanks to a multiple of grain.

        An empty lot is blanks: what a model does is looked at in every step, whoever is in it.
        """
        for start in range(0, max(1, lot.size), size):
            part = lot[start : start + size]
            yield self._chunk(part, max(1, -(-part.size // grain)) * grain)

    def _chunk(self, units: NDArray[np.int64], size: int) -> Microbatch:
        """A chunk of these units; −1 is a blank."""
        places = np.full((size, self.per_unit), -1)
        if self._members is None:
            places[: units.size, 0] = units
        else:
            for place, unit in enumerate(units):
                if unit < 0:
                    continue
                mine = self._members[unit]
                chosen = mine if mine.size <= self.per_unit else _shuffled(mine)[: self.per_unit]
                places[place, : chosen.size] = chosen
        batch, read = self._fetch(places.reshape(-1))
        if self.width == 1:
            return Microbatch([x[:, None] for x in batch], read.float()[:, None], read, self.blank)
        has = read.view(size, self.per_unit)
        batch = [x.unflatten(0, (size, self.per_unit)) for x in batch]
        weights = has / has.sum(1, keepdim=True).clamp_min(1)
        if self.copies > 1:
            batch = [x.repeat_interleave(self.copies, dim=1) for x in batch]
            weights = (weights / self.copies).repeat_interleave(self.copies, dim=1)
        return Microbatch(batch, weights.float(), has.any(1), self.blank)


def _source(data: Any, example: Any, kind: torch.dtype) -> tuple[Fetch, int, list[Tensor]]:
    """How to fetch examples, how many there are, and a blank of their shape."""
    if type(data) is TensorDataset:
        return _tensors(data.tensors, example, kind)
    if _are_tensors(data):
        return _tensors([data] if isinstance(data, (Tensor, np.ndarray)) else data, example, kind)
    if isinstance(data, (IterableDataset, Mapping)) or not (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        raise Unsupported(
            f"data is of type {type(data).__name__}",
            why="a lot is drawn from all examples by their number, none before another",
            fix="pass tensors, arrays, or a Dataset with a length",
        )
    return _items(data, example)


def _are_tensors(data: Any) -> bool:
    if isinstance(data, (tuple, list)) and data:
        return all(isinstance(x, (Tensor, np.ndarray)) for x in data)
    return type(data) is TensorDataset or isinstance(data, (Tensor, np.ndarray))


def _tensors(given: Sequence[Any], example: Any, kind: torch.dtype) -> tuple[Fetch, int, list[Tensor]]:
    tensors = [_of_numpy(x, kind) if isinstance(x, np.ndarray) else x for x in given]
    lengths = {x.shape[0] if x.dim() else -1 for x in tensors}
    if len(lengths) != 1 or -1 in lengths:
        raise InvalidInput(
            "the tensors are not of one length",
            why="the first dimension of each counts the examples",
            fix="pass tensors with as many rows each",
        )
    if not all(_is_plain(x) for x in tensors):
        raise InvalidInput(
            "the tensors are not plain ones on the processor",
            why="examples are picked from them there",
            fix="pass dense tensors on the CPU",
        )
    tensors = [x.detach() for x in tensors]
    (count,) = lengths
    blank = [torch.zeros(x.shape[1:], dtype=x.dtype) for x in tensors]
    if example is not None:
        blank = _as_blank(example)
        if len(blank) == len(tensors):
            blank = [_cast(x, like) for x, like in zip(blank, tensors, strict=True)]
        if [(x.shape, x.dtype) for x in blank] != [(x.shape[1:], x.dtype) for x in tensors]:
            raise InvalidInput(
                "example is not of the shapes and types of the data",
                why="it stands where no example is",
                fix="pass one tensor for each of the data's, without the first dimension",
            )

    def fetch(places: NDArray[np.int64]) -> tuple[list[Tensor], Tensor]:
        is_used = places >= 0
        if is_used.all():
            chosen = torch.from_numpy(places)
            return [x.index_select(0, chosen) for x in tensors], torch.from_numpy(is_used)
        used, chosen = torch.from_numpy(np.flatnonzero(is_used)), torch.from_numpy(places[is_used])
        batch = []
        for x, nobody in zip(tensors, blank, strict=True):
            filled = nobody.expand(places.size, *nobody.shape).clone()
            filled[used] = x[chosen]
            batch.append(filled)
        return batch, torch.from_numpy(is_used)

    return fetch, count, blank


def _of_numpy(x: NDArray[Any], kind: torch.dtype) -> Tensor:
    """An array as a tensor; numpy's floats are doubles as a rule, and become what the model is made of."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(kind) if tensor.is_floating_point() else tensor


def _cast(x: Tensor, like: Tensor) -> Tensor:
    """Floats as the other's are, integers if they are kept in no more than the other's."""
    if x.is_floating_point() and like.is_floating_point():
        return x.to(like.dtype)
    if not {x.dtype, like.dtype} <= _INTEGERS:
        return x
    given, kept = torch.iinfo(x.dtype), torch.iinfo(like.dtype)
    return x.to(like.dtype) if kept.min <= given.min and given.max <= kept.max else x


def _items(data: Any, example: Any) -> tuple[Fetch, int, list[Tensor]]:
    if example is None:
        raise InvalidInput(
            "what an example looks like is not known",
            why="no example is read before the run is charged, and chunks are filled up with blanks",
            fix="pass example=, a tuple of tensors of the right types and shapes, or a dictionary of them",
        )
    names = list(example) if isinstance(example, Mapping) else None
    blank = _as_blank(example)

    def fetch(places: NDArray[np.int64]) -> tuple[list[Tensor], Tensor]:
        rows, read = [], torch.zeros(places.size, dtype=torch.bool)
        for place, index in enumerate(places.tolist()):
            item = _read(data, index, blank, names) if index >= 0 else None
            rows.append(blank if item is None else item)
            read[place] = item is not None
        return [torch.stack(column) for column in zip(*rows, strict=True)], read

    return fetch, len(data), blank


def _as_blank(example: Any) -> list[Tensor]:
    parts = list(example.values()) if isinstance(example, Mapping) else example
    try:
        blank = [torch.as_tensor(x).detach().clone() for x in parts]
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            "example is not of tensors, nor of what they are made of",
            why="it stands where no example is",
            fix="pass a tuple of tensors, or a dictionary of them",
        ) from None
    if not all(map(_is_plain, blank)):
        raise InvalidInput(
            "example is not of plain tensors on the processor",
            why="it stands where no example is",
            fix="pass dense tensors on the CPU",
        )
    return blank


def _is_plain(part: Any) -> bool:
    return type(part) in {Tensor, nn.Parameter} and part.layout == torch.strided and part.device.type == "cpu"


def _read(data: Any, index: int, blank: Sequence[Tensor], names: Sequence[Any] | None) -> list[Tensor] | None:
    """One example as tensors; None where it cannot be read: which one that is stays private."""
    try:
        item: Any = data[index]
        collated = default_collate([item if names is None else [item[name] for name in names]])
        parts = collated if isinstance(collated, (tuple, list)) else [collated]
        if not all(map(_is_plain, parts)):
            return None
        found = [_cast(part[0].detach(), like) for part, like in zip(parts, blank, strict=True)]
        looks = [(x.shape, x.dtype) for x in found] == [(x.shape, x.dtype) for x in blank]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - also a library's panic; whatever it is, it is about one example
        return None
    return found if looks else None
