"""Answers of OpenDP, diffprivlib and PyDP to the questions of `accuracy.py`, at the same ε, bounds and unit.

Each function takes what the peer's guide tells its user to pass. Where a peer wants the number of rows
(OpenDP's variance, diffprivlib's means and variances), it gets it for free.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import opendp.prelude as dp
from diffprivlib import tools as ibm
from pydp.algorithms import laplacian as pydp

__all__ = ["CANDIDATES", "DELTA", "Column", "Units", "answers"]

CANDIDATES = 1001
"""Values that OpenDP chooses a quantile from: evenly spread, as in its guide."""
DELTA = 1e-6
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

    @property
    def whole(self) -> list[int]:
        return _whole(self.values.tobytes(), self.step)

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


@lru_cache(maxsize=4)
def _whole(raw: bytes, step: float) -> list[int]:
    return np.rint(np.frombuffer(raw) / step).astype(int).tolist()


def _calibrated(make: Callable[[float], object], epsilon: float) -> Callable:
    """OpenDP's own search for the least noise at a distance of one row."""
    return dp.binary_search_chain(make, 1, epsilon)


SPACE = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()


def _opendp_total(column: Column, epsilon: float) -> Callable[[], float]:
    bounds = column.scaled(column.low), column.scaled(column.high)
    made = _calibrated(
        lambda s: SPACE >> dp.t.then_clamp(bounds) >> dp.t.then_sum() >> dp.m.then_laplace(s), epsilon
    )
    whole = column.whole
    return lambda: made(whole) * column.step


def _opendp_count(column: Column, epsilon: float) -> Callable[[], float]:
    made = _calibrated(lambda s: SPACE >> dp.t.then_count() >> dp.m.then_laplace(s), epsilon)
    whole = column.whole
    return lambda: made(whole)


def _opendp_mean(column: Column, epsilon: float) -> Callable[[], float]:
    total, count = _opendp_total(column, epsilon / 2), _opendp_count(column, epsilon / 2)
    return lambda: total() / max(count(), 1)


def _opendp_variance(column: Column, epsilon: float) -> Callable[[], float]:
    size = len(column.values)
    bounds = (float(column.low), float(column.high))
    space = dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=size), dp.symmetric_distance()
    # Two: without one person and with another, as the size is public.
    made = dp.binary_search_chain(lambda s: space >> dp.t.then_variance() >> dp.m.then_laplace(s), 2, epsilon)
    values = np.clip(column.values, *bounds).tolist()
    return lambda: made(values)


def _opendp_quantile(column: Column, share: float, epsilon: float) -> Callable[[], float]:
    candidates = sorted(
        {round(v) for v in np.linspace(column.scaled(column.low), column.scaled(column.high), CANDIDATES)}
    )
    made = _calibrated(
        lambda s: SPACE >> dp.m.then_private_quantile(dp.max_divergence(), candidates, share, s), epsilon
    )
    whole = column.whole
    return lambda: made(whole) * column.step


def _opendp_quartiles(column: Column, epsilon: float) -> Callable[[], np.ndarray]:
    parts = [_opendp_quantile(column, share, epsilon / 3) for share in (0.25, 0.5, 0.75)]
    return lambda: np.array([part() for part in parts])


def _opendp_top(column: Column, epsilon: float) -> Callable[[], np.ndarray]:
    """Scores as the guide makes them: the counts of all keys, each moved by at most 1 by one person."""
    domain, metric = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    made = _calibrated(lambda s: dp.m.make_noisy_top_k(domain, metric, dp.max_divergence(), 5, s), epsilon)
    counts = np.bincount(column.values.astype(int), minlength=round(column.high)).tolist()
    return lambda: np.array(made(counts))


def _opendp_keys(column: Column, epsilon: float) -> Callable[[], np.ndarray]:
    counted = SPACE >> dp.t.then_count_by(TV="i64")

    def with_threshold(threshold: int) -> object:
        return counted >> dp.m.then_laplace_threshold(1 / epsilon, threshold)

    low, high = 1, 2**20
    while high - low > 1:
        middle = (low + high) // 2
        fits = with_threshold(middle).map(1)[1] <= DELTA
        low, high = (low, middle) if fits else (middle, high)
    made, whole = with_threshold(high), column.whole

    def ask() -> np.ndarray:
        found = np.zeros(round(column.high))
        for key, count in made(whole).items():
            found[key] = count
        return found

    return ask


def _ibm(function: Callable, column: Column, epsilon: float, **more: object) -> Callable[[], float]:
    bounds = (column.low, column.high)
    return lambda: function(column.values, epsilon=epsilon, bounds=bounds, **more)


def _ibm_quartiles(column: Column, epsilon: float) -> Callable[[], np.ndarray]:
    return _ibm(ibm.quantile, column, epsilon, quant=[0.25, 0.5, 0.75])


def _ibm_count(column: Column, epsilon: float) -> Callable[[], float]:
    ones = np.ones(len(column.values))
    return lambda: ibm.count_nonzero(ones, epsilon=epsilon)


def _pydp(kind: type, column: Column, epsilon: float, **more: object) -> Callable[[], float]:
    values = column.values.tolist()

    def ask() -> float:
        algorithm = kind(
            epsilon=epsilon, lower_bound=column.low, upper_bound=column.high, dtype="float", **more
        )
        return algorithm.quick_result(values)

    return ask


def _pydp_count(column: Column, epsilon: float) -> Callable[[], float]:
    values = column.values.tolist()
    return lambda: pydp.Count(epsilon=epsilon, dtype="float").quick_result(values)


def _pydp_quartiles(column: Column, epsilon: float) -> Callable[[], np.ndarray]:
    parts = [_pydp(pydp.Percentile, column, epsilon / 3, percentile=share) for share in (0.25, 0.5, 0.75)]
    return lambda: np.array([part() for part in parts])


def answers(question: str, column: Column, epsilon: float) -> dict[str, Callable[[], object]]:
    """For a question about one row a person, the peers that can answer it."""
    return {who: make(column, epsilon) for who, make in PEERS[question].items()}


PEERS: dict[str, dict[str, Callable[[Column, float], Callable]]] = {
    "count": {"OpenDP": _opendp_count, "diffprivlib": _ibm_count, "PyDP": _pydp_count},
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
        "diffprivlib": lambda column, epsilon: _ibm(ibm.median, column, epsilon),
        "PyDP": lambda column, epsilon: _pydp(pydp.Percentile, column, epsilon, percentile=0.5),
    },
    "quartiles": {"OpenDP": _opendp_quartiles, "diffprivlib": _ibm_quartiles, "PyDP": _pydp_quartiles},
    "top five": {"OpenDP": _opendp_top},
    "private keys": {"OpenDP": _opendp_keys},
}
