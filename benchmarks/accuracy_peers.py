"""Answers of OpenDP, diffprivlib and PyDP to the questions of `accuracy.py`, at the same ε, bounds and unit.

Each function takes what the peer's guide tells its user to pass. Where a peer wants the number of rows
(OpenDP's variance, diffprivlib's means and variances), it gets it for free.

Each answers as often as it is asked to. What has no noise, OpenDP's transformations and the probabilities of
diffprivlib's exponential mechanism, is computed once for all of these answers; noise is the library's own.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import opendp.prelude as dp
from diffprivlib import tools as ibm
from diffprivlib.mechanisms import Exponential
from pydp.algorithms import laplacian as pydp

__all__ = ["CANDIDATES", "DELTA", "Ask", "Column", "Units", "answers"]

CANDIDATES = 1001
"""Values that OpenDP chooses a quantile from: evenly spread, as in its guide."""
DELTA = 1e-6
MANY = 100_000
QUARTILES = (0.25, 0.5, 0.75)
Ask: TypeAlias = Callable[[int], np.ndarray]
"""Answers so many times, an answer a row."""
dp.enable_features("contrib", "floating-point")
warnings.filterwarnings("ignore", module="diffprivlib")


@dataclass(frozen=True)
class Column:
    """Numbers, a row a person; the keys of a group where the question has groups."""

    name: str
    values: np.ndarray
    low: float
    high: float
    step: float = 0.01
    """OpenDP adds whole numbers: values are multiples of this."""

    @cached_property
    def whole(self) -> np.ndarray:
        return np.rint(self.values / self.step).astype(np.int64)

    def scaled(self, value: float) -> int:
        return round(value / self.step)


@dataclass(frozen=True)
class Units:
    """Rows of persons with several rows: who, which group, and how much."""

    name: str
    who: np.ndarray
    group: np.ndarray
    groups: int
    limit: int
    """Contribution bound: rows of one person."""
    groups_limit: int
    """Contribution bound: groups of one person."""


SPACE = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
WHOLE = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
REAL = dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.l1_distance(T="f64")


def _scale(make: Callable[[float], object], distance: int, epsilon: float) -> float:
    """OpenDP's own search for the least noise."""
    return dp.binary_search_param(make, distance, epsilon)


@lru_cache(maxsize=64)
def _opendp_clamped(low: int, high: int) -> object:
    return SPACE >> dp.t.then_clamp((low, high)) >> dp.t.then_sum()


@lru_cache(maxsize=256)
def _total_scale(low: int, high: int, epsilon: float) -> float:
    return _scale(lambda s: _opendp_clamped(low, high) >> dp.m.then_laplace(s), 1, epsilon)


@lru_cache(maxsize=16)
def _count_scale(epsilon: float) -> float:
    return _scale(lambda s: SPACE >> dp.t.then_count() >> dp.m.then_laplace(s), 1, epsilon)


def _opendp_total(column: Column, epsilon: float) -> Ask:
    bounds = column.scaled(column.low), column.scaled(column.high)
    noise = WHOLE >> dp.m.then_laplace(_total_scale(*bounds, epsilon))
    total = _opendp_clamped(*bounds)(column.whole)
    return lambda times: np.array(noise([total] * times)) * column.step


def _opendp_count(column: Column, epsilon: float) -> Ask:
    noise = WHOLE >> dp.m.then_laplace(_count_scale(epsilon))
    size = (SPACE >> dp.t.then_count())(column.whole)
    return lambda times: np.array(noise([size] * times))


def _opendp_mean(column: Column, epsilon: float) -> Ask:
    total, count = _opendp_total(column, epsilon / 2), _opendp_count(column, epsilon / 2)
    return lambda times: total(times) / np.maximum(count(times), 1)


def _opendp_variance(column: Column, epsilon: float) -> Ask:
    size = len(column.values)
    bounds = (float(column.low), float(column.high))
    space = dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=size), dp.symmetric_distance()
    exact = space >> dp.t.then_variance()
    # Two: without one person and with another, as the size is public.
    scale = _scale(lambda s: exact >> dp.m.then_laplace(s), 2, epsilon)
    noise, variance = REAL >> dp.m.then_laplace(scale), exact(np.clip(column.values, *bounds))
    return lambda times: np.array(noise([variance] * times))


@lru_cache(maxsize=64)
def _opendp_selection(low: int, high: int, share: float, epsilon: float) -> tuple[object, object, np.ndarray]:
    candidates = sorted({round(v) for v in np.linspace(low, high, CANDIDATES)})
    scored = SPACE >> dp.t.then_quantile_score_candidates(candidates, share)

    def select(scale: float) -> object:
        return dp.m.then_noisy_max(dp.max_divergence(), scale, negate=True)

    # As `make_private_quantile` does it.
    scale = _scale(lambda s: scored >> select(s), 1, epsilon)
    chosen = (scored.output_domain, scored.output_metric) >> select(scale)
    return scored, chosen, np.array(candidates)


def _opendp_quantile(column: Column, share: float, epsilon: float) -> Ask:
    scored, select, candidates = _opendp_selection(
        column.scaled(column.low), column.scaled(column.high), share, epsilon
    )
    scores = scored(column.whole)
    return lambda times: candidates[[select(scores) for _ in range(times)]] * column.step


def _opendp_quartiles(column: Column, epsilon: float) -> Ask:
    parts = [_opendp_quantile(column, share, epsilon / 3) for share in QUARTILES]
    return lambda times: np.stack([part(times) for part in parts], axis=1)


def _opendp_top(column: Column, epsilon: float) -> Ask:
    """Scores as the guide makes them: the counts of all keys, each moved by at most 1 by one person."""
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    measurement = dp.binary_search_chain(
        lambda s: dp.m.make_noisy_top_k(domain, metric, dp.max_divergence(), 5, s), 1, epsilon
    )
    counts = np.bincount(column.values.astype(int), minlength=round(column.high)).tolist()
    return lambda times: np.array([measurement(counts) for _ in range(times)])


def _opendp_keys(column: Column, epsilon: float) -> Ask:
    tally = SPACE >> dp.t.then_count_by(TV="i64")

    def select(threshold: int) -> object:
        return dp.m.then_laplace_threshold(1 / epsilon, threshold)

    low, high = 1, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        fits = (tally >> select(middle)).map(1)[1] <= DELTA
        low, high = (low, middle) if fits else (middle, high)
    # One more, so that its δ holds: it releases counts at the threshold, too, which its map leaves out. A key
    # of one person is shown e^ε times as often as the map says, as drawing shows.
    measurement = (tally.output_domain, tally.output_metric) >> select(high + 1)
    counts = tally(column.whole)

    def ask(times: int) -> np.ndarray:
        values = np.zeros((times, round(column.high)))
        for row in values:
            for key, count in measurement(counts).items():
                row[key] = count
        return values

    return ask


def _ibm(function: Callable, column: Column, epsilon: float, **more: object) -> Ask:
    bounds = (column.low, column.high)
    return _repeat(lambda: function(column.values, epsilon=epsilon, bounds=bounds, **more))


def _repeat(ask: Callable[[], float]) -> Ask:
    return lambda times: np.array([ask() for _ in range(times)])


def _ibm_quantile(column: Column, share: float, epsilon: float) -> Ask:
    """As `diffprivlib.tools.quantile` does it; the probabilities are computed once."""
    ordered = np.sort(np.append(np.clip(column.values, column.low, column.high), [column.low, column.high]))
    size = column.values.size
    measurement = Exponential(
        epsilon=epsilon,
        sensitivity=1,
        utility=list(-np.abs(np.arange(0, size + 1) - share * size)),
        measure=list(np.diff(ordered)),
    )
    until, rng = measurement._probabilities, np.random.default_rng()  # noqa: SLF001 - it draws from these

    def ask(times: int) -> np.ndarray:
        places = np.searchsorted(until, rng.random(times) * until[-1], side="right")
        return ordered[places] + rng.random(times) * (ordered[places + 1] - ordered[places])

    if not np.isfinite(until).all():
        raise RuntimeError("no probability is left, as all values are equal")
    return ask


def _ibm_quartiles(column: Column, epsilon: float) -> Ask:
    parts = [_ibm_quantile(column, share, epsilon / 3) for share in QUARTILES]
    return lambda times: np.stack([part(times) for part in parts], axis=1)


def _pydp(kind: type, column: Column, epsilon: float, **more: object) -> Ask:
    values = column.values.tolist()

    def ask() -> float:
        algorithm = kind(
            epsilon=epsilon, lower_bound=column.low, upper_bound=column.high, dtype="float", **more
        )
        return algorithm.quick_result(values)

    return _repeat_each(ask, len(values))


def _repeat_each(ask: Callable[[], float], rows: int) -> Ask:
    """PyDP takes all rows anew for each answer: of many rows, a twentieth as often."""
    return lambda times: _repeat(ask)(times if rows <= MANY else max(times // 20, 2))


def _pydp_count(column: Column, epsilon: float) -> Ask:
    values = column.values.tolist()
    return _repeat_each(lambda: pydp.Count(epsilon=epsilon, dtype="float").quick_result(values), len(values))


def _pydp_quartiles(column: Column, epsilon: float) -> Ask:
    parts = [_pydp(pydp.Percentile, column, epsilon / 3, percentile=share) for share in QUARTILES]
    return lambda times: np.stack([part(times) for part in parts], axis=1)


def answers(question: str, column: Column, epsilon: float) -> dict[str, Ask]:
    """For a question about one row a person, the peers that can answer it."""
    measurement = {}
    for who, make in PEERS[question].items():
        with suppress(RuntimeError):  # diffprivlib's quantiles, where all values are equal
            measurement[who] = make(column, epsilon)
    return measurement


PEERS: dict[str, dict[str, Callable[[Column, float], Ask]]] = {
    # Not diffprivlib's: it counts within an array, and cuts the noise at its length, the exact answer.
    "count": {"OpenDP": _opendp_count, "PyDP": _pydp_count},
    "sum": {
        "OpenDP": _opendp_total,
        "diffprivlib": lambda column, epsilon: _ibm(ibm.sum, column, epsilon),
        "PyDP": lambda column, epsilon: _pydp(pydp.BoundedSum, column, epsilon),
    },
    "mean": {
        "OpenDP": _opendp_mean,
        "diffprivlib": lambda column, epsilon: _ibm(ibm.mean, column, epsilon),
        "PyDP": lambda column, epsilon: _pydp(pydp.BoundedMean, column, epsilon),
    },
    "variance": {
        "OpenDP": _opendp_variance,
        "diffprivlib": lambda column, epsilon: _ibm(ibm.var, column, epsilon),
        "PyDP": lambda column, epsilon: _pydp(pydp.BoundedVariance, column, epsilon),
    },
    "median": {
        "OpenDP": lambda column, epsilon: _opendp_quantile(column, 0.5, epsilon),
        "diffprivlib": lambda column, epsilon: _ibm_quantile(column, 0.5, epsilon),
        "PyDP": lambda column, epsilon: _pydp(pydp.Percentile, column, epsilon, percentile=0.5),
    },
    "quartiles": {"OpenDP": _opendp_quartiles, "diffprivlib": _ibm_quartiles, "PyDP": _pydp_quartiles},
    "top five": {"OpenDP": _opendp_top},
    "private keys": {"OpenDP": _opendp_keys},
}
