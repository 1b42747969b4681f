"""ARCHITECTURE.md names files; every one of them exists, and every layer is in its picture."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATHS = sorted(
    {text for text in re.findall(r"`([^`\s]+)`", PAGE) if re.fullmatch(r"[\w/-]+(?:\.py|\.md|/)", text)}
    - {"src/hubbub/"}
)


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path):
    home = ROOT if path.startswith(("tests/", "docs/", "website/")) else ROOT / "src" / "hubbub"
    result = home / path
    assert result.is_dir() if path.endswith("/") else result.is_file()


def test_every_large_layer_is_in_the_picture():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {
        name.strip() for contract in contracts for line in contract["layers"] for name in line.split("|")
    }
    packages = {
        name.removeprefix("hubbub.") for name in layers if (ROOT / "src" / name.replace(".", "/")).is_dir()
    }
    assert {f"{name}/" for name in packages} <= set(PATHS)


def test_the_page_is_one_page():
    assert len(PAGE.splitlines()) <= 120
