"""What is computed from examples, apart from all else: own random numbers, no words, nothing left behind.

Random layers, augmentations and data sets draw from torch's, numpy's or Python's generator. Were these as
the program left them, whoever knows their seeds would know which draws a place in a lot gets, and their
states would tell afterwards how large the lots were. Warnings and numpy's errors tell of examples, and so
does what modules keep (`held`).
"""

import ctypes
import dis
import random
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy import random as numpy_random
from torch import Tensor, nn

from hubbub.errors import InvalidInput

__all__ = [
    "alike",
    "drawn_elsewhere",
    "exact_products",
    "quiet",
    "reading",
    "refuse_rough_products",
    "restore_state",
    "starting_from",
    "surroundings",
]

_WORD = (1 << 32) - 1
_ARRAYS = numpy_random.MT19937(0)
"""In the place of numpy's own, for a while; seeded each time."""
_position = ctypes.c_int.from_address(_ARRAYS.ctypes.state_address + 624 * 4)
"""Which of its 624 words is next: read at every chunk, and to ask for the state takes as long as a layer."""
_ONE_AT_A_TIME = threading.RLock()
"""There is one of each generator: of two threads each would put back what the other began with."""


@contextmanager
def starting_from(bits: int) -> Iterator[None]:
    """All generators that models and data draw from start from these bits, and are put back afterwards."""
    with _ONE_AT_A_TIME:
        # torch.manual_seed would ask all devices as well, and write down from where, each time.
        tensors = torch.default_generator
        before = tensors.get_state(), random.getstate(), numpy_random.get_bit_generator()  # type: ignore[attr-defined]
        tensors.manual_seed(bits)
        random.seed(bits)
        numpy_random.set_bit_generator(_ARRAYS)  # type: ignore[attr-defined] # copying takes longer
        numpy_random.seed([bits & _WORD, bits >> 32])  # noqa: NPY002 - what programs draw with
        try:
            yield
        finally:
            tensors.set_state(before[0])
            random.setstate(before[1])
            numpy_random.set_bit_generator(before[2])  # type: ignore[attr-defined]


def drawn_elsewhere() -> tuple[Any, ...]:
    """How far Python's and numpy's generators are: one draw from these is for all examples of a batch."""
    return random.getstate(), _position.value


@contextmanager
def quiet() -> Iterator[None]:
    """No warning and no error of numpy's, as they would tell of an example; gradients whatever is around."""
    with (
        warnings.catch_warnings(action="ignore"),
        np.errstate(all="ignore"),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
    ):
        yield


def exact_products() -> Any:
    """Norms and sums are made in the precision that they are kept in, whatever the model runs in."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext()


def refuse_rough_products() -> None:
    """Matrices must be multiplied in the precision of their numbers."""
    backends: Any = torch.backends
    said = {backends.fp32_precision, backends.mkldnn.fp32_precision, backends.mkldnn.matmul.fp32_precision}
    if not said <= {"none", "ieee"} or torch.get_float32_matmul_precision() != "highest":
        raise InvalidInput(
            "matrices are multiplied with less than single precision",
            why="how far sums err would not be known",
            fix='call torch.set_float32_matmul_precision("highest"), and leave fp32_precision alone',
        )


def surroundings() -> tuple[Any, ...]:
    """What kernels are chosen by, beside shapes."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


# All that a model, a loss or an augmentation can keep is as it was, after each chunk or each example.
#
# It could hold examples, or count how often it was asked, which follows how large lots are. Followed from the
# modules on: attributes, buffers, containers, objects of the user's classes, and what functions reach: the
# variables that they enclose, their defaults, the globals that they name, and attributes of classes.

_T = TypeVar("_T")
_USUAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
"""What torch keeps of a module beside what it holds."""
_FIXED = (tuple, frozenset)
_HOLDING = (Tensor, nn.Module, np.ndarray, dict, list, set, deque, *_FIXED)
_LONG = 1 << 12
_LARGE = 1 << 20
"""Beyond modules no longer containers and no larger tensors are copied: they are data, as a rule."""
_MISSING = object()


@contextmanager
def restore_state(module: nn.Module, *, weights: bool = False) -> Iterator[None]:
    """All that can be reached from a module is as it was afterwards.

    With `weights` also what is in parameters, which takes as long as copying them.
    """
    before = _Held(module, weights=weights).before
    try:
        yield
    finally:
        with torch.no_grad():
            for held, was in before.values():
                _put_back(held, was)


def reading(chunks: Iterable[_T], module: nn.Module) -> Iterator[_T]:
    """The same chunks; a data set that they are read from leaves the module as it was.

    It may share an object with the model, as a cache or settings: what it writes there of one example would
    decide how all others are treated.
    """
    source = iter(chunks)
    while True:
        with restore_state(module):
            chunk = next(source, _MISSING)
        if chunk is _MISSING:
            return
        yield cast("_T", chunk)


class _Names(NamedTuple):
    """Some names in a dictionary, such as the globals that a function reads."""

    where: dict[str, Any]


class _Slots(NamedTuple):
    """An object or a class whose attributes are in no dictionary that could be written to."""

    of: Any


class _Held:
    """All that can be changed in a module, and in what is in it, each with what it is now."""

    def __init__(self, module: nn.Module, *, weights: bool) -> None:
        self.before: dict[Any, tuple[Any, Any]] = {}
        self._weights = weights
        self._near: list[Any] = [module]
        self._far: list[Any] = []
        while self._near:
            self._follow(self._near.pop())
        while self._far:
            one = self._far.pop()
            if isinstance(one, _HOLDING):
                if _is_small(one):
                    self._follow(one, is_far=True)
            elif type(one) not in _ATOMS:
                self._open(one)

    def _follow(self, one: Any, *, is_far: bool = False) -> None:
        """A module, a tensor or a container."""
        if isinstance(one, Tensor):
            if id(one) not in self.before and (self._weights or not isinstance(one, nn.Parameter)):
                self.before[id(one)] = one, _copied(one)
            return
        if isinstance(one, nn.Module):
            if not is_far and _is_own(type(one).__module__):
                self._far.append(type(one))
            one = vars(one)
            inner: Any = [one[name] for name in one.keys() - _USUAL]
        elif isinstance(one, np.ndarray):
            inner = one.flat if one.dtype == object else ()
        else:
            inner = one.values() if isinstance(one, dict) else one
        if id(one) not in self.before:
            self.before[id(one)] = one, _copied(one)
            for value in inner:
                if type(value) not in _ATOMS:
                    is_near = not is_far and isinstance(value, _HOLDING)
                    (self._near if is_near else self._far).append(value)

    def _open(self, one: Any) -> None:
        """An object of some other class, a function, or a class."""
        if id(one) in self.before:
            return
        if isinstance(one, types.FunctionType):
            if _is_own(one.__module__):
                self.before[id(one)] = None, one  # seen, and alive: its number is nobody else's
                self._open_function(one)
        elif isinstance(one, type):
            if _is_own(one.__module__):
                kept = {name: value for name, value in vars(one).items() if not name.startswith("__")}
                self.before[id(one)] = _Slots(one), kept
                self._far += [getattr(value, "__func__", value) for value in vars(one).values()]
                self._far += one.__bases__
        elif isinstance(one, types.MethodType):
            self._far += [one.__self__, one.__func__]
        elif isinstance(one, partial):
            self._far += [one.func, one.args, one.keywords]
        elif isinstance(one, property):
            self._far += [one.fget, one.fset]
        elif _is_own(type(one).__module__) or type(one).__module__ in _PLAIN:
            # Not those of libraries: others rely on them, as everybody does on an account.
            kind: Any = type(one)
            self._far.append(kind)
            slots = {name: getattr(one, name) for name in _slots_of(kind) if hasattr(one, name)}
            self.before[id(one)] = _Slots(one), slots
            self._far += slots.values()
            if hasattr(one, "__dict__"):
                self._far.append(vars(one))

    def _open_function(self, one: types.FunctionType) -> None:
        for cell in one.__closure__ or ():
            contents = getattr(cell, "cell_contents", _MISSING)
            self.before[id(cell)] = cell, contents
            self._far.append(contents)
        self._far += [one.__defaults__, one.__kwdefaults__, vars(one)]
        names, attributes = _names_of(one.__code__)
        self._open_names(one, one.__globals__, names)
        for value in [one.__globals__.get(name) for name in names]:
            if isinstance(value, types.ModuleType) and _is_own(value.__name__):
                self._open_names(one, vars(value), attributes)

    def _open_names(self, who: Any, where: dict[str, Any], names: frozenset[str]) -> None:
        kept = {name: where.get(name, _MISSING) for name in names}
        self.before[id(who), id(where)] = _Names(where), kept
        self._far += [value for value in kept.values() if type(value) not in _ATOMS]


def _is_small(one: Any) -> bool:
    if isinstance(one, Tensor):
        return one.numel() <= _LARGE
    if isinstance(one, np.ndarray):
        return one.size <= _LARGE
    return isinstance(one, nn.Module) or len(one) <= _LONG


_ATOMS = frozenset({
    int, float, bool, str, bytes, complex, type(None), type(...), object, torch.dtype, torch.device,
    torch.layout, torch.Generator, types.ModuleType, types.BuiltinFunctionType,
})  # fmt: skip
_PLAIN = frozenset({"types", "argparse", "collections", "dataclasses"})
"""Of Python's own modules: those whose objects hold what their users put there."""


@cache
def _is_own(module: str | None) -> bool:
    """Whether code is the user's, and not of a library."""
    if module is None or module.partition(".")[0] in {"hubbub", "torch", "numpy", "builtins"}:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    path = Path(file).resolve()
    is_library = "site-packages" in path.parts or "dist-packages" in path.parts
    return not is_library and not path.is_relative_to(Path(dis.__file__).resolve().parent)


@cache
def _slots_of(kind: type) -> tuple[str, ...]:
    found = [getattr(one, "__slots__", ()) for one in kind.__mro__]
    return tuple(name for names in found for name in ([names] if isinstance(names, str) else names))


@cache
def _names_of(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code reads or writes, and the attributes; also where functions are made within it."""
    named, attributes = set(), set()
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            named.add(step.argval)
        elif "ATTR" in step.opname or "METHOD" in step.opname:
            attributes.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _names_of(inner)
            named |= more[0]
            attributes |= more[1]
    return frozenset(named), frozenset(attributes)


def _copied(one: Any) -> Any:
    """What is in it now; a class of one's own may copy in a way of its own, so it is not asked."""
    if isinstance(one, Tensor):
        return one.detach().clone()
    if isinstance(one, _FIXED):
        return one
    if type(one) in {dict, list}:
        return one.copy()
    kind = next((kind for kind in (dict, list, set, deque) if isinstance(one, kind)), None)
    return one.copy() if kind is None else kind(one)


def _put_back(held: Any, was: Any) -> None:
    """Only what was changed: a write that changes nothing would be one more to autograd."""
    if isinstance(held, dict):
        is_same = len(held) == len(was) and all(map(is_, held, was))
        if not (is_same and all(map(is_, held.values(), was.values()))):
            held.clear()
            held.update(was)
    elif isinstance(held, Tensor):
        if not _is_plain(held):
            if not alike(held, was):
                held.data = was
        elif held.shape != was.shape:
            held.data = was
        elif not alike(held, was):
            held.copy_(was)
    elif isinstance(held, np.ndarray):
        if held.flags.writeable:
            np.copyto(held, was)
    elif isinstance(held, (_Names, _Slots, types.CellType)) or held is None:
        _put_back_names(held, was)
    elif held is not was and not (len(held) == len(was) and all(map(is_, held, was))):
        held.clear()
        (held.update if isinstance(held, set) else held.extend)(was)


def _put_back_names(held: Any, was: Any) -> None:
    if isinstance(held, types.CellType):
        if getattr(held, "cell_contents", _MISSING) is not was:
            held.cell_contents = was
    elif isinstance(held, _Names):
        for name, value in was.items():
            if held.where.get(name, _MISSING) is not value:
                held.where.pop(name) if value is _MISSING else held.where.update({name: value})
    elif isinstance(held, _Slots):
        now = vars(held.of) if isinstance(held.of, type) else {}
        for name in [name for name in now if not name.startswith("__") and name not in was]:
            delattr(held.of, name)
        for name, value in was.items():
            is_there = now.get(name, _MISSING) if now else getattr(held.of, name, _MISSING)
            if is_there is not value:
                setattr(held.of, name, value)


def _is_plain(tensor: Tensor) -> bool:
    """Whether its numbers are in memory, one beside another."""
    is_odd = tensor.is_nested or tensor.is_quantized or tensor.device.type == "meta"
    return not is_odd and tensor.layout == torch.strided


def _parts(tensor: Tensor) -> list[Tensor]:
    """Plain tensors that say all of it."""
    if tensor.is_nested:
        return list(tensor.detach().unbind())
    if tensor.is_quantized:
        return [tensor.int_repr()]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001 - as they lie there
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether they hold the same, also where that is no number."""
    if not _is_plain(one) or not _is_plain(other):
        parts = _parts(one), _parts(other)
        return len(parts[0]) == len(parts[1]) and all(map(alike, *parts))
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
