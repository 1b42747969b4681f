"""A row is a row: files as they were read before, so that each attack is seen to find what it looks for."""

import csv
import glob
import tempfile
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from unittest import mock

import duckdb

from hubbub.engines import data_frames, duckdb_catalog, file_formats
from hubbub.engines import duckdb as engine
from hubbub.errors import InvalidInput


def _read_as_before(path, *, quotes=True, names=None):
    """The engine's own reader, as it was told to read every file."""
    paths = sorted(glob.glob(str(path)))  # noqa: PTH207
    with Path(paths[0]).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        result = names or next(csv.reader([file.readline()]))
    columns = ", ".join(f"'{name.strip()}': 'VARCHAR'" for name in result)
    quote = '"' if quotes else ""
    text = (
        f"SELECT * FROM read_csv({paths!r}, columns = {{{columns}}}, quote = '{quote}', escape = '{quote}', "
        "delim = ',', header = true, auto_detect = false, strict_mode = false, null_padding = true, "
        "ignore_errors = true, max_line_size = 16777216, parallel = false, nullstr = '')"
    )
    return duckdb.connect().execute(text).fetchall()


def lines_by_the_engine(path, **options):
    """A34: the engine's reader takes a carriage return for the end of a line, and reads the next one on."""
    return _read_as_before(path, quotes=False)


def fields_by_the_engine(path, **options):
    """A35: the engine's reader with quotes, which takes fields apart that a conforming writer wrote."""
    return _read_as_before(path)


def rows_of_utf8_alone(path, **options):
    """A36: rows that are not UTF-8 are skipped."""
    return _read_as_before(path)


def long_lines_passed_over(path, **options):
    """A73: lines of more than 16 MB are skipped."""
    return _read_as_before(path)


def keys_as_given(values, kind):
    """A37: keys that differ in Python, whatever the engine makes of them."""
    result = tuple(value for value in values if isinstance(value, (date, datetime)))
    if len(set(result)) < len(result):
        raise InvalidInput("not distinct", why="", fix="")
    return result


@contextmanager
def every_type_is_read():
    """A38: all columns are read, whatever their types."""
    with (
        mock.patch.object(data_frames, "_is_total", return_value=True),
        mock.patch.object(data_frames, "_without_zone", return_value=None),
        mock.patch.object(data_frames, "_prepare_pandas", lambda frame: frame),
        mock.patch.object(file_formats, "_is_total_column", return_value=True),
    ):
        yield


@contextmanager
def the_first_file_speaks_for_all():
    """A55: only the first file of a pattern is described."""

    def described(connection, paths, table, *_):
        return f"read_parquet([{', '.join(map(file_formats.quote_text, paths))}])", ()

    with mock.patch.object(engine, "scan_parquet", described):
        yield


@contextmanager
def any_name_in_the_catalog():
    """A55 and A60: whatever has the name is read, also a view."""

    def name_of(connection, parts):
        rows = connection.execute("SELECT current_database(), current_schema()").fetchone()
        return (*rows, parts[-1])

    with mock.patch.object(engine, "resolve_table", name_of):
        yield


@contextmanager
def names_bound_to_the_nearest():
    """A56: a function is whatever has its name, at the time of the run."""
    with mock.patch.object(engine, "check_catalog", return_value=None):
        yield


@contextmanager
def settings_as_they_are():
    """A56: settings are looked at when a connection is opened, and then no more."""
    seen = []

    def once(connection):
        if not seen:
            duckdb_catalog.check_catalog(connection)
        seen.append(connection)

    with mock.patch.object(engine, "check_catalog", once):
        yield


@contextmanager
def names_as_the_engine_makes_them():
    """A57: columns are known by the names that the engine gives them."""
    with (
        mock.patch.object(data_frames, "refuse_duplicate_names", return_value=None),
        mock.patch.object(file_formats, "refuse_duplicate_names", return_value=None),
    ):
        yield


def header_of_the_first_file(path, **options):
    """A58: the header of the first file is that of all."""
    return _read_as_before(path)


@contextmanager
def folders_are_columns():
    """A59: what a folder's name says of a column wins over the file."""
    with mock.patch.object(file_formats, "_OPTIONS", "union_by_name = false"):
        yield


@contextmanager
def one_transaction_for_all_threads():
    """A65: every run begins a transaction on the one connection, whoever else is in one."""

    def snapshot(self):
        return self._check_files() if self._is_ours else self._open_transaction()

    with mock.patch.object(engine.DuckDB, "snapshot", snapshot):
        yield


@contextmanager
def any_name_for_a_table():
    """A66: a table may have the name that a list of keys has while a query runs."""
    with mock.patch.object(engine, "_RESERVED", ("_nobody_",)):
        yield


@contextmanager
def streams_as_they_come():
    """A66: what can be read once is handed to the engine, which empties it when a table is opened."""
    with mock.patch.object(engine, "prepare_frame", lambda rows, _: rows):
        yield


@contextmanager
def folders_for_everybody():
    """A66: what does not fit in memory goes to a folder that everybody can read."""

    def open_data(owner):
        folder = Path(tempfile.mkdtemp(prefix="hubbub-"))
        folder.chmod(0o755)
        return str(folder)

    with mock.patch.object(engine, "make_private_folder", open_data):
        yield
