"""What docs/ledger.md shows runs as it stands."""

import re
import shlex
from pathlib import Path

import pytest

from cli.terminal import run
from hubbub.cli.demo import write_visits

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def hospital(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_visits(tmp_path / "visits.parquet")
    return tmp_path


def test_python_blocks_run(hospital, capsys):
    names = {}
    for block in blocks("python"):
        exec(block, names)  # noqa: S102 - our own page
    out = capsys.readouterr().out
    assert "5/2" in out  # what remains of 3 after 0.5
    assert "patient × window (day from 2026-11-01 to before 2026-12-01)" in out
    assert "over 1 window so far" in out


def test_shell_blocks_run(hospital):
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    lines = "".join(blocks("sh")).splitlines()
    for line in lines:
        name, *words = shlex.split(line, comments=True)
        if name == "mv":
            Path(words[0]).rename(words[1])
            continue
        out = run(*words)
        assert out.code == 0, (line, out.stderr)
    assert len(lines) == 16
    assert Path("label.html").exists()
