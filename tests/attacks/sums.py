"""What attacks on sums share: a target gives the exact value of some rows and the sensitivity it claims."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from hubbub.sensitivity import unwrap

Claimed = Callable[[Sequence[Any]], tuple[Any, Fraction]]


def claimed(rule):
    """One of our rules as a target."""

    def target(rows):
        bounded = rule(rows)
        return unwrap(bounded), bounded.sensitivity.l1

    return target


def moves_too_far(target: Claimed, rows: Sequence[Any], neighbour: Sequence[Any]) -> bool:
    """Whether the value moves by more than is claimed, is no number, or the claim depends on the rows."""
    (one, first), (other, second) = target(rows), target(neighbour)
    if not np.all(np.isfinite(np.asarray([one, other], dtype=float))):
        return True
    moved = np.sum(np.abs(np.asarray(one, dtype=object) - np.asarray(other, dtype=object)))
    return first != second or moved > first
