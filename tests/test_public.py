"""The public door: few names, each documented, and nothing heavy behind it."""

import inspect
import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import hubbub

ROOT = Path(__file__).parent.parent

DOOR = {
    "AboveThreshold", "Bounded", "Budget", "Dataset", "Exponential", "Gaussian", "Halted", "HubbubError",
    "InvalidInput", "Laplace", "ReportNoisyMax", "ReportNoisyMaxWithGap", "Ledger", "PrivacyLoss",
    "Mechanism",
    "Neighbours", "PermuteAndFlip", "RandomizedResponse", "Refused", "Release", "Sensitivity",
    "InMemoryAccount", "Synopsis",
    "TopK", "UnaryEncoding", "Unit", "Universe", "Unsupported", "Window", "calibrate",
    "choose_additive_noise", "connect", "count", "counts", "fraction", "from_json", "histogram", "linear",
    "open", "parallel_composition", "select_and_measure",
}  # fmt: skip


def test_version_is_that_of_the_installed_package():
    assert hubbub.__version__ == metadata.version("hubbub")


def test_public_names_are_exactly_these():
    assert set(hubbub.__all__) == DOOR
    public = {name for name in dir(hubbub) if not name.startswith("_")} - {"TYPE_CHECKING", "import_module"}
    submodules = {name for name in public if inspect.ismodule(getattr(hubbub, name))}
    assert public - submodules == DOOR
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hubbub.nonsense  # noqa: B018 - the question is the test


@pytest.mark.parametrize("name", sorted(DOOR))
def test_every_public_name_has_a_docstring(name):
    assert inspect.getdoc(getattr(hubbub, name))


def modules_loaded_by(statement: str) -> set[str]:
    code = f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(out.stdout))


@pytest.mark.slow
def test_public_names_are_loaded_lazily():
    loaded = modules_loaded_by("import hubbub; hubbub.Unit")
    assert "hubbub.unit" in loaded
    assert "hubbub.accounting" not in loaded


@pytest.mark.slow
def test_queries_need_no_optional_dependency():
    loaded = {name.partition(".")[0] for name in modules_loaded_by("from hubbub import open")}
    assert not loaded & {
        "scipy",
        "torch",
        "pyspark",
        "psycopg",
        "cryptography",
        "fastapi",
        "pandas",
        "polars",
        "pyarrow",
    }


@pytest.mark.slow
def test_mechanisms_and_losses_import_no_heavy_library():
    names = ", ".join(sorted(DOOR - {"Dataset", "Synopsis", "connect", "open"}))
    loaded = {name.partition(".")[0] for name in modules_loaded_by(f"from hubbub import {names}")}
    heavy = {
        "scipy",
        "duckdb",
        "sqlglot",
        "typer",
        "rich",
        "torch",
        "pyspark",
        "psycopg",
        "fastapi",
        "pandas",
        "polars",
    }
    assert not loaded & heavy


def test_layer_contract_lists_every_module():
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    listed = {name.strip() for layer in contracts[0]["layers"] for name in layer.split("|")}
    source = ROOT / "src" / "hubbub"
    there = {
        f"hubbub.{path.stem}"
        for path in source.iterdir()
        if path.suffix == ".py" and not path.stem.startswith("__")
    }
    there |= {f"hubbub.{path.name}" for path in source.iterdir() if (path / "__init__.py").exists()}
    assert listed == there
