"""CONTRIBUTING.md is true of the tree: the length of files, private names in tests, names, slow tests."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NOT_OURS = {"os", "sys", "self", "cls"}
OF_TORCH = {"_values"}


def number(pattern):
    """The limit that the page states."""
    (result,) = re.findall(pattern, PAGE)
    return int(result)


def is_private(name):
    return name.startswith("_") and not name.endswith("_")


def private_names(path):
    """Private names of hubbub that a test imports, reads or replaces."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hubbub":
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in OF_TORCH:
            if not (isinstance(node.value, ast.Name) and node.value.id in NOT_OURS):
                yield node.attr
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
        ):
            texts = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
            yield from (
                text for text in texts if isinstance(text, str) and is_private(text.rpartition(".")[2])
            )


def test_source_files_are_short():
    limit = number(r"files of at most (\d+) lines")
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "src").rglob("*.py")
    }
    assert {path: length for path, length in lengths.items() if length > limit} == {}


@pytest.mark.slow
def test_few_test_files_touch_private_names():
    limit = number(r"at most (\d+) test files")
    files = {
        str(path.relative_to(ROOT)): sorted(set(private_names(path)))
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    touching = {path: names for path, names in files.items() if names}
    assert len(touching) <= limit, touching


@pytest.mark.parametrize(("name", "root"), [("SLOW", "tests"), ("APART", "."), ("TOGETHER", ".")])
def test_paths_in_conftest_exist(name, root):
    (text,) = re.findall(
        rf"^{name} = \((.*?)\)$", (ROOT / "tests" / "conftest.py").read_text(), re.MULTILINE | re.DOTALL
    )
    paths = re.findall(r'"([^"]+)"', text)
    assert paths
    assert [path for path in paths if not (ROOT / root / path).exists()] == []


def test_names_of_tests_begin_with_their_subject():
    dialect = re.compile(r"def (test_(?:(?:what|who|whose|nor|it)_\w+|\w+_(?:whose|told|so_many)_\w+))")
    results = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / "tests").rglob("test_*.py")
        if (names := dialect.findall(path.read_text(encoding="utf-8")))
    }
    assert results == {}, "say what holds: test_gaussian_defaults_to_one_coordinate"
