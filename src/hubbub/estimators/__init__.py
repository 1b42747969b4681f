"""Differentially private estimators with scikit-learn's interface, in numpy alone.

A name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.estimators.cluster import KMeans
    from hubbub.estimators.decomposition import PCA
    from hubbub.estimators.linear_model import LinearRegression, LogisticRegression
    from hubbub.estimators.naive_bayes import GaussianNB
    from hubbub.estimators.preprocessing import StandardScaler

__all__ = ["PCA", "GaussianNB", "KMeans", "LinearRegression", "LogisticRegression", "StandardScaler"]

_HOMES = {
    "cluster": ("KMeans",),
    "decomposition": ("PCA",),
    "linear_model": ("LinearRegression", "LogisticRegression"),
    "naive_bayes": ("GaussianNB",),
    "preprocessing": ("StandardScaler",),
}

_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module it lives in, loaded now."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.estimators' has no attribute {name!r}")
    home = import_module(f"hubbub.estimators.{_HOME[name]}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub.estimators)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
