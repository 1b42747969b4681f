"""Privacy filters and odometers: what fits, what is read, and what is stored."""

import json
import math
import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss, PrivacyOdometer
from hubbub.accounting.composable_cost import ORDERS
from hubbub.accounting.filter_second_stage import (
    FilterCharge,
    GaussianStage,
    RenyiStage,
    decode_charge,
    encode_charge,
    epsilon_by_order,
    epsilon_of_orders,
    orders_fit,
    renyi_room,
    split_delta,
)
from hubbub.accounting.filters import PURPOSES
from hubbub.errors import BudgetExceeded, InvalidInput
from hubbub.mechanisms import Gaussian
from refusing import refused

ONE = Budget(1, 1e-6)
RUN = PrivacyLoss.gaussian(Fraction(10, 11)).poisson_subsampled(Fraction(1, 100)) * 1000
LOSSES = st.one_of(
    st.sampled_from([Fraction(1, 100), Fraction(1, 20), Fraction(1, 10)]).map(PrivacyLoss.pure),
    st.sampled_from([Fraction(1, 50), Fraction(1, 20)]).map(PrivacyLoss.gaussian),
    st.sampled_from([Fraction(1, 100), Fraction(1, 30)]).map(PrivacyLoss.laplace),
    st.just(PrivacyLoss.approximate(Fraction(1, 20), Fraction(1, 10**8))),
    st.just(PrivacyLoss.bounded_range(Fraction(1, 20))),
    st.just(PrivacyLoss.zcdp(Fraction(1, 1000))),
)


def charged(start, losses):
    for loss in losses:
        start = start.charge(loss) if start.allows(loss) else start
    return start


# What fits


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("purpose", ["", "training"])
@pytest.mark.parametrize(
    "loss",
    [
        PrivacyLoss.gaussian(Fraction(1, 4)).poisson_subsampled(Fraction(1, 1000)) * 10,
        PrivacyLoss.laplace(Fraction(1, 10)).poisson_subsampled(Fraction(1, 10)),
        PrivacyLoss.zcdp(Fraction(1, 10**6)),
    ],
)
def test_many_small_charges_without_a_closed_form_fit(purpose, loss):
    account = PrivacyFilter(Budget(8, 1e-5, purpose=purpose)).charge(PrivacyLoss.gaussian(Fraction(1, 100)))
    assert account.count_more(loss) >= 1000
    after, count = account.charge_times(loss, 200)
    assert count == 200
    # Neither μ² nor the cuts are used up by them, in proportion.
    assert after.stage.spent < after.stage.limit / 50
    assert after.stage.delta < after.stage.cuts / 8
    assert after.allows(PrivacyLoss.approximate(Fraction(1, 100), after.stage.cuts / 4))


@pytest.mark.slow
def test_a_bounded_charge_without_a_closed_form_needs_no_cut():
    sampled = PrivacyLoss.laplace(Fraction(1, 10)).poisson_subsampled(Fraction(1, 10))
    used_up = PrivacyFilter(ONE).charge(PrivacyLoss.gaussian(Fraction(1, 100)))
    used_up = used_up.charge(PrivacyLoss.approximate(Fraction(1, 100), used_up.remaining().delta))
    assert used_up.remaining().delta == 0
    charge = used_up.price(sampled)
    assert charge.delta == 0
    assert used_up.certifies(sampled, charge)
    assert not used_up.certifies(sampled, replace(charge, mu_squared=charge.mu_squared / 2))


@pytest.mark.slow
def test_a_numeric_charge_falls_back_to_the_pure_sum():
    sampled = PrivacyLoss.laplace(Fraction(9, 10)).poisson_subsampled(Fraction(9, 10))
    account = PrivacyFilter(Budget(1, 1e-6, purpose="many queries")).charge(
        PrivacyLoss.pure(Fraction(1, 100))
    )
    assert account.stage is not None
    charge = account.price(sampled)
    assert charge.mu_squared is None
    assert account.apply(sampled, charge).spent().epsilon <= 1


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-12, 1e-9), (1e-20, 1e-300), (1e-30, 1e-12)])
def test_filters_of_tiny_budgets_are_read_back(epsilon, delta):
    state = PrivacyFilter(Budget(Fraction(epsilon), Fraction(delta)))
    for mu_squared in (Fraction(1, 3) / 10**300, Fraction(1, 7) / 10**200, Fraction(epsilon) ** 2 / 10**5):
        loss = PrivacyLoss.gaussian_from_mu_squared(mu_squared)
        state = state.charge(loss) if state.allows(loss) else state
        assert PrivacyFilter.from_json(state.to_json()) == state


def test_points_of_a_curve_are_charged_with_a_margin():
    few = PrivacyFilter(Budget(8, 1e-5, purpose="few queries"))
    charge = few.price(RUN)
    assert RUN.delta(charge.epsilon) < charge.delta * (1 - Fraction(1, 1 << 21))


def test_a_first_charge_may_take_the_whole_budget():
    after = PrivacyFilter(ONE).charge(PrivacyLoss.approximate(1, 1e-6))

    assert (after.spent().epsilon, after.spent().delta) == (1, Fraction(1, 10**6))
    assert PrivacyFilter(ONE).allows(PrivacyLoss.gaussian(Fraction(2366, 10_000)))
    assert not PrivacyFilter(ONE).allows(PrivacyLoss.gaussian(Fraction(2369, 10_000)))


@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (Fraction(1, 100), 1e-12), (15, 1e-4)])
def test_gaussian_calibrated_to_the_budget_fits_and_nothing_more(epsilon, delta):
    loss = Gaussian.of(sensitivity=1, epsilon=epsilon, delta=delta).loss()
    account = PrivacyFilter(Budget(epsilon, delta))
    charge = account.price(loss)
    assert account.certifies(loss, charge)
    after = account.apply(loss, charge)
    assert not after.allows(PrivacyLoss.gaussian(Fraction(epsilon) / 10**4))
    assert not account.allows(
        PrivacyLoss.gaussian_from_mu_squared(charge.mu_squared * Fraction(1000001, 10**6))
    )


def test_ten_tenths_are_exactly_the_budget():
    account = PrivacyFilter(ONE)
    for _ in range(10):
        account = account.charge(PrivacyLoss.approximate(0.1, 1e-7))

    assert account.spent().epsilon == 1
    assert not account.allows(PrivacyLoss.pure(Fraction(1, 10**9)))


def test_many_small_pure_charges_fit_almost_as_if_fixed_beforehand():
    """About 560 fit if they are fixed beforehand."""
    assert (PrivacyLoss.pure(0.01) * 570).epsilon(1e-6) > 1
    assert PrivacyFilter(ONE).count_more(PrivacyLoss.pure(0.01)) >= 551


def test_a_run_needs_its_tight_epsilon():
    tight = RUN.epsilon(1e-5)

    assert PrivacyFilter(Budget(Fraction(tight) * Fraction(1_000_001, 10**6), 1e-5)).allows(RUN)
    assert not PrivacyFilter(Budget(Fraction(tight) * Fraction(999, 1000), 1e-5)).allows(RUN)


def test_a_run_after_queries_costs_little_more_than_its_curve():
    account = PrivacyFilter(Budget(Fraction(16, 10), 1e-5, purpose="training"))
    later = account.charge(PrivacyLoss.gaussian(0.01))

    assert isinstance(later.stage, GaussianStage)
    assert later.allows(RUN)
    # Small sums leave the opening of the stage to the run.
    small = account.charge(PrivacyLoss.laplace(0.01))
    assert small.stage is None
    assert small.charge(RUN).stage.first is not None


def test_a_run_with_a_heavy_tail_fits_after_queries():
    """A single outcome makes its δ: next to all cuts are needed for it."""
    run = PrivacyLoss.gaussian(Fraction(5, 4)).poisson_subsampled(Fraction(1, 1000)) * 100
    tight, delta = Fraction(run.epsilon(1e-7)), Fraction(1, 10**7)
    account = PrivacyFilter(Budget(tight * Fraction(105, 100), delta, purpose="training"))
    account, _ = account.charge_times(PrivacyLoss.gaussian(tight / 100), 20)
    charge = account.price(run)

    assert Fraction(7, 8) * account.stage.cuts < charge.delta < account.stage.cuts
    assert account.certifies(run, charge)
    assert not account.charge(run).allows(run)


def test_queries_fit_beside_a_run():
    account = PrivacyFilter(Budget(2, 1e-5)).charge(RUN)

    assert account.stage.first is not None
    assert account.count_more(PrivacyLoss.gaussian(0.05)) >= 20
    assert account.spent().epsilon <= 2


def test_a_charge_of_which_only_a_curve_point_fits():
    """Laplace noise of a little more than ε is (ε, δ)-private at a small δ."""
    assert PrivacyFilter(Budget(1, 1e-3)).allows(PrivacyLoss.laplace(Fraction(1001, 1000)))
    assert not PrivacyFilter(Budget(1)).allows(PrivacyLoss.laplace(Fraction(1001, 1000)))


def test_zcdp_opens_a_stage_of_renyi_sums():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.zcdp(Fraction(1, 1000)))

    assert isinstance(account.stage, RenyiStage)
    assert account.count_more(PrivacyLoss.zcdp(Fraction(1, 1000))) >= 10
    assert account.allows(PrivacyLoss.gaussian(0.01))
    assert account.spent().epsilon <= 1


def test_without_delta_only_pure_sums_are_allowed():
    account = PrivacyFilter(Budget(1))

    assert not account.allows(PrivacyLoss.gaussian(0.001))
    assert not account.allows(PrivacyLoss.approximate(0.1, 1e-9))
    assert account.count_more(PrivacyLoss.pure(0.01)) == 100


def test_pure_sums_fit_also_in_the_second_stage():
    account = PrivacyFilter(Budget(1, 1e-6, purpose="many queries")).charge(PrivacyLoss.pure(0.01))
    after = account.charge(PrivacyLoss.pure(Fraction(99, 100)))

    assert after.spent().epsilon == 1
    assert not after.allows(PrivacyLoss.gaussian(0.001)), "the stage is used up"


@pytest.mark.parametrize("purpose", ["training", "many queries", "few queries"])
def test_a_purpose_changes_the_default_and_not_the_budget(purpose):
    account = PrivacyFilter(Budget(1, 1e-6, purpose=purpose))
    small = account.charge(PrivacyLoss.pure(0.01))

    assert (small.stage is None) == (purpose != "many queries")
    assert account.allows(PrivacyLoss.approximate(1, 1e-6))
    if purpose == "training":
        assert account.charge(PrivacyLoss.gaussian(0.01)).stage.cuts == Fraction(5, 8 * 10**6)
        assert account.charge(PrivacyLoss.pure(0.02)).stage is not None


def test_an_unknown_purpose_is_refused():
    with refused(InvalidInput, match="purpose"):
        Budget(1, purpose="fun")


@settings(max_examples=30, deadline=None)
@given(st.lists(LOSSES, max_size=8), st.randoms())
def test_the_order_of_charges_makes_no_difference(losses, shuffle):
    """Of sums in an open stage, as long as its end is far."""
    start = PrivacyFilter(Budget(3, 1e-5, purpose="many queries")).charge(PrivacyLoss.gaussian(0.01))
    closed = [loss for loss in losses if loss != PrivacyLoss.zcdp(Fraction(1, 1000))]
    others = list(closed)
    shuffle.shuffle(others)

    one, other = charged(start, closed), charged(start, others)
    assert (one.stage.spent, one.stage.delta) == (other.stage.spent, other.stage.delta)


@pytest.mark.slow
def test_a_thousand_arbitrary_charges_keep_their_size_and_only_round_up():
    rng = random.Random(7)
    account, truth = PrivacyFilter(Budget(1, 1e-6)), Fraction(0)
    for _ in range(1000):
        size = Fraction(rng.randrange(1, 10**6), rng.randrange(10**11, 10**12))
        account, truth = account.charge(PrivacyLoss.pure(size)), truth + size

    assert account.pure >= truth
    assert account.pure - truth < Fraction(1, 1 << 100)
    assert len(account.to_json()) < 2000


# What is charged


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(LOSSES, max_size=6), LOSSES)
def test_charges_are_certified_and_survive_storage(losses, loss):
    account = charged(PrivacyFilter(ONE), losses)
    assert PrivacyFilter.from_json(account.to_json()) == account
    if account.allows(loss):
        charge = account.price(loss)
        assert account.certifies(loss, charge)
        assert decode_charge(json.loads(json.dumps(encode_charge(charge)))) == charge
        assert account.apply(loss, charge) == account.charge(loss)


@pytest.mark.parametrize("purpose", ["few queries", "many queries"])
def test_a_charge_that_is_too_small_is_not_certified(purpose):
    account, loss = PrivacyFilter(Budget(1, 1e-6, purpose=purpose)), PrivacyLoss.approximate(0.1, 1e-8)
    stored = encode_charge(account.price(loss))

    for name in ("epsilon", "delta", "mu_squared"):
        if name in stored:
            less = {**stored, name: str(Fraction(stored[name]) * Fraction(9, 10))}
            assert not account.certifies(loss, decode_charge(less))


def test_a_run_that_opens_a_stage_with_too_large_limits_is_not_certified():
    account = PrivacyFilter(Budget(2, 1e-5))
    stored = encode_charge(account.price(RUN))
    larger = {**stored["opens"], "limit": str(Fraction(stored["opens"]["limit"]) * 2)}

    assert account.certifies(RUN, decode_charge(stored))
    assert not account.certifies(RUN, decode_charge({**stored, "opens": larger}))


@pytest.mark.slow
def test_limits_beyond_the_budget_are_refused():
    account = PrivacyFilter(Budget(1, 1e-6, purpose="many queries"))
    loss = PrivacyLoss.pure(0.01)
    stored = encode_charge(account.price(loss))
    for name in ("limit", "cuts"):
        larger = {**stored["opens"], name: str(Fraction(stored["opens"][name]) * 20)}
        with pytest.raises(BudgetExceeded):
            account.apply(loss, decode_charge({**stored, "opens": larger}))


def test_a_charge_that_is_not_a_loss_is_refused():
    for bad in (None, 1, 0.1, "0.1"):
        with refused(InvalidInput, match="PrivacyLoss"):
            PrivacyFilter(ONE).allows(bad)


# What is read


def test_nothing_spent_reads_zero_and_pure_sums_read_exactly():
    account = PrivacyFilter(ONE)
    assert (account.spent().epsilon, account.spent().delta) == (0, 0)
    account = account.charge(PrivacyLoss.pure(0.01)).charge(PrivacyLoss.pure(0.02))
    assert (account.spent().epsilon, account.spent().delta) == (Fraction(3, 100), 0)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(LOSSES, max_size=5), LOSSES)
def test_a_reading_is_within_the_budget_and_never_falls(losses, loss):
    account = charged(PrivacyFilter(ONE), losses)
    before, after = account.spent(), charged(account, [loss]).spent()

    assert before.epsilon <= after.epsilon <= account.epsilon
    assert after.delta <= account.delta
    assert account.spent_delta(before.epsilon) <= account.delta


def test_the_curve_of_what_was_spent_falls_with_epsilon():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.gaussian(0.1))
    curve = [account.spent_delta(Fraction(tenths, 10)) for tenths in range(11)]

    assert curve == sorted(curve, reverse=True)
    assert account.spent_epsilon(1e-6) == pytest.approx(float(account.spent().epsilon))


def test_fifty_gaussians_read_almost_their_composition():
    odometer, loss = PrivacyOdometer(1e-5), PrivacyLoss.gaussian(0.1)
    for _ in range(50):
        odometer = odometer.charge(loss)

    assert odometer.reading().epsilon <= Fraction((loss * 50).epsilon(1e-5)) * Fraction(1001, 1000)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(LOSSES, min_size=1, max_size=4))
def test_an_odometer_always_reads_a_pair_not_below_the_composition(losses):
    odometer = PrivacyOdometer(1e-6)
    for loss in losses:
        odometer = odometer.charge(loss)
    reading = odometer.reading()

    assert float(reading.epsilon) >= PrivacyLoss.compose(losses).epsilon_bounds(reading.delta).lower
    assert odometer.epsilon(1e-3) <= float(reading.epsilon)


def test_readings_count_the_same_delta_whichever_sum_they_take():
    """Else an analyst takes the δ of charges after one answer, and that of the curve after another."""
    reading = PrivacyOdometer(1e-6).charge(PrivacyLoss.approximate(0, 1e-6)).reading()
    curve = PrivacyOdometer(1e-6).charge(PrivacyLoss.gaussian(0.2)).reading()

    assert (reading.epsilon, reading.delta) == (0, Fraction(2, 10**6))
    assert curve.delta == Fraction(1, 10**6)
    assert PrivacyOdometer(1e-6).charge(PrivacyLoss.pure(1)).reading().delta == 0


def test_an_odometer_reads_the_largest_reserve_beside_all_it_charged():
    """So that a reading holds in whatever order windows were charged."""
    losses = [PrivacyLoss.gaussian(0.3), PrivacyLoss.pure(Fraction(1, 100)), PrivacyLoss.gaussian(0.3)]
    odometer = PrivacyOdometer(1e-6)
    for loss in losses:
        odometer = odometer.charge(loss)
    all_of_it = PrivacyLoss.gaussian_from_mu_squared(odometer.spent + odometer.reserve)

    assert odometer.reserve > 0
    assert odometer.reading().epsilon == Fraction(all_of_it.epsilon(1e-6))


def test_a_charge_of_nothing_is_stored_with_its_figures():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.gaussian(0.1))
    nothing = account.price(PrivacyLoss.pure(0))

    assert decode_charge(encode_charge(nothing)) == nothing
    assert account.certifies(PrivacyLoss.pure(0), nothing)


def test_every_figure_of_a_charge_is_certified():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.zcdp(0.001))
    true = account.price(PrivacyLoss.zcdp(0.001))
    lower = replace(true, renyi=tuple(figure * (1 - Fraction(1, 1 << 18)) for figure in true.renyi))
    beside = FilterCharge(
        None, Fraction(0), mu_squared=Fraction(10**4), renyi=(Fraction(0),) * len(true.renyi)
    )

    assert account.certifies(PrivacyLoss.zcdp(0.001), true)
    assert not account.certifies(PrivacyLoss.zcdp(0.001), lower)
    assert not account.certifies(PrivacyLoss.gaussian(100), beside)


def test_an_opening_is_certified_for_what_is_left_only():
    account = PrivacyFilter(Budget(2, 1e-5))
    opening = account.price(RUN)
    after_epsilon = account.charge(PrivacyLoss.pure(Fraction(1, 2)))
    after_delta = account.charge(PrivacyLoss.approximate(0, 9e-6))

    assert after_epsilon.stage is after_delta.stage is None
    assert account.certifies(RUN, opening)
    assert not after_epsilon.certifies(RUN, opening)
    assert not after_delta.certifies(RUN, opening)


@pytest.mark.parametrize("field", ["limit", "cuts"])
def test_an_opening_with_a_negative_limit_is_refused(field):
    account, loss = PrivacyFilter(Budget(1, 1e-6, purpose="many queries")), PrivacyLoss.gaussian(0.1)
    charge = account.price(loss)
    negative = replace(charge, opens=replace(charge.opens, **{field: Fraction(-1, 10**9)}))

    assert account.after(loss, charge) is not None
    assert account.after(loss, negative) is None
    assert not account.certifies(loss, negative)


def test_an_opening_with_a_negative_share_is_refused():
    """The others would then have more than there is of δ."""
    account, loss = PrivacyFilter(ONE), PrivacyLoss.zcdp(0.001)
    charge = account.price(loss)
    first, second, *others = charge.opens.shares
    shares = (first + Fraction(1, 2), second - Fraction(1, 2), *others)
    negative = replace(charge, opens=replace(charge.opens, shares=shares))

    assert account.certifies(loss, charge)
    assert account.after(loss, negative) is None
    assert not account.certifies(loss, negative)


@pytest.mark.parametrize("loss", [RUN, PrivacyLoss.gaussian(0.1), PrivacyLoss.zcdp(0.001)])
def test_the_charge_that_opened_a_stage_is_known_by_its_limits(loss):
    account = PrivacyFilter(Budget(2, 1e-5)).charge(PrivacyLoss.approximate(0.2, 1e-6))
    charge = account.price(loss)
    opens = charge.opens
    later = account.apply(loss, charge).charge(PrivacyLoss.pure(0.001))

    assert later.certifies_opener(loss, charge)
    changed = [replace(opens, cuts=opens.cuts / 2), replace(opens, limit=opens.limit / 2)]
    if opens.kind == "renyi":
        changed[1:] = [replace(opens, shares=tuple(share / 2 for share in opens.shares))]
    changed.append(replace(opens, is_first=not opens.is_first))
    for forged in changed:
        assert not later.certifies_opener(loss, replace(charge, opens=forged))
    assert not later.certifies_opener(loss * 2, charge)
    assert not later.certifies_opener(loss, replace(charge, opens=None))
    assert not account.certifies_opener(loss, charge)


def test_no_stage_opens_when_all_of_epsilon_is_spent():
    account = PrivacyFilter(Budget(1, 1e-6, purpose="many queries"))
    charge = account.price(PrivacyLoss.gaussian(0.1))
    spent = PrivacyFilter(ONE).charge(PrivacyLoss.pure(1))

    assert charge.opens is not None
    assert spent.after(PrivacyLoss.gaussian(0.1), charge) is None


def test_a_pure_figure_beside_a_true_one_is_certified_too():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.gaussian(0.1))
    charge = account.price(PrivacyLoss.pure(0.01))
    forged = replace(charge, epsilon=Fraction(1, 10**6))

    assert charge.mu_squared is not None
    assert account.certifies(PrivacyLoss.pure(0.01), charge)
    assert not account.certifies(PrivacyLoss.pure(0.01), forged)


@pytest.mark.parametrize("delta", [Fraction(1, 10**5), Fraction(1, 10**9)])
def test_renyi_room_is_that_of_the_published_conversion(delta):
    """Canonne, Kamath & Steinke, Proposition 12: ε = ε(α) + ln(1 − 1/α) − ln(αδ)/(α − 1)."""
    room = renyi_room(ORDERS, (delta,) * len(ORDERS))

    for alpha, space in zip(map(float, ORDERS), room, strict=True):
        exact = -math.log1p(-1 / alpha) + math.log(alpha * delta) / (alpha - 1)
        assert float(space) == pytest.approx(exact, rel=1e-9)


def test_epsilon_of_orders_is_the_least_that_fits():
    shares = split_delta(Fraction(1), Fraction(1, 10**6))
    sums = tuple(alpha / 100 for alpha in ORDERS)
    alone = epsilon_by_order(sums, shares)
    least = epsilon_of_orders(sums, shares)

    assert sum(shares) == Fraction(1, 10**6)
    assert orders_fit(alone, least)
    assert not orders_fit(alone, least - Fraction(1, 1 << 40))
    assert epsilon_of_orders((None,) * len(ORDERS), shares) is None


# What is left


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(LOSSES, max_size=6))
def test_remaining_fits_and_hardly_more_does(losses):
    account = charged(PrivacyFilter(ONE), losses)
    left = account.remaining()

    if left.epsilon:
        assert account.allows(PrivacyLoss.pure(left.epsilon))
        assert not account.allows(PrivacyLoss.pure(left.epsilon * Fraction(1001, 1000)))
    if left.mu_squared:
        assert account.allows(PrivacyLoss.gaussian_from_mu_squared(left.mu_squared))
    assert 0 <= left.delta <= account.delta


def test_a_refusal_reports_what_would_fit_and_spends_nothing():
    account = PrivacyFilter(ONE).charge(PrivacyLoss.approximate(0.5, 1e-7))

    with refused(BudgetExceeded, match="pure epsilon of 0.5") as refusal:
        account.charge(PrivacyLoss.pure(0.6))
    assert "delta of 9e-7" in str(refusal.value)


@pytest.mark.parametrize(
    ("loss", "purpose"),
    [
        (PrivacyLoss.pure(0.03), ""),
        (PrivacyLoss.gaussian(0.03), ""),
        (PrivacyLoss.pure(0.2), ""),
        *((PrivacyLoss.pure(0.01), purpose) for purpose in PURPOSES),
        (PrivacyLoss.approximate(0.0075, 1e-10), "training"),
    ],
)
def test_as_many_more_fit_as_are_counted(loss, purpose):
    account, result = PrivacyFilter(Budget(1, 1e-6, purpose=purpose)), 0
    count = account.count_more(loss)

    while account.allows(loss):
        account, result = account.charge(loss), result + 1
    assert result == count


# Rényi orders


def test_an_order_fits_by_itself_just_where_the_tight_conversion_says():
    """At ε = 1, δ = 10⁻⁶ and the order 2: 1 + ln 2 + ln(2·10⁻⁶) is below 0, so only larger orders fit."""
    shares = tuple([Fraction(1, 10**6)] + [Fraction(0)] * 33)
    alone = epsilon_by_order((Fraction(1),) + (None,) * 33, shares)

    assert len(alone) == 1
    assert not orders_fit(alone, alone[0][1] - Fraction(1, 1 << 30))
    assert orders_fit(alone, alone[0][1])


def test_orders_fit_together_if_their_work_is_at_most_one():
    """Two orders, each of which lacks ln 2 by itself."""
    lack = Fraction(6931, 10_000)

    assert orders_fit([(Fraction(1), 1 + lack), (Fraction(2), 1 + lack / 2)], Fraction(1))
    assert not orders_fit([(Fraction(1), 1 + lack), (Fraction(2), 1 + lack)], Fraction(1))


# Storing


def test_the_stored_form_is_plain_and_stays_as_it_is():
    account = PrivacyFilter(Budget(1, 1e-6, purpose="training")).charge(PrivacyLoss.pure(0.1))

    assert json.loads(account.to_json()) == {
        "kind": "privacy-filter/2",
        "epsilon": "1",
        "delta": "1/1000000",
        "purpose": "training",
        "sums": ["1/10", "0", "1/10"],
        "stage": None,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"sums": ["2", "0", "2"]},
        {"sums": ["0", "1/100", "0"]},
        {"sums": ["0", "0"]},
        {"sums": ["-1", "0", "0"]},
        {"epsilon": "0"},
        {"epsilon": 1},
        {"delta": "1"},
        {"purpose": "fun"},
        {"kind": "privacy-filter/1"},
        {"more": "1"},
        {"stage": {}},
    ],
)
def test_altered_stored_filter_is_refused(change):
    text = PrivacyFilter(ONE).charge(PrivacyLoss.pure(0.1)).to_json()

    with refused(InvalidInput, match="stored privacy filter"):
        PrivacyFilter.from_json(json.dumps(json.loads(text) | change, sort_keys=True, separators=(",", ":")))


@pytest.mark.parametrize("name", ["limit", "cuts", "spent", "delta"])
def test_a_stored_stage_that_spent_more_than_fits_is_refused(name):
    stored = json.loads(PrivacyFilter(ONE).charge(PrivacyLoss.gaussian(0.01)).to_json())
    stored["stage"][name] = "1"

    with refused(InvalidInput, match="stored privacy filter"):
        PrivacyFilter.from_json(json.dumps(stored, sort_keys=True, separators=(",", ":")))
