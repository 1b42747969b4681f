"""Shared by all tests: repeatable examples, a home directory for keys, and which tests are slow.

Hypothesis draws the same examples in every run, so no test fails at random.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

SLOW = (
    # Servers, and processes that race or are killed.
    "engines",
    "ledger",
    # Attacks with their mutants, and sweeps.
    "attacks",
    "sql/test_coverage.py",
    # Training runs.
    "audit",
    "training",
)
"""Tests that `make quick` leaves out, as files or folders below tests/."""

settings.register_profile("hubbub", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("hubbub")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark slow tests, and as long all but every n-th case of a test marked `sweep(n)`.

    An n without a common factor with the lengths of the parameters' lists meets every value of each.
    """
    slow = [Path(__file__).parent / path for path in SLOW]
    cases = Counter()
    for item in items:
        if any(item.path.is_relative_to(path) for path in slow):
            item.add_marker(pytest.mark.slow)
        sweep = item.get_closest_marker("sweep")
        if sweep is not None:
            function = item.nodeid.partition("[")[0]
            if cases[function] % sweep.args[0]:
                item.add_marker(pytest.mark.long)
            cases[function] += 1


@pytest.fixture(scope="session", autouse=True)
def _own_configuration(tmp_path_factory):
    """Keep keys of database ledgers, which live in the user's configuration, out of the developer's own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


def pytest_sessionfinish(session):
    """In continuous integration (`.ci/run`) a skipped test is a failure: the machine lacks something."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = 1
