"""Queries torn apart and put together at random: nothing crashes, and what is accepted keeps its claim."""

import random
import re

import pytest

from hubbub.errors import HubbubError
from hubbub.sql.composite_plan import CompositePlan
from hubbub.unit import Unit
from sql.neighbours import (
    AGGREGATES,
    ALONE,
    BOUNDS,
    BY_UNIT,
    CONDITIONS,
    GROUPINGS,
    JOINED,
    LISTS,
    SPELLINGS,
    UNIT_AGGREGATES,
    Case,
    World,
    compared,
)
from sql.test_sensitivity import check

WORDS = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN ON USING AND OR NOT IN IS NULL CASE WHEN THEN ELSE
END AS t s p t.x t.y t.g t.u t.h x y g u ( ) , * + - / % 1 0 -1 1e308 1e999 'a' '' "x" COUNT SUM AVG
MEDIAN DISTINCT FILTER WITH UNION ALL CAST DOUBLE VARCHAR INT DATE LEFT CROSS QUANTILE_CONT
PERCENTILE_CONT WITHIN OVER MIN MAX ROUND LEAST SUBSTRING EXTRACT year . [ ] { } ; -- /* => = < > || ::
:x ? $1 DATE_TRUNC COALESCE NULLIF LIKE BETWEEN _unit _rows contribution_bounds_per_group
FULL RIGHT NATURAL UNNEST gs xs UNNEST(gs) LEN(gs) EXISTS QUALIFY PARTITION ROW_NUMBER() RANK() LAG
INTERSECT EXCEPT
DISTINCT ON ROLLUP CUBE GROUPING SETS PIVOT STRFTIME REGEXP_MATCHES LIST_CONTAINS ROWS PRECEDING
DIFFERENTIAL_PRIVACY OPTIONS epsilon hubbub_per_group COUNT() SUM() error() rowid k0 x0
""".split()  # noqa: SIM905 - as one reads SQL


def whole(rng):
    """A query that is well formed."""
    grouping, _ = rng.choice(GROUPINGS)
    items = [*grouping, *(rng.choice(AGGREGATES + UNIT_AGGREGATES) for _ in range(rng.randint(1, 2)))]
    parts = ["SELECT", ", ".join(items), "FROM", rng.choice(ALONE + JOINED + BY_UNIT + SPELLINGS + LISTS)]
    parts += ["WHERE", rng.choice(CONDITIONS)] if rng.random() < 0.5 else []
    parts += ["GROUP BY", ", ".join(grouping)] if grouping else []
    parts += ["HAVING COUNT(*) > 3"] if rng.random() < 0.3 else []
    parts += ["ORDER BY 1 DESC LIMIT 2"] if rng.random() < 0.3 else []
    return " ".join(parts)


def torn(rng, text):
    """The same with some words lost, added, changed or moved."""
    words = re.findall(r"'[^']*'|\w+|\s+|[^\w\s]", text)
    for _ in range(rng.randint(0, 3)):
        place, other = rng.randrange(len(words)), rng.randrange(len(words))
        done = rng.randrange(4)
        if done == 0:
            words[place] = ""
        elif done == 1:
            words[place] += f" {rng.choice(WORDS)} "
        elif done == 2:
            words[place] = rng.choice(WORDS)
        else:
            words[place], words[other] = words[other], words[place]
    return "".join(words)


def fuzzed(count, seed):
    rng, world, accepted = random.Random(seed), World.of(Unit("u"), has_lists=True), 0
    for _ in range(count):
        text = torn(rng, whole(rng))
        try:
            plan = world.dataset.sql(text, epsilon=1, delta=1e-6, bounds=BOUNDS, rows_per_unit=2)
        except HubbubError:
            continue  # any refusal will do; anything else is a crash
        str(plan)
        for part in plan.parts if isinstance(plan, CompositePlan) else [plan]:
            query = Case(part, text)
            check(query, compared(rng, world, query))
        accepted += 1
    return accepted


def test_queries_neither_crash_nor_exceed_their_sensitivity():
    assert fuzzed(12, "short") > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(25))
def test_many_queries_neither_crash_nor_exceed_their_sensitivity(seed):
    assert fuzzed(1000, seed) > 50
