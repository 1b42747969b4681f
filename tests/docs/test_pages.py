"""Every block of the guides, the tutorials and the textbook runs, and shows what its page says it shows."""

import re
from pathlib import Path

import pytest

from docs.pages import DOCS, agrees, list_environments, read_blocks, run_page

LESSONS = [DOCS / "index.md", *sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("textbook/*.md"))]
# Made from the code, or a list of terms: nobody reads them from the top.
REFERENCE = {"cli.md", "functions.md", "glossary.md"}
GUIDES = [page for page in sorted(DOCS.glob("*.md")) if page not in LESSONS and page.name not in REFERENCE]
PAGES = [*LESSONS, *(DOCS / name for name in ("audit.md", "budgets.md", "scale.md"))]
# Their blocks run in tests of their own.
ELSEWHERE = {"queries.md", "engines.md", "estimators.md", "training.md", "ledger.md", "synopsis.md"}


def name(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.mark.sweep(2)
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_run_and_show_what_the_page_says(page, tmp_path):
    for block, printed in run_page(page, tmp_path):
        assert agrees(block, printed), f"{name(page)}:{block.line} printed:\n{printed}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "environment"),
    [(page, environment) for page in LESSONS for environment in list_environments(page)],
    ids=lambda value: value if isinstance(value, str) else name(value),
)
def test_blocks_of_peers_run_where_they_are_installed(page, environment, tmp_path):
    if not (DOCS.parent / environment / ".ready").exists():
        pytest.skip(f"{environment} is not there: make test-peers")
    run_page(page, tmp_path)  # the data of the page
    for block, printed in run_page(page, tmp_path, environment):
        assert agrees(block, printed), f"{name(page)}:{block.line} printed:\n{printed}"


@pytest.mark.parametrize("page", [*LESSONS, *GUIDES], ids=name)
def test_page_says_for_whom_it_is_and_what_to_read_next(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert re.fullmatch(r"\*For .+; (about )?\d+ (seconds|minutes?)\.\*", lines[2]), lines[2]
    assert any(line.startswith("## Next") for line in lines)


def test_blocks_of_all_other_pages_run_somewhere():
    for page in sorted(DOCS.glob("*.md")):
        if page not in PAGES and page.name not in ELSEWHERE:
            assert not [block for block in read_blocks(page) if block.language != "toml"], page.name


def test_output_is_compared_to_the_letter_or_by_words(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n1 + 1\n```\n\n```output\n2\n```\n\n```python\nprint('n =', 41.5)\n```\n\n"
        "```noisy-output\nn = 17\n```\n\n<!-- not run: it needs a server -->\n```sh\nfalse\n```\n"
    )
    (first, two), (second, noisy) = run_page(page, tmp_path)
    assert agrees(first, two)
    assert not agrees(first, "3\n")
    assert agrees(second, noisy)
    assert not agrees(second, "m = 41.5\n")
