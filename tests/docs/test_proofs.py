"""Every mechanism, every rule and every sampler has a page in docs/proofs, and every page its parts."""

import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import hubbub.mechanisms
import hubbub.noise
import hubbub.textbook
from hubbub.mechanisms import Mechanism

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
SOURCES = sorted((ROOT / "src" / "hubbub").rglob("*.py"))
LINE = re.compile(r"^ *Proof: (docs/proofs/[\w-]+\.md)$", re.MULTILINE)


def submodules(package):
    for result in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(result.name)


def mechanisms():
    """Every subclass of Mechanism that is defined in hubbub.mechanisms."""
    for module in submodules(hubbub.mechanisms):
        for _, result in inspect.getmembers(module, inspect.isclass):
            is_own = result.__module__ == module.__name__ and result is not Mechanism
            if is_own and issubclass(result, Mechanism):
                yield result


def functions(module):
    return [getattr(module, name) for name in module.__all__ if inspect.isfunction(getattr(module, name))]


PROVED = [*mechanisms(), *functions(hubbub.textbook), *functions(hubbub.noise)]


def pages_of(thing):
    """The pages that a docstring points to: its own, or else its module's."""
    own = inspect.cleandoc(thing.__doc__ or "")
    return LINE.findall(own) or LINE.findall(importlib.import_module(thing.__module__).__doc__ or "")


@cache
def all_tests():
    texts = (file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}


def test_privacy_critical_functions_are_found():
    names = {thing.__name__ for thing in PROVED}
    assert {"Laplace", "Gaussian", "count", "histogram", "discrete_laplace", "bernoulli"} <= names


@pytest.mark.parametrize("thing", PROVED, ids=lambda thing: thing.__name__)
def test_guarantee_points_to_an_existing_proof(thing):
    pages = pages_of(thing)
    assert pages, "a line 'Proof: docs/proofs/….md' in its docstring, or in its module's"
    assert [page for page in pages if not (ROOT / page).is_file()] == []


def test_every_proof_line_anywhere_in_the_package_points_to_a_page():
    pages = {page for file in SOURCES for page in LINE.findall(file.read_text(encoding="utf-8"))}
    assert pages
    assert {page for page in pages if not (ROOT / page).is_file()} == set()


def test_proof_pages_exist():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_claim_assumptions_proof_and_test(page):
    text = page.read_text(encoding="utf-8")
    # As a heading, or as the bold word that begins a paragraph.
    missing = [
        word
        for word in (r"Claims?", r"Assum(?:es|ed|ptions)", r"Proofs?", r"Tests?")
        if not re.search(rf"^(?:#+ .*\b{word}\b|.*\*\*{word}\b|{word}\b)", text, re.MULTILINE)
    ]
    assert missing == []


@pytest.mark.sweep(7)
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_tests_that_exist(page):
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"tests/[\w/]+\.py", text))
    assert files, "the tests that would break if the claim were false"
    assert {file for file in files if not (ROOT / file).is_file()} == set()
    assert set(re.findall(r"`(?:[\w/.]+::)?(test_\w+)`", text)) - all_tests() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_pointed_to_from_the_code(page):
    assert any(f"docs/proofs/{page.name}" in file.read_text(encoding="utf-8") for file in SOURCES)
