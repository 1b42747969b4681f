"""What one unit can move, step by step; what is charged, and when; what is refused, and what is not."""

import copy
import json
import math
import subprocess
import sys
import warnings
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hubbub as hb
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import BudgetExceeded, InvalidInput, Unsupported
from hubbub.estimators import PCA, GaussianNB, KMeans, LinearRegression, LogisticRegression, StandardScaler
from hubbub.estimators.fit_budget import FitBudget, FitMeasurer
from hubbub.ledger import Ledger
from hubbub.unit import Neighbours, Unit
from training.replay import moves, recorded

UNCOUNTED = {"account": None, "allow_large_epsilon": True, "population": 5}
MAKERS = {
    "StandardScaler": lambda **more: StandardScaler(bounds=(-1, 3), **{**UNCOUNTED, **more}),
    "GaussianNB": lambda **more: GaussianNB(bounds=(-1, 3), classes=[0, 1, 2], **{**UNCOUNTED, **more}),
    "LinearRegression": lambda **more: LinearRegression(
        bounds=(-1, 3), target_bounds=(0, 2), **{**UNCOUNTED, **more}
    ),
    "LinearRegression, norm": lambda **more: LinearRegression(
        bounds=(-1, 3), target_bounds=(0, 2), data_norm=1.1, **{**UNCOUNTED, **more}
    ),
    "PCA": lambda **more: PCA(bounds=(-1, 3), **{**UNCOUNTED, **more}),
    "PCA, norm": lambda **more: PCA(bounds=(-1, 3), data_norm=1.2, **{**UNCOUNTED, **more}),
    "KMeans": lambda **more: KMeans(bounds=(-1, 3), n_clusters=3, max_iter=3, **{**UNCOUNTED, **more}),
    "LogisticRegression": lambda **more: LogisticRegression(
        bounds=(-1, 3), classes=[0, 1], **{**UNCOUNTED, **more}
    ),
    "LogisticRegression, 3 classes": lambda **more: LogisticRegression(
        bounds=(-1, 3), classes=[0, 1, 2], max_iter=3, **{**UNCOUNTED, **more}
    ),
    "LogisticRegression, declared": lambda **more: LogisticRegression(
        bounds=(-1, 3),
        classes=[0, 1],
        n_samples=10,
        data_norm=1.3,
        clipping_norm=0.4,
        max_iter=4,
        **{**UNCOUNTED, **more},
    ),
}
EVERY = pytest.mark.parametrize("name", MAKERS)
PRICES = [{"epsilon": 1}, {"epsilon": 2, "delta": 1e-5}, {"epsilon": 10**7}, {"epsilon": 3000, "delta": 0.1}]

ODD = [math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0]
NUMBERS = st.one_of(st.floats(-2, 4), st.sampled_from(ODD))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from([0, 1, 2, 7, math.nan])), min_size=1, max_size=8)


def fitting(estimator, rows, **more):
    table = np.array([row[:2] for row in rows], dtype=float).reshape(-1, 2)
    answers = np.array([row[2] for row in rows], dtype=float)
    return lambda: estimator.fit(table, answers, **more)


def alike():
    """Centres that start alike in both fits: their randomness does not depend on rows."""
    return patch(
        "hubbub.estimators.cluster.uniform",
        lambda bound, size: np.linspace(0, bound - 1, size).astype(np.int64),
    )


@pytest.mark.slow
@EVERY
@settings(deadline=None, max_examples=25)
@given(rows=ROWS, place=st.integers(0, 7), price=st.sampled_from(PRICES))
def test_one_row_moves_sums_within_their_sensitivity(name, rows, place, price):
    estimator = MAKERS[name](**price)
    at = place % len(rows)
    with alike():
        for (l1, l2_squared, linf), row in moves(
            fitting(estimator, rows), fitting(estimator, rows[:at] + rows[at + 1 :])
        ):
            assert l1 <= row.l1
            assert l2_squared <= row.l2_squared
            assert linf <= row.linf


@EVERY
@settings(deadline=None, max_examples=10)
@given(
    rows=ROWS.filter(lambda rows: len(rows) > 1),
    ids=st.lists(st.sampled_from(["a", "b", None]), min_size=8, max_size=8),
    limit=st.integers(1, 3),
)
def test_one_unit_moves_sums_within_its_rows_bound(name, rows, ids, limit):
    estimator = MAKERS[name](epsilon=1, unit=Unit("person"), rows_per_unit=limit)
    units = ids[: len(rows)]
    rest = [place for place, unit in enumerate(units) if unit != "a"]
    with alike():
        for (l1, l2_squared, linf), row in moves(
            fitting(estimator, rows, units=units),
            fitting(estimator, [rows[place] for place in rest], units=[units[place] for place in rest]),
        ):
            assert l1 <= limit * row.l1
            assert l2_squared <= limit**2 * row.l2_squared
            assert linf <= limit * row.linf


CORNERS = [(-1.0, -1.0, 0.0), (3.0, 3.0, 2.0), (3.0, -1.0, 1.0), (math.nan, 3.0, 1.0), (3.0, 0.0, 9.0)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["StandardScaler", "GaussianNB", "LinearRegression", "PCA"])
def test_sensitivities_are_tight_at_the_corners_of_the_bounds(name):
    # All databases of up to two rows from a universe that has the corners, and all their neighbours.
    estimator, reached = MAKERS[name](epsilon=1), 0
    databases = [[], *([row] for row in CORNERS), *([one, two] for one in CORNERS for two in CORNERS)]
    for rows in databases:
        for extra in CORNERS:
            for (l1, _, linf), row in moves(fitting(estimator, rows), fitting(estimator, [*rows, extra])):
                assert l1 <= row.l1
                assert linf <= row.linf
                reached = max(reached, l1 / row.l1)
    assert reached == 1


@EVERY
def test_non_finite_rows_are_ignored(name):
    rows = [(0.5, 1.0, 1.0), (2.0, 0.0, 0.0)]
    odd = [(math.nan, 1.0, 1.0), (math.inf, 1.0, 0.0), (1.0, -math.inf, 1.0)]
    with alike():
        for moved, _ in moves(
            fitting(MAKERS[name](epsilon=1), rows), fitting(MAKERS[name](epsilon=1), rows + odd)
        ):
            assert moved == (0, 0, 0)


def test_no_element_makes_a_fit_warn():
    with warnings.catch_warnings(action="error"):
        fit = StandardScaler(epsilon=1, bounds=(0, 1), account=None).fit(
            [[np.array([1.0])], [np.ma.masked], [0.5]]
        )
    assert fit.mean_.shape == (1,)


@EVERY
def test_no_row_makes_a_fit_fail(name):
    class Hostile:
        def __float__(self):
            raise RuntimeError("a secret")

    table = np.array([[1, 2], ["x", None], [Hostile(), 10**400], [1j, 0]], dtype=object)
    answers = np.array([0, Hostile(), [1], 1], dtype=object)
    for price in PRICES:
        estimator = MAKERS[name](**price).fit(table, answers)
        for value in estimator.release_.value.values():
            assert np.isfinite(np.asarray(value, dtype=float)).all()
        # Nor do no rows at all.
        MAKERS[name](**price).fit(np.zeros((0, 2)), np.zeros(0))


@EVERY
@pytest.mark.parametrize("price", [{"epsilon": 0.7}, {"epsilon": 0.7, "delta": 1e-6}])
@pytest.mark.parametrize("relation", Neighbours)
def test_measurements_cost_at_most_the_charge(name, price, relation):
    rows = [(0.5, 1.0, 1.0), (2.0, 0.0, 0.0)] * 20
    estimator = MAKERS[name](**price, unit=Unit.row(relation))
    steps = recorded(fitting(estimator, rows))
    stored = json.loads(estimator.release_.label()["mechanism"])["mechanisms"]
    mechanisms = [hb.from_json(json.dumps(each)) for each in stored]
    assert len(mechanisms) == len(steps)
    assert sum(step.share for step in steps) <= 1
    moved = relation.histogram_distance
    for mechanism, step in zip(mechanisms, steps, strict=True):
        assert mechanism.sensitivity.l1 == moved * step.row.l1
        assert mechanism.sensitivity.l2_squared == moved**2 * step.row.l2_squared
    delta = price.get("delta", 0)
    spent = hb.PrivacyLoss.compose(mechanism.loss() for mechanism in mechanisms)
    allowed = Fraction(str(price["epsilon"]))
    if delta:
        assert spent.delta(allowed) <= estimator.loss_.delta(allowed) <= delta
    else:
        assert (
            sum(m.sensitivity.l1 / m.scale for m in mechanisms) <= estimator.loss_.cost().epsilon == allowed
        )
    assert estimator.release_.loss == estimator.loss_
    assert estimator.release_.unit.neighbours is relation


@EVERY
def test_charge_comes_before_the_rows_and_stands(name):
    events = []

    class Watching(InMemoryAccount):
        def charge(self, what, loss, *, unit=None):
            events.append("charge")
            return super().charge(what, loss, unit=unit)

    account = Watching(hb.Budget(1))
    estimator = MAKERS[name](epsilon=1, account=account)
    rows = [(0.5, 1.0, 1.0), (2.0, 0.0, 0.0)]
    fitting(estimator, rows)()
    assert estimator.receipt_.what == f"{type(estimator).__name__}.fit"
    assert account.spent().epsilon == 1
    again = MAKERS[name](epsilon=1, account=account)
    with pytest.raises(BudgetExceeded):
        recorded(fitting(again, rows))
    assert not hasattr(again, "loss_")
    assert events == ["charge", "charge"]


BAD = [
    {"epsilon": 0},
    {"epsilon": math.nan},
    {"epsilon": 1, "delta": 1},
    {"epsilon": 1, "delta": -1},
    {"epsilon": 1, "unit": "person"},
    {"epsilon": 1, "rows_per_unit": 2},
    {"epsilon": 1, "rows_per_unit": 0, "unit": Unit("person")},
    {"epsilon": 1, "unit": Unit("person")},
]


@EVERY
@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_parameters_are_refused_before_anything_is_charged(name, bad):
    account = InMemoryAccount()
    with pytest.raises(InvalidInput):
        fitting(MAKERS[name](**bad, account=account), [(0.5, 1.0, 1.0)])()
    assert account.receipts == []


@EVERY
def test_noise_that_cannot_be_sampled_is_refused_before_anything_is_charged(name):
    account = InMemoryAccount()
    with pytest.raises(Unsupported):
        fitting(MAKERS[name](epsilon=1e-13, account=account), [(0.5, 1.0, 1.0)])()
    assert account.receipts == []


@pytest.mark.parametrize("bounds", [None, (0, 0), (1, 0), (0, math.inf), (math.nan, 1), 3, (0, [1, 2, 3])])
def test_bounds_must_be_declared(bounds):
    account = InMemoryAccount()
    with pytest.raises(InvalidInput, match="bounds"):
        StandardScaler(epsilon=1, bounds=bounds, account=account).fit([[1.0, 2.0]])
    assert account.receipts == []


@pytest.mark.parametrize("classes", [None, [], [0], [0, 0], 3, [[0], [1]]])
def test_classes_must_be_declared(classes):
    account = InMemoryAccount()
    with pytest.raises(InvalidInput, match="classes"):
        GaussianNB(epsilon=1, bounds=(0, 1), classes=classes, account=account).fit([[1.0]], [0])
    assert account.receipts == []


@pytest.mark.parametrize(
    ("maker", "more"),
    [
        (LogisticRegression, {"classes": [0, 1], "max_iter": 0}),
        (LogisticRegression, {"classes": [0, 1], "momentum": 1}),
        (LogisticRegression, {"classes": [0, 1], "clipping_norm": 0}),
        (LogisticRegression, {"classes": [0, 1], "n_samples": -1}),
        (LogisticRegression, {"classes": [0, 1], "alpha": -1}),
        (LinearRegression, {"target_bounds": None}),
        (LinearRegression, {"target_bounds": (0, 1), "data_norm": 0}),
        (LinearRegression, {"target_bounds": (0, 1), "alpha": -1}),
        (PCA, {"n_components": 3}),
        (PCA, {"n_components": 0}),
        (KMeans, {"n_clusters": 0}),
        (KMeans, {"max_iter": 0}),
    ],
)
def test_own_parameters_are_checked_before_the_charge(maker, more):
    account = InMemoryAccount()
    with pytest.raises(InvalidInput):
        maker(epsilon=1, bounds=(0, 1), account=account, **more).fit([[1.0, 0.5]], [0])
    assert account.receipts == []


@pytest.mark.parametrize(
    ("table", "answers"),
    [
        ([1.0, 2.0], [0, 1]),
        (np.zeros((2, 2, 2)), [0, 1]),
        (np.zeros((2, 0)), [0, 1]),
        (np.zeros((2, 2), dtype=complex), [0, 1]),
        (np.ma.masked_array(np.zeros((2, 2))), [0, 1]),
        ([[1.0], [1.0, 2.0]], [0, 1]),
        (np.zeros((2, 2)), [0, 1, 1]),
        (np.zeros((2, 2)), None),
        (np.zeros((2, 2)), np.zeros((2, 2))),
    ],
)
def test_shapes_and_types_are_checked_before_anything_is_charged(table, answers):
    account = InMemoryAccount()
    model = GaussianNB(epsilon=1, bounds=(0, 1), classes=[0, 1], account=account)
    with pytest.raises(InvalidInput):
        model.fit(table, answers)
    assert account.receipts == []


def test_units_are_required_exactly_if_the_unit_has_a_key():
    with pytest.raises(InvalidInput, match="a row is the unit"):
        StandardScaler(epsilon=1, bounds=(0, 1), account=None).fit([[1.0]], units=["a"])
    with pytest.raises(InvalidInput, match="one entry for each row"):
        StandardScaler(epsilon=1, bounds=(0, 1), unit=Unit("person"), account=None).fit(
            [[1.0]], units=["a", "b"]
        )


@pytest.mark.slow
def test_ledger_account_is_charged_for_its_own_unit_only(tmp_path):
    ledger = Ledger.open(str(tmp_path / "visits.ledger"))
    account = ledger.account("visits", Unit("patient"), hb.Budget(1, 1e-6))
    with pytest.raises(hb.Refused, match="the account protects one patient"):
        StandardScaler(epsilon=1, bounds=(0, 1), account=account).fit([[1.0]])
    assert account.remaining().epsilon == 1
    scaler = StandardScaler(epsilon=0.75, bounds=(0, 1), account=account, unit=Unit("patient"))
    assert scaler.fit([[1.0]], units=["a"]).receipt_.what == "StandardScaler.fit"
    with pytest.raises(BudgetExceeded):
        scaler.fit([[1.0]], units=["a"])
    ledger.close()


def test_budget_of_a_fit_cannot_be_spent_twice():
    measuring = FitMeasurer("a test", FitBudget.of(1))
    row = hb.Sensitivity(1)
    measuring.measure([5], row, measuring.remaining_share / 2, "a count")
    measuring.measure([5], row, measuring.remaining_share, "a count")
    with pytest.raises(hb.Refused, match="used up"):
        measuring.measure([5], row, measuring.budget.total, "a count")


# With so large an ε noise rounds to zero, and what is left is the estimator.
ENOUGH = 10**12


def some_rows(count=2000):
    place = np.arange(count)
    x = np.stack([place % 17, place % 23, (place % 17) * 0.5 + place % 5], axis=1).astype(float)
    return x, place


def test_scaler_without_noise_gives_mean_and_standard_deviation():
    x, _ = some_rows()
    scaler = StandardScaler(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), account=None).fit(x)
    assert np.allclose(scaler.mean_, x.mean(axis=0), atol=1e-3)
    assert np.allclose(scaler.scale_, x.std(axis=0), atol=1e-2)
    assert np.allclose(scaler.inverse_transform(scaler.transform(x)), x)
    assert np.allclose(
        StandardScaler(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), account=None).fit_transform(
            x
        ),
        scaler.transform(x),
    )


def test_linear_regression_without_noise_is_least_squares():
    x, _ = some_rows()
    y = x @ [1.0, -2.0, 3.0] + 4
    model = LinearRegression(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), target_bounds=(-50, 60), account=None
    ).fit(x, y)
    assert np.allclose(model.coef_, [1, -2, 3], atol=0.01)
    assert model.intercept_ == pytest.approx(4, abs=0.1)
    assert model.score(x, y) > 0.999


def test_pca_without_noise_gives_the_eigenvectors_of_the_covariance():
    x, _ = some_rows()
    pca = PCA(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), n_components=2, account=None).fit(x)
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    assert np.allclose(pca.explained_variance_, values[::-1][:2], rtol=1e-3)
    assert np.allclose(np.abs(pca.components_ @ vectors[:, ::-1][:, :2]), np.eye(2), atol=1e-3)
    back = pca.inverse_transform(pca.transform(x))
    assert ((x - back) ** 2).mean() == pytest.approx(values[0] / 3, rel=0.05)


def test_naive_bayes_without_noise_gives_the_moments_of_each_class():
    x, place = some_rows()
    y = np.where(place % 17 < 8, "low", "high")
    model = GaussianNB(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), classes=["low", "high"], account=None
    ).fit(x, y)
    assert np.allclose(model.theta_[0], x[y == "low"].mean(axis=0), atol=1e-3)
    assert np.allclose(model.var_[1], x[y == "high"].var(axis=0), atol=1e-2)
    assert np.allclose(model.class_prior_, [np.mean(y == "low"), np.mean(y == "high")])
    assert model.score(x, y) > 0.95
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)


def test_kmeans_without_noise_improves_on_one_cluster_at_the_mean():
    x, _ = some_rows()
    one = KMeans(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), n_clusters=1, account=None).fit(x)
    assert np.allclose(one.cluster_centers_[0], x.mean(axis=0), atol=1e-2)
    many = KMeans(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), n_clusters=4, max_iter=20, account=None
    ).fit(x)
    nearest = many.cluster_centers_[many.predict(x)]
    assert ((x - nearest) ** 2).sum() < ((x - x.mean(axis=0)) ** 2).sum()


@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]])
def test_logistic_regression_without_noise_separates_linear_classes(classes):
    x, _ = some_rows()
    cuts = [8.5] if len(classes) == 2 else [5.5, 11.5]
    y = np.array(classes)[np.digitize(x[:, 0], cuts)]
    model = LogisticRegression(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), classes=classes, max_iter=60, account=None
    ).fit(x, y)
    assert model.score(x, y) > 0.93
    assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    assert np.allclose(np.exp(model.predict_log_proba(x)), model.predict_proba(x))
    # A row to be predicted may be anything.
    assert model.predict([[math.nan, math.inf, -math.inf]])[0] in classes


def alike_features(count=600):
    """More features than the whole curvature is measured of, all alike: the hardest for a diagonal."""
    place = np.arange(300)
    rows = np.repeat(((place % 20 - 10) / 10)[:, None], count, axis=1)
    # One in seven labels is wrong, so that it matters how large the weights are.
    return rows, (place % 20 >= 10).astype(int) ^ (place % 7 == 0)


def test_logistic_steps_that_overshoot_are_undone():
    rows, labels = alike_features()
    model = LogisticRegression(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-1, 1), classes=[0, 1], account=None
    ).fit(rows, labels)
    assert model.score(rows, labels) > 0.85
    surprise = -np.log(model.predict_proba(rows)[np.arange(len(labels)), labels])
    assert surprise.mean() < 0.6


@pytest.mark.parametrize("price", [{"epsilon": 1}, {"epsilon": 2, "delta": 1e-5}, {"epsilon": 10**7}])
@pytest.mark.parametrize("classes", [[0, 1], [0, 1, 2]])
def test_one_row_of_many_features_moves_sums_within_their_sensitivity(price, classes):
    rows, labels = alike_features()
    estimator = LogisticRegression(bounds=(-1, 1), classes=classes, **{**UNCOUNTED, **price})
    for (l1, l2_squared, linf), row in moves(
        lambda: estimator.fit(rows, labels), lambda: estimator.fit(rows[1:], labels[1:])
    ):
        assert l1 <= row.l1
        assert l2_squared <= row.l2_squared
        assert linf <= row.linf


def test_rows_beyond_rows_per_unit_change_nothing():
    x, _ = some_rows(40)
    units = np.repeat(np.arange(20), 2)
    scaler = StandardScaler(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), unit=Unit("person"), account=None
    ).fit(x, units=units)
    assert np.allclose(scaler.mean_, x[::2].mean(axis=0), atol=1e-3)


@pytest.mark.slow
def test_estimators_need_neither_scikit_learn_nor_torch():
    code = (
        "import sys, hubbub.estimators as l;"
        "trains = {'Adaptive', 'Audit', 'CorrectedAdam', 'Trainer', 'audit', 'private'};"
        "[getattr(l, n) for n in l.__all__ if n not in trains];"
        "print(bool({'sklearn', 'torch', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        __import__("hubbub.estimators").estimators.nonsense  # noqa: B018 - the question is the test


# What a review broke, each in the smallest way to see it.


ODD = ["x", None, 0.5, b"\xff", 1j, (1, 2), float("nan"), 2**60, {}]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_one_label_in_a_list_does_not_change_the_type_of_others(odd):
    rows, answers = [[0.5]] * 50, [1] * 50
    classes = {"classes": [0, 1], "account": None}
    for model in (
        GaussianNB(epsilon=1, bounds=(0, 1), **classes),
        LogisticRegression(epsilon=1, bounds=(0, 1), max_iter=2, **classes),
        LinearRegression(epsilon=1, bounds=(0, 1), target_bounds=(0, 1), account=None),
    ):
        for moved, row in moves(
            lambda model=model: model.fit(rows, answers),
            lambda model=model: model.fit([*rows, [0.5]], [*answers, odd]),
        ):
            assert moved[0] <= row.l1


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_one_element_in_a_list_does_not_change_the_type_of_others(odd):
    rows = [[True], [False]] * 20
    scaler = StandardScaler(epsilon=1, bounds=(0, 1), account=None)
    for moved, row in moves(lambda: scaler.fit(rows), lambda: scaler.fit([*rows, [odd]])):
        assert moved[0] <= row.l1


def test_large_labels_are_compared_exactly():
    model = GaussianNB(epsilon=1, bounds=(0, 1), classes=[2**53, 2**53 + 1], account=None)
    rows, answers = [[0.5]] * 50, [2**53] * 50
    for moved, row in moves(
        lambda: model.fit(rows, answers), lambda: model.fit([*rows, [0.5]], [*answers, 0.5])
    ):
        assert moved[0] <= row.l1


def test_unit_with_a_window_is_refused():
    person = Unit("person", window=hb.Window.of("day", "2026-11"))
    with pytest.raises(hb.errors.Refused, match="window"):
        StandardScaler(epsilon=1, bounds=(0, 1), unit=person, account=None).fit([[1.0]], units=["p"])


def test_no_row_raises_or_warns_under_any_numpy_error_setting():
    rows = np.array([[1.0], [5e-324], [1e300], [math.nan], [math.inf]])
    signalling = np.array([0x7F800001, 0x3F800000], dtype=np.uint32).view(np.float32).reshape(-1, 1)
    with np.errstate(all="raise"):
        for arguments in (rows, signalling, [[np.complex128(1 + 1j)], [1.0]]):
            StandardScaler(epsilon=1, bounds=(0, 3), account=None).fit(arguments)


class Secret:
    def __array__(self, *_, **__):
        raise RuntimeError("secret 7")

    __float__ = __array__


def test_hostile_elements_and_units_raise_nothing():
    person = {"epsilon": 1, "bounds": (0, 1), "unit": Unit("person"), "account": None}
    StandardScaler(epsilon=1, bounds=(0, 1), account=None).fit([[Secret()], [1.0]])
    for units in (["a", ["b"]], ["a", b"\xff"], ["a", Secret()]):
        StandardScaler(**person).fit([[1.0], [0.5]], units=units)
    with pytest.raises(InvalidInput) as caught:
        StandardScaler(epsilon=1, bounds=(0, 1), account=None).fit(np.zeros((123, 0)))
    assert "123" not in str(caught.value)


def test_units_not_equal_to_themselves_are_ignored():
    units = np.empty(4, dtype=object)
    units[:] = [("a", float("nan")) for _ in range(4)]
    scaler = StandardScaler(
        epsilon=ENOUGH, allow_large_epsilon=True, bounds=(0, 23), unit=Unit("person"), account=None
    )
    steps = recorded(lambda: scaler.fit(np.full((4, 1), 23.0), units=units))
    assert all((step.exact == 0).all() for step in steps)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array([0, 1], mask=[True, False])
    with pytest.raises(InvalidInput, match="masked"):
        GaussianNB(epsilon=1, bounds=(0, 1), classes=[0, 1], account=None).fit([[0.1], [0.2]], masked)


def test_data_norm_is_refused_before_the_charge_or_not_at_all():
    account = InMemoryAccount()
    for norm in (0.0001, 10**6):
        model = LogisticRegression(
            epsilon=1e-5, bounds=(0, 1), classes=[0, 1], data_norm=norm, account=account, max_iter=1
        )
        try:
            model.fit([[1.0]], [0])
        except Unsupported:
            assert not account.receipts
        account.receipts.clear()


def test_account_of_another_unit_is_refused_and_cannot_be_copied():
    account = InMemoryAccount(hb.Budget(1), Unit("patient"))
    with pytest.raises(hb.errors.Refused, match="the account protects"):
        StandardScaler(epsilon=1, bounds=(0, 9), account=account).fit([[1.0]])
    with pytest.raises(hb.errors.Refused, match="cannot be copied"):
        copy.copy(account)


@pytest.mark.parametrize("kind", [GaussianNB, LogisticRegression])
def test_refusal_of_labels_does_not_depend_on_a_single_label(kind):
    """Of a nullable column numpy makes booleans, or objects where a single one is missing."""
    pandas = pytest.importorskip("pandas")
    seen = []
    for last in (True, None):
        labels = pandas.Series([True, False, True, last], dtype="boolean")
        for y in (labels, labels.array, labels.to_frame()):
            account = InMemoryAccount()
            kind(epsilon=1, bounds=(0, 1), classes=["yes", "no"], account=account).fit(np.zeros((4, 2)), y)
            seen.append(account.epsilon(1e-5) > 0)
    assert seen == [True] * 6


@pytest.mark.parametrize("kind", [GaussianNB, LogisticRegression])
def test_labels_of_another_type_than_classes_are_refused_before_the_charge(kind):
    """A column's type is public; a list has none, and each of its cells is read by itself."""
    table = np.zeros((4, 2))
    for classes, labels in (([0, 1], np.array(list("0101"))), (["0", "1"], np.array([0, 1, 0, 1]))):
        account = InMemoryAccount()
        model = kind(epsilon=1, bounds=(0, 1), classes=classes, account=account)
        with pytest.raises(InvalidInput, match="of different types"):
            model.fit(table, labels)
        assert account.epsilon(1e-5) == 0
        model.fit(table, labels.tolist())
        assert account.epsilon(1e-5) > 0


@pytest.mark.parametrize("ends", [{}, {"tz": "UTC"}])
def test_column_of_dates_is_refused_by_its_dtype(ends):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.0, 2.0], "b": pandas.date_range("2020-01-01", periods=2, **ends)})
    account = InMemoryAccount()
    with pytest.raises(InvalidInput, match="dates"):
        StandardScaler(epsilon=1, bounds=(0, 1), account=account).fit(table)
    assert account.epsilon(1e-5) == 0
    StandardScaler(epsilon=1, bounds=(0, 1), account=account).fit(table[["a"]])


def make_frame(kind, columns):
    """Three rows under these names, as some kind of data frame."""
    rows = {name: [float(place), 1.0, 2.0] for place, name in enumerate(columns)}
    library = pytest.importorskip(kind)
    return library.table(rows) if kind == "pyarrow" else library.DataFrame(rows)


@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_columns_in_another_order_are_refused(kind):
    """By their places they would stand for others, and nobody would know."""
    model = StandardScaler(epsilon=1, bounds=(0, 2), account=None).fit(make_frame(kind, "ab"))
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert model.transform(make_frame(kind, "ab")).shape == (3, 2)
    assert model.transform(np.zeros((3, 2))).shape == (3, 2)
    for other in ("ba", "ac"):
        with pytest.raises(InvalidInput, match="feature names should match"):
            model.transform(make_frame(kind, other))
    model.fit(np.zeros((3, 2)))
    assert not hasattr(model, "feature_names_in_")
    assert model.transform(make_frame(kind, "ba")).shape == (3, 2)


def test_empty_list_of_rows_is_refused():
    account = InMemoryAccount()
    model = StandardScaler(epsilon=1, bounds=(0, 1), account=account)
    with pytest.raises(InvalidInput, match=r"empty list.*numpy\.empty"):
        model.fit([])
    assert account.epsilon(1e-5) == 0
    assert model.fit(np.empty((0, 2))).n_features_in_ == 2
