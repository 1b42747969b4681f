import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub import noise
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.noise import large_scales, samplers
from hubbub.noise.inversion import MAX_DRAW, Table
from hubbub.noise.samplers import (
    MAX_SCALE,
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    rounded_gaussian,
    uniform,
)
from internals import inject_bits
from noise import bits
from noise.bits import ONES, Tape, mp, playing, real, scaled, seeded, word

SAMPLERS = {
    "geometric": geometric,
    "discrete_laplace": discrete_laplace,
    "rounded_gaussian": rounded_gaussian,
    "discrete_gaussian": discrete_gaussian,
}
NAMES = {"geometric": "scale", "discrete_laplace": "scale", "rounded_gaussian": "sigma"}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def test_package_exports_all_samplers():
    assert sorted(noise.__all__) == sorted(samplers.__all__)
    for name in samplers.__all__:
        assert getattr(noise, name) is getattr(samplers, name)


# --- uniform integers -----------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 6, 7, 8, 100, 200, 255, 256])
def test_uniform_is_uniform_over_every_byte(bound):
    """All bytes that one draw may read: each integer comes from as many of them, the rest are tried again."""
    width = (bound - 1).bit_length()
    counts = [0] * bound
    for byte in range(256 if width else 1):
        tape = Tape(bytes([byte])[: min(width, 1)], bytes(min(width, 1)))
        with inject_bits(tape):
            draws = uniform(bound)
        if len(tape.requests) == 1:
            counts[draws] += 1
        else:
            assert draws == 0
    assert len(set(counts)) == 1
    assert counts[0] == (1 << 8 - width if width else 1)


@given(st.integers(1, 2**100))
@example(2**64)
@example(2**64 + 1)
def test_uniform_integer_works_with_any_bound(bound):
    width = (bound - 1).bit_length()
    size = -(-width // 8)
    largest = (bound - 1 << 8 * size - width).to_bytes(size, "big") if size else b""
    with playing(largest) as tape:
        assert uniform(bound) == bound - 1
    assert tape.requests == [size]
    if bound < 1 << width:
        beyond = (bound << 8 * size - width).to_bytes(size, "big")
        with playing(beyond, bytes(size)):
            assert uniform(bound) == 0


@pytest.mark.parametrize("bound", [1, 2, 6, 1000, 2**31 + 1, 2**62 - 1, 2**62])
def test_a_uniform_vector_takes_the_first_that_fit(bound):
    width = (bound - 1).bit_length()
    generator = random.Random(bound)
    words = [generator.getrandbits(64) for _ in range(2000)]
    fitting = [word & (1 << width) - 1 for word in words]
    fitting = [value for value in fitting if value < bound][:500]
    raw = np.array(words, dtype=np.uint64).tobytes()
    with inject_bits(Tape(lambda count: raw[:count], then=0)):
        draws = uniform(bound, size=500)
    assert draws.dtype == np.int64
    assert draws.tolist() == fitting


def test_a_uniform_vector_goes_on_until_it_is_full():
    with playing(lambda count: b"\xff" * count, bytes) as tape:
        assert uniform(5, size=10).tolist() == [0] * 10
    assert tape.requests == [8 * (16 * 33 // 32 + 64)] * 2
    half = np.zeros(80, dtype=np.uint64)
    half[4:] = 7
    with playing(half.tobytes(), lambda count: b"\x01" * count) as tape:
        assert uniform(5, size=10).tolist() == [0] * 4 + [1] * 6
    assert tape.requests[1] == 8 * (9 * 33 // 32 + 64)


def test_a_long_uniform_vector_is_drawn_in_chunks():
    tape = seeded(4)
    with inject_bits(tape):
        draws = uniform(1000, size=100_000)
    assert draws.shape == (100_000,)
    assert draws.min() == 0
    assert draws.max() == 999
    assert tape.requests[0] == max(tape.requests) == 8 << 16


def test_uniform_vector_refuses_bounds_beyond_64_bits():
    with pytest.raises(Unsupported, match="bound is above 2\\^62"):
        uniform(2**62 + 1, size=3)
    assert 0 <= uniform(2**62 + 1) <= 2**62


# --- coins ----------------------------------------------------------------------------------------


@given(st.fractions(0, 1, max_denominator=2**70), st.integers(0, ONES))
@example(Fraction(1, 3), 0)
@example(Fraction(1, 2**64), 0)
@example(Fraction(1, 2**65), 1 << 63)
@example(Fraction(1), 0)
@example(Fraction(0), 0)
@example(1 - Fraction(1, 2**70), ONES)
def test_bernoulli_is_the_comparison(p, more):
    edge = int(p * 2**64)
    us = [u for u in {0, 1, edge - 1, edge, edge + 1, ONES} if 0 <= u <= ONES]
    expected = [Fraction(u << 64 | more, 1 << 128) < p for u in us]
    for u, heads in zip(us, expected, strict=True):
        with inject_bits(Tape(word(u), word(more), then=0)):
            assert bernoulli(p) is heads
    raw = np.array(us, dtype=np.uint64).tobytes()
    with inject_bits(Tape(raw, then=lambda count: word(more))):
        draws = bernoulli(p, size=len(us))
    assert draws.dtype == np.bool_
    assert draws.tolist() == expected


@given(
    st.one_of(st.fractions(0, 60, max_denominator=10**9), st.sampled_from([0, 10**6, 2**8000])),
    st.integers(1, ONES - 1),
)
@example(Fraction(1, 10**30), ONES - 1)
@example(Fraction(1, 2), 1)
def test_bernoulli_exp_is_the_comparison(x, more):
    p = mp.exp(-real(Fraction(x)))
    edge = scaled(p, 64)
    us = [u for u in {0, 1, edge - 1, edge, edge + 1, ONES} if 0 <= u <= ONES]
    expected = [bool((u << 128 | more << 64 | more) < mp.ldexp(p, 192)) for u in us]
    for u, heads in zip(us, expected, strict=True):
        with inject_bits(Tape(word(u), then=lambda count: word(more))):
            assert bernoulli_exp(x) is heads
    raw = np.array(us, dtype=np.uint64).tobytes()
    with inject_bits(Tape(raw, then=lambda count: word(more))):
        assert bernoulli_exp(x, size=len(us)).tolist() == expected


def test_coins_with_probability_zero_or_one_are_constant():
    assert bernoulli(1, size=3).tolist() == [True] * 3
    assert bernoulli(0, size=3).tolist() == [False] * 3
    assert bernoulli_exp(0, size=3).tolist() == [True] * 3
    with playing(b"\xff" * 8):
        assert bernoulli(1)
    with playing(bytes(8)):
        assert not bernoulli(0)
    assert bernoulli(0.5, size=0).shape == (0,)
    assert bernoulli_exp(0, size=0).shape == (0,)


def test_coin_reads_only_the_bits_it_needs():
    for size in (None, 1):
        with playing(b"\xff" * 8):
            assert not np.any(bernoulli(Fraction(1, 3), size))
        with playing(word(0)):
            assert np.all(bernoulli_exp(1, size))


def test_only_draws_undecided_by_64_bits_read_more(monkeypatch):
    words = []
    monkeypatch.setattr(samplers, "is_below", lambda u, width, p: words.append((u, width)) or True)
    third = (1 << 64) // 3
    us = np.array([0, third - 1, third, third + 1, ONES], dtype=np.uint64)
    with playing(us.tobytes()):
        assert bernoulli(Fraction(1, 3), size=5).tolist() == [True, True, True, False, False]
    assert words == [(third, 64)]
    words.clear()
    with playing(np.array([1 << 63, (1 << 63) - 1], dtype=np.uint64).tobytes()):
        assert bernoulli(0.5, size=2).tolist() == [False, True]
    assert words == []


@pytest.mark.parametrize("p", [1.1, -0.1, Fraction(3, 2), 2, -1])
def test_probability_must_lie_between_0_and_1(p):
    with pytest.raises(InvalidInput, match="p is outside 0 to 1"):
        bernoulli(p)


def _each(x, times, us, more=0):
    raw = np.array(us, dtype=np.uint64).tobytes()
    with inject_bits(Tape(raw, then=lambda count: word(more))):
        return bernoulli_exp_each(x, np.array(times)).tolist()


@pytest.mark.parametrize(
    "x",
    [0, Fraction(1, 10**6), Fraction(1, 3), 1, 699, 700, 701, 10**9, 2**8000, Fraction(1, 2**2000), 5e-324],
)
def test_bernoulli_exp_each_is_the_comparison(x):
    """Around the edge: beyond the filter's margin, within it, and ties that need more bits."""
    generator = random.Random(1)
    times, us, expected = [], [], []
    more = 1 << 63
    for k in [0, 1, 2, 3, 7, 30, 699, 700, 701, 1000, 10**6, 2**62, 2**63 - 1]:
        p = mp.exp(-real(Fraction(x)) * k)
        edge = scaled(p, 64)
        steps = [0, 1, -1, 2**20, -(2**20), 2**23, -(2**23), 2**25, -(2**25)]
        for u in [edge + step for step in steps] + [generator.getrandbits(64), 0, ONES]:
            if 0 <= u <= ONES:
                times.append(k)
                us.append(u)
                expected.append(bool((u << 64 | more) < mp.ldexp(p, 128)))
    assert _each(x, times, us, more) == expected
    positive = [i for i, k in enumerate(times) if k < 2**63]
    draws = _each(x, np.array([times[i] for i in positive], dtype=np.uint64), [us[i] for i in positive], more)
    assert draws == [expected[i] for i in positive]


def test_bernoulli_exp_each_decides_close_cases_by_integers(monkeypatch):
    """Within 2^-40 of the edge the double is not trusted, beyond it is: by what reaches the exact path."""
    words = []
    monkeypatch.setattr(samplers, "is_below", lambda u, width, p: words.append((u, width, p(8))) or True)
    edge = scaled(mp.exp(-1), 64)
    offsets = [0, 2**23, -(2**23), 2**24 + 2**12, -(2**24 + 2**12), 2**40]
    _each(1, [1] * len(offsets), [edge + offset for offset in offsets])
    assert [u - edge for u, _, _ in words] == [0, 2**23, -(2**23)]
    assert {width for _, width, _ in words} == {64}
    assert words[0][2] == samplers.exp_neg(Fraction(1), 8)


def test_bernoulli_exp_each_has_no_errors_that_depend_on_the_times():
    with np.errstate(all="raise"):
        assert bernoulli_exp_each(1, np.array([0, 10**15, 2**62])).tolist() == [True, False, False]
        assert bernoulli_exp_each(5e-324, np.array([0, 1, 2**62])).tolist() == [True] * 3
        assert bernoulli_exp_each(1e300, np.array([0, 1, 2**62])).tolist() == [True, False, False]
    assert bernoulli_exp_each(1, np.array([], dtype=np.int64)).shape == (0,)
    for kind in (np.int8, np.uint8, np.int16, np.int32, np.uint64):
        assert bernoulli_exp_each(200, np.array([0, 100], dtype=kind)).tolist() == [True, False]


@pytest.mark.parametrize(
    "times",
    [
        [1, 2],
        5,
        None,
        np.array(3),
        np.array([[1, 2]]),
        np.array([[1], [2]]),
        np.array([1.0, 2.0]),
        np.array([1, np.nan]),
        np.array([True, False]),
        np.array([10**30], dtype=object),
        np.array([1], dtype="m8[s]"),
        np.array(["1"]),
        np.array([3, -1]),
        np.array([-(2**63)]),
    ],
    ids=repr,
)
def test_times_must_be_whole_numbers(times):
    with pytest.raises(InvalidInput, match="times is not a vector of whole numbers of at least 0"):
        bernoulli_exp_each(1, times)


# --- one draw, a vector, a list -------------------------------------------------------------------


@every_sampler
def test_one_draw_is_a_python_integer(name):
    assert type(SAMPLERS[name](3)) is int
    assert type(SAMPLERS[name](Fraction(7, 3))) is int
    assert type(SAMPLERS[name](2**40)) is int


@every_sampler
@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 1000])
@pytest.mark.parametrize("scale", [Fraction(1, 2), 20, 10**9])
def test_a_vector_is_of_64_bit_integers(name, size, scale):
    draws = SAMPLERS[name](scale, size=size)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == (size,)
    assert draws.dtype == np.int64


@every_sampler
@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_list_of_scales_gives_one_draw_each(name, kind):
    draws = SAMPLERS[name](kind([1, 0.001, 10**6]))
    assert draws.shape == (3,)
    assert draws.dtype == np.int64
    assert SAMPLERS[name](kind([])).shape == (0,)
    with pytest.raises(InvalidInput, match=f"both a list for {NAMES.get(name, 'variance')} and a size"):
        SAMPLERS[name](kind([1, 2]), 2)


@every_sampler
def test_a_list_draws_as_one_by_one(name):
    scales = [Fraction(1, 2), Fraction(3), Fraction(10**9), Fraction(2**48)]
    one_by_one, together, few = seeded(9), seeded(9), seeded(9)
    with inject_bits(one_by_one):
        expected = [SAMPLERS[name](scale) for scale in scales]
    with inject_bits(together):
        assert SAMPLERS[name](scales).tolist() == expected
    assert one_by_one.requests == together.requests
    with inject_bits(few):
        assert SAMPLERS[name](Fraction(10**9), size=4).dtype == np.int64
    with inject_bits(seeded(9)):
        singles = [SAMPLERS[name](Fraction(10**9)) for _ in range(32)]
    with inject_bits(seeded(9)):
        assert SAMPLERS[name](Fraction(10**9), size=32).tolist() == singles


@pytest.mark.parametrize(
    ("name", "small", "large"),
    [
        ("geometric", 64, Fraction(6401, 100)),
        ("discrete_laplace", 64, Fraction(6401, 100)),
        ("rounded_gaussian", 64, Fraction(6401, 100)),
        ("discrete_gaussian", 64**2, 64**2 + Fraction(1, 100)),
    ],
)
def test_scales_up_to_64_use_a_table_and_larger_ones_blocks(name, small, large):
    tape = seeded(3)
    with inject_bits(tape):
        SAMPLERS[name](small, size=33)
    assert tape.requests[0] == 66
    assert len(tape.requests) == 2  # cells, second level
    tape = seeded(3)
    with inject_bits(tape):
        SAMPLERS[name](large, size=33)
    assert len(tape.requests) == 5  # cells, second level, signs and L; heights and L between the stairs
    assert tape.requests[0] == 2 * (33 + 1 + 64)


@pytest.mark.parametrize(
    ("name", "scale", "gaussian", "rounded", "signed"),
    [
        ("geometric", 100, False, False, False),
        ("discrete_laplace", 100, False, False, True),
        ("rounded_gaussian", 100, True, True, True),
        ("discrete_gaussian", 100**2, True, False, True),
    ],
)
def test_large_vectors_come_from_the_blocks_of_their_law(name, scale, gaussian, rounded, signed):
    blocks = getattr(samplers, f"_many_{name}")(Fraction(scale)).__self__
    assert (blocks.is_gaussian, blocks.is_rounded, blocks.is_signed) == (
        gaussian,
        rounded,
        signed,
    )
    assert blocks.scale == (100**2 if gaussian else 100)


def test_large_vectors_are_rounded_or_whole_by_their_law():
    """All in block 0, below the stairs. σ = 100 has m = 1: l = ½ rounds to 1, and its floor is 0."""

    def play(sampler, scale, sign, share):
        cells = np.full(98, int(1.5 * share * 2**16), dtype=np.uint16)  # a 1 from the table
        words = np.full(98, 1 << 13 ^ -sign, dtype=np.int16)
        tape = Tape(cells.tobytes(), bytes, words.tobytes(), then=bytes)
        with inject_bits(tape):
            return sampler(scale, size=33).tolist()

    bell, exponential = 1 / 63.2, 1 / 100.5
    assert play(rounded_gaussian, 100, 0, bell) == [1] * 33
    assert play(rounded_gaussian, 100, 1, bell) == [-1] * 33
    assert play(discrete_gaussian, 100**2, 0, bell) == [0] * 33
    assert play(discrete_gaussian, 100**2, 1, bell) == [-1] * 33  # no minus zero
    assert play(discrete_laplace, 100, 0, exponential) == [0] * 33
    assert play(discrete_laplace, 100, 1, exponential) == [-1] * 33
    assert play(geometric, 100, 0, exponential) == play(geometric, 100, 1, exponential) == [0] * 33


@every_sampler
def test_tables_are_cached(name):
    many = getattr(samplers, f"_many_{name}")
    SAMPLERS[name](Fraction(22, 7), size=100)
    before = many.cache_info()
    SAMPLERS[name](Fraction(22, 7), size=100)
    after = many.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
    assert after.maxsize == 64


def test_tables_of_single_discrete_gaussians_are_cached():
    discrete_gaussian(Fraction(22, 7))
    before = samplers._one_from.cache_info()
    discrete_gaussian(Fraction(22, 7))
    assert samplers._one_from.cache_info().hits == before.hits + 1
    assert before.maxsize == 2048


# --- signs ----------------------------------------------------------------------------------------


def test_minus_zero_is_drawn_again():
    """Two-sided laws: a zero with a minus sign is tried again where it would count twice."""
    zero, one = bytes(32), word((1 << 191) + (1 << 255) << 0, 256)
    minus_zero = word(1, 256)
    with playing(zero):
        assert discrete_laplace(1) == 0
    with playing(minus_zero, minus_zero, zero):
        assert discrete_laplace(1) == 0
    with playing(one):
        value = geometric(10)
    assert value > 0
    with playing(one[:-1] + b"\x01"):
        assert discrete_laplace(10) == -value
    with playing(one):
        assert discrete_laplace(10) == value
    with playing(minus_zero):
        assert geometric(1) == 0
    with playing(minus_zero):
        assert rounded_gaussian(1) == 0  # both signs of what rounds to zero are zero


def test_last_bit_is_the_sign_of_a_gaussian():
    for sign in (0, 1):
        with playing(word(3 << 254 | sign, 256)):
            value = rounded_gaussian(100)
        assert (value < 0) == bool(sign)
        with playing(word(3 << 70 | sign, 72)):
            value = discrete_gaussian(100)
        assert (value < 0) == bool(sign)
        with playing(word(3 << 190 | sign, 192)):
            value = discrete_gaussian(10**6)
        assert (value < 0) == bool(sign)


# --- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale", "words"),
    [
        ("geometric", 1, 32),
        ("geometric", 2**48, 32),
        ("discrete_laplace", Fraction(1, 100), 32),
        ("discrete_laplace", 1000, 32),
        ("rounded_gaussian", 1, 32),
        ("rounded_gaussian", 2**48, 32),
        ("discrete_gaussian", 1, 9),
        ("discrete_gaussian", 64**2, 9),
        ("discrete_gaussian", 64**2 + 1, 24),
        ("discrete_gaussian", 2**96, 24),
    ],
)
def test_single_draw_reads_a_fixed_number_of_bits(name, scale, words):
    """Every try reads the same; how many tries there are is independent of what is drawn in the last."""
    for seed in range(300):
        tape = seeded(seed)
        with inject_bits(tape):
            SAMPLERS[name](scale)
        assert set(tape.requests) == {words}


@pytest.mark.parametrize("sampler", [geometric, rounded_gaussian])
def test_single_draw_makes_a_fixed_number_of_calls(sampler, monkeypatch):
    """The same steps in the middle and in the tail: one pick, one coin, one division."""
    calls = []
    for name in ("flip_by_series", "accept_exactly", "_whole_part"):
        original = getattr(large_scales, name)

        def noted(*args, name=name, original=original, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(large_scales, name, noted)
    for u in (0, 1 << 40, 1 << 63, ONES - 2**40, ONES - 2**16):
        calls.clear()
        with playing(word(u << 192 | 1 << 190, 256)):
            sampler(1000)
        assert calls == ["flip_by_series", "_whole_part"]


# --- the ends -------------------------------------------------------------------------------------


def largest_of(name):
    return 2**96 if name == "discrete_gaussian" else 2**48


@every_sampler
def test_scale_beyond_the_largest_is_refused(name):
    assert MAX_SCALE == 2**48
    sampler, largest, label = SAMPLERS[name], largest_of(name), NAMES.get(name, "variance")
    for scale in (largest, Fraction(largest), Decimal(largest), Fraction(3 * largest - 1, 3)):
        assert sampler(scale, size=0).shape == (0,)
    for scale in (largest + 1, largest + Fraction(1, 10**9), float(largest) * 1.001, 10**60):
        for call in (
            lambda scale=scale: sampler(scale),
            lambda scale=scale: sampler(scale, size=0),
            lambda scale=scale: sampler([1, scale]),
        ):
            with pytest.raises(
                Unsupported, match=rf"^{label} is above 2\^{largest.bit_length() - 1}: "
            ) as caught:
                call()
            assert "larger units" in caught.value.fix


@every_sampler
def test_largest_scales_are_sampled(name):
    sampler, largest = SAMPLERS[name], largest_of(name)
    for scale in (largest, Fraction(3 * largest - 1, 3)):
        assert abs(sampler(scale)) < 2**55
        assert np.abs(sampler(scale, size=40)).max() < 2**55


@every_sampler
@pytest.mark.parametrize("scale", [Fraction(1, 10**9), Fraction(1, 2**8000), 1e-300, 5e-324])
def test_the_smallest_scales_give_zero(name, scale):
    sampler = SAMPLERS[name]
    assert sampler(scale) == 0
    assert not sampler(scale, size=100).any()
    assert not sampler([scale] * 3).any()


@every_sampler
def test_overlong_fraction_is_refused(name):
    with pytest.raises(InvalidInput, match="more than 8192 bits"):
        SAMPLERS[name](Fraction(2**10_000 + 1, 2**10_000))
    # A long one that is allowed is sampled all the same.
    assert type(SAMPLERS[name](Fraction(2**4000 + 1, 2**3990))) is int
    for length in (3996, 3985):  # a table for all, blocks for all
        assert SAMPLERS[name](Fraction(2**4000 + 1, 2**length), size=40).shape == (40,)


def test_vectors_saturate_and_single_draws_do_not(monkeypatch):
    monkeypatch.setattr(large_scales, "floor_exponential", lambda scale: (10**30, 1))
    monkeypatch.setattr(large_scales, "rounded_normal", lambda scale: (10**30, 1))
    monkeypatch.setattr(samplers, "_one_from", lambda variance: lambda: (10**30, 1))
    assert geometric(3) == 10**30
    assert discrete_laplace(3) == rounded_gaussian(3) == discrete_gaussian(3) == -(10**30)
    assert geometric(3, size=2).tolist() == [MAX_DRAW, MAX_DRAW]
    for sampler in (discrete_laplace, rounded_gaussian, discrete_gaussian):
        assert sampler(3, size=2).tolist() == [-MAX_DRAW, -MAX_DRAW]
        assert sampler([3, 4]).tolist() == [-MAX_DRAW, -MAX_DRAW]


@every_sampler
def test_table_vectors_saturate(name, monkeypatch):
    getattr(samplers, f"_many_{name}").cache_clear()
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: 10**30)
    cells = np.full(40, 0x7FFF if name != "geometric" else 0xFFFF, dtype=np.uint16)
    with playing(cells.tobytes(), then=0xFF):
        assert SAMPLERS[name](3, size=40).tolist() == [MAX_DRAW] * 40
    getattr(samplers, f"_many_{name}").cache_clear()


# --- bad input ------------------------------------------------------------------------------------

NOT_A_SCALE = [
    0,
    0.0,
    -1,
    -0.5,
    Fraction(0),
    Fraction(-1, 3),
    float("nan"),
    float("inf"),
    float("-inf"),
    Decimal("NaN"),
    np.float64("nan"),
    True,
    False,
    np.True_,
    "1",
    b"1",
    None,
    1j,
    np.array(1.0),
    np.ones((2, 2)),
    {1},
    object(),
    Fraction(1, 2**9000),
]
NOT_A_SIZE = [-1, 1.5, Fraction(1, 2), "3", True, float("nan"), float("inf"), [3], (2, 3), np.array(3), 1j]


def _ids(value):
    return f"{type(value).__name__} {value!r:.20}"


@every_sampler
@pytest.mark.parametrize("scale", NOT_A_SCALE, ids=_ids)
def test_invalid_scales_are_refused(name, scale):
    label = NAMES.get(name, "variance")
    for call in (
        lambda: SAMPLERS[name](scale),
        lambda: SAMPLERS[name](scale, size=5),
        lambda: SAMPLERS[name](scale, size=50),
        lambda: SAMPLERS[name]([1, scale]),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.what.startswith(label)


@pytest.mark.parametrize("size", NOT_A_SIZE, ids=_ids)
def test_invalid_sizes_are_refused(size):
    for call in (
        *(lambda sampler=sampler: sampler(3, size=size) for sampler in SAMPLERS.values()),
        lambda: uniform(3, size=size),
        lambda: bernoulli(0.5, size=size),
        lambda: bernoulli_exp(0.5, size=size),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.what.startswith("size")


@pytest.mark.parametrize("size", [2**32 + 1, 2**64, 10**30, 1e300])
def test_a_size_beyond_memory_is_refused(size):
    for call in (
        *(lambda sampler=sampler: sampler(3, size=size) for sampler in SAMPLERS.values()),
        lambda: uniform(3, size=size),
        lambda: bernoulli(0.5, size=size),
        lambda: bernoulli_exp(0.5, size=size),
    ):
        with pytest.raises(Unsupported, match=r"^size is above 2\^32: ") as caught:
            call()
        assert caught.value.fix == "draw in several parts"


def test_sizes_up_to_the_largest_are_counted():
    assert samplers._check_size(2**32) == 2**32
    assert samplers._check_size(3.0) == 3
    assert samplers._check_size(np.int64(7)) == 7
    assert samplers._check_size(0) == 0


@pytest.mark.parametrize("bound", [0, -1, 1.5, True, None, "6", float("nan"), np.array(6), 2**9000], ids=_ids)
def test_invalid_bounds_are_refused(bound):
    for size in (None, 3):
        with pytest.raises(InvalidInput) as caught:
            uniform(bound, size)
        assert caught.value.what.startswith("bound")


@pytest.mark.parametrize("x", [-1, float("nan"), float("inf"), True, None, "1", np.array(1.0), [1]], ids=_ids)
def test_invalid_exponents_and_probabilities_are_refused(x):
    for call in (
        lambda: bernoulli_exp(x),
        lambda: bernoulli_exp(x, size=3),
        lambda: bernoulli_exp_each(x, np.array([1])),
        lambda: bernoulli(x),
        lambda: bernoulli(x, size=3),
    ):
        with pytest.raises(HubbubError):
            call()


def test_refused_calls_draw_no_bits():
    with playing():
        for call in (
            lambda: geometric(0),
            lambda: geometric([1, 0]),
            lambda: discrete_laplace(3, size=-1),
            lambda: uniform(6, size=-1),
            lambda: uniform(2**70, size=1),
            lambda: bernoulli(2),
            lambda: bernoulli(0.5, size=-1),
            lambda: bernoulli_exp_each(1, np.array([-1])),
        ):
            with pytest.raises(HubbubError):
                call()


# --- goodness of fit, beside the proofs -----------------------------------------------------------
#
# Each test rejects an exact sampler with probability below 1e-12, and there are fewer than 60 of them: a
# false alarm comes less than once in 10^10 runs. The mutants' statistics lie 8 and more standard
# deviations beyond what is rejected, so they are missed less than once in 10^14 runs.

ALARM = 1e-12


def cumulative(name, scale):
    """k → Pr[X < k]."""
    if name == "discrete_gaussian":
        # From σ = 64 on the two Gaussians differ by less than 1e-5, and a chi-square cannot tell.
        size = (
            bits.discrete_gaussian(scale) if scale <= 64**2 else bits.rounded_gaussian(mp.sqrt(real(scale)))
        )
    else:
        size = getattr(bits, name)(scale)
    if name == "geometric":
        return lambda k: float(size(k)) if k > 0 else 0.0
    return lambda k: float((1 + size(k)) / 2 if k > 0 else (1 - size(1 - k)) / 2)


def p_value(draws, name, scale):
    """Pearson's chi-square over about 24 bins that expect 500 draws or more, its tail by gamma."""
    below = cumulative(name, scale)
    spread = float(scale) ** 0.5 if name == "discrete_gaussian" else float(scale)
    points = np.concatenate([np.linspace(-3, 3, 25), [-5, -4, 4, 5]])
    edges = sorted({round(spread * point) for point in points})
    chances = np.diff([0.0, *(below(edge) for edge in edges), 1.0])
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    bins = [[0, 0.0]]
    for seen, chance in zip(observed, chances, strict=True):
        if bins[-1][1] >= 500:
            bins.append([0, 0.0])
        bins[-1][0] += seen
        bins[-1][1] += chance * draws.size
    if bins[-1][1] < 500:
        seen, expected = bins.pop()
        bins[-1][0] += seen
        bins[-1][1] += expected
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in bins)
    assert len(bins) > 2
    return mp.gammainc(mp.mpf(len(bins) - 1) / 2, statistic / mp.mpf(2), regularized=True)


FITS = [
    (name, Fraction(scale) ** (2 if name == "discrete_gaussian" else 1))
    for name in SAMPLERS
    for scale in (Fraction(7, 3), Fraction(20), Fraction(1001, 10), Fraction(2**40))
]


@pytest.mark.parametrize(("name", "scale"), FITS)
def test_vectors_fit_their_law(name, scale):
    assert p_value(SAMPLERS[name](scale, size=300_000), name, scale) > ALARM


@pytest.mark.parametrize(("name", "scale"), FITS)
def test_a_scale_5_percent_too_small_does_not_fit(name, scale):
    mutant = scale * Fraction(95, 100) ** (2 if name == "discrete_gaussian" else 1)
    assert p_value(SAMPLERS[name](mutant, size=300_000), name, scale) < ALARM


@pytest.mark.parametrize(("name", "scale"), FITS[1::2])
def test_single_draws_fit_their_law(name, scale):
    draws = np.array([SAMPLERS[name](scale) for _ in range(20_000)])
    assert p_value(draws, name, scale) > ALARM


@pytest.mark.parametrize(("name", "scale"), FITS[::2])
def test_short_vectors_and_lists_fit_their_law(name, scale):
    short = np.concatenate([SAMPLERS[name](scale, size=32) for _ in range(300)])
    assert p_value(np.append(short, SAMPLERS[name]([scale] * 10_000)), name, scale) > ALARM


def test_coins_and_dice_fit_their_law():
    n = 300_000
    dice = np.bincount(uniform(6, size=n), minlength=6)
    statistic = ((dice - n / 6) ** 2 / (n / 6)).sum()
    assert mp.gammainc(mp.mpf(5) / 2, statistic / mp.mpf(2), regularized=True) > ALARM
    times = np.arange(n) % 5
    for heads, p in (
        (bernoulli(Fraction(1, 3), size=n), 1 / 3),
        (bernoulli_exp(Fraction(1, 2), size=n), np.exp(-0.5)),
        (bernoulli_exp_each(Fraction(1, 2), times)[times == 3], np.exp(-1.5)),
    ):
        statistic = (heads.sum() - p * heads.size) ** 2 / (p * (1 - p) * heads.size)
        assert mp.gammainc(mp.mpf(1) / 2, statistic / mp.mpf(2), regularized=True) > ALARM
    singles = sum(bernoulli(Fraction(1, 3)) for _ in range(9_000))
    assert abs(singles - 3000) < 8 * 45  # eight standard deviations
