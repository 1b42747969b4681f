"""The charge of a privacy filter for a loss: by sums or by a curve, and with which limits.

All choices are made from charges and a declared purpose, never from answers. No guarantee depends on them.

Proof: docs/proofs/filters.md, "The filter"
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from hubbub.accounting.filter_second_stage import (
    FilterCharge,
    GaussianStage,
    Opening,
    RenyiStage,
    round_sum,
    split_delta,
)
from hubbub.accounting.gaussian_dominance import (
    LossFacts,
    bounded_rest,
    floor_digits,
    is_dominated,
    largest_mu_squared,
    least_mu_squared,
    loss_facts,
    mu_squared_at,
)
from hubbub.accounting.privacy_loss import PrivacyLoss

if TYPE_CHECKING:
    from hubbub.accounting.filters import PrivacyFilter

__all__ = ["MARGIN", "SMALL_SUM", "TOP_LEVEL", "holds", "is_charge_true", "price", "renyi_charge", "reserves"]

TOP_LEVEL, _LAST_LEVEL = 3, 24
"""A reserve is the limit divided by 2^3 … 2^24, or 0."""
_RESERVE_FACTOR = 64
MARGIN = 1 + Fraction(1, 1 << 20)
"""What is charged leaves this much room, so that another machine's last digits certify it, too."""
_SHARE, _SHARE_OF_FIRST_RUN = Fraction(1, 16), Fraction(1, 4)
_SHARE_OF_RUNS, _SHARE_OF_SELECTIONS = Fraction(5, 8), Fraction(1, 2)
"""The share of δ that is kept for cuts when a second stage opens."""
SMALL_SUM = Fraction(1, 64)
"""If training is planned, sums of up to this share of ε leave the opening of the stage to the run."""
_SEARCH_STEPS = 9


def price(state: "PrivacyFilter", facts: LossFacts) -> FilterCharge | None:
    """What a filter charges for a loss; None if it does not fit."""
    if isinstance(state.stage, GaussianStage):
        return _price_gaussian(state, state.stage, facts, state.stage.cuts)
    if isinstance(state.stage, RenyiStage):
        return _if_fits(state, renyi_charge(facts), facts)
    as_sum = None if facts.epsilon is None else FilterCharge(facts.epsilon, facts.delta)
    if as_sum is None and state.purpose == "few queries":
        as_sum = _price_share(state, facts)
    as_sum = None if as_sum is None else _if_fits(state, as_sum, facts)
    if as_sum is not None and _prefers_sum(state, facts):
        return as_sum
    return _price_opening(state, facts) or as_sum or _price_point(state, facts)


def _if_fits(state: "PrivacyFilter", charge: FilterCharge, facts: LossFacts) -> FilterCharge | None:
    return None if state.after(facts.loss, charge) is None else charge


def _prefers_sum(state: "PrivacyFilter", facts: LossFacts) -> bool:
    """True if the charge takes a smaller part of ε than of a second stage; by public figures alone."""
    if not state.delta or facts.epsilon == 0 or state.purpose == "few queries":
        return True
    if facts.epsilon is None:
        return False
    if state.purpose == "many queries" or facts.is_numeric:
        return False
    if state.purpose == "training" and state.sum_epsilon + facts.epsilon <= SMALL_SUM * state.epsilon:
        return True
    left = state.epsilon - state.sum_epsilon
    # About what a second stage would have for its limit.
    limit = largest_mu_squared(state.epsilon, state.delta) * (left / state.epsilon) ** 2
    if not limit:
        return True
    figure = mu_squared_at(facts, _reserve(facts.largest_event, limit), Fraction(0))
    return figure is None or facts.epsilon * limit <= figure * left


def _price_opening(state: "PrivacyFilter", facts: LossFacts) -> FilterCharge | None:
    epsilon, delta = state.epsilon - state.sum_epsilon, state.delta - state.sum_delta
    if epsilon <= 0 or delta <= 0:
        return None
    if facts.is_renyi_only:
        return _price_renyi_opening(state, facts, epsilon, delta)
    if facts.is_numeric:
        return _price_first(state, facts, epsilon, delta)
    for cuts in (_share(state, facts) * delta, facts.closed_delta):
        if facts.closed_delta > cuts or cuts >= delta:
            continue
        limit = largest_mu_squared(epsilon, delta - cuts)
        opens = Opening("gaussian", limit, cuts)
        charge = _price_gaussian(state, GaussianStage(limit, cuts, None), facts, cuts, opens)
        if charge is not None:
            return charge
    return _price_last(state, facts)


def _price_last(state: "PrivacyFilter", facts: LossFacts) -> FilterCharge | None:
    """A loss that was calibrated to all that is left: the stage opens for it alone.

    Its own μ² is the limit: the largest one that fits is rounded down, and may be a digit below it.
    """
    limit = mu_squared_at(facts, Fraction(0), Fraction(0))
    if limit is None:
        return None
    opens = Opening("gaussian", limit, facts.closed_delta)
    return _if_fits(state, FilterCharge(None, facts.closed_delta, limit, Fraction(0), opens=opens), facts)


def _share(state: "PrivacyFilter", facts: LossFacts) -> Fraction:
    if state.purpose == "training":
        return _SHARE_OF_RUNS
    if facts.is_numeric:
        return _SHARE_OF_FIRST_RUN
    return _SHARE_OF_SELECTIONS if facts.closed_delta else _SHARE


def _price_gaussian(
    state: "PrivacyFilter",
    stage: GaussianStage,
    facts: LossFacts,
    cuts: Fraction,
    opens: Opening | None = None,
) -> FilterCharge | None:
    """The figures with the usual reserve, or with a smaller one at the end of the budget."""
    left = cuts - stage.delta
    if facts.closed_delta > left:
        return None
    if facts.is_numeric:
        charge = _price_numeric(stage, facts, cuts, opens)
    else:
        charge = _price_cut(stage, facts, Fraction(0), opens)
    if charge is None and opens is None and facts.epsilon is not None:
        return _if_fits(state, FilterCharge(facts.epsilon, facts.delta), facts)
    return charge


def _price_cut(
    stage: GaussianStage, facts: LossFacts, cut: Fraction, opens: Opening | None
) -> FilterCharge | None:
    """The figures with this much cut off; None if they do not fit."""
    delta = facts.closed_delta + cut
    epsilon = None if facts.epsilon is None or facts.delta > delta else facts.epsilon
    largest = facts.largest_event if cut else facts.largest_loss
    for reserve in reserves(largest, stage.limit):
        if stage.spent + reserve > stage.limit:
            continue
        figure = mu_squared_at(facts, reserve, cut)
        if figure is None:
            break
        charge = FilterCharge(epsilon, delta, figure, reserve, opens=opens)
        if stage.fits(charge):
            return charge
    return None


def _price_numeric(
    stage: GaussianStage, facts: LossFacts, cuts: Fraction, opens: Opening | None
) -> FilterCharge | None:
    """Of some cuts the one that takes the least part of what is left, of μ² or of δ, whichever is more.

    The less is cut off, the larger is μ². A loss that needs little of μ² must not take most of the cuts: then
    a few of them would end the stage.
    """
    room, left = stage.limit - stage.spent, cuts - stage.delta
    if room <= 0:
        return None

    def part(charge: FilterCharge) -> Fraction:
        assert charge.mu_squared is not None
        return max(charge.mu_squared / room, charge.delta / left if charge.delta else Fraction(0))

    charges = []
    if facts.is_bounded and (charge := _price_cut(stage, facts, Fraction(0), opens)):
        charges.append(charge)
    cut = _cut(cuts, left - facts.closed_delta)
    charge = _price_cut(stage, facts, cut, opens) if cut else None
    if charge is None and not charges:
        # Where nothing else fits, next to all of the cuts may.
        nearly_all = Fraction(31, 32) * (left - facts.closed_delta)
        charge = _price_cut(stage, facts, nearly_all, opens) if nearly_all > cut else None
    if charge is not None:
        charges.append(charge)
        assert charge.mu_squared is not None
        smaller = _cut(cuts, charge.mu_squared / room * left - facts.closed_delta)
        if 0 < smaller < cut and (charge := _price_cut(stage, facts, smaller, opens)):
            charges.append(charge)
    return min(charges, key=part, default=None)


def _price_first(
    state: "PrivacyFilter", facts: LossFacts, epsilon: Fraction, delta: Fraction
) -> FilterCharge | None:
    """A loss that opens the stage as a part of its certificate: it costs no more than its tight curve.

    Proof: docs/proofs/filters.md, "Stage 2: Gaussian sums"
    """
    own = Fraction(facts.loss.delta(epsilon)) * MARGIN
    rest = delta - own
    if rest <= delta / 256:
        return None
    # The run itself needs no cut: what is kept is for later ones.
    cuts = floor_digits((_SHARE_OF_FIRST_RUN if state.purpose == "training" else _SHARE) * rest)
    limit = _largest_beside(facts.loss, epsilon, delta - cuts)
    if not limit:
        return None
    return FilterCharge(None, Fraction(0), opens=Opening("gaussian", limit, cuts, is_first=True))


def _price_renyi_opening(
    state: "PrivacyFilter", facts: LossFacts, epsilon: Fraction, delta: Fraction
) -> FilterCharge | None:
    cuts = _share(state, facts) * delta
    opens = Opening("renyi", Fraction(0), cuts, split_delta(epsilon, delta - cuts))
    return _if_fits(state, replace(renyi_charge(facts), opens=opens), facts)


def _price_share(state: "PrivacyFilter", facts: LossFacts) -> FilterCharge | None:
    """A point of the loss's own curve, at an eighth of what is left of δ: sums stay possible."""
    delta = (state.delta - state.sum_delta) / 8
    epsilon = facts.loss.epsilon(delta / MARGIN) if delta else math.inf
    return FilterCharge(Fraction(epsilon), delta) if math.isfinite(epsilon) else None


def _price_point(state: "PrivacyFilter", facts: LossFacts) -> FilterCharge | None:
    """All that is left of ε, with the δ of the loss's own curve there."""
    epsilon = state.epsilon - state.sum_epsilon
    if epsilon <= 0 or not state.delta:
        return None
    left = state.delta - state.sum_delta
    delta = Fraction(facts.loss.delta(epsilon)) * MARGIN
    if delta > left and holds(facts.loss, epsilon, left / MARGIN):
        delta = left
    return _if_fits(state, FilterCharge(epsilon, round_sum(min(delta, Fraction(1))), None), facts)


def holds(loss: PrivacyLoss, epsilon: Fraction, delta: Fraction) -> bool:
    """True if the loss is surely (ε, δ)-private; in both directions."""
    if delta < 0:
        return False
    if delta >= 1 or Fraction(loss.delta(epsilon)) <= delta:
        return True
    least_epsilon = loss.epsilon(delta)
    return math.isfinite(least_epsilon) and Fraction(least_epsilon) <= epsilon


def _reserve(largest: Fraction, limit: Fraction) -> Fraction:
    """The usual reserve: large enough that the figure is within 1/4 % of its least, or an eighth."""
    enough = _RESERVE_FACTOR * largest**2
    level = TOP_LEVEL
    while enough and level < _LAST_LEVEL and limit / 2 ** (level + 1) >= enough:
        level += 1
    return limit / 2**level if enough else Fraction(0)


def reserves(largest: Fraction, limit: Fraction) -> list[Fraction]:
    """The usual reserve for events of this pure ε, and smaller ones for the end of a budget."""
    reserve = _reserve(largest, limit)
    if not reserve:
        return [Fraction(0)]
    levels = [reserve]
    while levels[-1] >= largest**2 and levels[-1] * 2**_LAST_LEVEL > limit:
        levels.append(levels[-1] / 2)
    return [*levels, Fraction(0)]


def _cut(cuts: Fraction, left: Fraction) -> Fraction:
    """The largest of 7/8, 7/64 … of all cuts that is left for a loss without a closed form."""
    cut = cuts * Fraction(7, 8)
    while cut > left:
        cut /= 8
        if cut * 2**40 < cuts:
            return Fraction(0)
    return cut


def renyi_charge(facts: LossFacts) -> FilterCharge:
    """The charge of a Rényi stage."""
    cost = facts.loss.cost()
    return FilterCharge(
        None if facts.epsilon is None or facts.delta > cost.delta else facts.epsilon,
        cost.delta,
        # Found with a margin, so that another machine's last digits certify it too.
        renyi=tuple(None if figure is None else figure * MARGIN for figure in cost.renyi),
    )


def is_charge_true(loss: PrivacyLoss, charge: FilterCharge) -> bool:
    """True if the figures of a charge are true of the loss, whatever filter they are added to.

    Guarantee: an inequality, not an equality: a later and sharper version may charge less.
    Proof: docs/proofs/filters.md, "The cost of a charge"
    """
    facts = loss_facts(loss)
    is_pure = (
        charge.epsilon is not None
        and facts.epsilon is not None
        and charge.epsilon >= facts.epsilon
        and charge.delta >= facts.delta
    )
    if charge.mu_squared is None and not charge.renyi:
        return is_pure or (charge.epsilon is not None and holds(loss, charge.epsilon, charge.delta))
    if charge.epsilon is not None and not is_pure:
        return False
    if charge.mu_squared is not None and not _is_mu_squared_true(facts, charge):
        return False
    return not charge.renyi or _is_renyi_true(loss, charge)


def _is_renyi_true(loss: PrivacyLoss, charge: FilterCharge) -> bool:
    cost = loss.cost()
    return charge.delta >= cost.delta and all(
        mine is None or (needed is not None and mine >= needed)
        for mine, needed in zip(charge.renyi, cost.renyi, strict=True)
    )


def _is_mu_squared_true(facts: LossFacts, charge: FilterCharge) -> bool:
    """True if μ² dominates the loss beside the reserve, with the charge's δ cut off."""
    cut = charge.delta - facts.closed_delta
    if cut < 0 or charge.reserve < 0 or charge.mu_squared is None:
        return False
    for part in facts.parts:
        closed = mu_squared_at(replace(facts, parts=(replace(part, rest=None),)), charge.reserve, Fraction(0))
        rest = charge.mu_squared - (closed or 0)
        if rest < 0:
            return False
        if part.rest is not None:
            bounded = bounded_rest(part.rest, charge.reserve)
            if (bounded is None or bounded > rest) and not is_dominated(part.rest, cut, rest):
                return False
    return True


def _largest_beside(loss: PrivacyLoss, epsilon: Fraction, delta: Fraction) -> Fraction:
    """About the largest μ² of Gaussian noise that fits (ε, δ) beside the loss; 0 if next to none does."""

    def fits(mu_squared: Fraction) -> bool:
        both = loss + PrivacyLoss.gaussian_from_mu_squared(mu_squared)
        return Fraction(both.delta(epsilon)) * MARGIN <= delta

    low, high = Fraction(0), largest_mu_squared(epsilon, delta)
    # First about where it should be for Gaussian noise, then between what fits and what does not.
    middle = max(high - Fraction(least_mu_squared(float(epsilon), loss.delta(epsilon))), high / 64)
    for _ in range(_SEARCH_STEPS):
        low, high = (middle, high) if fits(middle) else (low, middle)
        middle = floor_digits((low + high) / 2 if low else high / 4)
    return low
