"""The main job in forty lines: open a table, plan, ask, read the answers, and know what is left to spend."""

from pathlib import Path
from tempfile import TemporaryDirectory

import hubbub as hb
from hubbub.cli.demo import REGIONS, write_visits

with TemporaryDirectory() as folder:
    path = Path(folder) / "visits.parquet"
    print(write_visits(path), "visits that nobody made")

    # Who is protected, what is public, and the most that may be spent.
    visits = hb.open(
        path,
        unit="patient",
        budget=hb.Budget(2, 1e-6, population=20_000),
        bounds={"cost": (0, 5000), "age": (0, 120)},
        keys={"region": REGIONS},
        rows_per_unit=8,
    )

    # A plan reads no row and spends nothing.
    plan = visits.sql(
        "SELECT region, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY region", epsilon=0.5
    )
    print(plan)

    # Running it charges first; whatever is made of the answers afterwards is free.
    release = visits.run(plan)
    print(release.value)
    print("in all:", round(release.map(lambda answers: sum(answers["n"])).value))

    # The same, built step by step; and keys that nobody declared, selected privately.
    older = visits.where("age >= 65").group_by("region").count(name="n")
    print(older.run(epsilon=0.25).value)
    reasons = visits.sql("SELECT reason, COUNT(*) AS n FROM visits GROUP BY reason", epsilon=0.5, delta=1e-7)
    print(visits.run(reasons).value)

    # By accuracy: the least ε that keeps ±100. What does not fit the budget is refused, and nothing is spent.
    print(visits.sql("SELECT COUNT(*) AS n FROM visits", error={"n": 100}))
    print("spent: ε =", visits.account.epsilon(1e-6))
    try:
        visits.run(visits.sql("SELECT COUNT(*) AS n FROM visits", epsilon=1.5))
    except hb.Refused as refused:
        print(refused.what)
