"""The words of the field are used where they belong, and words of our own are not used."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = [path for folder in ("tests", "examples") for path in sorted((ROOT / folder).rglob("*.py"))]
PROGRAMS = [path for folder in ("benchmarks", "website") for path in sorted((ROOT / folder).rglob("*.py"))]
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
PARTICIPLES = {
    "answered",
    "asked",
    "begun",
    "counted",
    "drawn",
    "found",
    "given",
    "grown",
    "held",
    "kept",
    "made",
    "meant",
    "named",
    "opened",
    "planned",
    "said",
    "shown",
    "taken",
    "told",
    "tried",
    "turned",
    "wanted",
    "written",
}
"""Words that say what happened to a value and not what it is: nothing is named by one of them alone."""
CITED = {
    "docs/decisions/0015-words-of-the-field.md",
    "tests/docs/test_conventions.py",
    "tests/docs/test_words.py",
}
"""Files that speak of the old words."""


@cache
def words(path):
    """The text of a file, with line breaks and comment signs as spaces."""
    return re.sub(r"[\s#|>]+", " ", path.read_text(encoding="utf-8")).lower()


@pytest.mark.parametrize(("word", "package"), USED.items())
def test_words_of_the_field_are_used(word, package):
    assert any(word in words(path) for path in SOURCES if path.parent.name == package)
    assert word in words(ROOT / "docs" / "glossary.md")


@pytest.mark.slow
@pytest.mark.parametrize("word", DIALECT)
def test_words_of_our_own_are_not_used(word):
    paths = [*SOURCES, *PAGES, *TESTS]
    places = {str(path.relative_to(ROOT)) for path in paths if re.search(rf"\b{word}\b", words(path))}
    assert places - CITED == set(), f"write {DIALECT[word]}"


def own_names(path):
    """The names that a file gives to values and functions: variables, parameters, attributes, definitions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name


@pytest.mark.slow
def test_values_are_named_by_nouns_and_functions_by_verbs():
    names = {(path.name, name) for path in [*SOURCES, *TESTS, *PROGRAMS] for name in own_names(path)}
    assert {each for each in names if each[1].strip("_") in PARTICIPLES} == set()


def test_the_guard_sees_all_kinds_of_names(tmp_path):
    path = tmp_path / "example.py"
    path.write_text("def shown(given, *, kept):\n    for found in given:\n        self._told = found\n")
    assert set(own_names(path)) == {"shown", "given", "kept", "found", "_told"}
