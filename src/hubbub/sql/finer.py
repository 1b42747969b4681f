"""A finer answer and earlier ones to the same question, combined: each counts by how sure it is.

Only what is a plain sum of noisy integers is combined: counts and sums of groups that are public. Shares are
by inverse variance. The interval stays the finer answer's own: it holds by its own noise alone, also where
its price was chosen by looking at the earlier ones. The value is moved into it.

Proof: docs/proofs/intervals.md, "Finer answers"
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from hubbub.errors import HubbubError
from hubbub.mechanisms import Laplace
from hubbub.numbers import parse_rational
from hubbub.sql.plan import Plan
from hubbub.sql.post_processing import Shown
from hubbub.sql.result import Result

__all__ = ["finer", "is_additive", "plan_of"]


def is_additive(plan: Plan) -> bool:
    """Whether answers to it can be combined: sums of public groups, none of which is chosen by its value."""
    query = plan.query
    if plan.searches or plan.autos or plan.selects or query.is_top or plan.reports:
        return False
    if query.having is not None or query.order or query.limit is not None:
        return False
    places = [output.aggregate for output in query.outputs if output.key is None]
    return bool(places) and all(place is not None and plan.linear(place) is not None for place in places)


def finer(plan: Plan, answers: Result, earlier: Sequence[tuple[Plan, Result]]) -> Result:
    """The answers, combined with earlier ones to the same question at other prices.

    Guarantee: each interval holds the exact answer of the bounded query, with at least the plan's confidence,
        however the plan was chosen.
    Assumes: `earlier` are of the same groups, each with the plan by which it was released.
    Proof: docs/proofs/intervals.md, "Finer answers"
    """
    known = [(plan, answers), *((made, each) for made, each in earlier if _is_alike(each, answers))]
    if len(known) == 1:
        return answers
    columns = list(answers.columns)
    for column, output in enumerate(plan.query.outputs):
        if output.aggregate is not None:
            precisions = [_precision(made, output.aggregate) for made, _ in known]
            columns[column] = _combined([_own(each)[column] for _, each in known], precisions)
    return replace(answers, columns=tuple(columns), own=answers.columns)


def plan_of(plan: Plan, answers: Result) -> Plan | None:
    """The plan at the price that an earlier answer's label states, if it states one."""
    facts = answers.facts
    try:
        return replace(
            plan,
            epsilon=Fraction(facts["epsilon"]),
            delta=Fraction(facts["delta"]),
            is_gaussian=facts["mechanism"] == "Gaussian",
            confidence=parse_rational(facts["confidence"], "confidence"),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError, HubbubError):
        return None


def _precision(plan: Plan, place: int) -> float:
    """One over the variance of the noise, nearly."""
    law = plan.linear(place)
    assert law is not None
    scale = float(law[1].scale)
    return 1 / (2 * scale * scale if isinstance(law[1], Laplace) else scale * scale)


def _own(answers: Result) -> tuple[Shown, ...]:
    return answers.columns if answers.own is None else answers.own


def _is_alike(one: Result, other: Result) -> bool:
    return [(column.name, len(column.values)) for column in _own(one)] == [
        (column.name, len(column.values)) for column in _own(other)
    ]


def _combined(columns: Sequence[Shown], precisions: Sequence[float]) -> Shown:
    """A mean by inverse variance, within the first one's interval."""
    first = columns[0]
    assert first.low is not None
    assert first.high is not None
    shares = np.array(precisions) / sum(precisions)
    mean = sum(share * column.values for share, column in zip(shares, columns, strict=True))
    return replace(first, values=np.clip(mean, first.low, first.high))
