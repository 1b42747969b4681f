"""Queries by chance, with `test_fuzz` fifty thousand: refused, or within the sensitivity they claim."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

import hubbub as hb
from hubbub.sql.composite_plan import CompositePlan
from sql.grammar import Grammar
from sql.seeds import count_accepted
from sql.worlds import Worlds, moves_too_far

UNITS = {"key": hb.Unit("patient"), "row": hb.Unit.row()}
WORLDS = 6
AROUND = [
    "SELECT * FROM ({0}) AS w",
    "SELECT COUNT(*) AS n FROM ({0})",
    "WITH w AS ({0}) SELECT *, ROW_NUMBER() OVER () AS r FROM w",
    "{0} UNION ALL {0}",
    "SELECT (SELECT COUNT(*) FROM visits) AS n, w.* FROM ({0}) AS w",
    "{0} UNION {0}",
    "SELECT * FROM ({0}) AS w QUALIFY RANK() OVER (ORDER BY o0) < 3",
    "SELECT g0, SUM(o0) AS o FROM ({0}) AS w GROUP BY ROLLUP (g0)",
    "SELECT g0, SUM(o0) AS o FROM ({0}) AS w GROUP BY GROUPING SETS ((g0), ())",
    "PIVOT ({0}) ON g0 IN ('a', 'b') USING SUM(o0)",
    "PIVOT visits ON region IN ('a', 'b') USING SUM(cost) GROUP BY ok",
    "PIVOT visits ON region IN ('a') USING COUNT(*), AVG(cost) AS c GROUP BY EXTRACT(quarter FROM day)",
    "SELECT w.*, t.size FROM ({0}) AS w LEFT JOIN towns AS t ON w.g0 = t.town",
    "SELECT o0 FROM ({0}) AS w WHERE g0 IN (SELECT town FROM towns WHERE size > 1)",
]
"""SQL over released values, or over rows, where what is inside has those."""
SOURCES = [
    "(SELECT * FROM visits WHERE patient IN (SELECT patient FROM people WHERE age > 1)) AS visits",
    "(SELECT * FROM visits v WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.patient = v.patient))",
    "(SELECT visits.* FROM visits, people WHERE visits.patient = people.patient) AS visits",
    "(SELECT * FROM visits QUALIFY ROW_NUMBER() OVER (PARTITION BY patient ORDER BY cost) = 1) AS visits",
    "(SELECT patient, region, SUM(cost) OVER (PARTITION BY patient ORDER BY day) AS cost, day FROM visits)",
    "(SELECT patient, region, cost, day, age FROM visits FULL JOIN people USING (patient)) AS visits",
    "(SELECT patient, region, cost, note, age FROM people RIGHT JOIN visits USING (patient)) AS visits",
    "(SELECT * FROM visits NATURAL JOIN people) AS visits",
    "(SELECT DISTINCT ON (patient) * FROM visits ORDER BY patient, cost DESC) AS visits",
    "(SELECT * FROM visits v WHERE cost > (SELECT AVG(age) FROM people p WHERE p.patient = v.patient))",
    "(SELECT * FROM visits v WHERE ok OR EXISTS (SELECT 1 FROM people p WHERE p.patient = v.patient))",
    "(SELECT * FROM visits WHERE region IN (SELECT town FROM towns WHERE size > 1)) AS visits",
    "(SELECT patient, region, cost, day FROM visits UNION SELECT patient, town, age, NULL FROM people)",
    (
        "(SELECT patient, region, cost - LAG(cost) OVER (PARTITION BY patient ORDER BY seen) AS cost, "
        "FIRST_VALUE(day) OVER (PARTITION BY patient ORDER BY cost) AS day FROM visits) AS visits"
    ),
    (
        "(SELECT patient, STRFTIME(day, '%A') AS region, DATE_DIFF('day', day, seen) AS cost, "
        "REGEXP_EXTRACT(note, '[a-z]+') AS note FROM visits) AS visits"
    ),
]
"""Other spellings of rows, and windows of one unit."""


@cache
def worlds(unit: str, seed: int) -> Worlds:
    return Worlds.of(seed, UNITS[unit])


def options(random: Random) -> dict:
    """Limits and prices as a person might give them."""
    arguments = {"delta": random.choice([0, 1e-6, 1e-6]), "epsilon": random.choice([1, 0.1, 10])}
    for name in ("rows_per_unit", "groups_per_unit", "rows_per_group"):
        if random.random() < 0.5:
            arguments[name] = random.choice([1, 2, 3, 5])
    if random.random() < 0.1:
        arguments["bounds"] = {
            "cost": random.choice(["auto", (-1, 1), (0, 1e-300), (2**70, 2**71), (-1e150, 0)])
        }
    return arguments


def ask(seed: int) -> tuple[str, bool | None]:
    """One query by chance: its text, and whether it was accepted. Raises what should not be."""
    random = Random(seed)
    unit = random.choice(["key", "key", "key", "row"])
    grammar = Grammar(seed, rows_are_units=unit == "row")
    text = grammar.google() if random.random() < 0.05 else grammar.query()
    if random.random() < 0.15:
        text = random.choice(AROUND).format(text)
    elif random.random() < 0.2:
        text = text.replace("FROM visits", f"FROM {random.choice(SOURCES)}")
    if random.random() < 0.7:
        text = grammar.mutant(text)
    world = worlds(unit, random.randrange(WORLDS))
    try:
        plan = world.one.sql(text, **options(random))
        if random.random() < 0.1:
            str(plan), plan.explain(), plan.loss.cost()
    except hb.HubbubError:
        return text, False
    relation = random.choice([*hb.Neighbours])
    parts = plan.parts if isinstance(plan, CompositePlan) else [plan]
    for part in parts:
        unit_of_relation = replace(part.unit, neighbours=relation)
        problem = moves_too_far(replace(part, bounded=replace(part.bounded, unit=unit_of_relation)), world)
        assert problem is None, problem
    if random.random() < 0.02:
        try:
            world.one.run(plan).value.to_json()
        except hb.Refused:
            assert any(part.bounded.estimated_arguments for part in parts)
    return text, True


def test_random_queries_are_refused_or_within_their_sensitivity():
    assert count_accepted(lambda seed: ask(seed)[1], range(15)) > 1


@pytest.mark.long
@pytest.mark.parametrize("block", range(25))
def test_many_random_queries_are_refused_or_within_their_sensitivity(block):
    seeds = range(10_000 + 1000 * block, 11_000 + 1000 * block)
    assert count_accepted(lambda seed: ask(seed)[1], seeds) > 150
