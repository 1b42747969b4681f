"""Consistent answers: non-negative integers with totals that agree, from released numbers alone."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub as hb
from hubbub.errors import InvalidInput, Unsupported
from hubbub.report.result_files import render_text
from hubbub.sql.consistency import Margin, fit_nonnegative, round_to_totals
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result
from refusing import refused


def objective(y, values, variances, margins):
    loss = np.sum((y - values) ** 2 / variances)
    return loss + sum(np.sum((m.sums(y) - m.totals) ** 2 / m.variances) for m in margins)


def minimum(values, variances, margins):
    """By brute force: the best of the fits on every set of answers that are not 0."""
    rows = [np.equal.outer(range(m.totals.size), m.places).astype(float) for m in margins]
    matrix = np.concatenate([np.eye(values.size), *rows])
    weights = 1 / np.sqrt(np.concatenate([variances, *(m.variances for m in margins)]))
    target = np.concatenate([values, *(m.totals for m in margins)])
    best = np.zeros(values.size)
    for chosen in product([False, True], repeat=values.size):
        columns = np.flatnonzero(chosen)
        y = np.zeros(values.size)
        if columns.size:
            y[columns] = np.linalg.lstsq(weights[:, None] * matrix[:, columns], weights * target, rcond=None)[
                0
            ]
        if (y >= 0).all() and objective(y, values, variances, margins) < objective(
            best, values, variances, margins
        ):
            best = y
    return best


@pytest.mark.parametrize("seed", range(30))
def test_the_fit_is_the_minimum(seed):
    generator = np.random.default_rng(seed)
    count = 6
    values, variances = generator.normal(0, 3, count), generator.uniform(0.5, 4, count)
    margins = [
        Margin(places, generator.normal(2, 3, places.max() + 1), generator.uniform(0.1, 2, places.max() + 1))
        for places in [
            np.array([0, 0, 0, 1, 1, 1]),
            np.array([0, 1, 2, 0, 1, 2]),
            np.zeros(6, dtype=np.intp),
        ][: 1 + seed % 3]
    ]
    fit = fit_nonnegative(values, variances, margins)
    assert (fit >= 0).all()
    assert fit == pytest.approx(minimum(values, variances, margins), abs=1e-7)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=60))
def test_without_totals_the_sum_stays(values):
    table = Result((column("n", values),), {})
    fit = table.consistent(integer=False)["n_consistent"]
    assert min(fit) >= 0
    assert sum(fit) == pytest.approx(max(0.0, sum(values)), abs=1e-6)
    whole = table.consistent()["n_consistent"]
    assert min(whole) >= 0
    assert all(value == int(value) for value in whole)
    assert abs(sum(whole) - max(0.0, sum(values))) <= 0.5 + 1e-6
    assert max(abs(a - b) for a, b in zip(fit, whole, strict=True)) < 1 + 1e-6


def test_equal_precision_shifts_all_positive_answers_alike():
    table = Result((column("n", [10.0, 4.0, 1.0, -3.0]),), {})
    assert table.consistent(integer=False)["n_consistent"] == pytest.approx([9.0, 3.0, 0.0, 0.0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 4)), min_size=1, max_size=40))
def test_integers_are_rounded_down_or_up_and_add_up(parts):
    answers, places = np.array([a for a, _ in parts]), np.array([p for _, p in parts], dtype=np.intp)
    rounded = round_to_totals(answers, places, 5)
    assert ((rounded == np.floor(answers)) | (rounded == np.floor(answers) + 1)).all()
    assert rounded.sum() == round(float(np.bincount(places, weights=answers, minlength=5).sum()))
    for group in range(5):
        exact = np.add.reduce(answers[places == group])
        assert np.floor(exact - 1e-9) <= rounded[places == group].sum() <= np.ceil(exact + 1e-9)


def column(name, values, half=2.0):
    values = np.asarray(values, dtype=np.float64)
    return ResultColumn(name, values, values - half, values + half)


def keyed(names, rows, answers, half=2.0, **facts):
    keys = []
    for place, name in enumerate(names):
        cells = np.empty(len(rows), dtype=object)
        cells[:] = [row[place] for row in rows]
        keys.append(ResultColumn(name, cells))
    return Result((*keys, column("n", answers, half)), {"keys": "public", **facts})


CELLS = list(product(["a", "b"], [1.0, 2.0, 3.0]))


def tables(seed=0, **facts):
    generator = np.random.default_rng(seed)
    truth = generator.poisson(2, 6)
    parts = keyed(["r", "g"], CELLS, truth + generator.laplace(0, 2, 6), **facts)
    by_r = keyed(["r"], [("a",), ("b",)], truth.reshape(2, 3).sum(1) + generator.laplace(0, 2, 2), **facts)
    by_g = keyed(
        ["g"], [(3.0,), (1.0,), (2.0,)], truth.reshape(2, 3).sum(0)[[2, 0, 1]] + 0.25, half=0.5, **facts
    )
    whole = keyed([], [], [float(truth.sum())], half=0.1, **facts)
    return parts, by_r, by_g, whole


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("integer", [True, False])
def test_totals_agree(seed, integer):
    parts, by_r, by_g, whole = tables(seed)
    leaf, *totals = parts.consistent_with([by_r, by_g, whole], integer=integer)
    fit = {(row["r"], row["g"]): row["n_consistent"] for row in leaf}
    assert min(fit.values()) >= 0
    assert not integer or all(value == int(value) for value in fit.values())
    for row in totals[0]:
        assert row["n_consistent"] == pytest.approx(sum(v for (r, _), v in fit.items() if r == row["r"]))
    for row in totals[1]:
        assert row["n_consistent"] == pytest.approx(sum(v for (_, g), v in fit.items() if g == row["g"]))
    assert totals[2]["n_consistent"] == [pytest.approx(sum(fit.values()))]
    assert not integer or totals[2]["n_consistent"][0] == pytest.approx(whole["n"][0], abs=2)


def test_a_precise_total_counts_for_more():
    parts = keyed(["r"], [("a",), ("b",)], [5.0, 5.0])
    near, far = (keyed([], [], [20.0], half=half) for half in (0.01, 100.0))
    assert parts.consistent_with([near], integer=False)[0]["n_consistent"] == pytest.approx(
        [10, 10], abs=0.01
    )
    assert parts.consistent_with([far], integer=False)[0]["n_consistent"] == pytest.approx([5, 5], abs=0.01)


def test_small_counts_come_closer_and_their_total_is_kept():
    generator = np.random.default_rng(1)
    truth = generator.poisson(0.3, 2000)
    raw = truth + generator.laplace(0, 1, 2000)
    table = Result((column("n", raw),), {})
    fit = np.array(table.consistent()["n_consistent"])
    assert np.abs(fit - truth).mean() < 0.8 * np.abs(raw - truth).mean()
    assert abs(fit.sum() - raw.sum()) <= 0.5
    assert abs(np.maximum(raw, 0).sum() - truth.sum()) > 3 * abs(fit.sum() - truth.sum())


def test_raw_answers_stay_and_the_label_says_what_was_done():
    parts, by_r, *_ = tables()
    leaf, total = parts.consistent_with([by_r])
    for before, after in ((parts, leaf), (by_r, total)):
        answers = after.to_dict()
        assert {name: answers[name] for name in before.to_dict()} == before.to_dict()
        assert set(answers) - set(before.to_dict()) == {"n_consistent"}
        assert "post-processed" in after.facts["post-processed"]["n_consistent"]
        assert "biased" in after.facts["post-processed"]["n_consistent"]
        assert "post-processed" not in before.facts
        assert Result.from_json(after.to_json()).to_dict() == answers
        note = f"n_consistent: {after.facts['post-processed']['n_consistent']}"
        for text in (str(after), after._repr_html_(), *(render_text(after, form) for form in ("html", "md"))):
            assert note in text.replace("\\_", "_")
    assert list(leaf.to_dict()) == ["r", "g", "n", "n_low", "n_high", "n_consistent"]
    # A column that was added is no key of the next one.
    two = Result((*parts.columns, column("m", np.arange(6.0))), parts.facts).consistent("m")
    assert two.consistent_with([Result((*by_r.columns, column("m", [3.0, 12.0])), by_r.facts)], "n")


def test_a_release_is_mapped():
    data = hb.open(
        pd.DataFrame({"r": ["a", "b", "b", "c"] * 10}),
        unit=hb.Unit.row(),
        budget=hb.Budget(5),
        keys={"r": ["a", "b", "c", "d"]},
    )
    release = data.run(data.sql("SELECT r, COUNT(*) AS n FROM data GROUP BY r", epsilon=1))
    mapped = release.map(lambda table: table.consistent())
    assert mapped.post_processed
    assert mapped.loss == release.loss
    assert sum(mapped.value["n_consistent"]) == pytest.approx(sum(release.value["n"]), abs=0.5)


def test_unadjustable_results_are_refused():
    parts = tables()[0]
    two = Result((*parts.columns, column("m", np.arange(6.0))), parts.facts)
    with refused(InvalidInput, match="not exactly one column"):
        two.consistent()
    for name in ("r", "nothing"):
        with refused(InvalidInput, match="not one of the answers"):
            parts.consistent(name)
    data = hb.open(pd.DataFrame({"r": ["a", "b"] * 9}), table="t", unit=hb.Unit.row(), keys={"r": ["a", "b"]})
    totals = data.sql("SELECT r, COUNT(*) AS n FROM t GROUP BY ROLLUP (r)", epsilon=1).run().value
    with refused(InvalidInput, match="ask for the finest groups, and add up their consistent answers"):
        totals.consistent("n")
    for bad in ([np.nan, 1.0], [np.inf, 1.0]):
        with refused(InvalidInput, match="NULL"):
            Result((column("n", bad),), {}).consistent()
    with refused(InvalidInput, match="NULL"):
        Result((column("n", [1.0, 2.0], np.inf),), {}).consistent()
    with refused(InvalidInput, match="already"):
        parts.consistent().consistent()
    for totals in (parts, keyed(["x"], [("a",)], [1.0])):
        with refused(InvalidInput, match="fewer"):
            parts.consistent_with([totals])
    for rows in ([("a",)], [("a",), ("b",), ("c",)], [("a",), ("a",)]):
        with refused(InvalidInput, match="no total"):
            parts.consistent_with([keyed(["r"], rows, np.ones(len(rows)))])
    private = tables(keys="selected privately")
    with refused(InvalidInput, match="public"):
        private[0].consistent_with([private[1]])
    many = [Margin(np.arange(3000), np.ones(3000), np.ones(3000)) for _ in range(2)]
    with refused(Unsupported, match="totals"):
        fit_nonnegative(np.ones(3000), np.ones(3000), many)


def test_answers_that_do_not_add_up_are_refused():
    """As the shell does: means, sums of both signs, and totals of units, who may be in several groups."""
    rows = pd.DataFrame({"u": np.arange(60) // 2, "r": ["a", "b"] * 30, "x": [1.0, 3.0] * 30})
    with hb.open(rows, table="t", unit="u", keys={"r": ["a", "b"]}) as data:

        def answers(what, bounds=(0, 4)):
            texts = (f"SELECT r, {what} AS n FROM t GROUP BY r", f"SELECT {what} AS n FROM t")
            plans = [
                data.sql(each, epsilon=20, bounds={"x": bounds}, rows_per_unit=2, groups_per_unit=2)
                for each in texts
            ]
            return [plan.run().value for plan in plans]

        for what in ("COUNT(*)", "SUM(x)"):
            parts, total = answers(what)
            assert len(parts.consistent_with([total])[0]["n_consistent"]) == 2
        for what, bounds in (("AVG(x)", (0, 4)), ("SUM(x)", (-4, 4)), ("COUNT(*) + SUM(x)", (0, 4))):
            parts, _ = answers(what, bounds)
            with refused(InvalidInput, match="are no counts, and no sums that cannot be negative"):
                parts.consistent()
        parts, total = answers("COUNT(DISTINCT u)")
        assert sum(parts.consistent()["n_consistent"]) == pytest.approx(60, abs=20)
        with refused(InvalidInput, match="numbers of units"):
            parts.consistent_with([total])


def test_counts_with_intervals_of_one_integer_are_consistent_too():
    """With ε = 5 the noise of a row is 0 with 98.7 %: such counts were refused, after they were paid for.

    A key with ten rows is not shown with a chance of e^-30.
    """
    rows = pd.DataFrame({"g": ["a", "b", "c"] * 10})
    data = hb.open(rows, table="t", unit=hb.Unit.row())
    parts = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=5, delta=1e-5).run().value
    answers = parts.to_dict()
    assert len(parts) == 3
    assert answers["n_low"] == answers["n"] == answers["n_high"]
    assert parts.consistent("n")["n_consistent"] == answers["n"]
