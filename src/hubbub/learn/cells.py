"""Columns of anything, cell by cell: none changes what another means, and none raises.

A list becomes no array of one type: that type would be made from all cells, so that one person's cell would
change what others' are.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import InvalidInput

__all__ = ["cells", "has_type", "names_somebody", "owners"]


def owners(units: Any, examples: int) -> list[NDArray[np.int64]]:
    """The places of each unit's examples. A key that is missing, or cannot be compared, names nobody.

    >>> [places.tolist() for places in owners(["a", None, "b", "a"], 4)]
    [[0, 3], [2]]

    Guarantee: which examples are a unit's depends on their own keys alone.
    Proof: docs/proofs/dpsgd.md, "What is assumed"
    """
    keys = cells(units)
    if keys.shape != (examples,):
        raise InvalidInput(
            "units is not one key for each example",
            why="it says whose each example is",
            fix="pass a vector as long as the data",
        )
    found: dict[Any, list[int]] = {}
    for place, key in enumerate(keys.tolist()):
        try:
            if names_somebody(key):
                found.setdefault(key, []).append(place)
        except Exception:  # noqa: BLE001, S112 - hashing and comparing run the keys' own code
            continue
    return [np.array(places, dtype=np.int64) for places in found.values()]


def has_type(given: Any) -> bool:
    """Whether it has a type of its own, as arrays do; that of a list would be made from all its cells."""
    return any(hasattr(given, name) for name in ("dtype", "dtypes", "__array__"))


def cells(given: Any) -> NDArray[Any]:
    """An array as it is; of anything else each cell by itself, so that none changes what another means."""
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidInput(
            "y or units is masked",
            why="what a mask hides would count",
            fix="pass a plain array without these rows",
        )
    try:
        if has_type(given):
            return np.asarray(given)
        listed = list(given)
    except Exception:  # noqa: BLE001 - making a list runs its own code
        return np.zeros((0, 0))
    cells = np.empty(len(listed), dtype=object)
    for place, cell in enumerate(listed):
        cells[place] = cell
    return cells


def names_somebody(unit: Any) -> bool:
    """What does not equal itself, as NaN, names nobody."""
    if isinstance(unit, tuple):
        return all(map(names_somebody, unit))
    return unit is not None and bool(unit == unit)  # noqa: PLR0124
