"""Files that nobody stored: each is refused when it is opened, whatever is wrong with it."""

import json

import duckdb
import pytest

import hubbub as hb
from hubbub.errors import HubbubError
from hubbub.synthesis.synopsis import Synopsis
from hubbub.synthesis.synthesis import Synthesis

HUGE = "1e300000000"
DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture(scope="module")
def stored():
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t AS SELECT ['a', 'b'][1 + i % 2] AS k, i % 10 AS x FROM range(200) r(i)"
    )
    data = hb.open(connection, table="t", unit=hb.Unit.row(), keys={"k": ["a", "b"]}, bounds={"x": (0, 9)})
    price = {"epsilon": 1, "delta": 1e-6, "steps": {"x": 1}}
    synopsis = data.plan_synopsis(2, **price, ranges={"x": 1}).run().value
    synthesis = data.plan_synthesis(**price).run().value
    return {Synopsis: synopsis.to_json(), Synthesis: synthesis.to_json()}


def change(text, path, value):
    whole = part = json.loads(text)
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    return json.dumps(whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Synopsis, Synthesis])
def test_stored_files_are_read(kind, stored):
    assert kind.from_json(stored[kind]).to_json() == stored[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Synopsis, Synthesis])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["name"], 5),
        (["label"], {}),
        (["label"], 3),
        (["label", "epsilon"], HUGE),
        (["label", "epsilon"], "x"),
        (["label", "notes"], 5),
        (["label", "unit"], ["row"]),
    ],
)
def test_labels_are_checked(kind, path, value, stored):
    with pytest.raises(HubbubError):
        kind.from_json(change(stored[kind], path, value))


@pytest.mark.parametrize("kind", ["synopsis", "synthesis"])
def test_deep_files_are_refused(kind):
    reader = Synopsis if kind == "synopsis" else Synthesis
    with pytest.raises(HubbubError):
        reader.from_json(f'{{"format": "hubbub {kind}/1", "x": {DEEP}}}')


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["measured"], []),
        (["measured", 0, 1], "0"),
        (["measured", 0, 1], "-1"),
        (["measured", 0, 1], HUGE),
        (["measured", 1, 0], ["q"]),
        (["measured", -1, 0], ["k", "k"]),
        (["tables"], []),
        (["tables"], [["q"]]),
        (["scale"], 0),
        (["scale"], -5),
        (["scale"], 10**400),
        (["max weight"], 0),
        (["max weight"], 10**400),
        (["ranges", 0, 0], "k"),
        (["ranges", 0, 1], [HUGE]),
        (["ranges", 0, 2], "0"),
        (["domain", "columns", 1, "edges"], ["0", HUGE]),
        (["domain", "columns", 0, "name"], 5),
        (["domain", "columns", 0, "categories"], []),
    ],
)
def test_synopses_are_checked(path, value, stored):
    with pytest.raises(HubbubError):
        Synopsis.from_json(change(stored[Synopsis], path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["total"], float("nan")),
        (["total"], -5),
        (["total"], 1e30),
        (["targets", 0, 0], [99]),
        (["targets", 0, 0], [-1]),
        (["targets", 0, 1], [1.0]),
        (["targets", 0, 1], ["a", "b"]),
        (["targets", 0, 3], [float("nan"), 1.0]),
        (["measured", 0, 0], [99]),
        (["measured", 0, 1], [[1, 2, 3]]),
        (["measured", 0, 2], "x"),
        (["measured", 0, 2], 0),
        (["mergings"], {"k": [[5, 900_000_000], [1, 1]]}),
        (["mergings"], {"k": [[0], [1]]}),
        (["bins"], {"x": [["0"], []]}),
        (["bins"], {"k": [["0", "1"], [1.0]]}),
    ],
)
def test_syntheses_are_checked(path, value, stored):
    with pytest.raises(HubbubError):
        Synthesis.from_json(change(stored[Synthesis], ["model", *path], value))
