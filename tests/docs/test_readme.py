"""What the README says is run: its Python, its shell, its links, its make targets."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal import run

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_runs():
    for block in blocks("python"):
        out = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
        assert out.stdout.splitlines()[0] == "6"


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_the_shell_runs(line):
    words = shlex.split(line, comments=True)
    assert words[0] == "hubbub"
    out = run(*words[1:])
    assert out.code == 0, out.stderr
    assert out.stdout


def test_the_textbook_has_a_name():
    assert "Dwork and Roth, *The Algorithmic Foundations of Differential Privacy*" in README


def test_the_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`?make ([a-z-]+)`?", page.read_text())}
    commands = {name for name in named if name in README or name in targets}
    assert {"demo", "test", "check", "bench"} <= commands & targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in link:
            assert (page.parent / link).exists(), link
