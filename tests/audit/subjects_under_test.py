"""Functions of a database that tests audit: `tests/audit/subjects_under_test.py:NAME`."""

from fractions import Fraction

from hubbub.mechanisms import Laplace
from hubbub.noise import bernoulli

_EXACT = Laplace.of(sensitivity=1, epsilon=1, real=True)
_HALF = Laplace.of(sensitivity=1, epsilon=2, real=True)


def exact_sum(database):
    return _EXACT.release(float(sum(database))).value


def half_noise(database):
    return _HALF.release(float(sum(database))).value


def half_noise_batch(database, count):
    return _HALF.release_many(float(sum(database)), count).value


def fails_on_rows(database):
    if database and bernoulli(Fraction(1, 2)):
        raise ValueError("no")
    return 0


def returns_rows(database):
    return {"rows": list(database), "names": {"a", "b"}, "none": None, "text": "same"}
