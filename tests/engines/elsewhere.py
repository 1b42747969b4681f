"""A program of its own, since a process has one Spark: the same plans on a cluster, or through Spark Connect.

python elsewhere.py cluster FOLDER      a master and two workers, one executor killed under a plan
python elsewhere.py connect FOLDER      a server of Spark Connect
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import hubbub as hb
from hubbub.errors import EngineFailed

LOCAL = "127.0.0.1"
SETTINGS = {
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": LOCAL,
    "spark.driver.bindAddress": LOCAL, "spark.sql.shuffle.partitions": "4", "spark.executor.memory": "600m",
    "spark.connect.grpc.binding.address": LOCAL, "spark.executor.cores": "1",
    "spark.sql.codegen.wholeStage": "false",
}  # fmt: skip
BY_REGION = "SELECT region, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY region"
SECRET = "Ludwigshafen"  # noqa: S105 - a town, which no error may name
ROWS = 120_000


def session(**more):
    builder = (
        SparkSession.builder.remote("local[2]")
        if "remote" in more
        else SparkSession.builder.master(more["master"])
    )
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def visits(spark, folder):
    """A table in Parquet: 3 regions, each unit with 10 rows."""
    path = str(Path(folder) / "visits")
    spark.range(ROWS).selectExpr(
        f"id % {ROWS // 10} AS patient",
        f"CASE id % 3 WHEN 0 THEN 'North' WHEN 1 THEN 'South' ELSE '{SECRET}' END AS region",
        "CAST(id % 97 AS DOUBLE) AS cost",
    ).write.parquet(path)
    return spark.read.parquet(path)


def open_data(frame, **options):
    known = {"keys": {"region": ["North", "South"]}, "bounds": {"cost": (0, 100)}, "rows_per_unit": 10}
    return hb.open(frame, table="visits", unit="patient", **known | options)


def check(data, *, meanwhile=lambda word: None):
    """The answer is the one that it should be, and it is charged once."""
    before = len(data.account.receipts)
    result = data.run(data.sql(BY_REGION, epsilon=100, allow_large_epsilon=True), meanwhile).value
    assert all(abs(n - ROWS / 3) < 100 for n in result["n"]), result
    assert all(abs(c - 48) < 1 for c in result["c"]), result
    assert len(data.account.receipts) == before + 1


def fails(data):
    """It fails in our own words, and what was charged stays charged."""
    plan, before = data.sql(BY_REGION, epsilon=1), len(data.account.receipts)
    message = ""
    try:
        data.run(plan)
    except EngineFailed as problem:
        message = str(problem)
    assert "charged stays charged" in message, message
    assert SECRET not in message, message
    assert "SELECT" not in message, message
    assert len(data.account.receipts) == before + 1


# A cluster


@contextmanager
def daemon(folder, *words):
    """A master or a worker, stopped by its own id."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    known = {"SPARK_LOCAL_IP": LOCAL, "SPARK_DAEMON_MEMORY": "300m", "SPARK_LOCAL_DIRS": str(folder)}
    with Path(folder, "log").open("ab") as log:
        started = subprocess.Popen(
            [str(program), *words], stdout=log, stderr=log, env=os.environ | known, start_new_session=True
        )
    try:
        yield started
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def children(process):
    result = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for each in result for child in each.read_text().split()]


def executors(workers):
    """The processes that run tasks: workers start them."""
    below = [child for worker in workers for child in (worker.pid, *children(worker.pid))]
    return [child for each in below for child in children(each) if is_executor(child)]


def is_executor(process):
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()


def cluster(folder):
    with socket.socket() as probe:
        probe.bind((LOCAL, 0))
        port = probe.getsockname()[1]
    at = f"spark://{LOCAL}:{port}"
    master = [
        "org.apache.spark.deploy.master.Master",
        "--host",
        LOCAL,
        "--port",
        str(port),
        "--webui-port",
        "0",
    ]
    worker = [
        "org.apache.spark.deploy.worker.Worker", "--host", LOCAL, "--cores", "1", "--memory", "700m",
        "--webui-port", "0", "--work-dir", str(folder), at,
    ]  # fmt: skip
    with daemon(folder, *master), daemon(folder, *worker) as one, daemon(folder, *worker) as two:
        spark = session(master=at)
        spark.sparkContext.setLogLevel("OFF")
        data = open_data(visits(spark, folder))
        check(data)
        # On a busy machine the second may still be starting.
        for _ in range(1200):
            before = executors((one, two))
            if len(before) == 2:
                break
            time.sleep(0.1)
        assert len(before) == 2, before
        killed = []

        def kill(word):
            """One of them, while the plan's query runs."""
            if not killed:
                killed.append(before[0])
                threading.Timer(0.3, os.kill, (before[0], signal.SIGKILL)).start()

        check(data, meanwhile=kill)
        while Path(f"/proc/{before[0]}").exists():
            time.sleep(0.05)
        check(data)
        spark.stop()
        fails(data)


# Spark Connect


def connect(folder):
    spark = session(remote=True)
    assert "connect" in type(spark).__module__
    frame = visits(spark, folder)
    data = open_data(frame)
    check(data)
    pin = "spark.sql.unionOutputPartitioning"
    before, during = spark.conf.get(pin, None), set()
    check(data, meanwhile=lambda _: during.add(spark.conf.get(pin)))
    assert (during, spark.conf.get(pin, None)) == ({"false"}, before)
    frame.createOrReplaceTempView("visits")
    check(open_data(spark))
    many = ["North", *(f"k{number}" for number in range(20_000)), "South"]
    result = open_data(frame, keys={"region": many})
    assert len(
        result.run(result.sql("SELECT region, COUNT(*) AS n FROM visits GROUP BY region", epsilon=9)).value
    ) == len(many)
    left = [row[1] for row in spark.sql("SHOW VIEWS").collect()]
    assert not [name for name in left if name.startswith("_hubbub")], left
    spark.stop()
    fails(data)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that what was started is stopped
    {"cluster": cluster, "connect": connect}[sys.argv[1]](sys.argv[2])
    sys.stdout.write("all is well\n")
