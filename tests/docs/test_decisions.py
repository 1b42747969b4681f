"""docs/decisions/README.md lists every decision, by its number and title."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_index_lists_every_page_by_its_title():
    index = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    pages = []
    for page in sorted(FOLDER.glob("0*.md")):
        number, title = re.fullmatch(r"# (\d+)\. (.+)", page.read_text().splitlines()[0]).groups()
        assert page.name.startswith(f"{int(number):04}-")
        pages.append((number, title, page.name))
    assert index == pages
