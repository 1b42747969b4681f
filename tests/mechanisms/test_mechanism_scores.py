"""Integer scores: what is one, whole noise, and the chance that noise overtakes a distance."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hubbub.errors import InvalidInput
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
)
from hubbub.mechanisms import mechanism as mechanism_module
from hubbub.mechanisms.mechanism import add_laplace_noise, laplace_difference_tail
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE
from mechanisms.reference import mass, up_to
from refusing import refusal

ALL = [
    *(
        kind.of(sensitivity=1, epsilon=1)
        for kind in (PermuteAndFlip, Exponential, ReportNoisyMax, ReportNoisyMaxWithGap)
    ),
    TopK(PermuteAndFlip.of(sensitivity=1, epsilon=1), k=1),
    AboveThreshold.of(sensitivity=1, epsilon=1, threshold=0),
]


def test_saturated_noise_is_extended_memorylessly(monkeypatch):
    monkeypatch.setattr(
        mechanism_module,
        "discrete_laplace",
        lambda scale, size: np.array([MAX_DRAW, -MAX_DRAW, MAX_DRAW - 1]),
    )
    more = iter([10**20, 7])
    monkeypatch.setattr(mechanism_module, "geometric", lambda scale: next(more) * scale.numerator)

    total = add_laplace_noise(np.array([MAX_MAGNITUDE, -MAX_MAGNITUDE, MAX_MAGNITUDE]), Fraction(2))

    assert total.tolist() == [
        MAX_MAGNITUDE + MAX_DRAW + 2 * 10**20,
        -MAX_MAGNITUDE - MAX_DRAW - 14,
        MAX_MAGNITUDE + MAX_DRAW - 1,
    ]


def test_overtaking_probability_is_the_sum_rounded_up():
    for rate in (Fraction(1, 7), Fraction(1), Fraction(5)):
        z = mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator)
        for distance in (0, 1, 2, 9):
            exact = (mass(z) * up_to(z, 1, -distance)).total()
            result = laplace_difference_tail(rate, distance, 128)
            assert mpmath.mpf(result.numerator) / result.denominator == pytest.approx(exact, rel=1e-13)
    z = Fraction(1, 3)
    with mpmath.workdps(50):
        rate = Fraction(int(mpmath.floor(mpmath.log(3) * 10**40)), 10**40)  # e^−rate just above 1/3
    for distance in (0, 1, 5):
        exact = (mass(z) * up_to(z, 1, -distance)).total()
        assert exact <= laplace_difference_tail(rate, distance, 128) <= exact * (1 + Fraction(1, 10**30))


BAD_SCORES = {
    "empty": [],
    "empty array": np.array([], dtype=np.int64),
    "doubles": [1.0, 2.0],
    "array of doubles": np.array([1.0, 2.0]),
    "one double among integers": [1, 2.5],
    "nan": [1, math.nan],
    "inf": [1, math.inf],
    "nested": [[1, 2], [3, 4]],
    "2-d": np.ones((2, 2), dtype=np.int64),
    "one number": 5,
    "text": "12",
    "none": None,
    "with none": [1, None],
    "bools": [True, False],
    "too large": [1, 2**62],
    "set": {1, 2},
}


@pytest.mark.parametrize("bad", BAD_SCORES.values(), ids=BAD_SCORES)
def test_scores_must_be_a_list_of_integers(bad):
    for each in ALL:
        refusal(InvalidInput, each.release, bad)


def test_refusal_of_scores_names_the_problem():
    release = PermuteAndFlip.of(sensitivity=1, epsilon=1).release

    assert "no scores" in refusal(InvalidInput, release, []).what
    assert "not a list of integers" in refusal(InvalidInput, release, [1.5]).what
    assert "not a list of integers" in refusal(InvalidInput, release, 3).what
