"""A dataset by privacy units, in microbatches of a public shape.

The data are tensors, arrays or a torch Dataset. An example that cannot be read, or has another shape, is
replaced by padding that contributes nothing: a bad example affects only itself.
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
from hubbub.training.batch_sampling import shuffle
from hubbub.unit import group_rows_by_unit

__all__ = ["Examples", "Microbatch"]

FetchExamples = Callable[[NDArray[np.int64]], tuple[list[Tensor], Tensor]]
"""Fetches the examples at these indices, with padding for −1 and for unreadable examples; and a mask of the
rest."""
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32}


@dataclass(frozen=True, eq=False)
class Microbatch:
    """A batch of public shape: units × m examples. Unused places are padding with weight 0."""

    batch: list[Tensor]
    weights: Tensor
    """Units × m: the weight of each example's loss within its unit."""
    is_present: Tensor
    """A mask of the places that hold a unit."""
    padding: list[Tensor]
    """One example of the same shape that belongs to nobody."""

    def keep_only(self, mask: Tensor) -> "Microbatch":
        """The same microbatch, with padding where the mask is false."""
        filled = [
            torch.where(mask.view(-1, *[1] * (x.dim() - 1)), x, padding)
            for x, padding in zip(self.batch, self.padding, strict=True)
        ]
        return replace(
            self, batch=filled, weights=self.weights * mask[:, None], is_present=self.is_present & mask
        )

    def padding_only(self, units: int) -> "Microbatch":
        """A microbatch of this many units, all padding."""
        here = slice(0, units)
        batch = [x[here] for x in self.batch]
        few = replace(self, batch=batch, weights=self.weights[here], is_present=self.is_present[here])
        return few.keep_only(torch.zeros_like(few.is_present))

    def select(self, position: int) -> "Microbatch":
        """The microbatch of this one unit."""
        here = slice(position, position + 1)
        batch = [x[here] for x in self.batch]
        return replace(self, batch=batch, weights=self.weights[here], is_present=self.is_present[here])


class Examples:
    """A dataset by units. The number of units is private: nothing shows it."""

    def __init__(
        self,
        data: Any,
        *,
        units: Any = None,
        examples_per_unit: int = 1,
        augmentations: int = 1,
        padding_example: Any = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.examples_per_unit = parse_integer(examples_per_unit, "examples_per_unit")
        self.augmentations = parse_integer(augmentations, "augmentations")
        self._fetch, count, self.padding = _source(data, padding_example, dtype)
        self.is_user_code = not _are_tensors(data)
        """True if a user's Dataset is run to read examples."""
        self._members: list[NDArray[np.int64]] | None = None
        self._count = count
        if units is not None:
            self._members = group_rows_by_unit(units, count)
            self._count = len(self._members)
        elif self.examples_per_unit > 1:
            raise InvalidInput(
                "examples_per_unit is given without units",
                why="it is not known which examples belong to the same unit",
                fix="pass units=, the key of each example",
            )

    @property
    def _unit_count(self) -> int:
        return self._count

    @property
    def width(self) -> int:
        """The number of examples of a unit in a microbatch, which is public."""
        return self.examples_per_unit * self.augmentations

    def microbatches(self, lot: NDArray[np.int64], size: int, multiple: int) -> Iterator[Microbatch]:
        """The lot, `size` units at a time; the last microbatch is padded to a multiple of `multiple`.

        An empty lot yields padding: the model's operations are checked at every step, whoever is in the lot.
        """
        for start in range(0, max(1, lot.size), size):
            part = lot[start : start + size]
            yield self._microbatch(part, max(1, -(-part.size // multiple)) * multiple)

    def _microbatch(self, units: NDArray[np.int64], size: int) -> Microbatch:
        """A microbatch of these units; −1 is padding."""
        places = np.full((size, self.examples_per_unit), -1)
        if self._members is None:
            places[: units.size, 0] = units
        else:
            for place, unit in enumerate(units):
                if unit < 0:
                    continue
                mine = self._members[unit]
                chosen = (
                    mine if mine.size <= self.examples_per_unit else shuffle(mine)[: self.examples_per_unit]
                )
                places[place, : chosen.size] = chosen
        batch, read = self._fetch(places.reshape(-1))
        if self.width == 1:
            return Microbatch([x[:, None] for x in batch], read.float()[:, None], read, self.padding)
        has = read.view(size, self.examples_per_unit)
        batch = [x.unflatten(0, (size, self.examples_per_unit)) for x in batch]
        weights = has / has.sum(1, keepdim=True).clamp_min(1)
        if self.augmentations > 1:
            batch = [x.repeat_interleave(self.augmentations, dim=1) for x in batch]
            weights = (weights / self.augmentations).repeat_interleave(self.augmentations, dim=1)
        return Microbatch(batch, weights.float(), has.any(1), self.padding)


def _source(data: Any, padding_example: Any, dtype: torch.dtype) -> tuple[FetchExamples, int, list[Tensor]]:
    """A function to fetch examples, their number, and padding of their shape."""
    if type(data) is TensorDataset:
        return _tensor_source(data.tensors, padding_example, dtype)
    if _are_tensors(data):
        return _tensor_source(
            [data] if isinstance(data, (Tensor, np.ndarray)) else data, padding_example, dtype
        )
    if isinstance(data, (IterableDataset, Mapping)) or not (
        hasattr(data, "__getitem__") and hasattr(data, "__len__")
    ):
        raise Unsupported(
            f"data is of type {type(data).__name__}",
            why="lots are drawn by index from all examples",
            fix="pass tensors, arrays, or a Dataset with a length",
        )
    return _dataset_source(data, padding_example)


def _are_tensors(data: Any) -> bool:
    if isinstance(data, (tuple, list)) and data:
        return all(isinstance(x, (Tensor, np.ndarray)) for x in data)
    return type(data) is TensorDataset or isinstance(data, (Tensor, np.ndarray))


def _tensor_source(
    arrays: Sequence[Any], padding_example: Any, dtype: torch.dtype
) -> tuple[FetchExamples, int, list[Tensor]]:
    tensors = [_tensor_from_numpy(x, dtype) if isinstance(x, np.ndarray) else x for x in arrays]
    lengths = {x.shape[0] if x.dim() else -1 for x in tensors}
    if len(lengths) != 1 or -1 in lengths:
        raise InvalidInput(
            "the tensors differ in length",
            why="the first dimension of each is the example",
            fix="pass tensors with the same number of rows",
        )
    if not all(_is_plain(x) for x in tensors):
        raise InvalidInput(
            "the tensors are not dense tensors on the CPU",
            why="examples are selected there",
            fix="pass dense tensors on the CPU",
        )
    tensors = [x.detach() for x in tensors]
    (count,) = lengths
    padding = [torch.zeros(x.shape[1:], dtype=x.dtype) for x in tensors]
    if padding_example is not None:
        padding = _parse_padding_example(padding_example)
        if len(padding) == len(tensors):
            padding = [_cast(x, like) for x, like in zip(padding, tensors, strict=True)]
        if [(x.shape, x.dtype) for x in padding] != [(x.shape[1:], x.dtype) for x in tensors]:
            raise InvalidInput(
                "padding_example does not have the shapes and types of the data",
                why="it fills unused places of a microbatch",
                fix="pass one tensor for each tensor of the data, without the first dimension",
            )

    def fetch(places: NDArray[np.int64]) -> tuple[list[Tensor], Tensor]:
        is_used = places >= 0
        if is_used.all():
            chosen = torch.from_numpy(places)
            return [x.index_select(0, chosen) for x in tensors], torch.from_numpy(is_used)
        used, chosen = torch.from_numpy(np.flatnonzero(is_used)), torch.from_numpy(places[is_used])
        batch = []
        for x, nobody in zip(tensors, padding, strict=True):
            filled = nobody.expand(places.size, *nobody.shape).clone()
            filled[used] = x[chosen]
            batch.append(filled)
        return batch, torch.from_numpy(is_used)

    return fetch, count, padding


def _tensor_from_numpy(x: NDArray[Any], dtype: torch.dtype) -> Tensor:
    """An array as a tensor; floats get the dtype of the model, because numpy's default is double."""
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _cast(x: Tensor, like: Tensor) -> Tensor:
    """Floats as the other's dtype; integers if the other's dtype can hold them all."""
    if x.is_floating_point() and like.is_floating_point():
        return x.to(like.dtype)
    if not {x.dtype, like.dtype} <= _INTEGERS:
        return x
    source, target = torch.iinfo(x.dtype), torch.iinfo(like.dtype)
    return x.to(like.dtype) if target.min <= source.min and source.max <= target.max else x


def _dataset_source(data: Any, padding_example: Any) -> tuple[FetchExamples, int, list[Tensor]]:
    if padding_example is None:
        raise InvalidInput(
            "the shape of an example is not known",
            why="no example is read before the run is charged, and microbatches are filled with padding",
            fix="pass padding_example=, a tuple or dictionary of tensors with the types and shapes of an "
            "example",
        )
    names = list(padding_example) if isinstance(padding_example, Mapping) else None
    padding = _parse_padding_example(padding_example)

    def fetch(places: NDArray[np.int64]) -> tuple[list[Tensor], Tensor]:
        rows, read = [], torch.zeros(places.size, dtype=torch.bool)
        for place, index in enumerate(places.tolist()):
            item = _read_example(data, index, padding, names) if index >= 0 else None
            rows.append(padding if item is None else item)
            read[place] = item is not None
        return [torch.stack(column) for column in zip(*rows, strict=True)], read

    return fetch, len(data), padding


def _parse_padding_example(padding_example: Any) -> list[Tensor]:
    parts = list(padding_example.values()) if isinstance(padding_example, Mapping) else padding_example
    try:
        padding = [torch.as_tensor(x).detach().clone() for x in parts]
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInput(
            "padding_example does not consist of tensors, or of values that convert to tensors",
            why="it fills unused places of a microbatch",
            fix="pass a tuple of tensors, or a dictionary of them",
        ) from None
    if not all(map(_is_plain, padding)):
        raise InvalidInput(
            "padding_example does not consist of dense tensors on the CPU",
            why="it fills unused places of a microbatch",
            fix="pass dense tensors on the CPU",
        )
    return padding


def _is_plain(part: Any) -> bool:
    return type(part) in {Tensor, nn.Parameter} and part.layout == torch.strided and part.device.type == "cpu"


def _read_example(
    data: Any, index: int, padding: Sequence[Tensor], names: Sequence[Any] | None
) -> list[Tensor] | None:
    """One example as tensors, or None if it cannot be read; which one that is stays private."""
    try:
        item: Any = data[index]
        collated = default_collate([item if names is None else [item[name] for name in names]])
        parts = collated if isinstance(collated, (tuple, list)) else [collated]
        if not all(map(_is_plain, parts)):
            return None
        example = [_cast(part[0].detach(), like) for part, like in zip(parts, padding, strict=True)]
        looks = [(x.shape, x.dtype) for x in example] == [(x.shape, x.dtype) for x in padding]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - also panics of libraries; whatever it is, it concerns one example
        return None
    return example if looks else None
