import random
from bisect import bisect_left
from fractions import Fraction
from itertools import count, product

import numpy as np
import pytest

from hubbub.noise import large_scales
from hubbub.noise.inversion import MAX_DRAW, Table, lanes_needed
from hubbub.noise.large_scales import Blocks
from internals import inject_bits
from noise import bits
from noise.bits import ONES, mp, playing, real, scaled, seeded, thresholds, value_at, word

SCALES = [Fraction(6401, 100), Fraction(1279, 10), Fraction(2**20 + 1, 3), Fraction(2**48)]
VARIANCES = [Fraction(64**2) + Fraction(1, 7), Fraction(127**2), Fraction(10**12, 7), Fraction(2**96)]
KINDS = {
    "geometric": (lambda b: Blocks.geometric(b, is_signed=False), SCALES),
    "laplace": (lambda b: Blocks.geometric(b, is_signed=True), SCALES),
    "gaussian": (lambda v: Blocks.gaussian(v, is_rounded=False), VARIANCES),
    "rounded": (lambda v: Blocks.gaussian(v, is_rounded=True), VARIANCES),
}
CASES = [
    pytest.param(kind, scale, id=f"{kind}-{float(scale):.6g}")
    for kind, (_, scales) in KINDS.items()
    for scale in scales
]
# Blocks of more than one integer: in the others the curve is the stairs.
WIDE = [case for case in CASES if case.values[1] not in SCALES[:2]]
ONE_BY_ONE = [("laplace", scale) for scale in SCALES[2:]] + [("gaussian", variance) for variance in VARIANCES]
SAME = 0x4040404040404040
"""The height's and the word's bits where 0x40 follows for ever."""
_built = {}


def built(kind, scale):
    """A sampler, and the thresholds of the laws that its blocks and its stairs must follow."""
    if (kind, scale) not in _built:
        sampler = KINDS[kind][0](scale)
        size = scale / (4 if sampler.is_gaussian else 2) ** sampler.shift
        law = bits.half_gaussian(size) if sampler.is_gaussian else bits.geometric(size)
        stairs = bits.gaussian_stairs(size) if sampler.is_gaussian else law
        _built[kind, scale] = sampler, thresholds(law), thresholds(stairs)
    return _built[kind, scale]


# What bits stand for, by definition.


def weight(sampler, x):
    """Of a value x, in mpmath."""
    return mp.exp(
        -(x**2) / (2 * real(sampler.scale)) if sampler.is_gaussian else -abs(x) / real(sampler.scale)
    )


def stair(sampler, block):
    return weight(sampler, mp.ldexp(block, sampler.shift))


def real_at(sampler, block, signed_word, width=64):
    """(h + l/2^m)·2^m: after its sign a word has the digits of l/2^m, complemented if it is negative."""
    digits = -1 - signed_word if signed_word < 0 else signed_word
    return mp.ldexp(block + mp.ldexp(digits, 1 - width), sampler.shift)


def value_of(sampler, block, signed_word, width=64):
    """The integer: rounded, or rounded down and, if negative, one less."""
    size = real_at(sampler, block, signed_word, width)
    if sampler.is_rounded:
        return int(mp.floor(size + mp.mpf(1) / 2)) * (-1 if signed_word < 0 else 1)
    return -1 - int(mp.floor(size)) if signed_word < 0 else int(mp.floor(size))


def curve_at(sampler, block, signed_word):
    """The weight that a height is compared with: the integer's own, or the real number's."""
    if sampler.is_rounded:
        return weight(sampler, real_at(sampler, block, signed_word))
    return weight(sampler, mp.mpf(value_of(sampler, block, signed_word)))


def place_at(sampler, stairs, u, signed_word, more=0):
    """The value that a height 1 − U and a word stand for, and whether it is under the curve."""
    block = value_at(stairs, u)
    is_under = (ONES - u << 64 | more) < mp.ldexp(curve_at(sampler, block, signed_word), 128)
    return value_of(sampler, block, signed_word), is_under


def some_word(sampler, generator, width=64):
    draws = generator.getrandbits(width) - (1 << width - 1)
    return draws if sampler.is_signed else draws & (1 << width - 1) - 1


def width_of(sampler):
    """The narrowest of 16, 32 and 64 bits that hold a sign, l and (rounded) a half."""
    needed = 1 + sampler.shift + sampler.is_rounded
    return min(width for width in (16, 32, 64) if width >= needed)


# The shipped code, fed with chosen bits.


def between(sampler, us, words, *follow, then=None):
    """What `_draw_between_stairs` gives for heights 1 − U and these words."""
    bytes_of_us = np.array(us, dtype=np.uint64).tobytes()
    with playing(bytes_of_us, np.array(words, dtype=np.int64).tobytes(), *follow, then=then):
        values, is_under = sampler._draw_between_stairs(len(us))
    return list(zip(values.tolist(), is_under.tolist(), strict=True))


def play_tries(sampler, us, words, *, then):
    """What `_propose` gives where the table's uniforms begin with `us`, and with these words for l."""
    us = np.array(us, dtype=np.uint64)
    cells = (us >> np.uint64(48)).astype(np.uint16)
    waiting = np.flatnonzero(sampler.table._get_guide()[cells] == np.iinfo(np.int16).min)
    lanes = sampler.table._lanes(us.size)

    def refine(count, start):
        part = waiting[start : start + lanes]
        fresh = np.zeros(count // 8, dtype=np.uint64)
        fresh[: part.size] = us[part] << np.uint64(16)
        return fresh.tobytes()

    second = [
        lambda count, start=start: refine(count, start) for start in range(0, max(1, waiting.size), lanes)
    ]
    raw = np.array(words, dtype=f"i{width_of(sampler) // 8}").tobytes()
    with playing(cells.tobytes(), *second, raw, then=then):
        values, rejected = sampler._propose(us.size)
    return values.tolist(), rejected.tolist()


def in_the_middle(result, j):
    """The first 64 bits of a U that gives j."""
    return ((result[j - 1] if j else 0) + result[j]) // 2


def is_tied(result, u):
    """Whether 64 bits may leave open on which side of a threshold U is."""
    return bisect_left(result, u - 3) < bisect_left(result, u + 4)


def reach(result):
    """The values with thresholds that 64 bits tell well apart."""
    return next(j for j in range(1, len(result)) if result[j] - result[j - 1] < 64)


# --- blocks ---------------------------------------------------------------------------------------


@pytest.mark.sweep(5)
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_blocks_have_the_stated_length(kind, scale):
    sampler, result, stairs = built(kind, scale)
    if sampler.is_gaussian:
        assert 32**2 <= scale / 4**sampler.shift < 64**2
        assert sampler.shift >= 1
    else:
        assert 64 <= scale / 2**sampler.shift < 128
        assert sampler.shift >= 0
    assert (sampler.is_gaussian, sampler.is_rounded) == (
        kind in ("gaussian", "rounded"),
        kind == "rounded",
    )
    assert sampler.is_signed == (kind != "geometric")
    # The tables' own laws, at a few places.
    for j in (1, 2, 50, 150):
        assert [sampler.table.value_at(result[j - 1] + step) for step in (-3, 3)] == [j - 1, j]
        assert [sampler._stairs.value_at(stairs[j - 1] + step) for step in (-3, 3)] == [j - 1, j]
    assert abs(sampler.table.chance_of_zero - result[0] / 2**64) < 1e-15
    assert 1 / 130 < sampler.table.chance_of_zero < 1 / 38


def test_block_boundaries_are_exact():
    geometric = [Fraction(64), Fraction(12799, 100), Fraction(128), Fraction(2**48)]
    assert [Blocks.geometric(scale, is_signed=True).shift for scale in geometric] == [0, 0, 1, 42]
    bell = [Fraction(64**2), Fraction(128**2) - Fraction(1, 9), Fraction(128**2), Fraction(2**96)]
    assert [Blocks.gaussian(variance, is_rounded=True).shift for variance in bell] == [1, 1, 2, 43]


# --- below the stairs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_values_below_the_staircase_follow_from_bits(kind, scale):
    """A table's h ≥ 1 is a value in block h − 1, accepted; a 0 is left to the stairs."""
    sampler, result, stairs = built(kind, scale)
    generator = random.Random(f"{kind}{scale}")
    width = width_of(sampler)
    us = [generator.getrandbits(64) for _ in range(600)] + [generator.getrandbits(50) for _ in range(5)]
    edges = [-(1 << width - 1), -1, 0, (1 << width - 1) - 1]
    words = [some_word(sampler, generator, width) for _ in us[:-4]]
    words += edges if sampler.is_signed else [0, 0, 1, (1 << width - 1) - 1]
    values, rejected = play_tries(sampler, us, words, then=0x40)
    other, is_under = place_at(sampler, stairs, SAME, SAME)
    picks = [value_at(result, u) for u in us]
    assert rejected == [place for place, h in enumerate(picks) if h == 0 and not is_under]
    for h, signed_word, value in zip(picks, words, values, strict=True):
        assert value == (value_of(sampler, h - 1, signed_word, width) if h else other)


@pytest.mark.parametrize(("digits", "width"), [(14, 16), (15, 16), (16, 32), (31, 32), (32, 64), (33, 64)])
def test_words_have_the_minimal_width(digits, width):
    """For a sign and all digits of l, of which a rounded law has one more."""
    whole = Blocks.geometric(Fraction(2 ** (digits + 6)), is_signed=True)
    rounded = Blocks.gaussian(Fraction(4 ** (digits + 4)), is_rounded=True)
    for sampler, most, least in (
        (whole, (1 << digits) - 1, -(1 << digits)),
        (rounded, 1 << digits - 1, -(1 << digits - 1)),
    ):
        assert sampler.shift + sampler.is_rounded == digits
        assert width_of(sampler) == width
        one = int(1.5 * sampler.table.chance_of_zero * 2**64)  # a 1 from the table: block 0
        ends = [(1 << width - 1) - 1, -(1 << width - 1), 0, 1 << width - 1 - digits]
        draws, _ = play_tries(sampler, [one] * 4, ends, then=0)
        assert draws == [most, least, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_unused_sign_bit_is_read_and_discarded(kind):
    sampler, result, _stairs = built(kind, KINDS[kind][1][1])
    word_of_ones = play_tries(sampler, [in_the_middle(result, 3)], [-1], then=0)[0][0]
    block = 2 << sampler.shift
    if kind == "geometric":
        assert word_of_ones == block + (1 << sampler.shift) - 1
    else:
        assert word_of_ones == (-block if kind == "rounded" else -1 - block)


# --- between the stairs ---------------------------------------------------------------------------


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_values_between_staircase_and_curve_follow_from_bits(kind, scale, monkeypatch):
    """Random heights and heights around the curve: under it exactly if y < w(x), by mpmath.

    The same if `exp` is off by half the margin: floats decide nothing that is close.
    """
    sampler, _result, stairs = built(kind, scale)
    generator = random.Random(f"{kind}{scale}")
    extension = 0x8000000000000000
    us, words, expected = [], [], []
    for k in range(30):
        block = k if k < 8 else generator.randrange(reach(stairs))
        signed_word = some_word(sampler, generator)
        near = scaled(curve_at(sampler, block, signed_word), 64)
        steps = [4, -4, 2**21, -(2**21), 2**26, -(2**26)]
        for height in [near + step for step in steps] + [generator.getrandbits(64) for _ in range(4)]:
            u = ONES - height
            if not 0 <= u <= ONES or is_tied(stairs, u):
                continue  # a tie with a stair: further down
            us.append(u)
            words.append(signed_word)
            expected.append(place_at(sampler, stairs, u, signed_word, extension))
    exp = np.exp
    for off in (0.0, 2.0**-41, -(2.0**-41)):
        monkeypatch.setattr(np, "exp", lambda x, off=off: exp(x) + off)
        assert between(sampler, us, words, then=word(extension)) == expected
    # In one-sided blocks of one integer all is under the curve.
    over = sum(not is_under for _, is_under in expected)
    assert 50 < over < len(expected) - 50 or (kind == "geometric" and sampler.shift == over == 0)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("kind", "scale"),
    [
        ("geometric", Fraction(66)),
        ("geometric", Fraction(300)),
        ("laplace", Fraction(66)),
        ("laplace", Fraction(1279, 10) * 2),
        ("gaussian", VARIANCES[0]),
        ("gaussian", Fraction(200**2)),
    ],
)
def test_small_blocks_have_the_exact_law(kind, scale):
    """Every value's chance from both sides of the stairs, all of l and the sign enumerated: within 1e-17.

    Below them it is the table's times that of the bits; between them the heights under the curve are
    measured by bisection of 64 bits, through the code that ships.
    """
    sampler, result, stairs = built(kind, scale)
    assert sampler.shift in (0, 1, 2)
    low_part = 1 << sampler.shift
    signs = (0, -1) if sampler.is_signed else (0,)
    sized = [0, 1, 2, 3, 40, 90]
    cases = list(product(sized, range(low_part), signs))
    words = [low << 63 - sampler.shift ^ sign for _, low, sign in cases]
    narrow = [w >> 64 - width_of(sampler) for w in words]
    law = (
        bits.half_gaussian(scale / 4**sampler.shift)
        if sampler.is_gaussian
        else bits.geometric(scale / low_part)
    )
    below, rejected = play_tries(
        sampler, [in_the_middle(result, block + 1) for block, _, _ in cases], narrow, then=bytes
    )
    assert rejected == []
    # Bisect for the greatest height that is accepted in each block: u falls as the height rises.
    bottoms = [ONES - stairs[block] + 3 for block, _, _ in cases]
    tops = [ONES - (stairs[block - 1] if block else -1) - 3 for block, _, _ in cases]
    least, most = list(bottoms), list(tops)
    values = None
    for _ in range(64):
        middle = [(low + high) // 2 for low, high in zip(least, most, strict=True)]
        draws = between(sampler, [ONES - height for height in middle], words, then=0)
        assert values in (None, [value for value, _ in draws])
        values = [value for value, _ in draws]
        for lane, (_, is_under) in enumerate(draws):
            if is_under:
                least[lane] = min(middle[lane] + 1, most[lane])
            else:
                most[lane] = middle[lane]
    assert values == below
    assert len(set(values)) == len(values)
    total = sum(stair(sampler, h) for h in range(8000 if not sampler.is_gaussian else 700))
    for lane, (block, _low, _sign) in enumerate(cases):
        part = mp.ldexp(least[lane], -64) - stair(sampler, block + 1)
        chance = (law(block + 2) - law(block + 1)) + (law(1) - law(0)) * part
        # Of a try, but for the same 2^-m and ½ everywhere.
        assert abs(chance - weight(sampler, mp.mpf(values[lane])) / total) < 1e-17


def test_small_blocks_have_the_exact_rounded_law():
    """What rounds to k weighs ∫ e^(−x²/2σ²) from k − ½ to k + ½: by halves of a block, at m = 1."""
    scale = VARIANCES[1]
    sampler, _result, stairs = built("rounded", scale)
    assert sampler.shift == 1
    # A half's own digits, 61 of them, at the ends and the middle: where its heights end, the density is.
    for block, half, part in product((0, 1, 30), range(4), (0, 1 << 60, (1 << 61) - 1)):
        signed_word = half << 61 | part
        curve = mp.ldexp(curve_at(sampler, block, signed_word), 64)
        for step, is_under in ((-5, True), (5, False)):
            height = int(curve) + step
            u = ONES - height
            if u > 0 and not is_tied(stairs, u) and value_at(stairs, u) == block:
                k = 2 * block + (half + 1) // 2
                assert between(sampler, [u], [signed_word], then=0) == [(k, is_under)]
                assert between(sampler, [u], [-1 - signed_word], then=0) == [(-k, is_under)]


# --- the float filter -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_float_filter_error_is_within_its_bound(kind, scale, monkeypatch):
    """What goes into `exp` is so near to −x that e^−x moves by less than 2^-50; blocks to the table's end."""
    sampler, _result, stairs = built(kind, scale)
    generator = random.Random(f"budget{kind}{scale}")
    us = [generator.getrandbits(64) for _ in range(150)]
    us += [ONES - (1 << generator.randrange(20, 60)) for _ in range(150)]
    words = [some_word(sampler, generator) for _ in us]
    seen = []
    exp = np.exp
    monkeypatch.setattr(np, "exp", lambda x: (seen.append(np.array(x)), exp(x))[1])
    between(sampler, us, words, then=0x55)
    assert large_scales._MARGIN == 2.0**-40
    for u, signed_word, power in zip(us, words, seen[0].tolist(), strict=True):
        if not is_tied(stairs, u):
            exact = curve_at(sampler, value_at(stairs, u), signed_word)
            assert abs(mp.exp(mp.mpf(power)) - exact) < mp.ldexp(1, -50)


def test_double_precision_exp_is_good_to_2_to_the_minus_45():
    """The assumption of the budget, on a sample."""
    powers = -np.concatenate([np.linspace(0, 1, 1000), np.linspace(1, 130, 1000), 2.0 ** np.arange(-60, 0)])
    for power, result in zip(powers.tolist(), np.exp(powers).tolist(), strict=True):
        assert abs(result - mp.exp(mp.mpf(power))) < mp.ldexp(1, -45)


def test_only_close_cases_are_decided_by_integers(monkeypatch):
    sampler, _result, stairs = built("laplace", SCALES[3])
    decided = []
    decide = Blocks._decide_by_integers
    monkeypatch.setattr(
        Blocks,
        "_decide_by_integers",
        lambda self, u, raw: (decided.append(ONES - u), decide(self, u, raw))[1],
    )
    signed_word = 1 << 62
    curve = scaled(curve_at(sampler, 5, signed_word), 64)
    heights = [curve + step for step in (-(2**25), -(2**23), 2**23, 2**25)]
    assert all(value_at(stairs, ONES - height) == 5 for height in heights)
    draws = between(sampler, [ONES - height for height in heights], [signed_word] * 4, then=0)
    assert [is_under for _, is_under in draws] == [True, True, False, False]
    assert decided == heights[1:3]


# --- ties, and the far tail -----------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("kind", "scale"), WIDE)
def test_a_tie_with_the_curve_is_decided_by_more_bits(kind, scale, depth):
    sampler, _result, _stairs = built(kind, scale)
    block, signed_word = 40, 0x5FEDCBA987654321
    digits = [0x9999999999999999] * depth
    full = signed_word
    for more in digits:
        full = full << 64 | more
    if sampler.is_rounded:
        curve = weight(sampler, mp.ldexp(block + mp.ldexp(full, -63 - 64 * depth), sampler.shift))
    else:
        curve = curve_at(sampler, block, signed_word)
    edge = scaled(curve, 64 + 64 * depth)
    heights = [edge >> 64 * k & ONES for k in range(depth, -1, -1)]
    # A real l is known to 63 + 64·depth digits, so the last bits must leave room for those.
    for step, is_under in ((-(2**40), True), (2**40, False)):
        last = heights[-1] + step
        assert 0 <= last <= ONES
        follow = [*heights[1:-1], last]
        if sampler.is_rounded:
            follow = [part for pair in zip(digits, follow, strict=True) for part in pair]
        draws = between(sampler, [ONES - heights[0]], [signed_word], *map(word, follow))
        assert draws == [(value_of(sampler, block, signed_word), is_under)]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_tie_with_the_staircase_is_decided_by_more_bits(kind, scale, depth):
    """Above it the place is in the block before, and under the curve; below it in the next, and over it."""
    sampler, _result, _stairs = built(kind, scale)
    j, signed_word = 40, 1 << 62  # the middle of a block
    digits = scaled(1 - stair(sampler, j), 64 + 64 * depth)
    us = [digits >> 64 * k & ONES for k in range(depth, -1, -1)]
    for step, block in ((-2, j - 1), (2, j)):
        assert 0 <= us[-1] + step <= ONES
        follow = [word(u) for u in [*us[1:-1], us[-1] + step]]
        # In a block of one integer the curve is level with the upper stair, and all is under it.
        is_under = block == j - 1 or sampler.shift == 0
        draws = between(sampler, [us[0]], [signed_word], *follow, then=0)
        assert draws == [(value_of(sampler, block, signed_word), is_under)]


@pytest.mark.parametrize("kind", KINDS)
def test_far_proposal_between_staircase_and_curve_is_decided(kind):
    """64 ones and more: block and curve by integers, at the precision that it takes."""
    sampler, _result, _stairs = built(kind, KINDS[kind][1][2])
    low = 5 << 50
    u = ((1 << 128) - 1 << 64) | ONES - 12345
    [(value, is_under)] = between(sampler, [ONES], [low], word(ONES), word(ONES - 12345), then=0)
    y = mp.ldexp((1 << 192) - 1 - u, -192)
    block = value >> sampler.shift
    assert stair(sampler, block + 1) <= y < stair(sampler, block)
    assert value == value_of(sampler, block, low)
    assert is_under == (y < curve_at(sampler, block, low))


@pytest.mark.parametrize("sign", [0, -1])
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2**40])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_saturate_below_the_staircase(kind, beyond, sign, monkeypatch):
    sampler, result, _stairs = built(kind, KINDS[kind][1][-1])
    far = (MAX_DRAW >> sampler.shift) + beyond
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: far + 1)
    first = 1 << 62 if sampler.is_signed else -(1 << 62)  # a sign that is not there is not read
    draws, rejected = play_tries(
        sampler,
        [in_the_middle(result, 2), ONES, in_the_middle(result, 3)],
        [first, 0, 0],
        then=lambda count: (
            np.array([3 << 63 - sampler.shift ^ sign], dtype=np.int64).tobytes()
            if count == 8
            else bytes(count)
        ),
    )
    exact = (far << sampler.shift) + 3
    if sign:  # all digits are complemented, and read as such where there is no sign
        signed = -exact if sampler.is_rounded else -1 - exact
        exact = signed if sampler.is_signed else (far + 1 << sampler.shift) - 1 - 3
    assert draws[1] == max(-MAX_DRAW, min(MAX_DRAW, exact))
    assert draws[0] == (1 << sampler.shift) + (1 << sampler.shift - 1)
    assert draws[2] == 2 << sampler.shift
    assert rejected == []


@pytest.mark.parametrize("kind", KINDS)
def test_32_bits_are_used_just_where_every_block_fits(kind):
    """At every scale, and with all bits of all words set or unset: the same integers as in 64 bits."""

    def source(seed, fill):
        draws, calls = seeded(seed), count()
        return lambda size: (draws(size), fill * size)[
            next(calls) == 2
        ]  # after the cells and the second level

    make, types = KINDS[kind][0], []
    for power in range(8, 40):
        scale = Fraction(4 if kind in ("gaussian", "rounded") else 2) ** power - Fraction(1, 3)
        narrow, wide = make(scale), make(scale)
        widest = (wide.table.largest << wide.shift + wide.is_rounded) - 1
        types.append(narrow._integer)
        assert (types[-1] is np.int32) == (widest + 1 < 2**31)
        wide.__dict__["_integer"] = np.int64
        for fill in (b"\0", b"\xff", b"\x7f", b"\x80"):
            draws = []
            for sampler in (narrow, wide):
                with inject_bits(source(power, fill)):
                    values, rejected = sampler._propose(300)
                draws.append((values.tolist(), rejected.tolist()))
                assert values.dtype == np.int64
            assert draws[0] == draws[1]
    assert types.index(np.int64) == types.count(np.int32) > 5


def test_tie_at_zero_goes_between_staircase_and_curve(monkeypatch):
    sampler, result, stairs = built("laplace", SCALES[2])
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: 0)
    draws, rejected = play_tries(sampler, [in_the_middle(result, 2), result[0]], [0, 0], then=0x40)
    value, is_under = place_at(sampler, stairs, SAME, SAME)
    assert draws == [1 << sampler.shift, value]
    assert rejected == ([] if is_under else [1])


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_saturate_between_staircase_and_curve(kind, monkeypatch):
    sampler, _result, _stairs = built(kind, KINDS[kind][1][-1])
    far = (MAX_DRAW >> sampler.shift) + 1
    monkeypatch.setattr(Table, "resolve", lambda self, u, bits: (far, ONES - 1, 64))
    assert between(sampler, [ONES], [1 << 50]) == [(MAX_DRAW, False)]
    assert between(sampler, [ONES], [-1 - (1 << 50)]) == [
        (-MAX_DRAW if sampler.is_signed else MAX_DRAW, False)
    ]


def test_saturated_values_are_compared_exactly(monkeypatch):
    """At 2^62 + 2^42 the curve is that number's, 2^-23637 or so, not that of 2^62."""
    sampler, _result, _stairs = built("laplace", SCALES[-1])
    far = (MAX_DRAW >> sampler.shift) + 1
    precision = 23_800
    curve = scaled(weight(sampler, mp.mpf(far << sampler.shift)), precision)
    assert curve < scaled(weight(sampler, mp.mpf(MAX_DRAW)), precision) - 2**100
    for height, is_under in ((curve - 2, True), (curve + 2, False)):
        settled = far, (1 << precision) - 1 - height, precision
        monkeypatch.setattr(Table, "resolve", lambda self, u, bits, settled=settled: settled)
        assert between(sampler, [ONES], [0]) == [(MAX_DRAW, is_under)]


# --- one draw -------------------------------------------------------------------------------------


def exponent(sampler, block, low):
    """x of the coin's chance e^−x for block h and l: what the weight falls by from h·2^m on."""
    start = mp.ldexp(block, sampler.shift)
    return mp.log(weight(sampler, start) / weight(sampler, start + low))


@pytest.mark.parametrize(("kind", "scale"), ONE_BY_ONE)
def test_single_draw_follows_from_its_bits(kind, scale):
    sampler, result, _stairs = built(kind, scale)
    generator = random.Random(f"one{kind}{scale}")
    rejected = 0
    for k in range(150):
        u, low, chance = generator.getrandbits(64), generator.getrandbits(56), generator.getrandbits(64)
        if k % 10 == 0:
            u, low = 1, low >> 43 << 43  # zero, or next to it
        block, part = value_at(result, u), low % (1 << sampler.shift)
        edge = scaled(mp.exp(-exponent(sampler, block, part)), 64)
        for chance_bits in (chance, edge - 2, edge + 2):
            for sign in (0, 1):
                size = (block << sampler.shift) + part
                if not 0 <= chance_bits <= ONES:
                    continue
                heads = chance_bits < edge and not (sign and size == 0)
                play = [word((u << 56 | low) << 72 | chance_bits << 8 | 0x54 | sign, 192)]
                expected = (size, sign)
                if not heads:
                    rejected += 1
                    play.append(word(1 << 128 | 1 << 72, 192))
                    expected = (1, 0)
                with playing(*play) as tape:
                    assert sampler.draw_one() == expected
                assert tape.requests == [24] * len(play)
    assert rejected > 100


@pytest.mark.parametrize(("kind", "scale"), ONE_BY_ONE)
def test_single_draw_uses_integers_only_if_floats_cannot_decide(kind, scale, monkeypatch):
    sampler, result, _stairs = built(kind, scale)
    monkeypatch.setattr(large_scales, "is_below", None)
    for block in (0, 1, 40):
        draws = in_the_middle(result, block) << 56 | (1 << sampler.shift) - 1
        with playing(word(draws << 72, 192)):
            assert sampler.draw_one() == ((block + 1 << sampler.shift) - 1, 0)


@pytest.mark.parametrize(("kind", "scale"), ONE_BY_ONE)
def test_tie_of_a_single_draw_is_decided_by_more_bits(kind, scale):
    sampler, result, _stairs = built(kind, scale)
    block, part = 30, (1 << sampler.shift) - 1
    edge = scaled(mp.exp(-exponent(sampler, block, part)), 128)
    first = word((in_the_middle(result, block) << 56 | part) << 72 | edge >> 64 << 8, 192)
    with playing(first, word((edge & ONES) - 1)):
        assert sampler.draw_one() == ((block << sampler.shift) + part, 0)
    again = word(1 << 128 | 1 << 72 | 1, 192)
    with playing(first, word((edge & ONES) + 1), again):
        assert sampler.draw_one() == (1, 1)


def test_single_draw_in_the_far_tail_is_exact():
    """200 ones and then chosen bits."""
    sampler, _result, _stairs = built("gaussian", VARIANCES[0])
    law = bits.half_gaussian(VARIANCES[0] / 4)
    more = 0xFEDCBA9876543210
    first = word(ONES << 128 | 1, 192)
    with playing(first, word(ONES), word(ONES), word(more)):
        size, sign = sampler.draw_one()
    assert sign == 1
    block = size >> sampler.shift
    u = ((1 << 192) - 1) << 64 | more
    assert mp.ldexp(law(block), 256) <= u < mp.ldexp(law(block + 1), 256)
    # A coin of less than e^-¼ is beyond the series.
    first = word((ONES << 56 | 1) << 72 | scaled(mp.exp(-exponent(sampler, block, 1)), 64) - 1 << 8, 192)
    with playing(first, word(ONES), word(ONES), word(more)):
        assert sampler.draw_one() == (size + 1, 0)


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_placement_depends_on_rejections_only(seed, monkeypatch):
    """Tries without values: those accepted stay, and the spare ones take the holes in their order."""
    sampler, _result, _stairs = built("laplace", SCALES[1])
    generator = random.Random(seed)
    count = 100
    before, after = generator.random() / 4, generator.random() / 2
    words_read = []

    def tries(self, size):
        rejected = [i for i in range(size) if generator.random() < (before if i < count else after)]
        words_read.append((size, set(rejected)))
        return np.arange(size), np.array(rejected, dtype=np.intp)

    monkeypatch.setattr(Blocks, "_propose", tries)
    draws = sampler.draw(count).tolist()
    [(size, rejected)] = words_read
    assert size == count + 1 + 64
    spare = iter([i for i in range(count, size) if i not in rejected])
    assert draws == [next(spare) if i in rejected else i for i in range(count)]


def test_missing_draws_are_repeated_if_spares_run_out(monkeypatch):
    sampler, _result, _stairs = built("laplace", SCALES[1])
    words_read = []

    def tries(self, size):
        words_read.append(size)
        first = len(words_read) == 1
        rejected = np.arange(0, size - 3) if first else np.array([1], dtype=np.intp)
        return np.arange(size) + 1000 * len(words_read), rejected

    monkeypatch.setattr(Blocks, "_propose", tries)
    draws = sampler.draw(100).tolist()
    assert words_read == [165, 97 + 1 + 64]
    # 162, 163 and 164 were left; then 97 more, of which the second was rejected.
    assert draws[:3] == [1162, 1163, 1164]
    assert draws[3:] == [2000, 2097, *range(2002, 2097)]


def test_exactly_enough_spares_suffice():
    sampler, _result, _stairs = built("laplace", SCALES[2])
    # 33 draws and 65 to spare: where all 33 are rejected and 32 of the others, 33 are left.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocks, "_propose", lambda self, size: (np.arange(size), np.arange(size - 33)))
        patch.setattr(Table, "draw_with_zeros", None)
        assert sampler.draw(33).tolist() == list(range(65, 98))


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_vector_reads_a_fixed_number_of_bits(kind, scale):
    sampler, result, _stairs = built(kind, scale)
    tries = 1000 + int(mp.ceil(1000 * mp.mpf(result[0]) / 2**64)) + 64
    sampler.draw(1)
    lanes = lanes_needed(tries * sampler.table.chance_of_zero)
    for seed in range(20):
        tape = seeded(seed)
        with inject_bits(tape):
            assert sampler.draw(1000).shape == (1000,)
        second = 8 * sampler.table._lanes(tries)
        # Cells, second level, words for l; heights, words between the stairs. No try is undecided here.
        assert tape.requests == [2 * tries, second, width_of(sampler) // 8 * tries, 8 * lanes, 8 * lanes]


@pytest.mark.parametrize("kind", KINDS)
def test_all_lanes_work_between_staircase_and_curve(kind, monkeypatch):
    """One round, whether no try waits there or as many as there are lanes; its search is padded too."""
    sampler, result, thresholds_of_stairs = built(kind, KINDS[kind][1][2])
    value, is_under = place_at(sampler, thresholds_of_stairs, SAME, SAME)
    rounds, searched = [], []
    stairs, find, locate = sampler._stairs, Table.values_at, Table._locate
    stairs._get_guide()
    monkeypatch.setattr(Table, "values_at", lambda self, u: (rounds.append(u.size), find(self, u))[1])
    monkeypatch.setattr(Table, "_locate", lambda self, u: (searched.append(u.size), locate(self, u))[1])
    lanes = lanes_needed(80 * sampler.table.chance_of_zero)
    for zeros in (0, 1, lanes):
        us = [in_the_middle(result, 3)] * (80 - zeros) + [1] * zeros
        values, rejected = play_tries(sampler, us, [0] * 80, then=0x40)
        assert values == [2 << sampler.shift] * (80 - zeros) + [value] * zeros
        assert rejected == ([] if is_under else list(range(80 - zeros, 80)))
    assert rounds == [lanes] * 3
    assert searched[1::2] == [stairs._lanes(lanes)] * 3


def test_excess_draws_between_staircase_and_curve_go_in_rounds():
    sampler, _result, stairs = built("laplace", SCALES[2])
    lanes = lanes_needed(60 * sampler.table.chance_of_zero)
    assert 3 * lanes < 60 < 4 * lanes
    generator = random.Random(4)
    heights = [generator.getrandbits(64) for _ in range(4 * lanes)]
    parts = iter([heights[k * lanes : (k + 1) * lanes] for k in range(4)])

    def play(count):
        if play.is_words:
            play.is_words = False
            return bytes(count)
        play.is_words = True
        return np.array([ONES - height for height in next(parts)], dtype=np.uint64).tobytes()

    play.is_words = False
    values, rejected = play_tries(sampler, [1] * 60, [0] * 60, then=play)
    # With l = 0 the curve is level with the upper stair: all are under it, at the start of their blocks.
    assert rejected == []
    expected = [value_at(stairs, ONES - height) << sampler.shift for height in heights[:60]]
    assert values == expected


def test_vectors_are_drawn_in_chunks(monkeypatch):
    """The same tries, however many are worked on at a time; only the words are read in parts."""
    sampler, _result, _stairs = built("laplace", SCALES[0])

    def draw():
        tape = seeded(2)
        with inject_bits(tape):
            return sampler.draw(3000).tolist(), tape.requests

    whole, words_read = draw()
    monkeypatch.setattr(large_scales, "_CHUNK", 1 << 11)
    parts, asked_in_parts = draw()
    assert parts == whole
    tries = 3000 + 47 + 64
    assert words_read[2] == 2 * tries
    assert asked_in_parts[2:6] == [2048, 2048, 2048, 2 * (tries - 3072)]
    assert words_read[3:] == asked_in_parts[6:]


def test_the_largest_vectors_are_drawn_in_chunks():
    sampler, _result, _stairs = built("rounded", VARIANCES[3])
    tape = seeded(3)
    with inject_bits(tape):
        draws = sampler.draw(60_000)
    assert draws.dtype == np.int64
    width = width_of(sampler) // 8
    tries = 60_000 + int(mp.ceil(60_000 * sampler.table.chance_of_zero)) + 64
    at_once = (1 << 18) // width
    assert at_once < tries < 2 * at_once
    assert tape.requests[2:4] == [1 << 18, (tries - at_once) * width]


@pytest.mark.parametrize("scale", SCALES)
def test_rejections_are_rare(scale):
    """Half of those between the stairs, 1.6 in 100: 3 are 40 standard deviations away."""
    for kind in ("laplace", "geometric"):
        _values, rejected = built(kind, scale)[0]._propose(20_000)
        assert rejected.size < 0.03 * 20_000
    for variance in VARIANCES:
        assert built("rounded", variance)[0]._propose(20_000)[1].size < 0.03 * 20_000


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("kind", "scale"), [*CASES, ("laplace", Fraction(300)), ("gaussian", Fraction(200**2))]
)
def test_vectors_fit_the_law(kind, scale):
    """Chi-square over 40 sizes of equal chance, times the sign; the same bits in every run."""
    sampler = built(kind, scale)[0]
    with inject_bits(seeded(12)):
        draws = sampler.draw(200_000)
    law = {
        "geometric": bits.geometric,
        "laplace": bits.discrete_laplace,
        "gaussian": bits.discrete_gaussian
        if scale < 2**20
        else lambda v: bits.rounded_gaussian(mp.sqrt(real(v))),
        "rounded": lambda v: bits.rounded_gaussian(mp.sqrt(real(v))),
    }[kind](scale)
    edges = sorted({int(np.quantile(np.abs(draws), k / 40)) for k in range(1, 40)})
    chances = [float(law(j)) for j in [0, *edges]] + [1.0]
    sizes = np.digitize(np.abs(draws), edges)
    statistic = 0.0
    for side in (-1, 1) if sampler.is_signed else (1,):
        share = 0.5 if sampler.is_signed else 1.0
        mine = sizes[draws * side > 0] if side < 0 else sizes[draws >= 0]
        # Zero has no sign: in the first bin only the other sizes are halved.
        zero = float(law(1)) if sampler.is_signed else 0.0
        for j in range(len(edges) + 1):
            chance = chances[j + 1] - chances[j]
            expected = 200_000 * (share * (chance - zero * (j == 0)) + zero * (j == 0) * (side > 0))
            statistic += (np.count_nonzero(mine == j) - expected) ** 2 / expected
    cells = (len(edges) + 1) * (1 + sampler.is_signed)
    assert statistic < cells + 7 * np.sqrt(2 * cells)
