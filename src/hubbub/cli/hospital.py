"""A hospital that nobody was ever in: visits, several to a patient, the same on every machine.

The rows are a fixed function of the patient's number, by integer arithmetic: nothing here is random, and
nothing here protects anybody.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["PATIENTS", "REGIONS", "write_visits"]

PATIENTS = 20_000
REGIONS = ("North", "South", "East", "West")
_REASONS = ("injury", "fever", "back pain", "check-up", "birth", "heart", "allergy", "migraine")
_SHARES = {"region": (34, 28, 22, 16), "reason": (24, 20, 17, 14, 9, 8, 5, 3)}
"""Of a hundred."""


def write_visits(path: Path) -> int:
    """Write the table as Parquet (patient, day, region, reason, age, cost); how many visits there are."""
    import duckdb

    made = _visits()
    visits = len(made["patient"])
    connection = duckdb.connect(":memory:")
    connection.register("made", made)
    connection.execute("CREATE TABLE words AS SELECT $regions AS regions, $reasons AS reasons", {
        "regions": list(REGIONS), "reasons": list(_REASONS),
    })  # fmt: skip
    connection.sql(
        "SELECT patient, DATE '2024-01-01' + CAST(day AS INTEGER) AS day, regions[region + 1] AS region, "
        "reasons[reason + 1] AS reason, age, cost FROM made, words ORDER BY day, patient"
    ).write_parquet(str(path))
    connection.close()
    return visits


def _visits() -> dict[str, NDArray[np.int64]]:
    person = np.arange(PATIENTS, dtype=np.uint64)
    # One visit at least; each further one half as likely, and a few patients who come every week.
    often = 1 + _trailing_zeros(_mixed(person, 1)) + np.where(_below(person, 2, 400) == 0, 30, 0)
    patient = np.repeat(person, often)
    visit = np.arange(len(patient), dtype=np.uint64)
    region = _chosen(_below(patient, 3, 100), _SHARES["region"])
    reason = _chosen(_below(visit, 4, 100), _SHARES["reason"])
    age = np.minimum(_below(patient, 5, 60) + _below(patient, 6, 45), 99)
    # Nearer the low end than the high one, dearer with age, and a little by region.
    cost = 40 + _below(visit, 7, 60) * _below(visit, 8, 60) + 6 * age + 55 * region
    return {
        "patient": patient.astype(np.int64) + 100_000,
        "day": _below(visit, 9, 366),
        "region": region,
        "reason": reason,
        "age": age,
        "cost": cost,
    }


def _mixed(numbers: NDArray[np.uint64], stream: int) -> NDArray[np.uint64]:
    """SplitMix64: a fixed number for each number, with no pattern that one would see."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(stream) * np.uint64(1 << 32)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _below(numbers: NDArray[np.uint64], stream: int, most: int) -> NDArray[np.int64]:
    return (_mixed(numbers, stream) % np.uint64(most)).astype(np.int64)


def _chosen(hundredths: NDArray[np.int64], shares: tuple[int, ...]) -> NDArray[np.int64]:
    return np.searchsorted(np.cumsum(shares), hundredths, side="right").astype(np.int64)


def _trailing_zeros(numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
    """How often each can be halved, at most 9 times."""
    count = np.zeros(len(numbers), dtype=np.int64)
    for power in range(1, 10):
        count += (numbers % np.uint64(1 << power) == 0).astype(np.int64)
    return count
