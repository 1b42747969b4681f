"""One outcome per charge: what comes out after the engine has run.

| row | what an attacker does | mutant |
|---|---|---|
| A31 | asks again after a failure that noise decided: each is a bit | only_answers_are_kept |
| A31-killed | asks again after the process was killed while it ran | only_answers_are_kept |
| A33 | has another dataset look at the exact answers to a plan | any_plan_is_looked_at |
"""

import tempfile
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pandas as pd

import hubbub as hb
import hubbub.sql.composite_plan
from attacks import mutants_outcome as mutants
from attacks.rows import Row, both_tests
from hubbub.accounting import Budget
from hubbub.sql.executor import execute

PEOPLE = pd.DataFrame({"who": range(100)})
PRICE = Fraction(1, 100)


def _open_data(folder, rows=PEOPLE):
    return hb.open(
        {"people": rows},
        unit="who",
        ledger=Path(folder) / "people.ledger",
        budget=Budget(1),
        rows_per_unit=1,
        version="1",
    )


def _run(data, plan):
    return data.run(plan).value


def _draws(target, ends):
    """How many draws of noise were observed for one charge, where runs end so after their noise is drawn."""
    observed = []

    def draw(*arguments, **options):
        done = execute(*arguments, **options)
        observed.append(done.columns[0].values[0])
        raise next(ends)

    with tempfile.TemporaryDirectory() as folder, _open_data(folder) as data:
        plan = data.sql("SELECT COUNT(*) AS n FROM people WHERE who > 1 ORDER BY n", epsilon=PRICE)
        with mock.patch.object(hubbub.sql.composite_plan, "execute", draw):
            for _ in range(10):
                with suppress(BaseException):  # that is what is observed
                    target(data, plan)
        return len(observed) / (data.account.spent().epsilon / PRICE)


def attack_A31(target):
    """Ten times the same question, which fails by an error of another class each time."""
    classes = (TypeError, MemoryError, KeyError, RecursionError, KeyboardInterrupt, SystemExit)
    return any(_draws(target, iter([kind("noise")] * 10)) > 1 for kind in classes)


def attack_A31_killed(target):
    """Ten times the same question, of a process that ends before anything is stored."""
    with mock.patch("hubbub.ledger.LedgerAccount.record_release", side_effect=OSError):
        return _draws(target, iter([TypeError()] * 10)) > 1


def attack_A33(target):
    """The plan was made for other rows, with other limits."""
    folder = tempfile.TemporaryDirectory
    with folder() as one, folder() as two, _open_data(one) as mine, _open_data(two, PEOPLE[:7]) as theirs:
        plan = mine.sql("SELECT COUNT(*) AS n FROM people", epsilon=PRICE)
        try:
            return target(theirs, plan)["n"] == [7]
        except hb.HubbubError:
            return False


OURS = {"run": _run}
ROWS: list[Row] = [
    Row("A31", attack_A31, OURS, mutants.only_answers_are_kept),
    Row("A31-killed", attack_A31_killed, OURS, mutants.only_answers_are_kept),
    Row("A33", attack_A33, {"exact": hb.Dataset.exact}, mutants.any_plan_is_looked_at),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
