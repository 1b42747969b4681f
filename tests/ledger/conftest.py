"""The same tests on every store: where a ledger is, so that it can be opened again, and attacked."""

from pathlib import Path

import pytest

from ledger.storage import Database, File
from servers import in_memory, running_server


@pytest.fixture
def folder():
    with in_memory() as postgres:
        yield Path(postgres)


@pytest.fixture(scope="session")
def server():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with running_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def storage(request, folder):
    if request.param == "sqlite":
        yield File(folder / "visits.ledger")
    else:
        database = Database(request.getfixturevalue("server"))
        yield database
        database.close()


@pytest.fixture
def database(server):
    stores = Database(server)
    yield stores
    stores.close()
