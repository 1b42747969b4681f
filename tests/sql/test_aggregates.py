"""What is measured for a query, what is read from it, and what a plan says of it beforehand."""

import math
import re
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.errors import InvalidInput, Unsupported
from hubbub.sql.aggregates import MomentSums
from hubbub.sql.complementary_parts import Partition
from hubbub.sql.quantile_aggregates import Quantiles, SelectedQuantiles
from refusing import refused

LARGE = 2**30
"""An ε at which noise hardly matters."""
LIMITS = [{"rows_per_unit": 9}, {"groups_per_unit": 3, "rows_per_group": 9}]


def visits(n=600, seed=5):
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 12, n).clip(0, 100))
    g = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    return pd.DataFrame({"unit": np.arange(n) // 3, "g": g, "x": x, "y": rng.normal(0, 9, n).clip(-50, 50)})


def open_data(rows=None, unit="unit", **more):
    bounds = {"x": (0, 100), "y": (-50, 50)}
    return hb.open(visits() if rows is None else rows, table="t", unit=unit, bounds=bounds, **more)


def both(frame):
    return frame.dropna(subset=["x"])


FOUR = "QUANTILE_CONT(x, [0.2, 0.4, 0.6, 0.8])"
EXPECTED = {
    "COUNT(*)": len,
    "COUNT(x)": lambda rows: rows["x"].count(),
    "COUNT(DISTINCT unit)": lambda rows: rows["unit"].nunique(),
    "SUM(x)": lambda rows: rows["x"].sum(),
    "SUM(y)": lambda rows: rows["y"].sum(),
    "AVG(x)": lambda rows: rows["x"].mean(),
    "AVG(y)": lambda rows: rows["y"].mean(),
    "VARIANCE(x)": lambda rows: rows["x"].var(),
    "VAR_POP(x)": lambda rows: rows["x"].var(ddof=0),
    "STDDEV(y)": lambda rows: rows["y"].std(),
    "COVAR_SAMP(x, y)": lambda rows: both(rows)["x"].cov(both(rows)["y"]),
    "COVAR_POP(y, x)": lambda rows: both(rows)["x"].cov(both(rows)["y"], ddof=0),
    "CORR(x, y)": lambda rows: both(rows)["x"].corr(both(rows)["y"]),
    "REGR_SLOPE(y, x)": lambda rows: both(rows)["x"].cov(both(rows)["y"]) / both(rows)["x"].var(),
    "REGR_SLOPE(x, y)": lambda rows: both(rows)["x"].cov(both(rows)["y"]) / both(rows)["y"].var(),
    "MEDIAN(x)": lambda rows: rows["x"].quantile(0.5, interpolation="lower"),
    "QUANTILE_CONT(y, 0.1)": lambda rows: rows["y"].quantile(0.1, interpolation="lower"),
}


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
def test_answers_with_little_noise_match_the_rows(limits):
    data = open_data(keys={"g": ["a", "b", "c"]})
    rows = visits()
    outputs = ", ".join(f'{what} AS "{what}"' for what in EXPECTED)
    text = f"SELECT g, {outputs} FROM t GROUP BY g"
    answers = data.run(data.sql(text, epsilon=LARGE, allow_large_epsilon=True, **limits)).value
    for what, function in EXPECTED.items():
        truth = [function(rows[rows["g"] == group]) for group in "abc"]
        # A quantile may lie anywhere between two rows.
        assert answers[what] == pytest.approx(
            truth, rel=2e-3, abs=1 if "M" in what[:2] or "Q" in what else 0.02
        )


def test_several_aggregates_of_one_value_are_read_from_one_measure():
    data = open_data()
    plan = data.sql(
        "SELECT COUNT(x) AS m, COUNT(*) AS n, SUM(x) AS s, AVG(x) AS a, VARIANCE(x) AS v, STDDEV(x) AS d "
        "FROM t",
        epsilon=LARGE,
        allow_large_epsilon=True,
        rows_per_unit=9,
    )
    [measure] = plan.bounded.aggregates
    assert measure.degrees == (2,)
    answers, rows = data.run(plan).value, visits()
    assert answers["n"][0] == pytest.approx(len(rows), abs=0.1)
    assert answers["m"][0] == pytest.approx(rows["x"].count(), abs=0.1)
    assert answers["s"][0] == pytest.approx(rows["x"].sum(), rel=1e-3)
    assert answers["a"][0] == pytest.approx(rows["x"].mean(), rel=1e-3)
    assert answers["d"][0] == pytest.approx(answers["v"][0] ** 0.5)


def test_measures_are_as_few_as_can_be():
    data = open_data()

    def measured(what):
        return data.sql(f"SELECT {what} FROM t", epsilon=1, rows_per_unit=2).bounded.aggregates

    assert [m.is_signed for m in measured("SUM(x) AS a, SUM(y) AS b")] == [True, True]
    assert [m.with_missing for m in measured("SUM(x) AS a, COUNT(*) AS n, AVG(y) AS b")] == [True, False]
    assert [m.degrees for m in measured("CORR(x, y) AS r, COVAR_SAMP(y, x) AS c, COUNT(*) AS n")] == [(2, 2)]
    assert [m.fractions for m in measured("MEDIAN(x) AS m, MAX(x) AS b")] == [
        (Fraction(1, 2), Fraction(199, 200))
    ]
    assert [type(m) for m in measured("COUNT(*) AS n, MEDIAN(x) AS m")] == [MomentSums, SelectedQuantiles]
    assert [type(m) for m in measured(FOUR)] == [Quantiles]


# What is said beforehand


@pytest.mark.sweep(3)
@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("delta", [0, 1e-3])
def test_planned_width_is_that_of_the_interval(limits, delta):
    data = open_data(keys={"g": ["a", "b", "c"]})
    for what in ("COUNT(*)", "COUNT(x)", "COUNT(DISTINCT unit)", "COUNT(DISTINCT y)", "SUM(x)"):
        for extra in (
            ("", ", VARIANCE(x) AS c") if what != "COUNT(*)" else ("", ", AVG(x) AS b, CORR(x, y) AS d")
        ):
            text = f"SELECT {what} AS a{extra} FROM t GROUP BY g"
            plan = data.sql(text, epsilon=1, delta=delta, **{"rows_per_unit": 4, **limits})
            answers = data.run(plan).value
            half = np.subtract(answers["a_high"], answers["a_low"]) / 2
            if what.startswith("COUNT"):  # the ends are integers
                assert (half <= plan.half_width(0) * (1 + 1e-9)).all(), (what, extra)
                assert (half >= plan.half_width(0) - 1).all(), (what, extra)
            else:
                assert half == pytest.approx([plan.half_width(0)] * 3, rel=1e-9), (what, extra)
            error = {output.name: error for output, error in plan.errors}["a"]
            assert float(error.removeprefix("± ").replace(",", "")) == pytest.approx(
                plan.half_width(0), rel=6e-3
            )


def test_the_width_of_a_clamped_sum_of_units_is_known_too():
    data = open_data()
    text = "SELECT SUM(x, contribution_bounds_per_group => (-5, 90)) AS a FROM t"
    plan = data.sql(text, epsilon=1, rows_per_unit=3)
    answers = data.run(plan).value
    assert (answers["a_high"][0] - answers["a_low"][0]) / 2 == pytest.approx(plan.half_width(0), rel=1e-9)
    assert plan.half_width(0) == pytest.approx(90 * 3, rel=0.01)


@pytest.mark.parametrize(
    ("what", "bounding"),
    [
        ("AVG(x)", {"rows_per_unit": 3}),
        ("VAR_POP(x)", {"rows_per_unit": 3}),
        ("COVAR_POP(x, y)", {"rows_per_unit": 3}),
        ("AVG(x, contribution_bounds_per_group => (0, 100))", {"rows_per_unit": 3}),
    ],
)
def test_width_formula_at_the_true_count_is_an_upper_bound(what, bounding):
    data = open_data(visits(6000))
    rows = visits(6000)
    plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=1, **bounding)
    [(_, error)] = plan.errors
    top = float(re.search(r"([\d.,]+)/n or less", error)[1].replace(",", ""))
    n = rows["unit"].nunique() if "units" in error else rows["x"].count()
    answers = data.run(plan).value
    half = (answers["a_high"][0] - answers["a_low"][0]) / 2
    assert top / n / 4 < half < 1.05 * top / n
    assert plan.half_width(0) is None


@pytest.mark.slow
def test_width_formulas_of_deviations_and_correlations_are_close():
    rows = visits(60_000)
    data = open_data(rows)
    variance = rows["x"].var()
    for what, pattern, over in (
        ("STDDEV(x)", r"about ([\d.,]+)/\(n·s\)", variance**0.5),
        ("CORR(x, y)", r"about ([\d.,]+)/\(n·v\)", variance**0.5 * rows["y"].std() / 1e4),
        ("REGR_SLOPE(y, x)", r"about ([\d.,]+)/\(n·v\)", variance / 1e4),
    ):
        plan = data.sql(f"SELECT {what} AS a FROM t", epsilon=1, rows_per_unit=3)
        [(_, error)] = plan.errors
        about = float(re.search(pattern, error)[1].replace(",", "")) / rows["x"].count() / over
        answers = data.run(plan).value
        half = (answers["a_high"][0] - answers["a_low"][0]) / 2
        assert about / 4 < half < about * 2, what


@pytest.mark.slow
def test_a_quantile_is_off_by_rows_in_rank():
    plan = open_data().sql("SELECT MEDIAN(x) AS a, MIN(x) AS b FROM t", epsilon=1, rows_per_unit=3)
    error = [error for _, error in plan.errors]
    assert all(text.endswith("rows in rank, at most") for text in error)
    assert error[0] != error[1]
    assert plan.half_width(0) is None
    answers = plan.run().value
    assert answers["b"][0] <= answers["a"][0]
    [*_, (_, error)] = open_data().sql(f"SELECT {FOUR} FROM t", epsilon=1, rows_per_unit=3).errors
    assert error.endswith("rows in rank")


def test_per_unit_aggregates_are_described_in_words():
    data = open_data()
    for what, pattern in (("SUM", r"± \d+"), ("AVG", r"± .*/n or less, with n units")):
        text = f"SELECT {what}(x, contribution_bounds_per_group => (0, 9)) AS a FROM t"
        [(_, error)] = data.sql(text, epsilon=1, rows_per_unit=1).errors
        assert re.fullmatch(pattern, error)


@pytest.mark.parametrize(
    ("what", "truth", "most"),
    [
        ("100 * COUNT(x) / COUNT(*)", lambda rows: 100 * rows["x"].count() / len(rows), 0.6),
        ("COUNT(*) - COUNT(x)", lambda rows: rows["x"].isna().sum(), 0.5),
        ("(SUM(x) + 1) / (COUNT(x) + 1)", lambda rows: rows["x"].mean(), 0.7),
        ("(COUNT(*) - COUNT(x)) / -2", lambda rows: -rows["x"].isna().sum() / 2, 0.5),
    ],
)
def test_expressions_of_joint_measurements_have_tighter_intervals(what, truth, most):
    """The noise that both have cancels: the interval is narrower than one computed from both ends."""
    rows = visits(6000)
    data = open_data(rows)
    text = f"SELECT {what} AS a, {what} + 0 * ABS(COUNT(*)) AS b FROM t"
    plan = data.sql(text, epsilon=1, rows_per_unit=3, confidence=1 - 1e-12)
    answers = data.run(plan).value
    width, wider = (answers[f"{name}_high"][0] - answers[f"{name}_low"][0] for name in "ab")
    assert width < most * wider
    assert answers["a_low"][0] <= truth(rows) + 0.1
    assert answers["a_high"][0] >= truth(rows) - 0.1
    # The counts of the second are rounded before they are combined.
    assert answers["a"][0] == pytest.approx(answers["b"][0], abs=1)


@pytest.mark.slow
def test_expressions_of_separate_measurements_have_intervals():
    data = open_data()
    text = "SELECT SUM(x) / COUNT(DISTINCT unit) AS a, AVG(x) / COUNT(x) AS b, MAX(x) - MEDIAN(x) AS c FROM t"
    answers = data.run(data.sql(text, epsilon=100, rows_per_unit=3, allow_large_epsilon=True)).value
    assert answers["a_low"][0] < answers["a"][0] < answers["a_high"][0]
    assert answers["b_low"][0] < answers["b"][0] < answers["b_high"][0]
    assert answers["c_low"][0] < answers["c"][0] < answers["c_high"][0]


# Groups without rows, and without keys


@pytest.mark.slow
def test_group_that_may_be_empty_has_no_mean():
    data = open_data(keys={"g": ["nobody", "a"]})
    what = "COUNT(x) AS n, AVG(x) AS m, STDDEV(x) AS s, CORR(x, y) AS r, MEDIAN(x) AS q"
    for _ in range(20):
        answers = data.run(data.sql(f"SELECT {what} FROM t GROUP BY g", epsilon=1, rows_per_unit=3)).value
        for row in answers:
            assert (row["q"] is None) == (row["n"] <= 0)
            if row["m"] is None:
                assert row["n_low"] <= 0
                assert [row["m_low"], row["m_high"]] == [-math.inf, math.inf]
            else:
                assert row["n_low"] >= 0
                assert row["m_low"] <= row["m"] <= row["m_high"]


@pytest.mark.slow
def test_mean_of_all_rows_is_null_only_if_their_own_count_is_0_or_less():
    """Of few rows a count hardly shows that there is any: a group has to, all rows need not."""
    few = pd.DataFrame({"unit": range(8), "g": ["few"] * 8, "x": [5.0] * 8})
    bounds = {"bounds": {"x": (0, 10)}, "keys": {"g": ["few"]}, "rows_per_unit": 1}
    data = hb.open(few, unit="unit", table="t", **bounds)

    def count_means(sql):
        plans = [data.sql(sql, epsilon=0.3) for _ in range(100)]
        return sum(plan.run().value["m"][0] is not None for plan in plans)

    # 0.89 and 0.16 of the answers are means: on the other side of 60 by chance in 1e-12 by Chernoff's bound.
    assert count_means("SELECT AVG(x) AS m FROM t") > 60
    assert count_means("SELECT AVG(x) AS m FROM t GROUP BY g") < 60


@pytest.mark.slow
@pytest.mark.parametrize("count", ["COUNT(x)", "COUNT(DISTINCT unit)"])
def test_group_that_a_released_count_calls_empty_has_no_mean(count):
    # Each count has noise of its own: alone, some of 3,000 means would be shown beside a count below 1.
    data = open_data(keys={"g": [f"group {number}" for number in range(3000)]})
    what = f"{count} AS n, AVG(x) AS m, STDDEV(x) AS s, AVG(DISTINCT x) AS d, CORR(x, y) AS r, SUM(x) AS t"
    plan = data.sql(f"SELECT {what} FROM t GROUP BY g", epsilon=1, rows_per_unit=3, groups_per_unit=3)
    answers = plan.run().value
    counts = answers["n"]
    for name in "msdr":
        positive = [count for count, value in zip(counts, answers[name], strict=True) if value is not None]
        assert positive
        assert min(positive) > 0
    assert None not in answers["t"]
    assert any(count > 0 and mean is None for count, mean in zip(counts, answers["m"], strict=True))


def test_group_that_a_released_count_calls_empty_has_no_median():
    data = open_data(keys={"g": [f"group {number}" for number in range(40)]})
    what = "COUNT(*) AS n, MEDIAN(x) AS m, MAX(x) AS h"
    answers = data.sql(f"SELECT {what} FROM t GROUP BY g", epsilon=1, rows_per_unit=3).run().value
    for count, *values in zip(answers["n"], answers["m"], answers["h"], strict=True):
        assert (count <= 0) == (values == [None, None]), values  # 40 positive counts: 2^-40


def test_exact_answers_have_a_mean_of_few_rows_and_none_of_no_row():
    few = pd.DataFrame({"unit": [1, 2], "g": ["few", "few"], "x": [3.0, 5.0], "y": [0.0, 1.0]})
    data = open_data(few, keys={"g": ["nobody", "few"]})
    plan = data.sql("SELECT g, AVG(x) AS m FROM t GROUP BY g", epsilon=0.001, rows_per_unit=3)
    assert data.exact(plan)["m"] == [None, pytest.approx(4)]


@pytest.mark.slow
def test_no_selected_key_gives_an_empty_table():
    rows = pd.DataFrame({"unit": [1, 2], "g": ["a", "b"], "x": [1, 2], "y": [1, 2]})
    what = "COUNT(*) AS n, AVG(x) AS m, CORR(x, y) AS r, MEDIAN(x) AS q"
    plan = open_data(rows).sql(f"SELECT {what} FROM t GROUP BY g", epsilon=1, delta=1e-9, rows_per_unit=1)
    assert len(plan.run().value) == 0


# Refusals, and how fine a tree is


def test_a_value_without_bounds_is_refused():
    data = hb.open(visits(), table="t", unit="unit")
    with refused(InvalidInput, match="has no bounds"):
        data.sql("SELECT COUNT(x) AS n, AVG(x) AS a FROM t", epsilon=1)


def test_a_value_is_not_correlated_with_itself():
    with refused(InvalidInput, match="itself"):
        open_data().sql("SELECT CORR(x, x) AS r FROM t", epsilon=1)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "depth"), [(100, 4), (2000, 3), (100_000, 2)])
def test_many_groups_have_coarser_trees(groups, depth):
    data = open_data(visits().assign(h=0), keys={"h": range(groups)})
    plan = data.sql(f"SELECT h, {FOUR} FROM t GROUP BY h", epsilon=1, rows_per_unit=1)
    assert plan.bounded.aggregates[0].depth == depth


def test_too_many_groups_have_no_trees():
    data = open_data(visits().assign(h=0), keys={"h": range(200_000)})
    with refused(Unsupported, match="too many groups"):
        data.sql(f"SELECT h, {FOUR} FROM t GROUP BY h", epsilon=1, rows_per_unit=1)
    data.sql("SELECT h, MEDIAN(x) AS m FROM t GROUP BY h", epsilon=1, rows_per_unit=1)


# The parts of a row


@pytest.mark.parametrize("degrees", [{0: 1}, {0: 2}, {0: 1, 1: 1}, {0: 2, 1: 2}, {0: 1, 1: 2}])
def test_moment_parts_of_every_row_add_up_to_one(degrees):
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.random(3000), np.arange(0, 65537, 16) / 65536, [0, 1, 0, 1]])
    y = np.concatenate([rng.random(len(x) - 4), [0, 0, 1, 1]])
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE r AS SELECT UNNEST($x) AS x0, UNNEST($y) AS x1", {"x": list(x), "y": list(y)}
    )
    connection.execute("INSERT INTO r VALUES (NULL, NULL)")
    unit = (Fraction(0), Fraction(1))
    partition = Partition.powers(degrees, {0: unit, 1: unit}, with_missing=True)
    parts = ", ".join(f"{part} AS m{place}" for place, part in enumerate(partition.parts))
    text = f"SELECT {parts} FROM ({partition.over('SELECT * FROM r', [])}) AS s"
    table = np.stack(list(connection.execute(text).fetchnumpy().values()), axis=1)
    assert table.min() == 0
    one = 2**45
    assert (table.sum(axis=1) == one).all()
    assert table[-1].tolist() == [0] * (table.shape[1] - 1) + [one]
    # Each part is as near to its polynomial as intervals take it to be.
    bases = [[t, 1 - t] if degree == 1 else [t * t, 2 * t * (1 - t), (1 - t) ** 2] for t, degree in (
        (longs(x), degrees[0]), (longs(y), degrees.get(1, 0))) if degree]  # fmt: skip
    exact = bases[0] if len(bases) == 1 else [f * g for f in bases[0] for g in bases[1]]
    most = 9 if len(bases) == 2 else 3 if degrees == {0: 2} else 1
    for place, part in enumerate(exact):
        assert np.abs(table[:-1, place] - part * one).max() < most
    if degrees == {0: 2}:
        # And means stay what they are in steps.
        assert ((2 * table[:-1, 0] + table[:-1, 1]) / 2 == np.floor(x * one + 0.5)).all()


def longs(values):
    """Numbers with more digits than doubles have."""
    return np.asarray(values, dtype=np.longdouble)


# The split of one ε


def test_equal_shares_make_the_geometric_mean_of_widths_least():
    """Widths are as 1/share: by any other split some product of widths is larger."""
    data = open_data()
    plan = data.sql(
        f"SELECT COUNT(DISTINCT unit) AS n, SUM(x) AS s, {FOUR} FROM t", epsilon=1, rows_per_unit=2
    )
    scales = [each.noise.scale for each in plan.aggregates]
    whole = [each.bounded.sensitivity.l1 / plan.split.aggregates for each in plan.aggregates]
    shares = [one / scale for one, scale in zip(whole, scales, strict=True)]
    assert sum(shares) == 1
    assert shares == [Fraction(1, 3)] * 3
    least = np.prod([1 / float(share) for share in shares])
    rng = np.random.default_rng(0)
    for other in rng.dirichlet([1, 1, 1], 1000):
        assert np.prod(1 / other) >= least * (1 - 1e-12)
