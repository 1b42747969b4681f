"""Reading a file is a function of each row by itself: neighbours here are files, byte by byte."""

import csv
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import dataset, parquet

import hubbub as hb
from hubbub.engines import duckdb as duckdb_engine
from hubbub.engines import duckdb_catalog, file_formats
from hubbub.engines.csv_rows import MAX_FIELD_BYTES, detect_plain, make_csv_format, read_batches
from hubbub.engines.schema import Kind, parse_group_keys
from hubbub.errors import EngineFailed, InvalidInput
from internals import connection_of, read_files

NASTY = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b'"', b'""', b",", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xc3", b"a", b" "]
)
LINE = st.lists(NASTY, max_size=8).map(lambda parts: b"".join(parts).replace(b"\n", b""))
FIELD = st.text(st.sampled_from('\r\n",\0\ufeffaé '), max_size=5)
PLAIN_FIELD = st.text(st.sampled_from("ab é\ufeff'#\\;\t"), max_size=4)


def file_of(raw, name="t.csv"):
    path = Path(tempfile.mkdtemp(prefix="files-")) / name
    path.write_bytes(raw)
    return path


def ours(raw, width, **how):
    """The rows by the definition."""
    path = file_of(raw)
    results = [
        row for piece in read_batches(path, make_csv_format(**how), width) for row in zip(*piece, strict=True)
    ]
    path.unlink()
    return results


def engine_rows(path, **options):
    """The rows as a dataset has them, whichever way they were read."""
    with hb.open(path, unit=hb.Unit.row(), table="t", **options) as data:
        read_files(data)
        return connection_of(data).execute("SELECT * FROM t").fetchall()


# The definition


@given(st.lists(LINE, min_size=1, max_size=6), st.integers(0, 5), LINE, st.sampled_from([b"\n", b"\r\n"]))
def test_without_quotes_a_line_changes_only_its_own_row(lines, place, other, end):
    place %= len(lines)
    changed = [*lines[:place], other, *lines[place + 1 :]]
    one, two = (
        Counter(ours(end.join([b"a,b", *each, b""]), 2, has_quotes=False)) for each in (lines, changed)
    )
    assert len(list((one - two).elements())) <= 1
    assert len(list((two - one).elements())) <= 1


@given(st.lists(LINE, max_size=6), st.integers(1, 3))
def test_every_nonempty_line_is_a_row(lines, width):
    result = ours(b"\n".join([b"a,b,c", *lines, b""]), width, has_quotes=False)
    assert len(result) == len([line for line in lines if width == 1 or line not in {b"", b"\r"}])
    assert all(len(row) == width for row in result)


@given(st.lists(st.tuples(FIELD, FIELD), max_size=5), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_conforming_files_round_trip(rows, quoting):
    out = io.StringIO(newline="")
    csv.writer(out, quoting=quoting).writerows([("a", "b"), *rows])
    expected = [tuple(field or None for field in row) for row in rows]
    assert ours(out.getvalue().encode(), 2) == expected
    assert ours(out.getvalue().encode("utf-16"), 2, encoding="utf-16") == expected


@given(st.lists(NASTY, max_size=40).map(b"".join), st.booleans(), st.integers(1, 3))
def test_fast_line_split_equals_parser(raw, quotes, width):
    result = ours(b"a,b,c\n" + raw, width, has_quotes=quotes)
    with mock.patch("hubbub.engines.csv_rows._split_line", return_value=None):
        assert ours(b"a,b,c\n" + raw, width, has_quotes=quotes) == result


@given(st.lists(NASTY, max_size=40).map(b"".join), st.booleans(), st.integers(1, 3))
def test_every_file_has_rows(raw, quotes, width):
    assert all(len(row) == width for row in ours(b"a,b,c\n" + raw, width, has_quotes=quotes))


@given(
    st.binary(max_size=60),
    st.sampled_from(["utf-8", "latin-1", "cp1252", "cp037", "utf-16", "gbk", "utf-32-be"]),
)
def test_decoding_never_fails(raw, encoding):
    path = file_of("a,b\n".encode(encoding) + raw)
    for _ in read_batches(path, make_csv_format(encoding=encoding), 2):
        pass
    path.unlink()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(PLAIN_FIELD, min_size=2, max_size=2), max_size=6),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.booleans(),
)
def test_duckdb_reads_plain_files_as_defined(rows, are_quoted, end, has_end, has_quotes):
    quote = (lambda field: '"' + field.replace("'", '""') + '"') if are_quoted else str
    text = end.join(["a,b", *(",".join(map(quote, row)) for row in rows)]) + (end if has_end else "")
    path = file_of(text.encode())
    how = make_csv_format(has_quotes=has_quotes)
    result = detect_plain(path, how, 2)
    if rows and end == "\n":
        assert result is not None
    assert Counter(engine_rows(path, quotes=has_quotes)) == Counter(
        row for piece in read_batches(path, how, 2) for row in zip(*piece, strict=True)
    )
    path.unlink()


@settings(deadline=None, max_examples=60)
@given(st.lists(NASTY, max_size=30).map(b"".join), st.booleans())
def test_dataset_has_the_defined_rows(raw, quotes):
    path = file_of(b"a,b\n" + raw)
    assert Counter(engine_rows(path, quotes=quotes)) == Counter(ours(b"a,b\n" + raw, 2, has_quotes=quotes))
    path.unlink()


def test_overlong_field_is_null(monkeypatch):
    monkeypatch.setattr("hubbub.engines.csv_rows.MAX_FIELD_BYTES", 9)
    assert MAX_FIELD_BYTES == 1 << 26
    raw = b'a,b\n1,"%s"\n2,%s\n3,4\n' % (b"x\n" * 10, b"y" * 2_000_000)
    assert ours(raw, 2) == [("1", None), ("2", None), ("3", "4")]
    assert ours(b"a,b\n" + b"y" * 2_000_000 + b",1\n5", 2) == [(None, "1"), ("5", None)]


@pytest.mark.parametrize(
    ("raw", "encoding", "expected"),
    [
        ("é,b\nü,1\n".encode("latin-1"), "latin-1", [("ü", "1")]),
        ("é,b\n€,1\n".encode("cp1252"), "cp1252", [("€", "1")]),
        ("é,b\nü,1\n".encode("utf-16"), "UTF-16", [("ü", "1")]),
        ("e,b\nu,1\n".encode("cp037"), "cp037", [("u", "1")]),
        ("名,b\n東,1\n".encode("shift_jis"), "shift_jis", [("東", "1")]),
        (b"a,b\n\x81,1\n", "gbk", [("\ufffd", "1")]),
        (b"a,b\n\xfc,1\n", "utf-8", [("\ufffd", "1")]),
    ],
)
def test_encoding_is_declared(raw, encoding, expected):
    assert engine_rows(file_of(raw), encoding=encoding) == expected


@pytest.mark.parametrize("encoding", ["cp864", "shift_jis_2004", "shift_jisx0213", "shift_jis", "cp1252"])
def test_ascii_is_read_independently_of_other_rows(encoding):
    """In some encodings a byte of ASCII is another letter: also where all of the file is ASCII."""
    raw = b"a,b\n" + b"".join(b"%d,x%cy\n" % (code, code) for code in b"%\\~|a")
    alone = engine_rows(file_of(raw), encoding=encoding)
    beside = engine_rows(file_of(raw + b"0,\xb1\n"), encoding=encoding)
    assert Counter(beside) - Counter(alone) == Counter(beside[-1:])
    assert Counter(alone) <= Counter(beside)


@pytest.mark.parametrize(
    "name", ["nonsense", "utf-7", "iso2022_jp", "hz", "rot13", "punycode", "unicode_escape", 7]
)
def test_stateful_encodings_are_refused(name):
    with pytest.raises(InvalidInput, match=r"encoding|not read"):
        make_csv_format(encoding=name)


@pytest.mark.parametrize("name", ["utf-16", "UTF-16-LE", "utf_32", "utf-32-be"])
def test_wide_encodings_need_quotes(name, tmp_path):
    with pytest.raises(InvalidInput, match="without quotes"):
        make_csv_format(encoding=name, has_quotes=False)
    make_csv_format(encoding=name)
    (tmp_path / "t.csv").write_bytes("who\n1\n".encode(name))
    with pytest.raises(InvalidInput, match="without quotes"):
        hb.open(tmp_path / "t.csv", unit="who", encoding=name, quotes=False)


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b'a,"b\n1,2\n', b'a,"b\nc"\n1,2\n', b"a\rb\r1\r", b"\xff,b\n", b"a,\0\n", b",,\n"]
)
def test_unreadable_headers_are_refused(raw):
    with pytest.raises(InvalidInput, match="header"):
        hb.open(file_of(raw), unit=hb.Unit.row(), table="t")


def test_duplicate_names_and_different_headers_are_refused(tmp_path):
    (tmp_path / "a1.csv").write_text("who,WHO\n1,2\n")
    with pytest.raises(InvalidInput, match="differ only in case"):
        hb.open(tmp_path / "a1.csv", unit="who")
    (tmp_path / "a1.csv").write_text("who,x\n1,2\n")
    (tmp_path / "a2.csv").write_text("x,who\n1,2\n")
    with pytest.raises(InvalidInput, match="different headers"):
        hb.open(tmp_path / "a*.csv", unit="who")


def test_unnamed_column_is_left_out():
    data = hb.open(file_of(b"a,,b,\n1,x,2,y\n3,x,4\n"), unit=hb.Unit.row(), table="t")
    assert [column.name for column in data.tables["t"].columns] == ["a", "b"]
    read_files(data)
    assert sorted(connection_of(data).execute("SELECT a, b FROM t").fetchall()) == [
        ("1", "2"),
        ("3", "4"),
    ]


def test_plain_and_other_files_of_one_pattern_are_read_together(tmp_path):
    (tmp_path / "t1.csv").write_bytes(b"a,b\n1,2\n3,4")
    (tmp_path / "t2.csv").write_bytes(b"a,b\r\n5,6\r\n")
    (tmp_path / "t3.csv").write_bytes(b'a,b\n"7","8"\n')
    (tmp_path / "t4.csv").write_bytes(b"a,b\n9,\xff\n10\n")
    result = engine_rows(tmp_path / "t*.csv")
    expected = [("1", "2"), ("3", "4"), ("5", "6"), ("7", "8"), ("9", "\ufffd"), ("10", None)]
    assert Counter(result) == Counter(expected)


def test_file_of_many_blocks_is_read_as_defined(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"".join(b'%d,"x, %d"\n' % (i, i) for i in range(50_000)))
    with mock.patch("hubbub.engines.csv_rows._BLOCK_BYTES", 1 << 12):
        assert detect_plain(path, make_csv_format(), 2) == detect_plain(path, make_csv_format(), 2)
        assert detect_plain(path, make_csv_format(), 2).is_quoted
    assert Counter(engine_rows(path)) == Counter((str(i), f"x, {i}") for i in range(50_000))


# Files that change, and what is said of it


def test_changed_file_is_refused_before_the_charge(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"who\n1\n")
    data = hb.open(path, unit="who", rows_per_unit=1)
    plan = data.sql("SELECT COUNT(*) FROM t", epsilon=1)
    path.write_bytes(b"who\n1\n2\n")
    with pytest.raises(EngineFailed, match="changed since it was opened"):
        plan.run()
    assert not data.account.receipts


def test_planning_reads_no_row(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"who\n1\n")
    with mock.patch.object(file_formats, "detect_plain", side_effect=AssertionError):
        hb.open(path, unit="who", rows_per_unit=1).sql("SELECT COUNT(*) FROM t", epsilon=1)


def test_quotes_and_encoding_are_declared_in_hubbub_toml(tmp_path):
    (tmp_path / "t.csv").write_bytes('who,n\n1,"Zoë\n2,b\n'.encode("latin-1"))
    (tmp_path / "hubbub.toml").write_text(
        '[tables.t]\npath = "t.csv"\nunit = "who"\nencoding = "latin-1"\nquotes = false\n'
    )
    with hb.open(tmp_path / "t.csv") as data:
        read_files(data)
        assert sorted(connection_of(data).execute("SELECT n FROM t").fetchall()) == [('"Zoë',), ("b",)]
    (tmp_path / "hubbub.toml").write_text('[tables.t]\npath = "t.csv"\nunit = "who"\nencoding = "utf-7"\n')
    with pytest.raises(InvalidInput, match=r"tables\.t\.encoding"):
        hb.open(tmp_path / "t.csv")


# Spilling


def test_file_larger_than_memory_is_read(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n")
        for number in range(4000):
            file.write(b'%d,"%s"\r\n%d,\xff\n' % (number, b"xyz " * 12_000, number))
    settings = (*duckdb_engine.SETTINGS, "SET memory_limit = '80MB'")
    with mock.patch.object(duckdb_engine, "SETTINGS", settings):
        data = hb.open(path, table="t", unit=hb.Unit.row(), quotes=True)
    connection = connection_of(data)
    read_files(data)
    assert connection.execute("SELECT COUNT(*), MAX(LENGTH(b)) FROM t").fetchone() == (8000, 48_000)
    [folder] = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700  # noqa: PTH116
    assert any("duckdb_temp" in name for name in os.listdir(folder))  # noqa: PTH208
    data.close()


LEFT = """
import os, signal, sys
import hubbub as hb, pandas as pd
data = hb.open(pd.DataFrame({"who": [1]}), unit="who")
print(data._engine._connection.execute("SELECT current_setting('temp_directory')").fetchone()[0], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_only_folders_of_killed_processes_are_removed():
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert left.is_dir()
    alive = hb.open(pd.DataFrame({"who": [1]}), unit="who")
    hb.open(pd.DataFrame({"who": [1]}), unit="who").close()
    assert not left.exists()
    [own] = connection_of(alive).execute("SELECT current_setting('temp_directory')").fetchone()
    assert Path(own).is_dir()


# Rows in memory


class Bad:
    def __str__(self):
        raise RuntimeError("secret")


def test_objects_of_a_frame_become_texts_individually():
    frame = pd.DataFrame(
        {"who": range(5), "o": pd.Series([Bad(), "\ud800", None, float("nan"), 7], dtype=object)}
    )
    with hb.open(frame, unit="who") as data:
        rows = connection_of(data).execute("SELECT o FROM data ORDER BY who").fetchall()
    assert rows == [("\ufffd",), ("?",), (None,), (None,), ("7",)]


@pytest.mark.parametrize("make", [pa.Table.to_reader, dataset.dataset, lambda t: t.to_batches()[0]])
def test_arrow_data_can_be_read_repeatedly(make):
    data = hb.open(make(pa.table({"who": list(range(9))})), unit="who", table="t", rows_per_unit=1)
    plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1000, allow_large_epsilon=True)
    assert [round(plan.run().value["n"][0]) for _ in range(3)] == [9, 9, 9]


def test_unreadable_columns_are_left_out(tmp_path):
    table = pa.table({"x": pa.array([1], pa.timestamp("ms")), "t": pa.array([1], pa.time32("ms")), "y": [1]})
    parquet.write_table(table, tmp_path / "t.parquet")
    data = hb.open(tmp_path / "t.parquet", unit=hb.Unit.row())
    assert [column.name for column in data.tables["t"].columns] == ["y"]
    with pytest.raises(InvalidInput, match="no column 'x'"):
        data.sql("SELECT COUNT(x) FROM t", epsilon=1)


def test_table_without_readable_columns_is_refused(tmp_path):
    table = pa.table({"x": pa.array([[1]], pa.list_(pa.timestamp("ms")))})
    parquet.write_table(table, tmp_path / "t.parquet")
    for source in (tmp_path / "t.parquet", table.select([]), pa.table({"x": pa.array([1], pa.time32("s"))})):
        with pytest.raises(InvalidInput):
            hb.open(source, unit=hb.Unit.row(), table="t")


def broken(kind):
    """The texts a, one that is no UTF-8, and c."""
    buffers = [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0\4\0\0\0"), pa.py_buffer(b"ab\xffc")]
    texts = pa.Array.from_buffers(pa.string(), 3, buffers)
    if kind == pa.string_view():  # which older versions do not make of texts
        views = [
            len(text).to_bytes(4, sys.byteorder) + text.ljust(12, b"\0") for text in (b"a", b"b\xff", b"c")
        ]
        return pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(b"".join(views))])
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], kind.index_type), texts)
    return texts.cast(kind)


def seen(source, *texts):
    """How many rows have each of the texts once case is none, and how many have one at all."""
    data = hb.open(source, unit=hb.Unit.row(), table="t")
    counts = [f"COUNT(*) FILTER (WHERE LOWER(x) = '{text}')" for text in texts]
    plan = data.sql(
        f"SELECT {', '.join((*counts, 'COUNT(x)'))} FROM t", epsilon=1000, allow_large_epsilon=True
    )
    return [round(column.values[0]) for column in plan.run().value.columns]


def before_duckdb_2(monkeypatch):
    """A DuckDB with a Parquet reader that fails on text that is not UTF-8."""
    monkeypatch.setattr("hubbub.engines.file_formats.decodes_any_text", lambda _: False)


@pytest.mark.skipif(duckdb.__version__ < "2", reason="it decodes whole texts, as the next test sees")
def test_invalid_utf8_in_parquet_keeps_its_rows(tmp_path):
    parquet.write_table(pa.table({"x": broken(pa.string())}), tmp_path / "t.parquet")
    assert seen(tmp_path / "t.parquet", "a", "b?") == [1, 1, 3]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_invalid_utf8_in_parquet_keeps_its_rows_before_duckdb_2(kind, tmp_path, monkeypatch):
    before_duckdb_2(monkeypatch)
    table = pa.table({"x": broken(kind), "y": [1, 2, 3], "z": pa.array([1, 2, 3], pa.timestamp("ms"))})
    for name in ("1", "2"):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    assert seen(tmp_path / "1.parquet", "a", "\ufffd") == [1, 1, 3]
    assert seen(tmp_path / "*.parquet", "a", "\ufffd") == [2, 2, 6]
    data = hb.open(tmp_path / "1.parquet", unit="x", rows_per_unit=1, table="t")
    assert [column.name for column in data.tables["t"].columns] == ["x", "y"]
    plan = data.sql("SELECT COUNT(DISTINCT x) AS n FROM t", epsilon=1000, allow_large_epsilon=True)
    parquet.write_table(table.slice(1), tmp_path / "1.parquet")
    with pytest.raises(EngineFailed, match="has changed since it was opened"):
        plan.run()


def test_text_in_parquet_needs_arrow_before_duckdb_2(tmp_path, monkeypatch):
    before_duckdb_2(monkeypatch)
    parquet.write_table(pa.table({"x": ["a"], "y": [1]}), tmp_path / "texts.parquet")
    parquet.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "numbers.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match="this version of DuckDB fails on text"):
        hb.open(tmp_path / "texts.parquet", unit=hb.Unit.row())
    assert seen(tmp_path / "numbers.parquet") == [1]


KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_invalid_utf8_in_arrow_keeps_its_rows(kind, tmp_path):
    table = pa.table({"x": broken(kind), "y": [1, 2, 3]})
    (tmp_path / "set").mkdir()
    parquet.write_table(table, tmp_path / "set" / "1.parquet")
    files = dataset.dataset(tmp_path / "set")
    chunks = pa.concat_tables([table, table.slice(1), pa.table({"x": pa.array([None], kind), "y": [4]})])
    assert seen(table, "a", "\ufffd") == [1, 1, 3]
    assert seen(chunks, "a", "\ufffd") == [1, 2, 5]
    assert seen(table.to_batches()[0], "a", "\ufffd") == [1, 1, 3]
    assert seen(table.to_reader(), "a", "\ufffd") == [1, 1, 3]
    assert seen(dataset.dataset(table), "a", "\ufffd") == [1, 1, 3]
    assert seen(files, "a", "\ufffd") == [1, 1, 3]
    assert seen(dataset.dataset([files, files]), "a", "\ufffd") == [2, 2, 6]
    assert seen(pd.DataFrame({"x": pd.array(broken(kind), pd.ArrowDtype(kind))}), "a", "\ufffd") == [1, 1, 3]


def test_invalid_utf8_in_pandas_keeps_its_rows():
    kind = pa.string() if pd.__version__ < "2.2" else pa.large_string()
    texts = pd.arrays.ArrowStringArray(pa.chunked_array([broken(kind)]))
    assert seen(pd.DataFrame({"x": texts, "y": [1, 2, 3]}), "a", "\ufffd") == [1, 1, 3]


def test_unit_in_invalid_utf8_counts_as_a_unit(tmp_path):
    table = pa.table({"x": broken(pa.string()), "y": ["a", "b", "c"]})
    parquet.write_table(table, tmp_path / "1.parquet")
    for rows in (table, dataset.dataset(tmp_path / "1.parquet")):
        data = hb.open({"t": rows, "s": pd.DataFrame({"x": ["a", "\ufffd"]})}, unit="x", rows_per_unit=2)
        plan = data.sql("SELECT COUNT(*) FROM t JOIN s USING (x)", epsilon=1000, allow_large_epsilon=True)
        assert round(plan.run().value.columns[0].values[0]) == 2


def decimals(kind, *integers):
    """A column of these, in units of its last digit, whether or not they have too many digits."""
    stored = b"".join(number.to_bytes(16, sys.byteorder, signed=True) for number in integers)
    return pa.Array.from_buffers(kind, len(integers), [None, pa.py_buffer(stored)])


@pytest.mark.parametrize("precision", [4, 9, 18, 30, 38])
def test_decimal_with_too_many_digits_is_null(precision, tmp_path):
    kind, end = pa.decimal128(precision, 0), 10**precision
    beyond = [end, -end, 2**127 - 1, -(2**127), 1 - 2**127]
    column = decimals(kind, end - 1, *beyond, 1, *beyond, 1 - end, 3)
    table = pa.table({"x": column, "y": range(14)})
    parquet.write_table(pa.table({"x": decimals(kind, 1, 1 - end, end - 1, 3)}), tmp_path / "1")
    sources = [
        (table, [4, 9]), (table.slice(1, 7), [1, 1]),
        (pa.concat_tables([table, table.slice(3, 5)]), [5, 10]),
        (pd.DataFrame({"x": pd.array(column, pd.ArrowDtype(kind))}), [4, 9]),
        (dataset.dataset(table), [4, 9]), (dataset.dataset(tmp_path / "1"), [4, 9]),
    ]  # fmt: skip
    for source, known in sources:
        data = hb.open(source, unit=hb.Unit.row(), table="t", bounds={"x": (0, 5)})
        plan = data.sql("SELECT COUNT(x), SUM(x) FROM t", epsilon=10**6, allow_large_epsilon=True)
        assert [round(each.values[0]) for each in plan.run().value.columns] == known


@pytest.mark.parametrize("places", [("p", "v"), ("v", "p")])
def test_integer_unit_in_parquet_matches_text_unit_in_csv(places, tmp_path):
    huge = 2**62 + 1
    parquet.write_table(pa.table({"who": [1, 2, 3, -4, huge, huge + 1]}), tmp_path / "v.parquet")
    # One person is written in several ways; what is no whole number is nobody.
    whole = ["1", "01", "+1", " 1.0", "-4", str(huge)]
    odd = ["2.5", "x", "", "1e0", "9" * 39, "--2", "+-2", "\u0662", "2\r", "nan", '"2\n"']
    (tmp_path / "p.csv").write_text("who,x\n" + "".join(f"{who},1\n" for who in whole + odd))
    paths = {"v": 'path = "v.parquet"\nunit = "who"\n', "p": 'path = "p.csv"\nunit = "who"\n'}
    config_text = "rows_per_unit = 9\n" + "".join(f"[tables.{name}]\n{paths[name]}" for name in places)
    (tmp_path / "hubbub.toml").write_text(config_text)
    with pytest.raises(InvalidInput, match=r'declare who = "number" there'):
        hb.open(tmp_path / "hubbub.toml")
    (tmp_path / "hubbub.toml").write_text(config_text + '[tables.p.types]\nwho = "number"\n')
    data = hb.open(tmp_path / "hubbub.toml")
    requests = {
        "SELECT COUNT(*) AS n FROM v JOIN p USING (who)": len(whole),
        "SELECT COUNT(*) AS n FROM p": len(whole),
        "SELECT COUNT(DISTINCT who) AS n FROM p": 3,
    }
    for text, count in requests.items():
        plan = data.sql(text, epsilon=1000, allow_large_epsilon=True)
        assert round(plan.run().value["n"][0]) == count


def test_folder_names_of_a_dataset_are_texts(tmp_path):
    table = pa.table({"x": ["a", "b", "b"], "y": broken(pa.string())})
    parquet.write_to_dataset(table, tmp_path / "set", partition_cols=["x"])
    assert seen(dataset.dataset(tmp_path / "set", partitioning="hive"), "a", "b") == [1, 2, 3]


def test_dictionaries_that_arrow_recodes_are_left_out(tmp_path):
    kind = pa.dictionary(pa.int8(), pa.string())
    parquet.write_table(pa.table({"x": broken(kind), "y": ["a", "b", "c"]}), tmp_path / "1.parquet")
    files = dataset.dataset(tmp_path / "1.parquet")
    if files.schema.field("x").type == pa.dictionary(pa.int32(), pa.string()):  # an older reader makes it so
        assert seen(files, "a", "\ufffd") == [1, 1, 3]
        return
    data = hb.open(files, unit=hb.Unit.row(), table="t")
    assert [column.name for column in data.tables["t"].columns] == ["y"]


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_datasets_with_inferred_types_are_refused(ending, tmp_path):
    (tmp_path / f"1.{ending}").write_text({"csv": "x\n1\n", "json": '{"x": 1}\n'}[ending])
    with pytest.raises(InvalidInput, match="CSV or JSON"):
        hb.open(dataset.dataset(tmp_path / f"1.{ending}", format=ending), unit=hb.Unit.row(), table="t")


def test_objects_beside_arrow_columns_become_texts():
    numbers = pd.array([1, 2, 3], dtype=pd.ArrowDtype(pa.int64()))
    frame = pd.DataFrame({"y": numbers, "x": pd.Series([1, "a", None], dtype=object)})
    assert seen(frame, "a", "1") == [1, 1, 2]


def test_file_with_a_pattern_as_name_is_refused_as_such(tmp_path):
    (tmp_path / "t[1].csv").write_text("who\n1\n")
    with pytest.raises(InvalidInput, match="contains"):
        hb.open(tmp_path / "t[1].csv", unit="who")


@pytest.mark.parametrize("rows", [iter([1]), (n for n in ()), object(), 7, [1]])
def test_rows_of_other_types_are_refused(rows):
    with pytest.raises(InvalidInput, match="cannot be read"):
        hb.open(rows, unit="who")


# What an owner made


def test_functions_are_checked_again_only_after_a_change():
    connection = duckdb.connect()
    connection.execute("CREATE MACRO mine(a) AS a + 1")
    duckdb_catalog.check_catalog(connection)
    with mock.patch.object(duckdb_catalog, "_shadows_builtin", side_effect=AssertionError):
        duckdb_catalog.check_catalog(connection)
    connection.execute("CREATE MACRO greatest(a, b) AS 7")
    for _ in range(2):  # what is refused is not remembered as accepted
        with pytest.raises(InvalidInput, match="macro"):
            duckdb_catalog.check_catalog(connection)
    connection.execute("DROP MACRO greatest")
    duckdb_catalog.check_catalog(connection)
    connection.execute("SET integer_division = true")
    with pytest.raises(InvalidInput, match="integer_division"):
        duckdb_catalog.check_catalog(connection)


@pytest.mark.parametrize(
    ("config_text", "match"),
    [
        ("CREATE VIEW t AS SELECT * FROM s", "not a table of the database"),
        ("CREATE TABLE t (who INT, y INT GENERATED ALWAYS AS (who + 1))", "not a table of the database"),
        ("CREATE TABLE t AS FROM s; CREATE MACRO Least(a, b) AS 7", "macro"),
        ("CREATE TABLE t AS FROM s; CREATE MACRO unnest(a) AS TABLE SELECT a", "macro"),
        ("CREATE TABLE t AS FROM s; SET GLOBAL integer_division = true", "integer_division"),
        ("CREATE TABLE t AS FROM s; SET GLOBAL default_null_order = 'nulls_first'", "null_order"),
    ],
)
def test_objects_that_could_fail_or_change_a_query_are_refused(config_text, match):
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE s AS SELECT 1 AS who; {config_text}")
    with pytest.raises(InvalidInput, match=match):
        hb.open(connection, unit="who", table="t")


def test_harmless_macros_and_other_schemas_are_accepted():
    connection = duckdb.connect()
    connection.execute(
        "CREATE SCHEMA a; CREATE TABLE a.t AS SELECT 1 AS who; CREATE MACRO my_own(x) AS x + 1"
    )
    for name in ("a.t", "memory.a.t", 'memory."a".T'):
        data = hb.open(connection, unit="who", table=name, rows_per_unit=1)
        data.sql(f"SELECT COUNT(*) FROM {next(iter(data.tables))}", epsilon=1).run()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("greatest", ["DOUBLE", "DOUBLE"]), ("LEAST", ["BIGINT"] * 2), ("+", ["DOUBLE", "BIGINT"])],
)
def test_python_function_that_shadows_a_builtin_is_refused(name, parameters):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS who, 2.0::DOUBLE AS x")
    data = hb.open(connection, unit="who", table="t", rows_per_unit=1, bounds={"x": (0, 9)})
    plan = data.sql("SELECT SUM(x) FROM t", epsilon=1)
    function = (lambda _x: 9e9) if len(parameters) == 1 else (lambda _x, _y: 9e9)
    connection.create_function(name, function, parameters, "DOUBLE")
    with pytest.raises(InvalidInput, match="registered function"):
        plan.run()
    assert not data.account.receipts
    with pytest.raises(InvalidInput, match="registered function"):
        hb.open(connection, unit="who", table="t")


@pytest.mark.parametrize("name", ["floor", "lower"])
def test_python_function_that_replaces_a_builtin_is_refused(name):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS who, 2.5::DOUBLE AS x")
    data = hb.open(connection, unit="who", table="t", rows_per_unit=1, bounds={"x": (0, 9)})
    plan = data.sql("SELECT SUM(x) FROM t", epsilon=1)
    for parameters in (["FLOAT"] * 3, None):
        if parameters is not None:  # with an overload of ours, all of the name can be removed
            connection.create_function(name, lambda x, _y, _z: x, parameters, "FLOAT")
            connection.remove_function(name)
        else:  # it looks like the engine's own
            kind = "DOUBLE" if name == "floor" else "VARCHAR"
            connection.create_function(name, lambda x: x * 1000, [kind], kind)
        with pytest.raises(InvalidInput, match="registered function"):
            plan.run()
        with pytest.raises(InvalidInput, match="registered function"):
            hb.open(connection, unit="who", table="t")
    assert not data.account.receipts


def test_large_database_keeps_builtin_functions(tmp_path):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        for number in range(9):
            connection.execute(f"CREATE TABLE t{number} AS SELECT 1 AS who; CREATE MACRO m{number}(x) AS x")
    data = hb.open(tmp_path / "t.duckdb", unit="who", table="t1", rows_per_unit=1)
    data.sql("SELECT COUNT(*) FROM t1", epsilon=1).run()


def test_python_function_with_a_new_name_is_accepted():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS who")
    connection.create_function("my_own", lambda x: x, ["DOUBLE"], "DOUBLE")
    data = hb.open(connection, unit="who", table="t", rows_per_unit=1)
    data.sql("SELECT COUNT(*) FROM t", epsilon=1).run()


@pytest.mark.parametrize("chosen", ["USE clinic", "USE clinic.main", "SET search_path = 'clinic.main'"])
def test_names_resolve_as_on_the_owners_connection(chosen):
    connection = duckdb.connect()
    connection.execute("ATTACH ':memory:' AS clinic; CREATE TABLE t AS SELECT 1 AS other")
    connection.execute(f"CREATE TABLE clinic.t AS SELECT 1 AS who; {chosen}")
    data = hb.open(connection, unit="who", table="t", rows_per_unit=1)
    data.sql("SELECT COUNT(*) FROM t", epsilon=1).run()
    hb.open(connection, unit="other", table="memory.main.t")


def test_temporary_table_does_not_shadow_another():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS who; CREATE TEMP TABLE T AS SELECT 1 AS who")
    with pytest.raises(InvalidInput, match="temporary"):
        hb.open(connection, unit="who", table="t")
    hb.open(connection, unit="who", table="main.t")


def test_table_replaced_by_a_view_is_refused():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS who")
    data = hb.open(connection, unit="who", table="t", rows_per_unit=1)
    plan = data.sql("SELECT COUNT(*) FROM t", epsilon=1)
    connection.execute(
        "DROP TABLE t; CREATE TABLE s AS SELECT 'x' AS x; CREATE VIEW t AS SELECT x::INT AS who FROM s"
    )
    with pytest.raises((EngineFailed, InvalidInput)):
        plan.run()
    assert not data.account.receipts


# Keys


@pytest.mark.parametrize(
    "keys",
    [
        [pd.Timestamp("2024-01-01 00:00:00.000000001")],
        [pd.Timestamp("2024-01-01", tz="UTC")],
        [pd.NaT],
        [np.datetime64("2024-01-01T00:00:00.000000001")],
        [pd.Timestamp("2024-01-01").to_datetime64(), pd.Timestamp("2024-01-01")],
    ],
)
def test_keys_finer_than_the_engines_types_are_refused(keys):
    with pytest.raises(InvalidInput, match="key"):
        parse_group_keys(keys, "t", Kind.TIMESTAMP)


@pytest.mark.parametrize("key", [1e300, -(2.0**201), 2**53 + 1, float("inf")])
def test_numbers_that_no_row_can_have_are_refused_as_keys(key):
    with pytest.raises(InvalidInput, match=r"at most 2\^200"):
        hb.open(pa.table({"who": [1], "x": [1e300]}), unit="who", table="t", keys={"x": [0, key]})
    hb.open(pa.table({"who": [1], "x": [1e300]}), unit="who", table="t", keys={"x": [0, 2.0**200]})


def test_pandas_and_numpy_datetimes_are_keys():
    moments = pd.date_range("2024-01-01", periods=3, freq="h")
    plain_keys = tuple(moment.to_pydatetime() for moment in moments)
    for given_keys in (moments, list(moments.to_numpy()), list(moments.to_numpy().astype("M8[s]"))):
        result = parse_group_keys(given_keys, "t", Kind.TIMESTAMP)
        assert result == plain_keys
        assert {type(key) for key in result} == {type(plain_keys[0])}
    days = moments.to_numpy().astype("M8[D]")[:1]
    assert parse_group_keys(list(days), "t", Kind.DATE) == (plain_keys[0].date(),)
