"""Public names of a package that are loaded at first use, so that importing the package loads no library."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["export_lazily"]


def export_lazily(
    package: str, homes: Mapping[str, tuple[str, ...]], *, extra: str | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: the name of the package.
        homes: the public names of each of its modules.
        extra: the extra of the installation that has torch, if its modules need it.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    loaded = vars(sys.modules[package])

    def get(name: str) -> object:
        """Load a public name from its module."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            home = import_module(f"{package}.{home_of[name]}")
        except ModuleNotFoundError as missing:
            if extra is None or missing.name != "torch":
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs torch: pip install hubbub[{extra}]", name="torch"
            ) from None
        loaded[name] = getattr(home, name)
        return loaded[name]

    def list_names() -> list[str]:
        """The public names, loaded or not."""
        return sorted({*loaded, *home_of})

    return get, list_names
