"""What docs/queries.md says can be asked can be, and what it says is refused is."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hubbub
from cli.terminal import run
from hubbub.cli.demo import REGIONS, write_visits
from hubbub.config import read_config
from hubbub.errors import HubbubError
from hubbub.output_files import CONFIG_NAME

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text(encoding="utf-8")
BOUNDS = {"cost": (0, 5000), "age": (0, 120), "total": (0, 20000)}
KEYS = {"region": REGIONS, "quarter": range(1, 5)}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


ASKED = [line for block in blocks("sql") for line in block.splitlines()]
REFUSED = re.findall(r"^\| `(.*?)` \|", PAGE, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    write_visits(folder / "visits.parquet")
    (folder / "towns.csv").write_text("region,town\nNorth,Kiel\n")
    return folder


@pytest.fixture(scope="module")
def visits(hospital):
    with hubbub.open(hospital / "visits.parquet", unit="patient", rows_per_unit=8) as data:
        yield data


@pytest.mark.sweep(5)
@pytest.mark.parametrize("sql", ASKED)
def test_accepted_queries_can_be_planned(visits, sql):
    keys = {name: values for name, values in KEYS.items() if re.search(rf"GROUP BY {name}\b", sql)}
    bounds = {name: ends for name, ends in BOUNDS.items() if name in sql}
    plan = visits.sql(sql, epsilon=None if "OPTIONS" in sql else 1, bounds=bounds, keys=keys)
    assert len(visits.run(plan).value) > 0


@pytest.mark.parametrize("sql", REFUSED)
def test_refused_queries_are_refused_before_the_charge(visits, sql):
    charged = len(visits.account.receipts)
    with pytest.raises(HubbubError):
        str(visits.sql(sql, epsilon=1))
    assert len(visits.account.receipts) == charged


def test_page_has_accepted_and_refused_queries():
    assert len(ASKED) > 10
    assert len(REFUSED) > 6


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_shell_blocks_run(hospital, monkeypatch, line):
    monkeypatch.chdir(hospital)
    out = run(*shlex.split(line, comments=True)[1:])
    assert out.code == 0, out.stderr


def test_python_blocks_run(hospital):
    for block in blocks("python"):
        command = [sys.executable, "-W", "error", "-c", block]
        out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=hospital)
        assert out.stdout


def test_declaration_on_the_page_is_read(hospital):
    (text,) = blocks("toml")
    (hospital / CONFIG_NAME).write_text(text)
    try:
        facts = read_config(hospital / CONFIG_NAME)
        assert len(facts.tables) == 2
        assert facts.rows_per_unit == 8
        with hubbub.open(hospital / "visits.parquet") as data:
            assert data.sql("SELECT SUM(cost) AS total FROM visits", epsilon=1)
    finally:
        (hospital / CONFIG_NAME).unlink()
