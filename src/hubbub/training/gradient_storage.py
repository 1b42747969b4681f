"""Per-example gradients of one parameter, in the form that is cheapest to store.

Each form holds the gradients of B examples. It has an upper bound of each squared norm, and computes weighted
sums of the gradients. Nothing more is computed than these two need.

    DenseGradient     B gradients, written out
    FactoredGradient  Σ_t b_t ⊗ a_t for each example, stored as its factors
    SparseGradient    for an embedding: the rows that an example used

Proof: docs/proofs/dpsgd.md, "Norms" and "Sums"
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isqrt
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "UNIT_ROUNDOFF",
    "DenseGradient",
    "FactoredGradient",
    "FloatArray",
    "PerExampleGradient",
    "SparseGradient",
    "factored_gradient",
]

UNIT_ROUNDOFF = 2.0**-24
"""The unit roundoff of float32: the relative error of one operation."""

_MAX_FLOAT32_TERMS = 1 << 14
"""Squares are added in float32 up to this number of terms, then in double precision."""
_MIN_SLAB_ROWS = 64
"""Minimum number of rows that one product adds up."""
_SMALL_PRODUCT = 1 << 16
"""Products with at most this many numbers are computed in one call."""
_MIN_SQUARE, _MAX_SQUARE = 1e-20, 2.0**100
"""Between these, single-precision squares are accurate; above, a unit contributes nothing."""
MAX_DENSE_NUMBERS = 1 << 24
"""Gradients with more numbers than this stay factored."""

# One dot product per row. `vecdot` came with numpy 2; einsum is slower.
_einsum_dot: Callable[..., Any] = partial(np.einsum, "ij,ij->i")
_dot: Callable[..., Any] = getattr(np, "vecdot", _einsum_dot)
_SHORT_ROW = 200
"""For rows up to this length einsum is faster, because it needs no call per row."""

Arrange = Callable[[Tensor], Tensor]
FloatArray = NDArray[np.float64]


class PerExampleGradient(Protocol):
    """The gradients of B examples with respect to one parameter."""

    def rounding_depth(self, units: int) -> int:
        """The maximum number of roundings that a term of a weighted sum of up to `units` examples passes."""

    @property
    def squared_norms(self) -> FloatArray:
        """Upper bounds of the squared norms: B doubles."""

    @property
    def squared_magnitudes(self) -> FloatArray:
        """Upper bounds of the squared magnitudes that rounding scales with.

        They equal the norms if no terms cancel.
        """

    def write_weighted_sum(self, weights: Tensor, out: Tensor) -> None:
        """Write Σ_j weights_j · gradient_j into `out`, which has the parameter's shape."""

    def mask_out(self, is_invalid: Tensor) -> "PerExampleGradient":
        """The same gradients, with zeros for the examples that `is_invalid` marks."""

    def dense(self) -> Tensor:
        """All gradients, written out: B × the parameter's shape."""


def _identity(total: Tensor) -> Tensor:
    return total


@dataclass(frozen=True, eq=False)
class DenseGradient:
    """Gradients written out; `arrange` brings one or all of them into the parameter's shape."""

    values: Tensor
    arrange: Arrange = _identity
    known_squared_norms: FloatArray | None = None
    """The squared norms, if they were computed before."""

    def rounding_depth(self, units: int) -> int:
        """See `PerExampleGradient`: one product and a sum over the examples, in slabs."""
        return _product_rounding_depth(units)

    @cached_property
    def squared_norms(self) -> FloatArray:
        """See `PerExampleGradient`: sums of squares, which cannot cancel."""
        return (
            squared_norm_bounds(self.values.flatten(1))
            if self.known_squared_norms is None
            else self.known_squared_norms
        )

    @property
    def squared_magnitudes(self) -> FloatArray:
        """See `PerExampleGradient`: the norms themselves."""
        return self.squared_norms

    def write_weighted_sum(self, weights: Tensor, out: Tensor) -> None:
        """See `PerExampleGradient`: a vector times a matrix."""
        flat, shares = self.values.flatten(1), weights.to(self.values.dtype).view(-1, 1)
        total = (
            out.view(1, -1) if self.arrange is _identity else torch.empty(1, flat.shape[1], dtype=out.dtype)
        )
        _multiply(shares, flat, total)
        if self.arrange is not _identity:
            out.copy_(self.arrange(total.view(1, *self.values.shape[1:]))[0])

    def mask_out(self, is_invalid: Tensor) -> "DenseGradient":
        """See `PerExampleGradient`."""
        return replace(self, values=_zero_rows(self.values, is_invalid), known_squared_norms=None)

    def dense(self) -> Tensor:
        """See `PerExampleGradient`."""
        return self.arrange(self.values)


@dataclass(frozen=True, eq=False)
class FactoredGradient:
    """Σ_t b_t ⊗ a_t for each example: b is B×T×q, a is B×T×p, the gradients would be B×q×p."""

    b: Tensor
    a: Tensor
    arrange: Arrange = _identity

    def rounding_depth(self, units: int) -> int:
        """See `PerExampleGradient`: sums within slabs, and the sum of those."""
        return _product_rounding_depth(units * self.a.shape[1])

    @cached_property
    def norms(self) -> tuple[FloatArray, FloatArray]:
        """‖a_t‖² and ‖b_t‖², rounded up: B×T doubles."""
        batch, positions = self.a.shape[:2]
        a, b = (squared_norm_bounds(x.flatten(0, 1)).reshape(batch, positions) for x in (self.a, self.b))
        return a, b

    @cached_property
    def squared_norms(self) -> FloatArray:
        """‖a‖²‖b‖² if T = 1; else from the two Gram matrices, plus a bound of their error."""
        norm_a, norm_b = self.norms
        if self.a.shape[1] == 1:
            return (norm_a * norm_b)[:, 0]
        # Scaled so that the longest position of each factor is about 1: little underflows in single
        # precision, and that is added at the end.
        sizes = [np.sqrt(norm.max(axis=1)) for norm in (norm_a, norm_b)]
        factors = [_reciprocal(size, x) for x, size in zip((self.a, self.b), sizes, strict=True)]
        a, b = self.a * factors[0], self.b * factors[1]
        gram = torch.bmm(a, a.mT).mul_(torch.bmm(b, b.mT))
        norms = gram.sum(2, dtype=torch.float64).sum(1).numpy()
        relative_error = (self.a.shape[2] + self.b.shape[2] + 16) * UNIT_ROUNDOFF
        lost = self.a.shape[1] ** 2 * (self.a.shape[2] + self.b.shape[2]) * 2.0**-120
        with np.errstate(invalid="ignore"):
            scale = 1 / (factors[0].double() * factors[1].double()).view(-1).numpy() ** 2
            return (np.maximum(norms, 0.0) + lost) * scale + relative_error * self.squared_magnitudes

    @cached_property
    def squared_magnitudes(self) -> FloatArray:
        """(Σ_t ‖a_t‖‖b_t‖)²: far above the squared norm if positions cancel."""
        norm_a, norm_b = self.norms
        if self.a.shape[1] == 1:
            return self.squared_norms
        return np.sqrt(norm_a * norm_b).sum(1) ** 2 * (1 + 4 * UNIT_ROUNDOFF)

    def write_weighted_sum(self, weights: Tensor, out: Tensor) -> None:
        """See `PerExampleGradient`: one matrix product, with the weights folded into the thinner factor."""
        b, a = self.b, self.a
        scale = weights.to(b.dtype).view(-1, 1, 1)
        if b.shape[2] <= a.shape[2]:
            b = b * scale
        else:
            a = a * scale
        b, a = b.flatten(0, 1).contiguous(), a.flatten(0, 1).contiguous()
        target = out if self.arrange is _identity else torch.empty(b.shape[1], a.shape[1], dtype=out.dtype)
        _multiply(b, a, target)
        if target is not out:
            out.copy_(self.arrange(target[None])[0])

    def mask_out(self, is_invalid: Tensor) -> "FactoredGradient":
        """See `PerExampleGradient`: zeros in both factors, because zero times infinity is not zero."""
        return replace(self, b=_zero_rows(self.b, is_invalid), a=_zero_rows(self.a, is_invalid))

    def dense(self) -> Tensor:
        """See `PerExampleGradient`."""
        return self.arrange(torch.bmm(self.b.mT, self.a))


@dataclass(frozen=True, eq=False)
class SparseGradient:
    """The gradients of an embedding: example `owner` has `values` in row `row`, each pair at most once."""

    owner: Tensor
    row: Tensor
    values: Tensor
    examples: int
    shape: torch.Size
    max_rows: int
    """The maximum number of rows per example."""

    @classmethod
    def of(cls, tokens: Tensor, b: Tensor, shape: torch.Size) -> "SparseGradient":
        """From B×T tokens and the B×T×D gradients of their embeddings."""
        examples, length = tokens.shape
        owner = np.repeat(np.arange(examples, dtype=np.int64), length)
        key = owner * shape[0] + tokens.reshape(-1).numpy()
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        first = np.empty(ordered.size, dtype=bool)
        first[:1] = True
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        places = np.cumsum(first) - 1
        different = ordered[first]
        values = torch.zeros(different.size, shape[1], dtype=b.dtype)
        values.index_add_(0, torch.from_numpy(places), b.reshape(-1, shape[1])[torch.from_numpy(order)])
        example_of, row_of = np.divmod(different, shape[0])
        max_rows = min(length, shape[0])
        return cls(torch.from_numpy(example_of), torch.from_numpy(row_of), values, examples, shape, max_rows)

    def rounding_depth(self, units: int) -> int:
        """See `PerExampleGradient`: a row gets at most one number from each example."""
        return units + 2

    @cached_property
    def squared_norms(self) -> FloatArray:
        """See `PerExampleGradient`: different tokens are different rows, so nothing cancels."""
        norms: FloatArray = np.bincount(
            self.owner.numpy(), weights=squared_norm_bounds(self.values), minlength=self.examples
        ).astype(np.float64)
        return norms

    @property
    def squared_magnitudes(self) -> FloatArray:
        """See `PerExampleGradient`: the norms themselves."""
        return self.squared_norms

    def write_weighted_sum(self, weights: Tensor, out: Tensor) -> None:
        """See `PerExampleGradient`: each example's weighted rows, added in place."""
        weighted = self.values * weights.to(self.values.dtype)[self.owner, None]
        out.zero_().index_add_(0, self.row, weighted)

    def mask_out(self, is_invalid: Tensor) -> "SparseGradient":
        """See `PerExampleGradient`."""
        return replace(self, values=_zero_rows(self.values, is_invalid[self.owner]))

    def pack(self) -> tuple[Tensor, Tensor]:
        """The rows and their values by example, filled up with −1 and zeros."""
        before = torch.bincount(self.owner, minlength=self.examples).cumsum(0).roll(1)
        before[:1] = 0
        at = torch.arange(len(self.owner)) - before[self.owner]
        rows = torch.full((self.examples, self.max_rows), -1)
        values = torch.zeros(self.examples, self.max_rows, self.shape[1], dtype=self.values.dtype)
        rows[self.owner, at], values[self.owner, at] = self.row, self.values
        return rows, values

    def dense(self) -> Tensor:
        """See `PerExampleGradient`: a whole table per example."""
        table = torch.zeros(self.examples, *self.shape, dtype=self.values.dtype)
        table[self.owner, self.row] = self.values
        return table


def factored_gradient(b: Tensor, a: Tensor, arrange: Arrange = _identity) -> PerExampleGradient:
    """Σ_t b_t ⊗ a_t for each example, written out if that is cheaper than Gram matrices."""
    batch, positions, p = a.shape
    q = b.shape[2]
    if positions == 1:
        return FactoredGradient(b, a, arrange)
    is_large = batch * p * q > MAX_DENSE_NUMBERS
    if is_large or positions * (p + q) < 4 * p * q // positions:
        return FactoredGradient(b, a, arrange)
    return DenseGradient(torch.bmm(b.mT, a), arrange)


def squared_norm_bounds(rows: Tensor) -> FloatArray:
    """Upper bounds of Σ x² over each row, in double precision: squares cannot cancel."""
    numbers, length = rows.numpy(), rows.shape[1]
    dot = _dot if length > _SHORT_ROW else _einsum_dot
    bounds: FloatArray = np.zeros(rows.shape[0])
    with np.errstate(all="ignore"):
        for start in range(0, length, _MAX_FLOAT32_TERMS):
            part = numbers[:, start : start + _MAX_FLOAT32_TERMS]
            bounds += dot(part, part)
        # Rows too small or too large for single-precision squares are computed again, in double precision.
        is_extreme = ~((bounds > _MIN_SQUARE) & (bounds < _MAX_SQUARE))
        if np.logical_or.reduce(is_extreme):
            bounds[is_extreme] = np.square(numbers[is_extreme].astype(np.float64)).sum(axis=1)
            # Beyond this a weight, or a weight times a factor, would underflow.
            bounds[~(bounds < _MAX_SQUARE)] = np.inf
    bounds *= 1 + (min(length, _MAX_FLOAT32_TERMS) + 16) * UNIT_ROUNDOFF
    return bounds


def _reciprocal(sizes: FloatArray, like: Tensor) -> Tensor:
    """1/size for each example as a power of two, so that multiplying by it is exact."""
    with np.errstate(all="ignore"):
        powers = np.exp2(
            -np.round(np.log2(np.clip(np.nan_to_num(sizes, nan=1.0, posinf=1.0), 2.0**-100, 2.0**100)))
        )
    return torch.from_numpy(powers).to(like.dtype).view(-1, 1, 1)


def _multiply(b: Tensor, a: Tensor, out: Tensor) -> None:
    """Write bᵀ·a into `out`: products of slabs of rows, added up."""
    rows = b.shape[0]
    slab = _slab(rows)
    done = rows - rows % slab
    if done // slab * out.numel() <= _SMALL_PRODUCT:
        # All slabs in one call: for small products, calls take longer than arithmetic.
        slabs = [x[:done].view(done // slab, slab, x.shape[1]) for x in (b, a)]
        torch.sum(torch.bmm(slabs[0].mT, slabs[1]), 0, out=out)
    elif b.shape[1] > a.shape[1]:
        # Kernels are faster along long rows.
        transposed = torch.empty(a.shape[1], b.shape[1], dtype=out.dtype)
        _multiply(a, b, transposed)
        out.copy_(transposed.t())
        return
    else:
        done = slab
        torch.mm(b[:slab].t(), a[:slab], out=out)
    product = torch.empty_like(out) if done < rows else out
    for start in range(done, rows, slab):
        # Not directly into `out`: a kernel may add the terms one by one to what is there.
        out.add_(torch.mm(b[start : start + slab].t(), a[start : start + slab], out=product))


def _slab(rows: int) -> int:
    """The number of rows in a slab: so few that no term passes many roundings."""
    return max(1, min(rows, max(_MIN_SLAB_ROWS, isqrt(rows))))


def _product_rounding_depth(rows: int) -> int:
    """The maximum number of roundings of a term when up to `rows` rows are multiplied and added."""
    slab = _slab(rows)
    return slab + -(-rows // slab) + 3


def _zero_rows(values: Tensor, is_invalid: Tensor) -> Tensor:
    return torch.where(
        is_invalid.view(-1, *[1] * (values.dim() - 1)), torch.zeros((), dtype=values.dtype), values
    )
