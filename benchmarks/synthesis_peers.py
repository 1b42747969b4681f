"""Synthetic tables of other tools, on Adult in 20 quantiles of its numbers; each tool in its own environment.

    .venv-bench/bin/python benchmarks/synthesis.py --codes adult.csv
    python3 -m venv mbi-venv && mbi-venv/bin/pip install mbi==2.0.0 scipy
    mbi-venv/bin/python benchmarks/synthesis_peers.py adult.csv mbi 1 3      # ε = 1, three runs
    python3 -m venv smartnoise-venv && smartnoise-venv/bin/pip install torch==2.13.0
    smartnoise-venv/bin/pip install smartnoise-synth==1.0.8
    smartnoise-venv/bin/python benchmarks/synthesis_peers.py adult.csv smartnoise 1 3

mbi has inference and no mechanism, so MST is written here as its paper has it: a third of ρ for tables of
one column, a third for choosing a tree of pairs, a third for measuring them; ρ is exact for (ε, δ), as in
hubbub. Codes and quantiles are read off the real table, for these tools only, and the noise is numpy's.
Printed are the mean distances of tables of two columns and of one, and what independent columns would have.
"""

import csv
import importlib
import math
import resource
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np

DELTA = 1e-9


def read_codes(path):
    with Path(path).open(newline="") as file:
        names, *rows = csv.reader(file)
    return names, np.array(rows, dtype=np.int64)


def count(values, sizes, columns):
    shape = [sizes[column] for column in columns]
    cells = np.ravel_multi_index([values[:, column] for column in columns], shape)
    return np.bincount(cells, minlength=math.prod(shape)).astype(float)


def distance(real, synthetic, sizes, number):
    """The mean total variation distance of all tables of so many columns."""
    distances = []
    for each in combinations(range(len(sizes)), number):
        shares = [count(values, sizes, each) / len(values) for values in (real, synthetic)]
        distances.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return np.mean(distances)


def shuffle_columns(values):
    rng = np.random.default_rng()
    return np.stack([rng.permutation(column) for column in values.T], axis=1)


def exact_rho(epsilon):
    """ρ of the Gaussian mechanism that is (ε, δ)-private."""
    norm = importlib.import_module("scipy.stats").norm
    low, high = 1e-9, 100.0
    for _ in range(200):
        mu = (low + high) / 2
        delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        low, high = (mu, high) if delta < DELTA else (low, mu)
    return low**2 / 2


def mst_of_mbi(names, values, sizes, epsilon):
    mbi = importlib.import_module("mbi")
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    rng = np.random.default_rng()
    third = exact_rho(epsilon) / 3
    domain = mbi.Domain(names, sizes)

    def measure(tables):
        sd = math.sqrt(len(tables) / (2 * third))
        noisy = []
        for each in tables:
            table = count(values, sizes, each)
            table += rng.normal(0, sd, table.size)
            noisy.append(mbi.LinearMeasurement(table, tuple(names[column] for column in each), stddev=sd))
        return noisy

    def fit(measurements, iterations):
        return mbi.estimation.MirrorDescent().estimate(domain, measurements, iters=iterations)

    measured = measure([(column,) for column in range(len(names))])
    model = fit(measured, 1000)
    single = [np.asarray(model.project((name,)).datavector()) for name in names]
    gains = {}
    for one, two in combinations(range(len(names)), 2):
        independent = np.outer(single[one], single[two]).ravel() / single[one].sum()
        gains[one, two] = np.abs(count(values, sizes, (one, two)) - independent).sum()
    step = math.sqrt(8 * third / (len(names) - 1))
    component, tree = list(range(len(names))), []
    while len(tree) < len(names) - 1:
        open_pairs = [(a, b) for a, b in gains if component[a] != component[b]]
        scores = step / 2 * np.array([gains[pair] for pair in open_pairs])
        weights = np.exp(scores - scores.max())
        a, b = open_pairs[rng.choice(len(open_pairs), p=weights / weights.sum())]
        tree.append((a, b))
        component = [component[a] if each == component[b] else each for each in component]
    rows = fit([*measured, *measure(tree)], 3000).synthetic_data().to_dict()
    return np.stack([np.asarray(rows[name]).astype(np.int64) for name in names], axis=1)


def mst_of_smartnoise(names, values, sizes, epsilon):
    del sizes
    pandas, snsynth = importlib.import_module("pandas"), importlib.import_module("snsynth")
    table = pandas.DataFrame(values, columns=names)
    synthesizer = snsynth.Synthesizer.create("mst", epsilon=epsilon, delta=DELTA)
    rows = synthesizer.fit_sample(table, preprocessor_eps=0.0, categorical_columns=list(names))
    return rows[list(names)].to_numpy().astype(np.int64)


TOOLS = {"mbi": mst_of_mbi, "smartnoise": mst_of_smartnoise}


def main():
    path, tool, epsilon, runs = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
    names, values = read_codes(path)
    sizes = [int(size) for size in values.max(axis=0) + 1]
    print(f"independent columns\t{distance(values, shuffle_columns(values), sizes, 2):.4f}")
    for _ in range(runs):
        start = time.process_time()
        rows = TOOLS[tool](names, values, sizes, epsilon)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        pairs, singles = (distance(values, rows, sizes, number) for number in (2, 1))
        print(
            f"{tool} MST\tε = {epsilon:g}\ttwo columns {pairs:.4f}\tone column {singles:.4f}"
            f"\t{seconds:.0f} CPU s\t{peak:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
