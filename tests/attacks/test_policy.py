"""One policy, in the library.

| row | what an attacker does | mutant |
|---|---|---|
| A48 | asks with a δ at which somebody is published outright | any_delta_below_one |
| A49 | asks with an ε at which answers are exact | any_epsilon |
| A50 | fits ten models, each of which says what one costs | nobody_keeps_count |
"""

from fractions import Fraction

import numpy as np
import pandas as pd

import hubbub as hb
from attacks import mutants_policy as mutants
from attacks.rows import Row, both_tests
from hubbub.accounting import Budget
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import HubbubError
from hubbub.estimators import GaussianNB, StandardScaler
from hubbub.mechanisms import Gaussian, StabilityHistogram, choose_additive_noise, choose_partition_selection

PEOPLE = pd.DataFrame({"who": range(50), "g": ["a"] * 50})


def _plan(population=None, **price):
    data = hb.open({"people": PEOPLE}, unit="who", rows_per_unit=1, population=population)
    return data.sql("SELECT g, COUNT(*) AS n FROM people GROUP BY g", **price)


def _fit(population=None, delta=0, epsilon=1):
    options = {"population": population, "delta": delta, "epsilon": epsilon, "account": None}
    return StandardScaler(bounds=(0, 1), **options).fit([[0.5]])


def _is_taken(spend, *arguments):
    try:
        spend(*arguments)
    except (HubbubError, ValueError):
        return False
    return True


def attack_A48(target):
    """Above 1/1000 where nobody said how many there are, and from 1/population on where somebody did."""
    large = [(0.9, None), (0.5, None), (0.002, None), (Fraction(1, 20), 20), (Fraction(1, 2), 50)]
    small = [(1e-3, None), (1e-6, 50), (Fraction(1, 60), 50)]
    assert all(_is_taken(target, *arguments) for arguments in small)
    return any(_is_taken(target, *arguments) for arguments in large)


def attack_A49(target):
    """A million, and a hair more than twenty."""
    assert _is_taken(target, 20)
    return any(_is_taken(target, epsilon) for epsilon in (10**6, 21, 20 + Fraction(1, 10**6)))


def attack_A50(target):
    """Who reads what was spent, or the label, does not learn how many fits there were."""
    fits, spent, label = target()
    return spent < fits * Fraction(1, 2) and label.get("account") != "not charged to any account"


def _searched():
    """A search over five models with two folds: ten fits, and one more of the best."""
    from sklearn.model_selection import GridSearchCV

    account = InMemoryAccount()
    model = GaussianNB(epsilon=0.5, bounds=(0, 1), classes=[0, 1], account=account)
    rows = np.array([[0.0], [1.0], [0.1], [0.9]])
    search = GridSearchCV(model, {"rows_per_unit": [1] * 5}, cv=2).fit(rows, [0, 1, 0, 1])
    return 11, account.spent().epsilon, search.best_estimator_.release_.label()


def _stated():
    model = GaussianNB(epsilon=0.5, bounds=(0, 1), classes=[0, 1], account=None)
    for _ in range(10):
        model.fit([[0.0], [1.0]], [0, 1])
    return 10, Fraction(1, 2), model.release_.label()


def _unsaid():
    try:
        GaussianNB(epsilon=0.5, bounds=(0, 1), classes=[0, 1]).fit([[0.0], [1.0]], [0, 1])
    except hb.InvalidInput:
        return 0, 0, {}
    return 1, 0, {}


ROWS: list[Row] = [
    Row(
        "A48",
        attack_A48,
        {
            "budget": lambda delta, people: Budget(1, delta, population=people),
            "plan": lambda delta, people: _plan(people, epsilon=1, delta=delta),
            "fit": lambda delta, people: _fit(people, delta=delta),
            "gaussian": lambda delta, people: Gaussian.of(
                sensitivity=1, epsilon=1, delta=delta, population=people
            ),
            "gaussian error": lambda delta, people: Gaussian.for_error(9, delta=delta, population=people),
            "least noise": lambda delta, people: choose_additive_noise(
                sensitivity=1, epsilon=1, delta=delta, population=people
            ),
            "keys": lambda delta, people: choose_partition_selection(
                max_groups=1, epsilon=1, delta=delta, population=people
            ),
            "histogram": lambda delta, people: StabilityHistogram.of(
                noise=Gaussian(5, 1), max_groups=1, delta=delta, population=people
            ),
        },
        mutants.any_delta_below_one,
    ),
    Row(
        "A49",
        attack_A49,
        {
            "budget": Budget,
            "plan": lambda epsilon: _plan(epsilon=epsilon, delta=1e-6),
            "fit": lambda epsilon: _fit(epsilon=epsilon),
        },
        mutants.any_epsilon,
    ),
    Row(
        "A50",
        attack_A50,
        {"searched": _searched, "said": _stated, "unsaid": _unsaid},
        mutants.nobody_keeps_count,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
