"""Synopses: does anything about the cells, the noise or the charge depend on rows, or fall short?

| row | what an attacker does | mutant |
|---|---|---|
| A78 | a row with a category that nobody else has | categories_of_the_rows |
| A79 | one unit in every cell of small tables: how far do the integers move? | rows_scaled_up |
| A80 | the same, a unit substituted by another | substitution_as_two_units |
| A81 | all noise of a synopsis, added up against its charge | free_row_count |
| A82 | one person with a thousand rows | rows_as_they_are |
| A83 | many selections against the ρ that was drawn for them | batch_charged_once |
| A90 | the worst selection for each outcome of an earlier measurement | selection_beside_the_past |
| A91 | one row in every table of a pure ε | tables_in_parallel |
"""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd

import hubbub as hb
from attacks import mutants_synopsis as mutants
from attacks.rows import Row, both_tests
from hubbub.synthesis.domain import Column, Domain
from hubbub.synthesis.laplace_tables import plan_laplace
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.residuals import ResidualNoise
from hubbub.synthesis.synopsis_plan import make_counts
from hubbub.synthesis.workload import Workload, plan_noise
from hubbub.unit import Neighbours, Unit
from internals import engine_of

SHAPES = [(2,), (5,), (2, 2), (2, 3), (4, 5), (2, 2, 3)]


def declared_cells(values):
    """Ours: the cells of a plan."""
    frame = pd.DataFrame({"x": list(values)})
    with hb.open(frame, table="t", unit=hb.Unit.row(), keys={"x": ["a", "b"]}) as data:
        plan = data.plan_synopsis(1, epsilon=1, delta=1e-6)
    return [plan.domain.columns[0].label(cell) for cell in range(plan.domain.columns[0].size)]


def attack_A78(target):
    """A rare category more, and one less."""
    rows = ["a", "b", "a"]
    return len({tuple(target(each)) for each in (rows, [*rows, "rare"], rows[:1])}) > 1


def integers_of_cells(shape, neighbours):
    """Ours: the integers of one unit in each cell, and the square of their sensitivity."""
    noise = ResidualNoise(shape, Unit.row(neighbours), 1, 1, Fraction(1, 5))
    cells = int(np.prod(shape))
    tables = np.eye(cells, dtype=np.int64).reshape(cells, *shape)
    return np.stack([noise.integers(table) for table in tables]), noise.sensitivity.l2_squared


def _squares(vectors):
    return [sum(int(x) ** 2 for x in vector) for vector in vectors]


def attack_A79(target):
    """The longest move of one unit."""
    for shape in SHAPES:
        vectors, square = target(shape, Neighbours.ADD_REMOVE)
        if max(_squares(vectors)) > square:
            return True
    return False


def attack_A80(target):
    """The longest move from one cell to another."""
    for shape in SHAPES:
        vectors, square = target(shape, Neighbours.SUBSTITUTE)
        if max(_squares(one - two for one, two in product(vectors, repeat=2))) > square:
            return True
    return False


def all_noise(plan):
    """Ours: ρ of every measurement, and of the charge."""
    return [plan.noise(names).mechanism.loss().rho for names in plan.workload.residuals], plan.mu_squared / 2


def attack_A81(target):
    """Plans of several workloads."""
    domain = Domain(tuple(Column.of_categories(name, "xyz"[: 2 + index]) for index, name in enumerate("ab")))
    for ways in (1, 2):
        plan = plan_noise(
            Workload.all_up_to(domain, ways), mu_squared=Fraction(1, 20), unit=Unit.row(), objective="tables"
        )
        measured, charged = target(plan)
        if sum(measured) > charged:
            return True
    return False


def table_in_engine(rows, limit):
    """Ours: what the engine counts in each cell, in rows, and the most that one person may move."""
    frame = pd.DataFrame(rows, columns=["who", "x"])
    domain = Domain((Column.of_categories("x", [0.0, 1.0, 2.0]),))
    with hb.open(frame, table="t", unit="who") as data:
        counts = make_counts(engine_of(data), data.tables["t"], domain, data.unit, max_weight=limit)
        table = counts.count(("x",))
    return Counter(dict(enumerate((table / counts.scale).tolist()))), limit


def attack_A82(target):
    """A person who has very many rows, in one cell or all over."""
    others = [(who, float(who % 3)) for who in range(2, 12)]
    before, most = target(others, 2)
    for own in ([(1, 1.0)] * 1000, [(1, float(place % 3)) for place in range(1000)]):
        after, _ = target(others + own, 2)
        if sum(abs(after[cell] - before[cell]) for cell in {*before, *after}) > most:
            return True
    return False


def selections_of_a_batch(budget, rho, times):
    """Ours: ε of each selection, and how many there are."""
    return budget.spend_selection(rho, times), times


def attack_A83(target):
    """The ρ of zCDP of all selections together: ε²/8 each."""
    for times in (1, 3, 50):
        budget = ReleaseBudget.of(epsilon=1, delta=1e-6)
        epsilon, count = target(budget, budget.rho / 10, times)
        if count * epsilon**2 / 8 > 2 * budget.spent / 2:
            return True
    return False


def selection_after_a_measurement(budget, rho):
    """Ours: ε of one selection."""
    return budget.spend_selection(rho)


def _tail(places):
    return np.array([math.erfc(place / math.sqrt(2)) / 2 for place in places.tolist()])


def _gaussian_delta(square, log_ratio):
    """δ of Gaussian noise at many ε."""
    if square < 1e-12:
        return np.maximum(1 - np.exp(np.minimum(log_ratio, 0)), 0)
    mu = square**0.5
    near, far = (_tail(log_ratio / mu + sign * mu / 2) for sign in (-1, 1))
    return near - np.exp(log_ratio) * far


def _selection_delta(epsilon, later, log_ratio):
    """The largest δ of a selection of bounded range ε and Gaussian noise after it, at many ε."""
    worst = np.zeros_like(log_ratio)
    for high in np.linspace(0.05, 0.95, 19) * epsilon:
        low = high - epsilon
        likely = np.expm1(-low) / (np.exp(-low) - np.exp(-high))
        delta = likely * _gaussian_delta(later, log_ratio - high)
        worst = np.maximum(worst, delta + (1 - likely) * _gaussian_delta(later, log_ratio - low))
    return worst


def attack_A90(target):
    """A measurement; then a selection or another measurement, by its outcome; then all that is left."""
    for share, later in ((20, 0), (20, 5), (8, 40), (8, 0)):
        budget = ReleaseBudget.of(epsilon=1, delta=1e-6)
        total, figure = float(budget.mu_squared), float(budget.mu_squared) / share
        left = total * later / 100
        first = total - figure - left
        budget.spend_gaussian(Fraction(first * (1 - 1e-12)) / 2)
        epsilon = float(target(budget, Fraction(figure * (1 - 1e-9)) / 2))
        loss = np.linspace(first / 2 - 12 * first**0.5, first / 2 + 12 * first**0.5, 1601)
        density = np.exp(-((loss - first / 2) ** 2) / (2 * first)) / (2 * np.pi * first) ** 0.5
        worst = np.maximum(
            _selection_delta(epsilon, left, 1 - loss), _gaussian_delta(figure + left, 1 - loss)
        )
        if (density * worst).sum() * (loss[1] - loss[0]) > budget.loss.delta(1) * 1.0001:
            return True
    return False


def laplace_noise(plan):
    """Ours: the noise of each table at a pure ε."""
    return [plan.noise(names) for names in plan.shares]


def attack_A91(target):
    """A row more in every table: the log ratio of the likeliest outcomes, exactly."""
    domain = Domain(tuple(Column.of_categories(name, [0, 1]) for name in "abc"))
    for neighbours, moved in ((Neighbours.ADD_REMOVE, 1), (Neighbours.SUBSTITUTE, 2)):
        plan = plan_laplace(
            Workload.all_up_to(domain, 2), epsilon=Fraction(1), unit=Unit("who", neighbours), max_weight=4
        )
        losses = (4 * moved * noise.factor / noise.mechanism.scale for noise in target(plan))
        if sum(losses) > plan.epsilon:
            return True
    return False


ROWS = [
    Row("A78", attack_A78, {"plan": declared_cells}, mutants.categories_of_the_rows),
    Row("A79", attack_A79, {"residual": integers_of_cells}, mutants.rows_scaled_up),
    Row("A80", attack_A80, {"residual": integers_of_cells}, mutants.substitution_as_two_units),
    Row("A81", attack_A81, {"plan": all_noise}, mutants.free_row_count),
    Row("A82", attack_A82, {"engine": table_in_engine}, mutants.rows_as_they_are),
    Row("A83", attack_A83, {"budget": selections_of_a_batch}, mutants.batch_charged_once),
    Row("A90", attack_A90, {"budget": selection_after_a_measurement}, mutants.selection_beside_the_past),
    Row("A91", attack_A91, {"plan": laplace_noise}, mutants.tables_in_parallel),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
