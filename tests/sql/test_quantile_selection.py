"""Quantiles by the exponential mechanism: the law of tiny ones in fractions, intervals and ranks."""

import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import Unsupported
from hubbub.mechanisms import Laplace
from hubbub.sql.quantile_aggregates import Quantiles, SelectedQuantiles
from hubbub.sql.quantile_grid import QuantileGrid
from hubbub.sql.quantile_selection import CellCounts, QuantileSelection
from hubbub.unit import Neighbours
from internals import inject_bits
from refusing import refused
from sql.tiny_quantiles import (
    NEGLIGIBLE,
    cells_of,
    exact_law,
    first_scores,
    make_selection,
    power_of_two,
    vectors,
    worst_ratio,
)

HALF, QUARTER, LOW, HIGH = Fraction(1, 2), Fraction(1, 4), Fraction(1, 10), Fraction(9, 10)
FRACTIONS = [(HALF,), (QUARTER,), (LOW,), (HIGH,), (QUARTER, HALF), (HALF, HIGH), (LOW, HALF, HIGH)]
ROUND = ((0, 1, 7), (2, 0, 5))
"""Two of three cells have a round number: in which part, and how much that weighs besides."""
ROUNDED = [*((each, ()) for each in FRACTIONS), ((HALF,), ROUND), ((QUARTER,), ROUND), ((HIGH,), ROUND)]


def added(counts, unit):
    return tuple(a + b for a, b in zip(counts, unit, strict=True))


# Privacy, by enumeration


@pytest.mark.sweep(7)
@pytest.mark.parametrize(("fractions", "round_numbers"), ROUNDED, ids=str)
@pytest.mark.parametrize("relation", Neighbours)
def test_likelihood_ratio_is_within_epsilon(fractions, round_numbers, relation):
    """All databases of up to two rows beside a unit that weighs up to two; empty ones and ties among them.

    Substituted, one unit takes up to half of what may move, and the other gives as much.
    """
    weight = 2
    is_one = relation is Neighbours.SUBSTITUTE
    most = weight * (2 if is_one else 1)
    selection = make_selection(fractions, most, is_one=is_one, round_numbers=round_numbers)
    units = vectors(3, weight)
    rest = vectors(3, 2) if len(fractions) < 3 else [(0, 0, 0), (1, 0, 1), (0, 2, 0)]
    most = Fraction(2) ** power_of_two(selection)
    worst = Fraction(1)
    for others in rest:
        laws = [exact_law(selection, added(others, unit)) for unit in units]
        base = laws if is_one else laws[:1]
        assert units[0] == (0, 0, 0)
        for one in base:
            for other in laws:
                high, low = worst_ratio(one, other)
                assert high <= most
                assert 1 / low <= most
                if len(fractions) == 1:  # bounded range: one interval of length ε
                    assert high / low <= most
                worst = max(worst, high / low)
    assert worst > 1


def test_bound_is_attained():
    """One more row at an end brings the quantile closer on one side, and as much further on the other."""
    selection = make_selection((HALF,), 1, weights=(1,) * 5, parts=1)
    high, low = worst_ratio(exact_law(selection, (1, 0, 4, 0, 1)), exact_law(selection, (2, 0, 4, 0, 1)))
    assert high / low == 2 ** power_of_two(selection)


@pytest.mark.parametrize("fraction", [HALF, QUARTER, LOW], ids=str)
def test_groups_compose_under_substitution(fraction):
    """A unit leaves one group and another comes into the next: both ranges together are ε, and not more."""
    selection = make_selection((fraction,), 2)
    most, worst = Fraction(2) ** power_of_two(selection), Fraction(1)
    units = [unit for unit in vectors(3, 1) if sum(unit)]
    for others in vectors(3, 2):
        empty = exact_law(selection, others)
        ranges = []
        for unit in units:
            high, low = worst_ratio(exact_law(selection, added(others, unit)), empty)
            ranges.append(high / low)
        worst = max(worst, max(ranges) ** 2)
    assert worst <= most


def test_one_group_would_not_do_for_two():
    """The better bound of one group under substitution is false where there are two."""
    fraction, one, other = Fraction(7, 8), (1, 0, 20, 0, 1), (1, 0, 20, 0, 2)
    for is_one in (True, False):
        selection = make_selection((fraction,), 2, is_one=is_one, weights=(1,) * 5, parts=1)
        high, low = worst_ratio(exact_law(selection, one), exact_law(selection, other))
        assert ((high / low) ** 2 > 2 ** power_of_two(selection)) == is_one


@pytest.mark.sweep(7)
@pytest.mark.parametrize(("fractions", "round_numbers"), ROUNDED, ids=str)
def test_scores_move_within_their_span(fractions, round_numbers):
    """Of candidates with the same position, on all small databases: weights are any integers."""
    selection = make_selection(fractions, 3, parts=3, round_numbers=round_numbers)
    step = selection.steps[0]
    scale = 2 * step.fraction.denominator
    for others in vectors(3, 3):
        before = first_scores(selection, others)
        for unit in vectors(3, 3):
            moved = np.abs(first_scores(selection, added(others, unit)) - before).max()
            assert Fraction(int(moved), scale) <= step.most * sum(unit)


# The law of what is selected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fractions", "round_numbers"),
    [((HALF,), ()), ((QUARTER, HALF, Fraction(3, 4)), ()), ((HALF,), ROUND)],
    ids=str,
)
def test_selected_positions_follow_the_law(fractions, round_numbers):
    """40,000 groups with the same counts; each outcome's frequency is off with a chance below 1e-12."""
    copies = 40_000
    plain = make_selection(fractions, 1, round_numbers=round_numbers)
    # At ε = k·ln 2 up to 2^-40: probabilities differ by less than 1e-9.
    epsilon = Fraction(round(power_of_two(plain) * math.log(2) * 2**40), 2**40)
    selection = make_selection(fractions, 1, epsilon=epsilon, round_numbers=round_numbers)
    law = exact_law(plain, (2, 0, 3))
    positions = selection.select(cells_of(*[(2, 0, 3)] * copies))
    seen, times = np.unique(positions, axis=0, return_counts=True)
    counts = dict(zip(map(tuple, seen.tolist()), times.tolist(), strict=True))
    assert counts.keys() <= law.keys()
    for outcome, chance in law.items():
        expected, spread = copies * float(chance), math.sqrt(copies * float(chance))
        assert abs(counts.get(outcome, 0) - expected) <= 8 * spread + 30, outcome


def test_pruned_candidates_do_not_change_the_choice(monkeypatch):
    """The same random bits select the same, whether far candidates are left out or not."""
    rng = np.random.default_rng(1)
    grid = QuantileGrid((Fraction(0), Fraction(100)))
    cell = np.unique(rng.integers(0, grid.cells, 3000))
    counts = CellCounts(1, np.zeros(cell.size, np.int64), cell, rng.integers(1, 9, cell.size))
    selection = QuantileSelection(grid, (HALF,), Fraction(1), Fraction(1))
    for seed in range(20):
        results = []
        for cut in (130, 10**9):
            monkeypatch.setattr(NEGLIGIBLE, cut)
            source = np.random.default_rng(seed)
            with inject_bits(source.bytes):
                results.append(int(selection.select(counts)[0, 0]))
        assert results[0] == results[1]


def test_huge_counts_are_exact():
    """Sums beyond 64 bits are Python's: the median of 2^61 in each of 40 cells is in the middle."""
    grid = QuantileGrid((Fraction(30), Fraction(180)))
    cell = np.arange(100, 140)
    counts = CellCounts(1, np.zeros(40, np.int64), cell, np.full(40, 2**61))
    selection = QuantileSelection(grid, (HALF, Fraction(1, 7)), Fraction(1), Fraction(2**30))
    positions = selection.select(counts)[0] // grid.parts
    assert positions.tolist() == [100 + 40 // 7, 119] or positions.tolist() == [100 + 40 // 7, 120]
    assert selection.bin_counts(counts, selection.select(counts)).max(initial=0) <= 2**61


def test_groups_without_rows_have_answers():
    grid = QuantileGrid((Fraction(0), Fraction(1)))
    noise = Laplace.of(sensitivity=1, epsilon=1)
    selection = QuantileSelection(grid, (HALF, LOW, HIGH), Fraction(1), Fraction(1), noise=noise)
    empty = np.empty(0, np.int64)
    for groups in (0, 3):
        counts = CellCounts(groups, empty, empty, empty)
        positions = selection.select(counts)
        table = np.concatenate([positions, selection.bin_counts(counts, positions)], axis=1)
        values, low, high = selection.estimate(table, Fraction(19, 20))
        assert values.shape == (3, groups)
        assert (low == 0).all()
        assert (high == 1).all()
        assert ((values >= 0) & (values <= 1)).all()
        assert (np.diff(values, axis=0) >= 0).all()


# What is asked, through the public door


def people(n=400, seed=0, groups=("a", "b")):
    rng = np.random.default_rng(seed)
    g = np.array(groups)[np.arange(n) % len(groups)]
    return pd.DataFrame({"unit": np.arange(n), "g": g, "x": rng.gamma(4, 6, n)})


def open_data(rows=None, unit="unit", **more):
    known = {"bounds": {"x": (0, 100)}, "keys": {"g": ["a", "b", "nobody"]}, **more}
    limit = {} if unit != "unit" else {"rows_per_unit": 1}
    return hb.open(people() if rows is None else rows, table="t", unit=unit, **limit, **known)


SPELLINGS = [
    "MEDIAN(x)", "QUANTILE_CONT(x, 0.5)", "QUANTILE_DISC(x, 0.5)",
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)", "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x)",
]  # fmt: skip


@pytest.mark.sweep(7)
@pytest.mark.parametrize("what", SPELLINGS)
@pytest.mark.parametrize("unit", ["unit", hb.Unit.row(), hb.Unit("unit", neighbours=Neighbours.SUBSTITUTE)])
def test_medians_by_group(what, unit):
    """At ε = 20 each is within 60 rows in rank, but for less than one in 10^12."""
    data = open_data(unit=unit) if unit == "unit" else open_data(unit=unit, rows_per_unit=1)
    plan = data.sql(f"SELECT g, {what} AS m FROM t GROUP BY g", epsilon=20)
    answers, rows = plan.run().value.to_dict(), people()
    for group, value, low, high in zip(*(answers[k] for k in ("g", "m", "m_low", "m_high")), strict=True):
        values = np.sort(rows[rows["g"] == group]["x"])
        assert low <= value <= high
        if group != "nobody":
            assert values[40] < value < values[160]


@pytest.mark.slow
def test_mechanism_is_chosen_by_public_facts_and_explained():
    data = open_data()

    def kinds(what, **how):
        plan = data.sql(f"SELECT {what} FROM t", epsilon=1, **how)
        return [type(each) for each in plan.bounded.aggregates], plan.explain()

    three, five = "QUANTILE_CONT(x, [0.25, 0.5, 0.75])", "QUANTILE_CONT(x, [0.1, 0.25, 0.5, 0.75, 0.9])"
    chosen, text = kinds(three)
    assert chosen == [SelectedQuantiles]
    assert "Exponential mechanism over" in text
    assert "of up to 3 quantiles the exponential mechanism has a smaller error" in text
    assert re.search(r"the tree's error in rank would be 1[.].* to [1-9].* times as large", text)
    chosen, text = kinds(five)
    assert chosen == [Quantiles]
    assert "5 quantiles share one tree of noisy counts" in text
    assert kinds(five, intervals=False)[0] == [SelectedQuantiles]
    assert kinds("MEDIAN(x) AS a, QUANTILE_CONT(x, [0.1, 0.5, 0.9])")[0] == [SelectedQuantiles]


def test_without_intervals_all_of_epsilon_is_for_the_answer():
    data = open_data()
    with_, without = (
        data.sql("SELECT MEDIAN(x) AS m FROM t", epsilon=1, intervals=on) for on in (True, False)
    )
    assert with_.aggregates[0].selection.epsilon == Fraction(65, 100)
    assert without.aggregates[0].selection.epsilon == 1
    assert "0.35 of ε pays for counts that make the intervals of m" in str(with_)
    assert "make the intervals" not in str(without)
    assert "answers are shown without intervals, as asked" in str(without)
    assert "without intervals" not in str(with_)
    assert list(without.run().value.to_dict()) == ["m"]
    assert list(with_.run().value.to_dict()) == ["m", "m_low", "m_high"]
    for plan in (with_, without):
        assert plan.loss.epsilon(0) == 1
        assert plan.loss.epsilon(1e-6) < 1


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_counts_beside_quantiles_share_epsilon(delta):
    plan = open_data().sql("SELECT COUNT(*) AS n, MEDIAN(x) AS m FROM t", epsilon=1, delta=delta)
    assert plan.aggregates[1].selection.epsilon == Fraction(65, 200)
    assert plan.loss.epsilon(delta) <= 1


def test_extremes_are_taken_some_rows_from_the_end():
    data = open_data()
    plan = data.sql("SELECT MIN(x) AS low, MAX(x) AS high FROM t", epsilon=4, intervals=False)
    assert "low is selected at least 13 rows from the end" in str(plan)
    ninth = data.sql("SELECT QUANTILE_CONT(x, 0.9) AS high FROM t", epsilon=4, intervals=False)
    assert "high is selected at least 4 rows from the end" in str(ninth)
    wide = open_data(bounds={"x": (0, 10**9)})
    plan = wide.sql("SELECT MAX(x) AS m FROM t", epsilon=20, intervals=False)
    # The empty range above all rows is e^8 times less likely, and 26 octaves: not six times.
    assert min(plan.run().value["m"][0] for _ in range(6)) < 1000


def test_a_round_number_that_many_have_is_found_exactly():
    """40 people of the same age, ε = 1: a part of its cell would be found about every second time."""
    rows = pd.DataFrame({"unit": range(40), "x": [37.0] * 40})
    with hb.open(rows, table="t", unit="unit", rows_per_unit=1, bounds={"x": (0, 120)}) as data:
        plan = data.sql("SELECT MEDIAN(x) AS m FROM t", epsilon=3, intervals=False)
        # The chance of another answer is below 1e-13: e^−60 against a thousandth of the weight.
        assert plan.run().value.to_dict()["m"] == [37.0]


@pytest.mark.slow
def test_bounds_that_are_far_too_wide_cost_little():
    """Of 4000 rows at ε = 10, at most 40 rows off: missed with a chance below e^-100."""
    rows = people(4000)
    values = np.sort(rows["x"])
    for bounds in ((0, 100), (-(10**9), 10**9), (0, 10**12)):
        data = open_data(rows, bounds={"x": bounds})
        [value] = data.sql("SELECT MEDIAN(x) AS m FROM t", epsilon=10).run().value["m"]
        assert values[1960] - 0.1 < value < values[2040] + 0.1


def test_people_with_many_rows_count_as_little_as_they_may():
    many = pd.DataFrame({"unit": np.repeat([1, 2], 5000), "g": "a", "x": 90.0})
    rows = pd.concat([people(1001, groups=("a",)).assign(unit=lambda each: each["unit"] + 10), many])
    [value] = open_data(rows).sql("SELECT MEDIAN(x) AS m FROM t", epsilon=10).run().value["m"]
    assert value < 40


@pytest.mark.slow
def test_too_many_groups_are_refused_before_the_charge():
    data = open_data(people().assign(h=0), keys={"h": range(2**20 + 1)})
    with refused(Unsupported, match="too many groups"):
        data.sql("SELECT h, MEDIAN(x) AS m FROM t GROUP BY h", epsilon=1)


# Intervals and ranks


def tail(trials, chance, at_most):
    return sum(
        math.exp(
            math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
            + k * math.log(chance) + (trials - k) * math.log1p(-chance)
        )
        for k in range(at_most + 1)
    )  # fmt: skip


SHAPES = {
    "even": lambda rng, n: rng.random(n) * 100,
    "one value": lambda rng, n: np.full(n, 30.0),
    "two spikes": lambda rng, n: np.where(np.arange(n) < n // 2, 10.0, 90.0),
    "the ends": lambda rng, n: np.where(np.arange(n) < n // 3, 0.0, 100.0),
    "skew": lambda rng, n: 100 * rng.random(n) ** 6,
    "ties": lambda rng, n: np.floor(rng.random(n) * 5) * 20,
}
TARGETS = (QUARTER, HALF, Fraction(199, 200))


def tiled(grid, values, copies):
    cell = np.clip(np.searchsorted(grid.edges, values, side="right") - 1, 0, grid.cells - 1)
    cell, times = np.unique(cell, return_counts=True)
    group = np.repeat(np.arange(copies), cell.size)
    return CellCounts(copies, group, np.tile(cell, copies), np.tile(times, copies))


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_an_interval_covers_as_often_as_it_says(shape):
    """1000 releases of three quantiles; of eighteen comparisons each fails with a chance of 1e-11 at most."""
    grid, copies = QuantileGrid((Fraction(0), Fraction(100)), 32), 1000
    values = SHAPES[shape](np.random.default_rng(3), 120)
    noise = Laplace.of(sensitivity=1, epsilon=Fraction(35, 100))
    selection = QuantileSelection(grid, TARGETS, Fraction(65, 100), Fraction(1), noise=noise)
    counts = tiled(grid, values, copies)
    positions = selection.select(counts)
    bins = selection.bin_counts(counts, positions)
    noisy = noise.release(bins.reshape(-1)).value.reshape(bins.shape)
    value, low, high = selection.estimate(np.concatenate([positions, noisy], axis=1), HIGH)
    assert (low <= value).all()
    assert (value <= high).all()
    for place, target in enumerate(TARGETS):
        truth = np.sort(values)[math.ceil(target * len(values)) - 1]
        covered = int(((low[place] <= truth + 1e-9) & (truth - 1e-9 <= high[place])).sum())
        assert tail(copies, 0.9, covered) > 1e-11, (target, covered)


@pytest.mark.sweep(5)
@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_rank_of_an_answer_is_as_near_as_is_said(shape):
    """300 releases; with chance 0.9 each, fewer than 230 are within with a chance below 1e-9."""
    grid, copies = QuantileGrid((Fraction(0), Fraction(100))), 300
    values = SHAPES[shape](np.random.default_rng(4), 400)
    counts = tiled(grid, values, copies)
    cells = np.clip(np.searchsorted(grid.edges, values, side="right") - 1, 0, grid.cells - 1)
    before = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=grid.cells))])
    for target in (HALF, Fraction(199, 200)):
        selection = QuantileSelection(grid, (target,), Fraction(1, 2), Fraction(1))
        error = selection.rank_error(target, HIGH)
        positions = selection.select(counts)[:, 0] // grid.parts
        goal = float(target) * len(values)
        within = (before[positions] <= goal + error) & (before[positions + 1] >= goal - error)
        assert within.sum() >= 230


def test_without_noise_a_quantile_is_exact_up_to_its_cell():
    data = open_data()
    what = "QUANTILE_CONT(x, [0.01, 0.5, 0.99])"
    exact = data.exact(data.sql(f"SELECT g, {what} FROM t GROUP BY g", epsilon=1)).to_dict()
    rows = people()
    for place, group in enumerate(exact["g"][:2]):
        values = np.sort(rows[rows["g"] == group]["x"])
        texts = [exact[name][place] for name in exact if name != "g"]
        truth = [values[math.ceil(p * len(values)) - 1] for p in (0.01, 0.5, 0.99)]
        assert texts == pytest.approx(truth, abs=100 / 2**15)
