"""Synthetic tables: do bins, rules, caps or steps depend on rows, or cost more than they draw?

| row | what an attacker does | mutant |
|---|---|---|
| A84 | one row far out: do the cuts of the grid move? | bins_of_the_rows |
| A86 | a row in each cell: how far do the integers of prefix sums move? | norm_of_one_cell |
| A87 | tables in a ring, each of them small: how large is the model? | sum_of_tables |
| A88 | the only row of a combination, added or removed | pairs_that_occur |
| A89 | all noise of a synthesis, added up against what was drawn | rows_counted_for_nothing |
"""

from unittest.mock import patch

import numpy as np

from attacks import mutants_synthesis as mutants
from attacks.rows import Row, both_tests
from hubbub.mechanisms import Gaussian
from hubbub.synthesis.binning import fine_grid, prefix_sensitivity, transform_histogram
from hubbub.synthesis.counting import InMemoryCounts
from hubbub.synthesis.domain import Column, Condition, Domain, Rule
from hubbub.synthesis.junction_tree import JunctionTree, count_cells
from hubbub.synthesis.modelled_columns import choose_columns
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.synthesizer import synthesize

AGE = Column.of_numbers("age", (0, 30), unit=1)
PAIR = Domain(
    (Column.of_categories("a", [0, 1]), Column.of_categories("b", [0, 1])),
    rules=(Rule((Condition("a", categories=frozenset([1])), Condition("b", categories=frozenset([0])))),),
)


def declared_grid(values):
    """Ours: the cuts of the fine grid."""
    counts = InMemoryCounts.of(Domain((AGE,)), {"age": np.array(values)})
    return [*map(float, fine_grid(counts.domain.columns[0]))]


def attack_A84(target):
    """A row far out, and none."""
    rows = [3.0, 4.0, 5.0]
    return target(rows) != target([*rows, 29.0])


def integers_of_prefix_sums(histogram, counts):
    """Ours: the integers, and the square of their sensitivity."""
    return transform_histogram(histogram), prefix_sensitivity(histogram.size, counts).l2_squared


def attack_A86(target):
    """One row in each cell of an empty table."""
    counts = InMemoryCounts.of(Domain((AGE,)), {"age": np.array([])})
    size = len(fine_grid(AGE)) + 1
    for histogram in np.eye(size, dtype=np.int64):
        integers, square = target(histogram, counts)
        if sum(int(x) ** 2 for x in integers) > square:
            return True
    return False


def attack_A87(target):
    """Rings of columns of ten values: pairs of a hundred cells."""
    for columns in (4, 6, 9):
        tables = [tuple(sorted((v, (v + 1) % columns))) for v in range(columns)]
        if JunctionTree.of([10] * columns, tables).cells > target([10] * columns, tables):
            return True
    return False


def declared_masks(counts):
    """Ours: the structural zeros of the model."""
    return [mask.possible for mask in choose_columns(counts.domain).masks()]


def attack_A88(target):
    """A combination that one row has."""
    masks = []
    for rows in ([(0, 0), (1, 1)], [(0, 0), (1, 1), (0, 1)]):
        values = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
        masks.append([mask.tolist() for mask in target(InMemoryCounts.of(PAIR, values))])
    return masks[0] != masks[1]


def _run():
    """The μ² of the noise of every measurement, and of every draw from the budget."""
    used, draws = [], []
    release, spend = Gaussian.release, ReleaseBudget.spend_gaussian

    def noisy(self, value):
        used.append(self.sensitivity.l2_squared / self.scale**2)
        return release(self, value)

    def spending(self, rho):
        draws.append(2 * rho)
        return spend(self, rho)

    values = {"a": [0, 1, 0], "b": [0, 1, 1]}
    with (
        patch.object(Gaussian, "release", noisy),
        patch.object(ReleaseBudget, "spend_gaussian", spending),
    ):
        synthesize(InMemoryCounts.of(PAIR, values), ReleaseBudget.of(epsilon=1, delta=1e-6))
    return used, draws


def as_drawn(run):
    """Ours, as it is."""
    return run()


def attack_A89(target):
    """Without a declared population, the number of rows is measured, too."""
    used, draws = target(_run)
    return len(used) != len(draws) or any(a > b for a, b in zip(used, draws, strict=True))


ROWS = [
    Row("A84", attack_A84, {"grid": declared_grid}, mutants.bins_of_the_rows),
    Row("A86", attack_A86, {"prefix sums": integers_of_prefix_sums}, mutants.norm_of_one_cell),
    Row("A87", attack_A87, {"cliques": count_cells}, mutants.sum_of_tables),
    Row("A88", attack_A88, {"rules": declared_masks}, mutants.pairs_that_occur),
    Row("A89", attack_A89, {"synthesis": as_drawn}, mutants.rows_counted_for_nothing),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
