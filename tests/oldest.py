"""The lowest versions that pyproject.toml allows, as requirements for pip: `make test-oldest` has these.

Every `>=` of the package, of the extras that are tested, and of the data frames of tests becomes `==`.
"""

import tomllib
from pathlib import Path

EXTRAS = ("postgres", "keys")
FRAMES = ("pandas", "polars", "pyarrow")


def oldest(declared):
    """The requirements, each at the lowest version."""
    project = declared["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    requirements += [each for each in declared["dependency-groups"]["test"] if each.startswith(FRAMES)]
    return [each.replace(">=", "==") for each in requirements]


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    print("\n".join(oldest(tomllib.loads((root / "pyproject.toml").read_text()))))
