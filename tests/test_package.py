"""What is installed: the wheel and the source archive, without the source tree, and what they state."""

import email
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_extra_all_has_every_other_extra():
    extras = PROJECT["optional-dependencies"]
    [everything] = extras["all"]
    assert set(re.fullmatch(r"hubbub\[(.+)\]", everything)[1].split(",")) == set(extras) - {"all"}


def test_versions_agree():
    version = PROJECT["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    [section, *_] = re.split(r"^## ", changes.partition(f"\n## {version}")[2], flags=re.MULTILINE)
    assert "\n### Privacy" in section


def test_classifiers_name_the_versions_of_python():
    versions = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert PROJECT["requires-python"] == f">={versions[0]}"
    assert versions == ["3.11", "3.12", "3.13", "3.14"]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The source archive, and the wheel that is made from it, not from this folder."""
    folder = tmp_path_factory.mktemp("dist")
    words = ["-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.mark.long
def test_archives_hold_what_they_should(archives):
    source, wheel = archives
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml"} <= names
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        [metadata] = [name for name in files if name.endswith("/METADATA")]
        facts = email.message_from_bytes(archive.read(metadata))
    assert "hubbub/py.typed" in files
    assert {name.partition("/")[0] for name in files} == {"hubbub", metadata.partition("/")[0]}
    assert not any(name.endswith((".pyc", ".toml.orig")) for name in files)
    assert (facts["Name"], facts["License-Expression"]) == ("hubbub", "Apache-2.0")
    assert facts["Requires-Python"] == ">=3.11"
    assert set(facts.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    for line in facts.get_payload().splitlines():
        assert len(line) < 1000


@pytest.mark.long
@pytest.mark.parametrize("kind", ["source", "wheel"])
def test_commands_of_the_readme_run_as_installed(archives, kind, tmp_path):
    package = archives[0 if kind == "source" else 1]
    place, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", str(place), str(package)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONSAFEPATH": "1"}

    def run(*words):
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)

    assert Path(run("-c", "import hubbub; print(hubbub.__file__)").stdout.strip()).is_relative_to(place)
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    block = next(each for each in blocks if "hubbub demo --save" in each)
    commands = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("hubbub ")]
    assert len(commands) >= 10
    for line in commands:
        words = shlex.split(line, comments=True)[1:]
        out = run("-m", "hubbub", *words)
        assert out.returncode == 0, (line, out.stderr)
