import random
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubbub.noise import large_scales
from hubbub.noise.large_scales import (
    _bend,
    _fall,
    _whole_part,
    accept_exactly,
    flip_by_series,
    floor_exponential,
    rounded_normal,
)
from internals import inject_bits
from noise import bits
from noise.bits import ONES, Tape, mp, playing, real, scaled, thresholds, value_at, word

SCALES = [Fraction(1, 100), Fraction(7, 3), Fraction(64), Fraction(10**9 + 1, 7), Fraction(2**48)]
KINDS = {
    # sampler, law of the cell, cells to a unit, half, exponent y of the coin for cell h and part ℓ
    "exponential": (floor_exponential, bits.geometric(16), 16, 0, lambda h, l: l / 16),
    "normal": (rounded_normal, bits.half_gaussian(64**2), 64, 1, lambda h, l: (h * l + l * l / 2) / 64**2),
}
FOUND = {name: thresholds(kind[1]) for name, kind in KINDS.items()}


def layout(u, digits, chance, low):
    """The 256 bits of one try: 64 of U, 120 digits of ℓ, 64 of the coin, 8 of which the last is the sign."""
    return word(((u << 120 | digits) << 64 | chance) << 8 | low, 256)


# --- the coin -------------------------------------------------------------------------------------


@given(st.integers(0, (1 << 86) - 1), st.integers(0, 1 << 40), st.integers(0, ONES))
@example((1 << 86) - 1, 0, 0)
@example(0, 0, ONES)
@example(0, 1 << 16, ONES - 1)
def test_decided_coins_are_correct(x, slack, anywhere):
    most, least = mp.exp(-mp.ldexp(x, -88)), mp.exp(-mp.ldexp(x + slack, -88))
    near = [scaled(edge, 64) + step for edge in (most, least) for step in range(-3, 4)]
    for chance in [anywhere, *near]:
        if 0 <= chance <= ONES:
            answer = flip_by_series(x, slack, chance)
            if answer is True:
                assert mp.ldexp(chance + 1, -64) <= least
            elif answer is False:
                assert mp.ldexp(chance, -64) >= most
            else:
                # Hardly more is left open than must be: 2^-64 for the bits of U, the slack, and 2^-62.
                assert mp.ldexp(chance + 1, -64) > least - mp.ldexp(1, -62)
                assert mp.ldexp(chance, -64) < most + mp.ldexp(1, -62)


@given(st.integers(1 << 86, 1 << 200), st.integers(0, ONES))
@example(1 << 86, 0)
@example(1 << 86, ONES)
def test_coin_is_undecided_beyond_a_quarter(x, chance):
    assert flip_by_series(x, 1, chance) is None


def test_coin_is_decided_up_to_a_quarter():
    assert flip_by_series((1 << 86) - 1, 1, 0) is True
    assert flip_by_series((1 << 86) - 1, 1, ONES) is False
    assert flip_by_series(0, 0, 0) is True
    assert flip_by_series(0, 0, ONES) is None  # U is in the last 2^-64 before 1 = e^0


def test_slack_keeps_the_coin_open_downwards_only():
    x = 1 << 80
    edge = scaled(mp.exp(-mp.ldexp(x, -88)), 64)
    assert flip_by_series(x, 0, edge - 1) is True
    assert flip_by_series(x, 1 << 40, edge - 1) is None
    assert flip_by_series(x, 1 << 40, edge - (1 << 17)) is True
    assert flip_by_series(x, 1 << 40, edge + 1) is False


def test_undecided_range_of_the_coin_is_exact():
    # At y = 0 the sum is 1 exactly; 2^19 units of 2^-88 are left to what the series drops.
    assert flip_by_series(0, 2**24 - 2**19, ONES - 1) is True
    assert flip_by_series(0, 2**24 - 2**19 + 1, ONES - 1) is None
    x = 2**24 + 2**19 + 1  # the sum is 2^88 − x + 1
    assert flip_by_series(x, 0, ONES) is False
    assert flip_by_series(x - 1, 0, ONES) is None


# --- the coin by exact integers -------------------------------------------------------------------


def test_accept_reads_digits_until_decided():
    digits = (1 << 119) + 12345
    edge = mp.exp(-(mp.ldexp(digits, -120) / 16))
    chance = scaled(edge, 64)
    with playing():
        assert accept_exactly(_fall, digits, 120, chance - 1, 64) == (True, digits, 120)
        assert accept_exactly(_fall, digits, 120, chance + 1, 64) == (False, digits, 120)
    more = scaled(edge, 128) & ONES
    with playing(word(7), word(more - 2**62)):
        assert accept_exactly(_fall, digits, 120, chance, 64) == (True, digits << 64 | 7, 184)
    with playing(word(7), word(more + 2**62)):
        assert accept_exactly(_fall, digits, 120, chance, 64) == (False, digits << 64 | 7, 184)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_accept_finishes_a_tie_at_any_depth(kind, depth):
    exponent = _fall if kind == "exponential" else partial(_bend, 77)
    generator = random.Random(depth)
    digits = generator.getrandbits(120)
    tail = [generator.getrandbits(64) for _ in range(depth)]
    full = digits
    for part in tail:
        full = full << 64 | part
    y = KINDS[kind][4](77, mp.ldexp(full, -120 - 64 * depth))
    edge = scaled(mp.exp(-y), 64 + 64 * depth)
    parts = [edge >> 64 * k & ONES for k in range(depth, -1, -1)]
    for step, answer in ((-(2**60), True), (2**60, False)):
        last = (parts[-1] + step) % 2**64
        assert abs(last - parts[-1]) == 2**60, "choose another seed"
        play = [word(part) for pair in zip(tail, [*parts[1:-1], last], strict=True) for part in pair]
        with playing(*play):
            assert accept_exactly(exponent, digits, 120, parts[0], 64) == (answer, full, 120 + 64 * depth)


@given(st.fractions(0, 1, max_denominator=2**20), st.integers(0, 5000))
def test_exponents_are_exact(part, cell):
    assert _fall(part) == part / 16
    assert _bend(cell, part) == ((cell + part) ** 2 - cell**2) / (2 * 64**2)


# --- digits to integers ---------------------------------------------------------------------------


@given(
    st.fractions(Fraction(1, 10**6), 2**48, max_denominator=10**6),
    st.sampled_from([(16, 0), (16, 1), (64, 0), (64, 1)]),
    st.integers(0, 3000),
    st.integers(0, (1 << 120) - 1),
    st.integers(0, ONES),
)
@example(Fraction(16), (16, 0), 0, (1 << 120) - 1, 0)
@example(Fraction(16), (16, 1), 0, (1 << 119) - 1, 0)
@example(Fraction(16), (16, 1), 5, 1 << 119, 0)
@example(Fraction(48), (16, 0), 0, (1 << 120) // 3, 0)
@example(Fraction(48), (16, 0), 0, (1 << 120) // 3, ONES)
@example(Fraction(32), (64, 1), 0, (1 << 120) - 1, ONES)
def test_whole_part_is_exact(scale, kind, cell, digits, more):
    cells, half = kind
    tape = Tape(word(more), then=0x5A)
    with inject_bits(tape):
        value = _whole_part(scale, cells, cell, digits, 120, half=half)
    # Exact for every continuation of the digits that were read.
    read = 120 + 64 * len(tape.requests)
    known = digits
    for k in range(len(tape.requests)):
        known = known << 64 | (more if k == 0 else 0x5A5A5A5A5A5A5A5A)
    start = scale * (cell + Fraction(known, 1 << read)) / cells + Fraction(half, 2)
    end = start + scale / cells / (1 << read)
    assert value <= start
    assert end <= value + 1
    if tape.requests:  # and it asked only because it had to
        before = scale * (cell + Fraction(digits, 1 << 120)) / cells + Fraction(half, 2)
        assert before // 1 != (before + scale / cells / (1 << 120)) // 1


def test_more_digits_are_read_if_they_matter():
    third = (1 << 120) // 3  # 3·ℓ is 1 or not: it depends on what follows
    with playing(word(0)):
        assert _whole_part(Fraction(48), 16, 0, third, 120, half=0) == 0
    with playing(word(ONES)):
        assert _whole_part(Fraction(48), 16, 0, third, 120, half=0) == 1
    following = ((1 << 184) // 3) & ONES
    with playing(word(following), word(following), word(ONES)):
        assert _whole_part(Fraction(48), 16, 0, third, 120, half=0) == 1
    with playing(word(following), word(following), word(0)):
        assert _whole_part(Fraction(48), 16, 0, third, 120, half=0) == 0


def test_digits_are_read_to_the_end_of_the_known_ones():
    two_thirds = (1 << 121) // 3  # 3·ℓ is 2 or not, and where it turns lies in the last half of the interval
    with playing(word(0)):
        assert _whole_part(Fraction(48), 16, 0, two_thirds, 120, half=0) == 1
    with playing(word(ONES)):
        assert _whole_part(Fraction(48), 16, 0, two_thirds, 120, half=0) == 2


def test_irrelevant_digits_are_not_read():
    with playing():
        assert _whole_part(Fraction(16), 16, 3, (1 << 120) - 1, 120, half=0) == 3
        assert _whole_part(Fraction(16), 16, 3, (1 << 119) - 1, 120, half=1) == 3
        assert _whole_part(Fraction(16), 16, 3, 1 << 119, 120, half=1) == 4
        assert _whole_part(Fraction(16), 16, 2**70, 0, 120, half=0) == 2**70


# --- one draw: the map from bits to values, against mpmath ----------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_follow_from_bits(kind, scale):
    """Every accepted try is ⌊scale·(cell + ℓ)/cells + half/2⌋, and those with U < e^−y are accepted."""
    sampler, _, cells, half, exponent = KINDS[kind]
    generator = random.Random(str(scale) + kind)
    rejected = 0
    for _ in range(150):
        u, digits, chance, low = (generator.getrandbits(n) for n in (64, 120, 64, 8))
        cell = value_at(FOUND[kind], u)
        part = mp.ldexp(digits, -120)
        edge = scaled(mp.exp(-exponent(cell, part)), 64)
        for coin_bits in (chance, edge - 2, edge + 2, ONES - chance // 64):
            heads = coin_bits < edge
            expected = int(mp.floor(real(scale) * (cell + part) / cells + mp.mpf(half) / 2))
            play = [layout(u, digits, coin_bits, low)]
            if not heads:
                rejected += 1
                play.append(layout(1 << 62, 1 << 118, 0, 1))
                cell_2, part_2 = value_at(FOUND[kind], 1 << 62), mp.mpf(1) / 4
                expected = int(mp.floor(real(scale) * (cell_2 + part_2) / cells + mp.mpf(half) / 2))
            with playing(*play) as tape:
                assert sampler(scale) == (expected, 1 if not heads else low & 1)
            assert tape.requests == [32] * len(play)  # a try always reads 256 bits
    assert rejected > 150


def test_all_120_digits_count():
    digits = random.Random(0).getrandbits(120) | 1
    cell = value_at(FOUND["exponential"], 1 << 63)
    with playing(layout(1 << 63, digits, 0, 0)):
        assert floor_exponential(Fraction(2**124)) == ((cell << 120) + digits, 0)
    cell = value_at(FOUND["normal"], 1 << 63)
    with playing(layout(1 << 63, digits, 0, 0)):
        assert rounded_normal(Fraction(2**125)) == ((cell << 119) + (digits + 1) // 2, 0)


def test_coin_allows_for_unread_digits():
    """Digits 61 to 120 are ones: from 60 digits the coin looks as if it fell heads, and it does not."""
    top = 0x9A3B5C7D1E2F480
    digits = (top + 1 << 60) - 1
    apparent = mp.ldexp(mp.exp(-mp.ldexp(top, -60) / 16), 64)
    true = mp.ldexp(mp.exp(-mp.ldexp(digits + 1, -120) / 16), 64)
    chance = int(mp.floor(apparent - mp.mpf(1) / 16)) - 1
    assert true < chance + 1, "choose other digits"
    # U is 2^-64·(chance + 1), but for the last bit that is drawn: above e^−y.
    with (
        pytest.raises(AssertionError, match="32 bytes more"),
        playing(layout(0, digits, chance, 0), word(0), word(ONES)),
    ):
        floor_exponential(Fraction(1))


@pytest.mark.parametrize("kind", KINDS)
def test_acceptance_probability_matches_bisection(kind):
    """For several cells and parts: bounds on the chance that a try is accepted, 2^-60 apart."""
    sampler, _, _, _, exponent = KINDS[kind]
    refused = AssertionError
    for u, digits in (
        (0, 1 << 119),
        (1 << 63, (1 << 120) - 1),
        (ONES - 2**12, 3 << 118),
        (ONES - 2**20, 5 << 117),
    ):
        cell = value_at(FOUND[kind], u)
        least, most = 0, ONES
        while least < most:
            middle = (least + most) // 2
            try:
                # A try that is rejected asks for another, and there is none.
                with inject_bits(Tape(layout(u, digits, middle, 0), lambda _: word(0), lambda _: word(0))):
                    sampler(Fraction(1))
                least = middle + 1
            except refused:
                most = middle
        edge = mp.exp(-exponent(cell, mp.ldexp(digits, -120)))
        assert abs(mp.ldexp(least, -64) - edge) < mp.ldexp(1, -60)


@pytest.mark.parametrize("kind", KINDS)
def test_undecided_coins_are_decided_by_integers(kind):
    """A tie of 64 bits: the digits and the coin are read on, and the digits that were read are used."""
    sampler, _, cells, half, exponent = KINDS[kind]
    generator = random.Random(kind)
    u, digits, more = 1 << 63, generator.getrandbits(120), generator.getrandbits(64)
    cell = value_at(FOUND[kind], u)
    part = mp.ldexp(digits << 64 | more, -184)
    edge = scaled(mp.exp(-exponent(cell, part)), 128)
    scale = Fraction(2**180)  # so large that all 184 digits show
    expected = int(mp.floor(real(scale) * (cell + part) / cells + mp.mpf(half) / 2))
    follow = [word(generator.getrandbits(64)) for _ in range(2)]
    with inject_bits(
        Tape(layout(u, digits, edge >> 64, 0), word(more), word((edge & ONES) - 2**40), *follow)
    ):
        value, sign = sampler(scale)
    assert sign == 0
    assert value >> 60 == expected >> 60
    with (
        pytest.raises(AssertionError, match="32 bytes more"),  # rejected: it asks for a new try
        playing(layout(u, digits, edge >> 64, 0), word(more), word((edge & ONES) + 2**40)),
    ):
        sampler(scale)


def test_all_zeros_and_all_ones_terminate():
    with playing(layout(0, 0, 0, 0)):
        assert floor_exponential(Fraction(2**48)) == (0, 0)
    with playing(layout(0, 0, 0, 1)):
        assert rounded_normal(Fraction(1, 2)) == (0, 1)
    # ℓ = 0 and U all ones: U < e^0 cannot be seen yet; then it can.
    with playing(layout(0, 0, ONES, 0), word(0), word(ONES), word(0), word(0)):
        assert floor_exponential(Fraction(1)) == (0, 0)
    # Everything ones: far out, and rejected there; the next try is taken.
    with playing(layout(ONES, (1 << 120) - 1, ONES, 1), word(0), layout(0, 0, 0, 0)):
        assert floor_exponential(Fraction(1)) == (0, 0)
    with playing(layout(ONES, (1 << 120) - 1, ONES, 1), word(0), layout(0, 0, 0, 0)):
        assert rounded_normal(Fraction(1)) == (0, 0)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_far_tail_is_exact(kind, depth):
    """64·depth ones and then chosen bits: the integer that mpmath finds there."""
    sampler, law, cells, half, _ = KINDS[kind]
    more = 0x123456789ABCDEF0
    u = ((1 << 64 * depth) - 1) << 64 | more
    first, rest = layout(ONES, 3 << 118, 0, 1), [word(ONES)] * (depth - 1)
    with playing(first, *rest, word(more)):
        value, sign = sampler(Fraction(10**6))
    assert sign == 1
    precision = 64 * (depth + 1)
    cell = value * cells // 10**6
    assert mp.ldexp(law(cell), precision) <= u < mp.ldexp(law(cell + 1), precision)
    assert value == int(mp.floor(10**6 * (cell + mp.mpf(3) / 4) / cells + mp.mpf(half) / 2))


@pytest.mark.parametrize("cell", [2046, 2047, 10**4, 10**6, 10**12])
def test_coin_is_exact_in_the_far_tail(monkeypatch, cell):
    """There the part's last known digit weighs more than the coin's bits: it must be left open."""

    class Far:
        def value_at(self, u):
            return cell

    monkeypatch.setattr(large_scales, "_normal", Far)
    top = (1 << 120) // (64 * cell)  # y ≈ 1/64²/64, well below a quarter
    for digits in (top >> 60 << 60, (top >> 60 << 60) + (1 << 60) - 1):  # the first and last of one prefix
        edge = scaled(mp.exp(-KINDS["normal"][4](cell, mp.ldexp(digits, -120))), 64)
        expected = int(mp.floor((cell + mp.ldexp(digits, -120)) / 64 + mp.mpf(1) / 2))
        with playing(layout(0, digits, edge - 1, 0)):
            assert rounded_normal(Fraction(1)) == (expected, 0)
        with pytest.raises(AssertionError, match="32 bytes more"), playing(layout(0, digits, edge + 1, 0)):
            rounded_normal(Fraction(1))


def test_values_beyond_the_series_are_decided_by_integers(monkeypatch):
    class Far:
        def value_at(self, u):
            return 5000  # y = 5000·ℓ/64²: above one

    monkeypatch.setattr(large_scales, "_normal", Far)
    digits = (1 << 120) - (1 << 100)
    edge = scaled(mp.exp(-KINDS["normal"][4](5000, mp.ldexp(digits, -120))), 64)
    with playing(layout(0, digits, edge - 1, 0)):
        assert rounded_normal(Fraction(1))[0] == round(5001 / 64)
    with pytest.raises(AssertionError, match="32 bytes more"), playing(layout(0, digits, edge + 1, 0)):
        rounded_normal(Fraction(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_is_made_once(kind):
    make = large_scales._exponential if kind == "exponential" else large_scales._normal
    assert make() is make()
