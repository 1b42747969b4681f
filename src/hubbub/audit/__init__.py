"""Audits: lower bounds of ε from what a mechanism or a training run shows."""

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
    """A public name, from the module it lives in, loaded now."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.audit' has no attribute {name!r}")
    try:
        home = import_module(f"hubbub.audit.{_HOME[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hubbub.audit.{name} needs torch: pip install hubbub[learn]", name="torch"
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub.audit)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
