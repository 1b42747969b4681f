"""Random cases, one for each seed: a failure names the seed that repeats it."""

from collections.abc import Callable

import pytest


def count_accepted(run: Callable[[int], object], seeds: range) -> int:
    """Run every seed, and count those for which `run` returns something true."""
    accepted = 0
    for seed in seeds:
        try:
            accepted += bool(run(seed))
        except Exception as problem:
            pytest.fail(f"seed {seed}: {type(problem).__name__}: {problem}")
    return accepted
