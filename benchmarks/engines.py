# ruff: noqa: S608 - nothing here comes from a person
"""The same private query in PostgreSQL and Spark, beside the engines' own plain queries.

Processor time is that of the server's processes, so what else the machine does is not counted.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import Target, show, show_targets
from visits import HIGH, REGIONS, visits

import hubbub as hb

sys.path.append(str(Path(__file__).parents[1] / "tests"))

KEPT = 10
ROUNDS = 2
LEAST = 1_000_000
"""Rows: below, an engine's own beginnings are what is measured."""
ROWS = {"PostgreSQL": (1_000_000, 10_000_000), "Spark": (1_000_000, 10_000_000, 100_000_000)}
ASKED = {
    "COUNT(*), AVG(cost) by region": (
        "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY region"
    ),
    "COUNT(DISTINCT user) by region": "SELECT region, COUNT(DISTINCT user) AS n FROM visits GROUP BY region",
}
PLAIN = {
    "plain COUNT(*), AVG(cost) by region": "SELECT region, COUNT(*), AVG(cost) FROM {} GROUP BY region",
    "plain COUNT(DISTINCT user) by region": 'SELECT region, COUNT(DISTINCT "user") FROM {} GROUP BY region',
}


def run(most: int | None = None) -> None:
    """All engines that are here; `most` rows at most."""
    targets = []
    for engine, make in {"PostgreSQL": postgresql, "Spark": spark}.items():
        for rows in ROWS[engine]:
            if most is None or rows <= most:
                targets += shown(engine, rows, make(visits(rows)))
    show_targets(targets)


def shown(engine: str, rows: int, timed: dict[str, tuple[float, float]] | str) -> list[Target]:
    if isinstance(timed, str):
        show(f"{engine}: {timed}", (), ())
        return []
    units = timed["plain COUNT(DISTINCT user) by region"][1]
    plain = timed["plain COUNT(*), AVG(cost) by region"][1]
    show(
        f"{engine}, {rows:,} rows (best of {ROUNDS})",
        ("", "wall s", "CPU s", "CPU over plain", "CPU over COUNT(DISTINCT user)"),
        [
            (what, f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / plain:.2f}×", f"{cpu / units:.2f}×")
            for what, (wall, cpu) in timed.items()
        ],
    )
    ours = timed["COUNT(*), AVG(cost) by region"][1] / units
    return [Target(f"{engine}, {rows:,} rows, over COUNT(DISTINCT user)", "≤ 3×", f"{ours:.2f}×", ours <= 3)]


def best(
    tasks: dict[str, Callable[[], object]], spent: Callable[[], float]
) -> dict[str, tuple[float, float]]:
    """The least seconds of wall and of processor time of each."""
    found = dict.fromkeys(tasks, (float("inf"), float("inf")))
    for _ in range(ROUNDS):
        for name, task in tasks.items():
            wall, cpu = time.perf_counter(), spent()
            task()
            took = time.perf_counter() - wall, spent() - cpu
            found[name] = (min(found[name][0], took[0]), min(found[name][1], took[1]))
    return found


def questions(data: hb.Dataset) -> dict[str, Callable[[], object]]:
    plans = {what: data.sql(text, epsilon=1) for what, text in ASKED.items()}
    return {what: (lambda plan=plan: data.run(plan)) for what, plan in plans.items()}


GIVEN = {
    "table": "visits", "unit": "user", "rows_per_unit": KEPT, "keys": {"region": REGIONS},
    "bounds": {"cost": (0, HIGH)},
}  # fmt: skip


def postgresql(path: Path) -> dict[str, tuple[float, float]] | str:
    from servers import WHY_NOT, Server

    if WHY_NOT:
        return WHY_NOT
    import duckdb
    import psycopg

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder), "-c shared_buffers=1GB -c work_mem=256MB -c max_wal_size=8GB")
        try:
            with psycopg.connect(server.address(), autocommit=True) as owner:
                owner.execute(
                    'CREATE UNLOGGED TABLE visits ("user" bigint, region text, product int, cost float8)'
                )
                rows = duckdb.execute(f"SELECT \"user\", region, product, cost FROM '{path}'")
                with owner.cursor() as cursor, cursor.copy("COPY visits FROM STDIN") as copy:
                    while some := rows.fetchmany(50_000):
                        copy.write("".join("\t".join(map(str, row)) + "\n" for row in some))
                owner.execute("VACUUM ANALYZE visits")
                owner.execute("SET work_mem = '256MB'")
                root = int((server.data / "postmaster.pid").read_text().splitlines()[0])
                with hb.open(server.address(), **GIVEN) as data:
                    plain = {
                        what: (lambda text=text: owner.execute(text.format("visits")).fetchall())
                        for what, text in PLAIN.items()
                    }
                    return best(plain | questions(data), lambda: processor_time(root) + time.process_time())
        finally:
            server.stop()


def spark(path: Path) -> dict[str, tuple[float, float]] | str:
    if shutil.which("java") is None:
        return "Java is not installed"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.driver.memory", "6g")
    for name, value in {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "16",
    }.items():  # fmt: skip
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    session.read.parquet(str(path)).createOrReplaceTempView("visits")
    data = hb.open(session, **GIVEN)
    plain = {
        what: (lambda text=text: session.sql(text.format("visits").replace('"', "`")).collect())
        for what, text in PLAIN.items()
    }
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True, check=True
    )
    java = int(found.stdout.split()[0])
    return best(plain | questions(data), lambda: own_time(java) + time.process_time())


TICKS = os.sysconf("SC_CLK_TCK")


def own_time(process: int) -> float:
    """Seconds of processor time of a process, and of its children that ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


def processor_time(root: int) -> float:
    """Seconds of processor time of a server and of all that it started."""
    total = own_time(root)
    for child in Path(f"/proc/{root}/task/{root}/children").read_text().split():
        try:
            total += own_time(int(child))
        except (OSError, IndexError):
            continue
    return total


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else None)
