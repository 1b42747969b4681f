"""Whether the rows of a batch stay whose they are, whatever examples hold: followed through a model once.

Rules for layers (`layers`) take row block j for example j. That holds where the same operations run for all
examples, and none of them moves rows by what is in them, or brings rows of different examples together. So
a batch of a prime number of examples is followed through the model, operation by operation: which tensors
are made of examples, and along which one dimension examples are counted, as that alone is a multiple of the
prime. What is not found so is not wrong: its gradients are then found example by example.

Proof: docs/proofs/dpsgd.md, "Assumed", 3
"""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hubbub.learn.gradients import Objective

__all__ = ["PRIMES", "rows_stay"]

PRIMES = (7, 11, 13, 17, 19, 23)
"""Numbers of examples that are tried: hidden sizes may be multiples of some."""
_ENOUGH = 2
"""With so many of them it must be found so: a lost dimension could be mistaken for another once."""


def rows_stay(objective: Objective, batches: Iterable[Sequence[Tensor]]) -> bool:
    """Whether rows stay with their examples in these batches, each of a prime number of examples."""
    found = 0
    for batch in batches:
        found += _stay(objective, list(batch))
        if found == _ENOUGH:
            return True
    return False


def _stay(objective: Objective, batch: list[Tensor]) -> bool:
    followed = _Followed(batch)
    try:
        with followed, _Unread() as unread:
            losses = objective(*batch)
    except Exception:  # noqa: BLE001 - on random numbers; whatever it is, it was not followed
        return False
    return followed.stays and not unread.was_read and followed.is_by_example(losses)


class _Followed(TorchDispatchMode):
    """Which tensors are made of examples, and whether an operation brought examples together."""

    def __init__(self, batch: list[Tensor]) -> None:
        super().__init__()
        self._prime = batch[0].shape[0]
        self._kept = list(batch)
        self._made = {id(x) for x in batch}
        self.stays = True

    def is_by_example(self, tensor: Tensor) -> bool:
        """Whether it is made of examples, and has just one dimension along which they are counted."""
        return id(tensor) in self._made and self._counted(tensor) == 1

    def _counted(self, tensor: Tensor) -> int:
        return sum(size % self._prime == 0 for size in tensor.shape if size)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it, and look at what it was."""
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.strip("_")
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        ours = [x for x in given if id(x) in self._made]
        if name in _DRAWING:
            self.stays &= self._counted(made[0]) == 1
        if ours:
            self._kept += made
            self._made |= {id(x) for x in made}
            apart = all(self._counted(x) == 1 for x in ours) and all(self._counted(x) < 2 for x in given)
            self.stays &= apart and name not in _MOVING and self._is_within(name, args, kwargs or {})
        return out

    def _is_within(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what looks along a dimension does not look along that of the examples."""
        if name == "embedding":
            return id(args[0]) not in self._made
        if name not in _ALONG:
            return True
        first, place = args[0], _ALONG[name]
        dims = args[place] if len(args) > place else kwargs.get("dim", kwargs.get("dims"))
        dims = [dims] if isinstance(dims, int) else dims
        if not isinstance(dims, (list, tuple)) or not dims:
            return False
        return all(first.shape[dim] % self._prime for dim in dims)


class _Unread(TorchFunctionMode):
    """Whether the model asked for the numbers in a tensor: then it may do with them what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it, and look at what it was."""
        self.was_read |= getattr(func, "__name__", "") in _READING
        return func(*args, **(kwargs or {}))


_READING = {
    "tolist", "numpy", "item", "data_ptr", "storage", "untyped_storage", "equal", "allclose", "is_nonzero",
    "__array__", "__dlpack__", "__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__",
    "__reduce_ex__", "__deepcopy__", "__format__", "__repr__",
}  # fmt: skip

# By the names of kernels: what picks, sorts or counts rows anywhere, or asks for a number to branch on;
_MOVING = {
    "index", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "index_copy", "index_fill",
    "index_put_impl", "unsafe_index", "nonzero", "masked_select", "masked_scatter", "take", "put",
    "unique_consecutive", "unique", "unique2", "unique_dim", "local_scalar_dense", "is_nonzero", "equal",
    "repeat_interleave", "bincount", "histc", "multinomial", "searchsorted", "bucketize", "set",
    "native_batch_norm", "native_batch_norm_legit", "cudnn_batch_norm", "batch_norm_with_update",
    "pack_padded_sequence",
}  # fmt: skip
# what draws at random, which each example must do for itself;
_DRAWING = {
    "native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like", "randint", "randint_like",
    "uniform", "normal", "normal_functional", "exponential", "random", "geometric", "cauchy", "log_normal",
    "poisson", "rrelu_with_noise", "randperm",
}  # fmt: skip
# and what looks along a dimension, which must not be that of the examples: where its name is found.
_ALONG = {
    **dict.fromkeys((
        "gather", "index_select", "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode",
        "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "softmax", "log_softmax", "flip",
        "safe_softmax", "fft_c2c", "fft_r2c", "fft_c2r",
    ), 1),
    "roll": 2,
}  # fmt: skip
_ALONG |= {"topk": 2, "kthvalue": 2}
