"""Workloads of tables: closed-form noise, errors and intervals."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hubbub.errors import InvalidInput, Unsupported
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, Condition, Domain, Rule
from hubbub.synthesis.measured_tables import MeasuredTables
from hubbub.synthesis.residuals import residual_cost
from hubbub.synthesis.workload import OBJECTIVES, Workload, plan_noise
from hubbub.unit import Neighbours, Unit

SIZES = {"a": 2, "b": 3, "c": 5, "d": 1}
DOMAIN = Domain(tuple(Column.of_categories(name, map(float, range(size))) for name, size in SIZES.items()))
MU_SQUARED = Fraction(56, 1000)


def make_plan(workload=None, **options):
    chosen = workload or Workload.all_up_to(DOMAIN, 2)
    return plan_noise(chosen, **{"mu_squared": MU_SQUARED, "unit": Unit.row(), **options})


def test_default_has_three_columns_where_cells_are_few():
    assert Workload.default(DOMAIN) == Workload.all_up_to(DOMAIN, 3)
    wide = Domain(tuple(Column.of_categories(name, "xy") for name in "abcdefg"))
    assert Workload.default(wide) == Workload.all_up_to(wide, 2)
    large = Domain(tuple(Column.of_categories(name, map(float, range(40))) for name in "abc"))
    assert Workload.default(large) == Workload.all_up_to(large, 2)


def make_counts(rows=500):
    # Public, made-up rows: no randomness needed.
    values = {
        name: [float((row * row + place) % size) for row in range(rows)]
        for place, (name, size) in enumerate(SIZES.items())
    }
    return InMemoryCounts.of(DOMAIN, values)


def measure(plan, counts):
    tables = counts.count_many(plan.workload.residuals)
    residuals = {names: plan.noise(names).measure(tables[names]) for names in plan.workload.residuals}
    return MeasuredTables(DOMAIN, residuals)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("neighbours", Neighbours)
def test_all_measurements_together_are_within_mu_squared(objective, neighbours):
    plan = make_plan(objective=objective, unit=Unit.row(neighbours), max_weight=3, scale=64)
    spent = sum(2 * plan.noise(names).mechanism.loss().rho for names in plan.workload.residuals)
    assert spent <= MU_SQUARED
    assert spent >= MU_SQUARED * Fraction(999, 1000)


def test_closed_form_is_the_optimum():
    plan = make_plan(objective="tables")
    best = sum(sd**2 for sd in plan.errors.values())
    names = list(plan.shares)
    for one, two in itertools.permutations(names, 2):
        shares = dict(plan.shares)
        moved = min(shares[one], shares[two]) / 20
        shares[one] += moved
        shares[two] -= moved
        other = type(plan)(plan.workload, "tables", plan.unit, 1, 1, MU_SQUARED, shares)
        assert sum(sd**2 for sd in other.errors.values()) > best


def test_objectives_trade_cells_tables_and_the_worst():
    plans = {objective: make_plan(objective=objective) for objective in OBJECTIVES}
    worst = {objective: max(plan.errors.values()) for objective, plan in plans.items()}
    mean = {objective: sum(sd**2 for sd in plan.errors.values()) for objective, plan in plans.items()}
    assert worst["worst"] == min(worst.values())
    assert mean["tables"] == min(mean.values())
    assert plans["cells"].root_mean_square == min(plan.root_mean_square for plan in plans.values())
    # At the least worst error, tables with a positive weight all have it.
    assert max(plans["worst"].errors.values()) < worst["tables"]


def test_one_table_alone_has_the_noise_of_a_histogram():
    plan = make_plan(Workload.of(DOMAIN, [("a", "b", "c")]))
    # Never above independent noise of σ = 1/μ on each cell.
    assert plan.errors["a", "b", "c"] <= float(1 / MU_SQUARED) ** 0.5 * 1.0001


def test_planned_errors_are_those_of_the_measured_tables():
    plan = make_plan()
    measured = measure(plan, make_counts())
    for names, sd in plan.errors.items():
        assert measured.standard_deviation(names) == pytest.approx(sd, rel=0.03)


def test_tables_are_unbiased_and_consistent_with_each_other():
    plan = make_plan(mu_squared=Fraction(10**6))
    counts = make_counts()
    measured = measure(plan, counts)
    for names in [("a", "b"), ("b", "a"), ("c",), ("b", "c"), ("a", "d"), ()]:
        # The noise has σ below 0.01; ten of them.
        assert np.abs(measured.estimate(names) - counts.count(names)).max() < 0.5
    noisy = measure(make_plan(), counts)
    assert np.allclose(noisy.estimate(("a", "b")).sum(1), noisy.estimate(("a",)))
    assert np.allclose(noisy.estimate(("b", "c")).sum(), noisy.total[0])


def test_variance_of_any_sum_of_cells_is_that_of_its_noise():
    plan = make_plan()
    measured = measure(plan, make_counts())
    coefficients = np.zeros((3, 2, 3))
    coefficients[0, 1, 2] = 1
    coefficients[1, :, 0] = 1
    coefficients[2] = 1
    combination = measured.combine(("a", "b"), coefficients)
    assert combination.variances[0] == pytest.approx(measured.standard_deviation(("a", "b")) ** 2)
    assert combination.variances[1] == pytest.approx(measured.standard_deviation(("b",)) ** 2)
    assert combination.variances[2] == pytest.approx(measured.total[1] ** 2)
    assert combination.values[2] == pytest.approx(measured.total[0])


@pytest.mark.slow
def test_intervals_cover_as_often_as_they_say():
    # 400 runs: even if all cells of a run missed together, 0.88 would be six standard deviations away.
    counts, plan = make_counts(60), make_plan()
    exact = counts.count(("a", "c"))
    inside = ratios = 0
    for _ in range(400):
        measured = measure(plan, counts)
        cells = np.eye(10).reshape(10, 2, 5)
        interval = measured.combine(("a", "c"), cells).interval(0.95)
        inside += int(((interval.low <= exact.ravel()) & (exact.ravel() <= interval.high)).sum())
        part, whole = np.zeros((1, 2, 5)), np.ones((1, 2, 5))
        part[0, 0] = 1
        ratio = measured.combine(("a", "c"), part).ratio(measured.combine(("a", "c"), whole), 0.95)
        ratios += int(ratio.low[0] <= exact[0].sum() / exact.sum() <= ratio.high[0])
    assert 0.88 < inside / 4000 < 0.9975
    assert ratios / 400 > 0.85


def test_nonnegative_tables_add_up_and_keep_rules():
    rule = Rule((Condition("a", frozenset({0.0})), Condition("b", frozenset({1.0}))))
    domain = Domain(DOMAIN.columns, rules=(rule,))
    measured = measure(make_plan(), make_counts(40))
    ruled = MeasuredTables(domain, measured.residuals)
    table = ruled.nonnegative(("a", "b"), integer=True)
    assert table.min() >= 0
    assert table[0, 1] == 0
    assert table.sum() == max(0, round(measured.total[0]))
    assert (table == np.round(table)).all()
    assert ruled.nonnegative(("b", "c")).sum() == pytest.approx(max(0.0, measured.total[0]))


def test_table_that_was_not_measured_is_refused():
    measured = measure(make_plan(), make_counts())
    with pytest.raises(InvalidInput, match="not measured"):
        measured.estimate(("a", "b", "c"))
    assert measured.covers(("a", "b", "d"))
    assert not measured.covers(("a", "b", "c"))


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (7,)])
def test_residual_costs_of_a_table_add_up_to_one(sizes):
    # Measured with one σ, all residuals of a table are the table itself: its sensitivity is 1.
    subsets = itertools.chain.from_iterable(itertools.combinations(sizes, n) for n in range(len(sizes) + 1))
    total = Fraction(0)
    for subset in subsets:
        rest = list(sizes)
        for size in subset:
            rest.remove(size)
        total += residual_cost(subset, Neighbours.ADD_REMOVE) / int(np.prod(rest))
    assert total == 1


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Workload.of(DOMAIN, []), InvalidInput),
        (lambda: Workload.of(DOMAIN, [("a", "nobody")]), InvalidInput),
        (lambda: Workload.of(DOMAIN, {("a",): 0}), InvalidInput),
        (lambda: Workload.all_up_to(DOMAIN, 0), InvalidInput),
        (lambda: Workload.all_up_to(DOMAIN, 2.5), InvalidInput),
        (lambda: make_plan(objective="median"), InvalidInput),
        (
            lambda: Workload.of(
                Domain(tuple(Column.of_categories(name, map(float, range(4000))) for name in "ab")),
                [("a", "b")],
            ),
            Unsupported,
        ),
    ],
)
def test_unusable_workloads_are_refused(make, error):
    with pytest.raises(error):
        make()


def test_text_names_one_column():
    assert Workload.of(DOMAIN, ["a", ("b", "a")]).tables == (("a",), ("a", "b"))
