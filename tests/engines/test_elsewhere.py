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
    with in_memory() as made:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), what, made], capture_output=True, text=True, check=False
        )
    assert "all is well" in done.stdout, done.stderr[-3000:]


@pytest.mark.long
def test_a_cluster_that_loses_an_executor_gives_the_same_answer():
    runs("cluster")


@pytest.mark.long
def test_Spark_Connect_is_asked_like_any_other():
    pytest.importorskip("grpc", reason="what Spark Connect needs is not installed")
    runs("connect")
