import random
from fractions import Fraction

import numpy as np
import pytest

from hubbub.noise import blocks
from hubbub.noise.blocks import Blocks
from hubbub.noise.entropy import _replaying
from hubbub.noise.table import MOST, Table
from noise import bits
from noise.bits import ONES, Tape, mp, playing, real, scaled, seeded, thresholds, value_at, word

GEOMETRIC = [Fraction(6401, 100), Fraction(1279, 10), Fraction(2**20 + 1, 3), Fraction(2**48)]
VARIANCES = [Fraction(64**2) + Fraction(1, 7), Fraction(127**2), Fraction(10**12, 7), Fraction(2**96)]
KINDS = {
    "geometric": (Blocks.geometric, GEOMETRIC),
    "bell": (lambda v: Blocks.bell(v, is_rounded=False), VARIANCES),
    "rounded": (lambda v: Blocks.bell(v, is_rounded=True), VARIANCES),
}
CASES = [
    pytest.param(kind, scale, id=f"{kind}-{float(scale):.6g}")
    for kind, (_, scales) in KINDS.items()
    for scale in scales
]
_built = {}


def built(kind, scale):
    """A sampler, and the thresholds of the law that its blocks must follow."""
    if (kind, scale) not in _built:
        sampler = KINDS[kind][0](scale)
        if kind == "geometric":
            law = bits.geometric(scale / 2**sampler.shift)
        else:
            law = bits.bell(scale / 4**sampler.shift)
        _built[kind, scale] = sampler, law, thresholds(law)
    return _built[kind, scale]


def exponent(sampler, block, part):
    """x of the chance e^−x, for block h and l = part·2^m, by definition: the difference of two weights."""
    start, end = mp.ldexp(block, sampler.shift), mp.ldexp(block + part, sampler.shift)
    if sampler.is_bell:
        return (end**2 - start**2) / (2 * real(sampler.scale))
    return (end - start) / real(sampler.scale)


def part_of(sampler, raw):
    """l/2^m as the bits of `raw` give it: m bits of an integer, or 63 digits of a real number."""
    if sampler.is_rounded:
        return mp.ldexp(raw >> 1, -63)
    return mp.ldexp(raw >> 64 - sampler.shift, -sampler.shift)


def outcome(sampler, block, raw, *, signed):
    """The value that block and bits stand for, and whether it is a zero with a minus sign."""
    low = raw >> 64 - sampler.shift
    if sampler.is_rounded:
        low = int(mp.floor(mp.ldexp(part_of(sampler, raw), sampler.shift) + mp.mpf(1) / 2))
    size = (block << sampler.shift) + low
    negative = signed and raw & 1
    return (-size if negative else size), bool(negative and size == 0 and not sampler.is_rounded)


def play_tries(sampler, us, raws, chances, *, signed, then=None):
    """What the shipped `_tries` gives for draws with these bits: U, `raw`, and the coin's 32 bits."""
    us = np.array(us, dtype=np.uint64)
    cells = (us >> np.uint64(48)).astype(np.uint16)
    waiting = np.flatnonzero(sampler.table._ready()[cells] == np.iinfo(np.int16).min)
    parts = [cells.tobytes()]

    def refine(count, start):
        part = waiting[start : start + count // 8]
        fresh = np.zeros(count // 8, dtype=np.uint64)
        fresh[: part.size] = us[part] << np.uint64(16)
        return fresh.tobytes()

    lanes = sampler.table._lanes(us.size)
    parts += [
        lambda count, start=start: refine(count, start) for start in range(0, max(1, waiting.size), lanes)
    ]
    parts.append(np.array(raws, dtype=np.uint64).tobytes())
    parts.append((np.array(chances, dtype=np.int64) - 2**31).astype(np.int32).tobytes())
    tape = Tape(*parts, then=then)
    with _replaying(tape):
        accepted = sampler._tries(us.size, signed=signed)
    return accepted.tolist()


def in_the_middle(found, block):
    """The first 64 bits of a U that gives this block."""
    return ((found[block - 1] if block else 0) + found[block]) // 2


# --- blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_a_block_has_scale_32_to_64(kind, scale):
    sampler, _law, found = built(kind, scale)
    size = sampler.scale / 2**sampler.shift if kind == "geometric" else scale / 4**sampler.shift
    assert (32 <= size < 64) if kind == "geometric" else (32**2 <= size < 64**2)
    assert sampler.shift >= 1
    assert sampler.is_bell == (kind != "geometric")
    assert sampler.is_rounded == (kind == "rounded")
    # The table's own law, at a few places.
    for j in (1, 2, 50, 150):
        assert sampler.table.pick(found[j - 1] - 3) == j - 1
        assert sampler.table.pick(found[j - 1] + 3) == j


def test_where_blocks_start_and_end():
    assert Blocks.geometric(Fraction(64)).shift == 1
    assert Blocks.geometric(Fraction(12799, 100)).shift == 1
    assert Blocks.geometric(Fraction(128)).shift == 2
    assert Blocks.bell(Fraction(64**2), is_rounded=True).shift == 1
    assert Blocks.bell(Fraction(128**2) - Fraction(1, 9), is_rounded=True).shift == 1
    assert Blocks.bell(Fraction(128**2), is_rounded=True).shift == 2
    assert Blocks.geometric(Fraction(2**48)).shift == 43


# --- the map from bits to values ------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_the_map_from_bits_to_values(kind, scale, signed):
    """Random bits and bits around every decision: accepted exactly where U < e^−x, by mpmath."""
    sampler, _law, found = built(kind, scale)
    generator = random.Random(f"{kind}{scale}{signed}")
    us, raws, chances, expected = [], [], [], []
    extension = 0x8000000000000000
    for k in range(400):
        u, raw = generator.getrandbits(64), generator.getrandbits(64)
        if k % 8 == 0:
            u = generator.getrandbits(50)  # block 0
        if k % 16 == 0:
            raw &= (1 << 64 - sampler.shift) - 1  # l = 0, so that zero itself is drawn too
        block = value_at(found, u)
        edge = mp.exp(-exponent(sampler, block, part_of(sampler, raw)))
        near = scaled(edge, 32)
        steps = {0, 1, -1, 2, 2**13, -(2**13), 2**15, -(2**15), generator.randrange(-(2**32), 2**32)}
        for chance in [near + step for step in sorted(steps)]:
            if 0 <= chance < 2**32:
                us.append(u)
                raws.append(raw)
                chances.append(chance)
                value, is_minus_zero = outcome(sampler, block, raw, signed=signed)
                if (chance << 64 | extension) < mp.ldexp(edge, 96) and not is_minus_zero:
                    expected.append(value)
    # Whatever is drawn beyond the 32 bits of a coin, or the digits, begins with a one.
    drawn = play_tries(sampler, us, raws, chances, signed=signed, then=lambda count: word(extension))
    assert drawn == expected
    assert 1000 < len(drawn) < len(us)
    if signed and kind != "rounded":
        assert 0 in drawn


@pytest.mark.parametrize(("kind", "scale"), [("geometric", GEOMETRIC[1]), ("bell", VARIANCES[1])])
def test_the_law_itself_where_a_block_is_two_integers(kind, scale):
    """m = 1: every L, the coin's chance by bisection, the block's by its table: Pr[X = k] within 1e-15."""
    sampler, law, found = built(kind, scale)
    assert sampler.shift == 1
    law_of_size = bits.geometric(scale) if kind == "geometric" else bits.bell(scale)
    # The weight of all that may be accepted; a geometric block's parts weigh the same in every block.
    total = sum(
        (law(h + 1) - law(h) if kind == "bell" else 1) * mp.exp(-exponent(sampler, h, mp.mpf(low) / 2))
        for h in range(700 if kind == "bell" else 1)
        for low in (0, 1)
    )
    for block in (0, 1, 2, 31, 100, 200):
        for low in (0, 1):
            least, most = 0, (1 << 96) - 1
            while least < most:  # the first 96 bits with which the coin falls tails
                middle = (least + most) // 2
                heads = play_tries(
                    sampler,
                    [in_the_middle(found, block)],
                    [low << 63],
                    [middle >> 64],
                    signed=False,
                    then=lambda count, middle=middle: word(middle & ONES),
                )
                least, most = (middle + 1, most) if heads else (least, middle)
            chance = mp.ldexp(least if low else 1 << 96, -96)
            assert least >= (1 << 96) - 1 or low
            # Pr[H = h]·½·chance, over the same for all h and l.
            accepted = (law(block + 1) - law(block)) * chance / total
            k = 2 * block + low
            assert abs(accepted - (law_of_size(k + 1) - law_of_size(k))) < 1e-15


@pytest.mark.parametrize(("kind", "scale"), [("geometric", GEOMETRIC[1]), ("bell", VARIANCES[1])])
def test_the_coin_of_every_block_by_bisection(kind, scale):
    """All blocks that a table reaches, both values of L, 32 bits of the coin."""
    sampler, _law, found = built(kind, scale)
    step = 1 if kind == "bell" else 9
    pairs = [(block, low) for block in range(0, bisect_reach(found), step) for low in (0, 1)]
    us = [in_the_middle(found, block) for block, _ in pairs]
    raws = [low << 63 for _, low in pairs]
    exact = [mp.ldexp(mp.exp(-exponent(sampler, h, mp.mpf(low) / 2)), 32) for h, low in pairs]
    # Just below and just above the edge, and farther off in the filter's and the integers' land.
    for offset, is_heads in ((-1, True), (1, False), (-(2**13), True), (2**13, False), (2**20, False)):
        chances = [min(max(scaled(x, 0) + offset, 0), 2**32 - 1) for x in exact]
        heads = play_tries(sampler, us, raws, chances, signed=False, then=0)
        certain = [2 * h + low for (h, low), chance in zip(pairs, chances, strict=True)]
        if is_heads:
            assert heads == certain
        else:
            assert heads == [k for k, (_, low) in zip(certain, pairs, strict=True) if low == 0]


def bisect_reach(found):
    """The blocks whose thresholds 64 bits tell apart."""
    return next(j for j in range(1, len(found)) if found[j] - found[j - 1] < 64)


# --- the float filter -----------------------------------------------------------------------------


def _filter_error(sampler, block, raw, chance):
    """|what the filter computes − (e^−x − U)| by doubles, which are 2^29 times finer."""
    raw = np.array(raw, dtype=np.uint64)
    block = np.array(block, dtype=np.int64)
    chance = np.array(chance, dtype=np.int32)
    if sampler.is_rounded:
        part = (raw >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        true_part = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    else:
        low = raw >> np.uint64(64 - sampler.shift)
        part = low.astype(np.float32) * np.float32(2.0**-sampler.shift)
        true_part = low.astype(np.float64) * 2.0**-sampler.shift
    lead = sampler._lead(block.astype(np.float32), part, chance)
    assert lead.dtype == np.float32
    if sampler.is_bell:
        size = float(sampler.scale / 4**sampler.shift)
        power = true_part * (2 * block + true_part) / (2 * size)
    else:
        power = true_part / float(sampler.scale / 2**sampler.shift)
    return np.abs(lead - (np.exp(-power) - (0.5 + chance.astype(np.float64) * 2.0**-32)))


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_the_filter_keeps_its_budget(kind, scale):
    sampler, _law, found = built(kind, scale)
    reach = len(found)  # blocks beyond are never given to the filter
    generator = np.random.default_rng(7)
    count = 40_000
    block = np.concatenate([generator.integers(0, reach, count), np.full(count, reach), np.zeros(count)])
    raw = generator.integers(0, 2**64, block.size, dtype=np.uint64)
    raw[::7] |= np.uint64(0xFFFFFFFF00000000)
    raw[::11] &= np.uint64(0x000000FFFFFFFFFF)
    chance = generator.integers(-(2**31), 2**31, block.size)
    assert _filter_error(sampler, block, raw, chance).max() < 2.0**-20
    assert blocks._MARGIN == 2.0**-18
    # The exponent that the budget counts on.
    assert exponent(sampler, reach, 1) < 0.35


def test_the_filter_is_a_filter():
    """The mutant that the budget is there for: half the digits, and the error passes the margin."""
    sampler, _law, _found = built("rounded", VARIANCES[0])
    far = 2**20  # a block out here would not be safe: the 24 digits of ℓ weigh too much
    raw = np.array([(1 << 40) - 1], dtype=np.uint64)
    assert _filter_error(sampler, [far], raw, [0]).max() > 2.0**-18


def _exp_error(values):
    return np.abs(np.exp(values).astype(np.float64) - np.exp(values.astype(np.float64))).max()


def test_single_precision_exp_is_good_to_2_to_the_minus_21():
    """The assumption of the budget, on a sample of a million numbers between −½ and 0."""
    patterns = np.arange(0x30000000, 0x3F000001, 251, dtype=np.uint32)
    assert _exp_error(-patterns.view(np.float32)) < 2.0**-21
    assert _exp_error(-np.linspace(0, 0.5, 2**19, dtype=np.float32)) < 2.0**-21
    assert np.exp(np.float32(0)) == 1


@pytest.mark.long
def test_single_precision_exp_on_every_number():
    """The assumption of the budget, on all 2^28 single-precision numbers from −½ to −2^-31, and below."""
    for start in range(0x30000000, 0x3F000000, 1 << 22):
        patterns = np.arange(start, start + (1 << 22), dtype=np.uint32)
        assert _exp_error(-patterns.view(np.float32)) < 2.0**-21


# --- ties, and the far tail -----------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_a_tie_of_the_coin_is_decided_by_more_bits(kind, scale, depth):
    sampler, _law, found = built(kind, scale)
    block, raw = 40, (7 << 61 | 0x123456789ABCDE) & ~1
    digits = [0x9999999999999999] * depth
    part = part_of(sampler, raw)
    if sampler.is_rounded:
        full = raw >> 1
        for word_of_digits in digits:
            full = full << 64 | word_of_digits
        part = mp.ldexp(full, -63 - 64 * depth)
    edge = scaled(mp.exp(-exponent(sampler, block, part)), 32 + 64 * depth)
    coin_words = [edge >> 64 * k & ONES for k in range(depth - 1, -1, -1)]
    # A real l is known to 63 + 64·depth digits, so the coin's last 2^-32 must leave room for those.
    step = 2**40
    for sign, is_heads in ((-1, True), (1, False)):
        last = coin_words[-1] + sign * step
        assert 0 <= last <= ONES
        words = [*coin_words[:-1], last]
        if sampler.is_rounded:
            words = [part for pair in zip(digits, words, strict=True) for part in pair]
        follow = iter([word(part) for part in words])
        heads = play_tries(
            sampler,
            [in_the_middle(found, block)],
            [raw],
            [edge >> 64 * depth],
            signed=True,
            then=lambda count, follow=follow: next(follow),
        )
        assert next(follow, None) is None
        assert heads == ([outcome(sampler, block, raw, signed=True)[0]] if is_heads else [])


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_a_far_block_is_decided_by_integers(kind, scale, monkeypatch):
    """Beyond the table the block is known exactly, and neither it nor the coin goes through a float."""
    sampler, _law, _found = built(kind, scale)
    far = 70_000  # e^-1000 and rarer; here the filter's digits of ℓ would not be enough
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: far)
    for raw in (0x123456789ABCDE0, (1 << 40) - 2, 0xF0 << 52):
        edge = mp.exp(-exponent(sampler, far, part_of(sampler, raw)))
        near = scaled(edge, 32)
        for chance in {0, max(near - 1, 0), min(near + 1, 2**32 - 1)}:
            heads = play_tries(sampler, [ONES], [raw], [chance], signed=False, then=0)
            expected = [outcome(sampler, far, raw, signed=False)[0]] if chance <= near else []
            assert heads == [min(value, MOST) for value in expected]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beyond", [-1, 0, 1, 2**40])
def test_vectors_saturate_after_the_coin(kind, beyond, monkeypatch):
    scale = KINDS[kind][1][-1]
    sampler, _law, _found = built(kind, scale)
    far = (MOST >> sampler.shift) + beyond
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: far)
    raw = 3 << 21  # l = 3: the coin can fall heads
    for sign in (0, 1):
        heads = play_tries(sampler, [ONES, 5], [raw | sign, 1 << 63], [0, 0], signed=True, then=0)
        size = min((far << sampler.shift) + 3, MOST)
        assert heads == [-size if sign else size, outcome(sampler, 0, 1 << 63, signed=True)[0]]


def test_saturated_blocks_keep_their_own_coin(monkeypatch):
    """Where the value is cut at 2^62 the chance of acceptance is still the uncut block's."""
    sampler, _law, _found = built("bell", VARIANCES[-1])
    far = (MOST >> sampler.shift) * 64
    raw = 1 << 43  # l = 2^22
    edge = scaled(mp.exp(-exponent(sampler, far, part_of(sampler, raw))), 32)
    cut = scaled(mp.exp(-exponent(sampler, MOST >> sampler.shift, part_of(sampler, raw))), 32)
    assert edge < cut - 2
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: far)
    assert play_tries(sampler, [ONES], [raw], [edge - 1], signed=False, then=0) == [MOST]
    assert play_tries(sampler, [ONES], [raw], [edge + 1], signed=False, then=0) == []


# --- one draw -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), [case for case in CASES if "rounded" not in case.id])
def test_one_draw(kind, scale):
    sampler, _law, found = built(kind, scale)
    generator = random.Random(f"one{kind}{scale}")
    rejected = 0
    for k in range(150):
        u, low, chance = generator.getrandbits(64), generator.getrandbits(56), generator.getrandbits(64)
        if k % 10 == 0:
            u, low = 1, low >> 43 << 43  # zero, or next to it
        block, part = value_at(found, u), low % (1 << sampler.shift)
        edge = scaled(mp.exp(-exponent(sampler, block, mp.ldexp(part, -sampler.shift))), 64)
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
                    assert sampler.one() == expected
                assert tape.asked == [24] * len(play)
    assert rejected > 100


@pytest.mark.parametrize(("kind", "scale"), [case for case in CASES if "rounded" not in case.id])
def test_a_tie_of_one_draw(kind, scale):
    sampler, _law, found = built(kind, scale)
    block, part = 30, (1 << sampler.shift) - 1
    edge = scaled(mp.exp(-exponent(sampler, block, mp.ldexp(part, -sampler.shift))), 128)
    first = word((in_the_middle(found, block) << 56 | part) << 72 | edge >> 64 << 8, 192)
    with playing(first, word((edge & ONES) - 1)):
        assert sampler.one() == ((block << sampler.shift) + part, 0)
    again = word(1 << 128 | 1 << 72 | 1, 192)
    with playing(first, word((edge & ONES) + 1), again):
        assert sampler.one() == (1, 1)


def test_one_draw_far_out_in_the_tail():
    """200 ones and then chosen bits."""
    sampler, law, _found = built("bell", VARIANCES[0])
    more = 0xFEDCBA9876543210
    first = word(ONES << 128 | 1, 192)
    with playing(first, word(ONES), word(ONES), word(more)):
        size, sign = sampler.one()
    assert sign == 1
    block = size >> sampler.shift
    u = ((1 << 192) - 1) << 64 | more
    assert mp.ldexp(law(block), 256) <= u < mp.ldexp(law(block + 1), 256)
    # A coin of less than e^-¼ is beyond the series.
    first = word((ONES << 56 | 1) << 72 | scaled(mp.exp(-exponent(sampler, block, 0.5)), 64) - 1 << 8, 192)
    with playing(first, word(ONES), word(ONES), word(more)):
        assert sampler.one() == (size + 1, 0)


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "scale"), CASES)
def test_a_vector_asks_for_as_much_whatever_it_draws(kind, scale):
    sampler, _law, _found = built(kind, scale)
    lanes = sampler.table._lanes(200 + 6 + 64)
    for seed in range(30):
        tape = seeded(seed)
        with _replaying(tape):
            assert sampler.draw(200, signed=True).shape == (200,)
        # Cells, second level, L with sign, coins; what an undecided coin asks for comes once in 2^17 draws.
        assert tape.asked[:4] == [540, 8 * lanes, 2160, 1080]
        assert all(count == 8 for count in tape.asked[4:])


def test_rejected_tries_are_made_up_for():
    sampler, _law, _found = built("geometric", GEOMETRIC[1])
    generator = random.Random(1)
    rejecting = np.full(10 + 64, 2**31 - 1, dtype=np.int32).tobytes()
    with playing(
        generator.randbytes,
        generator.randbytes,
        lambda count: b"\xff" * count,  # l = 1
        rejecting,
        bytes,  # block 0
        generator.randbytes,
        lambda count: b"\xff" * count,
        bytes,
    ) as tape:
        assert sampler.draw(10, signed=False).tolist() == [1] * 10
    assert tape.asked[3] == tape.asked[7] == 4 * 74


def test_only_what_is_missing_is_drawn_again():
    sampler, _law, _found = built("geometric", GEOMETRIC[1])
    heads_first = np.full(64 + 100 + 3, 2**31 - 1, dtype=np.int32)
    heads_first[:60] = 0
    tape = Tape(
        bytes,
        bytes,
        lambda count: b"\xff" * count,
        heads_first.tobytes(),
        then=bytes,
    )
    with _replaying(tape):
        drawn = sampler.draw(100, signed=False)
    assert drawn.tolist() == [1] * 60 + [0] * 40
    assert tape.asked[3] == 4 * (100 + 3 + 64)
    assert tape.asked[7] == 4 * (40 + 1 + 64)


def test_chunks():
    sampler, _law, _found = built("geometric", GEOMETRIC[0])
    tape = seeded(2)
    with _replaying(tape):
        assert sampler.draw(60_000, signed=False).size == 60_000
    coins = [count // 4 for count in tape.asked if count == 4 * blocks._CHUNK]
    assert len(coins) == 2
    assert max(tape.asked) == 8 * blocks._CHUNK


def test_nothing_for_nothing():
    sampler, _law, _found = built("geometric", GEOMETRIC[0])
    with playing():
        drawn = sampler.draw(0, signed=True)
    assert drawn.shape == (0,)
    assert drawn.dtype == np.int64


def test_few_tries_are_rejected():
    """Fewer than 3 % as is said: 1.6 % at most by the law, so 97 % is 15 standard deviations away."""
    for kind, scale in (("geometric", GEOMETRIC[3]), ("bell", VARIANCES[3]), ("rounded", VARIANCES[0])):
        sampler = built(kind, scale)[0]
        assert sampler._tries(20_000, signed=True).size > 0.97 * 20_000
