"""Who pays: an account, or nobody where that is said; and every label says which."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import nn

import hubbub as hb
from hubbub.errors import InvalidInput, Refused
from hubbub.estimators import GaussianNB
from hubbub.training import make_private

ROWS, LABELS = np.array([[0.0], [1.0]] * 10), np.array([0, 1] * 10)


def bayes(**options):
    return GaussianNB(epsilon=0.5, bounds=(0, 1), classes=[0, 1], **options)


def run(**options):
    model = nn.Linear(2, 2)
    data = (torch.zeros(20, 2), torch.zeros(20, dtype=torch.long))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {
        "clipping_norm": 1.0,
        "sampling_rate": 0.5,
        "steps": 1,
        "lot_size": 10,
        "loss": nn.functional.cross_entropy,
    }
    return make_private(model, optimizer, data, **{**settings, "noise_multiplier": 9.0, **options})


@pytest.mark.parametrize("spend", [lambda **options: bayes(**options).fit(ROWS, LABELS), run])
@pytest.mark.parametrize("options", [{}, {"account": "visits"}])
def test_missing_account_is_refused(spend, options):
    with pytest.raises(InvalidInput, match="account is not given") as error:
        spend(**options)
    assert "account=None" in error.value.fix


@pytest.mark.parametrize(
    "release",
    [lambda account: bayes(account=account).fit(ROWS, LABELS).release_,
     lambda account: run(account=account).run(progress=False)],
)  # fmt: skip
def test_label_says_that_no_account_was_charged(release):
    assert release(None).label()["account"] == "not charged to any account"
    assert "account" not in release(hb.InMemoryAccount()).label()


def test_all_fits_of_a_cross_validation_are_charged():
    account = hb.InMemoryAccount(hb.Budget(5))
    model = bayes(account=account)
    cross_val_score(model, ROWS, LABELS, cv=10)
    assert account.spent().epsilon == 5
    with pytest.raises(hb.Refused, match="does not fit"):
        clone(model).fit(ROWS, LABELS)


def test_copies_without_an_account_are_refused_too():
    for copy in (clone(bayes()), pickle.loads(pickle.dumps(bayes()))):  # noqa: S301 - our own
        with pytest.raises(InvalidInput, match="account is not given"):
            copy.fit(ROWS, LABELS)


def test_run_budget_follows_the_delta_and_epsilon_policy():
    with pytest.raises(Refused, match="above 1/1000"):
        run(account=None, noise_multiplier=None, budget=hb.Budget(3, 0.5))
    with pytest.raises(Refused, match="above 20"):
        run(account=None, noise_multiplier=None, budget=hb.Budget(21, 1e-5))
