"""A row is a row: how files are read.

| row | what an attacker does | mutant |
|---|---|---|
| A34 | bytes in one line of a CSV file that change other lines, or remove them | lines_by_the_engine |
| A35 | fields that a conforming writer quotes, and that are read as something else | fields_by_the_engine |
| A36 | bytes that are no UTF-8: their rows disappear | rows_of_utf8_alone |
| A37 | keys that differ in Python and are equal in the engine | keys_as_given |
| A38 | one far-off moment, of any unit, that makes every query fail | every_type_is_read |
| A55 | files of one pattern with unlike types: one value fails the query | the_first_file_speaks_for_all |
| A55-view | an owner's view that casts: one value fails the query | any_name_in_the_catalog |
| A56 | macros that stand for the engine's own functions, made after planning | names_bound_to_the_nearest |
| A56-settings | a setting that makes unlike texts equal, made after opening | settings_as_they_are |
| A57 | columns that differ only in case: the unit is another one | names_as_the_engine_makes_them |
| A58 | files of one pattern with headers in another order | header_of_the_first_file |
| A59 | a folder's name that stands for the unit's column | folders_are_columns |
| A60 | an owner's view over a reader that guesses types from rows | any_name_in_the_catalog |
| A65 | one dataset of an owner's connection, asked by eight threads | one_transaction_for_all_threads |
| A66 | a table named as a list of keys is while a query runs | any_name_for_a_table |
| A66-stream | rows that can be read only once | streams_as_they_come |
| A66-folder | what does not fit in memory, read by another user | folders_for_everybody |
| A73 | a line of 17 MB, and commas at the end of every line | long_lines_passed_over |
"""

import csv
import io
import os
import random
import stat
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet

import hubbub as hb
from attacks import mutants_files as mutants
from attacks.rows import Row, both_tests
from hubbub.engines.schema import Kind, parse_group_keys
from hubbub.errors import EngineFailed
from internals import connection_of, engine_of, read_files

ROW = hb.Unit.row()
FAR = (10**17, 2**63 - 1, -(2**63) + 1)
OURS = {"ours": nullcontext}


def rows_read(path, **options):
    """The rows of a file as ours reads them."""
    with hb.open(path, unit=ROW, table="t", **options) as data:
        read_files(data)
        return connection_of(data).execute("SELECT * FROM t").fetchall()


def write(raw, name="t.csv"):
    """A file of these bytes, in a folder that goes away."""
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return folder, path


def count(data, text, **options):
    """The exact integers of a query's first aggregate."""
    plan = data.sql(text, epsilon=1, **options)
    measured = plan.bounded.bounded_aggregates[0]
    result = engine_of(data).execute(measured.sql, measured.key_sets)
    return {name: values.tolist() for name, values in result.items()}


# CSV


LINES = [f"{number},name {number},{number % 7}".encode() for number in range(40)]
HOSTILE = [
    b"900,x\r", b"900,x\r\r", b"\r900,\rx\r\r", b"900,\0,1", b"\xef\xbb\xbf900,x,1", b"900,\xff\xfe,1",
    b"900",
    b"\r\r", b"900,1,2,3,4,5", b"900,,,,,", b'900,"oops', b'x",,"', b'"', b'"a\r"b', b"900,\xc3",
    b"\xed\xa0\x80,1,2", b",,", b"900," + b"x" * 3_000_000,
]  # fmt: skip


def attack_A34(read):
    chance = random.Random(34)
    odd = [
        bytes(chance.choice(b'\r\0",\xef\xbb\xbf\xff\xc3a1 \\#') for _ in range(8)) + b"x" for _ in range(30)
    ]
    for line in [*HOSTILE, *odd]:
        for end in (b"\n", b"\r\n"):
            raw = end.join([b"who,name,group", *LINES[:20], line, *LINES[20:], b""])
            folder, path = write(raw)
            with folder:
                results = Counter(read(path, quotes=False))
            others = Counter(
                (w.decode(), n.decode(), g.decode()) for w, n, g in (o.split(b",") for o in LINES)
            )
            if others - results or len(list((results - others).elements())) != 1:
                return True
    return False


FIELDS = [
    "\r", "\n", "\r\n", "\r\r\n", '"', '""', 'a"b', "\0", "\ufeff", ",", 'x",,"', ' "', '" ', "'", "\\", "#",
    "é\u2028", "", "a\rb", "a\nb", "\n\n", "\x1a", "NULL", "x" * 17_000_000,
]  # fmt: skip


def attack_A35(read):
    table = [(str(number), field, str(number)) for number, field in enumerate(FIELDS)]
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        out = io.StringIO(newline="")
        csv.writer(out, quoting=quoting).writerows([("a", "b", "c"), *table])
        folder, path = write(out.getvalue().encode())
        with folder:
            if sorted(read(path), key=str) != sorted(((a, b or None, c) for a, b, c in table), key=str):
                return True
    return False


def attack_A36(read):
    names = ["Zoë", "Müller", "plain", "Ærø"]
    raw = "\n".join(["name,x", *(f"{name},1" for name in names)]).encode("latin-1")
    folder, path = write(raw)
    with folder:
        return len(read(path)) != len(names) or {name for name, _ in read(path, encoding="latin-1")} != set(
            names
        )


def attack_A73(read):
    raw = b"a,b,\n1,2,\n" + b"3," + b"x" * 17_000_000 + b",\n5,6,\n"
    folder, path = write(raw)
    with folder:
        try:
            return sorted(row[0] for row in read(path)) != ["1", "3", "5"]
        except duckdb.Error:
            return True


def attack_A58(read):
    folder = tempfile.TemporaryDirectory()
    Path(folder.name, "v1.csv").write_bytes(b"patient,cost\n1,900\n")
    Path(folder.name, "v2.csv").write_bytes(b"cost,patient\n800,2\n")
    with folder:
        try:
            result = read(Path(folder.name) / "v*.csv")
        except hb.InvalidInput:
            return False
    return set(result) != {("1", "900"), ("2", "800")}


# Keys


def attack_A37(output):
    moments = pd.date_range("2024-01-01", periods=1000, freq="ns")
    subclass = [type("Text", (str,), {"__eq__": lambda *_: False, "__hash__": id})("a") for _ in range(2)]
    for keys, kind in (
        (list(moments), Kind.TIMESTAMP),
        (moments, Kind.TIMESTAMP),
        (list(moments.to_numpy()), Kind.TIMESTAMP),
        (subclass, Kind.TEXT),
    ):
        try:
            result = output(keys, kind)
        except hb.InvalidInput:
            continue
        keys_read = {
            datetime.isoformat(key)[:26] if isinstance(key, datetime) else "".join(key) for key in result
        }
        if len(keys_read) < len(result):
            return True
    return False


# Types


def far_off():
    """Tables with one moment that is far off, by every type that has any."""
    for unit in ("s", "ms", "us", "ns"):
        raw = pa.array([1, *FAR, None], pa.int64())
        kinds = [pa.timestamp(unit), pa.timestamp(unit, "UTC"), pa.duration(unit)]
        kinds += [pa.time64(unit)] if unit in {"us", "ns"} else []
        for kind in kinds:
            yield pa.table({"x": raw.view(kind), "y": pa.array(range(5))})
        frame = pd.DataFrame({"x": np.array([1, *FAR], "i8").view(f"M8[{unit}]"), "y": range(4)})
        yield frame
        yield frame.assign(x=frame.x.dt.tz_localize("UTC"))
        yield frame.assign(x=np.array([1, *FAR], "i8").view(f"m8[{unit}]"))
    for kind in (pa.time32("s"), pa.time32("ms"), pa.date32()):
        yield pa.table({"x": pa.array([1, 2**31 - 1, None], pa.int32()).view(kind), "y": pa.array(range(3))})
    yield pa.table(
        {"x": pa.array([1, 2**63 - 1, None], pa.int64()).view(pa.date64()), "y": pa.array(range(3))}
    )


def attack_A38(reading):
    with tempfile.TemporaryDirectory() as folder, reading():
        for number, table in enumerate(far_off()):
            sources = [table]
            if isinstance(table, pa.Table) and table.schema.field("x").type != pa.timestamp("s"):
                path = Path(folder) / f"t{number}.parquet"
                try:
                    parquet.write_table(table, path)
                    sources.append(path)
                except pa.ArrowInvalid:  # there are no seconds in Parquet
                    pass
            for source in sources:
                if fails(source):
                    return True
    return False


def fails(source):
    """Whether some query that is accepted fails."""
    data = hb.open(source, unit=ROW, table="t")
    queries = [
        "COUNT(*) FROM t",
        "COUNT(x) FROM t",
        "COUNT(*) FROM t WHERE x > '2000-01-01'",
        "COUNT(*) FROM t WHERE y > 0",
    ]
    for text in queries:
        try:
            plan = data.sql(f"SELECT {text}", epsilon=1)
        except hb.InvalidInput:
            continue
        try:
            plan.run()
        except EngineFailed:
            return True
    return False


def attack_A55(reading):
    with tempfile.TemporaryDirectory() as folder, reading():
        parquet.write_table(pa.table({"age": pa.array([1, 2], pa.int32())}), f"{folder}/t1.parquet")
        parquet.write_table(pa.table({"age": pa.array([1, 2**40], pa.int64())}), f"{folder}/t2.parquet")
        try:
            return fails_on_a_row(hb.open(f"{folder}/t*.parquet", unit=ROW, table="t"))
        except hb.InvalidInput:
            return False


def attack_A55_view(reading):
    with reading():
        connection = duckdb.connect()
        connection.execute("CREATE TABLE s AS SELECT * FROM (VALUES ('1'), ('x')) AS v(age)")
        connection.execute("CREATE VIEW t AS SELECT age::INT AS age FROM s")
        try:
            return fails_on_a_row(hb.open(connection, unit=ROW, table="t"))
        except hb.InvalidInput:
            return False


def fails_on_a_row(data):
    try:
        data.sql("SELECT COUNT(*) FROM t WHERE age > 0", epsilon=1).run()
    except EngineFailed:
        return True
    return False


def attack_A60(reading):
    kinds = set()
    for value in (b"2", b"x"):
        folder, path = write(b"age\n1\n" + value + b"\n")
        with folder, reading():
            connection = duckdb.connect()
            connection.execute(f"CREATE VIEW t AS FROM '{path}'")
            try:
                kinds.add(hb.open(connection, unit=ROW, table="t").tables["t"].find("age").kind)
            except hb.InvalidInput:
                return False
    return len(kinds) > 1


def attack_A59(reading):
    with tempfile.TemporaryDirectory() as folder, reading():
        path = Path(folder) / "patient=k" / "t.parquet"
        path.parent.mkdir()
        parquet.write_table(pa.table({"patient": pa.array(range(50)).cast(pa.string())}), path)
        with hb.open(path, unit="patient") as data:
            rows = connection_of(data).execute("SELECT _unit FROM t").fetchall()
    return len(set(rows)) != 50


# What an owner made


def of_owner():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT i % 100 AS who, i % 7 + 1.0 AS cost, 'a' AS g FROM range(1000) AS r(i)"
    )
    return connection


def attack_A56(reading):
    text = "SELECT SUM(cost) FROM t"
    for macro in (
        "sum(a) AS list_sum(list(a)) * 1000",
        "floor(a) AS a + 7",
        '"*"(a, b) AS 7',
        "count_star() AS 9",
    ):
        connection = of_owner()
        with reading():
            data = hb.open(connection, unit="who", table="t", bounds={"cost": (0, 10)}, rows_per_unit=5)
            before = count(data, text)
            connection.execute(f"CREATE MACRO {macro}")
            try:
                if count(data, text) != before:
                    return True
            except hb.HubbubError:
                continue
    return False


def attack_A56_settings(reading):
    connection = of_owner()
    connection.execute("CREATE TABLE u AS SELECT * FROM (VALUES (1, 'a'), (2, 'A'), (3, 'a')) AS v(who, g)")
    with reading():
        data = hb.open(connection, unit="who", table="u", rows_per_unit=1)
        plan = data.sql("SELECT COUNT(*) FROM u WHERE g = 'a'", epsilon=1)
        connection.execute("SET GLOBAL default_collation = 'nocase'")
        try:
            plan.run()
        except hb.HubbubError:
            return False
    return True


def attack_A57(reading):
    columns = {"PATIENT": [1, 1, 1], "patient": [1, 2, 3]}
    with tempfile.TemporaryDirectory() as folder, reading():
        path = Path(folder) / "t.parquet"
        parquet.write_table(pa.table(columns), path)
        for source in (pd.DataFrame(columns), pa.table(columns), pl.DataFrame(columns), path):
            try:
                hb.open(source, unit="patient", table="t")
            except hb.InvalidInput:
                continue
            return True
    return False


def attack_A65(reading):
    with reading():
        data = hb.open(of_owner(), unit="who", table="t", keys={"g": ["a", "b"]}, rows_per_unit=5)
        plan = data.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=0.01)

        def run(_):
            try:
                return len(plan.run().value) == 2
            except Exception:  # one cursor for eight threads fails in ways that have no class of their own
                return False

        with ThreadPoolExecutor(8) as threads:
            return not all(threads.map(run, range(48)))


def attack_A66(reading):
    frame = pd.DataFrame({"who": range(9), "g": ["a", "b", "c"] * 3})
    with reading():
        try:
            data = hb.open({"_keys0": frame}, unit="who", keys={"g": ["a", "b"]}, rows_per_unit=1)
        except hb.InvalidInput:
            return False
        try:
            data.sql("SELECT g, COUNT(*) AS n FROM _keys0 GROUP BY g", epsilon=1).run()
        except EngineFailed:
            return True
    return False


def attack_A66_stream(reading):
    table = pa.table({"who": list(range(9))})
    with reading():
        try:
            data = hb.open(table.to_reader(), unit="who", table="t", rows_per_unit=1)
            results = [count(data, "SELECT COUNT(*) FROM t") for _ in range(2)]
        except hb.InvalidInput:
            return False
        except EngineFailed:
            return True
    return results != [{"m0": [9 << 16]}] * 2


def attack_A66_folder(reading):
    with reading():
        data = hb.open(pd.DataFrame({"who": [1]}), unit="who")
        [folder] = connection_of(data).execute("SELECT current_setting('temp_directory')").fetchone()
        mode = stat.S_IMODE(os.stat(folder).st_mode)  # noqa: PTH116
    return bool(mode & 0o077)


ROWS = [
    Row("A34", attack_A34, {"ours": rows_read}, mutants.lines_by_the_engine),
    Row("A35", attack_A35, {"ours": rows_read}, mutants.fields_by_the_engine),
    Row("A36", attack_A36, {"ours": rows_read}, mutants.rows_of_utf8_alone),
    Row(
        "A37",
        attack_A37,
        {"ours": lambda keys, kind: parse_group_keys(keys, "t", kind)},
        mutants.keys_as_given,
    ),
    Row("A38", attack_A38, OURS, mutants.every_type_is_read),
    Row("A55", attack_A55, OURS, mutants.the_first_file_speaks_for_all),
    Row("A55-view", attack_A55_view, OURS, mutants.any_name_in_the_catalog),
    Row("A56", attack_A56, OURS, mutants.names_bound_to_the_nearest),
    Row("A56-settings", attack_A56_settings, OURS, mutants.settings_as_they_are),
    Row("A57", attack_A57, OURS, mutants.names_as_the_engine_makes_them),
    Row("A58", attack_A58, {"ours": rows_read}, mutants.header_of_the_first_file),
    Row("A59", attack_A59, OURS, mutants.folders_are_columns),
    Row("A60", attack_A60, OURS, mutants.any_name_in_the_catalog),
    Row("A65", attack_A65, OURS, mutants.one_transaction_for_all_threads),
    Row("A66", attack_A66, OURS, mutants.any_name_for_a_table),
    Row("A66-stream", attack_A66_stream, OURS, mutants.streams_as_they_come),
    Row("A66-folder", attack_A66_folder, OURS, mutants.folders_for_everybody),
    Row("A73", attack_A73, {"ours": rows_read}, mutants.long_lines_passed_over),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
