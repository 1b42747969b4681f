"""Private learning: models of tables, whose training is charged before a row is read.

A name is loaded when it is first used, so that nothing heavy is loaded for what does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.learn.bayes import GaussianNB
    from hubbub.learn.clusters import KMeans
    from hubbub.learn.linear import LinearRegression
    from hubbub.learn.logistic import LogisticRegression
    from hubbub.learn.pca import PCA
    from hubbub.learn.scaler import StandardScaler

__all__ = ["PCA", "GaussianNB", "KMeans", "LinearRegression", "LogisticRegression", "StandardScaler"]

_HOME = {
    "GaussianNB": "bayes",
    "KMeans": "clusters",
    "LinearRegression": "linear",
    "LogisticRegression": "logistic",
    "PCA": "pca",
    "StandardScaler": "scaler",
}


def __getattr__(name: str) -> object:
    """A public name, from the module it lives in, loaded now."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.learn' has no attribute {name!r}")
    value = getattr(import_module(f"hubbub.learn.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub.learn)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
