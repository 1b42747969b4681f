"""Regret of contribution limits that are found: the error over that of the best fixed limit, for many laws.

    .venv-bench/bin/python benchmarks/limits.py                  # rows per unit, and bounds of values
    .venv-bench/bin/python benchmarks/limits.py --repetitions 20 --epsilon 0.3
    .venv-bench/bin/python benchmarks/limits.py --random 48      # instead, laws with random parameters

Each law is a table of contributions; the truth is their sum. A fixed limit L has the mean absolute error of
bias plus Laplace noise of scale L/ε with all of ε. A limit that is found has what is left of ε
after the search. The noise here is numpy's: nothing is protected, and the reading is post-processing.
"""

import argparse
import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hubbub.sql.bound_estimation import CLEAR_ENOUGH, MAX_NOISE, MAX_REGRET, read_bounds
from hubbub.sql.bounding_sql import MAGNITUDE_ENDS, MAGNITUDES
from hubbub.sql.limit_choice import ROW_BINS, ROW_LIMITS, ROW_SIZES
from hubbub.sql.plan import search_share

Floats = NDArray[np.float64]
Rule = Callable[[Floats, float, float, int, Generator], tuple[float, float]]
"""From the sizes, the search's share, ε, the number of groups and a generator: the limit, and the ε left."""

_OLD_ENDS = np.array(sorted({math.isqrt(math.isqrt(1 << k)) for k in range(80)} | {2**20 - 1}), dtype=float)
_DATA = Path(__file__).parents[2] / "shared" / "data" / "tabular"


def laws() -> dict[str, Floats]:
    """Rows per unit."""
    rng = np.random.default_rng(7)
    places = (np.arange(93662) + 0.5) / 93662
    pages = {
        "ones": np.ones(10_000),
        "constant 12": np.full(3000, 12.0),
        "uniform 1..50": rng.integers(1, 51, 10_000),
        "geometric 10": rng.geometric(0.1, 20_000),
        "poisson 5, 500 units": 1 + rng.poisson(5, 500),
        "poisson 100, 500 units": 1 + rng.poisson(100, 500),
        "lognormal 1.5": np.round(rng.lognormal(1, 1.5, 20_000)),
        "lognormal 1": np.round(rng.lognormal(3, 1, 5000)),
        "zipf 3": rng.zipf(3, 30_000),
        "zipf 2.3": rng.zipf(2.3, 100_000),
        "gamma, cut at 575": np.minimum(np.round(rng.gamma(1.2, 70, 4043)), 575),
        "visits": np.minimum(np.floor(1.9 * places**-0.78), 6812),
        "bimodal": np.concatenate([rng.integers(1, 4, 9000), rng.integers(100, 201, 1000)]),
        "one giant": np.concatenate([rng.integers(1, 4, 9999), [10**6]]),
        "exponential, 300 units": np.ceil(rng.exponential(20, 300)),
        "ones, 100 units": np.ones(100),
        # Not looked at while the rule was made:
        "weibull 0.7": np.ceil(rng.weibull(0.7, 15_000) * 8),
        "pareto 1.8": np.floor(rng.pareto(1.8, 40_000) * 5) + 1,
        "negative binomial": 1 + rng.negative_binomial(2, 0.05, 8000),
        "uniform 200..300": rng.integers(200, 301, 2000),
        "mixture": np.concatenate([rng.geometric(0.5, 50_000), rng.poisson(60, 500)]),
        "binomial 20": 1 + rng.binomial(20, 0.3, 30_000),
    }
    for name, file, column in (("events", "nafld3_events.csv", None), ("names", "ssa_yob2010.csv", 2)):
        if (_DATA / file).exists():
            with (_DATA / file).open() as lines:
                rows = list(csv.reader(lines))
            if column is None:
                pages[name] = np.array(list(Counter(row[0] for row in rows[1:]).values()))
            else:
                pages[name] = np.array([int(row[column]) for row in rows])
    return {name: np.clip(sizes.astype(np.float64), 1, 10**6) for name, sizes in pages.items()}


def random_laws(count: int, seed: int) -> dict[str, Floats]:
    """Rows per unit of eight families in turn, with random numbers of units and parameters."""
    rng = np.random.default_rng([99, seed])
    draws = {
        "lognormal": lambda n: np.ceil(rng.lognormal(rng.uniform(0, 4), rng.uniform(0.3, 1.8), n)),
        "pareto": lambda n: np.floor(rng.pareto(rng.uniform(1.2, 4), n) * rng.uniform(1, 30)) + 1,
        "geometric": lambda n: rng.geometric(10 ** rng.uniform(-2.5, -0.2), n),
        "zipf": lambda n: rng.zipf(rng.uniform(2, 4), n),
        "weibull": lambda n: np.ceil(rng.weibull(rng.uniform(0.4, 2.5), n) * 10 ** rng.uniform(0.3, 2.5)),
        "uniform": lambda n: rng.integers(
            low := int(10 ** rng.uniform(0, 2.5)), low * rng.uniform(1, 20) + 2, n
        ),
        "poisson": lambda n: 1 + rng.poisson(10 ** rng.uniform(0, 2.7), n),
        "mixture": lambda n: np.concatenate(
            [
                rng.geometric(rng.uniform(0.05, 0.9), n),
                np.ceil(
                    rng.gamma(rng.uniform(1, 20), 10 ** rng.uniform(0, 2), int(n * rng.uniform(0, 0.3)) + 1)
                ),
            ]
        ),
    }
    pages = {}
    for number, (name, draw) in zip(range(count), itertools.cycle(draws.items()), strict=False):
        pages[f"{name} {number}"] = np.clip(draw(int(10 ** rng.uniform(2.3, 5))), 1, 10**6).astype(float)
    return pages


def mean_error(bias: Floats, scale: Floats) -> Floats:
    """E|X − bias| of Laplace noise."""
    return bias + scale * np.exp(-bias / scale)


def cut_off(sizes: Floats, limits: Floats) -> Floats:
    """What each limit cuts off, in all."""
    ordered = np.sort(sizes)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    places = np.searchsorted(ordered, limits, side="right")
    return np.asarray(sums[-1] - sums[places] - (ordered.size - places) * limits)


def count_units(sizes: Floats, ends: Floats) -> Floats:
    """The number of units in each bin."""
    return np.bincount(np.searchsorted(ends, sizes), minlength=ends.size).astype(np.float64)


def above_noise(seen: Floats, scale: float, noise: Floats, groups: int) -> float:
    """The rule that was used at first: what lies below its own noise is taken for nothing."""
    sizes = _OLD_ENDS
    units = np.where(seen > scale * np.log(100 * len(sizes) * sizes), seen, 0)
    over = np.array([(units * np.maximum(sizes - limit, 0)).sum() for limit in sizes])
    return float(sizes[np.argmin(over / groups + 2**0.5 * noise)])


def search(sizes: Floats, share: float, epsilon: float, groups: int, rng: Generator) -> tuple[float, float]:
    """The rule of hubbub, two looks at most (`hubbub.sql.bound_estimation`): the limit, and the ε left."""
    ends, limits, scale = np.array(ROW_BINS, dtype=float), np.array(ROW_LIMITS), 1 / (share * epsilon)
    fine = count_units(sizes, ends) + np.round(rng.laplace(0, scale, ends.size))
    # Noise of half the scale is all of the coarser noise once in four times.
    is_coarser = rng.random(ends.size) >= 1 / 4
    coarse = fine + np.round(rng.laplace(0, 2 * scale, ends.size)) * is_coarser
    half, whole = (1 - share / 2) * epsilon, (1 - share) * epsilon
    first = ROW_SIZES.choose(coarse, 2 * scale, limits / half, groups=groups)
    if first.regret <= CLEAR_ENOUGH * half / whole:
        return first.limit, half
    return ROW_SIZES.choose(fine, scale, limits / whole, groups=groups).limit, whole


def old_search(
    sizes: Floats, share: float, epsilon: float, groups: int, rng: Generator
) -> tuple[float, float]:
    """The rule that was used at first: one look, four bins to a doubling, and nothing below the noise."""
    scale, left = 1 / (share * epsilon), (1 - share) * epsilon
    counts = count_units(sizes, _OLD_ENDS)
    seen = counts + np.round(rng.laplace(0, scale, counts.size))
    return above_noise(seen, scale, _OLD_ENDS / left, groups), left


def regret(
    rule: Rule, sizes: Floats, *, epsilon: float, share: float, groups: int, repetitions: int, seed: int
) -> tuple[float, float, Floats]:
    """Mean regret, its standard error, and the limits."""
    # Draws of its own for each law: one unlucky draw must not count in all of them.
    rng = np.random.default_rng([1, seed])
    fixed = np.unique(np.concatenate([np.arange(1.0, 2000.0), _OLD_ENDS, ROW_LIMITS]))
    best = mean_error(cut_off(sizes, fixed) / groups, fixed / epsilon).min()
    results, left = np.array([rule(sizes, share, epsilon, groups, rng) for _ in range(repetitions)]).T
    errors = mean_error(cut_off(sizes, results) / groups, results / left) / best
    return float(errors.mean()), float(errors.std() / repetitions**0.5), results


def print_reuse(epsilon: float, share: float, repetitions: int) -> None:
    """The regret of limits from a histogram with so many times the noise of a search, by expected regret.

    Such a histogram is what an earlier query with less ε has released: nothing is spent on it. Without an
    earlier one, the regret is that of the table above.
    """
    print(f"\nUsed: up to {MAX_NOISE} times the noise, and an expected regret of {MAX_REGRET:g}.")
    print("| noise | all: regret | worst law | expected ≤ 1.5: of all | regret | others |")
    print("|---:|---:|---:|---:|---:|---:|")
    ends, limits = np.array(ROW_BINS, dtype=float), np.array(ROW_LIMITS, dtype=float)
    for times in (1, 2, 4, 10, 30, 100):
        expected, errors, scale = [], [], times / (share * epsilon)
        for seed, sizes in enumerate(laws().values()):
            rng = np.random.default_rng([2, seed, times])
            counts = count_units(sizes, ends)
            best = mean_error(cut_off(sizes, limits), limits / epsilon).min()
            for _ in range(repetitions):
                seen = counts + np.round(rng.laplace(0, scale, ends.size))
                choice = ROW_SIZES.choose(seen, scale, limits / epsilon)
                limit = np.array([choice.limit])
                errors.append(mean_error(cut_off(sizes, limit), limit / epsilon)[0] / best)
                expected.append(choice.regret)
        logs, is_low = np.log(errors), np.array(expected) <= MAX_REGRET
        worst = np.array(errors).reshape(-1, repetitions).mean(axis=1).max()
        cells = [f"{np.exp(logs[mask].mean()):.2f}" if mask.any() else "–" for mask in (is_low, ~is_low)]
        every = np.exp(logs.mean())
        print(f"| {times}× | {every:.2f} | {worst:,.1f} | {is_low.mean():.0%} | {cells[0]} | {cells[1]} |")


def values() -> dict[str, Floats]:
    """Values of which the bounds are found, one a unit."""
    rng = np.random.default_rng(3)
    return {
        "uniform 0..100": rng.uniform(0, 100, 10_000),
        "lognormal 1.5": rng.lognormal(3, 1.5, 10_000),
        "lognormal 0.5": rng.lognormal(3, 0.5, 10_000),
        "pareto 2.5": rng.pareto(2.5, 10_000) + 1,
        "pareto 1.5": rng.pareto(1.5, 10_000) + 1,
        "exponential": rng.exponential(20, 10_000),
        "normal 50, 10": rng.normal(50, 10, 10_000),
        "normal 0, 1": rng.normal(0, 1, 10_000),
        "ones": np.ones(10_000),
        "uniform, one odd": np.append(rng.uniform(0, 100, 10_000), 1e9),
        "nine tenths zeros": np.where(rng.random(10_000) < 0.9, 0, rng.lognormal(3, 1, 10_000)),
    }


def print_bounds(epsilon: float, repetitions: int) -> None:
    """The regret of bounds that are found for a SUM, with a tenth of ε."""
    print("\n| values | regret | bounds: median |\n|---|---:|---|")
    rng, ends = np.random.default_rng(1), np.array(MAGNITUDE_ENDS)
    scale, left, regrets = 10 / epsilon, 0.9 * epsilon, []
    for name, sample in values().items():
        far = np.searchsorted(ends, np.abs(sample), side="right")
        counts = np.bincount(np.where(sample > 0, far, -far) + ends.size, minlength=MAGNITUDES)
        limits = np.exp(np.linspace(np.log(0.01), np.log(1e10), 800))
        best = mean_error(cut_off(np.abs(sample), limits), limits / epsilon).min()
        errors, results = [], []
        for _ in range(repetitions):
            seen = counts + np.round(rng.laplace(0, scale, counts.size))
            low, high = map(float, read_bounds(seen, scale, 1 / left, 1) or (-1.0, 1.0))
            bias = np.abs(sample - np.clip(sample, low, high)).sum()
            errors.append(float(mean_error(bias, np.array(max(-low, high) / left)) / best))
            results.append((low, high))
        regrets.append(np.mean(errors))
        low, high = np.median(results, axis=0)
        spread = np.std(errors) / repetitions**0.5
        print(f"| {name} | {np.mean(errors):.2f} ± {spread:.2f} | {low:g}, {high:g} |")
    print(f"geometric mean {np.exp(np.log(regrets).mean()):.2f}, worst {max(regrets):.2f}")


def main() -> None:
    """Print the regret of both rules for each law."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=1)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--share", type=float)
    parser.add_argument("--random", type=int, default=0, help="this many random laws instead of the list")
    parser.add_argument("--seed", type=int, default=1, help="of the random laws")
    arguments = parser.parse_args()
    share = arguments.share or float(search_share(arguments.groups))
    print(f"ε = {arguments.epsilon:g}, groups: {arguments.groups}, {share:g} of ε for the search at most")
    print("| law | units | before | now | limits: 5 %, median, 95 % |\n|---|---:|---:|---:|---|")
    sample = {"epsilon": arguments.epsilon, "groups": arguments.groups, "repetitions": arguments.repetitions}
    all_before, all_now = [], []
    pages = random_laws(arguments.random, arguments.seed) if arguments.random else laws()
    for seed, (name, sizes) in enumerate(pages.items()):
        before, _, _ = regret(old_search, sizes, share=0.1, seed=seed, **sample)
        now, error, result = regret(search, sizes, share=share, seed=seed, **sample)
        all_before.append(before)
        all_now.append(now)
        low, middle, high = np.percentile(result, [5, 50, 95])
        print(
            f"| {name} | {sizes.size:,} | {before:.2f} | {now:.2f} ± {error:.2f} | "
            f"{low:,.0f}, {middle:,.0f}, {high:,.0f} |"
        )
    for name, figures in (("before", all_before), ("now", all_now)):
        mean = float(np.exp(np.log(figures).mean()))
        print(f"{name}: geometric mean {mean:.2f}, worst {max(figures):.2f}")
    if arguments.random:
        return
    print_reuse(arguments.epsilon, share, max(1, arguments.repetitions // 5))
    print_bounds(arguments.epsilon, arguments.repetitions)


if __name__ == "__main__":
    main()
