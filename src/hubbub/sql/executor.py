"""What nobody declared, found privately: how many rows a unit may count, and the bounds of values.

The units' numbers of rows are put into bins that grow with them, and the bins' counts are released. From
these the limit is chosen whose error is least: what is cut off from the units above it, against the noise
that grows with it. The choice is post-processing.

Bounds are found the same way: values are put into bins by their sign and their power of two, and the bounds
are the ends of the outermost bins that stand out from the noise.

Proof: docs/proofs/bounding.md, "The limit on rows", "Bounds that are found"
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.engine import Engine, RecordBatch
from hubbub.engines.schema import Key
from hubbub.errors import Refused, Unsupported
from hubbub.mechanisms import Laplace
from hubbub.numbers import Number
from hubbub.sensitivity import Bounded
from hubbub.sql.aggregates import Affine, Aggregate, Reader, together
from hubbub.sql.contribution_bounding import LEAST_POWER, MAGNITUDES
from hubbub.sql.moments import Estimate, Moments, Noise
from hubbub.sql.plan import Plan
from hubbub.sql.post_processing import Shown, shown
from hubbub.sql.query import BoundedAggregate, ContributionBounds

__all__ = [
    "BINS",
    "Execution",
    "Released",
    "columns_of",
    "execute",
    "filled",
    "found_bounds",
    "found_rows",
    "noisy_of",
    "places_of",
    "prepared",
]

BINS: tuple[int, ...] = tuple(min(math.ceil(2 ** (step / 4)), 2**20 - 1) for step in range(81))
"""The limits that may be chosen: four to each doubling, up to 2^20 rows."""
_LUCK = 100
"""Noise is taken for units with s rows once in so many times s queries."""
_SURE = 1 - Fraction(1, 2**30)
"""How sure it is that no bound comes from noise alone: it could be any power of two."""


def found_rows(plan: Plan, engine: Engine) -> ContributionBounds:
    """The plan's limits with the number of rows filled in.

    Guarantee: ε-private with the plan's ε for the search: a unit is in one bin.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    measured = plan.weighing(plan.limits).sizes(BINS)
    found = engine.execute(measured.sql, measured.key_sets)
    counts = np.zeros(len(BINS), dtype=np.int64)
    counts[found["b"]] = found["m0"]
    noise = Laplace.of(
        sensitivity=measured.sensitivity,
        epsilon=plan.epsilon_for_search,
        allow_large_epsilon=True,  # the plan's, which was confirmed
    )
    bounded = Bounded(counts, measured.sensitivity, plan.unit, measured.because)
    noisy = noise.release(bounded).value
    sizes = np.array(BINS, dtype=np.float64)
    # What lies below its own noise is taken for nothing: the tail has many bins and few units. To take noise
    # for units costs as much as these have rows, so of larger bins more is asked.
    nothing = float(noise.scale) * np.log(_LUCK * len(BINS) * sizes)
    units = np.where(noisy > nothing, noisy, 0).astype(np.float64)
    cut = np.array([float((units * np.maximum(sizes - limit, 0)).sum()) for limit in sizes])
    groups = max(1, plan.query.cells if plan.query.keys and plan.query.is_public else 1)
    wide = 2**0.5 * sizes * len(plan.measures or (1,)) / float(plan.epsilon_for_measures)
    best = int(np.argmin(cut / groups + wide))
    while best and not _is_possible(plan, BINS[best]):
        best -= 1
    return replace(plan.limits, rows=BINS[best])


def found_bounds(plan: Plan, engine: Engine, limits: ContributionBounds) -> Plan:
    """The plan with the bounds filled in that were asked to be found.

    Guarantee: ε-private with the plan's ε for bounds, an equal share for each: a row is in one bin.
    Proof: docs/proofs/bounding.md, "Bounds that are found"
    """
    rows = limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)
    # Over all groups together: what is found holds for all of them.
    weighing = plan.weighing(ContributionBounds(rows))
    weighing = replace(weighing, query=replace(plan.query, keys=()))
    arguments = list(plan.query.arguments)
    for place in plan.autos:
        measured = weighing.magnitudes(place)
        found = engine.execute(measured.sql, measured.key_sets)
        counts = np.zeros(MAGNITUDES, dtype=np.int64)
        counts[found["b"]] = found["m0"]
        noise = Laplace.of(
            sensitivity=measured.sensitivity,
            epsilon=plan.epsilon_for_bounds / len(plan.autos),
            allow_large_epsilon=True,
        )
        bounded = Bounded(counts, measured.sensitivity, plan.unit, measured.because)
        noisy = noise.release(bounded).value
        there = np.flatnonzero(noisy > noise.error(_SURE, coordinates=MAGNITUDES))
        if not there.size:
            raise Refused(
                f"no bounds stood out for {arguments[place].name}",
                why="there are too few values for so small an epsilon; what was charged stays charged",
                fix="declare the bounds, or ask with a larger {epsilon}",
            )
        low, high = _ends(int(there[0]))[0], _ends(int(there[-1]))[1]
        arguments[place] = replace(arguments[place], bounds=(low, high))
    return replace(plan, query=replace(plan.query, arguments=tuple(arguments)))


def _ends(place: int) -> tuple[Fraction, Fraction]:
    """The two ends of a bin of magnitudes; the middle one holds what is close to zero."""
    middle = MAGNITUDES // 2
    if place == middle:
        least = Fraction(2) ** LEAST_POWER
        return -least, least
    power = LEAST_POWER + abs(place - middle) - 1
    near, far = Fraction(2) ** power, Fraction(2) ** (power + 1)
    return (near, far) if place > middle else (-far, -near)


def _is_possible(plan: Plan, rows: int) -> bool:
    """Whether noise for so many rows can be made; that is public."""
    try:
        plan.check_noise(replace(plan.limits, rows=rows))
    except Unsupported:
        return False
    return True


# Running a plan: the engine's exact integers, each vector through its noise, then the answer's columns.
#
# This is the one place where rows and noise meet. It is called after the charge, and by nobody else.

Groups = Sequence[tuple[Key, ...]]
Integers = NDArray[np.int64]


class Execution:
    """What running a plan released: its columns, the limits and bounds that were found, who is above them."""

    def __init__(
        self, columns: list[Shown], plan: Plan, limits: ContributionBounds, above: Estimate | None
    ) -> None:
        self.columns = columns
        self.label = plan.label(limits, above)


def execute(
    plan: Plan,
    engine: Engine,
    progress: Callable[[str], None] = lambda _: None,
    *,
    is_exact: bool = False,
) -> Execution:
    """Run a plan that has been charged; `is_exact` leaves the noise out, for the owner's own eyes.

    Guarantee: what comes out went through the plan's mechanisms, and nothing else did.
    Proof: docs/proofs/bounding.md, "A plan"
    """
    plan, limits, above = prepared(plan, engine, progress, is_exact=is_exact)
    if plan.query.is_top:
        return Execution(_top(plan, engine, limits, progress), plan, limits, above)
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
        found = engine.execute(measured.sql, measured.key_sets)
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
    return Execution(columns, plan, limits, above)


def prepared(
    plan: Plan, engine: Engine, progress: Callable[[str], None], *, is_exact: bool = False
) -> tuple[Plan, ContributionBounds, Estimate | None]:
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

    measure: Aggregate
    measured: BoundedAggregate
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
    plan: Plan,
    measure: Aggregate,
    measured: BoundedAggregate,
    table: Integers,
    noise: Noise,
    *,
    is_exact: bool,
) -> Integers:
    """The integers of some groups with their noise, from what the engine counted of them."""
    vector = measure.vector(measured, table)
    bounded = Bounded(vector, measured.sensitivity, plan.unit, measured.because)
    noisy: Integers = noise.release(bounded).value if vector.size and not is_exact else vector
    return noisy.reshape(len(table) // measured.bins, measure.released(measured))


def _anywhere(found: Estimate, where: NDArray[np.bool_]) -> Estimate:
    low, high = np.where(where, -np.inf, found.low), np.where(where, np.inf, found.high)
    return Estimate(found.value, low, high)


def _above(plan: Plan, engine: Engine, limits: ContributionBounds, *, is_exact: bool) -> Estimate:
    """The share of units that are above a limit."""
    measured = plan.weighing(limits).above()
    found = engine.execute(measured.sql, measured.key_sets)
    counts = np.array([found[f"m{place}"][0] for place in range(measured.columns)], dtype=np.int64)
    noise = plan.report_noise(measured.sensitivity)
    bounded = Bounded(counts, measured.sensitivity, plan.unit, measured.because)
    noisy = counts if is_exact else noise.release(bounded).value
    return Moments(noisy[np.newaxis].astype(np.float64), (1,), noise, measured.step).mean(plan.confidence)


def _dense(measured: BoundedAggregate, found: RecordBatch, groups: Groups, keys: int) -> Integers:
    """A table of (groups × bins, columns); groups without rows are zeros, others are left out."""
    places = places_of(measured, found, keys) if not keys or "p0" in found else _known(found, groups, keys)
    return filled(measured, found, places, len(groups))


def filled(measured: BoundedAggregate, found: RecordBatch, places: NDArray[np.intp], groups: int) -> Integers:
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


def places_of(measured: BoundedAggregate, found: RecordBatch, keys: int) -> NDArray[np.intp]:
    """For each row of what the engine gave, the place of its group, where all keys are public."""
    # In the order of `Query.groups`: the last key's place is the fastest.
    total = np.zeros(found["m0"].size, dtype=np.intp)
    for number in range(keys):
        total = total * len(measured.key_sets[f"_keys{number}"]) + found[f"p{number}"]
    return total


def _known(found: RecordBatch, groups: Groups, keys: int) -> NDArray[np.intp]:
    """The same by the keys that were selected; −1 where a group is none of them."""
    place = {group: number for number, group in enumerate(groups)}
    given = zip(*(found[f"k{number}"].tolist() for number in range(keys)), strict=True)
    return np.fromiter((place.get(group, -1) for group in given), dtype=np.intp, count=found["m0"].size)


def _selected(
    plan: Plan, engine: Engine, limits: ContributionBounds, known: RecordBatch | None = None
) -> Groups:
    """The keys that enough units have, chosen with noise; sorted, so that their order tells nothing.

    How many units keep a key may be known from a measure that counted them besides.
    """
    measured = plan.weighing(limits).candidates()
    found = engine.execute(measured.sql, measured.key_sets) if known is None else known
    counts = found["u"]
    if not counts.size:
        return []
    bounded = Bounded(counts, measured.sensitivity, plan.unit, measured.because)
    kept = plan.key_selection(limits).release(bounded).value
    columns = [found[f"k{number}"] for number in range(len(plan.query.keys))]
    return _sorted(tuple(column[place] for column in columns) for place in kept)


def _shown(
    plan: Plan, measure: Aggregate, engine: Engine, limits: ContributionBounds, *, is_exact: bool
) -> tuple[Groups, Reader]:
    """The keys whose noisy counts reach the bar, sorted, and these counts."""
    measured = measure.measurement(plan.weighing(limits))
    found = engine.execute(measured.sql, measured.key_sets)
    counts, stable, step = found["m0"], plan.stable(limits), float(measured.step)
    bounded = Bounded(counts, measured.sensitivity, plan.unit, measured.because)
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


def _top(
    plan: Plan, engine: Engine, limits: ContributionBounds, progress: Callable[[str], None]
) -> list[Shown]:
    """The keys of the largest groups: only their names leave."""
    progress("choosing")
    query, groups = plan.query, plan.query.groups()
    measured = plan.top_measurement(limits)
    found = engine.execute(measured.sql, measured.key_sets)
    scores = _dense(measured, found, groups, len(query.keys))[:, 0]
    bounded = Bounded(scores, measured.sensitivity, plan.unit, measured.because)
    chosen = plan.top(measured.sensitivity).release(bounded).value
    columns = []
    for output in query.outputs:
        values = np.empty(len(chosen), dtype=object)
        values[:] = [groups[place][output.key or 0] for place in chosen]
        columns.append(Shown(output.name, values, kind=query.keys[output.key or 0].kind))
    return columns
