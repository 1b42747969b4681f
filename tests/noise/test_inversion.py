import threading
from bisect import bisect_left, bisect_right
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.noise import inversion
from hubbub.noise.enclosures import enclose_fraction, exp_neg
from hubbub.noise.inversion import MAX_DRAW, Table, is_below, lanes_needed, padded_rounds, saturate
from internals import inject_bits
from noise import bits
from noise.bits import ONES, draw_at, mp, playing, scaled, seeded, thresholds, value_at, word

CASES = {
    "geometric 1/10": (partial(inversion.geometric, Fraction(1, 10)), bits.geometric(Fraction(1, 10)), False),
    "geometric 7/3": (partial(inversion.geometric, Fraction(7, 3)), bits.geometric(Fraction(7, 3)), False),
    "geometric 64": (partial(inversion.geometric, Fraction(64)), bits.geometric(Fraction(64)), False),
    "laplace 1/2": (
        partial(inversion.discrete_laplace_size, Fraction(1, 2)),
        bits.discrete_laplace(Fraction(1, 2)),
        True,
    ),
    "laplace 63.99": (
        partial(inversion.discrete_laplace_size, Fraction(6399, 100)),
        bits.discrete_laplace(Fraction(6399, 100)),
        True,
    ),
    "rounded 7/3": (
        partial(inversion.rounded_gaussian_size, Fraction(7, 3)),
        bits.rounded_gaussian(Fraction(7, 3)),
        True,
    ),
    "rounded 20": (partial(inversion.rounded_gaussian_size, Fraction(20)), bits.rounded_gaussian(20), True),
    "stairs 40²": (partial(inversion.gaussian_stairs, Fraction(1600)), bits.gaussian_stairs(1600), False),
    "bell 64²": (partial(inversion.half_gaussian, Fraction(4096)), bits.half_gaussian(4096), False),
    "gaussian 9/4": (
        partial(inversion.discrete_gaussian_size, Fraction(9, 4)),
        bits.discrete_gaussian(Fraction(9, 4)),
        True,
    ),
    "gaussian 64²": (
        partial(inversion.discrete_gaussian_size, Fraction(4096)),
        bits.discrete_gaussian(4096),
        True,
    ),
}
_thresholds = {}


@pytest.fixture(params=CASES)
def case(request):
    """A table, the law it must follow, and that law's thresholds to 64 bits."""
    steps, law, signed = CASES[request.param]
    if request.param not in _thresholds:
        _thresholds[request.param] = thresholds(law)
    return Table(steps, signed=signed), law, _thresholds[request.param]


# --- the comparison -------------------------------------------------------------------------------


def test_below_reads_only_the_bits_it_needs():
    x = partial(enclose_fraction, Fraction(1, 3))
    third = (1 << 64) // 3
    with playing():
        assert is_below(third - 1, 64, x)
        assert not is_below(third + 1, 64, x)
    with playing(word(third - 1)):
        assert is_below(third, 64, x)
    with playing(word(third), word(third), word(third + 1)):
        assert not is_below(third, 64, x)
    with playing(word(third), word(third), word(third - 1)):
        assert is_below(third, 64, x)
    with playing(word(0)):
        assert is_below((1 << 32) // 3, 32, x)


def test_below_a_dyadic_number_is_decided_at_once():
    with playing():
        assert is_below((1 << 63) - 1, 64, partial(enclose_fraction, Fraction(1, 2)))
        assert not is_below(1 << 63, 64, partial(enclose_fraction, Fraction(1, 2)))
        assert is_below(ONES, 64, partial(enclose_fraction, Fraction(1)))
        assert not is_below(0, 64, partial(enclose_fraction, Fraction(0)))


@given(st.fractions(0, 30, max_denominator=10**6), st.integers(0, ONES), st.integers(0, ONES))
def test_below_is_the_comparison(x, first, second):
    exact = mp.exp(-bits.real(x))
    for u in {first, scaled(exact, 64) - 1, scaled(exact, 64), scaled(exact, 64) + 1}:
        if 0 <= u <= ONES:
            with inject_bits(bits.Tape(word(second), then=0)):
                heads = is_below(u, 64, partial(exp_neg, x))
            assert heads == ((u << 64 | second) < mp.ldexp(exact, 128))


@pytest.mark.parametrize("value", [0, 1, -1, MAX_DRAW - 1, MAX_DRAW, -MAX_DRAW])
def test_values_that_fit_are_not_saturated(value):
    assert saturate(value) == value


@pytest.mark.parametrize("value", [MAX_DRAW + 1, 10**30])
def test_values_that_do_not_fit_are_saturated(value):
    assert MAX_DRAW == 2**62
    assert saturate(value) == MAX_DRAW
    assert saturate(-value) == -MAX_DRAW


# --- the law, from the code that ships ------------------------------------------------------------

# What 64 bits leave open is taken upwards, then downwards: bounds on Pr[size < j] from both sides.
# That the search itself decides it rightly is shown further down.
TIES = ((bisect_right, lambda u, x: u <= x), (bisect_left, lambda u, x: u >= x))


@pytest.mark.slow
def test_every_guide_entry_is_correct(case):
    built, _law, result = case
    signed = built._signed
    cells = np.arange(1 << 16, dtype=np.uint16)
    with playing(cells.tobytes(), then=0):
        draws = built.draw(1 << 16)
    undecided = built._get_guide() == np.iinfo(np.int16).min
    width = 49 if signed else 48
    # Two passes: where the guide answers, the whole cell lies between two thresholds of the law.
    for sign in range(1 + signed):
        half = slice(sign << 15, (sign + 1) << 15) if signed else slice(None)
        sizes = -draws[half] if sign else draws[half]
        assert sizes.min() >= 0
        for cell in np.flatnonzero(~undecided[half]):
            size, start = int(sizes[cell]), int(cell) << width
            assert size == 0 or result[size - 1] < start
            assert start + (1 << width) <= result[size]
        # Each cell left open holds a threshold: no more are open than must be.
        open_cells = set(np.flatnonzero(undecided[half]).tolist())
        assert open_cells == {threshold >> width for threshold in result} | {(ONES >> width)}
    assert built._ambiguous == undecided.mean()


def test_every_threshold_matches_bisection(case, monkeypatch):
    built, law, result = case
    sample = range(1, len(result)) if len(result) < 300 else range(1, len(result), len(result) // 200)
    expected = np.array(sample, dtype=np.int64)
    exact = [mp.ldexp(law(j), 64) for j in sample]
    for negative in (False, True) if built._signed else (False,):
        for resolve, is_bound in TIES:
            monkeypatch.setattr(Table, "_search", lambda self, u, bits, resolve=resolve: resolve(result, u))
            least = np.zeros(len(sample), dtype=np.uint64)
            most = np.full(len(sample), ONES, dtype=np.uint64)
            for _ in range(64):
                middle = least + (most - least) // np.uint64(2)
                draws = draw_at(built, middle, negative=negative)
                reached = (-draws if negative else draws) >= expected
                most = np.where(reached, middle, most)
                least = np.where(reached | (least == most), least, middle + np.uint64(1))
            assert (least == most).all()
            for u, x in zip(most.tolist(), exact, strict=True):
                assert is_bound(u, x)
                assert abs(u - x) <= 2  # of 2^64: a gap below 2e-19


def test_pick_matches_bisection(case, monkeypatch):
    built, law, result = case
    sample = range(1, len(result), max(1, len(result) // 40))
    for resolve, is_bound in TIES:
        monkeypatch.setattr(Table, "_search", lambda self, u, bits, resolve=resolve: resolve(result, u))
        for j in sample:
            least, most = 0, ONES
            while least < most:
                middle = (least + most) // 2
                if built.value_at(middle) >= j:
                    most = middle
                else:
                    least = middle + 1
            x = mp.ldexp(law(j), 64)
            assert is_bound(least, x)
            assert abs(least - x) <= 2


def test_scalar_and_vector_paths_agree(case):
    built, _law, result = case
    us = np.frombuffer(bits.random.Random(5).randbytes(8 * 5000), dtype=np.uint64)
    draws = draw_at(built, us)
    assert draws.tolist() == [built.value_at(u) for u in us.tolist()]
    assert draws.tolist() == [value_at(result, u) for u in us.tolist()]
    if built._signed:
        assert draw_at(built, us, negative=True).tolist() == (-draws).tolist()


def test_find_is_pick_for_many(case):
    built, _law, result = case
    if built._signed:
        return
    generator = bits.random.Random(6)
    us = [generator.getrandbits(64) for _ in range(3000)]
    us += [u + step for u in result[: len(result) // 2 + 1] for step in (-3, 3)]
    with playing():
        values, decided = built.values_at(np.array(us, dtype=np.uint64))
        assert decided.all()
        assert values.tolist() == [value_at(result, u) for u in us]
        assert built._lows[0] <= result[0] < built._highs[0]  # a tie
        values, decided = built.values_at(np.array([5, result[0], ONES], dtype=np.uint64))
    assert decided.tolist() == [True, False, False]
    assert values[0] == 0


def test_settle_returns_the_bits_it_used(case):
    built, law, result = case
    j = len(result) // 2 + 1
    digits = scaled(law(j), 192)
    assert built.resolve(result[j - 1] - 3, 64) == (j - 1, result[j - 1] - 3, 64)
    for step, answer in ((-2, j - 1), (2, j)):
        assert 0 <= (digits & ONES) + step <= ONES
        with playing(word(digits >> 64 & ONES), word((digits & ONES) + step)):
            assert built.resolve(digits >> 128, 64) == (answer, digits + step, 192)
        with playing(word((digits & ONES) + step)):
            assert built.resolve(digits >> 64, 128) == (answer, digits + step, 192)


def test_zero_has_its_exact_probability(case):
    built, law, _steps = case
    assert abs(built.chance_of_zero - law(1)) < 1e-15


def test_one_draw_reads_the_value_above_and_the_sign_below(case):
    built, _law, result = case
    for u, low in ((1 << 63, 0), (1 << 63, 1), (3 << 62, 0xFE), (3 << 62, 0xFF)):
        with playing(word(u << 8 | low, 72)) as tape:
            assert built.draw_one() == (value_at(result, u), low & 1)
        assert tape.requests == [9]


# --- ties and the far tail ------------------------------------------------------------------------


def test_a_tie_is_decided_by_the_bits_that_follow(case):
    built, law, result = case
    for j in {1, 2, len(result) // 3, len(result) // 2} & set(range(1, len(result))):
        digits = scaled(law(j), 256)
        first, rest = digits >> 192, [digits >> 128 & ONES, digits >> 64 & ONES, digits & ONES]
        # One unit at a depth of 64 to 256 bits tells j − 1 and j apart.
        for depth in range(3):
            tied = [word(part) for part in rest[:depth]]
            for step, answer in ((-1, j - 1), (1, j)):
                if 0 <= rest[depth] + step <= ONES:
                    with playing(*tied, word(rest[depth] + step)):
                        assert built.value_at(first) == answer


def test_tie_in_a_vector_is_decided_by_more_bits(case):
    built, law, result = case
    if len(result) < 4:
        return
    j = 2
    digits = scaled(law(j), 128)
    # Where the precise place of the threshold is no tie at 64 bits (it never is here), say so.
    assert built._lows[j - 1] <= digits >> 64 < built._highs[j - 1]
    prefix = 15 if built._signed else 16
    u = digits >> 64
    fresh = np.array([(u << prefix) & ONES], dtype=np.uint64).tobytes()
    for negative in range(1 + built._signed):
        for step, answer in ((-1, j - 1), (1, j)):
            cells = np.array([u >> 64 - prefix | negative << 15], dtype=np.uint16).tobytes()
            with playing(cells, lambda count: fresh + bytes(count - 8), word((digits & ONES) + step)):
                draws = built.draw(1)
            assert draws.tolist() == [-answer if negative else answer]


def test_far_tail_follows_the_law(case):
    built, law, _steps = case
    generator = bits.random.Random(11)
    for depth in (1, 2, 3):
        # 64·depth ones, then bits that are not: U is within 2^-64·depth of 1.
        more = generator.getrandbits(64) >> 1
        u = ((1 << 64 * depth) - 1) << 64 | more
        with playing(*[word(ONES)] * (depth - 1), word(more), then=lambda count: word(0)):
            value = built.value_at(ONES)
        precision = 64 * (depth + 1)
        assert mp.ldexp(law(value), precision) <= u < mp.ldexp(law(value + 1), precision)


def test_far_values_of_a_vector_are_returned_separately():
    built = Table(partial(inversion.geometric, Fraction(3)))
    tail = np.full(3, 0xFFFF, dtype=np.uint16)
    tail[1] = 0

    def refine(count):
        return np.full(count // 8, ONES, dtype=np.uint64).tobytes()

    follow = [word(5 << 60), word(1)]
    expected = [
        int(mp.floor(-3 * mp.log(1 - (mp.mpf((ONES << 64) + more) / mp.ldexp(1, 128)))))
        for more in (5 << 60, 1)
    ]
    with playing(tail.tobytes(), refine, *follow):
        values, zeros, far = built.draw_with_zeros(3)
    assert values.tolist() == [expected[0], 0, expected[1]]
    assert zeros.tolist() == [1]
    assert far == {0: expected[0], 2: expected[1]}
    assert all(value > 130 for value in expected)
    with playing(tail.tobytes(), refine, *follow):
        assert built.draw(3).tolist() == [expected[0], 0, expected[1]]


@pytest.mark.parametrize("size", [2**62 - 1, 2**62, 2**62 + 1, 10**40])
def test_a_vector_saturates(monkeypatch, size):
    built = Table(partial(inversion.discrete_laplace_size, Fraction(3)), signed=True)
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: size)
    both = np.array([0xFFFF, 0x7FFF], dtype=np.uint16)
    with playing(both.tobytes(), then=0xFF):
        assert built.draw(2).tolist() == [-min(size, 2**62), min(size, 2**62)]
    unsigned = Table(partial(inversion.geometric, Fraction(3)))
    with playing(both[:1].tobytes(), then=0xFF):
        values, zeros, far = unsigned.draw_with_zeros(1)
    assert far == {0: size}
    assert values.tolist() == [min(size, 2**62)]
    assert zeros.size == 0


def test_far_values_find_their_place_in_later_chunks(monkeypatch):
    monkeypatch.setattr(inversion, "_CHUNK", 4)
    monkeypatch.setattr(Table, "_search", lambda self, u, bits: 77)
    built = Table(partial(inversion.geometric, Fraction(3)))
    cells = np.array([0, 0, 0, 0, 0, 0, 0xFFFF, 0, 0], dtype=np.uint16)
    parts = [cells[start : start + 4].tobytes() for start in (0, 4, 8)]
    with playing(parts[0], 0xFF, parts[1], 0xFF, parts[2], 0xFF):
        values, zeros, far = built.draw_with_zeros(9)
    assert far == {6: 77}
    assert zeros.tolist() == [0, 1, 2, 3, 4, 5, 7, 8]
    assert values.tolist() == [0, 0, 0, 0, 0, 0, 77, 0, 0]


# --- work -----------------------------------------------------------------------------------------


def test_work_does_not_depend_on_the_draw(case):
    built, _law, _steps = case
    built._get_guide()
    count = 1000
    lanes = built._lanes(count)
    generator = bits.random.Random(3)
    typical = [generator.getrandbits(64) for _ in range(count)]
    for us in ([0] * count, [1 << 63] * count, typical):
        undecided = (built._get_guide()[np.array(us, dtype=np.uint64) >> np.uint64(48)] < -32767).sum()
        if undecided <= lanes:
            tape = bits.Tape(np.array(us, dtype=np.uint64).view(np.uint16)[3::4].tobytes(), then=1)
            with inject_bits(tape):
                built.draw(count)
            assert tape.requests == [2 * count, 8 * lanes]


def test_work_does_not_depend_on_real_draws_either(case):
    built, _law, _steps = case
    for seed in range(50):
        tape = seeded(seed)
        with inject_bits(tape):
            built.draw(500)
        assert tape.requests == [1000, 8 * built._lanes(500)]


def test_the_second_level_works_on_all_its_lanes(case, monkeypatch):
    built, _law, _steps = case
    seen = []
    locate = Table._locate
    built._get_guide()
    monkeypatch.setattr(Table, "_locate", lambda self, u: (seen.append(u.size), locate(self, u))[1])
    for us in ([0] * 40, list(range(0, ONES, ONES // 39))):
        draw_at(built, us)
    assert set(seen) == {built._lanes(40)}


def test_excess_draws_are_handled_in_rounds():
    built = Table(partial(inversion.geometric, Fraction(64)))
    u = scaled(bits.geometric(64)(3), 64)
    us = [u + (-1000 if i % 2 else 1000) for i in range(100)]
    assert built._lanes(100) < 50
    assert draw_at(built, us).tolist() == [2 if i % 2 else 3 for i in range(100)]


def test_find_works_on_all_its_lanes(monkeypatch):
    built = Table(partial(inversion.geometric, Fraction(64)))
    built._get_guide()
    seen = []
    locate = Table._locate
    monkeypatch.setattr(Table, "_locate", lambda self, u: (seen.append(u.size), locate(self, u))[1])
    u = scaled(bits.geometric(64)(3), 64)
    for us in ([0] * 100, [0] * 99 + [u + 9], [u + (-9 if i % 2 else 9) for i in range(100)]):
        values, _ = built.values_at(np.array(us, dtype=np.uint64))
    assert values.tolist() == [2 if i % 2 else 3 for i in range(100)]
    lanes = built._lanes(100)
    assert seen == [lanes] * (2 + -(-100 // lanes))


def test_rounds_cover_all_draws():
    def as_lists(waiting, lanes):
        return [
            (part.tolist(), padded.tolist())
            for part, padded in padded_rounds(np.array(waiting, np.intp), lanes)
        ]

    assert as_lists([], 3) == [([], [0, 0, 0])]
    assert as_lists([4, 7], 3) == [([4, 7], [4, 7, 0])]
    assert as_lists([4, 7, 9], 3) == [([4, 7, 9], [4, 7, 9])]
    assert as_lists([4, 7, 9, 11], 3) == [([4, 7, 9], [4, 7, 9]), ([11], [11, 0, 0])]


def test_lanes_suffice_almost_always():
    for mean in [mp.mpf(2) ** (k / mp.mpf(4)) for k in range(-60, 80)]:
        lanes = lanes_needed(float(mean))
        # Chernoff: Pr[N ≥ n] ≤ exp(n − μ − n·ln(n/μ)) for a sum of independent coins of mean μ.
        n = lanes + 1
        assert mp.exp(n - mean - n * mp.log(n / mean)) < mp.ldexp(1, -50)
        assert lanes <= mean + 9 * mp.sqrt(mean) + 10
    assert lanes_needed(0) == 9
    assert lanes_needed(4) == 4 + 18 + 9
    built = Table(partial(inversion.geometric, Fraction(3)))
    built._get_guide()
    assert built._lanes(1000) == lanes_needed(1000 * built._ambiguous)


def test_every_search_takes_as_many_steps(case):
    built, _law, result = case

    class Counted(int):
        steps = 0

        def __lt__(self, other):
            Counted.steps += 1
            return int(self) < other

    places = set()
    for threshold in result[:: max(1, len(result) // 60)]:
        for u in (threshold - 3, threshold + 3):
            if 0 <= u < ONES - 2**16:
                Counted.steps = 0
                built.value_at(Counted(u))
                places.add(Counted.steps)
    # As many as the entries that 64 bits can tell from 1 make necessary, and one for the lower end.
    entries = next(j for j, (_, high) in enumerate(built._steps(64)) if high >= 1 << 64)
    assert places == {entries.bit_length() + 1}


def test_vectors_are_drawn_in_chunks():
    built = Table(partial(inversion.geometric, Fraction(3)))
    tape = seeded(1)
    with inject_bits(tape):
        draws = built.draw((1 << 17) + 3)
    assert draws.shape == ((1 << 17) + 3,)
    assert draws.dtype == np.int64
    assert tape.requests == [1 << 18, 8 * built._lanes(1 << 17), 6, 8 * built._lanes(3)]


def test_nothing_is_drawn_for_an_empty_vector():
    with playing():
        assert Table(partial(inversion.geometric, Fraction(3))).draw(0).shape == (0,)


# --- what a table is built from -------------------------------------------------------------------


def test_bounds_that_do_not_rise_are_bounds_still():
    # Thresholds 0.25, 0.5, 0.5 + tiny, …: the second's upper bound is above the third's.
    quarter = 1 << 62

    def steps(precision):
        scale = 1 << precision - 64
        yield from (
            ((quarter - 1) * scale, (quarter + 1) * scale),
            ((2 * quarter - 9) * scale, (2 * quarter + 9) * scale),
            ((2 * quarter - 9) * scale, (2 * quarter + 1) * scale),
            ((3 * quarter) * scale, (3 * quarter + 1) * scale),
        )
        while True:
            yield (1 << precision) - 1, 1 << precision

    built = Table(steps)
    assert list(built._highs)[:4] == [quarter + 1, 2 * quarter + 9, 2 * quarter + 9, 3 * quarter + 1]
    assert built.value_at(2 * quarter + 9) == 3
    assert draw_at(built, [0, quarter + 1, 2 * quarter + 9, 3 * quarter + 1]).tolist() == [0, 1, 3, 4]


def test_nearly_constant_law_is_sampled():
    built = Table(partial(inversion.geometric, Fraction(1, 10**6)))
    with playing():
        assert built.value_at(0) == built.value_at(ONES - 1) == 0
    with playing(word(ONES), word(ONES), word(ONES - 1)):
        assert built.value_at(ONES) == 0
    with playing(b"\xff\xff", 0xFF, word(0)):
        assert built.draw(1).tolist() == [0]
    assert built._ambiguous == 2.0**-16


def test_threads_build_the_same_guide():
    for _ in range(20):
        built = Table(partial(inversion.geometric, Fraction(2)), signed=True)
        gate = threading.Barrier(4)

        def ready(_, built=built, gate=gate):
            gate.wait()
            guide = built._get_guide()
            return guide.tobytes(), built._ambiguous

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(ready, range(4)))) == 1
        assert built._ambiguous > 0
