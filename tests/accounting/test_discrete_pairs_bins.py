"""The normal law in cells, to the last digits, and what pairs say of their losses in general."""

import math

import mpmath
import numpy as np
import pytest

from hubbub.accounting.dominating_pairs import ContinuousPair, graded_grid, normal_bins, normal_masses, widen

mp = mpmath.mp.clone()
mp.dps = 60


def between(left, right):
    if right <= 0:
        left, right = -right, -left
    return (mp.erfc(left / mp.sqrt(2)) - mp.erfc(right / mp.sqrt(2))) / 2


@pytest.mark.parametrize("half", [1e-12, 1e-4, 0.004, 0.03, 0.07, 0.09, 0.5, 3.0, 20.0])
def test_normal_bins_are_accurate_to_the_last_digits(half):
    middle = np.array([-30.0, -8.2, -7.9, -3.0, -0.6, -0.01, 0.0, 0.02, 1.0, 5.0, 7.7, 8.4, 25.0])
    left, right = middle - half, middle + half
    # As wide as doubles say.
    bins = normal_bins(left, right, np.full(middle.size, half))
    masses = normal_masses(bins)
    for k in range(middle.size):
        z = (mp.mpf(float(left[k])) + mp.mpf(float(right[k]))) / 2
        truth = between(z - half, z + half)
        if truth > mp.mpf("1e-290"):
            off = mp.mpf(2) ** -50 * (8 + abs(z) * (1 + half + abs(z) / 8))
            assert abs(masses[k] - truth) <= off * truth, middle[k]
        assert bins.narrow[k] == (half * (abs(middle[k]) + 6) <= 0.5)
        # φ at the place times the share, neither of which is lost however far out.
        share = truth / mp.npdf(mp.mpf(float(bins.place[k])))
        assert abs(bins.share[k] - share) <= mp.mpf(2) ** -43 * share


def test_graded_grid_is_even_and_finer_at_both_ends():
    for most in (0.5, 80.0, 1000.0):
        places = graded_grid(most)
        assert places[0] == -most
        assert places[-1] == most
        assert places == pytest.approx(-places[::-1])
        gaps = np.diff(places)
        assert (gaps > 0).all()
        assert gaps.max() <= most / 32 * (1 + 1e-12)
        near = min(80.0, most) / 256
        assert gaps[0] == pytest.approx(near)
        assert gaps[places[1:] < -most + min(80.0, most) * 0.99].max() <= near * (1 + 1e-9)


def test_widened_interval_holds_the_true_ends():
    low, high = widen(-3.0, 5.0)
    assert (3 + low, high - 5) == pytest.approx((-48 * 2.0**-53, 80 * 2.0**-53), rel=0.3)
    assert widen(-3.0, 5.0, 0.5) == (-4.5, 7.5)
    assert widen(0.0, 0.0) == (0.0, 0.0)


def test_a_continuous_pair_has_no_atoms():
    smooth = ContinuousPair()
    assert (smooth.infinity_mass, smooth.support, smooth.atoms.size, smooth.is_discrete) == (
        0.0,
        (-math.inf, math.inf),
        0,
        False,
    )
