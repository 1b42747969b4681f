"""Pictures of a loss: well-formed, escaped, and drawn on the safe side of what is known in closed form."""

import math
import xml.etree.ElementTree as ET
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.report.charts import (
    draw_loss_distribution,
    draw_privacy_curve,
    draw_tradeoff,
    loss_distribution,
    tradeoff_corners,
)

NORMAL = NormalDist()
SVG = "{http://www.w3.org/2000/svg}"
LOSSES = {
    "gaussian": PrivacyLoss.gaussian(1),
    "much": PrivacyLoss.gaussian(30),
    "pure": PrivacyLoss.pure(1),
    "large": PrivacyLoss.pure(1000),
    "nothing": PrivacyLoss.pure(0),
    "infinity mass": PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 100)),
    "all infinite": PrivacyLoss.approximate(0, Fraction(99, 100)),
    "concentrated": PrivacyLoss.zcdp(Fraction(1, 2)),
}


def read(picture):
    return ET.fromstring(picture)  # noqa: S314 - it is our own


def text_of(picture):
    return "|".join(element.text for element in read(picture).iter(f"{SVG}text"))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
@pytest.mark.parametrize("draw", [draw_tradeoff, draw_privacy_curve, draw_loss_distribution])
def test_every_chart_is_well_formed_with_title_and_axes(draw, loss):
    root = read(draw(loss, points=8))
    assert root.tag == f"{SVG}svg"
    assert str(loss) in root.find(f"{SVG}title").text
    assert len(list(root.iter(f"{SVG}text"))) >= 6
    width, height = (float(root.get(side)) for side in ("width", "height"))
    draws = [*root.iter(f"{SVG}polyline"), *root.iter(f"{SVG}polygon")]
    places = [place.split(",") for element in draws for place in element.get("points").split()]
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in places)
    assert places


def test_text_is_escaped_and_shortened_but_not_in_the_title(monkeypatch):
    monkeypatch.setattr(PrivacyLoss, "__str__", lambda self: "a < b & c " * 20)
    root = read(draw_tradeoff(PrivacyLoss.pure(1), points=2))
    assert "a < b & c " * 20 in root.find(f"{SVG}title").text
    assert any(element.text.endswith("…") for element in root.iter(f"{SVG}text"))


def test_charts_support_dark_mode_and_load_nothing():
    picture = draw_tradeoff(PrivacyLoss.gaussian(1), points=4)
    assert "prefers-color-scheme:dark" in picture
    assert picture.count("http") == 1  # the name of the format
    assert len(picture) < 10_000


def test_the_corners_lie_below_the_gaussian_curve_and_close_to_it():
    corners = tradeoff_corners(PrivacyLoss.gaussian(1))
    assert [corners[0][0], corners[-1]] == [0.0, (1.0, 0.0)]
    for alpha, beta in corners[1:-1]:
        truth = NORMAL.cdf(-NORMAL.inv_cdf(alpha) - 1)
        assert truth - 2e-3 <= beta <= truth + 1e-12


def test_the_corners_are_those_of_a_falling_convex_line_that_is_its_own_inverse():
    corners = tradeoff_corners(PrivacyLoss.gaussian(Fraction(3, 2)))
    slopes = [(y - v) / (x - u) for (x, y), (u, v) in pairwise(corners)]
    assert all(one <= other + 1e-9 for one, other in pairwise(slopes))
    assert slopes[-1] <= 0
    inner = [(a, b) for a, b in corners if 0.05 < a < 0.95 and 0.05 < b < 0.95]
    assert inner
    for alpha, beta in inner:
        assert any(math.isclose(alpha, b) and math.isclose(beta, a) for a, b in inner)


def test_infinity_mass_lowers_the_tradeoff_curve():
    corners = tradeoff_corners(PrivacyLoss.approximate(Fraction(1, 10), Fraction(1, 100)))
    assert corners[0] == (0.0, pytest.approx(0.99, abs=1e-12))
    assert corners[-1] == (1.0, 0.0)


def test_chart_evaluates_few_values(monkeypatch):
    calls = []
    for name in ("delta", "delta_bounds"):
        real = getattr(PrivacyLoss, name)
        monkeypatch.setattr(
            PrivacyLoss, name, lambda self, at, real=real: (calls.append(at), real(self, at))[1]
        )
    for draw in (draw_tradeoff, draw_privacy_curve, draw_loss_distribution):
        calls.clear()
        draw(PrivacyLoss.gaussian(1))
        assert 20 <= len(calls) <= 60


def test_the_distribution_of_gaussian_noise_is_a_bell_around_half_mu_squared():
    distribution = loss_distribution(PrivacyLoss.gaussian(1))
    losses, chances = zip(*distribution[:-1], strict=True)
    assert sum(chances) + distribution[-1][1] == pytest.approx(1)
    mean = sum(at * chance for at, chance in distribution[:-1])
    spread = sum((at - mean) ** 2 * chance for at, chance in distribution[:-1])
    assert mean == pytest.approx(0.5, rel=0.02)
    assert spread == pytest.approx(1, rel=0.02)
    assert losses == tuple(sorted(losses))
    for at in (-1.0, 0.0, 2.0):
        tail = sum(chance for where, chance in distribution if where > at)
        # Half a bar is how far the sum may be off.
        assert tail == pytest.approx(1 - NORMAL.cdf(at - 0.5), abs=0.03)


def test_the_distribution_has_the_curve_it_came_from():
    loss = PrivacyLoss.gaussian(2)
    distribution = loss_distribution(loss, delta=1e-6, points=20)
    for epsilon, _ in distribution[len(distribution) // 2 : -1]:
        delta = sum(
            chance * (1 if at == math.inf else -math.expm1(epsilon - at))
            for at, chance in distribution
            if at > epsilon
        )
        assert delta == pytest.approx(loss.delta(epsilon), rel=1e-6, abs=1e-12)


def test_infinity_mass_has_no_bound():
    distribution = loss_distribution(LOSSES["infinity mass"], delta=1e-6)
    assert distribution[-1] == (math.inf, pytest.approx(0.01))
    assert "no bound with probability 0.01" in text_of(draw_loss_distribution(LOSSES["infinity mass"]))
    assert "no bound" not in text_of(draw_loss_distribution(PrivacyLoss.gaussian(1)))


def test_zero_loss_is_drawn_at_zero():
    assert loss_distribution(PrivacyLoss.pure(0)) == [(0.0, 1.0), (math.inf, 0.0)]


def test_epsilon_is_marked_rounded_up_only_where_there_is_one():
    words = "ε = 4.37718 at δ = 1e-05"  # 4.377178…
    for draw in (draw_privacy_curve, draw_loss_distribution):
        assert words in text_of(draw(PrivacyLoss.gaussian(1), Fraction(1, 10**5), points=4))
        assert "at δ" not in text_of(draw(LOSSES["infinity mass"], Fraction(1, 10**5), points=4))
    assert "at δ" not in text_of(draw_privacy_curve(PrivacyLoss.gaussian(1), points=4))


@pytest.mark.parametrize(("loss", "is_wide"), [(LOSSES["gaussian"], False), (LOSSES["concentrated"], True)])
def test_bounds_of_the_curve_enclose_an_area(loss, is_wide):
    root = read(draw_privacy_curve(loss, points=6))
    places = root.find(f"{SVG}polygon").get("points").split()
    heights = [float(place.split(",")[1]) for place in places]
    upper, lower = heights[: len(heights) // 2], heights[: len(heights) // 2 - 1 : -1]
    assert any(below - above > 1 for above, below in zip(upper, lower, strict=True)) is is_wide
    assert all(below >= above for above, below in zip(upper, lower, strict=True))


def test_the_axis_reaches_below_the_delta_that_is_marked():
    root = read(draw_privacy_curve(PrivacyLoss.gaussian(1), Fraction(1, 10**30), points=4))
    line = root.find(f"{SVG}polyline[@class='mark']").get("points").split()
    at, _, floor = (float(place.split(",")[1]) for place in (line[0], line[1], line[2]))
    assert float(root.find(f"{SVG}circle").get("cy")) == at < floor - 5


def test_chart_reports_progress():
    seen = []

    def track(items):
        for item in items:
            seen.append(item)
            yield item

    for draw in (draw_tradeoff, draw_privacy_curve, draw_loss_distribution):
        seen.clear()
        draw(PrivacyLoss.gaussian(1), points=5, track=track)
        assert len(seen) == 5


@pytest.mark.parametrize("draw", [draw_tradeoff, draw_privacy_curve, draw_loss_distribution])
def test_single_point_is_refused_as_a_curve(draw):
    with pytest.raises(InvalidInput, match="points is 1"):
        draw(PrivacyLoss.gaussian(1), points=1)
