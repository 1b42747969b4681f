"""Files as people have them: separators, compression, JSON, Feather and folders. A row stays a row in all."""

import csv
import gzip
import io
import json
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

import hubbub as hb
from hubbub.engines.compressed_files import open_bytes
from hubbub.engines.csv_rows import SEPARATORS, detect_plain, detect_separator, make_csv_format, read_batches
from hubbub.engines.json_rows import read_json_batches
from hubbub.errors import EngineFailed, InvalidInput
from internals import connection_of, read_files

SEPARATOR = st.sampled_from(list(SEPARATORS))
NASTY = st.sampled_from(
    [b"\r", b'"', b'""', b",", b";", b"\t", b"|", b"\0", b"\xef\xbb\xbf", b"\xff", b"a", b" "]
)
LINE = st.lists(NASTY, max_size=8).map(b"".join)
FIELD = st.text(st.sampled_from('\r\n",;\t|\0\ufeffaé '), max_size=5)
PLAIN_FIELD = st.text(st.sampled_from("ab é'#\\,;\t|"), max_size=4)
JSON_LINE = st.lists(
    st.sampled_from(
        [b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b'"a"', b"1", b"null", b"\xff", b" ", b"\0"]
    ),
    max_size=12,
).map(b"".join)
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = ("a", "b")


@contextmanager
def write(raw, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(raw)
        yield path


def csv_rows(raw, width=2, **how):
    with write(raw, "t.csv") as path:
        return [
            row
            for batch in read_batches(path, make_csv_format(**how), width)
            for row in zip(*batch, strict=True)
        ]


def json_rows(raw, name="t.ndjson"):
    with write(raw, name) as path:
        batches = read_json_batches(path, NAMES, is_array=name.endswith(".json"))
        return [row for batch in batches for row in zip(*batch, strict=True)]


def engine_rows(path, **how):
    """The rows as a dataset has them, whichever way they were read."""
    with hb.open(path, unit="row", table="t", **how) as data:
        read_files(data)
        return connection_of(data).execute("SELECT * FROM t").fetchall()


# Separators


@given(st.lists(LINE, min_size=1, max_size=6), st.integers(0, 5), LINE, SEPARATOR)
def test_a_line_changes_its_own_row_with_any_separator(lines, place, other, separator):
    place %= len(lines)
    changed = [*lines[:place], other, *lines[place + 1 :]]
    one, two = (
        Counter(csv_rows(b"\n".join([b"a,b", *each, b""]), has_quotes=False, separator=separator))
        for each in (lines, changed)
    )
    assert len(list((one - two).elements())) <= 1
    assert len(list((two - one).elements())) <= 1


@given(st.lists(st.tuples(FIELD, FIELD), max_size=5), SEPARATOR)
def test_conforming_files_round_trip_with_any_separator(rows, separator):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=separator).writerows([NAMES, *rows])
    expected = [tuple(field or None for field in row) for row in rows]
    assert csv_rows(out.getvalue().encode(), separator=separator) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(PLAIN_FIELD, PLAIN_FIELD), max_size=6),
    SEPARATOR,
    st.booleans(),
    st.sampled_from(["", ".gz", ".zst"]),
)
def test_duckdb_reads_files_as_defined_with_any_separator(rows, separator, has_quotes, ending):
    text = "\n".join([f"a{separator}b", *(separator.join(row) for row in rows), ""])
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[ending]
    with write(pack(text.encode()), f"t.csv{ending}") as path:
        how = make_csv_format(has_quotes=has_quotes, separator=separator)
        expected = Counter(row for batch in read_batches(path, how, 2) for row in zip(*batch, strict=True))
        assert Counter(engine_rows(path, quotes=has_quotes, separator=separator)) == expected


def test_plain_files_are_read_by_duckdb_with_any_separator():
    for separator in SEPARATORS:
        raw = f"a{separator}b\n1{separator}x\n".encode()
        with write(gzip.compress(raw), "t.csv.gz") as path:
            assert detect_plain(path, make_csv_format(separator=separator), 2) is not None


@pytest.mark.parametrize(
    ("header", "separator"),
    [
        ("a,b,c", ","),
        ("a;b;c", ";"),
        ("a\tb", "\t"),
        ("a|b", "|"),
        ("a", ","),
        ("a,b;c", ","),
        ("name, first;age;size", ";"),
        ('"a;b;c",d', ","),
        ('"a,b,c";d', ";"),
    ],
)
@given(LINE)
def test_only_the_header_line_decides_the_separator(header, separator, line):
    with write(header.encode() + b"\n" + line + b"\n;;;;;\n", "t.csv") as path:
        assert detect_separator(path) == separator


def test_detected_separator_is_said_and_a_declared_one_is_not(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n")
    with hb.open(path, unit="a") as data:
        assert data.notes == ("t.csv: a semicolon separates fields, by the header line",)
    with hb.open(path, unit="a", separator=";") as data:
        assert data.notes == ()
    with hb.open(path, unit="a", separator=";", types={"b": "number"}) as data:
        assert data.notes == ("t: texts in b that are not of the declared type are NULL",)
    with hb.open(path, unit="a;b", separator=",") as data:
        assert [column.name for column in data.tables["t"].columns] == ["a;b"]
    path = path.rename(tmp_path / "t.tsv")
    with pytest.raises(InvalidInput, match="there is no column 'a'"):
        hb.open(path, unit="a")  # the ending says: tabs


@pytest.mark.parametrize(
    "how", [{"separator": "x"}, {"separator": "|", "encoding": "shift_jis"}, {"separator": ";;"}]
)
def test_separators_that_could_split_a_character_are_refused(how):
    with pytest.raises(InvalidInput):
        make_csv_format(**how)


# Compression


def test_compressed_streams_may_have_several_frames(tmp_path):
    parts = [b"a,b\n1,2\n", b"", b"3,4\n" * 100_000]
    for ending, pack in ((".gz", gzip.compress), (".zst", zstandard.compress)):
        path = tmp_path / f"t.csv{ending}"
        path.write_bytes(b"".join(map(pack, parts)))
        with open_bytes(path) as file:
            assert file.read() == b"".join(parts)
        assert len(engine_rows(path)) == 100_001


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "changed", "garbage after it"])
def test_damaged_file_fails_as_stored_outcome(tmp_path, ending, damage):
    raw = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i % 97) for i in range(50_000))
    packed = bytearray({".gz": gzip.compress, ".zst": zstandard.compress}[ending](raw))
    if damage == "cut":
        del packed[-100:]
    elif damage == "changed":
        packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
    else:
        packed += b"more"
    path = tmp_path / f"t.csv{ending}"
    path.write_bytes(packed)
    with hb.open(path, unit="a", ledger=tmp_path / "l", budget=hb.Budget(1), rows_per_unit=1) as data:
        plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.1)  # planning reads the header
        errors = []
        for _ in range(2):
            with pytest.raises(EngineFailed) as failure:
                data.run(plan)
            errors.append(str(failure.value))
        assert errors[0] == errors[1]
        assert data.account.spent().epsilon == pytest.approx(0.1)


@pytest.mark.slow
def test_one_enormous_row_is_one_row(tmp_path):
    """A bomb in one field: 68 MB of it, packed in 10 kB; the others are as they were."""
    path = tmp_path / "t.csv.zst"
    frames = zstandard.ZstdCompressor().compressobj()
    packed = frames.compress(b"a,b\n1,2\n3,")
    for _ in range(68):
        packed += frames.compress(bytes(1 << 20).replace(b"\0", b"x"))
    path.write_bytes(packed + frames.compress(b"\n5,6\n") + frames.flush())
    assert path.stat().st_size < 1 << 20
    assert Counter(engine_rows(path)) == Counter([("1", "2"), ("3", None), ("5", "6")])


# JSON


@given(st.lists(JSON_LINE, min_size=1, max_size=6), st.integers(0, 5), JSON_LINE)
def test_a_line_of_json_changes_its_own_row(lines, place, other):
    place %= len(lines)
    changed = [*lines[:place], other, *lines[place + 1 :]]
    one, two = (Counter(json_rows(b"\n".join([*each, b""]))) for each in (lines, changed))
    assert len(list((one - two).elements())) <= 1
    assert len(list((two - one).elements())) <= 1


@given(st.lists(st.binary(max_size=30), max_size=6))
def test_every_line_that_is_not_blank_is_a_row_of_json(lines):
    lines = [line.replace(b"\n", b"") for line in lines]
    assert len(json_rows(b"\n".join(lines))) == sum(
        bool(line.strip(b" \t\r\n\xef\xbb\xbf")) for line in lines
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.lists(JSON_VALUE | st.fixed_dictionaries({"a": JSON_VALUE, "b": JSON_VALUE}), max_size=6),
    st.booleans(),
)
def test_json_rows_are_the_same_in_lines_and_in_an_array(values, is_ascii):
    lines = "\n".join(json.dumps(value, ensure_ascii=is_ascii) for value in values)
    result = json_rows(
        json.dumps(values, indent=1, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"), "t.json"
    )
    assert result == json_rows(lines.encode("utf-8", "surrogatepass"))
    assert len(result) == len(values)
    for value, row in zip(values, result, strict=True):
        for name, text in zip(NAMES, row, strict=True):
            inner = value.get(name) if isinstance(value, dict) else None
            if isinstance(inner, bool):
                assert text == str(inner).lower()
            elif isinstance(inner, (int, float)):
                assert float(text) == inner
            elif not isinstance(inner, str):
                assert text is None


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"a":' * 100_000, b'{"a":' + b"9" * 100_000 + b"}", b'{"a":NaN}']
)
def test_no_line_of_json_raises(line):
    for raw, name in ((line + b'\n{"a":1,"b":"x"}\n', "t.ndjson"), (b'[{"a":1,"b":"x"}]', "t.json")):
        assert json_rows(raw, name)[-1] == ("1", "x")


def test_byte_order_mark_is_dropped_wherever_a_row_is():
    # If it were dropped from the first line only, removing the rows before a row would change that row.
    marked = b'\xef\xbb\xbf{"a":1,"b":"x"}\n'
    for before in (b"", b'{"a":2}\n', b"\n", marked):
        assert json_rows(before + marked)[-1] == ("1", "x")


def test_long_rows_of_json_are_null(monkeypatch):
    monkeypatch.setattr("hubbub.engines.json_rows.MAX_FIELD_BYTES", 20)
    monkeypatch.setattr("hubbub.engines.json_rows.CHUNK_BYTES", 7)
    rows = [b'{"a":1}', b'{"a":"' + b"x" * 50 + b'"}', b'{"a":"]\\"["}']
    expected = [("1", None), (None, None), (']"[', None)]
    assert json_rows(b"\n".join(rows)) == expected
    assert json_rows(b"\xef\xbb\xbf [" + b",\n".join(rows) + b"] ", "t.json") == expected


def test_columns_of_json_are_those_that_are_declared(tmp_path):
    path = tmp_path / "t.ndjson"
    path.write_text('{"person": 1, "cost": 2.5, "more": 1}\n{"person": "2", "cost": "x"}\nnonsense\n')
    assert engine_rows(path, types={"person": "text", "cost": "number"}) == [
        ("1", 2.5),
        ("2", None),
        (None, None),
    ]
    with pytest.raises(InvalidInput, match="no column of t is declared"):
        hb.open(path, unit="row")
    packed = tmp_path / "t.ndjson.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(engine_rows(packed, types={"person": "text"})) == 3


def test_json_that_is_no_array_is_refused_when_it_is_opened(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(InvalidInput, match=r"t\.json is not a JSON array.*\.ndjson"):
        hb.open(path, unit="a")
    path.write_text('[{"a": 1}, {"a": 2}')
    with hb.open(path, unit="a", rows_per_unit=1) as data:
        plan = data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1)
        with pytest.raises(EngineFailed):
            data.run(plan)


# Feather, folders


def test_feather_is_read_as_arrow_is(tmp_path):
    path = tmp_path / "t.feather"
    feather.write_feather(pa.table({"a": [1, 2], "b": ["x", None]}), str(path))
    assert sorted(engine_rows(path)) == [(1.0, "x"), (2.0, None)]
    feather.write_feather(pa.table({"a": ["1", "2"], "b": ["x", None]}), str(tmp_path / "u.feather"))
    with pytest.raises(InvalidInput, match="different columns or types"):
        hb.open(tmp_path / "*.feather", unit="a", table="t")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidInput, match=r"t\.feather cannot be opened as a Feather file"):
        hb.open(path, unit="a")


@pytest.fixture
def trips(tmp_path):
    root = tmp_path / "trips"
    for year, region in (("2024", "North"), ("2025", "a%2Fb"), ("x", "__HIVE_DEFAULT_PARTITION__")):
        folder = root / f"year={year}" / f"region={region}"
        folder.mkdir(parents=True)
        parquet.write_table(pa.table({"person": [1, 2], "cost": ["u", "v"]}), folder / "0.parquet")
    (root / "_SUCCESS").touch()
    (root / "_tmp").mkdir()
    parquet.write_table(pa.table({"other": [1]}), root / "_tmp" / "1.parquet")
    return root


def test_folder_names_are_columns_where_declared(trips):
    result = engine_rows(trips, partitions=["year", "region"], types={"year": "number"})
    assert Counter(result) == Counter(
        (person, cost, year, region)
        for person, cost in ((1.0, "u"), (2.0, "v"))
        for year, region in ((2024.0, "North"), (2025.0, "a/b"), (None, None))
    )


@pytest.mark.parametrize("partitions", [None, ["year"], ["region", "year"], ["year", "region", "day"]])
def test_folder_names_that_are_not_declared_are_refused(trips, partitions):
    with pytest.raises(InvalidInput, match="named by year, region"):
        hb.open(trips, unit="person", partitions=partitions)


def test_folder_name_cannot_replace_a_column(trips):
    for path in trips.rglob("0.parquet"):
        parquet.write_table(pa.table({"person": [1], "Region": ["x"]}), path)
    with pytest.raises(InvalidInput, match="have one name"):
        hb.open(trips, unit="person", partitions=["year", "region"])


def test_folder_above_the_data_is_no_column(tmp_path):
    root = tmp_path / "person=9" / "trips"
    root.mkdir(parents=True)
    parquet.write_table(pa.table({"person": [1, 2]}), root / "0.parquet")
    parquet.write_table(pa.table({"person": [3]}), root / "1.pq")
    assert sorted(engine_rows(root)) == [(1.0,), (2.0,), (3.0,)]


def test_folder_is_declared_and_found_by_any_of_its_files(trips, tmp_path):
    (tmp_path / "hubbub.toml").write_text(
        'ledger = "l"\n[budget]\nepsilon = 1\n'
        '[tables.trips]\npath = "trips"\nunit = "person"\npartitions = ["year", "region"]\n'
    )
    with hb.open(trips) as data:
        assert data.unit.key == "person"
        assert [column.name for column in data.tables["trips"].columns] == [
            "person",
            "cost",
            "year",
            "region",
        ]
    with pytest.raises(hb.errors.Refused, match="declares another unit"):
        hb.open(next(trips.rglob("0.parquet")), unit="row")


# What is not read


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("t.xlsx", r"t\.xlsx is a spreadsheet.*save the sheet as CSV"),
        ("t.parquet.gz", "compressed file that is neither CSV nor JSON"),
        ("t.doc", r"t\.doc ends in \.doc.*\.ndjson"),
        ("t", "t ends in nothing"),
    ],
)
def test_other_files_are_refused_with_advice(tmp_path, name, what):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(InvalidInput, match=what):
        hb.open(tmp_path / name, unit="row")


def test_folder_is_not_called_a_missing_file(tmp_path):
    for path, what in (
        (tmp_path, "is a folder without files that can be read"),
        (tmp_path / "no.csv", r"no\.csv does not exist"),
        (tmp_path / "no*.csv", "no file matches"),
        (tmp_path / "no.duckdb", r"no\.duckdb does not exist"),
    ):
        with pytest.raises(InvalidInput, match=what):
            hb.open(path, unit="row", table="t")
