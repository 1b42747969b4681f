"""Operation traces: the calls of torch's functions on a batch, compared at every step with those checked.

`example_independence` checks before the run that the calls of the model, the loss and the augmentation keep
examples independent: which functions, on which tensors, along which dimensions. User code may do something
else later: a counter, a schedule, a file or the time may switch on mix-up or batch centring at the third
epoch. So the calls of every microbatch are recorded and compared. The same functions on the same operands,
with
the same integers, in the same order are the same program, which keeps examples independent for any values.
Gradients of any other program are not used.

What is compared:

    tensors   by origin: an input, a weight, the result of an earlier call, or external
    integers  dimensions, sizes, positions: as a + b·(examples), inferred from two batch sizes
    reals     not compared between steps, because they scale values but do not route them; within a lot they
              must not change, nor must the values of external tensors, or an example's gradient would depend
              on its microbatch
    layers    a layer with a rule (`layer_rules`) is one call, with all its settings

Proof: docs/proofs/dpsgd.md, "Every step is checked"
"""

import itertools
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = [
    "OperationTrace",
    "Settings",
    "TraceChanged",
    "TraceRecorder",
    "ValuesChanged",
    "name_tensors",
    "settings_of",
]

CallDescription = Any
"""A call in the form that is compared: a nested tuple."""


class Settings(NamedTuple):
    """Getters for a layer's settings."""

    integers: Callable[[Any], Any]
    reals: Callable[[Any], Any] | None
    """Such as the ε of a normalization; None if there are none."""


_serials = itertools.count()
_MARK = "_hubbub_made"
"""The attribute of a tensor that names the call that made it."""
_NUMBER = "\0number"
_OUTSIDE = "\0outside"
_EARLIER_MICROBATCH = "\0earlier"
_result_names = [f"\0{n}" for n in range(1 << 10)]


class TraceChanged(BaseException):
    """The model's operations are not the expected ones. Not an `Exception`: no example raised it."""


class ValuesChanged(BaseException):
    """Constants of the model differ from those in the lot's first microbatch."""


@dataclass(frozen=True)
class _AffineSize:
    """An integer that depends on the number of examples."""

    start: int
    slope: int


@dataclass(eq=False)
class OperationTrace:
    """The calls that were checked, for batches of any size."""

    calls: tuple[CallDescription, ...]
    named_tensors: Mapping[int, str]
    """Names of weights and buffers, by id."""
    _calls_by_size: dict[int, list[CallDescription]] = field(default_factory=dict)

    @classmethod
    def of(cls, first: "TraceRecorder", other: "TraceRecorder") -> "OperationTrace | None":
        """The common form of the traces of two batch sizes; None if they differ."""
        try:
            calls = _generalize(tuple(first.calls), tuple(other.calls), first.examples, other.examples)
        except _TracesDifferError:
            return None
        return cls(calls, first.named_tensors)

    def calls_for(self, examples: int) -> list[CallDescription]:
        """The calls for this number of examples."""
        if examples not in self._calls_by_size:
            self._calls_by_size[examples] = [_instantiate(call, examples) for call in self.calls]
        return self._calls_by_size[examples]

    def matches(self, seen: "TraceRecorder") -> bool:
        """True if these are the calls that were checked."""
        return seen.calls == self.calls_for(seen.examples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperationTrace) and self.calls == other.calls

    __hash__ = None  # type: ignore[assignment]


class _TracesDifferError(Exception):
    """Two batches were not processed by the same calls."""


def _generalize(one: CallDescription, other: CallDescription, size: int, other_size: int) -> CallDescription:
    if type(one) is int and type(other) is int and one != other:
        slope, rest = divmod(one - other, size - other_size)
        if rest:
            raise _TracesDifferError
        return _AffineSize(one - slope * size, slope)
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return tuple(_generalize(a, b, size, other_size) for a, b in zip(one, other, strict=True))
    if type(one) is not type(other) or one != other:
        raise _TracesDifferError
    return one


def _instantiate(call: CallDescription, examples: int) -> CallDescription:
    if type(call) is _AffineSize:
        return call.start + call.slope * examples
    return tuple(_instantiate(part, examples) for part in call) if type(call) is tuple else call


class TraceRecorder(TorchFunctionMode):
    """Records every call of torch's functions, and the origin of each operand.

    `on_external_tensor` is called with external tensors that a call of the forward pass gets.
    """

    def __init__(
        self,
        batch: Sequence[Tensor],
        named_tensors: Mapping[int, str],
        on_external_tensor: Callable[[Tensor], None] | None = None,
    ) -> None:
        super().__init__()
        self.examples = batch[0].shape[0]
        self.named_tensors = named_tensors
        self.calls: list[CallDescription] = []
        self.real_values: list[float] = []
        self.external_tensors: list[Tensor] | None = []
        """Tensors that no call made, in the forward pass; None in the backward pass, in which gradients are
        such."""
        self.values_were_read = False
        """True if Python code read values of a tensor: it could then do anything with them."""
        self.on_external_tensor = on_external_tensor
        self._serial = next(_serials)
        self._results = 0
        self._is_in_layer = False
        for x in batch:
            self._mark(x)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record the call, and run it."""
        known = _function_kinds.get(func)
        kind = _function_kind(func) if known is None else known
        if kind is _METADATA:
            return func(*args, **kwargs) if kwargs else func(*args)
        self.values_were_read |= kind is _READING
        description = self._describe_as_reals(args) if kind is _SCALING else self._describe(args)
        self.calls.append((func, description, self._describe(kwargs) if kwargs else None))
        out = func(*args, **kwargs) if kwargs else func(*args)
        self._mark_outputs(out)
        return out

    def layer(
        self,
        number: int,
        settings: Settings,
        module: nn.Module,
        run: Callable[..., Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Record a layer with a rule as one call: what happens inside is known."""
        integers = settings.integers(module)
        if settings.reals is not None:
            self._describe(settings.reals(module))
        own = module._parameters.values()  # noqa: SLF001 - faster than parameters()
        parameters = tuple([p if p is None else self._describe_tensor(p) for p in own])
        if self._is_in_layer:
            # A layer inside a layer: its inputs are made there.
            self.calls.append((number, integers, parameters))
            return run(*args, **kwargs)
        self.calls.append((number, integers, parameters, self._describe(args), self._describe(kwargs)))
        self._is_in_layer = True
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - its calls are not the model's
                out = run(*args, **kwargs)
        finally:
            self._is_in_layer = False
        self._mark_outputs(out)
        return out

    def _describe(self, value: Any) -> CallDescription:
        kind = type(value)
        if kind in _COMPARED_TYPES:
            return value
        if kind is float:
            self.real_values.append(value)
            return _NUMBER
        if isinstance(value, Tensor):
            return self._describe_tensor(value)
        if isinstance(value, (tuple, list)):
            return tuple([self._describe(part) for part in value])
        if kind is slice:
            return (
                "slice",
                self._describe(value.start),
                self._describe(value.stop),
                self._describe(value.step),
            )
        if isinstance(value, dict):
            return tuple([(name, self._describe(value[name])) for name in sorted(value, key=str)])
        if isinstance(value, np.integer):
            return int(value)
        if isinstance(value, (np.floating, complex)):
            self.real_values += [float(value.real), float(value.imag)]
            return _NUMBER
        return kind

    def _describe_as_reals(self, args: tuple[Any, ...]) -> CallDescription:
        """In sums and products, integers are treated as reals."""
        return self._describe(tuple([float(x) if type(x) is int else x for x in args]))

    def _describe_tensor(self, tensor: Tensor) -> CallDescription:
        mark = getattr(tensor, _MARK, None)
        if mark is not None:
            # A result of an earlier microbatch would bring its examples here.
            return mark[1] if mark[0] == self._serial else _EARLIER_MICROBATCH
        name = self.named_tensors.get(id(tensor))
        if name is not None:
            return name
        if self.on_external_tensor is not None:
            self.on_external_tensor(tensor)
        if self.external_tensors is not None:
            self.external_tensors.append(tensor)
        return (_OUTSIDE, tensor.dtype, tuple(tensor.shape))

    def _mark_outputs(self, out: Any) -> None:
        if isinstance(out, Tensor):
            self._mark(out)
        elif isinstance(out, (tuple, list)):
            for part in out:
                self._mark_outputs(part)

    def _mark(self, tensor: Tensor) -> None:
        if id(tensor) not in self.named_tensors:
            self._results += 1
            while self._results >= len(_result_names):
                _result_names.append(f"\0{len(_result_names)}")
            setattr(tensor, _MARK, (self._serial, _result_names[self._results]))

    @property
    def reals(self) -> bytes:
        """All reals that calls got."""
        return array("d", self.real_values).tobytes()


def name_tensors(module: nn.Module) -> dict[int, str]:
    """Names of all weights and buffers."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    return {id(tensor): f"\0parameter {number}" for number, tensor in enumerate(tensors)}


def settings_of(module: nn.Module) -> Settings:
    """Getters for all of a layer's settings besides its weights: strides, heads, batch_first and so on."""
    attributes = sorted(vars(module).items())
    whole = [name for name, value in attributes if type(value) in {int, bool, str, tuple, type(None)}]
    reals = [name for name, value in attributes if type(value) is float]
    return Settings(attrgetter(*whole), attrgetter(*reals) if reals else None)


_COMPARED_TYPES = frozenset({
    int, bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format, type,
})  # fmt: skip

_READING_FUNCTIONS = {
    "tolist", "numpy", "item", "data_ptr", "storage", "untyped_storage", "equal", "allclose", "is_nonzero",
    "__array__", "__dlpack__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "__reduce_ex__", "__deepcopy__", "__format__", "__repr__", "apply_", "map_", "map2_",
}  # fmt: skip
"""Functions that give the values of a tensor to Python."""
_METADATA_METHODS = {
    "size", "dim", "ndimension", "stride", "numel", "nelement", "element_size", "storage_offset", "__len__",
    "is_contiguous", "is_floating_point", "is_complex", "is_inference", "get_device", "is_same_size", "type",
    "__hash__",
}  # fmt: skip
"""Functions that describe a tensor without its values."""
_METADATA_ATTRIBUTES = {
    "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "is_sparse",
    "is_quantized", "is_nested", "is_mps", "is_xpu", "is_meta", "is_mkldnn", "is_cpu", "is_sparse_csr",
    "itemsize", "nbytes", "_version", "names",
}  # fmt: skip
_SCALING_FUNCTIONS = {
    "add", "sub", "mul", "div", "true_divide", "pow", "rsub", "add_", "sub_", "mul_", "div_", "__add__",
    "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__div__",
    "__rdiv__", "__pow__", "__rpow__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__",
}  # fmt: skip
_METADATA, _READING, _SCALING, _OTHER = "looking", "reads", "scaling", "other"
_function_kinds: dict[Any, str] = {}


def _function_kind(func: Any) -> str:
    """The category of a function, which is then cached."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        kind = _METADATA if getattr(func.__self__, "__name__", "") in _METADATA_ATTRIBUTES else _OTHER
    elif name in _READING_FUNCTIONS:
        kind = _READING
    elif name in _METADATA_METHODS:
        kind = _METADATA
    else:
        kind = _SCALING if name in _SCALING_FUNCTIONS else _OTHER
    _function_kinds[func] = kind
    return kind
