"""Differentially private estimators with scikit-learn's interface, in numpy alone.

A name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from hubbub.lazy_exports import export_lazily

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

__getattr__, __dir__ = export_lazily(__name__, _HOMES)
