"""The README's Python and shell blocks run; links and make targets of all pages exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal import run
from hubbub.cli.demo import write_visits

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospital")
    write_visits(folder / "visits.parquet")
    return folder


@pytest.mark.parametrize(
    ("place", "first"),
    [
        (0, "ε = 1 for one patient, add/remove; nothing spent yet"),
        (1, "6"),
        (2, "True"),
        (3, "['young' 'old']"),
    ],
)
def test_python_blocks_run(hospital, place, first):
    command = [sys.executable, "-c", blocks("python")[place]]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=hospital)
    assert out.stdout.splitlines()[0] == first


def test_first_command_is_a_query():
    assert blocks("sh")[0].startswith('hubbub query visits.parquet "SELECT region, COUNT(*) AS n, AVG(cost)')


@pytest.mark.parametrize(
    "line", [line for block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]
)
def test_shell_blocks_run(hospital, monkeypatch, line):
    monkeypatch.chdir(hospital)
    (hospital / "hubbub.toml").unlink(missing_ok=True)
    words = shlex.split(line, comments=True)
    assert words[0] == "hubbub"
    out = run(*words[1:])
    assert out.code == 0, out.stderr
    assert out.stdout


def test_textbook_is_cited():
    assert "Dwork and Roth, *The Algorithmic Foundations of Differential Privacy*" in README


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    by_name = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)`", page.read_text())}
    assert by_name <= targets
    assert {"demo", "test", "quick", "check", "bench"} <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link
