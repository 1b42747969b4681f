"""Audits: the zoo, false alarms, power, tightness and time, beside other estimators.

PYTHONPATH=src .venv/bin/python benchmarks/audit.py [power] [alarms] [tightness] [rivals] [zoo]

The rivals are written from their papers' formulas: dp-auditorium's histogram estimate of the hockey-stick
divergence (Kong, Muñoz Medina, Ribero and Syed, 2024), and half-lines with Clopper–Pearson intervals on
held-out draws (as StatDP and DP-Sniper do at δ = 0).
"""

import math
import sys
import time
from fractions import Fraction
from pathlib import Path
from statistics import median

import numpy as np
from scipy import stats

# Instead of this folder: the zoo is the tests' package `audit`, and this file has its name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from audit.zoo.noise import laplace, seeded  # noqa: E402
from audit.zoo.specimens import HERD, ZOO  # noqa: E402
from hubbub import Gaussian, Laplace, Sensitivity  # noqa: E402
from hubbub.audit import Claim, InputPair, audit  # noqa: E402

ONE = [InputPair([1.0], [])]
COUNT = [InputPair([1], [])]


def exact(scale):
    return lambda database, count: float(sum(database)) + laplace(scale, count)


def rarely(database, count):
    """The true answer with probability 1/1000."""
    answers = exact(1)(database, count)
    answers[: np.random.default_rng().binomial(count, 0.001)] = float(sum(database))
    return np.random.default_rng().permutation(answers)


def power(runs=40):
    print(
        "\nSamples until a wrong scale is refuted: ε = 1 claimed, 95 % confidence, one pair | all edge cases"
    )
    for name, scale, budget, times in (
        ("50 % too small", 0.5, 20_000, runs),
        ("20 % too small", 0.8, 60_000, runs),
        ("5 % too small", 0.95, 1_000_000, runs // 2),
    ):
        line = []
        for pairs in (ONE, None):
            results = [
                audit(exact(scale), epsilon=1, batch=True, pairs=pairs, samples=budget) for _ in range(times)
            ]
            needed = [each.samples_to_refute or math.inf for each in results]
            line.append(f"{median(needed):>9,.0f} (refuted {sum(map(math.isfinite, needed))} of {times})")
        print(f"  {name:<16}{line[0]} | {line[1]}", flush=True)


def alarms(audits=1000, samples=3000):
    print(f"\nFalse alarms in {audits} audits of correct mechanisms, {samples} samples each, 95 % confidence")
    total = 0
    subjects = [
        ("Laplace, exactly ε = 1", exact(1), {"epsilon": 1}),
        (
            "Laplace on integers",
            lambda d, n: int(sum(d)) + np.round(laplace(1, n)),
            {"epsilon": 1, "rows": "int:0:1"},
        ),
        ("Gaussian, exactly μ = 1", HERD[2].draw, {"claim": Claim.gaussian(1.0), "pairs": ONE}),
        ("randomized response", HERD[6].draw, {"epsilon": 1, "pairs": HERD[6].pairs}),
        ("histogram", HERD[5].draw, {"epsilon": 1}),
    ]
    for name, draw, more in subjects:
        start, times = time.perf_counter(), audits // len(subjects)
        finding = sum(audit(draw, batch=True, samples=samples, **more).refuted for _ in range(times))
        total += finding
        print(
            f"  {name:<26}{finding} of {times} ({(time.perf_counter() - start) / times:.2f} s each)",
            flush=True,
        )
    print(f"  all: {total} of {audits} = {total / audits:.2%}")


def tightness():
    print("\nLower bound / true ε, and seconds of one core")
    cases = [
        (
            f"Laplace on reals, ε = {e}",
            Laplace.of(sensitivity=1, epsilon=Fraction(e), real=True),
            float(Fraction(e)),
            0,
            ONE,
        )
        for e in ("0.5", "1", "2", "4")
    ]
    cases += [("Laplace on integers, ε = 1", Laplace.of(sensitivity=1, epsilon=1), 1.0, 0, COUNT)]
    for delta in (0.1, 0.01, 1e-3):
        noise = Gaussian(Fraction(2**20), Sensitivity(2**20))
        cases.append(
            (
                f"Gaussian μ = 1, δ = {delta}",
                noise,
                noise.loss().epsilon(delta),
                delta,
                [InputPair([2**20], [])],
            )
        )
    for name, mechanism, truth, delta, pairs in cases:
        line = []
        for samples in (10**6, 10**7):
            start = time.process_time()
            finding = audit(
                mechanism, epsilon=truth, delta=delta, pairs=pairs, samples=samples, stop_early=False
            )
            line.append(f"{finding.lower / truth:.3f} ({time.process_time() - start:.1f} s)")
        print(f"  {name:<30} 1e6: {line[0]:<18} 1e7: {line[1]}", flush=True)


def histogram_rejects(draw, samples, epsilon=1.0, bins=32, failure=0.05):
    """Hockey-stick divergence over a histogram: bins chosen on one half, Hoeffding's bound on the other."""
    x, y = draw([1.0], samples // 2), draw([], samples // 2)
    half = samples // 4
    edges = np.quantile(np.concatenate([x[:half], y[:half]]), np.linspace(0, 1, bins + 1)[1:-1])
    first, second = (
        [np.bincount(np.searchsorted(edges, part), minlength=bins) / part.size for part in parts]
        for parts in ((x[:half], y[:half]), (x[half:], y[half:]))
    )
    c = math.exp(epsilon)
    margin = (1 + c) * math.sqrt(math.log(4 / failure) / (2 * (x.size - half)))
    forward = first[0] > c * first[1]
    backward = first[1] > c * first[0]
    return (second[0] - c * second[1])[forward].sum() > margin or (second[1] - c * second[0])[
        backward
    ].sum() > margin


def clopper_pearson(draw, samples, failure=0.05):
    """The best half-line of one half of the draws, with Clopper–Pearson intervals on the other half."""
    x, y = draw([1.0], samples // 2), draw([], samples // 2)
    half = samples // 4
    best, chosen = -math.inf, (0.0, True)
    for cut in np.quantile(np.concatenate([x[:half], y[:half]]), np.linspace(0.01, 0.99, 99)):
        for above in (True, False):
            p, q = (((part > cut) == above).mean() for part in (x[:half], y[:half]))
            score = abs(math.log((p + 10 / half) / (q + 10 / half)))
            if score > best:
                best, chosen = score, (cut, above)
    cut, above = chosen
    counts = [int(((part > cut) == above).sum()) for part in (x[half:], y[half:])]
    n = x.size - half
    low = [stats.beta.ppf(failure / 2, k, n - k + 1) if k else 0.0 for k in counts]
    high = [stats.beta.ppf(1 - failure / 2, k + 1, n - k) if k < n else 1.0 for k in counts]
    return max(0.0, *(math.log(low[i] / high[1 - i]) if low[i] else 0.0 for i in (0, 1)))


def rivals():
    print(
        "\nε = 1 claimed: this audit (median samples to refute), histogram (rejects at), "
        "Clopper–Pearson (ε ≥ at 1e5, 1e6)"
    )
    for name, draw in (
        ("exact", exact(1)),
        ("scale 5 % too small", exact(0.95)),
        ("scale 20 % too small", exact(0.8)),
        ("scale 50 % too small", exact(0.5)),
        ("true answer, 1/1000", rarely),
        ("seed out of 16", next(case.draw for case in ZOO if case.name == "a seed out of 16")),
    ):
        budget = 20_000 if name == "exact" else 600_000
        results = [audit(draw, epsilon=1, batch=True, pairs=ONE, samples=budget) for _ in range(9)]
        needed = median(each.samples_to_refute or math.inf for each in results)
        rejects = next((n for n in (10**4, 10**5, 10**6, 4 * 10**6) if histogram_rejects(draw, n)), None)
        bounds = [clopper_pearson(draw, n) for n in (10**5, 10**6)]
        print(
            f"  {name:<22} {needed:>10,.0f}   {'not by 4e6' if rejects is None else f'{rejects:.0e}':<11} "
            f"{bounds[0]:.2f}, {bounds[1]:.2f}",
            flush=True,
        )


def zoo():
    print("\nZoo of planted bugs, 99 % confidence: samples to refute, seconds")
    caught = 0
    for case in ZOO:
        start = time.perf_counter()
        with seeded(case.name):
            finding = audit(
                case.draw, batch=True, claim=case.claim, rows=case.rows, pairs=case.pairs,
                samples=case.samples, confidence=0.99, **case.more,
            )  # fmt: skip
        caught += finding.refuted
        needed = f"{finding.samples_to_refute:,}" if finding.samples_to_refute else "MISSED"
        print(f"  {case.name:<60}{needed:>9}  {time.perf_counter() - start:5.1f} s", flush=True)
    print(f"  caught {caught} of {len(ZOO)}")


PARTS = {"power": power, "alarms": alarms, "tightness": tightness, "rivals": rivals, "zoo": zoo}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
