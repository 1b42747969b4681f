"""The same tests on every store: a place where a ledger is, that can be opened again, and attacked."""

import os
import tempfile
from pathlib import Path

import pytest

from ledger.places import File


@pytest.fixture
def folder():
    """A folder in memory where there is one: what a sync is worth is tested by simulated power losses."""
    memory = Path("/dev/shm")  # noqa: S108 - a new folder in it is made
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


@pytest.fixture(params=["sqlite"])
def place(request, folder):
    return File(folder / "visits.ledger")
