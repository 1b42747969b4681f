"""docs/glossary.md defines every public name, and every place that it names exists."""

import importlib
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

import hubbub
import hubbub.audit
import hubbub.estimators
import hubbub.training

PAGE = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| term |"))
]
PLACES = sorted({place for row in ROWS for place in re.findall(r"`([^`]+)`", row[-1])})
PUBLIC = [
    (package, name)
    for package in (hubbub.estimators, hubbub.training, hubbub.audit, hubbub)
    for name in package.__all__
    # Not by looking at the object: torch would be imported while tests are collected.
    if not name.startswith("__") and find_spec(f"{package.__name__}.{name}") is None
]


def resolve(place):
    """The object at `module:name`, or the module."""
    module, _, name = place.partition(":")
    value = importlib.import_module(module)
    for part in name.split(".") if name else ():
        value = getattr(value, part)
    return value


def test_every_line_has_term_symbol_definition_and_module():
    assert [row for row in ROWS if len(row) != 4 or not (row[0] and row[2].endswith(".") and row[3])] == []


def test_no_term_is_defined_twice():
    assert [term for term, times in Counter(row[0] for row in ROWS).items() if times > 1] == []


@pytest.mark.parametrize("place", PLACES)
def test_modules_exist(place):
    resolve(place)


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=[name for _, name in PUBLIC])
def test_public_names_are_defined(package, name):
    value = getattr(package, name)
    assert any(resolve(place) is value for place in PLACES if place.split(":")[-1] == name)
