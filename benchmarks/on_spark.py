# ruff: noqa: S608 - nothing here comes from a person
"""The same private queries on Spark by us and by peers, beside plain queries in the same session.

Each runs in its own environment, in a process and a Java of its own, and prints who it is and what it took.

.venv-tumult/bin/python benchmarks/on_spark.py tmlt.analytics visits.parquet
"""

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version

from processes import best
from visits import HIGH, REGIONS

__all__ = ["COUNTS", "GIVEN", "PLAIN_COUNTS", "PLAIN_USERS", "USERS", "questions"]

KEPT = 10
"""Rows of a user that count."""
COUNTS = "COUNT(*), AVG(cost) by region"
USERS = "COUNT(DISTINCT user) by region"
PLAIN_COUNTS, PLAIN_USERS = f"plain {COUNTS}", f"plain {USERS}"
ASKED = {
    COUNTS: "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY region",
    USERS: "SELECT region, COUNT(DISTINCT user) AS n FROM visits GROUP BY region",
}
GIVEN = {
    "table": "visits", "unit": "user", "rows_per_unit": KEPT, "keys": {"region": REGIONS},
    "bounds": {"cost": (0, HIGH)},
}  # fmt: skip

Tasks = dict[str, Callable[[], object]]


def started():
    """A session of Spark, the same for all."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers have the peer too
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.driver.memory", "6g")
    for name, value in {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "16",
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def plain(session) -> Tasks:
    def ask(what: str) -> Callable[[], object]:
        # A data frame anew each time: a second collect of one finds its shuffles done.
        return lambda: session.sql(f"SELECT region, {what} FROM visits GROUP BY region").collect()

    return {PLAIN_COUNTS: ask("COUNT(*), AVG(cost)"), PLAIN_USERS: ask("COUNT(DISTINCT user)")}


def questions(data) -> Tasks:
    """Ours, planned beforehand."""
    plans = {what: data.sql(text, epsilon=1) for what, text in ASKED.items()}
    return {what: (lambda plan=plan: data.run(plan)) for what, plan in plans.items()}


def hubbub(session) -> Tasks:
    import hubbub as hb

    return questions(hb.open(session, **GIVEN))


def tumult(session) -> Tasks:
    from tmlt.analytics import AddRowsWithID, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, Session

    private = Session.from_dataframe(
        PureDPBudget(float("inf")), "visits", session.table("visits"), AddRowsWithID("user")
    )
    groups = QueryBuilder("visits").enforce(MaxRowsPerID(KEPT)).groupby(KeySet.from_dict({"region": REGIONS}))

    def ask_one(*queries) -> list[object]:
        return [private.evaluate(query, PureDPBudget(1 / len(queries))).collect() for query in queries]

    return {
        COUNTS: lambda: ask_one(groups.count(), groups.average("cost", low=0, high=HIGH)),
        USERS: lambda: ask_one(groups.count_distinct(["user"])),
    }


def pipelinedp(session) -> Tasks:
    import pipeline_dp as pdp

    rows = session.table("visits").select("user", "region", "cost").rdd
    backend = pdp.SparkRDDBackend(session.sparkContext)
    columns = pdp.DataExtractors(
        privacy_id_extractor=lambda row: row.user,
        partition_extractor=lambda row: row.region,
        value_extractor=lambda row: row.cost,
    )

    def ask_query(*metrics) -> list[object]:
        budget = pdp.NaiveBudgetAccountant(total_epsilon=1, total_delta=0)
        params = pdp.AggregateParams(
            metrics=list(metrics), max_contributions=KEPT, min_value=0, max_value=HIGH
        )
        answers = pdp.DPEngine(budget, backend).aggregate(rows, params, columns, public_partitions=REGIONS)
        budget.compute_budgets()
        return answers.collect()

    return {
        COUNTS: lambda: ask_query(pdp.Metrics.COUNT, pdp.Metrics.MEAN),
        USERS: lambda: ask_query(pdp.Metrics.PRIVACY_ID_COUNT),
    }


ALL = {"hubbub": hubbub, "tmlt.analytics": tumult, "pipeline-dp": pipelinedp}
"""By package."""


def main() -> None:
    package, path = sys.argv[1:]
    session = started()
    session.read.parquet(path).createOrReplaceTempView("visits")
    timed = best(plain(session) | ALL[package](session))
    print(f"{package} {version(package)}, Spark {version('pyspark')}")
    print(json.dumps(timed))


if __name__ == "__main__":
    main()
