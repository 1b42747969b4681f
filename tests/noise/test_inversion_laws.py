from fractions import Fraction
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.noise import inversion
from noise import bits
from noise.bits import mp, real

SCALES = [Fraction(1, 100), Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(6399, 100), Fraction(64)]
LAWS = {
    "geometric": (inversion.geometric, bits.geometric, SCALES),
    "discrete_laplace": (inversion.discrete_laplace_size, bits.discrete_laplace, SCALES),
    "rounded_gaussian": (inversion.rounded_gaussian_size, bits.rounded_gaussian, SCALES),
    "half_gaussian": (inversion.half_gaussian, bits.half_gaussian, [scale**2 for scale in SCALES]),
    "gaussian_stairs": (inversion.gaussian_stairs, bits.gaussian_stairs, [scale**2 for scale in SCALES]),
    "discrete_gaussian": (inversion.discrete_gaussian_size, bits.discrete_gaussian, [s**2 for s in SCALES]),
}
ROUGH = [Fraction(1, 5), Fraction(1, 2), Fraction(7, 9), Fraction(5, 3), Fraction(4), Fraction(37, 5)]
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


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("steps", "law", "scale"), CASES)
@pytest.mark.parametrize("precision", [128, 256])
def test_additional_bits_are_correct(steps, law, scale, precision):
    exact = law(scale)
    for j, (low, high) in enumerate(islice(steps(scale, precision), 60), start=1):
        assert low <= mp.ldexp(exact(j), precision) <= high
        assert high - low <= 2
    for j, (low, high) in enumerate(islice(steps(scale, precision), 900), start=1):
        if j % 299 == 0:
            assert low <= mp.ldexp(exact(j), precision) <= high


@pytest.mark.parametrize(("steps", "law", "scale"), CASES)
def test_thresholds_continue_beyond_the_precision(steps, law, scale):
    # Beyond what the precision can tell apart all that is said is: almost 1, and at most 1.
    for low, high in islice(steps(scale, 32), 3500, 3503):
        assert 2**32 - 2 <= low < 2**32 <= high <= 2**32 + 1


@pytest.mark.parametrize("precision", range(12, 22))
@pytest.mark.parametrize("name", sorted(LAWS.keys() - {"rounded_gaussian"}))
def test_every_end_is_rounded_outward(name, precision, monkeypatch):
    """Without bits to spare a floor that should be a ceiling, or an end for the other, shows at once."""
    monkeypatch.setattr(inversion, "_SPARE_BITS", 0)
    steps, law, _ = LAWS[name]
    for scale in ROUGH:
        exact = law(scale)
        results = list(islice(steps(scale, precision), 120))
        for j, (low, high) in enumerate(results, start=1):
            assert 0 <= low <= mp.ldexp(exact(j), precision) <= high <= 1 << precision
            assert high - low <= 100  # about one unit for each rounding on the way, and no more
        assert results[0][0] < results[-1][0]


@pytest.mark.parametrize("precision", range(12, 22))
def test_every_gaussian_weight_is_rounded_outward(precision):
    for variance in [*ROUGH, *range(20, 300, 14)]:
        weights, rest = inversion._gaussian_weights(Fraction(variance), precision)
        exact = [mp.ldexp(mp.exp(-k * k / (2 * real(variance))), precision) for k in range(len(weights) + 90)]
        assert all(low <= weight <= high for (low, high), weight in zip(weights, exact, strict=False))
        assert sum(exact[len(weights) :]) <= rest


@pytest.mark.parametrize("name", sorted(LAWS.keys() - {"rounded_gaussian"}))
def test_results_of_wide_enclosures_are_wide_enough(name, monkeypatch):
    """Were e^−x known to 1 in 50 only, each step would hold the steps of all that it may be."""
    exact = inversion.exp_neg
    monkeypatch.setattr(
        inversion, "exp_neg", lambda x, work: (exact(x, work)[0] * 99 // 100, exact(x, work)[1] * 101 // 100)
    )
    steps, law, _ = LAWS[name]
    for scale in (Fraction(1, 2), Fraction(5, 3), Fraction(4)):
        times = 2 if "gauss" in name or "half_gaussian" in name else 1
        q = mp.exp(-1 / (times * real(scale)))
        for factor in (99, 100, 101):
            possible = law(-1 / (times * mp.log(q * factor / 100)))
            for j, (low, high) in enumerate(islice(steps(scale, 64), 12), start=1):
                assert low <= mp.ldexp(possible(j), 64) + 1
                assert mp.ldexp(possible(j), 64) - 1 <= high
    if "half_gaussian" in name:
        weights, rest = inversion._gaussian_weights(Fraction(4), 64)
        widest = [mp.ldexp((q * mp.mpf(101) / 100) ** (k * k), 64) for k in range(len(weights) + 90)]
        assert sum(widest[len(weights) :]) <= rest + 1


def test_gaussian_tail_remainder_is_included(monkeypatch):
    monkeypatch.setattr(inversion, "_gaussian_weights", lambda variance, work: ([(64, 64), (32, 40)], 16))
    one_sided = list(islice(inversion.half_gaussian(Fraction(1), 20), 3))
    assert [low for low, _ in one_sided] == [(64 << 20) // 120, (96 << 20) // 120, (96 << 20) // 120]
    assert [high for _, high in one_sided] == [-(-(64 << 20) // 96), 1 << 20, 1 << 20]
    two_sided = list(islice(inversion.discrete_gaussian_size(Fraction(1), 20), 3))
    assert [low for low, _ in two_sided] == [(64 << 20) // 176, (128 << 20) // 176, (128 << 20) // 176]
    assert [high for _, high in two_sided] == [(64 << 20) // 128, 1 << 20, 1 << 20]


def test_partial_sums_take_each_weight_s_own_end(monkeypatch):
    weights = [(64, 64), (16, 24), (20, 30)]
    monkeypatch.setattr(inversion, "_gaussian_weights", lambda variance, work: (weights, 16))
    results = list(islice(inversion.half_gaussian(Fraction(1), 20), 3))
    assert [low for low, _ in results] == [(low << 20) // 134 for low in (64, 80, 100)]
    assert [high for _, high in results] == [-(-(64 << 20) // 100), -(-(88 << 20) // 100), 1 << 20]


@given(st.fractions(Fraction(1, 50), 40, max_denominator=1000), st.sampled_from(sorted(LAWS)))
def test_laws_hold_at_any_scale(scale, name):
    steps, law, _ = LAWS[name]
    if name not in ("geometric", "discrete_laplace", "rounded_gaussian"):
        scale = scale**2
    exact = law(scale)
    for j, (low, high) in enumerate(islice(steps(scale, 64), 12), start=1):
        assert low <= mp.ldexp(exact(j), 64) <= high
        assert high - low <= 2


@pytest.mark.slow
def test_reference_laws_match_their_definitions():
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
        assert mp.almosteq(bits.half_gaussian(Fraction(5))(j), sum(weights[:j]) / sum(weights), 1e-30)
        assert mp.almosteq(bits.gaussian_stairs(Fraction(5))(j), 1 - weights[j], 1e-30)
        both = (2 * sum(weights[:j]) - 1) / (2 * sum(weights) - 1)
        assert mp.almosteq(bits.discrete_gaussian(Fraction(5))(j), both, 1e-30)


@pytest.mark.parametrize("variance", [Fraction(1, 10**4), Fraction(2), Fraction(4096)])
def test_gaussian_tail_remainder_is_bounded(variance):
    weights, rest = inversion._gaussian_weights(variance, 96)
    first = len(weights)
    left_out = sum(mp.exp(-k * k / (2 * real(variance))) for k in range(first, first + 500))
    assert mp.ldexp(left_out, 96) <= rest
    assert rest <= 2**16
    for k in {0, 1, first // 2, first - 1}:
        low, high = weights[k]
        assert low <= mp.ldexp(mp.exp(-k * k / (2 * real(variance))), 96) <= high
        assert high > 1
