"""Integers and reals plus noise: the result is a function of the exact sum, rounded once."""

import math
import random
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import Unsupported
from hubbub.noise.float_grid import add_integers, add_many_on_grid, add_on_grid, grid_below
from hubbub.noise.inversion import MAX_DRAW
from hubbub.sensitivity import MAX_MAGNITUDE
from refusing import refused

MAX = sys.float_info.max
GRIDS = [Fraction(2) ** power for power in (-900, -600, -32, -1, 0, 1, 40, 900)]


# grid_below


@given(st.fractions(Fraction(1, 10**9), 10**9), st.integers(0, 60))
def test_the_grid_is_the_largest_power_of_two_that_divides_the_scale_finely_enough(scale, steps):
    grid = grid_below(scale, steps)

    assert grid * 2**steps <= scale < 2 * grid * 2**steps
    assert 1 in (grid.numerator, grid.denominator)
    assert grid.numerator.bit_count() == grid.denominator.bit_count() == 1


@pytest.mark.parametrize("power", [-70, -1, 0, 1, 70])
def test_a_power_of_two_is_its_own_grid(power):
    assert grid_below(Fraction(2) ** power, 0) == Fraction(2) ** power
    assert grid_below(Fraction(2) ** power - Fraction(1, 2**80), 0) == Fraction(2) ** (power - 1)
    assert grid_below(Fraction(2) ** power + Fraction(1, 2**80), 0) == Fraction(2) ** power


def test_grids_that_doubles_cannot_show_are_refused():
    assert grid_below(Fraction(2) ** 900, 0) == Fraction(2) ** 900
    assert grid_below(Fraction(2) ** -900, 0) == Fraction(2) ** -900
    assert grid_below(Fraction(2) ** 932, 32) == Fraction(2) ** 900
    for scale, steps in [(Fraction(2) ** 901, 0), (Fraction(2) ** -900, 1), (Fraction(1, 10**2000), 0)]:
        with refused(Unsupported, match="too large or too small"):
            grid_below(scale, steps)


# add_integers


def test_integers_add_as_integers():
    assert add_integers(40, 2) == 42
    assert type(add_integers(40, 2)) is int
    assert add_integers(2**60 + 1, -(2**60)) == 1
    out = add_integers(np.array([1, 2**60 + 1]), np.array([-5, -(2**60)]))
    assert out.tolist() == [-4, 1]
    assert out.dtype == np.int64


def test_sum_saturates_and_never_wraps():
    for sign in (1, -1):
        assert add_integers(sign * MAX_MAGNITUDE, sign) == sign * MAX_MAGNITUDE
        assert add_integers(sign * MAX_MAGNITUDE, sign * 10**40) == sign * MAX_MAGNITUDE
        assert add_integers(sign * MAX_MAGNITUDE, -sign) == sign * (MAX_MAGNITUDE - 1)
        both = np.array([sign * MAX_MAGNITUDE, 0, sign * MAX_MAGNITUDE])
        noise = np.array([sign * MAX_DRAW, sign * MAX_DRAW, -sign])
        assert add_integers(both, noise).tolist() == [
            sign * MAX_MAGNITUDE,
            sign * MAX_MAGNITUDE,
            sign * (MAX_MAGNITUDE - 1),
        ]


@given(st.integers(-MAX_MAGNITUDE, MAX_MAGNITUDE), st.integers(-(10**40), 10**40))
def test_vector_with_saturated_noise_equals_the_exact_sum(value, noise):
    """Where noise is cut at ±2^62, the clamp hides it for every value that is allowed."""
    cut = max(-MAX_DRAW, min(MAX_DRAW, noise))

    assert add_integers(np.array([value]), np.array([cut])).tolist() == [add_integers(value, noise)]


# add_on_grid


def exact_sum(value, noise, grid):
    """By rationals: round half to even, add, and round once to a double, or to the largest there is."""
    steps = value / grid
    down = math.floor(steps)
    left = steps - down
    whole = down + (left > Fraction(1, 2) or (left == Fraction(1, 2) and down % 2 == 1))
    total = (whole + noise) * grid
    if abs(total) > Fraction(MAX):
        return math.copysign(MAX, total)
    return total.numerator / total.denominator


def test_a_real_is_rounded_to_the_grid_ties_to_even():
    quarter = Fraction(1, 4)
    for value, answer in [
        (Fraction(1, 3), 0.25),
        (Fraction(1, 8), 0.0),
        (Fraction(3, 8), 0.5),
        (Fraction(-3, 8), -0.5),
    ]:
        assert add_on_grid(value, 0, quarter) == answer
    assert add_on_grid(
        np.array([1 / 3, 0.125, 0.375, -0.375]), np.zeros(4, dtype=np.int64), quarter
    ).tolist() == [
        0.25,
        0.0,
        0.5,
        -0.5,
    ]
    assert add_on_grid(7, 3, Fraction(2)) == 14.0  # 7 = 3.5 steps, to even
    assert add_on_grid(np.array([7, 5]), np.array([3, 3]), Fraction(2)).tolist() == [14.0, 10.0]


def some_doubles(grid, generator):
    yield from (0.0, 5e-324, -5e-324, MAX, -MAX, 2.0**53 * float(grid), float(grid) / 2, 1.5 * float(grid))
    for _ in range(150):
        power = generator.choice(
            [
                generator.uniform(-1070, 1022),
                generator.uniform(-60, 60),
                math.log2(grid) + generator.uniform(-3, 58),
            ]
        )
        yield generator.choice([-1, 1]) * 2.0 ** max(-1070, min(1022, power)) * (1 + generator.random() / 2)


def some_noise(generator):
    return generator.choice(
        [
            generator.randint(-5, 5),
            generator.randint(-(2**53) - 2, 2**53 + 2),
            generator.choice([-1, 1]) * (2**53 + generator.randint(-1, 2)),
            generator.randint(-MAX_DRAW, MAX_DRAW),
        ]
    )


@pytest.mark.parametrize("grid", GRIDS)
def test_doubles_of_every_size_show_the_exact_sum_rounded_once(grid):
    generator = random.Random(1)
    values = list(some_doubles(grid, generator))
    noise = [some_noise(generator) for _ in values]

    together = add_on_grid(np.array(values), np.array(noise), grid)

    assert np.isfinite(together).all()
    for value, draws, answer in zip(values, noise, together, strict=True):
        assert answer == exact_sum(Fraction(value), draws, grid)
        assert add_on_grid(Fraction(value), draws, grid) == answer


@pytest.mark.parametrize("power", [-900, -40, -1, 0, 1, 2, 31, 60, 61, 62, 70, 900])
def test_integers_beyond_doubles_show_the_exact_sum_rounded_once(power):
    grid, generator = Fraction(2) ** power, random.Random(2)
    values = (
        [generator.randint(-MAX_MAGNITUDE, MAX_MAGNITUDE) for _ in range(60)]
        + list(range(-6, 7))
        + [MAX_MAGNITUDE, -MAX_MAGNITUDE]
    )
    if 0 < power < 60:
        values += [(2 * half + 1) * 2 ** (power - 1) for half in range(-4, 4)]
    noise = [some_noise(generator) for _ in values]

    together = add_on_grid(np.array(values), np.array(noise), grid)

    assert together.dtype == np.float64
    for value, draws, answer in zip(values, noise, together, strict=True):
        assert answer == exact_sum(Fraction(value), draws, grid)
        assert add_on_grid(value, draws, grid) == answer


def test_neighbouring_integers_beyond_doubles_stay_neighbours():
    """A5: 2^60 + 128 and 2^60 + 129 become doubles 256 apart; on the grid they must stay one apart."""
    here, there = np.array([2**60 + 128]), np.array([2**60 + 129])
    for noise in (0, 1, -1, 2**32, 2**40, -(2**33)):
        moved = add_on_grid(here, np.array([noise + 2**32]), Fraction(1, 2**32))
        assert moved.tolist() == add_on_grid(there, np.array([noise]), Fraction(1, 2**32)).tolist()


@given(st.integers(-(2**70), 2**70), st.integers(-(2**55), 2**55), st.integers(-(2**40), 2**40))
def test_result_depends_on_the_sum_only(steps, noise, moved):
    grid = Fraction(1, 2**20)
    assert add_on_grid(steps * grid, noise, grid) == add_on_grid((steps + moved) * grid, noise - moved, grid)


@given(
    st.lists(
        st.tuples(st.integers(-(2**52), 2**52), st.integers(-(2**54), 2**54), st.integers(-(2**20), 2**20)),
        max_size=8,
    )
)
def test_vector_result_depends_on_the_sum_only(cells):
    grid, step = Fraction(1, 2**20), 2.0**-20
    here = np.array([float(steps) * step for steps, _, _ in cells])
    there = np.array([float(steps + moved) * step for steps, _, moved in cells])
    draws = np.array([noise for _, noise, _ in cells], dtype=np.int64)
    other = np.array([noise - moved for _, noise, moved in cells], dtype=np.int64)

    assert add_on_grid(here, draws, grid).tolist() == add_on_grid(there, other, grid).tolist()


def test_noise_beyond_64_bits_is_requested():
    calls = []

    def further(draws):
        calls.append(draws)
        return 4 * draws

    noise = np.array([MAX_DRAW, 1, -MAX_DRAW, MAX_DRAW - 1])
    answer = add_on_grid(np.zeros(4), noise, Fraction(1, 2), further)
    assert answer.tolist() == [2.0 * MAX_DRAW, 0.5, -2.0 * MAX_DRAW, float(MAX_DRAW - 1) / 2]
    assert (
        add_on_grid(np.zeros(4, dtype=np.int64), noise, Fraction(1, 2), further).tolist() == answer.tolist()
    )
    assert calls == [MAX_DRAW, -MAX_DRAW] * 2
    assert add_on_grid(np.zeros(1), np.array([MAX_DRAW]), Fraction(1)).tolist() == [float(MAX_DRAW)]


def test_every_coordinate_has_its_own_noise():
    with pytest.raises(ValueError, match="shorter"):
        add_on_grid(np.array([1, 2]), np.array([5]), Fraction(1))


def test_a_sum_beyond_all_doubles_is_the_largest_of_them():
    for sign in (1, -1):
        assert add_on_grid(sign * Fraction(MAX), sign * 2**200, Fraction(2) ** 900) == sign * MAX
        assert add_on_grid(
            np.array([sign * MAX]), np.array([sign * MAX_DRAW]), Fraction(2) ** 900
        ).tolist() == [sign * MAX]
        assert add_on_grid(np.array([sign * MAX]), np.array([sign]), Fraction(2) ** -900).tolist() == [
            sign * MAX
        ]


def test_no_value_raises_under_any_numpy_setting():
    values = np.array([5e-324, -1e-310, MAX, -MAX, 0.0, 1.0])
    with np.errstate(all="raise"):
        for grid in GRIDS:
            assert np.isfinite(add_on_grid(values, np.full(6, 3), grid)).all()


def test_empty_vector_gives_an_empty_vector():
    assert add_on_grid(np.zeros(0), np.zeros(0, dtype=np.int64), Fraction(1)).shape == (0,)
    assert (
        add_on_grid(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), Fraction(1)).dtype == np.float64
    )
    assert add_integers(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).shape == (0,)


def test_a_long_vector_is_worked_on_in_chunks(monkeypatch):
    values = np.array([0.3, -1.7, 5.0, 1e300, -2.2, 0.0, 9.9])
    steps = np.array([1, 2**60 + 1, -7, 3, -(2**61) - 1, MAX_DRAW, 4])
    grid = Fraction(1, 4)
    calls = []

    def further(draws):
        calls.append(draws)
        return 4 * draws

    whole = add_on_grid(values, steps, grid, further)
    monkeypatch.setattr("hubbub.noise.float_grid.CHUNK", 3)
    assert add_on_grid(values, steps, grid, further).tolist() == whole.tolist()
    assert calls == [MAX_DRAW, MAX_DRAW]
    alone = [add_on_grid(values[i : i + 1], steps[i : i + 1], grid, further)[0] for i in range(7)]
    assert whole.tolist() == alone


# add_many_on_grid


@pytest.mark.parametrize("grid", GRIDS)
def test_many_draws_on_one_number_show_the_exact_sums_rounded_once(grid):
    generator = random.Random(str(grid))
    doubles = [Fraction(value) for value in some_doubles(grid, generator)]
    edges = [sign * grid * (MAX_MAGNITUDE + more) for sign in (1, -1) for more in (-1, 0, 1)]
    for value in [*doubles[:40], *edges, Fraction(1, 3), 7]:
        draws = [some_noise(generator) for _ in range(20)]
        answer = add_many_on_grid(value, np.array(draws), grid, lambda sample: 2 * sample)
        whole = [2 * sample if abs(sample) >= MAX_DRAW else sample for sample in draws]
        assert answer.tolist() == [exact_sum(Fraction(value), sample, grid) for sample in whole]
        assert [add_on_grid(value, sample, grid) for sample in whole] == answer.tolist()
