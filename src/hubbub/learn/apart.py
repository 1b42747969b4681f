"""What is computed from examples, apart from all else: own random numbers, no words, nothing left behind.

Random layers, augmentations and data sets draw from torch's, numpy's or Python's generator. Were these as
the program left them, whoever knows their seeds would know which draws a place in a lot gets, and their
states would tell afterwards how large the lots were. Warnings, numpy's errors and what modules keep tell of
examples.
"""

import ctypes
import random
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from operator import is_
from typing import Any

import numpy as np
import torch
from numpy import random as numpy_random
from torch import Tensor, nn

from hubbub.errors import InvalidInput

__all__ = [
    "alike",
    "drawn_elsewhere",
    "exact_products",
    "keeping",
    "quiet",
    "refuse_rough_products",
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


@contextmanager
def keeping(module: nn.Module, *, weights: bool = False) -> Iterator[None]:
    """All that modules hold is as it was afterwards: it could hold examples, or count how often it was asked.

    Attributes, buffers, and what is in tensors, arrays, lists, tuples, dictionaries, sets and modules that
    they hold; with `weights` also what is in parameters, which takes as long as copying them.
    """
    before = _held(module, weights=weights)
    try:
        yield
    finally:
        with torch.no_grad():
            for held, was in before.values():
                _put_back(held, was)


_USUAL = frozenset(vars(nn.Module())) - {"_parameters", "_buffers", "_modules"}
"""What torch keeps of a module beside what it holds."""
_FIXED = (tuple, frozenset)
_HOLDING = (Tensor, nn.Module, np.ndarray, dict, list, set, deque, *_FIXED)


def _held(module: nn.Module, *, weights: bool) -> dict[int, tuple[Any, Any]]:
    """All that can be changed in it, and in what is in it, each with what it is now."""
    before: dict[int, tuple[Any, Any]] = {}
    todo: list[Any] = [module]
    while todo:
        one = todo.pop()
        if isinstance(one, Tensor):
            if id(one) not in before and (weights or not isinstance(one, nn.Parameter)):
                before[id(one)] = one, one.detach().clone()
            continue
        if isinstance(one, nn.Module):
            one = vars(one)
            inner: Any = [one[name] for name in one.keys() - _USUAL]
        elif isinstance(one, np.ndarray):
            inner = one.flat if one.dtype == object else ()
        else:
            inner = one.values() if isinstance(one, dict) else one
        if id(one) not in before:
            before[id(one)] = one, (one if isinstance(one, _FIXED) else one.copy())
            todo += [value for value in inner if isinstance(value, _HOLDING)]
    return before


def _put_back(held: Any, was: Any) -> None:
    """Only what was changed: a write that changes nothing would be one more to autograd."""
    if isinstance(held, Tensor):
        if held.shape != was.shape:
            held.data = was
        elif not alike(held, was):
            held.copy_(was)
    elif isinstance(held, np.ndarray):
        if held.flags.writeable:
            np.copyto(held, was)
    elif isinstance(held, dict):
        is_same = len(held) == len(was) and all(map(is_, held, was))
        if not (is_same and all(map(is_, held.values(), was.values()))):
            held.clear()
            held.update(was)
    elif held is not was and not (len(held) == len(was) and all(map(is_, held, was))):
        held.clear()
        (held.update if isinstance(held, set) else held.extend)(was)


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether they hold the same, also where that is no number."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


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
