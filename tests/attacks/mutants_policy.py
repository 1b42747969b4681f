"""One policy, in the library: as it was before, kept so that each attack finds what it looks for."""

from fractions import Fraction
from types import SimpleNamespace

from hubbub.estimators import GaussianNB


def any_delta_below_one(delta, population):
    """A48: a δ is refused from 1 on, and where a population is given from 1/population on."""
    if delta >= 1 or (population is not None and delta * population >= 1):
        raise ValueError
    return SimpleNamespace(delta=Fraction(delta))


def any_epsilon(epsilon):
    """A49: whatever is above 0 is spent."""
    if epsilon <= 0:
        raise ValueError
    return SimpleNamespace(epsilon=Fraction(epsilon))


def nobody_keeps_count():
    """A50: an estimator that spends from no account, and does not say so."""
    model = GaussianNB(epsilon=0.5, bounds=(0, 1), classes=[0, 1], account=None)
    model.fit([[0.0], [1.0]], [0, 1])
    label = {name: fact for name, fact in model.release_.label().items() if name != "account"}
    return 10, Fraction(1, 2), label
