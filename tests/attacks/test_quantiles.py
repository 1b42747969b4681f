"""Quantiles by the exponential mechanism: do neighbours tell themselves apart by more than e^ε?

| row | what an attacker does | mutant |
|---|---|---|
| A75 | one row more at an end, then the ratio of all probabilities, in fractions | half_the_span |
| A76 | one row more, so that half of the rows is a whole number or not | rank_rounded_by_the_data |
| A85 | one row more in a cell that had none, where a round number weighs more | round_numbers_of_the_rows |
| A77 | one person with a thousand rows | rows_counted_as_they_are |
| A92 | one row more at the end: do the same released integers show another maximum? | moved_by_exact_counts |
"""

from fractions import Fraction

import numpy as np
import pandas as pd

import hubbub as hb
from attacks import mutants_quantiles as mutants
from attacks.rows import Row, both_tests
from internals import engine_of
from sql.tiny_quantiles import exact_law, make_selection, power_of_two, vectors, worst_ratio

HALF = Fraction(1, 2)


def law_of(counts):
    """Ours: the law of a median of these cells, and e^ε."""
    selection = make_selection((HALF,), 1, weights=(1,) * len(counts), parts=1)
    return exact_law(selection, counts), Fraction(2) ** power_of_two(selection)


def _leaks(target, databases):
    for one in databases:
        law, most = target(one)
        for place in range(len(one)):
            more = tuple(count + (cell == place) for cell, count in enumerate(one))
            high, low = worst_ratio(law, target(more)[0])
            if max(high, 1 / low) > most or high / low > most:
                return True
    return False


def attack_A75(target):
    """All databases of five cells with up to four rows, and one with more in the middle."""
    return _leaks(target, [*vectors(5, 4), (1, 0, 4, 0, 1)])


def round_law_of(counts):
    """Ours: as `law_of`, with a round number in two cells."""
    numbers = ((0, 0, 30), (3, 0, 20))
    selection = make_selection((HALF,), 1, weights=(1,) * len(counts), parts=1, round_numbers=numbers)
    return exact_law(selection, counts), Fraction(2) ** power_of_two(selection)


def attack_A85(target):
    """All databases of five cells with up to three rows."""
    return _leaks(target, vectors(5, 3))


def attack_A76(target):
    """The same."""
    return _leaks(target, [*vectors(5, 4), (1, 0, 4, 0, 1)])


def cells_of_rows(rows):
    """Ours: what the engine counts in each cell, and how far one person may move it all."""
    frame = pd.DataFrame(rows, columns=["who", "x"])
    with hb.open(frame, table="t", unit="who", rows_per_unit=1, bounds={"x": (0, 8)}) as data:
        [plan] = data.sql("SELECT MEDIAN(x) AS m FROM t", epsilon=1).aggregates
        result = engine_of(data).execute(plan.bounded.sql, plan.bounded.key_sets)
    counts = dict(zip(result["b"].tolist(), result["m0"].tolist(), strict=True))
    return counts, plan.selection.weight


def attack_A77(target):
    """A person who has very many rows, in one cell or all over."""
    others = [(who, float(who % 8)) for who in range(2, 12)]
    before, most = target(others)
    for own in ([(1, 3.0)] * 1000, [(1, place / 125) for place in range(1000)]):
        after, _ = target(others + own)
        moved = sum(abs(after.get(cell, 0) - before.get(cell, 0)) for cell in {*before, *after})
        if moved > most:
            return True
    return False


def maximum_shown(rows, released):
    """Ours: the maximum that is shown for released integers, a position and noisy counts around it."""
    frame = pd.DataFrame({"x": rows})
    with hb.open(frame, table="t", unit=hb.Unit.row(), bounds={"x": (0, 8)}) as data:
        [plan] = data.sql("SELECT MAX(x) AS m FROM t", epsilon=1).aggregates
        table = np.array([released], dtype=np.int64)
        assert table.shape[1] == plan.vector_size
        return float(plan.make_estimator(table)(0, Fraction(19, 20)).value[0])


def attack_A92(target):
    """Counts that show nothing, or rows in the last bin; one row or eight more at the end."""
    rows = [place / 10 for place in range(30)]
    for last in (0, 50):
        released = [20_000 * 16, *(0,) * 32, last]
        if len({target(rows + [7.9] * more, released) for more in (0, 1, 8)}) > 1:
            return True
    return False


ROWS = [
    Row("A92", attack_A92, {"maximum": maximum_shown}, mutants.moved_by_exact_counts),
    Row("A85", attack_A85, {"median": round_law_of}, mutants.round_numbers_of_the_rows),
    Row("A75", attack_A75, {"median": law_of}, mutants.half_the_span),
    Row("A76", attack_A76, {"median": law_of}, mutants.rank_rounded_by_the_data),
    Row("A77", attack_A77, {"median": cells_of_rows}, mutants.rows_counted_as_they_are),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
