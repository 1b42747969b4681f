"""What CONTRIBUTING.md and the Makefile say of the tests holds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_slow_paths_exist():
    (text,) = re.findall(
        r"^SLOW = \((.*?)^\)", (ROOT / "tests" / "conftest.py").read_text(), re.MULTILINE | re.DOTALL
    )
    paths = re.findall(r'"([^"]+)"', text)
    assert paths
    assert [path for path in paths if not (ROOT / "tests" / path).exists()] == []
