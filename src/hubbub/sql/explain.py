"""A plan in words: its label, its expected errors, and how it protects."""

import html
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubbub.escaping import escape
from hubbub.numbers import format_down, format_error, format_nearest, format_percent, format_up
from hubbub.report.text_tables import count_of, format_key
from hubbub.sql.limit_choice import VALUE_SIZES
from hubbub.sql.moments import Estimate
from hubbub.sql.planned_aggregates import NoisyAggregate
from hubbub.sql.released_limits import ContributionHistogram

if TYPE_CHECKING:
    from hubbub.sql.plan import Plan
    from hubbub.sql.planned_aggregates import PlannedAggregate
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.query import BoundedAggregate, Query
    from hubbub.sql.released_limits import FoundLimit

__all__ = [
    "describe_luck",
    "describe_nothing",
    "explain_plan",
    "ledger_facts",
    "list_notes",
    "make_label",
    "render_html",
    "render_plan",
    "summarize_plan",
    "with_estimated_cuts",
]

_PROOFS = "docs/proofs/bounding.md"


def summarize_plan(plan: "Plan") -> str:
    """One line: the price, the unit and the expected errors."""
    errors = "; ".join(f"{output.name} {error}" for output, error in plan.errors)
    return escape(f"Plan(ε = {_price(plan)} for {plan.unit}{'; ' if errors else ''}{errors})")


def render_plan(plan: "Plan") -> str:
    """The price, the expected errors and the notes, a line each."""
    lines = [f"ε = {_price(plan)} for {plan.unit}; nothing spent yet"]
    lines += [f"  {output.name}: {error} ({_percent(plan)})" for output, error in plan.errors]
    return "\n".join(map(escape, [*lines, *list_notes(plan)]))


def render_html(plan: "Plan") -> str:
    """The same, for a notebook."""
    head = f"ε = {_price(plan)} for {plan.unit}; nothing spent yet"
    rows = "".join(
        f"<tr><td>{_cell(output.name)}</td><td>{_cell(error)}</td></tr>" for output, error in plan.errors
    )
    notes = "".join(f"<li>{_cell(note.strip())}</li>" for note in list_notes(plan))
    return (
        f"<p>{_cell(head)}</p><table><thead><tr><th>output</th><th>error ({_percent(plan)})</th></tr></thead>"
        f"<tbody>{rows}</tbody></table><ul>{notes}</ul>"
    )


def list_notes(plan: "Plan") -> list[str]:
    """What else a reader should know, a line each."""
    query, split = plan.query, plan.split
    notes = [f"  {note}" for note in query.notes]
    if query.rows_kept_for_join is not None:
        notes.append(
            f"  before tables are joined a unit keeps at most {query.rows_kept_for_join:,} rows of each"
        )
    if not plan.bounded.intervals and not query.is_top:
        notes.append("  answers are shown without intervals, as asked")
    if split.limits:
        what = " and ".join(name for name, share in (("rows", split.rows), ("groups", split.groups)) if share)
        finds = f"{format_up(split.limits)} of ε finds the maximum number of {what} per unit"
        notes.append(f"  {finds}" if plan.is_gaussian else f"  up to {finds}; the answers have the rest")
        if plan.too_noisy:
            kinds = " and ".join(plan.too_noisy)
            notes.append(f"  what is known of {kinds} per unit was released with too little ε for this")
    # A limit that was found before decides on the errors above, and is part of the SQL.
    notes += [f"  {each.kind} per unit: {_describe_found(plan, each)}" for each in plan.found_limits]
    if split.bounds:
        names = ", ".join(query.arguments[index].name for index in plan.bounded.estimated_arguments)
        notes.append(
            f"  {format_up(split.bounds)} of ε estimates the bounds of {names}; {_values_needed(plan)}; "
            "errors are stated for a range of 1, and grow with it"
        )
    if plan.report_noise is not None:
        notes.append(
            f"  {format_up(split.report)} of ε measures the share of units above a contribution bound: "
            f"± {format_error(plan.report_noise.error(plan.confidence))}/n or less, with n units"
        )
    notes += [note for each in plan.aggregates for note in _describe_quantiles(plan, each)]
    if plan.bounded.selects_keys:
        notes.append(f"  {_describe_selection(plan)}; {_lower_threshold(plan)} lowers that")
    if plan.top_k is not None:
        assert plan.bounded.top_scores is not None
        regret = plan.top_k.error(plan.confidence, coordinates=max(1, query.cells))
        below = float(regret * plan.bounded.top_scores.step)
        notes.append(f"  each chosen group is at most {format_error(below)} below the best one left")
    return notes


def _values_needed(plan: "Plan") -> str:
    """How many values it takes for bounds to stand out from the noise, wherever they are."""
    limits, distance = plan.contribution_bounds, plan.unit.neighbours.histogram_distance
    share = plan.split.bounds / len(plan.bounded.estimated_arguments)
    is_known = not plan.bounded.estimates_rows
    rows = (limits.rows or (limits.groups or 1) * (limits.rows_per_group or 1)) if is_known else 1
    values = Fraction(VALUE_SIZES.clear_count(float(rows * distance / share)))
    often = "" if is_known else " times the maximum number of rows per unit"
    return f"it takes about {format_up(values, 2)} values{often} to find any"


def _describe_quantiles(plan: "Plan", each: "PlannedAggregate") -> list[str]:
    """Notes on quantiles that are selected."""
    if isinstance(each, NoisyAggregate):
        return []
    notes, selection = [], each.selection
    if selection.noise is not None:
        share, use = format_up(selection.bins_epsilon), "intervals" if each.aggregate.intervals else "place"
        notes.append(f"  {share} of ε pays for counts that make the {use} of {_output_names(plan, each)}")
    steps, outputs = float(each.bounded.step), plan.query.outputs
    for target, distance in selection.distances.items():
        of = plan.query.aggregates
        calls = {index for index in each.aggregate.indices if of[index].fraction == target}
        names = ", ".join(output.name for output in outputs if output.aggregate in calls)
        if names:
            rows = math.ceil(distance * steps)
            seen = "" if selection.noise is None else "; it is moved on to where noisy counts show rows"
            notes.append(
                f"  {names} is selected at least {rows:,} rows from the end, or at the median: beyond that "
                f"are too few rows for this ε{seen}"
            )
    return notes


def _describe_selection(plan: "Plan") -> str:
    """Which keys are shown: the threshold, over the limits that may be found."""
    plans = plan.planned_limits or {0: plan}
    least = {limit: _least_shown(each) for limit, each in plans.items()}
    first, *others = least.items()
    rest = "".join(f", {count:,} at {limit}" for limit, count in others)
    is_open = f" at a limit on {_limited(plan)} per unit of {first[0]}{rest}" if others else ""
    if plan.partition_selection is not None:
        selects = f"{format_up(plan.split.keys)} of ε selects the keys"
        return f"{selects}: one that {first[1]:,} units{is_open} have is shown with {_percent(plan)}"
    selecting, histogram = plan.selecting, plan.stability_histogram
    assert selecting is not None
    assert histogram is not None
    what = _selecting_count(plan)
    if is_open:
        return (
            f"a key is shown by {what}, with noise: one of {first[1]:,}{is_open} with {_percent(plan)}; just "
            "above, intervals are wider"
        )
    threshold = math.ceil(histogram.threshold * selecting.bounded.step)
    return (
        f"a key is shown where {what}, with noise, reaches {threshold:,}: one of {first[1]:,} with "
        f"{_percent(plan)}; just above, intervals are wider"
    )


def describe_nothing(plan: "Plan") -> str:
    """Why no key was shown, and which options lower what a key needs."""
    what = _selecting_count(plan) if plan.selecting is not None else "its number of units"
    return (
        f"no key was shown: one is shown with {_percent(plan)} where {what} is {_least_shown(plan):,} or "
        f"more; {_lower_threshold(plan)} lowers that, and declared keys are always shown"
    )


def _lower_threshold(plan: "Plan") -> str:
    """The options that lower what a key needs."""
    lower = ["a larger epsilon or delta"]
    limit = plan.bounded.keys_per_unit if _limited(plan) == "groups" else plan.contribution_bounds.rows
    if plan.query.is_keyed and limit != 1:
        lower.append(f"a smaller limit on {_limited(plan)} per unit")
    return " or ".join(lower)


def _least_shown(plan: "Plan", confidence: Fraction | None = None) -> int:
    """The least number of rows or units at which a key is shown with this confidence, or the plan's."""
    sure = plan.confidence if confidence is None else confidence
    if plan.partition_selection is not None:
        return plan.partition_selection.min_units(sure)
    assert plan.selecting is not None
    assert plan.stability_histogram is not None
    return math.ceil(plan.stability_histogram.min_count(sure) * plan.selecting.bounded.step)


_LUCK = Fraction(1, 20)
_MAX_LUCKY = 10


def describe_luck(plan: "Plan", columns: Sequence["ResultColumn"]) -> str | None:
    """Which selected keys may be there by luck: their counts may be so small that few such keys are shown.

    None if there are none, or no count tells.

    Guarantee: a function of the plan and of what was released.
    """
    outputs = plan.query.outputs
    counts = [
        column.low
        for output, column in zip(outputs, columns, strict=True)
        if output.aggregate is not None
        and plan.query.aggregates[output.aggregate].kind in {"count", "units"}
        and column.low is not None
    ]
    if not plan.bounded.selects_keys or not counts:
        return None
    least = _least_shown(plan, _LUCK)
    places = [place for place, low in enumerate(counts[0].tolist()) if low < least]
    if not places:
        return None
    keys = [column for output, column in zip(outputs, columns, strict=True) if output.key is not None]
    names = [", ".join(format_key(column.values[place]) for column in keys) for place in places[:_MAX_LUCKY]]
    more = f" and {len(places) - _MAX_LUCKY} more" if len(places) > _MAX_LUCKY else ""
    return (
        f"perhaps selected by luck: {'; '.join(filter(None, names)) or f'{len(places)} keys'}{more} "
        f"(intervals reach below {least:,}, where a key is shown {format_percent(_LUCK)} of the time or less)"
    )


def _selecting_count(plan: "Plan") -> str:
    """The number that selects keys, in words: of rows or units that have a value, where only these count."""
    selecting = plan.selecting
    assert selecting is not None
    aggregate = selecting.aggregate
    if aggregate.is_count and (names := _shown_names(plan, selecting)):
        return ", ".join(names)
    count = f"its number of {'units' if aggregate.is_by_groups else 'rows'}"
    if aggregate.counts_missing:
        return count
    calls = plan.query.aggregates
    arguments = {place: None for index in aggregate.indices for place in calls[index].arguments}
    return f"{count} with a value of {' and '.join(plan.query.arguments[place].name for place in arguments)}"


def _limited(plan: "Plan") -> str:
    """What the contribution bound that decides on keys is on."""
    selecting = plan.selecting
    if selecting is None or selecting.aggregate.is_by_groups:
        return "groups"
    return "rows"


def explain_plan(plan: "Plan") -> str:
    """The plan with its sensitivities, mechanisms, SQL and proofs."""
    lines = [""]
    scores = plan.bounded.top_scores
    rows: list[tuple[str, BoundedAggregate, list[str]]] = [
        (_output_names(plan, each), each.bounded, _describe_release(plan, each)) for each in plan.aggregates
    ]
    if scores is not None:
        rows.append(("the largest groups", scores, [f"noise: {plan.top_k}"]))
    for (name, bounded, released), statement in zip(rows, plan.statements, strict=True):
        lines += [
            f"{name}: {_describe_integers(bounded)} a group, one step is {bounded.step} of a row or unit",
            f"  one unit moves them by {bounded.sensitivity}",
            f"  because: {bounded.rule} ({_PROOFS})",
            *(f"  {line}" for line in released),
            f"  SQL: {statement}",
        ]
    above = plan.bounded.units_above_bounds
    if above is not None:
        lines += [
            f"units above a contribution bound, and others: one unit moves them by {above.sensitivity}",
            f"  because: {above.rule} ({_PROOFS})",
            f"  noise: {plan.report_noise}",
            f"  SQL: {plan.compile(above.sql)}",
        ]
    if plan.bounded.selects_keys:
        mechanism = plan.stability_histogram or plan.partition_selection
        lines.append(f"keys: {mechanism} (docs/proofs/partition-selection.md)")
    if plan.choice is not None:
        name, others = plan.choice
        worse = "; ".join(f"{other} {ratio:.3g}" for other, ratio in others)
        keys = " (with the threshold of keys)" if plan.counts_threshold else ""
        lines.append(
            f"chosen: {name}, of the least expected error{keys}; that of others, as a multiple: {worse}"
        )
    return "\n".join([render_plan(plan), *map(escape, lines)])


def _describe_release(plan: "Plan", each: "PlannedAggregate") -> list[str]:
    """The mechanism, why it was chosen and by how much it is better, a line each."""
    lines = each.describe()
    if isinstance(each, NoisyAggregate):
        return lines
    compared = each.aggregate.compare_with_tree(plan.query, each.bounded, each.selection, plan.confidence)
    return [*lines[:-1], f"{lines[-1]}: {compared}"]


def _describe_integers(bounded: "BoundedAggregate") -> str:
    return f"counts of {bounded.bins:,} bins" if bounded.bins > 1 else count_of(bounded.columns, "integer")


def with_estimated_cuts(facts: Mapping[str, Any], plan: "Plan") -> dict[str, Any]:
    """The facts of an answer, with what an earlier histogram says of the limits that the plan declares.

    The histogram is not paid for by the answer's charge, so a stored label leaves it out; this adds it for
    somebody with a plan that knows it.
    """
    if not any(each.is_declared for each in plan.found_limits):
        return dict(facts)
    limits = {**facts.get("limits", {}), **_describe_limits(plan, plan.found_limits)}
    return {**facts, "limits": limits, "interval covers": _describe_coverage(plan, plan.found_limits)}


def make_label(plan: "Plan", above: Estimate | None = None) -> dict[str, Any]:
    """The label of a plan, for programs and for people.

    Guarantee: what is known of rows is paid for by the plan's own charge, or by the charge that its
        fingerprint names.
    """
    paid = tuple(each for each in plan.found_limits if not each.is_declared)
    bounded, query, bounds = plan.bounded, plan.query, plan.contribution_bounds
    noises = sorted({name for each in plan.aggregates for name in each.mechanisms})
    return {
        "query": query.text,
        "unit": plan.unit.name,
        "neighbours": plan.unit.neighbours.value,
        "epsilon": str(plan.epsilon),
        "delta": str(plan.delta),
        "mechanism": ", ".join(noises) or "permute-and-flip",
        "answers": {
            output.name: _kind_of_answer(query, output.aggregate)
            for output in query.outputs
            if output.aggregate is not None
        },
        "keys": _describe_keys(plan),
        "rows per unit": bounds.rows if bounded.uses_rows else None,
        "rows per unit estimated privately": bool(plan.split.rows) or bounded.rows_found,
        "groups per unit": bounds.groups,
        "groups per unit estimated privately": bool(plan.split.groups) or bounded.groups_found,
        "rows per group": bounds.rows_per_group,
        "bounds": {
            argument.name: [str(end) for end in argument.bounds]
            for argument in query.arguments
            if argument.bounds is not None
        },
        "bounds estimated privately": [query.arguments[index].name for index in bounded.estimated_arguments],
        **_label_beyond(plan),
        "confidence": float(plan.confidence),
        "interval covers": _describe_coverage(plan, paid),
        **_label_limits(plan, paid),
        **_label_above(above),
        "notes": query.notes,
    }


def _kind_of_answer(query: "Query", index: int) -> str:
    """The kind of an aggregate call: a count, a sum, a sum that may be negative, a mean and so on."""
    call = query.aggregates[index]
    if call.per_group is not None:
        lows = [call.per_group[1]]
    else:
        known = (query.arguments[place].bounds for place in call.arguments)
        lows = [bounds[0] for bounds in known if bounds is not None]
    return "signed sum" if call.kind == "sum" and any(low < 0 for low in lows) else call.kind


def ledger_facts(plan: Any) -> list[dict[str, Any]]:
    """How a plan, or each of its parts, releases: for the ledger's entry, and so for the account's label.

    Guarantee: free of data, and of what earlier releases found: limits that were found, and all that depends
        on them, are left out. Everybody may read a label, and an analyst's histogram is hers.
    """
    return [_part_facts(part) for part in getattr(plan, "parts", (plan,))]


def _part_facts(plan: "Plan") -> dict[str, Any]:
    bounded, bounds, query = plan.bounded, plan.contribution_bounds, plan.query
    estimate = "found privately"
    rows = estimate if bounded.rows_found or bounded.estimates_rows else bounds.rows
    groups = estimate if bounded.groups_found or bounded.estimates_groups else bounds.groups
    is_declared = estimate not in {rows, groups} and not bounded.estimated_arguments
    clamping = {
        argument.name: [str(end) for end in argument.bounds]
        for place, argument in enumerate(query.arguments)
        if argument.bounds is not None and place not in bounded.estimated_arguments
    }
    clamping |= {query.arguments[place].name: [estimate] for place in bounded.estimated_arguments}
    limits = {
        "rows per unit": rows if bounded.uses_rows or rows == estimate else None,
        "groups per unit": groups,
        "rows per group": bounds.rows_per_group,
    }
    facts: dict[str, Any] = {
        "outputs": [output.name for output in query.outputs],
        "keys": f"public, {query.cells:,} groups"
        if query.keys and query.is_public
        else _describe_keys(plan)
        if query.keys
        else "none",
        "contribution bounds": {name: limit for name, limit in limits.items() if limit is not None},
        "clamping bounds": clamping,
    }
    if query.is_top:
        return {**facts, "mechanisms": [f"top {query.limit} by permute-and-flip"]}
    if not is_declared:
        names = sorted({name for each in plan.aggregates for name in each.mechanisms})
        return {**facts, "mechanisms": [f"{name}; its scale depends on what is found" for name in names]}
    mechanisms = [f"{_output_names(plan, each)}: {_describe_mechanism(each)}" for each in plan.aggregates]
    if bounded.selects_keys:
        mechanisms.append(f"keys: {plan.stability_histogram or plan.partition_selection}")
    errors = {output.name: error for output, error in plan.errors}
    return {**facts, "mechanisms": mechanisms, "errors": errors, "confidence": float(plan.confidence)}


def _describe_mechanism(each: "PlannedAggregate") -> str:
    """The noise with its scale, in rows or units; or the selection."""
    if not isinstance(each, NoisyAggregate):
        return str(each.selection)
    step = each.bounded.step
    fine = "" if step == 1 else f", in steps of {step}"
    scale = format_nearest(Fraction(each.noise.scale) * step, 4)
    return f"{type(each.noise).__name__} noise of scale {scale} (rows or units{fine})"


_NO_BOUNDS = (
    "no bounds stand out from the noise, so its answers are NULL: there are too few values for so small an "
    "epsilon; declare the bounds, or ask with a larger epsilon"
)


def _label_beyond(plan: "Plan") -> dict[str, Any]:
    """Estimates of the values that estimated bounds cut off."""
    shares = {
        plan.query.arguments[index].name: _NO_BOUNDS
        if share is None
        else f"an estimated {format_percent(share, 2)} of the sum of all sizes is beyond the bounds "
        "(estimate, not part of the interval)"
        for index, share in plan.shares_beyond.items()
    }
    return {"values beyond bounds": shares} if shares else {}


def _describe_keys(plan: "Plan") -> str:
    if not plan.bounded.selects_keys:
        return "public"
    return "selected privately" + (", by their own counts" if plan.selecting is not None else "")


def _label_limits(plan: "Plan", found_limits: Sequence["FoundLimit"]) -> dict[str, Any]:
    """Each contribution bound, where it comes from and what it cuts off; and the noisy histograms."""
    histograms = [
        ContributionHistogram(each.kind, plan.conditions[each.kind].own[0], each.counts, each.scale).to_dict()
        for each in found_limits
        if each.is_new and each.kind in plan.conditions
    ]
    limits = _describe_limits(plan, found_limits)
    return {
        **({"limits": limits} if limits else {}),
        **({"histograms": histograms} if histograms else {}),
    }


def _describe_limits(plan: "Plan", found_limits: Sequence["FoundLimit"]) -> dict[str, str]:
    """By what is limited: the limit, where it comes from, and what it cuts off."""
    bounded, bounds = plan.bounded, plan.contribution_bounds
    if not plan.query.is_keyed:
        return {}
    from_histograms = {each.kind: _describe_found(plan, each) for each in found_limits}
    declared = {
        "rows": bounds.rows if bounded.uses_rows else None,
        "groups": bounds.groups,
        "rows per group": bounds.rows_per_group,
    }
    out = {}
    for kind, limit in declared.items():
        if kind in from_histograms:
            out[kind] = from_histograms[kind]
        elif limit is not None and (bounded.cuts_nothing or _counts_all(plan, kind)):
            out[kind] = f"limit {limit:,}; nothing is cut off, as is declared or as the query ensures"
        elif limit is not None:
            out[kind] = f"limit {limit:,}, declared; the part above it is cut off, and not measured"
    return out


def _counts_all(plan: "Plan", kind: str) -> bool:
    """True of a bound on groups where there are no more groups than it allows."""
    return kind == "groups" and plan.contribution_bounds.groups is not None and plan.bounded.counts_all_groups


def _describe_found(plan: "Plan", found_limit: "FoundLimit") -> str:
    """A limit that has a histogram, and what it cuts off."""
    note = "estimate" if plan.query.is_top else "estimate, not part of the interval"
    what = "rows" if found_limit.kind == "rows" else "groups of units"
    origin = "found" if found_limit.is_new else "found before, at no cost now"
    if found_limit.is_declared:
        origin = "declared"
    limit = f"limit {found_limit.limit:,}, {origin}"
    if _counts_all(plan, found_limit.kind):
        return f"{limit}; nothing is cut off, as there are no more groups"
    if found_limit.share_above is None:
        return f"{limit}; the {what} above it cannot be estimated: too few units stand out from the noise"
    share = format_percent(found_limit.share_above, 2)
    if found_limit.is_of_more:
        return (
            f"{limit}; an estimated {share} of all {what} above it, also of those that the query leaves out "
            f"({note})"
        )
    return f"{limit}; an estimated {share} of {what} above it ({note})"


def _describe_coverage(plan: "Plan", found_limits: Sequence["FoundLimit"]) -> str | None:
    """What intervals cover: the exact answer, or that of the bounded query; None if there are none."""
    bounded = plan.bounded
    if not bounded.intervals:
        return None
    if bounded.cuts_nothing:
        clamped = ["values"] if any(argument.bounds is not None for argument in plan.query.arguments) else []
        clamped += ["units' totals"] if any(call.per_group for call in plan.query.aggregates) else []
        of = f", of {' and '.join(clamped)} that are clamped to their bounds" if clamped else ""
        return f"the exact answer{of}"
    covers = "the exact answer of the bounded query"
    if bounded.reports_bounding:
        return covers
    is_by_groups = all(each.aggregate.is_by_groups for each in plan.aggregates)
    known = [each for each in found_limits if each.share_above is not None]
    is_estimated = any(is_by_groups or each.kind == "rows" for each in known)
    return f"{covers}; what bounding changed is {'only estimated' if is_estimated else 'not measured'}"


def _label_above(above: Estimate | None) -> dict[str, Any]:
    """The share of units above a contribution bound."""
    if above is None:
        return {}
    share, low, high = (float(part[0]) for part in (above.value, above.low, above.high))
    ends = f"[{format_down(100 * low, 3)}, {format_up(100 * high, 3)}]"
    text = f"{format_percent(share, 3)} {ends}"
    return {
        "units above a contribution bound": text,
        "share above a contribution bound": {"value": share, "low": low, "high": high},
    }


def _output_names(plan: "Plan", each: "PlannedAggregate") -> str:
    return ", ".join(_shown_names(plan, each)) or "computed outputs"


def _shown_names(plan: "Plan", each: "PlannedAggregate") -> list[str]:
    return [output.name for output in plan.query.outputs if output.aggregate in each.aggregate.indices]


def _price(plan: "Plan") -> str:
    epsilon = format_up(plan.epsilon)
    return epsilon if plan.delta == 0 else f"{epsilon}, δ = {format_up(plan.delta)}"


def _percent(plan: "Plan") -> str:
    return format_percent(plan.confidence)


def _cell(text: str) -> str:
    return html.escape(escape(text))
