"""What is computed from examples, apart from all else: own random numbers, no words, nothing left behind.

Random layers, augmentations and data sets draw from torch's, numpy's or Python's generator. Were these as
the program left them, whoever knows their seeds would know which draws a place in a lot gets, and their
states would tell afterwards how large the lots were. Warnings, numpy's errors and buffers tell of examples.
"""

import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy import random as numpy_random
from torch import nn

from hubbub.errors import InvalidInput

__all__ = [
    "exact_products",
    "keeping_buffers",
    "quiet",
    "refuse_rough_products",
    "starting_from",
    "surroundings",
]

_WORD = (1 << 32) - 1
_ARRAYS = numpy_random.MT19937(0)
"""In the place of numpy's own, for a while; seeded each time."""


@contextmanager
def starting_from(bits: int) -> Iterator[None]:
    """All generators that models and data draw from start from these bits, and are put back afterwards."""
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


@contextmanager
def quiet() -> Iterator[None]:
    """No warning and no error of numpy's, as they would tell of an example; gradients whatever is around."""
    with ExitStack() as all_of_it:
        all_of_it.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        all_of_it.enter_context(np.errstate(all="ignore"))
        all_of_it.enter_context(torch.inference_mode(False))
        all_of_it.enter_context(torch.enable_grad())
        all_of_it.enter_context(torch.autograd.set_detect_anomaly(False))
        yield


def exact_products() -> Any:
    """Norms and sums are made in the precision that they are kept in, whatever the model runs in."""
    return torch.autocast("cpu", enabled=False)


@contextmanager
def keeping_buffers(model: nn.Module) -> Iterator[None]:
    """Buffers are the same tensors with the same numbers afterwards: they could hold examples."""
    before = [
        (module, name, buffer, None if buffer is None else buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()  # noqa: SLF001 - where a module keeps them
    ]
    try:
        yield
    finally:
        for module in model.modules():
            for name in set(module._buffers) - {name for owner, name, *_ in before if owner is module}:  # noqa: SLF001
                del module._buffers[name]  # noqa: SLF001
        for module, name, buffer, numbers in before:
            module._buffers[name] = buffer  # noqa: SLF001
            if buffer is not None and numbers is not None:
                buffer.copy_(numbers)


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
