"""Spark where it is not in this process: a cluster that loses an executor, and Spark Connect."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servers import in_memory, needed

PROGRAM = Path(__file__).parent / "elsewhere.py"


def runs(what):
    """In a process of its own, which has its own Spark."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    needed("" if shutil.which("java") else "Java is not installed")
    with in_memory() as server:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), what, server], capture_output=True, text=True, check=False
        )
    assert "all is well" in done.stdout, done.stderr[-3000:]


@pytest.mark.long
def test_lost_executor_changes_nothing():
    runs("cluster")


@pytest.mark.long
def test_spark_connect_works_like_spark():
    pytest.importorskip("grpc", reason="what Spark Connect needs is not installed")
    runs("connect")
