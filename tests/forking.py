"""Forks, in a process that may have used DuckDB before."""

import errno
import gc
from contextlib import contextmanager

import duckdb
import pytest


@contextmanager
def forking():
    """Where a process is forked: skips where the kernel refuses that for what DuckDB has mapped.

    Before version 2 every database maps four fifths of the memory. Linux makes one mapping of two that touch,
    and no process with a mapping larger than the memory is forked. What other tests left is let go first.
    """
    gc.collect()
    try:
        yield
    except OSError as problem:
        if problem.errno != errno.ENOMEM or int(duckdb.__version__.partition(".")[0]) >= 2:
            raise
        pytest.skip("beside several databases of DuckDB before 2 no process is forked")
