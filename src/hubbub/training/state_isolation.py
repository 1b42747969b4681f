"""Isolation of computations on examples: own random numbers, no warnings, no state left behind.

Random layers, augmentations and datasets draw from the generators of torch, numpy or Python. If these kept
the
program's seeds, whoever knows the seeds would know the draws of each position in a lot, and the final states
would tell how large the lots were. Warnings and numpy's errors reveal examples. So does state that a model, a
loss or an augmentation keeps: examples, or the number of its calls, which depends on the size of the lots. So
all of it is restored after each microbatch or example.
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
    "check_matmul_precision",
    "full_precision",
    "kernel_settings",
    "python_and_numpy_positions",
    "read_isolated",
    "restore_state",
    "seed_generators",
    "suppress_warnings",
    "tensors_equal",
]

_LOW_32_BITS = (1 << 32) - 1
_numpy_generator = numpy_random.MT19937(0)
"""Replaces numpy's own generator for a while; seeded each time."""
_numpy_position = ctypes.c_int.from_address(_numpy_generator.ctypes.state_address + 624 * 4)
"""The index of its next word of 624, which is fast to read; the whole state is as slow as a layer."""
_generator_lock = threading.RLock()
"""The generators are global: without the lock, two threads would restore each other's states."""


@contextmanager
def seed_generators(bits: int) -> Iterator[None]:
    """Seed all generators that models and data draw from, and restore them afterwards."""
    with _generator_lock:
        # torch.manual_seed would also visit all devices, and record its caller, each time.
        tensors = torch.default_generator
        before = tensors.get_state(), random.getstate(), numpy_random.get_bit_generator()  # type: ignore[attr-defined]
        tensors.manual_seed(bits)
        random.seed(bits)
        numpy_random.set_bit_generator(_numpy_generator)  # type: ignore[attr-defined] # copying takes longer
        numpy_random.seed([bits & _LOW_32_BITS, bits >> 32])  # noqa: NPY002 - the generator that programs use
        try:
            yield
        finally:
            tensors.set_state(before[0])
            random.setstate(before[1])
            numpy_random.set_bit_generator(before[2])  # type: ignore[attr-defined]


def python_and_numpy_positions() -> tuple[Any, ...]:
    """Positions of Python's and numpy's generators; all examples of a batch share their draws."""
    return random.getstate(), _numpy_position.value


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress warnings and numpy's errors, which would reveal examples, and enable gradients."""
    with (
        warnings.catch_warnings(action="ignore"),
        np.errstate(all="ignore"),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autograd.set_detect_anomaly(False),
    ):
        yield


def full_precision() -> Any:
    """Compute norms and sums in the precision in which they are stored, even under autocast."""
    return torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext()


def check_matmul_precision() -> None:
    """Refuse reduced precision of matrix products."""
    backends: Any = torch.backends
    modes = {backends.fp32_precision, backends.mkldnn.fp32_precision, backends.mkldnn.matmul.fp32_precision}
    if not modes <= {"none", "ieee"} or torch.get_float32_matmul_precision() != "highest":
        raise InvalidInput(
            "matrices are multiplied in less than single precision",
            why="the rounding error of sums would not be known",
            fix='call torch.set_float32_matmul_precision("highest"), and do not change fp32_precision',
        )


def kernel_settings() -> tuple[Any, ...]:
    """The settings, besides shapes, that kernels are chosen by."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


# Restoring state. A snapshot follows references from a module: attributes, buffers, containers, objects of
# the user's classes, and what functions can reach: enclosed variables, defaults, the globals they name, and
# attributes of classes.

_T = TypeVar("_T")
_MODULE_INTERNALS = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
"""Attributes that torch itself keeps in every module."""
_IMMUTABLE = (tuple, frozenset)
_CONTAINERS = (Tensor, nn.Module, np.ndarray, dict, list, set, deque, *_IMMUTABLE)
_MAX_LENGTH = 1 << 12
_MAX_NUMEL = 1 << 20
"""Outside modules, longer containers and larger tensors are not copied: they are usually data."""
_MISSING = object()


@contextmanager
def restore_state(module: nn.Module, *, weights: bool = False) -> Iterator[None]:
    """Restore everything that can be reached from a module afterwards.

    With `weights` also the values of parameters, which takes as long as copying them.
    """
    before = _StateSnapshot(module, weights=weights).before
    try:
        yield
    finally:
        with torch.no_grad():
            for target, saved in before.values():
                _restore(target, saved)


def read_isolated(microbatches: Iterable[_T], module: nn.Module) -> Iterator[_T]:
    """The same microbatches; reading them from a dataset leaves the module unchanged.

    A dataset may share an object with the model, such as a cache or settings. If it wrote something about one
    example there, that would affect how all others are treated.
    """
    source = iter(microbatches)
    while True:
        with restore_state(module):
            microbatch = next(source, _MISSING)
        if microbatch is _MISSING:
            return
        yield cast("_T", microbatch)


class _Namespace(NamedTuple):
    """Some names in a dictionary, such as the globals that a function reads."""

    where: dict[str, Any]


class _Attributes(NamedTuple):
    """An object or a class with attributes that are not in a writable dictionary."""

    of: Any


class _StateSnapshot:
    """All mutable state that can be reached from a module, with its current values."""

    def __init__(self, module: nn.Module, *, weights: bool) -> None:
        self.before: dict[Any, tuple[Any, Any]] = {}
        self._weights = weights
        self._containers: list[Any] = [module]
        self._objects: list[Any] = []
        while self._containers:
            self._visit_container(self._containers.pop())
        while self._objects:
            one = self._objects.pop()
            if isinstance(one, _CONTAINERS):
                if _is_small(one):
                    self._visit_container(one, is_outside=True)
            elif type(one) not in _ATOMS:
                self._visit_object(one)

    def _visit_container(self, one: Any, *, is_outside: bool = False) -> None:
        """Visit a module, a tensor or a container."""
        if isinstance(one, Tensor):
            if id(one) not in self.before and (self._weights or not isinstance(one, nn.Parameter)):
                self.before[id(one)] = one, _copy(one)
            return
        if isinstance(one, nn.Module):
            if not is_outside and _is_user_code(type(one).__module__):
                self._objects.append(type(one))
            one = vars(one)
            inner: Any = [one[name] for name in one.keys() - _MODULE_INTERNALS]
        elif isinstance(one, np.ndarray):
            inner = one.flat if one.dtype == object else ()
        else:
            inner = one.values() if isinstance(one, dict) else one
        if id(one) not in self.before:
            self.before[id(one)] = one, _copy(one)
            for value in inner:
                if type(value) not in _ATOMS:
                    is_inside = not is_outside and isinstance(value, _CONTAINERS)
                    (self._containers if is_inside else self._objects).append(value)

    def _visit_object(self, one: Any) -> None:
        """Visit an object of another class, a function, or a class."""
        if id(one) in self.before:
            return
        if isinstance(one, types.FunctionType):
            if _is_user_code(one.__module__):
                self.before[id(one)] = (
                    None,
                    one,
                )  # marks it as visited, and keeps it alive so that its id stays unique
                self._visit_function(one)
        elif isinstance(one, type):
            if _is_user_code(one.__module__):
                attributes = {name: value for name, value in vars(one).items() if not name.startswith("__")}
                self.before[id(one)] = _Attributes(one), attributes
                self._objects += [getattr(value, "__func__", value) for value in vars(one).values()]
                self._objects += one.__bases__
        elif isinstance(one, types.MethodType):
            self._objects += [one.__self__, one.__func__]
        elif isinstance(one, partial):
            self._objects += [one.func, one.args, one.keywords]
        elif isinstance(one, property):
            self._objects += [one.fget, one.fset]
        elif _is_user_code(type(one).__module__) or type(one).__module__ in _PLAIN_MODULES:
            # Not objects of libraries: other code relies on them, such as an account.
            kind: Any = type(one)
            self._objects.append(kind)
            slots = {name: getattr(one, name) for name in _slot_names(kind) if hasattr(one, name)}
            self.before[id(one)] = _Attributes(one), slots
            self._objects += slots.values()
            if hasattr(one, "__dict__"):
                self._objects.append(vars(one))

    def _visit_function(self, one: types.FunctionType) -> None:
        for cell in one.__closure__ or ():
            contents = getattr(cell, "cell_contents", _MISSING)
            self.before[id(cell)] = cell, contents
            self._objects.append(contents)
        self._objects += [one.__defaults__, one.__kwdefaults__, vars(one)]
        names, attributes = _names_used(one.__code__)
        self._save_names(one, one.__globals__, names)
        for value in [one.__globals__.get(name) for name in names]:
            if isinstance(value, types.ModuleType) and _is_user_code(value.__name__):
                self._save_names(one, vars(value), attributes)

    def _save_names(self, who: Any, where: dict[str, Any], names: frozenset[str]) -> None:
        values = {name: where.get(name, _MISSING) for name in names}
        self.before[id(who), id(where)] = _Namespace(where), values
        self._objects += [value for value in values.values() if type(value) not in _ATOMS]


def _is_small(one: Any) -> bool:
    if isinstance(one, Tensor):
        return one.numel() <= _MAX_NUMEL
    if isinstance(one, np.ndarray):
        return one.size <= _MAX_NUMEL
    return isinstance(one, nn.Module) or len(one) <= _MAX_LENGTH


_ATOMS = frozenset({
    int, float, bool, str, bytes, complex, type(None), type(...), object, torch.dtype, torch.device,
    torch.layout, torch.Generator, types.ModuleType, types.BuiltinFunctionType,
})  # fmt: skip
_PLAIN_MODULES = frozenset({"types", "argparse", "collections", "dataclasses"})
"""Modules of the standard library with objects that hold user data."""


@cache
def _is_user_code(module: str | None) -> bool:
    """True if code is the user's, not a library's."""
    if module is None or module.partition(".")[0] in {"hubbub", "torch", "numpy", "builtins"}:
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module.partition(".")[0] not in sys.stdlib_module_names
    path = Path(file).resolve()
    is_library = "site-packages" in path.parts or "dist-packages" in path.parts
    return not is_library and not path.is_relative_to(Path(dis.__file__).resolve().parent)


@cache
def _slot_names(kind: type) -> tuple[str, ...]:
    slots = [getattr(one, "__slots__", ()) for one in kind.__mro__]
    return tuple(name for names in slots for name in ([names] if isinstance(names, str) else names))


@cache
def _names_used(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals and the attributes that code names, including functions defined inside it."""
    names, attributes = set(), set()
    for step in dis.get_instructions(code):
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            names.add(step.argval)
        elif "ATTR" in step.opname or "METHOD" in step.opname:
            attributes.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _names_used(inner)
            names |= more[0]
            attributes |= more[1]
    return frozenset(names), frozenset(attributes)


def _copy(one: Any) -> Any:
    """A copy of its content. A user's class may define its own copying, so that is not used."""
    if isinstance(one, Tensor):
        return one.detach().clone()
    if isinstance(one, _IMMUTABLE):
        return one
    if type(one) in {dict, list}:
        return one.copy()
    kind = next((kind for kind in (dict, list, set, deque) if isinstance(one, kind)), None)
    return one.copy() if kind is None else kind(one)


def _restore(target: Any, saved: Any) -> None:
    """Write only what was changed: autograd counts every write."""
    if isinstance(target, dict):
        is_same = len(target) == len(saved) and all(map(is_, target, saved))
        if not (is_same and all(map(is_, target.values(), saved.values()))):
            target.clear()
            target.update(saved)
    elif isinstance(target, Tensor):
        if not _is_dense(target):
            if not tensors_equal(target, saved):
                target.data = saved
        elif target.shape != saved.shape:
            target.data = saved
        elif not tensors_equal(target, saved):
            target.copy_(saved)
    elif isinstance(target, np.ndarray):
        if target.flags.writeable:
            np.copyto(target, saved)
    elif isinstance(target, (_Namespace, _Attributes, types.CellType)) or target is None:
        _restore_names(target, saved)
    elif target is not saved and not (len(target) == len(saved) and all(map(is_, target, saved))):
        target.clear()
        (target.update if isinstance(target, set) else target.extend)(saved)


def _restore_names(target: Any, saved: Any) -> None:
    if isinstance(target, types.CellType):
        if getattr(target, "cell_contents", _MISSING) is not saved:
            target.cell_contents = saved
    elif isinstance(target, _Namespace):
        for name, value in saved.items():
            if target.where.get(name, _MISSING) is not value:
                target.where.pop(name) if value is _MISSING else target.where.update({name: value})
    elif isinstance(target, _Attributes):
        now = vars(target.of) if isinstance(target.of, type) else {}
        for name in [name for name in now if not name.startswith("__") and name not in saved]:
            delattr(target.of, name)
        for name, value in saved.items():
            current = now.get(name, _MISSING) if now else getattr(target.of, name, _MISSING)
            if current is not value:
                setattr(target.of, name, value)


def _is_dense(tensor: Tensor) -> bool:
    """True if its numbers are in ordinary dense memory."""
    is_odd = tensor.is_nested or tensor.is_quantized or tensor.device.type == "meta"
    return not is_odd and tensor.layout == torch.strided


def _dense_parts(tensor: Tensor) -> list[Tensor]:
    """Dense tensors that determine it."""
    if tensor.is_nested:
        return list(tensor.detach().unbind())
    if tensor.is_quantized:
        return [tensor.int_repr()]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001 - without coalescing
    if tensor.layout in {torch.sparse_csr, torch.sparse_bsr}:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in {torch.sparse_csc, torch.sparse_bsc}:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def tensors_equal(one: Tensor, other: Tensor) -> bool:
    """True if two tensors hold the same values, NaN included."""
    if not _is_dense(one) or not _is_dense(other):
        parts = _dense_parts(one), _dense_parts(other)
        return len(parts[0]) == len(parts[1]) and all(map(tensors_equal, *parts))
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())
