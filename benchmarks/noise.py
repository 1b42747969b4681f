"""Noise: time per draw beside the peers, selection, memory, import, and whether time tells the noise."""

import math
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
from diffprivlib import mechanisms as ibm
from measure import Target, Task, best, show, show_targets
from pydp.algorithms.numerical_mechanisms import GaussianMechanism, LaplaceMechanism
from scipy.stats import spearmanr

import hubbub
from hubbub.noise import discrete_gaussian, discrete_laplace, rounded_gaussian

SCALES = (1, 32, 1000, 2**20, 2**40)
MANY = 100_000
"""Draws in a vector."""
SLOW = 10_000
"""Draws in a vector of OpenDP's: it takes as long for each in a longer one."""
FEW = 1_000
"""Draws of peers that give one at a time."""
ROUNDS = 8

IBM_FACTOR = math.sqrt(2 * math.log(1.25e6))
"""σ of diffprivlib's Gaussian at sensitivity 1, ε = 1, δ = 1e-6."""

OURS = {
    "discrete_laplace": discrete_laplace,
    "rounded_gaussian": rounded_gaussian,
    "discrete_gaussian": lambda scale, **size: discrete_gaussian(scale**2, **size),
}
LAPLACE, *GAUSSIANS = OURS


def run() -> None:
    dp.enable_features("contrib")
    draws = {scale: best(samplers(scale), ROUNDS) for scale in SCALES}
    show_draws(draws)
    releases = best(real_releases(), ROUNDS)
    show_releases(releases)
    scalars = best(scalar_releases(), ROUNDS)
    show_scalars(scalars)
    selection = best(selections(), ROUNDS)
    show_selection(selection)
    singles, lists = single_draws(), lists_of_scales()
    memory = {name: (peak(draw, MANY), peak(draw, 10 * MANY)) for name, draw in OURS.items()}
    imported = import_seconds("import hubbub")
    everything = import_seconds("from hubbub import *")
    show_targets(
        [
            *speed_targets(draws),
            *release_targets(releases),
            *scalar_targets(scalars),
            Target(
                "permute-and-flip, 1000 candidates, over OpenDP",
                "—",
                times(selection["OpenDP noisy max"] / selection["hubbub PermuteAndFlip"]),
                met=selection["hubbub PermuteAndFlip"] < selection["OpenDP noisy max"],
            ),
            Target(
                "permute-and-flip, 1000 candidates",
                "≤ 50 µs",
                f"{selection['hubbub PermuteAndFlip'] / 1e3:.1f} µs",
                met=selection["hubbub PermuteAndFlip"] <= 5e4,
            ),
            *(
                Target(f"one draw, {name}, slowest scale", "≤ 10 µs", f"{ns / 1e3:.1f} µs", met=ns <= 1e4)
                for name, ns in singles.items()
            ),
            *(
                Target(
                    f"1000 distinct scales after first use, {name}",
                    "< 50 ms",
                    f"{again / 1e6:.1f} ms (first {first / 1e6:.0f})",
                    met=again < 5e7,
                )
                for name, (first, again) in lists.items()
            ),
            *(
                Target(
                    f"memory, {name}, n → 10n",
                    "O(n)",
                    f"{few / MANY:.1f} → {many / (10 * MANY):.1f} bytes/draw",
                    met=many <= 11 * few,
                )
                for name, (few, many) in memory.items()
            ),
            Target(
                "import on top of numpy",
                "< 150 ms",
                f"{imported * 1e3:.0f} ms ({everything * 1e3:.0f} with every name used)",
                met=imported < 0.15,
            ),
        ]
    )
    show_timing()


# Nanoseconds per draw.


def samplers(scale: int) -> dict[str, Task]:
    """All that draw noise of one scale (b or σ)."""
    whole, real = np.zeros(SLOW, dtype=np.int64), np.zeros(SLOW)
    integers, reals = (
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.vector_domain(dp.atom_domain(T="f64", nan=False)),
    )
    l1, l2 = dp.l1_distance, dp.l2_distance(T="f64")
    opendp_int = dp.m.make_laplace(integers, l1(T="i64"), float(scale))
    opendp_int_gaussian = dp.m.make_gaussian(integers, l2, float(scale))
    opendp_real = dp.m.make_laplace(reals, l1(T="f64"), float(scale))
    opendp_real_gaussian = dp.m.make_gaussian(reals, l2, float(scale))
    pydp = LaplaceMechanism(1.0, float(scale))
    pydp_gaussian = GaussianMechanism.create_from_standard_deviation(float(scale))
    ibm_geometric = ibm.Geometric(epsilon=1, sensitivity=scale)
    ibm_laplace = ibm.Laplace(epsilon=1, sensitivity=scale)
    ibm_gaussian = ibm.Gaussian(epsilon=1, delta=1e-6, sensitivity=scale / IBM_FACTOR)
    return {
        **{
            f"hubbub {name}": Task(lambda draw=draw: draw(scale, size=MANY), MANY)
            for name, draw in OURS.items()
        },
        "numpy laplace": Task(lambda: np.random.laplace(0, scale, MANY), MANY),
        "numpy normal": Task(lambda: np.random.normal(0, scale, MANY), MANY),
        "OpenDP Laplace, integer": Task(lambda: opendp_int(whole), SLOW),
        "OpenDP Gaussian, integer": Task(lambda: opendp_int_gaussian(whole), SLOW),
        "OpenDP Laplace, float64": Task(lambda: opendp_real(real), SLOW),
        "OpenDP Gaussian, float64": Task(lambda: opendp_real_gaussian(real), SLOW),
        "PyDP Laplace, integer": each(pydp.add_noise, 0),
        "PyDP Laplace, float64": each(pydp.add_noise, 0.0),
        "PyDP Gaussian, float64": each(pydp_gaussian.add_noise, 0.0),
        "diffprivlib Geometric": each(ibm_geometric.randomise, 0),
        "diffprivlib Laplace": each(ibm_laplace.randomise, 0.0),
        "diffprivlib Gaussian": each(ibm_gaussian.randomise, 0.0),
    }


def each(add_noise: Callable[[float], object], value: float) -> Task:
    return Task(lambda: [add_noise(value) for _ in range(FEW)], FEW)


def show_draws(draws: dict[int, dict[str, float]]) -> None:
    scales = [power(scale) for scale in SCALES]
    rows = [(name, *(f"{draws[scale][name]:,.1f}" for scale in SCALES)) for name in draws[1]]
    show(
        f"Nanoseconds per draw, by scale (vectors of {MANY:,}; best of {ROUNDS} rounds)", ("", *scales), rows
    )
    pairs = [(LAPLACE, peer) for peer in draws[1] if any(law in peer for law in ("aplace", "Geometric"))]
    pairs += [
        (ours, peer)
        for ours in GAUSSIANS
        for peer in draws[1]
        if any(n in peer for n in ("normal", "Gaussian"))
    ]
    rows = [
        (
            f"{ours} over {peer}",
            *(times(draws[scale][peer] / draws[scale][f"hubbub {ours}"]) for scale in SCALES),
        )
        for ours, peer in pairs
        if "hubbub" not in peer
    ]
    show("How many times faster, by scale", ("", *scales), rows)


def speed_targets(draws: dict[int, dict[str, float]]) -> Iterator[Target]:
    def slowest(ours: str, peer: str, scales: tuple[int, ...] = SCALES) -> tuple[float, int]:
        return min((draws[scale][peer] / draws[scale][f"hubbub {ours}"], scale) for scale in scales)

    for name in OURS:
        peer = "OpenDP Laplace, integer" if name == LAPLACE else "OpenDP Gaussian, integer"
        ratio, scale = slowest(name, peer)
        yield at_least(f"{name} over {peer}", 1000, ratio, scale)
    for name in OURS:
        ratio, scale = slowest(name, "numpy laplace", (1, 32))
        yield at_least(f"{name} over numpy laplace, scale ≤ 32", 3, ratio, scale)
        ratio, scale = slowest(name, "numpy laplace")
        yield at_least(f"{name} over numpy laplace, any scale", 1, ratio, scale)


def at_least(what: str, least: float, ratio: float, scale: int) -> Target:
    return Target(what, f"≥ {least}×", f"{times(ratio)} (at {power(scale)})", met=ratio >= least)


# Whole releases.


def real_releases() -> dict[str, Task]:
    """Vectors of real numbers; the scale of what numpy adds does not matter for its time."""
    laplace = hubbub.Laplace.of(sensitivity=1, epsilon=1, real=True, coordinates=MANY)
    gaussian = hubbub.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True, coordinates=MANY)
    exact = np.random.uniform(-1e3, 1e3, MANY)
    reals = dp.vector_domain(dp.atom_domain(T="f64", nan=False))
    opendp = dp.m.make_laplace(reals, dp.l1_distance(T="f64"), 1.0)
    opendp_gaussian = dp.m.make_gaussian(reals, dp.l2_distance(T="f64"), 4.0)
    return {
        "hubbub Laplace(real=True)": Task(lambda: laplace.release(exact), MANY),
        "hubbub Gaussian(real=True)": Task(lambda: gaussian.release(exact), MANY),
        "numpy laplace": Task(lambda: np.random.laplace(0, 1, MANY), MANY),
        "numpy normal": Task(lambda: np.random.normal(0, 4, MANY), MANY),
        "OpenDP Laplace": Task(lambda: opendp(exact[:SLOW]), SLOW),
        "OpenDP Gaussian": Task(lambda: opendp_gaussian(exact[:SLOW]), SLOW),
    }


def show_releases(releases: dict[str, float]) -> None:
    rows = [
        (
            name,
            f"{ns:,.1f}",
            times(ns / releases["hubbub Laplace(real=True)"]),
            times(ns / releases["hubbub Gaussian(real=True)"]),
        )
        for name, ns in releases.items()
    ]
    show(
        f"Release of {MANY:,} real numbers on a grid",
        ("", "ns/number", "over ours: Laplace", "Gaussian"),
        rows,
    )


def release_targets(releases: dict[str, float]) -> Iterator[Target]:
    for law in ("Laplace", "Gaussian"):
        ratio = releases["numpy laplace"] / releases[f"hubbub {law}(real=True)"]
        yield Target(f"{law}(real=True).release over numpy laplace", "≥ 1×", times(ratio), met=ratio >= 1)


def scalar_releases() -> dict[str, Task]:
    """One number at a time, and many releases of one number at once."""
    ours = {
        "Laplace": (hubbub.Laplace.of(sensitivity=1, epsilon=1), 42),
        "Gaussian": (hubbub.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6), 42),
        "Laplace(real=True)": (hubbub.Laplace.of(sensitivity=1, epsilon=1, real=True), 4.2),
        "Gaussian(real=True)": (hubbub.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-6, real=True), 4.2),
    }
    opendp = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), 1.0)
    opendp_real = dp.m.make_laplace(dp.atom_domain(T="f64", nan=False), dp.absolute_distance(T="f64"), 1.0)
    return {
        **{f"hubbub {name}": each(mechanism.release, value) for name, (mechanism, value) in ours.items()},
        **{
            f"hubbub {name}, release_many": Task(lambda m=mechanism, v=value: m.release_many(v, MANY), MANY)
            for name, (mechanism, value) in ours.items()
        },
        "OpenDP Laplace, integer": each(opendp, 0),
        "OpenDP Laplace, float64": each(opendp_real, 0.0),
        "PyDP Laplace, float64": each(LaplaceMechanism(1.0, 1.0).add_noise, 0.0),
        "diffprivlib Laplace": each(ibm.Laplace(epsilon=1, sensitivity=1).randomise, 0.0),
    }


def show_scalars(scalars: dict[str, float]) -> None:
    ours = scalars["hubbub Laplace"]
    rows = [(name, f"{ns / 1e3:,.2f}", times(ns / ours)) for name, ns in scalars.items()]
    show("Release of one number", ("", "µs", "over our Laplace"), rows)


def scalar_targets(scalars: dict[str, float]) -> Iterator[Target]:
    for name, ns in scalars.items():
        if name.startswith("hubbub") and not name.endswith("many"):
            yield Target(f"one release, {name}", "≤ 20 µs", f"{ns / 1e3:.1f} µs", met=ns <= 2e4)


def selections() -> dict[str, Task]:
    """One of 1000 candidates, at ε = 1 and sensitivity 1."""
    scores = np.random.randint(0, 50, 1000)
    ours = hubbub.PermuteAndFlip.of(sensitivity=1, epsilon=1)
    kinds = (hubbub.Exponential, hubbub.ReportNoisyMax, hubbub.ReportNoisyMaxWithGap)
    others = [kind.of(sensitivity=1, epsilon=1) for kind in kinds]
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    opendp = dp.m.make_noisy_max(integers, dp.linf_distance(T="i64"), dp.max_divergence(), 2.0)
    diffprivlib = ibm.PermuteAndFlip(epsilon=1, sensitivity=1, utility=scores.tolist())
    return {
        "hubbub PermuteAndFlip": Task(lambda: ours.release(scores)),
        **{
            f"hubbub {type(mechanism).__name__}": Task(lambda m=mechanism: m.release(scores))
            for mechanism in others
        },
        "OpenDP noisy max": Task(lambda: opendp(scores)),
        "diffprivlib PermuteAndFlip": Task(diffprivlib.randomise),
    }


def show_selection(selection: dict[str, float]) -> None:
    ours = selection["hubbub PermuteAndFlip"]
    rows = [(name, f"{ns / 1e3:,.1f}", times(ns / ours)) for name, ns in selection.items()]
    show("Selection of one of 1000 candidates", ("", "µs", "over ours"), rows)


# After first use, and at first.


def single_draws() -> dict[str, float]:
    """The slowest scale's nanoseconds for one draw."""

    def repeat(draw: Callable[[int], int], scale: int) -> Task:
        return Task(lambda: [draw(scale) for _ in range(FEW)], FEW)

    return {
        name: max(best({str(scale): repeat(draw, scale) for scale in SCALES}, ROUNDS).values())
        for name, draw in OURS.items()
    }


def lists_of_scales() -> dict[str, tuple[float, float]]:
    """Nanoseconds for 1000 draws of as many scales: never used before, and once more."""
    samplers = {
        "discrete_laplace": discrete_laplace,
        "rounded_gaussian": rounded_gaussian,
        "discrete_gaussian": discrete_gaussian,
    }
    fresh = iter(range(10**9))

    def timed(draw: Callable[[list[Fraction]], object], scales: list[Fraction]) -> float:
        start = time.process_time()
        draw(scales)
        return 1e9 * (time.process_time() - start)

    def both(draw: Callable[[list[Fraction]], object]) -> tuple[float, float]:
        lists = [[Fraction(1000 + next(fresh), 7) for _ in range(1000)] for _ in range(ROUNDS)]
        return min(timed(draw, scales) for scales in lists), min(timed(draw, lists[-1]) for _ in lists)

    return {name: both(draw) for name, draw in samplers.items()}


def peak(draw: Callable[..., object], size: int) -> int:
    """The most bytes that a vector takes on the way, the worst scale."""
    worst = 0
    for scale in SCALES:
        draw(scale, size=MANY)
        tracemalloc.start()
        draw(scale, size=size)
        worst = max(worst, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return worst


def import_seconds(statement: str) -> float:
    code = f"import numpy, time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(7)]
    return min(float(run.stdout) for run in runs)


# Does time tell the noise?


def show_timing() -> None:
    """A private sampler's time must not depend on what it draws: 0 and 1.00 (A24)."""
    scale = 1000
    scalar = dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), float(scale))
    geometric = ibm.Geometric(epsilon=1, sensitivity=scale)
    gaussian = ibm.GaussianDiscrete(epsilon=1, delta=1e-6, sensitivity=1)
    pydp = LaplaceMechanism(1.0, float(scale))
    vectors = {
        f"{name}, vectors of {size:,}": (lambda draw=draw, size=size: draw(scale, size=size), count)
        for name, draw in OURS.items()
        for size, count in ((100, 5_000), (10_000, 1_000))
    }
    samplers = {
        **{name: (lambda draw=draw: draw(scale), 20_000) for name, draw in OURS.items()},
        **vectors,
        "OpenDP Laplace, integer": (lambda: scalar(0), 2_000),
        "PyDP Laplace, integer": (lambda: pydp.add_noise(0), 20_000),
        "diffprivlib Geometric": (lambda: geometric.randomise(0), 5_000),
        "diffprivlib GaussianDiscrete": (lambda: gaussian.randomise(0), 5_000),
    }
    rows = []
    for name, (draw, count) in samplers.items():
        sizes, nanoseconds = timed(draw, count)
        order = np.argsort(sizes, kind="stable")
        low, high = (np.median(nanoseconds[part]) for part in (order[: count // 10], order[-(count // 10) :]))
        correlation = spearmanr(sizes, nanoseconds).statistic
        rows.append((name, f"{correlation:+.3f}", f"± {3 / math.sqrt(count):.3f}", f"{high / low:.3f}"))
    columns = ("", "Spearman", "if independent", "time, largest tenth / smallest")
    show(
        f"Does time tell the noise? One draw or vector at scale {scale}, time against mean |noise|",
        columns,
        rows,
    )


def timed(draw: Callable[[], object], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean |noise| and the nanoseconds of each of `count` calls."""
    sizes, nanoseconds = np.empty(count), np.empty(count)
    for _ in range(100):
        draw()
    for number in range(count):
        start = time.perf_counter_ns()
        draws = draw()
        nanoseconds[number] = time.perf_counter_ns() - start
        sizes[number] = np.mean(np.abs(draws))
    return sizes, nanoseconds


def power(scale: int) -> str:
    return f"2^{scale.bit_length() - 1}" if scale > 1000 else str(scale)


def times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2f}×"
