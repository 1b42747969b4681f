"""The estimators are asked as scikit-learn asks its own: its checks, pipelines, clones, searches."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_clusterer, is_regressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import hubbub as hb
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import BudgetExceeded, InvalidInput, Refused
from hubbub.estimators import PCA, GaussianNB, KMeans, LinearRegression, LogisticRegression, StandardScaler
from training.classes_from_labels import GaussianNBFromLabels, LogisticRegressionFromLabels

# So large that noise rounds to zero: the checks are about behaviour, on rows that are nobody's.
ENOUGH = 1e12

BY_DESIGN = {
    "check_dtype_object": "a cell that is no number makes its row count as none: an error would tell of it",
    "check_estimators_empty_data_messages": "that there are no rows is a secret, too",
    "check_supervised_y_2d": "a column of one is taken as it is: nothing warns",
    "check_supervised_y_no_nan": "a row with an answer that is not finite counts as none",
    "check_classifiers_regression_target": "labels that were not declared count as none",
    "check_fit2d_1sample": "classes are declared, two or more; the check has one",
    "check_estimator_sparse_array": "there is no with_mean to switch off for sparse rows, which are refused",
    "check_estimator_sparse_matrix": "there is no with_mean to switch off for sparse rows, which are refused",
    "check_clustering": "labels_ of the training rows would be their secrets",
}


@pytest.mark.sweep(5)
@pytest.mark.filterwarnings("ignore")  # the checks raise warnings of their own
@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegressionFromLabels(
            epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-20, 20), classes=(0, 1), account=None
        ),
        GaussianNBFromLabels(
            epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-20, 20), classes=(0, 1), account=None
        ),
        LinearRegression(
            epsilon=ENOUGH,
            allow_large_epsilon=True,
            bounds=(-20, 20),
            target_bounds=(-500, 500),
            account=None,
        ),
        PCA(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-20, 20), account=None),
        KMeans(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-20, 20), n_clusters=3, account=None),
        StandardScaler(epsilon=ENOUGH, allow_large_epsilon=True, bounds=(-20, 20), account=None),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scikit_learns_checks_pass_except_those_that_would_leak(estimator):
    results = check_estimator(estimator, expected_failed_checks=BY_DESIGN, on_fail=None)
    status = {result["check_name"]: result["status"] for result in results}
    assert [name for name, actual in status.items() if actual == "failed"] == []
    assert sum(actual == "passed" for actual in status.values()) >= 30


def rows(count=400):
    x = np.arange(count) % 20
    return np.stack([x, 20 - x], axis=1).astype(float), np.where(x < 10, "low", "high")


def test_a_pipeline_spends_from_one_account():
    x, y = rows()
    account = InMemoryAccount(hb.Budget(2))
    pipeline = make_pipeline(
        StandardScaler(epsilon=1, bounds=(0, 20), account=account),
        LogisticRegression(epsilon=1, bounds=(-3, 3), classes=["low", "high"], account=account),
    )
    assert pipeline.fit(x, y).predict(x).shape == (400,)
    assert account.spent().epsilon == 2
    assert [receipt.what for receipt in account.receipts] == ["StandardScaler.fit", "LogisticRegression.fit"]
    with pytest.raises(BudgetExceeded):
        pipeline.fit(x, y)


def test_clones_copies_and_searches_spend_from_the_same_account():
    x, y = rows()
    account = InMemoryAccount()
    model = GaussianNB(epsilon=1, bounds=(0, 20), classes=["low", "high"], account=account)
    for other in (clone(model), copy.copy(model), copy.deepcopy(model), clone(Pipeline([("m", model)]))["m"]):
        assert other is not model
        assert other.account is account
    cross_val_score(model, x, y, cv=4)
    assert account.spent().epsilon == 4
    GridSearchCV(model, {"epsilon": [1, 2]}, cv=2, refit=False).fit(x, y)
    assert account.spent().epsilon == 4 + 2 * (1 + 2)


def test_unpickled_estimator_predicts_but_cannot_spend():
    x, y = rows()
    account = InMemoryAccount(hb.Budget(1))
    model = GaussianNB(epsilon=1, bounds=(0, 20), classes=["low", "high"], account=account).fit(x, y)
    stored = pickle.loads(pickle.dumps(model))  # noqa: S301 - it was made here
    assert stored.predict(x).tolist() == model.predict(x).tolist()
    with pytest.raises(Refused, match="pickled without its account"):
        stored.fit(x, y)
    assert model.account is account


def test_get_params_set_params_and_repr():
    model = KMeans(epsilon=1, bounds=(0, 1), account=None)
    assert model.get_params()["n_clusters"] == 8
    assert model.set_params(n_clusters=3) is model
    assert repr(model) == "KMeans(epsilon=1, bounds=(0, 1), account=None, n_clusters=3)"
    with pytest.raises(InvalidInput, match="n_cluster is not a parameter"):
        model.set_params(n_cluster=3)


def test_scikit_learn_tags():
    assert is_classifier(LogisticRegression(epsilon=1, bounds=(0, 1), classes=(0, 1), account=None))
    assert is_regressor(LinearRegression(epsilon=1, bounds=(0, 1), target_bounds=(0, 1), account=None))
    assert is_clusterer(KMeans(epsilon=1, bounds=(0, 1), account=None))


def test_unfitted_estimator_raises_not_fitted():
    with pytest.raises(InvalidInput, match="not fitted yet"):
        PCA(epsilon=1, bounds=(0, 1), account=None).transform([[1]])
