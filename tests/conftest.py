"""Shared by all tests: repeatable examples and bits, a home for keys, sweeps, and the quick selection.

Hypothesis draws the same examples in every run, and what a test draws itself are the same bits, so that a run
can be repeated. `--bits=N` replays others, to look for tests that fail by chance; `--bits=fresh` none: then
all are OpenSSL's, as in the threads and processes that tests start.
"""

import hashlib
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from internals import inject_bits

collect_ignore = ["typing_example.py"]
"""Read by mypy, never run: it would open tables and ledgers that are not there."""
SLOW = (
    # Servers, and processes that race or are killed.
    "engines",
    "ledger",
    "server",
    # Attacks with their mutants, sweeps, and random queries.
    "attacks",
    "noise/test_large_scales.py",
    "sql/test_coverage.py",
    "sql/test_differential.py",
    "sql/test_fuzz.py",
    "sql/test_grammar.py",
    "sql/test_joins.py",
    "sql/test_large.py",
    "sql/test_sensitivity.py",
    # Other accountants, audits, graphical models, training runs, and pages that run their examples.
    "accounting/test_composition.py",
    "accounting/test_oracle.py",
    "accounting/test_subsampled_gaussian.py",
    "audit",
    "cli/test_audit.py",
    "cli/test_mistakes.py",
    "docs/test_formats_page.py",
    "docs/test_ledger_page.py",
    "docs/test_queries_page.py",
    "docs/test_readme.py",
    "docs/test_training_page.py",
    "estimators/test_adult.py",
    "estimators/test_sklearn.py",
    "synthesis/test_fuzz.py",
    "synthesis/test_graphical_model.py",
    "synthesis/test_synthesis_release.py",
    "synthesis/test_synthesizer.py",
    "test_examples.py",
    "training",
)
"""Files and folders that `--quick` leaves out."""
QUICK_CASES = 2
"""How many cases of a parametrized test `--quick` runs."""

TOGETHER = ("tests/engines/",)
"""Folders that one process runs: a second one would start Spark and PostgreSQL again."""
APART = (
    "tests/attacks/test_sql.py",
    "tests/sql/test_saturated_sums.py",
    "tests/sql/test_sensitivity.py",
    "tests/test_examples.py",
)
"""Files with few tests, each of seconds: they come last, one by one, so that no process waits for another."""

settings.register_profile("hubbub", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10)


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="a fair sample in under a minute: make quick")
    parser.addoption("--bits", default="0", help="which random bits tests replay: a number, or fresh")


def pytest_configure(config):
    settings.load_profile("quick" if config.getoption("--quick") else "hubbub")


def pytest_ignore_collect(collection_path, config):
    """With `--quick`, do not even import what is slow: torch alone takes seconds."""
    slow = [Path(__file__).parent / path for path in SLOW]
    return True if config.getoption("--quick") and collection_path in slow else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark as long all but every n-th case of a test marked `sweep(n)`; select what is quick.

    An n without a common factor with the lengths of the parameters' lists meets every value of each.
    """
    cases = Counter()
    for item in items:
        sweep = item.get_closest_marker("sweep")
        if sweep is not None:
            function = item.nodeid.partition("[")[0]
            if cases[function] % sweep.args[0]:
                item.add_marker(pytest.mark.long)
            cases[function] += 1
    if config.getoption("--quick"):
        quick = _quick(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in quick])
        items[:] = [item for item in items if item in quick]


def _quick(items):
    """A few cases of each test, first and last among them."""
    functions = {}
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in ("long", "slow")):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for cases in functions.values()
        for item in cases[:: max(1, (len(cases) - 1) // (QUICK_CASES - 1))][:QUICK_CASES]
    }


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadfile`, give the tests of a file to one process, but for the exceptions above."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            folder = next((folder for folder in TOGETHER if path.startswith(folder)), None)
            return folder or (nodeid if path in APART else path)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Replay the same random bits in every run, in a test and its fixtures; but for tests of fresh ones."""
    seed = item.config.getoption("--bits")
    is_fresh = seed == "fresh" or item.get_closest_marker("fresh_bits")
    digest = hashlib.sha256(f"{seed} {item.nodeid}".encode()).digest()
    with nullcontext() if is_fresh else inject_bits(np.random.default_rng(list(digest)).bytes):
        return (yield)


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
