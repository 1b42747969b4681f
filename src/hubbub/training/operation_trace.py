"""What a model does with a batch, written down call by call: the same at every step as when it was looked at.

Whether examples stay apart is looked at beforehand (`whose`), for the calls of torch that the model, the loss
and the augmentation make: which function, on which tensors, along which dimensions. Code is free to do
something else later: a counter, a schedule, a file or the time may switch on mix-up or batch centring at the
third epoch. So the calls of every chunk are written down as well, and compared: the same functions on the
same operands, with the same whole numbers, in the same order are the same program, which keeps the same rows
apart whatever numbers it is computed on. Any other is not what was looked at, and its gradients are not used.

What is compared, and what is not:

    tensors         by where they come from: an input, a weight, the result of an earlier call, or outside
    whole numbers   dimensions, sizes, places: as a + b·(examples), found from two batches of different sizes
    reals           not compared with those of other steps, as they scale and do not route; within a step they
                    must not change, or an example would be treated by which chunk it happens to be in; nor
                    must what is in tensors from outside
    layers          those with rules (`layers`) are one call each, with all their settings

Proof: docs/proofs/dpsgd.md, "Every step is the one that was looked at"
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

__all__ = ["Changed", "Drifting", "OperationTrace", "Settings", "TraceRecorder", "lasting_of", "settings_of"]

Said = Any
"""A call as it is compared: a nested tuple."""


class Settings(NamedTuple):
    """How to ask a layer for what it is set to."""

    whole: Callable[[Any], Any]
    reals: Callable[[Any], Any] | None
    """Such as what is added to a variance; None if it has none."""


_serials = itertools.count()
_MARK = "_hubbub_made"
"""The attribute of a tensor that says which call made it."""
_NUMBER = "\0number"
_OUTSIDE = "\0outside"
_EARLIER = "\0earlier"
_names = [f"\0{n}" for n in range(1 << 10)]


class Changed(BaseException):
    """The model did something else than when it was looked at. No `Exception`: no example raised it."""


class Drifting(BaseException):
    """The numbers that a model is computed with are others than in the lot's first chunk."""


@dataclass(frozen=True)
class _Affine:
    """A whole number that follows the number of examples."""

    start: int
    slope: int


@dataclass(eq=False)
class OperationTrace:
    """The calls that were looked at, for batches of any number of examples."""

    calls: tuple[Said, ...]
    lasting: Mapping[int, str]
    """Weights and buffers, by identity."""
    _at: dict[int, list[Said]] = field(default_factory=dict)

    @classmethod
    def of(cls, first: "TraceRecorder", other: "TraceRecorder") -> "OperationTrace | None":
        """What two batches of different numbers of examples have in common; None where they differ."""
        try:
            calls = _joined(tuple(first.calls), tuple(other.calls), first.examples, other.examples)
        except _NotAlikeError:
            return None
        return cls(calls, first.lasting)

    def at(self, examples: int) -> list[Said]:
        """The calls for so many examples."""
        if examples not in self._at:
            self._at[examples] = [_filled(call, examples) for call in self.calls]
        return self._at[examples]

    def is_of(self, seen: "TraceRecorder") -> bool:
        """Whether these calls are the ones that were looked at."""
        return seen.calls == self.at(seen.examples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperationTrace) and self.calls == other.calls

    __hash__ = None  # type: ignore[assignment]


class _NotAlikeError(Exception):
    """Two batches were not treated by the same calls."""


def _joined(one: Said, other: Said, size: int, other_size: int) -> Said:
    if type(one) is int and type(other) is int and one != other:
        slope, rest = divmod(one - other, size - other_size)
        if rest:
            raise _NotAlikeError
        return _Affine(one - slope * size, slope)
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return tuple(_joined(a, b, size, other_size) for a, b in zip(one, other, strict=True))
    if type(one) is not type(other) or one != other:
        raise _NotAlikeError
    return one


def _filled(said: Said, examples: int) -> Said:
    if type(said) is _Affine:
        return said.start + said.slope * examples
    return tuple(_filled(part, examples) for part in said) if type(said) is tuple else said


class TraceRecorder(TorchFunctionMode):
    """Writes down every call of torch's functions, and where each of its operands comes from.

    `unknown` is told of tensors from outside that a call is given on the way forward.
    """

    def __init__(
        self,
        batch: Sequence[Tensor],
        lasting: Mapping[int, str],
        unknown: Callable[[Tensor], None] | None = None,
    ) -> None:
        super().__init__()
        self.examples = batch[0].shape[0]
        self.lasting = lasting
        self.calls: list[Said] = []
        self.numbers: list[float] = []
        self.outside: list[Tensor] | None = []
        """Tensors that no call made, on the way forward; on the way back gradients are such, so None."""
        self.was_read = False
        """Whether numbers in a tensor were asked for: code may do with them what it likes."""
        self.unknown = unknown
        self._serial = next(_serials)
        self._made = 0
        self._is_within = False
        for x in batch:
            self._mark(x)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Write it down, and do it."""
        known = _KINDS.get(func)
        kind = _kind(func) if known is None else known
        if kind is _LOOKING:
            return func(*args, **kwargs) if kwargs else func(*args)
        self.was_read |= kind is _READS
        said = self._said_scaled(args) if kind is _SCALING else self._said(args)
        self.calls.append((func, said, self._said(kwargs) if kwargs else None))
        out = func(*args, **kwargs) if kwargs else func(*args)
        self._name(out)
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
        """A layer with a rule, as one call: what happens within is ours and torch's, and no model's."""
        whole = settings.whole(module)
        if settings.reals is not None:
            self._said(settings.reals(module))
        held = tuple([p if p is None else self._of(p) for p in module._parameters.values()])  # noqa: SLF001
        if self._is_within:
            # A layer of a layer: what it is given is made there.
            self.calls.append((number, whole, held))
            return run(*args, **kwargs)
        self.calls.append((number, whole, held, self._said(args), self._said(kwargs)))
        self._is_within = True
        try:
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - its calls are not the model's
                out = run(*args, **kwargs)
        finally:
            self._is_within = False
        self._name(out)
        return out

    def _said(self, given: Any) -> Said:
        kind = type(given)
        if kind in _PLAIN:
            return given
        if kind is float:
            self.numbers.append(given)
            return _NUMBER
        if isinstance(given, Tensor):
            return self._of(given)
        if isinstance(given, (tuple, list)):
            return tuple([self._said(part) for part in given])
        if kind is slice:
            return ("slice", self._said(given.start), self._said(given.stop), self._said(given.step))
        if isinstance(given, dict):
            return tuple([(name, self._said(given[name])) for name in sorted(given, key=str)])
        if isinstance(given, np.integer):
            return int(given)
        if isinstance(given, (np.floating, complex)):
            self.numbers += [float(given.real), float(given.imag)]
            return _NUMBER
        return kind

    def _said_scaled(self, args: tuple[Any, ...]) -> Said:
        """Of a sum or a product whole numbers are numbers like others."""
        return self._said(tuple([float(x) if type(x) is int else x for x in args]))

    def _of(self, tensor: Tensor) -> Said:
        mark = getattr(tensor, _MARK, None)
        if mark is not None:
            # One that an earlier chunk made would bring its examples here.
            return mark[1] if mark[0] == self._serial else _EARLIER
        name = self.lasting.get(id(tensor))
        if name is not None:
            return name
        if self.unknown is not None:
            self.unknown(tensor)
        if self.outside is not None:
            self.outside.append(tensor)
        return (_OUTSIDE, tensor.dtype, tuple(tensor.shape))

    def _name(self, out: Any) -> None:
        if isinstance(out, Tensor):
            self._mark(out)
        elif isinstance(out, (tuple, list)):
            for part in out:
                self._name(part)

    def _mark(self, tensor: Tensor) -> None:
        if id(tensor) not in self.lasting:
            self._made += 1
            while self._made >= len(_names):
                _names.append(f"\0{len(_names)}")
            setattr(tensor, _MARK, (self._serial, _names[self._made]))

    @property
    def reals(self) -> bytes:
        """All reals that were given to calls."""
        return array("d", self.numbers).tobytes()


def lasting_of(module: nn.Module) -> dict[int, str]:
    """Names for all weights and buffers."""
    held = itertools.chain(module.parameters(), module.buffers())
    return {id(tensor): f"\0held {number}" for number, tensor in enumerate(held)}


def settings_of(module: nn.Module) -> Settings:
    """How to ask a layer for all that it is set to, beside its weights: strides, heads, which comes first."""
    held = sorted(vars(module).items())
    whole = [name for name, value in held if type(value) in {int, bool, str, tuple, type(None)}]
    reals = [name for name, value in held if type(value) is float]
    return Settings(attrgetter(*whole), attrgetter(*reals) if reals else None)


_PLAIN = frozenset({
    int, bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout, torch.memory_format, type,
})  # fmt: skip

_READING = {
    "tolist", "numpy", "item", "data_ptr", "storage", "untyped_storage", "equal", "allclose", "is_nonzero",
    "__array__", "__dlpack__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "__reduce_ex__", "__deepcopy__", "__format__", "__repr__", "apply_", "map_", "map2_",
}  # fmt: skip
"""By name: what gives the numbers in a tensor to Python."""
_LOOKS = {
    "size", "dim", "ndimension", "stride", "numel", "nelement", "element_size", "storage_offset", "__len__",
    "is_contiguous", "is_floating_point", "is_complex", "is_inference", "get_device", "is_same_size", "type",
    "__hash__",
}  # fmt: skip
"""What tells of a tensor, and not of what is in it."""
_LOOKED_AT = {
    "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "is_cuda", "is_sparse",
    "is_quantized", "is_nested", "is_mps", "is_xpu", "is_meta", "is_mkldnn", "is_cpu", "is_sparse_csr",
    "itemsize", "nbytes", "_version", "names",
}  # fmt: skip
_SCALES = {
    "add", "sub", "mul", "div", "true_divide", "pow", "rsub", "add_", "sub_", "mul_", "div_", "__add__",
    "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__rtruediv__", "__div__",
    "__rdiv__", "__pow__", "__rpow__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__",
}  # fmt: skip
_LOOKING, _READS, _SCALING, _OTHER = "looking", "reads", "scaling", "other"
_KINDS: dict[Any, str] = {}


def _kind(func: Any) -> str:
    """What is to be written down of a function; known from then on."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        found = _LOOKING if getattr(func.__self__, "__name__", "") in _LOOKED_AT else _OTHER
    elif name in _READING:
        found = _READS
    elif name in _LOOKS:
        found = _LOOKING
    else:
        found = _SCALING if name in _SCALES else _OTHER
    _KINDS[func] = found
    return found
