"""Quantiles by the exponential mechanism beside those of a tree of noisy counts: errors and interval widths.

PYTHONPATH=src .venv/bin/python benchmarks/quantiles.py
PYTHONPATH=src .venv/bin/python benchmarks/quantiles.py --largest 1000000 --repeat 100

Real noise at ε = 1, one row a unit. Weights of 1,629 people (30 to 180) where `../shared/data` has them, else
gamma values of about the same shape; with a little spread, so that samples of any size have few ties.
"""

import argparse
import csv
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np
from measure import show
from numpy.typing import NDArray

from hubbub.mechanisms import Laplace
from hubbub.sql.quantile_grid import QuantileGrid
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection
from hubbub.sql.quantile_tree import Tree

__all__ = ["run"]

Floats = NDArray[np.float64]

_DATA = Path(__file__).parents[2] / "shared" / "data" / "tabular" / "nhefs.csv"
_SIZES = (30, 100, 300, 1000, 10_000, 100_000, 1_000_000)
_CONFIDENCE = Fraction(19, 20)
_SETS = {
    "median": (Fraction(1, 2),),
    "quartiles": (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)),
    "90 %": (Fraction(9, 10),),
    "MAX": (Fraction(199, 200),),
    "5 of 6": tuple(Fraction(i, 6) for i in range(1, 6)),
    "7 of 8": tuple(Fraction(i, 8) for i in range(1, 8)),
    "9 of 10": tuple(Fraction(i, 10) for i in range(1, 10)),
}


def run(largest: int = 10_000, repeat: int = 60) -> None:
    """Print the mean error and the mean width of an interval, for each set of quantiles and each size."""
    rng = np.random.default_rng(1)
    people = weights(rng)
    for bounds in ((30, 180), (0, 10**9)):
        rows = []
        for name, fractions in _SETS.items():
            for size in (each for each in _SIZES if each <= largest):
                draws = rng.choice(people, (repeat, size)) + rng.normal(0, 1.5, (repeat, size))
                draws = np.clip(draws, *bounds)
                results = [
                    tree(draws, bounds, fractions),
                    selected(draws, bounds, fractions, Fraction(35, 100)),
                    selected(draws, bounds, fractions, Fraction(0)),
                ]
                ranks = [ceil(fraction * size) - 1 for fraction in fractions]
                truth = np.sort(draws, axis=1)[:, ranks].T
                errors = [f"{np.abs(value - truth).mean():.3g}" for value, _, _ in results]
                widths = [f"{(high - low).mean():.3g}" for _, low, high in results[:2]]
                covered = ((results[1][1] <= truth) & (truth <= results[1][2])).mean()
                rows.append((f"{name}, {size:,}", *errors, *widths, f"{covered:.3f}"))
        columns = ("rows", "tree", "65 % of ε", "all of ε", "width: tree", "65 %", "covered")
        show(f"Mean error at ε = 1, bounds {bounds[0]} to {bounds[1]:,}", columns, rows)


def weights(rng: np.random.Generator) -> Floats:
    """The values to draw from."""
    if not _DATA.exists():
        return 30 + rng.gamma(6, 7, 1629)
    with _DATA.open(encoding="utf-8") as lines:
        return np.array([float(row["wt71"]) for row in csv.DictReader(lines) if row["wt71"]])


def tree(draws: Floats, bounds: tuple[int, int], fractions: Sequence[Fraction]) -> tuple[Floats, ...]:
    """Quantiles from a tree: values and both ends, as tables of (fractions, repetitions)."""
    bins = Tree(Fraction(bounds[0]), Fraction(bounds[1]))
    noise = Laplace.of(sensitivity=bins.sensitivity(1), epsilon=1)
    results = []
    for values in draws:
        place = np.clip(np.searchsorted(bins.edges, values, side="right") - 1, 0, bins.leaves - 1)
        nodes = bins.nodes(*np.unique(place, return_counts=True))
        noisy = noise.release(nodes).value
        results.append(bins.tables(noisy[np.newaxis], noise, fractions, _CONFIDENCE))
    return tuple(np.concatenate(parts, axis=1) for parts in zip(*results, strict=True))


def selected(
    draws: Floats, bounds: tuple[int, int], fractions: Sequence[Fraction], share: Fraction
) -> tuple[Floats, ...]:
    """The same by selection, with this share of ε for intervals."""
    grid = QuantileGrid(
        (Fraction(bounds[0]), Fraction(bounds[1])), 16 if len(fractions) == 1 else 32, len(fractions) > 1
    )
    noise = Laplace.of(sensitivity=1, epsilon=share) if share else None
    selection = QuantileSelection(grid, tuple(fractions), 1 - share, Fraction(1), noise=noise)
    cell = np.clip(np.searchsorted(grid.edges, draws, side="right") - 1, 0, grid.cells - 1)
    keys, tally = np.unique(cell + np.arange(len(draws))[:, np.newaxis] * 2**20, return_counts=True)
    counts = CellCounts(len(draws), keys >> 20, keys & (2**20 - 1), tally)
    positions = selection.select(counts)
    table = positions
    if noise is not None:
        bins = selection.bin_counts(counts, positions)
        noisy = noise.release(bins.reshape(-1)).value.reshape(bins.shape)
        table = np.concatenate([positions, noisy], axis=1)
    return selection.estimate(table, _CONFIDENCE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare two ways to release quantiles.")
    parser.add_argument("--largest", type=int, default=10_000, help="the largest number of rows")
    parser.add_argument("--repeat", type=int, default=60, help="number of releases of each kind")
    options = parser.parse_args()
    run(options.largest, options.repeat)
