"""Measure this package against its peers, all in one run, and print ratios. Nothing is asserted.

make bench
.venv-bench/bin/python benchmarks/run.py --only noise
.venv-bench/bin/python benchmarks/run.py --only queries --rows 1000000
.venv-bench/bin/python benchmarks/run.py --only engines --rows 100000000
.venv-bench/bin/python benchmarks/run.py --only ledger --lines 100000
.venv-bench/bin/python benchmarks/run.py --only training
"""

import argparse
import platform
from importlib.metadata import version
from pathlib import Path

import accuracy
import queries
from measure import CONSOLE

import accounting
import engines
import estimators
import ledger
import noise
import server
import training

SUITES = {
    "noise": noise.run,
    "accounting": accounting.run,
    "queries": queries.run,
    "accuracy": accuracy.run,
    "ledger": ledger.run,
    "estimators": estimators.run,
    "engines": engines.run,
    "server": server.run,
    "training": training.run,
}
PACKAGES = (
    "hubbub",
    "numpy",
    "duckdb",
    "sqlglot",
    "opendp",
    "polars",
    "python-dp",
    "diffprivlib",
    "scikit-learn",
    "dp-accounting",
    "prv-accountant",
    "torch",
    "opacus",
    "psycopg",
    "pyspark",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure hubbub against its peers.")
    parser.add_argument("--only", choices=SUITES, action="append", help="a suite to run; all by default")
    parser.add_argument("--rows", type=int, default=queries.ROWS, help="of the table that is queried")
    parser.add_argument("--sparse", action="store_true", help="users are 63-bit hashes, not 1, 2, 3 …")
    parser.add_argument("--lines", type=int, default=ledger.LINES, help="of the long ledger")
    arguments = parser.parse_args()
    CONSOLE.print(f"{processor()}, Python {platform.python_version()}")
    CONSOLE.print(", ".join(f"{name} {version(name)}" for name in PACKAGES), end="\n\n")
    for name in arguments.only or SUITES:
        if name == "queries":
            queries.run(arguments.rows, is_sparse=arguments.sparse)
        elif name == "engines":
            engines.run(max(arguments.rows, engines.LEAST))
        elif name == "ledger":
            ledger.run(arguments.lines)
        else:
            SUITES[name]()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else platform.processor()


if __name__ == "__main__":
    main()
