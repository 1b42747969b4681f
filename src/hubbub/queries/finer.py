"""A finer answer and earlier ones to the same question, combined: each counts by how sure it is.

Only what is a plain sum of noisy integers is combined: counts and sums of groups that are public. Shares are
by inverse variance, and public, as the laws of all noises are; the interval is that of the combined law.

Proof: docs/proofs/intervals.md, "Finer answers"
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from hubbub.mechanisms import Laplace
from hubbub.mechanisms.spread import together_width
from hubbub.queries.answers import Answers
from hubbub.queries.moments import Floats, Noise, width_of
from hubbub.queries.outputs import Shown
from hubbub.queries.plan import Plan
from hubbub.rational import rational

__all__ = ["finer", "is_additive"]

_ROUNDING = 2.0**-44
"""A few dozen operations in doubles are off by less of what is added."""


@dataclass(frozen=True)
class _Part:
    """One release's answer to an aggregate: its column, and how it was made."""

    column: Shown
    weights: Floats
    noise: Noise
    confidence: Fraction

    @classmethod
    def of(cls, plan: Plan, place: int, column: Shown) -> "_Part":
        law = plan.linear(place)
        assert law is not None
        return cls(column, *law, plan.confidence)

    @property
    def precision(self) -> float:
        """One over the variance of its noise, nearly."""
        scale = float(self.noise.scale)
        return 1 / (2 * scale * scale if isinstance(self.noise, Laplace) else scale * scale)

    @property
    def width(self) -> float:
        """How far it is off by itself."""
        return width_of(self.weights, self.noise, self.confidence)

    @property
    def slack(self) -> Floats:
        """What doubles may have lost when it was released: its interval's width beyond the noise's."""
        assert self.column.low is not None
        assert self.column.high is not None
        beyond = (self.column.high - self.column.low) / 2 - self.width
        return np.asarray(np.maximum(beyond, 0) + _ROUNDING * np.abs(self.column.values))


def is_additive(plan: Plan) -> bool:
    """Whether answers to it can be combined: sums of public groups, none of which is chosen by its value."""
    query = plan.query
    if plan.searches or plan.autos or plan.selects or query.is_top or plan.reports:
        return False
    if query.having is not None or query.order or query.limit is not None:
        return False
    places = [output.aggregate for output in query.outputs if output.key is None]
    return bool(places) and all(place is not None and plan.linear(place) is not None for place in places)


def finer(plan: Plan, answers: Answers, earlier: Sequence[Answers]) -> Answers:
    """The answers, combined with earlier ones to the same question at other prices.

    Guarantee: each interval holds the exact answer of the bounded query, with at least the plan's confidence.
    Assumes: `earlier` were released for the same question on the same version, each from noise of its own.
    Proof: docs/proofs/intervals.md, "Finer answers"
    """
    known = [(plan, answers), *((_plan_of(plan, each), each) for each in earlier)]
    columns = list(answers.columns)
    for column, output in enumerate(plan.query.outputs):
        if output.aggregate is not None:
            place = output.aggregate
            columns[column] = _combined([_Part.of(made, place, _own(each)[column]) for made, each in known])
    is_finer = any(new is not old for new, old in zip(columns, answers.columns, strict=True))
    return replace(answers, columns=tuple(columns), own=answers.columns) if is_finer else answers


def _plan_of(plan: Plan, answers: Answers) -> Plan:
    """The plan at the price that was paid then: it says which noise these have."""
    facts = answers.facts
    return replace(
        plan,
        epsilon=Fraction(facts["epsilon"]),
        delta=Fraction(facts["delta"]),
        is_gaussian=facts["mechanism"] == "Gaussian",
        confidence=rational(facts["confidence"], "confidence"),
    )


def _own(answers: Answers) -> tuple[Shown, ...]:
    return answers.columns if answers.own is None else answers.own


def _combined(parts: Sequence[_Part]) -> Shown:
    """The first part, made finer by all others or by one; by itself where no interval would be narrower.

    Which it is depends on the laws, not on what was released.
    """
    first = parts[0]
    some = [parts, *([first, other] for other in parts[1:])]
    width, _, parts = min((_width(each), place, each) for place, each in enumerate(some))
    if width >= first.width:
        return first.column
    shares = _shares(parts)
    value, slack = np.zeros(len(first.column.values)), np.zeros(len(first.column.values))
    for part, share in zip(parts, shares, strict=True):
        value, slack = value + share * part.column.values, slack + share * part.slack
    return Shown(first.column.name, value, value - width - slack, value + width + slack)


def _shares(parts: Sequence[_Part]) -> Floats:
    """By inverse variance; all of them are one, so that what is estimated stays the same."""
    precision = np.array([part.precision for part in parts])
    shares: Floats = precision / precision.sum()
    shares[0] = 1 - shares[1:].sum()
    return shares


def _width(parts: Sequence[_Part]) -> float:
    laws = [(part.noise, share * part.weights) for part, share in zip(parts, _shares(parts), strict=True)]
    return together_width(laws, parts[0].confidence)
