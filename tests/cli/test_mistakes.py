"""Typical mistakes, and what the shell says to each: the whole text, for a person to read in mistakes.txt.

`UPDATE_SNAPSHOTS=1 pytest tests/cli/test_mistakes.py` writes the file anew; read what has changed.
"""

import os
import shlex
from pathlib import Path

import pandas as pd
import pytest

from cli.terminal import run

SNAPSHOT = Path(__file__).parent / "mistakes.txt"
COUNT = "'SELECT COUNT(*) AS n FROM visits'"
ASK = f"query visits.parquet {COUNT} --unit patient --epsilon 1"
MISTAKES = f"""
# Files
query {COUNT}
query nowhere.parquet {COUNT} --unit patient --epsilon 1
query folder {COUNT} --unit patient --epsilon 1
query 'no*.csv' {COUNT} --unit patient --epsilon 1
query sheet.xlsx {COUNT} --unit patient --epsilon 1
query notes.doc {COUNT} --unit patient --epsilon 1
query archive.zip {COUNT} --unit patient --epsilon 1
query broken.parquet 'SELECT COUNT(*) AS n FROM broken' --unit patient --epsilon 1
query empty.csv 'SELECT COUNT(*) AS n FROM empty' --unit patient --epsilon 1
query double.csv 'SELECT COUNT(*) AS n FROM double' --unit patient --epsilon 1
query lines.ndjson 'SELECT COUNT(*) AS n FROM lines' --unit row --epsilon 1
query lines.json 'SELECT COUNT(*) AS n FROM lines' --unit patient --epsilon 1
query visits.csv {COUNT} --unit patient --epsilon 1 --encoding utf-77
query visits.csv {COUNT} --unit patient --epsilon 1 --separator xy
query semicolons.csv 'SELECT COUNT(*) AS n FROM semicolons' --unit patient --epsilon 1 --separator ,
query trips 'SELECT COUNT(*) AS n FROM trips' --unit patient --epsilon 1
query none.duckdb {COUNT} --unit patient --epsilon 1 --table visits
query postgresql://127.0.0.1:1/none {COUNT} --unit patient --epsilon 1 --table visits
query postgresql://127.0.0.1:1/none {COUNT} --unit patient --epsilon 1

# Who is protected
query visits.parquet {COUNT} --epsilon 1
query visits.parquet {COUNT} --unit patent --epsilon 1
query visits.parquet {COUNT} --unit '' --epsilon 1
init visits.parquet --yes
init visits.parquet --unit person --yes
init nowhere.csv --unit row --yes

# What it may cost
query visits.parquet {COUNT} --unit patient
query visits.parquet {COUNT} --unit patient --epsilon 0
query visits.parquet {COUNT} --unit patient --epsilon -1
query visits.parquet {COUNT} --unit patient --epsilon one
query visits.parquet {COUNT} --unit patient --epsilon 1,5
query visits.parquet {COUNT} --unit patient --epsilon 50
query visits.parquet {COUNT} --unit patient --epsilon 1 --delta 1
query visits.parquet {COUNT} --unit patient --epsilon 1 --delta 0.1
query visits.parquet {COUNT} --unit patient --epsilon 1 --error n=5
query visits.parquet {COUNT} --unit patient --error 5
query visits.parquet {COUNT} --unit patient --error m=5
query visits.parquet {COUNT} --unit patient --epsilon 1 --confidence 95

# The query
{ASK.replace(COUNT, "''")}
{ASK.replace(COUNT, "'SELEC COUNT(*) FROM visits'")}
{ASK.replace(COUNT, "'SELECT * FROM visits'")}
{ASK.replace(COUNT, "'SELECT cost FROM visits'")}
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visit'")}
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visits; DROP TABLE visits'")}
{ASK.replace(COUNT, "'DELETE FROM visits'")}
{ASK.replace(COUNT, "'SELECT AVG(price) FROM visits'")}
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --rows-per-unit 1
{ASK.replace(COUNT, "'SELECT AVG(region) FROM visits'")}
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visits WHERE cost > 5'").replace("visits.parquet", "visits.csv")}
{ASK.replace(COUNT, "'SELECT FOO(cost) FROM visits'")}
{ASK.replace(COUNT, "'SELECT STRING_AGG(region) FROM visits'")}
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visits WHERE region = " + '"North"' + "'")}
{ASK.replace(COUNT, "'SELECT region, COUNT(*) FROM visits GROUP BY region'")}
{ASK.replace(COUNT, "'SELECT region, COUNT(*) FROM visits'")} --keys region=North
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visits GROUP BY city'")}
{ASK.replace(COUNT, "'SELECT patient, COUNT(*) FROM visits GROUP BY patient'")} --delta 1e-6
{ASK.replace(COUNT, "'SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)'")}
{ASK.replace(COUNT, "'SELECT RANK() OVER (ORDER BY cost) FROM visits'")}

# Bounds, keys, types, limits
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost=5
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost=500:0
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost=0:0
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost=0:many
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds price=0:5
{ASK.replace(COUNT, "'SELECT AVG(cost) FROM visits'")} --bounds cost=0:5 --bounds cost=0:6
{ASK} --keys region
{ASK} --keys region=North
{ASK.replace(COUNT, "'SELECT region, COUNT(*) FROM visits GROUP BY region'")} --keys region=@nowhere.txt
{ASK.replace(COUNT, "'SELECT region, COUNT(*) FROM visits GROUP BY region'")} --keys region=North,North
{ASK} --type cost=money
{ASK} --type price=number
{ASK} --rows-per-unit 0
{ASK} --rows-per-unit many
{ASK} --public towns=nowhere.csv
{ASK} --public visits
{ASK} --public copy=visits.parquet
{ASK} --window 2026-11
{ASK} --window day=november

# Ledgers and budgets
{ASK} --ledger new.ledger
{ASK} --ledger visits.csv
{ASK} --ledger folder
{ASK} --ledger {"n" * 250}
{ASK} --ledger l --account visit
{ASK} --account visits
{ASK} --analyst ada
{ASK} --ledger l --analyst bob
{ASK.replace("--epsilon 1", "--epsilon 9")} --ledger l
budget
budget --ledger nowhere.ledger
budget --ledger l --account visit
budget open visits --unit row --epsilon 1 --ledger l
ledger show 99 --ledger l
ledger verify --ledger visits.csv
ledger admit rita --role reader --ledger l
report --ledger l --account visit
report --ledger l --output label.doc

# Outputs
{ASK} --output answers.doc
{ASK} --output nowhere/answers.csv
{ASK} --output visits.parquet
{ASK} --output answers.csv --format json
{ASK} --format yaml
{ASK} --again --exact --output x.csv

# Commands and options
quary visits.parquet
query visits.parquet {COUNT} --unit patient --epsylon 1
query visits.parquet
query visits.parquet SELECT COUNT --unit patient
synopsis visits.parquet --unit patient --epsilon 1 --delta 1e-6 --columns region day --output v.synopsis
loss
loss --gaussian x
loss --gaussian 1 --steps 0
error
release many --epsilon 1
release 1.5 --epsilon 1
choose fever --epsilon 1
toss perhaps
plan broken.toml {COUNT} --epsilon 1
plan wrong.toml {COUNT} --epsilon 1
plan typo.toml {COUNT} --epsilon 1
report --about about.toml --ledger l
init visits.parquet --unit patient --format json
{ASK} --format json --ledger l --account visit
{ASK.replace("--epsilon 1", "--epsilon one")} --format json
query --format json
""".strip()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_LEDGER", raising=False)
    frame = pd.DataFrame(
        {
            "patient": range(60),
            "region": ["North", "South"] * 30,
            "cost": 5.0,
            "day": pd.Timestamp("2026-11-01"),
        }
    )
    frame["day"] = frame["day"].astype("datetime64[us]")
    frame.to_parquet("visits.parquet")
    frame.to_csv("visits.csv", index=False)
    frame.to_csv("semicolons.csv", index=False, sep=";")
    Path("folder").mkdir()
    Path("trips/year=2026").mkdir(parents=True)
    frame.to_parquet("trips/year=2026/a.parquet")
    for name, text in {
        "sheet.xlsx": "x",
        "notes.doc": "x",
        "archive.zip": "x",
        "broken.parquet": "PAR1",
        "empty.csv": "",
        "double.csv": "patient,cost,Cost\n1,2,3\n",
        "lines.ndjson": '{"patient": 1}\n',
        "lines.json": '{"patient": 1}\n',
        "broken.toml": "tables = [",
        "wrong.toml": '[tables.visits]\npath = "visits.csv"\n',
        "about.toml": '[about]\npurpose = "x"\n[tables.visits]\npath = "visits.csv"\nunit = "patient"\n',
        "typo.toml": '[tables.visits]\npath = "visits.csv"\nunit = "patient"\nbound = { cost = [0, 5] }\n',
    }.items():
        Path(name).write_text(text)
    run("budget", "open", "visits", "--unit", "patient", "--epsilon", "2", "--ledger", "l")
    run("budget", "grant", "ada", "--epsilon", "1", "--ledger", "l")


def test_mistakes_are_explained_as_the_snapshot_says(folder):
    parts = []
    for line in MISTAKES.splitlines():
        if not line or line.startswith("#"):
            parts.append(f"{line}\n")
            continue
        out = run(*shlex.split(line), width=100)
        assert out.code in {2, 3, 4, 5}, (line, out)
        assert "Traceback" not in out.stderr, line
        assert str(Path.cwd()) not in out.stderr, line
        parts.append(f"$ hubbub {line}\n{out.stderr.rstrip()}\n[exit code {out.code}]\n\n")
    text = "".join(parts)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()
    assert text.count("[exit code") >= 80
