"""Running a plan: the engine's exact integers, each vector through its noise, then the answer's columns.

This is the one place where rows and noise meet. It is called after the charge, and by nobody else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hubbub.bounded import Bounded
from hubbub.queries.limits import found_bounds, found_rows
from hubbub.queries.measurement import Limits, Measurement
from hubbub.queries.measures import Affine, Estimate, Measure, Noise, Reader, together
from hubbub.queries.moments import Moments
from hubbub.queries.outputs import Shown, shown
from hubbub.queries.plan import Plan
from hubbub.rational import Number
from hubbub.tables.engine import Columns, Engine
from hubbub.tables.schema import Key

__all__ = [
    "Answered",
    "Released",
    "answered",
    "columns_of",
    "filled",
    "noisy_of",
    "places_of",
    "prepared",
]

Groups = Sequence[tuple[Key, ...]]
Integers = NDArray[np.int64]


class Answered:
    """What running a plan released: its columns, the limits and bounds that were found, who is above them."""

    def __init__(self, columns: list[Shown], plan: Plan, limits: Limits, above: Estimate | None) -> None:
        self.columns = columns
        self.label = plan.label(limits, above)


def answered(
    plan: Plan,
    engine: Engine,
    progress: Callable[[str], None] = lambda _: None,
    *,
    is_exact: bool = False,
) -> Answered:
    """Run a plan that has been charged; `is_exact` leaves the noise out, for the owner's own eyes.

    Guarantee: what comes out went through the plan's mechanisms, and nothing else did.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    plan, limits, above = prepared(plan, engine, progress, is_exact=is_exact)
    if plan.query.is_top:
        return Answered(_top(plan, engine, limits, progress), plan, limits, above)
    weighing = plan.weighing(limits)
    groups: Groups | None = plan.query.groups() if plan.query.is_public else None
    readers: dict[int, Reader] = {}
    released = []
    if plan.selecting is not None:
        progress("counting, and selecting keys")
        groups, reader = _shown(plan, plan.selecting, engine, limits, is_exact=is_exact)
        readers.update(dict.fromkeys(plan.selecting.aggregates, reader))
    for measure in plan.measures:
        if measure is plan.selecting:
            continue
        progress("counting")
        measured = measure.measurement(weighing)
        found = engine.aggregates(measured.sql, measured.key_sets)
        if groups is None:
            progress("selecting keys")
            groups = _selected(plan, engine, limits, found if measured.counts_units else None)
        table = _dense(measured, found, groups, len(plan.query.keys))
        noise = plan.noise(measured.sensitivity)
        integers = noisy_of(plan, measure, measured, table, noise, is_exact=is_exact)
        released.append(Released(measure, measured, integers, noise))
    assert groups is not None
    columns = columns_of(plan, groups, released, readers)
    if is_exact:
        columns = [replace(column, low=None, high=None) for column in columns]
    return Answered(columns, plan, limits, above)


def prepared(
    plan: Plan, engine: Engine, progress: Callable[[str], None], *, is_exact: bool = False
) -> tuple[Plan, Limits, Estimate | None]:
    """What is found before anything else: limits, bounds, and who is above them."""
    limits = plan.limits
    if plan.searches:
        progress("finding how many rows a unit may count")
        limits = found_rows(plan, engine)
    if plan.autos:
        progress("finding bounds")
        plan = found_bounds(plan, engine, limits)
    above = _above(plan, engine, limits, is_exact=is_exact) if plan.reports else None
    return plan, limits, above


@dataclass(frozen=True)
class Released:
    """What one measure released of some groups: for each of them some integers."""

    measure: Measure
    measured: Measurement
    integers: Integers
    noise: Noise

    def reader(self) -> Reader:
        """Reads its aggregates; where a sum may have been cut, the exact answer may be anywhere.

        Proof: docs/proofs/intervals.md, "Sums that are cut"
        """
        read = self.measure.reader(self.integers, self.measured, self.noise)
        return lambda place, confidence: self.unless_cut(read(place, confidence), confidence)

    def unless_cut(self, found: Estimate, confidence: Number) -> Estimate:
        """The estimate, or everything where a sum of it may have been cut."""
        return _anywhere(found, self.measure.cut(self.integers, self.noise, confidence))


def columns_of(
    plan: Plan, groups: Groups, released: Sequence[Released], known: Mapping[int, Reader]
) -> list[Shown]:
    """The answer's columns for these groups, from what was released of them."""
    readers = dict(known)
    for each in released:
        readers.update(dict.fromkeys(each.measure.aggregates, each.reader()))

    @cache
    def given(place: int, confidence: Fraction) -> Estimate:
        return readers[place](place, confidence)

    def quotient(top: Affine, bottom: Affine, confidence: Fraction) -> Estimate | None:
        for each in released:
            parts = (each.measure, each.measured, each.integers, each.noise)
            found = together(*parts, (top, bottom), confidence)
            if found is not None:
                return each.unless_cut(found, confidence)
        return None

    return shown(plan.query, groups, given, plan.confidence, quotient)


def noisy_of(
    plan: Plan, measure: Measure, measured: Measurement, table: Integers, noise: Noise, *, is_exact: bool
) -> Integers:
    """The integers of some groups with their noise, from what the engine counted of them."""
    vector = measure.vector(measured, table)
    bounded = Bounded.derived(vector, measured.sensitivity, plan.unit, measured.because)
    noisy: Integers = noise.release(bounded).value if vector.size and not is_exact else vector
    return noisy.reshape(len(table) // measured.bins, measure.released(measured))


def _anywhere(found: Estimate, where: NDArray[np.bool_]) -> Estimate:
    low, high = np.where(where, -np.inf, found.low), np.where(where, np.inf, found.high)
    return Estimate(found.value, low, high)


def _above(plan: Plan, engine: Engine, limits: Limits, *, is_exact: bool) -> Estimate:
    """The share of units that are above a limit."""
    measured = plan.weighing(limits).above()
    found = engine.aggregates(measured.sql, measured.key_sets)
    counts = np.array([found[f"m{place}"][0] for place in range(measured.columns)], dtype=np.int64)
    noise = plan.report_noise(measured.sensitivity)
    bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
    noisy = counts if is_exact else noise.release(bounded).value
    return Moments(noisy[np.newaxis].astype(np.float64), (1,), noise, measured.step).mean(plan.confidence)


def _dense(measured: Measurement, found: Columns, groups: Groups, keys: int) -> Integers:
    """A table of (groups × bins, columns); groups without rows are zeros, others are left out."""
    places = places_of(measured, found, keys) if not keys or "p0" in found else _known(found, groups, keys)
    return filled(measured, found, places, len(groups))


def filled(measured: Measurement, found: Columns, places: NDArray[np.intp], groups: int) -> Integers:
    """A table of (groups × bins, columns), each row of what the engine gave at the place of its group."""
    table = np.zeros((groups * measured.bins, measured.columns), dtype=np.int64)
    columns = [found[f"m{place}"] for place in range(measured.columns)]
    inside = (places >= 0) & (places < groups)
    rows = places[inside] * measured.bins
    if measured.bins > 1:
        rows = rows + found["b"][inside]
    for place, column in enumerate(columns):
        table[rows, place] = column[inside]
    return table


def places_of(measured: Measurement, found: Columns, keys: int) -> NDArray[np.intp]:
    """For each row of what the engine gave, the place of its group, where all keys are public."""
    # In the order of `Query.groups`: the last key's place is the fastest.
    total = np.zeros(found["m0"].size, dtype=np.intp)
    for number in range(keys):
        total = total * len(measured.key_sets[f"_keys{number}"]) + found[f"p{number}"]
    return total


def _known(found: Columns, groups: Groups, keys: int) -> NDArray[np.intp]:
    """The same by the keys that were selected; −1 where a group is none of them."""
    place = {group: number for number, group in enumerate(groups)}
    given = zip(*(found[f"k{number}"].tolist() for number in range(keys)), strict=True)
    return np.fromiter((place.get(group, -1) for group in given), dtype=np.intp, count=found["m0"].size)


def _selected(plan: Plan, engine: Engine, limits: Limits, known: Columns | None = None) -> Groups:
    """The keys that enough units have, chosen with noise; sorted, so that their order tells nothing.

    How many units keep a key may be known from a measure that counted them besides.
    """
    measured = plan.weighing(limits).candidates()
    found = engine.aggregates(measured.sql, measured.key_sets) if known is None else known
    counts = found["u"]
    if not counts.size:
        return []
    bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
    kept = plan.key_selection(limits).release(bounded).value
    columns = [found[f"k{number}"] for number in range(len(plan.query.keys))]
    return _sorted(tuple(column[place] for column in columns) for place in kept)


def _shown(
    plan: Plan, measure: Measure, engine: Engine, limits: Limits, *, is_exact: bool
) -> tuple[Groups, Reader]:
    """The keys whose noisy counts reach the bar, sorted, and these counts."""
    measured = measure.measurement(plan.weighing(limits))
    found = engine.aggregates(measured.sql, measured.key_sets)
    counts, stable, step = found["m0"], plan.stable(limits), float(measured.step)
    bounded = Bounded.derived(counts, measured.sensitivity, plan.unit, measured.because)
    table = stable.release(bounded).value if counts.size else np.empty((0, 2), dtype=np.int64)
    columns = [found[f"k{number}"] for number in range(len(plan.query.keys))]
    chosen = {tuple(column[place] for column in columns): (place, noisy) for place, noisy in table}
    groups = _sorted(chosen)
    noisy = np.array([chosen[group][1] for group in groups], dtype=np.int64)
    shown = counts[[chosen[group][0] for group in groups]] if is_exact else noisy
    value = shown.astype(np.float64) * step

    def read(_: int, confidence: Number) -> Estimate:
        low, high = stable.interval(noisy, confidence)
        found = Estimate(value, low * step, high * step)  # the step is a power of two
        return _anywhere(found, measure.cut(noisy[:, np.newaxis], stable.noise, confidence))

    return groups, read


def _sorted(groups: Iterable[tuple[Key, ...]]) -> Groups:
    """In an order that tells nothing of where they come from."""
    return sorted(groups, key=lambda group: [(key is None, key) for key in group])


def _top(plan: Plan, engine: Engine, limits: Limits, progress: Callable[[str], None]) -> list[Shown]:
    """The keys of the largest groups: only their names leave."""
    progress("choosing")
    query, groups = plan.query, plan.query.groups()
    measured = plan.top_measurement(limits)
    found = engine.aggregates(measured.sql, measured.key_sets)
    scores = _dense(measured, found, groups, len(query.keys))[:, 0]
    bounded = Bounded.derived(scores, measured.sensitivity, plan.unit, measured.because)
    chosen = plan.top(measured.sensitivity).release(bounded).value
    columns = []
    for output in query.outputs:
        values = np.empty(len(chosen), dtype=object)
        values[:] = [groups[place][output.key or 0] for place in chosen]
        columns.append(Shown(output.name, values, kind=query.keys[output.key or 0].kind))
    return columns
