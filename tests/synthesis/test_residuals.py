"""Residuals: the integer transform, its sensitivity by enumeration, and the noise on it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from hubbub.errors import Unsupported
from hubbub.sensitivity import MAX_MAGNITUDE
from hubbub.synthesis.residuals import ResidualNoise, residual_cost
from hubbub.unit import Neighbours, Unit

SHAPES = [(), (2,), (5,), (2, 2), (2, 3), (3, 4), (2, 3, 4), (2, 2, 2)]


def make_noise(shape, neighbours=Neighbours.ADD_REMOVE, *, scale=1, max_weight=1, mu=Fraction(1, 5)):
    return ResidualNoise(shape, Unit.row(neighbours), scale, max_weight, mu)


def basis(shape):
    cells = int(np.prod(shape))
    return [each.reshape(shape) for each in np.eye(cells, dtype=np.int64)]


def project(table):
    """The residual of a table: zero sums along every axis."""
    rest = table.astype(float)
    for axis in range(table.ndim):
        rest = rest - rest.mean(axis, keepdims=True)
    return rest


def exact_square(noise, table):
    return sum(int(x) ** 2 for x in noise.integers(table))


@pytest.mark.parametrize("shape", SHAPES)
def test_one_unit_moves_the_integers_within_their_sensitivity(shape):
    noise = make_noise(shape)
    squares = [exact_square(noise, table) for table in basis(shape)]
    assert max(squares) <= noise.sensitivity.l2_squared
    # The bound is nearly attained: rows fall short of their norm by 2^-7 at most.
    assert max(squares) >= noise.sensitivity.l2_squared * Fraction(98, 100)


@pytest.mark.parametrize("shape", SHAPES)
def test_substituted_unit_moves_the_integers_within_their_sensitivity(shape):
    noise = make_noise(shape, Neighbours.SUBSTITUTE)
    vectors = [*basis(shape), np.zeros(shape, dtype=np.int64)]
    moves = [exact_square(noise, one - two) for one, two in itertools.product(vectors, repeat=2)]
    assert max(moves) <= noise.sensitivity.l2_squared
    assert max(moves) >= noise.sensitivity.l2_squared * Fraction(98, 100)


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", Neighbours)
def test_unit_with_several_weighted_rows_moves_no_further(neighbours):
    noise = make_noise((2, 3), neighbours, scale=4, max_weight=2)
    # All ways to spread at most 8 over 6 cells, and the differences of two of them.
    spreads = [each for each in itertools.product(range(0, 9, 2), repeat=6) if sum(each) <= 8]
    tables = [np.array(each).reshape(2, 3) for each in spreads]
    squares = [exact_square(noise, table) for table in tables]
    assert max(squares) <= noise.sensitivity.l2_squared
    if neighbours is Neighbours.SUBSTITUTE:
        corners = [table for table in tables if np.count_nonzero(table) <= 2 and table.sum() == 8]
        moves = [exact_square(noise, one - two) for one in corners for two in tables]
        assert max(moves) <= noise.sensitivity.l2_squared


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape])
def test_no_row_of_the_transform_exceeds_its_norm(shape):
    noise = make_noise(shape)
    rows = np.stack([noise.integers(table) for table in basis(shape)]).astype(object)
    squares = (rows**2).sum(axis=0)
    assert squares.max() <= noise.row_norm**2
    # Rows are orthogonal, so that the noise along them is independent.
    for one, two in itertools.combinations(rows.T, 2):
        assert sum(one * two) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_without_noise_the_residual_is_the_projection(shape):
    table = (np.arange(int(np.prod(shape))) ** 2 % 7).reshape(shape)
    noise = make_noise(shape)
    residual = type(noise.measure(table))(noise, noise.integers(table))
    assert np.allclose(residual.values, project(table))


def test_measured_residual_has_the_planned_variance():
    # 4,900 contrasts: the mean square has a relative deviation of √(2/4900) = 2 %; seven of these are 1e-11.
    noise = make_noise((71, 71), mu=Fraction(1, 50))
    values = noise.measure(np.zeros((71, 71), dtype=np.int64)).values
    variance = (values**2).sum() / 70**2
    assert 0.85 < variance / noise.sigma**2 < 1.15
    assert np.abs(values.sum(0)).max() < 1e-6


def test_loss_of_the_release_is_at_most_mu():
    for shape in SHAPES:
        noise = make_noise(shape, scale=16, max_weight=3, mu=Fraction(1, 7))
        loss = noise.mechanism.loss()
        assert loss.rho <= Fraction(1, 7) ** 2 / 2
        assert loss.rho >= Fraction(1, 7) ** 2 / 2 * Fraction(999, 1000)


def test_sums_beyond_64_bits_are_clamped_and_never_wrap():
    noise = make_noise((2, 2))
    table = np.array([[MAX_MAGNITUDE, 0], [0, MAX_MAGNITUDE]])
    assert noise.integers(table).tolist() == [MAX_MAGNITUDE]
    assert noise.measure(table).values.shape == (2, 2)


def test_residual_of_one_cell_costs_nothing():
    assert residual_cost((1, 5), Neighbours.ADD_REMOVE) == 0
    assert residual_cost((1,), Neighbours.SUBSTITUTE) == 0


def test_noise_too_wide_for_64_bits_is_refused():
    with pytest.raises(Unsupported, match="wider than 2\\^46"):
        _ = make_noise((5000, 5000), scale=1 << 16, max_weight=1 << 10).row_norm
