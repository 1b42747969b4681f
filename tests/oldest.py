"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-oldest` runs with these.

Every `>=` of the package and of the extras that are tested becomes an `==`.
"""

import tomllib
from pathlib import Path

EXTRAS = ("postgres", "keys")


def oldest(project):
    """The requirements of the package and its extras, each at the lowest version."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    return [each.replace(">=", "==") for each in wanted]


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    print("\n".join(oldest(tomllib.loads((root / "pyproject.toml").read_text())["project"])))
