"""Private parts that tests of several packages need: their names are known here only."""

from hubbub.noise.entropy import _inject_bits as inject_bits
from hubbub.noise.entropy import _injected
from hubbub.sql.row_expressions import _BUILDERS as EXPRESSION_BUILDERS

__all__ = [
    "EXPRESSION_BUILDERS",
    "bits_are_injected",
    "connection_of",
    "engine_of",
    "inject_bits",
    "origin_of",
    "read_files",
    "seal_of",
    "store_of",
]


def bits_are_injected():
    """True if random bits are replayed, and not OpenSSL's."""
    return _injected.get() is not None


def engine_of(dataset):
    """The engine of a data set, to ask it for exact integers."""
    return dataset._engine


def connection_of(owner):
    """The database connection of an engine, or of a data set's engine."""
    return getattr(owner, "_engine", owner)._connection


def origin_of(dataset):
    """The origin of a data set, as it enters the fingerprints of its plans."""
    return dataset._origin


def read_files(dataset):
    """Make the engine of a data set read its files, as the first query does."""
    dataset._engine._read_files()


def store_of(ledger):
    """The store of a ledger or of an account, to write into it behind its back."""
    return ledger._store


def seal_of(ledger):
    """The seal of a ledger or of an account."""
    return ledger._seal
