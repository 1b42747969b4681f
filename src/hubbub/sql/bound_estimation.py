"""Private estimates of what nobody declared: the maximum of rows per unit, and the bounds of values.

The units' numbers of rows, or of groups, are put into bins that grow with them, and the bins' counts are
released. From these the maximum with the least error is chosen (`limit_choice`): what is cut off from the
units above it, against the noise that grows with it. The choice is post-processing.

Bounds are estimated the same way: values are put into bins by their sign and size, two to each power of two,
and for each sign the bound with the least error is chosen from their noisy counts.

Proof: docs/proofs/bounding.md, "The limit on rows", "Bounds that are found"
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.engine import Engine
from hubbub.engines.schema import Bounds, Kind
from hubbub.mechanisms import Laplace
from hubbub.sensitivity import Bounded
from hubbub.sql.bounding_sql import MAGNITUDE_ENDS
from hubbub.sql.contribution_bounding import ContributionBounding
from hubbub.sql.limit_choice import ROW_BINS, ROW_LIMITS, ROW_SIZES, VALUE_SIZES
from hubbub.sql.plan import EpsilonSplit, Plan
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.query import BoundedAggregate, ContributionBounds, Query
from hubbub.sql.released_limits import ContributionHistogram, FoundLimit
from hubbub.sql.result import Result
from hubbub.unit import Unit

__all__ = [
    "CLEAR_ENOUGH",
    "MAX_NOISE",
    "MAX_REGRET",
    "estimate_beyond",
    "estimate_bounds",
    "estimate_cuts",
    "find_limits",
    "measure_limits",
    "read_bounds",
    "use_known_limits",
]

_NEAR_ALARMS = 1000
"""Noise is taken for values below those that stand out once in about this many queries."""
_SEARCH_LEVELS = 2
"""A limit is searched with half of its share of ε, and with all of it if that is not enough."""
CLEAR_ENOUGH = 1.05
"""A search ends if the expected regret is at most this times what the next look costs the answer."""
MAX_NOISE, MAX_REGRET = 4, 1.5
"""A histogram that was released before is used up to this multiple of a search's noise, and expected regret.

`benchmarks/limits.py` measures both.
"""
_CLOSE_BINS = 4
"""Two powers of two."""
_MEAN_OF_NORMAL = math.sqrt(2 / math.pi)
"""E|Z|."""


def find_limits(plan: Plan, engine: Engine) -> Plan:
    """The plan for maximums of rows and groups per unit that are chosen from noisy counts.

    Guarantee: ε-private with the plan's share for limits: a unit is in one bin of each histogram.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    bounding = ContributionBounding(plan.query, plan.contribution_bounds, plan.unit.neighbours)
    kinds = ["rows"] if plan.bounded.estimates_rows else []
    kinds += ["groups"] if plan.bounded.estimates_groups else []
    histograms = []
    for kind in kinds:
        histogram = bounding.contribution_histogram(ROW_BINS, of_groups=kind == "groups")
        plan, counts, scale = _search(plan, engine, kind, histogram)
        histograms.append((kind, counts, scale))
    return choose_limits(plan, histograms)


def _search(
    plan: Plan, engine: Engine, kind: str, histogram: BoundedAggregate
) -> tuple[Plan, tuple[int, ...], Fraction]:
    """Look at the histogram with less and less noise until the limit is clear enough.

    Returns the plan, with what was not spent left for its answers, the noisy counts and the scale of their
    noise. With Gaussian noise the whole share is spent: then the losses of all parts are fixed, and compose
    better than their sum.

    Guarantee: what is returned is private with the share of ε that the returned plan has for it.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    share = plan.split.rows if kind == "rows" else plan.split.groups
    levels = 1 if plan.is_gaussian else _SEARCH_LEVELS
    value, noise = _count_bins(plan.unit, engine, histogram, share)
    plans = [
        replace(plan, split=plan.split.with_search(**{kind: share / 2**level})) for level in range(levels)
    ]
    plans.reverse()
    for level, release in enumerate(noise.release_gradually(value, levels)):
        here, counts = plans[level], release.value
        scale = noise.scale * 2 ** (levels - 1 - level)
        if level == levels - 1:
            break
        choice = ROW_SIZES.choose(counts, float(scale), _mean_noise(here, kind), groups=plan.bounded.answers)
        price = here.split.aggregates / plans[level + 1].split.aggregates
        if choice.regret <= CLEAR_ENOUGH * float(price):
            break
    return here, tuple(map(int, counts)), scale


def use_known_limits(
    plan: Plan, known: Mapping[str, Sequence[ContributionHistogram]], *, always: bool = False
) -> Plan:
    """The plan with limits from histograms that were released before; nothing is spent on these.

    A histogram that is too noisy for this plan's ε is not used: a query with little ε would spoil the limits
    of all later ones. Then the plan searches for itself.

    Args:
        plan: a plan with limits that are to be found.
        known: by kind, rows or groups, the histograms, the best first.
        always: use the best, however noisy it is.

    Guarantee: a function of the plan and of what was released.
    """
    needed = {"rows": plan.bounded.estimates_rows, "groups": plan.bounded.estimates_groups}
    candidates = {kind: each for kind, each in known.items() if each and needed.get(kind)}
    used = {}
    for kind, released in candidates.items():
        usable = (each for each in released if always or _is_precise(plan, each))
        if (histogram := next(usable, None)) is not None:
            used[kind] = histogram
    too_noisy = tuple(kind for kind in candidates if kind not in used)
    if not used:
        return replace(plan, too_noisy=too_noisy) if too_noisy else plan
    histograms = [(kind, each.counts, each.scale) for kind, each in used.items()]
    chosen = choose_limits(_without_search(plan, used), histograms)
    limits = tuple(
        replace(
            each,
            is_new=False,
            entry=used[each.kind].entry,
            is_of_more=_is_of_more(plan, used[each.kind]),
        )
        if each.kind in used
        else each
        for each in chosen.found_limits
    )
    out = replace(chosen, found_limits=limits, too_noisy=too_noisy)
    out.check()
    return out


def _without_search(plan: Plan, kinds: Iterable[str]) -> Plan:
    """The plan with all ε for the answers, as if limits of these kinds were known."""
    stand_in = plan.bounded.with_limits(**dict.fromkeys(kinds, 1))
    return replace(plan, split=EpsilonSplit.of(stand_in, plan.epsilon))


def _is_precise(plan: Plan, histogram: ContributionHistogram) -> bool:
    """True if a limit from this histogram is likely as good as one that the plan would search for."""
    kind = histogram.kind
    share = plan.split.rows if kind == "rows" else plan.split.groups
    noise = plan.unit.neighbours.histogram_distance / share
    if histogram.scale <= noise:
        return True
    if histogram.scale > MAX_NOISE * noise:
        return False  # then it hides even what it hides
    if histogram.is_measured:
        return True
    answers = _mean_noise(_without_search(plan, [kind]), kind)
    choice = ROW_SIZES.choose(histogram.counts, float(histogram.scale), answers, groups=plan.bounded.answers)
    return choice.regret <= MAX_REGRET


def _is_of_more(plan: Plan, histogram: ContributionHistogram) -> bool:
    """True if the histogram is of more rows than the query's."""
    return histogram.conditions != plan.conditions[histogram.kind].own[0]


def estimate_cuts(plan: Plan, known: Mapping[str, Sequence[ContributionHistogram]]) -> Plan:
    """The plan with estimates of what its declared limits cut off, from the best of known histograms."""
    bounded = plan.bounded
    cut = {"rows": plan.contribution_bounds.rows if bounded.uses_rows and not bounded.cuts_nothing else None}
    cut["groups"] = None if bounded.counts_all_groups else plan.contribution_bounds.groups
    estimates = tuple(
        FoundLimit(
            kind,
            limit,
            _estimate_above(known[kind][0].counts, known[kind][0].scale, limit),
            known[kind][0].counts,
            known[kind][0].scale,
            is_new=False,
            is_declared=True,
            is_of_more=_is_of_more(plan, known[kind][0]),
        )
        for kind, limit in cut.items()
        if limit is not None and known.get(kind)
    )
    object.__setattr__(plan, "found_limits", estimates)  # nothing that was computed depends on them
    return plan


def choose_limits(plan: Plan, histograms: Sequence[tuple[str, tuple[int, ...], Fraction]]) -> Plan:
    """The plan for the limits of the least expected error, from noisy histograms: post-processing."""
    limits: dict[str, int] = {}
    chosen = []
    for kind, counts, scale in histograms:
        choice = ROW_SIZES.choose(counts, float(scale), _mean_noise(plan, kind), groups=plan.bounded.answers)
        most = max(1, plan.query.cells) if kind == "groups" and plan.query.is_public else ROW_LIMITS[-1]
        index = choice.index
        while index and not plan.with_limits(**{kind: min(ROW_LIMITS[index], most)}).is_possible:
            index -= 1
        limits[kind] = min(ROW_LIMITS[index], most)
        share = _estimate_above(counts, scale, limits[kind])
        chosen.append(FoundLimit(kind, limits[kind], share, counts, scale))
    return replace(plan.with_limits(**limits), found_limits=(*plan.found_limits, *chosen))


def _estimate_above(counts: tuple[int, ...], scale: Fraction, limit: int) -> float | None:
    """An estimate of the share of contributions that a limit cuts off; None if noise hides all units."""
    if not ROW_SIZES.is_visible(counts, float(scale)):
        return None
    return ROW_SIZES.share_above(counts, float(scale), limit)


def _mean_noise(plan: Plan, kind: str) -> NDArray[np.float64]:
    """For each limit that may be chosen, the mean absolute noise of a count."""
    sizes = np.array(ROW_LIMITS, dtype=np.float64)
    both = plan.unit.neighbours.histogram_distance
    count = len(plan.bounded.aggregates or (1,))
    if not plan.is_gaussian:
        return np.asarray(sizes * both * count / float(plan.split.aggregates))
    # In ℓ2 a unit that is in G groups once moves √G, one with L rows in one group L.
    moved = np.sqrt(sizes) if kind == "groups" else sizes
    return np.asarray(moved * math.sqrt(both * count) * _MEAN_OF_NORMAL / float(plan.mu))


def estimate_bounds(plan: Plan, engine: Engine) -> Plan:
    """The plan for bounds of values that are chosen from noisy counts.

    Where nothing stands out from the noise, arguments keep the stand-ins that the plan was made with.

    Guarantee: ε-private with the plan's share for bounds, an equal part for each: a row is in one bin.
    Proof: docs/proofs/bounding.md, "Bounds that are found"
    """
    limits = plan.contribution_bounds
    rows = limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)
    # Over all groups together: the bounds hold for all of them.
    query = replace(plan.query, keys=())
    bounding = ContributionBounding(query, ContributionBounds(rows), plan.unit.neighbours)
    estimated = plan.bounded.estimated_arguments
    share = plan.split.bounds / max(1, len(estimated))
    bounds: dict[int, Bounds] = {}
    beyond: dict[int, float | None] = {}
    for index in estimated:
        histogram = bounding.magnitude_histogram(index)
        noisy, noise = _release_histogram(plan.unit, engine, histogram, share)
        # In units that count with all their rows: then noise and limits are as for rows per unit.
        whole = float(histogram.sensitivity.l1)
        mean_noise = len(plan.bounded.aggregates) / float(plan.split.aggregates)
        interval = read_bounds(noisy / whole, float(noise.scale) / whole, mean_noise, plan.bounded.answers)
        if interval is None:
            beyond[index] = None  # what is computed from it is NULL
            continue
        bounds[index] = interval
        beyond[index] = estimate_beyond(noisy / whole, float(noise.scale) / whole, interval)
    return replace(plan.with_value_bounds(bounds), shares_beyond=beyond)


def read_bounds(seen: NDArray[np.float64], scale: float, noise: float, answers: int) -> Bounds | None:
    """Bounds of the least expected error, from noisy counts by sign and size; None if nothing stands out.

    Each sign has the limit of the least regret, as rows per unit have: one odd value does not decide. Where
    only one sign has values, the bound closer to zero is below the last bin that stands out.

    Args:
        seen: the noisy counts, in units.
        scale: the scale of their noise.
        noise: the mean absolute noise of an answer, for a limit of 1.
        answers: the number of answers over which values are spread.
    """
    half = len(MAGNITUDE_ENDS)
    sides = [seen[:half][::-1], seen[half + 1 :]]  # negative and positive ones, by size
    ends: list[Fraction | None] = []
    for side in sides:
        if VALUE_SIZES.find_start(side, scale) is None:
            ends.append(None)
            continue
        choice = VALUE_SIZES.choose(side, scale, np.array(VALUE_SIZES.ends) * noise, groups=answers)
        ends.append(Fraction(choice.limit))
    low, high = ends
    has_zeros = seen[half] > VALUE_SIZES.clear_count(scale, 1)
    least = Fraction(MAGNITUDE_ENDS[0])
    if low is None and high is None:
        return (-least, least) if has_zeros else None
    if low is not None and high is not None:
        return -low, high
    side = sides[0] if high is None else sides[1]
    near = Fraction(0) if has_zeros else _near_end(side, scale)
    far = low if high is None else high
    assert far is not None
    near = min(near, far / 2)
    return (-far, -near) if high is None else (near, far)


def estimate_beyond(seen: NDArray[np.float64], scale: float, bounds: Bounds) -> float:
    """An estimate of the share of all values' sizes that lies beyond bounds, from the same noisy counts."""
    half = len(MAGNITUDE_ENDS)
    over = total = 0.0
    for side, end in ((seen[:half][::-1], -bounds[0]), (seen[half + 1 :], bounds[1])):
        if VALUE_SIZES.find_start(side, scale) is not None:
            above, of_side = VALUE_SIZES.totals(side, scale, max(float(end), 0.0))
            over, total = over + above, total + of_side
    return min(1.0, over / total) if total > 0 else 0.0


def _near_end(side: NDArray[np.float64], scale: float) -> Fraction:
    """The bound closer to zero: 0, or far below the smallest bin that stands out if all are close.

    What is clamped up to it is not seen, and may be many rows; so it is chosen only where it pays.
    """
    largest = int(np.argmax(side))
    if side[largest] <= VALUE_SIZES.clear_count(scale, 1):
        return Fraction(0)  # only many bins together stand out
    places = np.arange(side.size)
    away = np.maximum(largest - places, 1).astype(np.float64)
    first = int(np.flatnonzero((side > scale * np.log(_NEAR_ALARMS * away**2)) | (places == largest))[0])
    is_close = largest - first <= _CLOSE_BINS
    return Fraction(MAGNITUDE_ENDS[first - _CLOSE_BINS]) if is_close and first >= _CLOSE_BINS else Fraction(0)


def _release_histogram(
    unit: Unit, engine: Engine, bounded: BoundedAggregate, epsilon: Fraction
) -> tuple[NDArray[np.int64], Laplace]:
    """The noisy counts of all bins, and their noise."""
    value, noise = _count_bins(unit, engine, bounded, epsilon)
    return noise.release(value).value, noise


def _count_bins(
    unit: Unit, engine: Engine, bounded: BoundedAggregate, epsilon: Fraction
) -> tuple[Bounded, Laplace]:
    """The exact counts of all bins, and the noise to release them with."""
    columns = engine.execute(bounded.sql, bounded.key_sets)
    counts = np.zeros(bounded.bins, dtype=np.int64)
    counts[columns["b"]] = columns["m0"]
    noise = Laplace.of(
        sensitivity=bounded.sensitivity,
        epsilon=epsilon,
        allow_large_epsilon=True,  # the plan's, which was confirmed
    )
    return Bounded(counts, bounded.sensitivity, unit, bounded.rule), noise


def measure_limits(
    engine: Engine,
    unit: Unit,
    questions: Sequence[tuple[str, str, Query, str, Fraction]],
    progress: Callable[[str], None],
) -> Result:
    """Histograms of rows and groups per unit, as a table of limits: later queries read theirs from them.

    Args:
        engine: holds the rows.
        unit: the privacy unit.
        questions: for each histogram its name, its kind, the query with its rows, its conditions and its ε.
        progress: called with the name of each step.

    Guarantee: private with all these ε together.
    Proof: docs/proofs/bounding.md, "The limit on rows"
    """
    names, limits, shares, stored = [], [], [], []
    for name, kind, query, conditions, epsilon in questions:
        progress(f"measuring {name}")
        bounding = ContributionBounding(query, ContributionBounds(), unit.neighbours)
        histogram = bounding.contribution_histogram(ROW_BINS, of_groups=kind == "groups")
        noisy, added = _release_histogram(unit, engine, histogram, epsilon)
        counts, scale = tuple(map(int, noisy)), added.scale
        noise = np.array(ROW_LIMITS, dtype=np.float64) * unit.neighbours.histogram_distance
        groups = max(1, query.cells) if query.keys and query.is_public else 1
        choice = ROW_SIZES.choose(counts, float(scale), noise, groups=groups)
        names.append(name)
        # No unit is in more groups than there are.
        counts_all = kind == "groups" and query.is_public and choice.limit >= groups
        limits.append(groups if counts_all else choice.limit)
        is_visible = ROW_SIZES.is_visible(counts, float(scale))
        shares.append(0.0 if counts_all else choice.share_above if is_visible else math.nan)
        stored.append(ContributionHistogram(kind, conditions, counts, scale, is_measured=True).to_dict())
    columns = (
        ResultColumn("contributions", np.array(names, dtype=object), kind=Kind.TEXT),
        ResultColumn("limit", np.array(limits, dtype=object), kind=Kind.NUMBER),
        ResultColumn("estimated_share_above", np.array(shares, dtype=object), kind=Kind.NUMBER),
    )
    total = sum((epsilon for *_, epsilon in questions), Fraction(0))
    label = {
        "unit": unit.name,
        "neighbours": unit.neighbours.value,
        "epsilon": str(total),
        "mechanism": "Laplace",
        "limits": "for one count with ε = 1; each query chooses its own",
        "histograms": stored,
    }
    return Result(columns, label)
