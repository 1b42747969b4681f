"""What every test shares: hypothesis draws the same examples in every run, so no test fails at random."""

import os

import pytest
from hypothesis import settings

settings.register_profile("hubbub", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("hubbub")


@pytest.fixture(scope="session", autouse=True)
def _keys_of_its_own(tmp_path_factory):
    """Keys of ledgers in databases are kept in the user's configuration: tests have one of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


def pytest_sessionfinish(session):
    """Where what is merged is tested (`.ci/run`), nothing may be left out because a machine lacks it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = 1
