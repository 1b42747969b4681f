"""What is computed from examples, apart from all else: own random numbers, no words, nothing left behind.

Random layers, augmentations and data sets draw from torch's, numpy's or Python's generator. Were these as
the program left them, whoever knows their seeds would know which draws a place in a lot gets, and their
states would tell afterwards how large the lots were. Warnings and numpy's errors tell of examples, and so
does what modules keep (`held`).
"""

import ctypes
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy import random as numpy_random

from hubbub.errors import InvalidInput

__all__ = [
    "drawn_elsewhere",
    "exact_products",
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
