"""What a synthesis releases on tiny domains: sensitivities and laws, enumerated."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import hubbub.synthesis.synthesizer as synthesizer_module
from hubbub.mechanisms import Exponential, Gaussian
from hubbub.sensitivity import unwrap
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, Domain
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.synthesizer import Schedule, synthesize
from hubbub.synthesis.table_selection import Batch, score_sensitivity, score_table
from hubbub.unit import Neighbours

DOMAIN = Domain((Column.of_categories("a", [0, 1]), Column.of_categories("b", [0, 1, 2])))
ROWS = list(product([0, 1], [0, 1, 2]))


def counts_of(rows, **options):
    values = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    return InMemoryCounts.of(DOMAIN, values, **options)


@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_scores_move_by_at_most_their_sensitivity(neighbours):
    random = np.random.default_rng(1)
    worst = 0
    for _ in range(40):
        rows = [ROWS[i] for i in random.integers(0, 6, random.integers(1, 9))]
        expected, sigma = random.gamma(1.0, size=(2, 3)), float(random.choice([0.0, 0.3, 2.0]))
        if neighbours is Neighbours.ADD_REMOVE:
            others = [[*rows, row] for row in ROWS]
        else:
            others = [[row, *rows[1:]] for row in ROWS]
        ours = counts_of(rows, neighbours=neighbours)
        before = score_table(ours, ours.count(("a", "b")), expected, sigma)
        for other in others:
            theirs = counts_of(other, neighbours=neighbours)
            after = score_table(theirs, theirs.count(("a", "b")), expected, sigma)
            worst = max(worst, abs(after - before))
            assert abs(after - before) <= score_sensitivity(ours).linf
    assert worst == score_sensitivity(ours).linf


@pytest.mark.parametrize("predicted", [0.0, 1e30, -1e30, np.inf, np.nan])
@pytest.mark.parametrize("rows", [3, 2**53, 2**60, 2**62])
def test_scores_never_wrap(rows, predicted):
    counts = counts_of([])
    expected = np.array([predicted, 4.0])
    one, two = (score_table(counts, np.array([rows + more, 5]), expected, 0.5) for more in (0, 1))
    assert 0 <= one <= 2**61
    assert abs(one - two) <= score_sensitivity(counts).linf


def test_a_selection_is_the_exponential_mechanism_on_what_fits(monkeypatch):
    # Every draw of the mechanism is replaced by each of its outcomes, with its probability: the law is exact.
    candidates = [(0,), (1,), (2,), (3,)]
    scores = [0, 1, 2, 3]
    counts = counts_of([])
    unfit = {(0,), (3,)}

    def weights(values):
        return [Fraction(2) ** int(value) for value in values]

    def law(path):
        """The outcome where draws take the places of `path`, and its probability."""
        draws = iter(path)
        probability = Fraction(1)

        def select(self, bounded):
            nonlocal probability
            place = next(draws)
            each = weights(unwrap(bounded))
            if place >= len(each):
                raise IndexError
            probability *= each[place] / sum(each)
            return SimpleNamespace(value=place)

        monkeypatch.setattr(Exponential, "release", select)
        batch = Batch(counts, candidates, scores)
        selected = batch.select(Fraction(1), lambda table: table not in unfit)
        if next(draws, None) is not None:
            raise StopIteration
        return selected, probability

    total: dict[object, Fraction] = {}
    for length in range(1, 5):
        for path in product(range(4), repeat=length):
            try:
                selected, probability = law(path)
            except (IndexError, StopIteration, RuntimeError):
                continue
            total[selected] = total.get(selected, Fraction(0)) + probability
    assert total == {(1,): Fraction(1, 3), (2,): Fraction(2, 3)}


def test_a_selection_does_not_depend_on_draws_that_did_not_fit():
    batch = Batch(counts_of([]), [(0,), (1,), (2, 3)], [10**9, 0, 0])
    assert batch.select(Fraction(1), lambda table: table != (0,)) != (0,)  # (0,) was drawn, and did not fit
    assert batch.select(Fraction(1), lambda _: True) == (0,)


def test_nothing_is_selected_where_nothing_fits_and_nested_tables_are_closed():
    batch = Batch(counts_of([]), [(0, 1), (0, 1, 2), (3, 4)], [5 * 10**9, 4 * 10**9, 0])
    assert batch.select(Fraction(1), lambda _: False) is None
    assert batch.select(Fraction(1), lambda _: True) == (0, 1)
    assert batch.select(Fraction(1), lambda _: True) == (3, 4)
    assert not batch.is_open


@pytest.fixture(params=[None, 10], ids=["all fits", "nothing fits"])
def room(request, monkeypatch):
    """The cap on cells: with a small one, all pairs are measured beside the model."""
    usual = Schedule.of
    if request.param is not None:
        change = {"max_cells": request.param}
        monkeypatch.setattr(Schedule, "of", lambda **facts: replace(usual(**facts), **change))
    return request.param


def wide_counts(count=300):
    categories = (Column.of_categories(f"c{i}", range(3)) for i in range(5))
    columns = (*categories, Column.of_numbers("x", (0, 50), unit=1))
    random = np.random.default_rng(2)
    values = {column.name: random.integers(0, 3, count).tolist() for column in columns[:-1]}
    return InMemoryCounts.of(Domain(columns), {**values, "x": random.integers(0, 51, count).astype(float)})


class Drawn(ReleaseBudget):
    """A budget that notes what is drawn from it."""

    def spend_gaussian(self, rho):
        mu = super().spend_gaussian(rho)
        self.__dict__.setdefault("gaussians", []).append(mu)
        return mu

    def spend_selection(self, rho, times=1):
        epsilon = super().spend_selection(rho, times)
        self.__dict__.setdefault("selections", []).append((epsilon, times))
        return epsilon


def recorded(monkeypatch):
    """Note every release of a mechanism: its μ², or its ε."""
    used: dict[str, list[Fraction]] = {"gaussians": [], "selections": []}
    gaussian, select = Gaussian.release, Exponential.release
    draws = []

    def noisy(self, value):
        used["gaussians"].append(self.sensitivity.l2_squared / self.scale**2)
        return gaussian(self, value)

    def selecting(self, value):
        draws.append(self.epsilon)
        return select(self, value)

    monkeypatch.setattr(Gaussian, "release", noisy)
    monkeypatch.setattr(Exponential, "release", selecting)
    return used, draws


def test_every_measurement_draws_what_its_noise_costs(monkeypatch, room):
    budget = Drawn(ReleaseBudget.of(epsilon=1, delta=1e-6).mu_squared)
    used, _ = recorded(monkeypatch)
    model = synthesize(wide_counts(), budget)
    assert bool(model.tables_beyond) == (room is not None)
    draws = budget.__dict__["gaussians"]
    assert len(used["gaussians"]) == len(draws)
    for square, mu in zip(used["gaussians"], draws, strict=True):
        assert square <= mu**2
    assert sum(used["gaussians"]) <= budget.mu_squared


@pytest.mark.slow
def test_every_selection_is_paid_for(monkeypatch, room):
    budget = Drawn(ReleaseBudget.of(epsilon=1, delta=1e-6).mu_squared)
    _, draws = recorded(monkeypatch)
    model = synthesize(wide_counts(), budget)
    paid = budget.__dict__["selections"]
    selected = sum(each.is_residual for each in model.measured)
    assert all(times == 1 for _, times in paid)
    assert len(paid) >= selected > 0
    assert bool(model.tables_beyond) == (room is not None)
    # All draws of one selection, until a table fits, have the ε that it was paid for.
    assert set(draws) <= {epsilon for epsilon, _ in paid}


@pytest.mark.slow
def test_exact_tables_reach_nothing_but_mechanisms(monkeypatch, room):
    # Noise that does not depend on the rows, and the same selections: then all releases are exact values that
    # are replaced by constants, and two different databases must give the same model.
    def release(self, value):
        return SimpleNamespace(value=np.full(value.coordinates, 7, dtype=np.int64))

    monkeypatch.setattr(Gaussian, "release", release)
    monkeypatch.setattr(Exponential, "release", lambda self, value: SimpleNamespace(value=0))
    assert synthesizer_module.Gaussian is Gaussian
    models = [
        synthesize(counts, ReleaseBudget.of(epsilon=1, delta=1e-6))
        for counts in (wide_counts(300), wide_counts(5))
    ]
    assert models[0].to_json() == models[1].to_json()
    assert bool(models[0].tables_beyond) == (room is not None)
