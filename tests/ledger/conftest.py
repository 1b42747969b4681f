"""The same tests on every store: a place where a ledger is, that can be opened again, and attacked."""

from pathlib import Path

import pytest

from ledger.places import Database, File
from servers import Server, in_memory


@pytest.fixture
def folder():
    with in_memory() as made:
        yield Path(made)


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
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
