"""The same tests on every store: a place where a ledger is, that can be opened again, and attacked."""

import os
import tempfile
from pathlib import Path

import pytest

from ledger.places import Database, File
from ledger.server import WHY_NOT, Server


def in_memory():
    """A folder in memory where there is one: what a sync is worth is tested by simulated power losses."""
    memory = Path("/dev/shm")  # noqa: S108 - a new folder in it is made
    return tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None)


@pytest.fixture
def folder():
    with in_memory() as made:
        yield Path(made)


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with in_memory() as made:
        running = Server(Path(made))
        yield running
        running.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, folder):
    if request.param == "sqlite":
        yield File(folder / "visits.ledger")
    else:
        database = Database(request.getfixturevalue("server"))
        yield database
        database.close()


@pytest.fixture
def database(server):
    made = Database(server)
    yield made
    made.close()
