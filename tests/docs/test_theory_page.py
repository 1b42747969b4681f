"""docs/theory.md names code and tests; every one of them exists."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
CODE = sorted(set(re.findall(r"`(hubbub[\w.]*:[\w.]+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))
LINKS = sorted(set(re.findall(r"\]\(([\w./-]+\.md)\)", PAGE)))
TABLE_LINES = [line for line in PAGE.splitlines() if line.startswith("|")]


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", CODE)
def test_named_code_exists(path):
    module, name = path.split(":")
    result = importlib.import_module(module)
    for part in name.split("."):
        result = getattr(result, part)


@pytest.mark.parametrize("path", TESTS)
def test_named_tests_exist(path):
    file, _, name = path.partition("::")
    assert (ROOT / file).is_file()
    assert not name or name in functions(file)


@pytest.mark.parametrize("link", LINKS)
def test_linked_pages_exist(link):
    assert (ROOT / "docs" / link).is_file()


def test_every_statement_names_a_test():
    statements = [line for line in TABLE_LINES if not re.match(r"\| (statement|as printed) \||\|---", line)]
    assert len(statements) > 40
    assert [line for line in statements if not re.search(r"`tests/[\w/]+\.py::\w+`", line)] == []


def test_every_file_of_theorems_is_on_the_page():
    files = {f"tests/theory/{file.name}" for file in (ROOT / "tests" / "theory").glob("test_*.py")}
    assert files == {path.partition("::")[0] for path in TESTS if path.startswith("tests/theory/")}


def test_every_path_on_the_page_is_checked():
    """A path in a form that the patterns above miss would be checked by nobody."""
    quoted = set(re.findall(r"`([^`]+)`", PAGE))
    unchecked = {text for text in quoted if "::" in text or text.startswith(("hubbub", "tests/"))}
    assert unchecked - set(CODE) - set(TESTS) - {"tests/theory"} == set()
