"""Synthetic tables: how like the real ones they are; with an outside judge, where it is installed.

    .venv-bench/bin/python benchmarks/synthesis.py                      # all cases, three runs each
    .venv-bench/bin/python benchmarks/synthesis.py --runs 1 acs adult   # some of them
    .venv-bench/bin/python benchmarks/synthesis.py --judge sdnist-venv/bin/python

The judge is SDNist's k-marginal (1000 = identical; k = 3 with PUMA, and k = 2 for the ten demographic
columns, which have no PUMA). Its environment is its own; `--judge` names its Python. Elsewhere the measure
is the mean total variation distance of all tables of two columns: numbers in the released bins, and in
20 quantiles of the real table. Every run is a process of its own, which reports its processor time
and peak memory, with the rows in memory: counting in an engine is apart.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from itertools import combinations

import numpy as np
from measure import show
from synthesis_schemas import DATA, TEN, acs_domain, acs_values, generated_table, simple_table, write_acs

from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.synthesizer import check_domain, synthesize

TARGETS = {
    "acs declared": ("730", "890", "930"),
    "acs defaults": ("690", "858", "900"),
    "acs ten columns": ("925", "983", "992"),
    "adult": (".075", ".022", ".011"),
    "adult, function declared": (".075", ".022", ".011"),
}
CASES = [
    *TARGETS,
    "acs declared, densities measured",
    "nhefs",
    "taxis",
    "military",
    "100 columns",
    "10 million rows",
]
EPSILONS = ("0.1", "1", "10")
_JUDGE = """
import sys
source = open(sys.argv[1]).read().replace(
    '["PUMA"])', '["PUMA"] if "PUMA" in data.d_synthetic_data.columns else [])'
).replace("__file__", repr(sys.argv[1]))
sys.argv = [sys.argv[1], *sys.argv[2:]]
exec(compile(source, sys.argv[0], "exec"))
"""
_TOOL = DATA.parent / "tools" / "kmarginal.py"


def table_of(case):
    if case.startswith("acs"):
        names = TEN if case == "acs ten columns" else None
        domain = acs_domain(declared="declared" in case, names=names, densities="measured" not in case)
        return domain, acs_values(domain)
    if case == "100 columns":
        return generated_table(100, 100_000)
    if case == "10 million rows":
        return generated_table(10, 10_000_000)
    return simple_table(case)


class KnownCells(InMemoryCounts):
    """Rows that are cells already: a stand-in for an engine, which counts ten million of them."""

    @classmethod
    def of_cells(cls, domain, cells):
        empty = InMemoryCounts.of(domain, {name: [] for name in domain.names})
        weights = np.ones(len(next(iter(cells.values()))), dtype=np.int64)
        return cls(domain, empty.unit, 1, 1, cells, weights, cells)

    def _count(self, cells, shape):
        if not cells:
            return np.array(self._weights.size, dtype=np.int64)
        return np.bincount(np.ravel_multi_index(cells, shape), minlength=int(np.prod(shape))).reshape(shape)


def distance(domain, real, synthetic, *, bins):
    """The mean total variation distance of all tables of two columns."""
    codes = []
    for column in domain.columns:
        one, other = real[column.name], synthetic[column.name]
        if column.is_binned:
            cuts = np.unique(np.nanquantile(one, np.linspace(0, 1, 21)[1:-1]))
            if bins:
                cuts = np.array([float(cut) for cut in column.cuts])
            other = np.array([np.nan if value is None else value for value in other.tolist()], dtype=float)
            pair = [
                np.where(np.isnan(x), cuts.size + 1, np.searchsorted(cuts, x, side="right"))
                for x in (one, other)
            ]
            codes.append((*pair, cuts.size + 2))
        elif isinstance(one, np.ndarray):
            codes.append((one, other.astype(np.int64), column.size))
        else:
            codes.append((column.encode(one), column.encode(other), column.size))
    distances = []
    for (a, x, m), (b, y, n) in combinations(codes, 2):
        first = np.bincount(a * n + b, minlength=m * n) / a.size
        second = np.bincount(x * n + y, minlength=m * n) / x.size
        distances.append(np.abs(first - second).sum() / 2)
    return float(np.mean(distances))


def write_codes(path):
    """Adult with its numbers in 20 quantiles, for other tools: benchmarks/synthesis_peers.py."""
    domain, values = simple_table("adult")
    codes = []
    for column in domain.columns:
        one = values[column.name]
        if column.is_binned:
            cuts = np.unique(np.nanquantile(one, np.linspace(0, 1, 21)[1:-1]))
            codes.append(np.where(np.isnan(one), cuts.size + 1, np.searchsorted(cuts, one, side="right")))
        else:
            codes.append(column.encode(one))
    header = ",".join(domain.names)
    np.savetxt(path, np.stack(codes, axis=1), fmt="%d", delimiter=",", header=header, comments="")


def run_one(case, epsilon, path):
    """One synthesis, in this process: prints its figures as JSON."""
    domain, values = table_of(case)
    check_domain(domain)
    is_cells = isinstance(values[domain.names[0]], np.ndarray) and not domain.columns[0].is_binned
    counts = KnownCells.of_cells(domain, values) if is_cells else InMemoryCounts.of(domain, values)
    rows = int(counts.count(()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    delta = Fraction(1, 10**9 if case.startswith("adult") else 10**6)
    budget = ReleaseBudget.of(epsilon=Fraction(epsilon), delta=delta, allow_large_epsilon=True)
    model = synthesize(counts, budget, population=rows)
    synthetic = model.generate()
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {
        "seconds": seconds,
        "peak": peak / 1024,
        "before": before / 1024,
        "tables": len(model.measured),
    }
    figures["spent"] = float(budget.spent / budget.rho)
    if case.startswith("acs"):
        write_acs(synthetic, path)
        cells = InMemoryCounts.of(
            model.columns.domain,
            {
                name: values
                if not model.columns.domain.column(name).is_binned
                else np.array([np.nan if each is None else each for each in values.tolist()], dtype=float)
                for name, values in synthetic.items()
            },
        )
        masks = [(rule.columns, model.columns.domain.mask(rule.columns)) for rule in domain.rules]
        figures["broken"] = sum(int(cells.count(names)[~mask].sum()) for names, mask in masks)
    else:
        binned = model.columns.domain
        figures["distance"] = distance(binned, values, synthetic, bins=True)
        figures["quantiles"] = distance(binned, values, synthetic, bins=False)
    print(json.dumps(figures))


def measure(case, epsilon, judge):
    """One run in its own process, judged."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/synthetic.csv"
        command = [sys.executable, __file__, "--one", case, "--epsilons", epsilon, "--output", path]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if case.startswith("acs") and judge:
            command = [judge, "-c", _JUDGE, str(_TOOL), path]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            figures["score"] = int(
                next(line for line in lines if line.endswith("synthetic.csv")).split("\t")[0]
            )
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help="parts of names of cases")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--epsilons", nargs="+", default=EPSILONS)
    parser.add_argument("--judge", help="the Python of an environment with sdnist 2.4")
    parser.add_argument("--score", help="one case at ε = 1, as JSON")
    parser.add_argument("--codes", help="write Adult for other tools to this file, and nothing else")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_one(options.one, options.epsilons[0], options.output)
        return
    if options.codes:
        write_codes(options.codes)
        return
    if options.score:
        print(json.dumps(measure(options.score, "1", options.judge)))
        return
    lines = []
    for case in CASES:
        if options.cases and not any(part in case for part in options.cases):
            continue
        for epsilon in options.epsilons:
            results = [measure(case, epsilon, options.judge) for _ in range(options.runs)]
            scores = [each.get("score", each.get("distance")) for each in results]
            known = [score for score in scores if score is not None]
            text = (
                f"{np.mean(known):.0f} ({min(known)}–{max(known)})"
                if known and known[0] > 1
                else (f"{np.mean(known):.4f}" if known else "not judged")
            )
            target = TARGETS[case][EPSILONS.index(epsilon)] if case in TARGETS and epsilon in EPSILONS else ""
            if "quantiles" in results[0]:
                text += f" ({np.mean([each['quantiles'] for each in results]):.4f} in quantiles)"
            broken = sum(each.get("broken", 0) for each in results)
            seconds = np.mean([each["seconds"] for each in results])
            peak = max(each["peak"] for each in results)
            lines.append((case, epsilon, text, target, f"{seconds:.1f}", f"{peak:.0f}", str(broken)))
            print(*lines[-1], sep="\t", flush=True)
    show(
        "Synthetic tables: SDNist's score, or mean distance of tables of two columns",
        ("", "ε", "mean (range)", "target", "CPU s", "peak MB", "rows that break rules"),
        lines,
    )


if __name__ == "__main__":
    main()
