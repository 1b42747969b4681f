"""Tables of many groups, a piece at a time, on every engine: the same as all at once."""

import csv
import math
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

import hubbub as hb
from hubbub.engines.engine import TableSource
from hubbub.engines.schema import KEY_LIST_MIN_SIZE as MIN_SIZE
from hubbub.engines.schema import KeyList
from hubbub.errors import EngineFailed, InvalidInput, Unsupported
from hubbub.sql.fingerprint import fingerprint
from internals import engine_of
from refusing import refused

ENGINES = ["DuckDB", "PostgreSQL", "Spark"]
SURE = 2000
"""So large an ε that there is noise once in e^400 times."""
COLUMNS = {"person": "BIGINT", "word": "VARCHAR", "number": "DOUBLE", "cost": "DOUBLE"}
MORE = MIN_SIZE + 5000
WORDS = [f"w{place:05d}é" for place in range(MORE)]
ROWS = [
    (1, WORDS[0], 0.0, 10.0),
    (2, WORDS[0], 1.0, 20.0),
    (3, WORDS[MIN_SIZE - 1], MIN_SIZE - 1.0, 30.0),
    (4, WORDS[MIN_SIZE], MIN_SIZE + 0.0, 40.0),
    (5, WORDS[MORE - 1], MORE - 1.0, None),
    (6, None, None, 60.0),
    (7, "elsewhere", -1.0, 70.0),
]


@pytest.fixture(scope="module", params=ENGINES)
def make_dataset(request, tables_in):
    """A dataset on each engine."""
    return maker(tables_in(request.param))


@pytest.fixture(scope="module", params=[*ENGINES[:2], pytest.param("Spark", marks=pytest.mark.long)])
def make_quick_dataset(request, tables_in):
    """A dataset on each engine, but on Spark, which takes seconds for a query, in the long tests only."""
    return maker(tables_in(request.param))


def maker(place):
    name = place.create("t", COLUMNS)
    place.put("t", COLUMNS, ROWS)
    who = hb.Unit("person")

    def make(**options):
        source = TableSource(name, None, "person", bounds={"cost": (0, 64)}, **options)
        return hb.Dataset(
            place.engine({"t": source}),
            who,
            hb.InMemoryAccount(None, who),
            contribution_bounds=hb.sql.query.ContributionBounds(1),
        )

    return make


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Pieces so small that there are several."""
    monkeypatch.setattr("hubbub.sql.streaming.MAX_GROUPS", 1 << 14)
    monkeypatch.setattr("hubbub.engines.duckdb.BATCH_ROWS", 2)
    monkeypatch.setattr("hubbub.engines.remote_engine.BATCH_ROWS", 2)


def exact(data, text, **keys):
    """Streamed with next to no noise; all groups that are not zero, and how many there are."""
    stream = data.stream(data.sql(text, epsilon=SURE, allow_large_epsilon=True, keys=keys)).value
    rows = [row for answers in stream for row in zip(*answers.to_dict().values(), strict=True)]
    return len(rows), rows


def test_batches_make_up_the_whole_result(make_dataset):
    data = make_dataset()
    count, rows = exact(data, "SELECT word, COUNT(*) AS n FROM t GROUP BY word", word=[*WORDS, None])
    assert count == MORE + 1
    assert [row[0] for row in rows] == [*WORDS, None]
    there = {row[0]: round(row[1]) for row in rows if round(row[1])}
    assert there == {
        WORDS[0]: 2,
        WORDS[MIN_SIZE - 1]: 1,
        WORDS[MIN_SIZE]: 1,
        WORDS[MORE - 1]: 1,
        None: 1,
    }


def test_several_keys_and_aggregates_stream_together(make_quick_dataset):
    data = make_quick_dataset()
    text = "SELECT word, number, COUNT(DISTINCT person) AS n, SUM(cost) AS c FROM t GROUP BY word, number"
    words = [WORDS[0], "nobody's", WORDS[MIN_SIZE]]
    count, rows = exact(data, text, word=words, number=[*range(9000), MIN_SIZE])
    assert count == 3 * 9001
    assert rows[9002][:2] == ("nobody's", 1.0)
    there = [row for row in rows if round(row[2])]
    assert [(row[0], row[1], round(row[2])) for row in there] == [
        (WORDS[0], 0.0, 1),
        (WORDS[0], 1.0, 1),
        (WORDS[MIN_SIZE], MIN_SIZE, 1),
    ]
    assert [round(row[5]) for row in there] == [10, 20, 40]


def test_quantiles_stream_in_smaller_batches(make_quick_dataset):
    data = make_quick_dataset()
    count, rows = exact(
        data, "SELECT number, MEDIAN(cost) AS m FROM t GROUP BY number", number=range(-1, 300)
    )
    assert count == 301
    assert [round(row[1]) for row in rows[:3]] == [64, 10, 20]  # 70 is above its bound


def test_queries_that_need_all_groups_are_refused_at_no_cost(make_dataset):
    data = make_dataset()
    by = "SELECT word, COUNT(*) AS n FROM t GROUP BY word"
    for text, keys in ((f"{by} ORDER BY n", WORDS[:3]), (f"{by} LIMIT 1", WORDS[:3]), (by, None)):
        plan = data.sql(text, epsilon=1, delta=1e-6, keys={} if keys is None else {"word": keys})
        with refused(Unsupported, match="cannot be streamed"):
            data.stream(plan)
    assert data.account.spent().epsilon == 0


def test_failed_stream_is_charged(make_quick_dataset, monkeypatch):
    data = make_quick_dataset()
    plan = data.sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", epsilon=1, keys={"word": WORDS})
    kind = type(engine_of(data))

    def failing(engine, sql, key_sets):
        for number, piece in enumerate(real(engine, sql, key_sets)):
            if number == 0:
                yield piece
                raise EngineFailed("lost", why="it was pulled", fix="put it back")

    real = kind.execute_in_batches
    monkeypatch.setattr(kind, "execute_in_batches", failing)
    with refused(EngineFailed, match="lost"):
        data.stream(plan)
    monkeypatch.undo()
    assert data.account.spent().epsilon == 1
    assert sum(len(answers) for answers in data.stream(plan).value) == MORE
    assert data.account.spent().epsilon == 2


def test_wrong_order_of_groups_is_refused(make_dataset, monkeypatch):
    data = make_dataset()
    plan = data.sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", epsilon=1, keys={"word": WORDS})
    kind = type(engine_of(data))
    real = kind.execute_in_batches

    def backwards(engine, sql, key_sets):
        for piece in real(engine, sql, key_sets):
            yield {name: column[::-1] for name, column in piece.items()}

    monkeypatch.setattr(kind, "execute_in_batches", backwards)
    with refused(EngineFailed, match="another order"):
        data.stream(plan)


def test_repeated_group_is_refused(make_dataset, monkeypatch):
    """Added up, one person would move it by twice as much as its noise is for."""
    data = make_dataset()
    plan = data.sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", epsilon=1, keys={"word": WORDS[:9]})
    kind = type(engine_of(data))
    real = kind.execute_in_batches

    def twice(engine, sql, key_sets):
        for piece in real(engine, sql, key_sets):
            yield piece
            yield piece

    monkeypatch.setattr(kind, "execute_in_batches", twice)
    with refused(EngineFailed, match="another order"):
        data.stream(plan)


@pytest.mark.parametrize("query", ["COUNT(*)", "COUNT(DISTINCT person)", "MEDIAN(cost)"])
def test_query_without_keys_has_one_group(make_quick_dataset, query):
    count, rows = exact(make_quick_dataset(), f"SELECT {query} AS n FROM t")
    assert count == 1
    # Of six costs, the third and the fourth are 30 and 40.
    assert round(rows[0][0]) == 7 if "COUNT" in query else 29 < rows[0][0] < 41


def test_null_key_may_be_alone_in_a_batch(make_quick_dataset, monkeypatch):
    for engine in ("duckdb", "postgres", "spark"):
        monkeypatch.setattr(f"hubbub.engines.{engine}._ARRAY_KEYS", 1 << 15)
    for column, keys in (("word", WORDS[: 1 << 15]), ("number", range(1 << 15))):
        text = f"SELECT {column}, COUNT(*) AS n FROM t GROUP BY {column}"
        _, rows = exact(make_quick_dataset(), text, **{column: [*keys, None]})
        assert round(rows[-1][1]) == 1
        assert sum(round(row[1]) for row in rows) == 3


def test_interrupted_stream_can_be_run_again(make_quick_dataset, monkeypatch):
    data = make_quick_dataset()
    plan = data.sql("SELECT word, COUNT(*) AS n FROM t GROUP BY word", epsilon=1, keys={"word": WORDS})

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("hubbub.sql.planned_aggregates.NoisyAggregate.release", broken)
    with pytest.raises(KeyboardInterrupt):
        data.stream(plan)
    monkeypatch.undo()
    assert sum(len(answers) for answers in data.stream(plan).value) == MORE
    assert data.account.spent().epsilon == 2


@pytest.fixture
def visits(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("person,word\n1,w00000é\n2,w00000é\n3,\n", encoding="utf-8")
    return path


def test_stream_is_written_completely_or_not_at_all(visits, tmp_path):
    with hb.open(str(visits), unit="person", rows_per_unit=1, keys={"word": [None, *WORDS]}) as data:
        release = data.stream(
            data.sql(
                "SELECT word, COUNT(*) AS n FROM visits GROUP BY word HAVING n > -1e9",
                epsilon=SURE,
                allow_large_epsilon=True,
            )
        )
        assert release.loss.cost().epsilon == SURE
        assert release.label()["epsilon"] == str(SURE)
        assert [answers.to_dict() for answers in release.value] == [
            answers.to_dict() for answers in release.value
        ]
        for name in ("a.parquet", "a.csv"):
            release.value.write(tmp_path / name)
        with refused(InvalidInput, match=r"\.parquet"):
            release.value.write(tmp_path / "a.txt")
        with refused(InvalidInput, match="folder"):
            release.value.write(tmp_path / "nowhere" / "a.csv")
    records = duckdb.sql(f"SELECT * FROM '{tmp_path / 'a.parquet'}'").fetchall()
    assert len(records) == MORE + 1
    assert [(key, round(n)) for key, n, *_ in records if round(n)] == [(None, 1), (WORDS[0], 2)]
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as paper:
        rows = list(csv.reader(paper))
    assert rows[0] == ["word", "n", "n_low", "n_high"]
    assert len(rows) == MORE + 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.parquet", "visits.csv"]


def test_streamed_csv_holds_no_formula(visits, tmp_path):
    with hb.open(str(visits), unit="person", rows_per_unit=1, keys={"word": ["=1+1", "a,b", None]}) as data:
        plan = data.sql("SELECT word, COUNT(*) AS n FROM visits GROUP BY word", epsilon=1)
        data.stream(plan).value.write(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as paper:
        assert [row[0] for row in csv.reader(paper)] == ["word", "'=1+1", "a,b", ""]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("query", "kind", "result"),
    [
        ("CASE WHEN n > 1 THEN 'many' END", "VARCHAR", "many"),
        ("CASE WHEN n > 1 THEN word END", "VARCHAR", WORDS[-1]),
        ("CASE WHEN n > 1 THEN n > 0 END", "BOOLEAN", True),
        ("CASE WHEN n > 1 THEN ROUND(n) END", "BIGINT", 2),
        ("CASE WHEN n > 1 THEN 'many' ELSE NULL END", "VARCHAR", "many"),
    ],
)
def test_column_type_does_not_depend_on_the_batch(tmp_path, query, kind, result):
    path = tmp_path / "visits.csv"
    path.write_text(f"person,word\n1,{WORDS[-1]}\n2,{WORDS[-1]}\n", encoding="utf-8")
    text = (
        f"SELECT word, COUNT(*) AS n, {query.replace('n >', 'COUNT(*) >').replace('(n)', '(COUNT(*))')} AS x"
    )
    with hb.open(str(path), unit="person", rows_per_unit=1, keys={"word": WORDS}) as data:
        stream = data.stream(
            data.sql(f"{text} FROM visits GROUP BY word", epsilon=SURE, allow_large_epsilon=True)
        ).value
        stream.write(tmp_path / "a.parquet")
    table = duckdb.sql(f"SELECT x FROM '{tmp_path / 'a.parquet'}'")
    assert table.types == [kind]
    *missing, last = (value for (value,) in table.fetchall())
    assert last == result
    assert all(value is None for value in missing)


@pytest.mark.parametrize(
    "query", ["CASE WHEN COUNT(*) > 1 THEN number ELSE 0 END + 1", "COALESCE(number, 0) + 1"]
)
def test_null_key_takes_part_in_arithmetic(tmp_path, query):
    """What could not be computed with it would be found out when all has been charged."""
    path = tmp_path / "visits.csv"
    path.write_text("person,number\n1,3\n2,3\n3,\n4,\n", encoding="utf-8")
    text = f"SELECT number, COUNT(*) AS n, {query} AS x FROM visits GROUP BY number"
    for keys in ([3, None], [*range(1 << 14), None]):  # in a piece with numbers, and by itself
        with hb.open(str(path), unit="person", rows_per_unit=1, types={"number": "number"}) as data:
            plan = data.sql(text, epsilon=SURE, allow_large_epsilon=True, keys={"number": keys})
            streamed = [value for answers in data.stream(plan).value for value in answers["x"]]
            ran = data.run(plan).value["x"]
        for result in (streamed, ran):
            assert round(result[keys.index(3)]) == 4
            assert round(result[-1]) == 1 if "COALESCE" in query else result[-1] is None


def test_two_texts_are_not_mistaken_for_many_keys(visits):
    text = "SELECT word, COUNT(*) AS n FROM visits GROUP BY word"
    with hb.open(str(visits), unit="person", rows_per_unit=1) as data:
        many = data.sql(text, epsilon=1, keys={"word": WORDS})
        few = data.sql(text, epsilon=1, keys={"word": ["keys", many.query.keys[0].values.digest()]})
    assert fingerprint(many) != fingerprint(few)


def test_stream_can_be_read_by_several_threads(visits):
    with hb.open(str(visits), unit="person", rows_per_unit=1, keys={"word": WORDS}) as data:
        stream = data.stream(
            data.sql("SELECT word, COUNT(*) AS n FROM visits GROUP BY word", epsilon=1)
        ).value
    answers_seen = [answers["n"] for answers in stream]
    with ThreadPoolExecutor(4) as pool:
        each = pool.map(lambda _: [answers["n"] for answers in stream], range(8))
        assert all(result == answers_seen for result in each)


def test_label_of_a_stream_states_the_cost_of_all_windows(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("person,word,day\n1,a,2026-11-01\n2,b,2026-12-01\n", encoding="utf-8")
    with hb.open(
        str(path), unit="person", types={"day": "date"}, window=hb.Window.of("day", "2026-11"),
        rows_per_unit=1, keys={"word": ["a", "b"]}, ledger=tmp_path / "ledger.db", budget=hb.Budget(2),
    ) as data:  # fmt: skip
        plan = data.sql("SELECT word, COUNT(*) AS n FROM visits GROUP BY word", epsilon=1)
        streamed, ran = data.stream(plan).label(), data.run(plan).label()
        assert streamed.keys() == ran.keys()
        assert streamed["lifetime"].startswith("ε = 1,")
        assert ran["lifetime"].startswith("ε = 2,")


def test_ledger_charges_a_stream_each_time(visits, tmp_path):
    with hb.open(
        str(visits), unit="person", rows_per_unit=1, keys={"word": WORDS[:2]}, ledger=tmp_path / "ledger.db",
        budget=hb.Budget(2),
    ) as data:  # fmt: skip
        plan = data.sql("SELECT word, COUNT(*) AS n FROM visits GROUP BY word", epsilon=1)
        data.stream(plan)
        data.stream(plan)
        with refused(hb.errors.HubbubError, match="budget"):
            data.stream(plan)


def test_key_list_preserves_keys():
    texts = [f"k{place}" for place in range(3 * MIN_SIZE)]
    keys = KeyList.from_batches([texts[:5], [*texts[5:], None]], are_texts=True)
    assert list(keys) == [*texts, None]
    assert (keys[0], keys[-1], keys[MIN_SIZE - 1 : MIN_SIZE + 2]) == (
        "k0",
        None,
        texts[MIN_SIZE - 1 : MIN_SIZE + 2],
    )
    assert keys == KeyList.from_batches([[*texts, None]], are_texts=True)
    assert keys != KeyList.from_batches([[None, *texts]], are_texts=True)
    assert keys.is_distinct()
    assert not KeyList.from_batches([texts, ["k7"]], are_texts=True).is_distinct()
    # Of Python's, these two have the same hash.
    assert hash(-1.0) == hash(-2.0)
    assert KeyList.from_batches([[-1.0, -2.0]], are_texts=False).is_distinct()
    assert not KeyList.from_batches([[-1.0, -2.0, -1.0]], are_texts=False).is_distinct()


@pytest.mark.parametrize("wrong", [[*WORDS, WORDS[3]], [*WORDS, 7.0], [*WORDS, "a\0b"], [None, *WORDS, None]])
def test_many_keys_are_checked_like_few(visits, wrong):
    with refused(InvalidInput, match="key"):
        hb.open(str(visits), unit="person", keys={"word": iter(wrong)})


@pytest.mark.parametrize("many", [range(1, 9), range(1, MORE)])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 10**400, 2**53 + 1, True, "7"])
def test_nan_is_refused_as_a_key(visits, many, wrong):
    """Of not-a-number the engine may make a key that is none: a row would be in two groups."""
    for keys in ([wrong, *many], [*many, wrong], [*many, None, wrong]):
        with refused(InvalidInput, match="key"):
            hb.open(str(visits), unit="person", types={"word": "number"}, keys={"word": iter(keys)})
