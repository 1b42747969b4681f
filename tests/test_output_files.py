"""Files that are written: never over rows, a ledger or a key, and whole or not at all."""

import os
import sqlite3
import tempfile

import duckdb
import numpy as np
import pytest

from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.output_files import check_output_path, protect_paths, write_output
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result

ANSWERS = Result((ResultColumn("n", np.array([5.0]), np.array([2.0]), np.array([8.0])),), {"epsilon": "1"})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_text_is_written_over_an_older_one(tmp_path):
    path = tmp_path / "a.txt"
    for text in ("one", "two"):
        write_output(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert names(tmp_path) == ["a.txt"]


def test_a_new_file_has_the_rights_that_new_files_have(tmp_path):
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "a.txt", "one")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")

    def broken(part):
        part.write_text("half", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(InvalidInput, match="no space left"):
        write_output(path, broken)
    assert path.read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["a.txt"]


def test_link_to_an_own_file_is_followed(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "a.txt").symlink_to(tmp_path / "far" / "a.txt")
    write_output(tmp_path / "a.txt", "one")
    assert (tmp_path / "far" / "a.txt").read_text(encoding="utf-8") == "one"
    assert (tmp_path / "a.txt").is_symlink()


@pytest.mark.parametrize("way", ["itself", "hard link", "link", "link to a link", "to be made"])
def test_opened_data_is_never_overwritten(tmp_path, way):
    rows_file, path = tmp_path / "rows.csv", tmp_path / "out.csv"
    if way != "to be made":
        rows_file.write_text("rows", encoding="utf-8")
    protect_paths(rows_file)
    if way == "itself":
        path = tmp_path / "." / "rows.csv"
    elif way == "hard link":
        os.link(rows_file, path)
    elif way == "link to a link":
        (tmp_path / "between.csv").symlink_to(rows_file)
        path.symlink_to(tmp_path / "between.csv")
    else:
        path.symlink_to(rows_file)
    with pytest.raises(Refused, match="leads to"):
        write_output(path, "answers")
    assert way == "to be made" or rows_file.read_text(encoding="utf-8") == "rows"


def test_databases_are_never_overwritten(tmp_path):
    sqlite3.connect(tmp_path / "a.json").execute("CREATE TABLE t (x)").connection.close()
    duckdb.connect(str(tmp_path / "b.json")).close()
    Ledger.open(tmp_path / "c.json").close()
    for name in "abc":
        with pytest.raises(Refused, match="leads to"):
            check_output_path(tmp_path / f"{name}.json")
    with pytest.raises(Refused, match="leads to"):
        check_output_path(tmp_path / "hubbub.toml")


@pytest.mark.parametrize(
    ("name", "why"), [("", "a folder"), ("no/a.txt", "folder does not exist"), ("pipe", "not a regular file")]
)
def test_unwritable_path_is_refused_before_the_run(tmp_path, name, why):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match=why):
        check_output_path(tmp_path / name)


def test_forbidden_path_is_refused_before_the_run(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_: False)
        with pytest.raises(InvalidInput, match="the file may not be written"):
            check_output_path(path)

    def refused(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)
    with pytest.raises(InvalidInput, match="read-only file system"):
        check_output_path(path)


@pytest.mark.slow
def test_result_files_have_the_format_of_their_extension(tmp_path):
    for ending in ("parquet", "pq", "csv", "json", "ndjson", "html", "md", "xlsx", "svg", "png", "txt"):
        ANSWERS.write(tmp_path / f"a.{ending}")
    assert duckdb.sql(f"SELECT n FROM '{tmp_path}/a.parquet'").fetchall() == [(5.0,)]
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == ANSWERS.to_csv()
    assert Result.from_json((tmp_path / "a.json").read_text(encoding="utf-8"))["n"] == [5.0]
    for name in ("a.xls", "a.csv.gz", "a"):
        with pytest.raises(InvalidInput, match="ends in") as error:
            ANSWERS.write(tmp_path / name)
        assert ".parquet" in error.value.fix
        assert not (tmp_path / name).exists()
