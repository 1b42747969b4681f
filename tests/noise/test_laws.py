from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.noise import laws
from noise import bits
from noise.bits import mp, real

SCALES = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(6399, 100), Fraction(64)]
LAWS = {
    "geometric": (laws.geometric, bits.geometric, SCALES),
    "discrete_laplace": (laws.discrete_laplace_size, bits.discrete_laplace, SCALES),
    "rounded_gaussian": (laws.rounded_gaussian_size, bits.rounded_gaussian, SCALES),
    "bell": (laws.bell, bits.bell, [scale**2 for scale in SCALES]),
    "discrete_gaussian": (laws.discrete_gaussian_size, bits.discrete_gaussian, [s**2 for s in SCALES]),
}
CASES = [
    pytest.param(steps, law, scale, id=f"{name}-{scale}")
    for name, (steps, law, scales) in LAWS.items()
    for scale in scales
]


def _until_the_tail(steps, precision):
    """The steps that a table of this precision holds."""
    for low, high in steps:
        yield low, high
        if high >= 1 << precision:
            return


@pytest.mark.parametrize(("steps", "law", "scale"), CASES)
def test_every_threshold_of_every_table_encloses_the_law(steps, law, scale):
    exact = law(scale)
    undecided = 0
    for j, (low, high) in enumerate(_until_the_tail(steps(scale, 64), 64), start=1):
        threshold = mp.ldexp(exact(j), 64)
        assert 0 <= low <= threshold <= high <= (1 << 64) + 1
        undecided += high - low
    # What 64 bits leave open, and with it all work that depends on the draw, is rarer than 2^-50.
    assert undecided < 2**14
    assert low >= 2**64 - 2**12  # nothing but a far tail is left beyond the last step


@pytest.mark.parametrize(("steps", "law", "scale"), CASES)
@pytest.mark.parametrize("precision", [128, 256])
def test_more_bits_are_true_bits(steps, law, scale, precision):
    exact = law(scale)
    for j, (low, high) in enumerate(islice(steps(scale, precision), 60), start=1):
        assert low <= mp.ldexp(exact(j), precision) <= high
        assert high - low <= 2
    for j, (low, high) in enumerate(islice(steps(scale, precision), 900), start=1):
        if j % 299 == 0:
            assert low <= mp.ldexp(exact(j), precision) <= high


@pytest.mark.parametrize(("steps", "law", "scale"), CASES)
def test_the_steps_never_end(steps, law, scale):
    # Beyond what the precision can tell apart all that is said is: almost 1, and at most 1.
    for low, high in islice(steps(scale, 32), 3500, 3503):
        assert 2**32 - 2 <= low < 2**32 <= high <= 2**32 + 1


@given(st.fractions(Fraction(1, 50), 40, max_denominator=1000), st.sampled_from(sorted(LAWS)))
def test_any_scale(scale, name):
    steps, law, _ = LAWS[name]
    if name in ("bell", "discrete_gaussian"):
        scale = scale**2
    exact = law(scale)
    for j, (low, high) in enumerate(islice(steps(scale, 64), 12), start=1):
        assert low <= mp.ldexp(exact(j), 64) <= high
        assert high - low <= 2


def test_the_laws_are_what_they_are_called():
    # By hand, so that the reference itself is held to the definitions.
    q = mp.exp(-1 / real(Fraction(7, 3)))
    sizes = [q**k for k in range(400)]
    for j in (1, 2, 7):
        assert mp.almosteq(bits.geometric(Fraction(7, 3))(j), sum(sizes[:j]) * (1 - q), 1e-30)
        two_sided = (2 * sum(sizes[:j]) - 1) / (2 * sum(sizes) - 1)
        assert mp.almosteq(bits.discrete_laplace(Fraction(7, 3))(j), two_sided, 1e-30)
        normal = mp.quad(mp.npdf, [-mp.mpf(2 * j - 1) / 6, mp.mpf(2 * j - 1) / 6])
        assert mp.almosteq(bits.rounded_gaussian(Fraction(3))(j), normal, 1e-30)
        weights = [mp.exp(-mp.mpf(k * k) / 10) for k in range(200)]
        assert mp.almosteq(bits.bell(Fraction(5))(j), sum(weights[:j]) / sum(weights), 1e-30)
        both = (2 * sum(weights[:j]) - 1) / (2 * sum(weights) - 1)
        assert mp.almosteq(bits.discrete_gaussian(Fraction(5))(j), both, 1e-30)


@pytest.mark.parametrize("variance", [Fraction(1, 10**4), Fraction(2), Fraction(4096)])
def test_the_rest_of_a_bell_is_bounded(variance):
    weights, rest = laws._bell_weights(variance, 96)
    first = len(weights)
    left_out = sum(mp.exp(-k * k / (2 * real(variance))) for k in range(first, first + 500))
    assert mp.ldexp(left_out, 96) <= rest
    assert rest <= 2**16
    for k in {0, 1, first // 2, first - 1}:
        low, high = weights[k]
        assert low <= mp.ldexp(mp.exp(-k * k / (2 * real(variance))), 96) <= high
        assert high > 1
