"""The words of the field are used where they belong, and words of our own are not used."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

USED = {
    "per-example": "training",
    "noise multiplier": "training",
    "clipping norm": "training",
    "partition selection": "mechanisms",
    "dominating pair": "accounting",
    "privacy loss distribution": "accounting",
    "contribution bound": "sql",
}
"""Each word, and the package that must use it; the glossary defines it."""
DIALECT = {"mend": "fix", "whose": "a name, or two sentences", "so many": "at most n, or the number"}
"""Each word that is not used, and what to write instead."""
CITED = {"docs/decisions/0015-words-of-the-field.md"}
"""Pages that speak of the old words."""


def words(path):
    """The text of a file, with line breaks and comment signs as spaces."""
    return re.sub(r"[\s#|>]+", " ", path.read_text(encoding="utf-8")).lower()


@pytest.mark.parametrize(("word", "package"), USED.items())
def test_words_of_the_field_are_used(word, package):
    assert any(word in words(path) for path in SOURCES if path.parent.name == package)
    assert word in words(ROOT / "docs" / "glossary.md")


@pytest.mark.parametrize("word", DIALECT)
def test_words_of_our_own_are_not_used(word):
    places = {
        str(path.relative_to(ROOT)) for path in [*SOURCES, *PAGES] if re.search(rf"\b{word}\b", words(path))
    }
    assert places - CITED == set(), f"write {DIALECT[word]}"
