"""Private learning: models that say true things about the crowd, and nothing about the person.

`private` makes a training run of an ordinary torch model, optimizer and data; the estimators are shaped as
scikit-learn's and need numpy only. A name is loaded when it is first used: torch is for who trains with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hubbub.learn.auditing import Audit, audit
    from hubbub.learn.bayes import GaussianNB
    from hubbub.learn.clusters import KMeans
    from hubbub.learn.linear import LinearRegression
    from hubbub.learn.logistic import LogisticRegression
    from hubbub.learn.lots import Fixed, Lots, Shuffled, most_steps
    from hubbub.learn.optim import CorrectedAdam
    from hubbub.learn.pca import PCA
    from hubbub.learn.scaler import StandardScaler
    from hubbub.learn.schedule import Adaptive
    from hubbub.learn.trainer import Trainer, private

__all__ = [
    "PCA",
    "Adaptive",
    "Audit",
    "CorrectedAdam",
    "Fixed",
    "GaussianNB",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "Lots",
    "Shuffled",
    "StandardScaler",
    "Trainer",
    "audit",
    "most_steps",
    "private",
]

_HOMES = {
    "auditing": ("Audit", "audit"),
    "bayes": ("GaussianNB",),
    "clusters": ("KMeans",),
    "linear": ("LinearRegression",),
    "logistic": ("LogisticRegression",),
    "lots": ("Fixed", "Lots", "Shuffled", "most_steps"),
    "optim": ("CorrectedAdam",),
    "pca": ("PCA",),
    "scaler": ("StandardScaler",),
    "schedule": ("Adaptive",),
    "trainer": ("Trainer", "private"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """A public name, from the module it lives in, loaded now."""
    if name not in _HOME:
        raise AttributeError(f"module 'hubbub.learn' has no attribute {name!r}")
    try:
        home = import_module(f"hubbub.learn.{_HOME[name]}")
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"hubbub.learn.{name} needs torch: pip install hubbub[learn]", name="torch"
        ) from None
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `dir(hubbub.learn)` shows: the public names, loaded or not."""
    return sorted({*globals(), *__all__})
