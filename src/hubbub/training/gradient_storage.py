"""Gradients of each example, of one parameter, in the form that is cheapest to hold.

A piece is about `B` examples. It knows an upper bound of each one's squared norm, and how to add them up,
each with a weight; never more of it is computed than that needs.

    Dense     B gradients, written out
    Outer     Σ_t b_t ⊗ a_t for each example, kept as its factors
    Rows      of an embedding: the rows that an example touched

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
    "UNIT",
    "DenseGradient",
    "Doubles",
    "FactoredGradient",
    "PerExampleGradient",
    "SparseGradient",
    "factored_gradient",
]

UNIT = 2.0**-24
"""Half a unit in the last place of a float32: by so much one operation errs, relatively."""

_AT_ONCE = 1 << 14
"""So many squares are added up in float32 before double precision takes over."""
_ONE_SLAB = 64
"""Rows that are added up at once."""
_FEW = 1 << 16
"""Numbers that are quickly written and added up."""
_FAINT, _LOUD = 1e-20, 2.0**100
"""Between these, squares are what single precision says; above, a unit adds nothing."""
_MOST_DENSE = 1 << 24
"""Numbers: more than these are not written out where factors can be kept."""

# One dot product for each row; before numpy 2 by another name, and slower.
_sum: Callable[..., Any] = partial(np.einsum, "ij,ij->i")
_dot: Callable[..., Any] = getattr(np, "vecdot", _sum)
_SHORT = 200
"""Rows up to this length are quicker without a call for each."""

Arrange = Callable[[Tensor], Tensor]
Doubles = NDArray[np.float64]


class PerExampleGradient(Protocol):
    """Gradients of B examples of one parameter."""

    def chain(self, units: int) -> int:
        """The most roundings that a number passes while up to so many examples are added up."""

    @property
    def squares(self) -> Doubles:
        """Upper bounds of the squared norms: B doubles."""

    @property
    def reach(self) -> Doubles:
        """Upper bounds of the squares of what rounding is relative to: the norms, if nothing cancels."""

    def add_up(self, weights: Tensor, out: Tensor) -> None:
        """Write Σ_j weights_j · gradient_j into `out`, of the parameter's shape."""

    def without(self, bad: Tensor) -> "PerExampleGradient":
        """The same with nothing in the places that `bad` marks."""

    def dense(self) -> Tensor:
        """All of them, written out: B × the parameter's shape."""


def _same(total: Tensor) -> Tensor:
    return total


@dataclass(frozen=True, eq=False)
class DenseGradient:
    """Gradients written out; `arrange` brings their sum, or all of them, into the parameter's shape."""

    values: Tensor
    arrange: Arrange = _same
    known: Doubles | None = None
    """The squares, where they were needed before."""

    def chain(self, units: int) -> int:
        """One product and a sum over the examples, by slabs."""
        return _chain(units)

    @cached_property
    def squares(self) -> Doubles:
        """Sums of squares: nothing cancels."""
        return squares_of(self.values.flatten(1)) if self.known is None else self.known

    @property
    def reach(self) -> Doubles:
        """The norms themselves."""
        return self.squares

    def add_up(self, weights: Tensor, out: Tensor) -> None:
        """A vector times a matrix."""
        flat, shares = self.values.flatten(1), weights.to(self.values.dtype).view(-1, 1)
        total = out.view(1, -1) if self.arrange is _same else torch.empty(1, flat.shape[1], dtype=out.dtype)
        _multiply(shares, flat, total)
        if self.arrange is not _same:
            out.copy_(self.arrange(total.view(1, *self.values.shape[1:]))[0])

    def without(self, bad: Tensor) -> "DenseGradient":
        """Zeros in those places."""
        return replace(self, values=_silenced(self.values, bad), known=None)

    def dense(self) -> Tensor:
        """As they are."""
        return self.arrange(self.values)


@dataclass(frozen=True, eq=False)
class FactoredGradient:
    """Σ_t b_t ⊗ a_t for each example: b is B×T×q, a is B×T×p, the gradients would be B×q×p."""

    b: Tensor
    a: Tensor
    arrange: Arrange = _same

    def chain(self, units: int) -> int:
        """Sums of slabs, and the sum of those."""
        return _chain(units * self.a.shape[1])

    @cached_property
    def norms(self) -> tuple[Doubles, Doubles]:
        """‖a_t‖² and ‖b_t‖², rounded up: B×T doubles."""
        batch, positions = self.a.shape[:2]
        a, b = (squares_of(x.flatten(0, 1)).reshape(batch, positions) for x in (self.a, self.b))
        return a, b

    @cached_property
    def squares(self) -> Doubles:
        """‖a‖²‖b‖² where T = 1; else from the two Gram matrices, and up by what they may err."""
        norm_a, norm_b = self.norms
        if self.a.shape[1] == 1:
            return (norm_a * norm_b)[:, 0]
        # Scaled so that the longest position of each factor is about 1: little is lost below single
        # precision, and it is added at the end.
        sizes = [np.sqrt(norm.max(axis=1)) for norm in (norm_a, norm_b)]
        factors = [_reciprocal(size, x) for x, size in zip((self.a, self.b), sizes, strict=True)]
        a, b = self.a * factors[0], self.b * factors[1]
        gram = torch.bmm(a, a.mT).mul_(torch.bmm(b, b.mT))
        found = gram.sum(2, dtype=torch.float64).sum(1).numpy()
        wrong = (self.a.shape[2] + self.b.shape[2] + 16) * UNIT
        lost = self.a.shape[1] ** 2 * (self.a.shape[2] + self.b.shape[2]) * 2.0**-120
        with np.errstate(invalid="ignore"):
            scale = 1 / (factors[0].double() * factors[1].double()).view(-1).numpy() ** 2
            return (np.maximum(found, 0.0) + lost) * scale + wrong * self.reach

    @cached_property
    def reach(self) -> Doubles:
        """(Σ_t ‖a_t‖‖b_t‖)²: where positions cancel it is far above the norm."""
        norm_a, norm_b = self.norms
        if self.a.shape[1] == 1:
            return self.squares
        return np.sqrt(norm_a * norm_b).sum(1) ** 2 * (1 + 4 * UNIT)

    def add_up(self, weights: Tensor, out: Tensor) -> None:
        """One product of matrices, the weights folded into the thinner factor."""
        b, a = self.b, self.a
        scale = weights.to(b.dtype).view(-1, 1, 1)
        if b.shape[2] <= a.shape[2]:
            b = b * scale
        else:
            a = a * scale
        b, a = b.flatten(0, 1).contiguous(), a.flatten(0, 1).contiguous()
        target = out if self.arrange is _same else torch.empty(b.shape[1], a.shape[1], dtype=out.dtype)
        _multiply(b, a, target)
        if target is not out:
            out.copy_(self.arrange(target[None])[0])

    def without(self, bad: Tensor) -> "FactoredGradient":
        """Zeros in both factors: zero times infinity would not be nothing."""
        return replace(self, b=_silenced(self.b, bad), a=_silenced(self.a, bad))

    def dense(self) -> Tensor:
        """All the products."""
        return self.arrange(torch.bmm(self.b.mT, self.a))


@dataclass(frozen=True, eq=False)
class SparseGradient:
    """Of an embedding: example `owner` has `values` in row `row`, each pair at most once."""

    owner: Tensor
    row: Tensor
    values: Tensor
    examples: int
    shape: torch.Size
    most: int
    """Rows that an example has, at most."""

    @classmethod
    def of(cls, tokens: Tensor, b: Tensor, shape: torch.Size) -> "SparseGradient":
        """From B×T tokens and the B×T×D gradients of what they were looked up as."""
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
        whose, which = np.divmod(different, shape[0])
        most = min(length, shape[0])
        return cls(torch.from_numpy(whose), torch.from_numpy(which), values, examples, shape, most)

    def chain(self, units: int) -> int:
        """A row gets at most one number from each example."""
        return units + 2

    @cached_property
    def squares(self) -> Doubles:
        """Sums over the rows: nothing cancels, as different tokens are different rows."""
        found: Doubles = np.bincount(
            self.owner.numpy(), weights=squares_of(self.values), minlength=self.examples
        ).astype(np.float64)
        return found

    @property
    def reach(self) -> Doubles:
        """The norms themselves."""
        return self.squares

    def add_up(self, weights: Tensor, out: Tensor) -> None:
        """Each row's share, added where it belongs."""
        weighted = self.values * weights.to(self.values.dtype)[self.owner, None]
        out.zero_().index_add_(0, self.row, weighted)

    def without(self, bad: Tensor) -> "SparseGradient":
        """Zeros in the rows of those examples."""
        return replace(self, values=_silenced(self.values, bad[self.owner]))

    def packed(self) -> tuple[Tensor, Tensor]:
        """By example: which rows it has, and what in them; −1 and zeros where it has no more."""
        before = torch.bincount(self.owner, minlength=self.examples).cumsum(0).roll(1)
        before[:1] = 0
        at = torch.arange(len(self.owner)) - before[self.owner]
        rows = torch.full((self.examples, self.most), -1)
        values = torch.zeros(self.examples, self.most, self.shape[1], dtype=self.values.dtype)
        rows[self.owner, at], values[self.owner, at] = self.row, self.values
        return rows, values

    def dense(self) -> Tensor:
        """Whole tables."""
        table = torch.zeros(self.examples, *self.shape, dtype=self.values.dtype)
        table[self.owner, self.row] = self.values
        return table


def factored_gradient(b: Tensor, a: Tensor, arrange: Arrange = _same) -> PerExampleGradient:
    """Σ_t b_t ⊗ a_t for each example, written out where that is cheaper than Gram matrices."""
    batch, positions, p = a.shape
    q = b.shape[2]
    if positions == 1:
        return FactoredGradient(b, a, arrange)
    is_large = batch * p * q > _MOST_DENSE
    if is_large or positions * (p + q) < 4 * p * q // positions:
        return FactoredGradient(b, a, arrange)
    return DenseGradient(torch.bmm(b.mT, a), arrange)


def squares_of(rows: Tensor) -> Doubles:
    """Upper bounds of Σ x² over each row, in double precision: squares cannot cancel."""
    numbers, length = rows.numpy(), rows.shape[1]
    dot = _dot if length > _SHORT else _sum
    found: Doubles = np.zeros(rows.shape[0])
    with np.errstate(all="ignore"):
        for start in range(0, length, _AT_ONCE):
            part = numbers[:, start : start + _AT_ONCE]
            found += dot(part, part)
        # Too small or too large for squares of single precision: those rows once more, in double.
        odd = ~((found > _FAINT) & (found < _LOUD))
        if np.logical_or.reduce(odd):
            found[odd] = np.square(numbers[odd].astype(np.float64)).sum(axis=1)
            # Beyond this a weight, or a weight times a factor, would be too small to be held.
            found[~(found < _LOUD)] = np.inf
    found *= 1 + (min(length, _AT_ONCE) + 16) * UNIT
    return found


def _reciprocal(sizes: Doubles, like: Tensor) -> Tensor:
    """1/size for each example, as powers of two: multiplying by them is exact."""
    with np.errstate(all="ignore"):
        powers = np.exp2(
            -np.round(np.log2(np.clip(np.nan_to_num(sizes, nan=1.0, posinf=1.0), 2.0**-100, 2.0**100)))
        )
    return torch.from_numpy(powers).to(like.dtype).view(-1, 1, 1)


def _multiply(b: Tensor, a: Tensor, out: Tensor) -> None:
    """bᵀ·a into `out`: slabs of rows are multiplied, and their products added up."""
    rows = b.shape[0]
    slab = _slab(rows)
    done = rows - rows % slab
    if done // slab * out.numel() <= _FEW:
        # All slabs in one call, as calls would take longer than numbers.
        slabs = [x[:done].view(done // slab, slab, x.shape[1]) for x in (b, a)]
        torch.sum(torch.bmm(slabs[0].mT, slabs[1]), 0, out=out)
    elif b.shape[1] > a.shape[1]:
        # Kernels are quicker along long rows.
        turned = torch.empty(a.shape[1], b.shape[1], dtype=out.dtype)
        _multiply(a, b, turned)
        out.copy_(turned.t())
        return
    else:
        done = slab
        torch.mm(b[:slab].t(), a[:slab], out=out)
    product = torch.empty_like(out) if done < rows else out
    for start in range(done, rows, slab):
        # Not into `out` at once: a kernel may add the terms to what is there one by one.
        out.add_(torch.mm(b[start : start + slab].t(), a[start : start + slab], out=product))


def _slab(rows: int) -> int:
    """So many rows are added up at once: no number then passes many roundings."""
    return max(1, min(rows, max(_ONE_SLAB, isqrt(rows))))


def _chain(rows: int) -> int:
    """Roundings that a number passes when so many rows, or fewer, are multiplied and added up."""
    slab = _slab(rows)
    return slab + -(-rows // slab) + 3


def _silenced(values: Tensor, bad: Tensor) -> Tensor:
    return torch.where(bad.view(-1, *[1] * (values.dim() - 1)), torch.zeros((), dtype=values.dtype), values)
