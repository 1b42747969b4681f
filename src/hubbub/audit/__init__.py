"""Audits: lower bounds of ε from the outputs of a training run."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.audit.training import Audit, audit

__all__ = ["Audit", "audit"]

_HOMES = {
    "training": ("Audit", "audit"),
}

_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from its module."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.audit' has no attribute {name!r}")
    try:
        home = import_module(f"hubbub.audit.{_HOME[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hubbub.audit.{name} needs torch: pip install hubbub[training]", name="torch"
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted({*globals(), *__all__})
