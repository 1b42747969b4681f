"""Everything on docs/synopsis.md runs, on the made-up hospital."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hubbub
from cli.terminal import run
from hubbub.cli.demo import write_visits
from hubbub.output_files import CONFIG_NAME

PAGE = (Path(__file__).parents[2] / "docs" / "synopsis.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    write_visits(folder / "visits.parquet")
    return folder


@pytest.mark.slow
def test_shell_blocks_run(hospital, monkeypatch):
    monkeypatch.chdir(hospital)
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        out = run(*shlex.split(line, comments=True)[1:])
        assert out.code == 0, out.stderr


@pytest.mark.slow
def test_python_block_runs(hospital):
    (block,) = blocks("python")
    command = [sys.executable, "-W", "error", "-c", block]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=hospital)
    assert "Standard deviation" in out.stdout


def test_declaration_on_the_page_is_read(hospital):
    (text,) = blocks("toml")
    (hospital / CONFIG_NAME).write_text(text)
    try:
        with hubbub.open(hospital / "visits.parquet") as data:
            plan = data.plan_synopsis(epsilon=1, delta=1e-6, rows_per_unit=4)
        assert plan.domain.names == ("region", "reason", "age")
        assert plan.domain.shape(plan.domain.names) == (5, 3, 5)
        assert not plan.domain.mask(("reason", "age")).all()
    finally:
        (hospital / CONFIG_NAME).unlink()
