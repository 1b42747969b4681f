"""A row of the catalogue: one attack, run against ours and against a deliberately weak version."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Row:
    """An attack answers True where it has found a leak."""

    name: str
    """ "A01", or "A19-laplace" where one row of the catalogue is attacked in several ways."""
    attack: Callable[[Any], bool]
    ours: Mapping[str, Any]
    """Everything of ours that the attack can be tried on, by name."""
    mutant: Any
    hardly_misses: Callable[[Any], bool] | None = None
    """For attacks by chance: whether they miss the mutant less than once in a billion."""

    def __str__(self) -> str:
        return self.name


def both_tests(rows: list[Row]) -> tuple[Any, Any]:
    """The two tests of each row; of its targets every third is attacked in every run, at least one."""
    assert all(row.ours for row in rows)
    targets = [
        pytest.param(row, name, id=f"{row}-{name}", marks=[pytest.mark.long] * (at % 3 != first))
        for number, row in enumerate(rows)
        for first in [number % min(3, len(row.ours))]
        for at, name in enumerate(row.ours)
    ]

    @pytest.mark.parametrize(("row", "name"), targets)
    def test_ours_resists(row, name):
        assert not row.attack(row.ours[name]), f"{row} finds a leak in {name}"

    @pytest.mark.parametrize("row", rows, ids=str)
    def test_mutant_falls(row):
        if row.hardly_misses is not None:
            assert row.hardly_misses(row.mutant), f"{row} needs more draws"
        assert row.attack(row.mutant), f"{row} finds nothing in its mutant"

    return test_ours_resists, test_mutant_falls
