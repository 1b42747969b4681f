"""Charts as SVG text: of a privacy loss (trade-off function, δ(ε), loss distribution), and of results.

Those of a privacy loss are drawn from a few dozen values of the certified curve δ(ε); bounds are drawn where
they were computed, on the safe side of the truth.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.numbers import Number, as_displayed, format_percent, format_up, parse_integer

__all__ = [
    "LEGEND_HEIGHT",
    "Axis",
    "Frame",
    "draw_burn_down",
    "draw_loss_distribution",
    "draw_privacy_curve",
    "draw_tradeoff",
    "loss_distribution",
    "render_svg",
    "svg_legend",
    "svg_line",
    "svg_text",
    "tradeoff_corners",
]

Track = Callable[[Sequence[float]], Iterable[float]]
"""Yields its items one by one, and may show progress."""

_VISIBLE = 1e-3
"""What lies closer to an axis than this is invisible."""
_TOLERANCE = 1e-9
_MAX_EPSILON = 40.0
"""e^40 is steep enough for any chart."""
_FALLBACK_DELTAS = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9)


def tradeoff_corners(
    loss: PrivacyLoss, points: int = 40, *, track: Track | None = None
) -> list[tuple[float, float]]:
    """Return the corners (α, β) of a line below the trade-off function, from α = 0 to α = 1.

    >>> [(round(a, 3), round(b, 3)) for a, b in tradeoff_corners(PrivacyLoss.pure(1))]
    [(0.0, 1.0), (0.269, 0.269), (1.0, 0.0)]

    Guarantee: up to rounding, no test with false alarms α misses less than the line says.
    Assumes: what `loss` assumes.
    Proof: docs/proofs/interpretation.md, "Tests"
    """
    count = parse_integer(points, "points", minimum=2)
    top = min(_MAX_EPSILON, _epsilon_at(loss, _VISIBLE))
    end = loss.epsilon()
    grid = sorted({*_evenly_spaced(top, count), *([end] if end <= _MAX_EPSILON else [])})
    lines = [(0.0, 0.0)]
    for epsilon in _or_iter(track)(grid):
        bound = 1 - loss.delta(epsilon)
        slope = math.exp(epsilon)
        lines += [(-slope, bound), (-1 / slope, bound / slope)]
    return _upper_envelope(lines)


def draw_tradeoff(loss: PrivacyLoss, points: int = 40, *, track: Track | None = None) -> str:
    """Draw the least errors of any membership test, beside those of guessing: 1 − α.

    >>> picture = draw_tradeoff(PrivacyLoss.gaussian(1), points=10)
    >>> picture.startswith("<svg"), "1 − α" in picture
    (True, True)
    """
    frame = Frame(
        "Errors of any membership test",
        f"{loss}",
        across=Axis("type I error α", 0, 1),
        up=Axis("type II error β", 0, 1),
    )
    corners = tradeoff_corners(loss, points, track=track)
    guessing = [(0.0, 1.0), (1.0, 0.0)]
    return frame.render(
        frame.area([*corners, (1.0, 1.0), (0.0, 1.0)]),
        frame.line(guessing, "pale"),
        frame.line(corners, "main"),
        frame.text(0.5, 0.5, "guessing: 1 − α", dx=8, dy=-6),
        frame.text(0.97, 0.95, "every test lies above the curve", anchor="end"),
    )


def draw_privacy_curve(
    loss: PrivacyLoss, delta: Number | None = None, points: int = 28, *, track: Track | None = None
) -> str:
    """Draw δ at every ε, between certified bounds, on a logarithmic axis; ε at `delta` is marked.

    >>> picture = draw_privacy_curve(PrivacyLoss.gaussian(1), delta=1e-5, points=6)
    >>> "ε = 4.37718" in picture
    True
    """
    count = parse_integer(points, "points", minimum=2)
    marked = None if delta is None else loss.epsilon(delta)
    # One power of ten below the δ that is marked.
    floor = 1e-10 if not delta else min(1e-10, 10.0 ** (math.floor(math.log10(max(1e-300, delta))) - 1))
    reach = _epsilon_at(loss, floor) or 1.0
    top = 1.05 * reach
    grid = _evenly_spaced(reach, count)
    # A probability of infinite loss keeps the curve level from here on.
    grid += [top] if loss.delta(reach) > 1.01 * floor else []
    curve = [(epsilon, loss.delta_bounds(epsilon)) for epsilon in _or_iter(track)(grid)]
    upper = [(epsilon, max(floor, bounds.upper)) for epsilon, bounds in curve]
    lower = [(epsilon, max(floor, bounds.lower)) for epsilon, bounds in curve]
    frame = Frame(
        "The privacy curve δ(ε)",
        f"{loss}",
        across=Axis("ε", 0, top),
        up=Axis("δ", math.log10(floor), 0, logarithmic=True),
    )
    parts = [frame.area([*upper, *reversed(lower)]), frame.line(upper, "main")]
    if delta is not None and marked is not None and marked < math.inf:
        at = max(floor, float(delta))
        parts += [
            frame.line([(0, at), (marked, at), (marked, floor)], "mark"),
            frame.dot(marked, at),
            frame.text(marked, at, _describe_epsilon(marked, delta), dx=-8, dy=18, anchor="end")
            if marked > top / 2
            else frame.text(marked, at, _describe_epsilon(marked, delta), dx=8, dy=-8),
        ]
    return frame.render(*parts)


def loss_distribution(
    loss: PrivacyLoss, delta: Number = 1e-6, points: int = 40, *, track: Track | None = None
) -> list[tuple[float, float]]:
    """Return privacy losses with probabilities that have the curve δ(ε) at `points` ε, and above it between.

    Probability beyond the last ε, and that of an infinite loss, is given for the loss ∞. It is for display:
    between two ε the curve is taken as straight in e^ε, and both directions (a person added, a person
    removed) as the worse one.

    >>> [(loss, round(chance, 3)) for loss, chance in loss_distribution(PrivacyLoss.pure(1),
    ...     points=3) if chance > 1e-9]
    [(-1.0, 0.269), (1.0, 0.731)]
    """
    count = parse_integer(points, "points", minimum=2)
    end = loss.epsilon()
    reach = _epsilon_at(loss, float(delta))
    top = end if end <= 1.05 * reach else reach
    grid = _evenly_spaced(top, count) if top else [0.0]
    values = [loss.delta(epsilon) for epsilon in _or_iter(track)(grid)]
    step = top / (count - 1)
    above = []
    for place in range(1, len(grid)):
        into = (values[place - 1] - values[place]) / -math.expm1(-step)
        on = (values[place] - values[place + 1]) / math.expm1(step) if place + 1 < len(grid) else 0.0
        above.append((grid[place], max(0.0, into - on)))
    # In the other direction a loss has the opposite sign, and is e^loss times as rare.
    below = [(-at, chance * math.exp(-at)) for at, chance in reversed(above)]
    rest = max(0.0, 1 - values[-1] - sum(chance for _, chance in (*below, *above)))
    return [*below, (0.0, rest), *above, (math.inf, values[-1])]


def draw_loss_distribution(
    loss: PrivacyLoss, delta: Number = 1e-6, points: int = 40, *, track: Track | None = None
) -> str:
    """Draw the distribution of the privacy loss, with its mean and the ε at δ.

    >>> picture = draw_loss_distribution(PrivacyLoss.gaussian(1), delta=1e-5, points=12)
    >>> "mean" in picture, "ε = 4.37718" in picture
    (True, True)
    """
    distribution = loss_distribution(loss, delta, points, track=track)
    bars, outside = distribution[:-1], distribution[-1][1]
    most = max(chance for _, chance in bars) or 1.0
    mean = math.fsum(at * chance for at, chance in bars)
    epsilon = loss.epsilon(delta)
    width = bars[1][0] - bars[0][0] if len(bars) > 1 else 1.0
    seen = [at for at, chance in bars if chance > _VISIBLE * most]
    left = min(seen) - 2 * width
    right = max(*seen, epsilon if epsilon < math.inf else 0.0) + 2 * width
    frame = Frame(
        "Privacy loss distribution",
        f"{loss}",
        across=Axis("privacy loss (approximate)", left, right),
        up=Axis("probability", 0, 1.15 * most),
    )
    parts = [frame.bar(at, width, chance) for at, chance in bars if chance > _VISIBLE * most / 10]
    parts += [
        frame.line([(mean, 0), (mean, 1.07 * most)], "pale"),
        frame.text(mean, 1.07 * most, f"mean ≈ {mean:.3g}", dx=4, dy=4),
    ]
    if epsilon < math.inf:
        parts += [
            frame.line([(epsilon, 0), (epsilon, 0.6 * most)], "mark"),
            frame.text(epsilon, 0.6 * most, _describe_epsilon(epsilon, delta), dx=-8, anchor="end"),
        ]
    if outside > 1.5 * float(delta):
        parts.append(
            frame.text(right, 0.9 * most, f"no bound with probability {outside:.2g}", dx=-28, anchor="end")
        )
    return frame.render(*parts)


def draw_burn_down(
    moments: Sequence[tuple[str, int, float]], epsilon: str, *, today: str | None = None
) -> str:
    """Draw the room for one more charge over time, as steps, up to today.

    Args:
        moments: times (ISO 8601), numbers of charges so far, and the largest ε that one more charge could
            cost then, as a share of the budget's; in the order of the charges.
        epsilon: the budget's ε.
        today: the time until which the last one holds; the last charge's if omitted.

    >>> picture = draw_burn_down([("2026-11-01T08:00", 1, 0.9), ("2026-11-08T08:00", 2, 0.5)], "3")
    >>> "50 % is left" in picture, "2026-11-05" in picture
    (True, True)
    """
    budget = float(epsilon)
    times = [datetime.fromisoformat(when).timestamp() for when, _, _ in moments]
    end = max([*times, *([] if today is None else [datetime.fromisoformat(today).timestamp()])])
    start = min(times)
    # Some time before the first charge, when all was left.
    start -= max((end - start) * 0.04, 60.0)
    points, before = [(start, budget)], budget
    for at, (_, _, left) in zip(times, moments, strict=True):
        # Clocks may go backwards; charges are in order.
        at = max(at, points[-1][0])  # noqa: PLW2901
        points += [(at, before), (at, left * budget)]
        before = left * budget
    points.append((end, before))
    charges = moments[-1][1]
    frame = Frame(
        "What one more release may cost",
        f"after {charges:,} {'charge' if charges == 1 else 'charges'} "
        f"{format_percent(moments[-1][2], 3)} is left of ε = {epsilon}",
        across=Axis("time (UTC)", start, end, times=True),
        up=Axis("ε left for one more release", 0, budget),
    )
    label = "today" if today is not None else "now"
    return frame.render(
        frame.area([(start, 0.0), *points, (end, 0.0)]),
        frame.line(points, "main"),
        frame.line([(end, 0), (end, budget)], "mark"),
        frame.dot(end, before),
        frame.text(end, budget, f"{label}: ε = {before:.3g}", dx=-6, dy=14, anchor="end"),
    )


@dataclass(frozen=True)
class Axis:
    """An axis from `low` to `high`; powers of ten if it is logarithmic."""

    name: str
    low: float
    high: float
    logarithmic: bool = False
    times: bool = False
    """True if values are seconds since 1970."""
    is_key: bool = False
    """True if values are keys, such as years: names and no quantities, so digits are not grouped."""

    def share(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high end."""
        at = math.log10(value) if self.logarithmic else value
        return min(1.0, max(0.0, (at - self.low) / ((self.high - self.low) or 1.0)))

    def ticks(self) -> list[tuple[float, str]]:
        """Return three to seven round numbers, or times, with their names."""
        if self.times:
            return _time_ticks(self.low, self.high)
        if self.logarithmic:
            step = max(1, round((self.high - self.low) / 6))
            powers = range(int(self.high), int(self.low) - 1, -step)
            return [(10.0**power, "1" if power == 0 else f"1e{power}") for power in powers]
        rough = ((self.high - self.low) or 1.0) / 6
        size = 10.0 ** math.floor(math.log10(rough))
        step_size = size * next(factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
        first, last = math.ceil(self.low / step_size - 1e-9), math.floor(self.high / step_size + 1e-9)
        names = [(place * step_size, _tick_name(place * step_size)) for place in range(first, last + 1)]
        if self.is_key:
            return [(value, f"{value:.15g}") for value, _ in names]
        return names


def _tick_name(value: float) -> str:
    """A number as people read it on an axis.

    >>> [_tick_name(value) for value in (0.25, 12000, 2.5e6, -0.0)]
    ['0.25', '12,000', '2.5 M', '0']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g} M"
    return f"{value + 0.0:,.6g}"


_STEPS_OF_TIME = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400)
_MONTH = 30.5 * 86400
_STEPS_OF_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200)


def _time_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return up to seven times within a span, by the hour, day, month or year, as long as it is."""
    least = (high - low) / 6
    if least > _STEPS_OF_TIME[-1]:
        return _month_ticks(low, high, least / _MONTH)
    step = next(each for each in _STEPS_OF_TIME if each >= least)
    form = "%H:%M" if high - low < 86400 else "%d %b %H:%M" if step < 86400 else "%Y-%m-%d"
    first = math.ceil(low / step)
    ticks = [place * step for place in range(first, math.floor(high / step) + 1)][:7]
    return [(float(at), datetime.fromtimestamp(at, UTC).strftime(form)) for at in ticks]


def _month_ticks(low: float, high: float, least: float) -> list[tuple[float, str]]:
    """Return first days of months, or of years."""
    step = next((each for each in _STEPS_OF_MONTHS if each >= least), _STEPS_OF_MONTHS[-1])
    first, last = (datetime.fromtimestamp(end, UTC) for end in (low, high))
    months = range(-(-(12 * first.year + first.month - 1) // step) * step, 12 * last.year + last.month, step)
    ticks = []
    for month in months:
        at = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        if low <= at.timestamp() <= high:
            ticks.append((at.timestamp(), f"{at.year}" if step % 12 == 0 else f"{at.year}-{at.month:02d}"))
    return ticks


_SERIES = (
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9"),
    ("#56b4e9", "#ff8c42", "#2fd6a4", "#e6a4cb", "#f0c94d", "#9ad1ff"),
)
"""Colours of series, light and dark: those of Okabe and Ito."""


def _series_style(colours: Sequence[str]) -> str:
    return "".join(
        f".hubbub .s{place}{{stroke:{colour};stroke-width:2}}.hubbub .f{place}{{fill:{colour}}}"
        for place, colour in enumerate(colours)
    )


_STYLE = (
    ".hubbub{font:13px system-ui,sans-serif}"
    ".hubbub .back{fill:#fff}.hubbub text{fill:#1b1f24}.hubbub .small{fill:#57606a;font-size:12px}"
    ".hubbub .grid{stroke:#d8dee4}.hubbub .axis{stroke:#57606a}"
    ".hubbub .main{stroke:#0a58ca;stroke-width:2}.hubbub .area,.hubbub .bar{fill:#0a58ca}"
    ".hubbub .area{fill-opacity:.12}.hubbub .bar{fill-opacity:.6}"
    ".hubbub .pale{stroke:#57606a;stroke-dasharray:5 4}.hubbub .mark{stroke:#b4370b;stroke-dasharray:2 3}"
    ".hubbub .dot{fill:#b4370b}.hubbub .whisker{stroke:#1b1f24;stroke-width:1.5}"
    + _series_style(_SERIES[0])
    + "@media screen and (prefers-color-scheme:dark){"
    ".hubbub .back{fill:#12161c}.hubbub text{fill:#e6edf3}.hubbub .small{fill:#9aa4af}"
    ".hubbub .grid{stroke:#2b323b}.hubbub .axis{stroke:#9aa4af}"
    ".hubbub .main{stroke:#6cb0ff}.hubbub .area,.hubbub .bar{fill:#6cb0ff}"
    ".hubbub .pale{stroke:#9aa4af}.hubbub .mark{stroke:#ff9c6b}.hubbub .dot{fill:#ff9c6b}"
    ".hubbub .whisker{stroke:#e6edf3}" + _series_style(_SERIES[1]) + "}"
)
LEGEND_HEIGHT = 20
_WIDTH, _HEIGHT = 640, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 616, 64, 364


@dataclass(frozen=True)
class Frame:
    """A chart with two axes; parts are placed in the units of the axes."""

    title: str
    about: str
    across: Axis
    up: Axis
    series: Sequence[str] = ()
    """The names of several series, for a legend above the plot."""

    @property
    def height(self) -> float:
        """The height of the whole chart."""
        return _HEIGHT + self._top - _TOP

    @property
    def _top(self) -> float:
        return _TOP + (LEGEND_HEIGHT if self.series else 0)

    @property
    def _bottom(self) -> float:
        return _BOTTOM + self._top - _TOP

    def render(self, *parts: str) -> str:
        """Return the whole chart."""
        return render_svg(
            self.height, self.title, self.about, [*svg_legend(self.series), *self._axes(), *parts]
        )

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """Draw a line through points."""
        return f'<polyline class="{kind}" fill="none" points="{self._points(points)}"/>'

    def whisker(self, x: float, low: float, high: float, kind: str) -> str:
        """Draw an interval at a place, with caps at its ends."""
        (across, top), (_, bottom) = self._to_pixels(x, high), self._to_pixels(x, low)
        return (
            f'<path class="{kind}" fill="none" stroke-opacity=".65" d="M{across - 3:.2f} {top:.2f}h6'
            f'M{across:.2f} {top:.2f}V{bottom:.2f}M{across - 3:.2f} {bottom:.2f}h6"/>'
        )

    def area(self, points: Iterable[tuple[float, float]]) -> str:
        """Fill the area that points enclose."""
        return f'<polygon class="area" points="{self._points(points)}"/>'

    def band(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """Fill the area of many intervals, in the colour of their series."""
        return f'<polygon class="{kind}" fill-opacity=".25" points="{self._points(points)}"/>'

    def bar(self, at: float, width: float, height: float) -> str:
        """Draw a vertical bar that stands on the axis."""
        (left, top), (right, bottom) = (
            self._to_pixels(at - 0.42 * width, max(height, 0)),
            self._to_pixels(at + 0.42 * width, min(height, 0)),
        )
        return _bar(left, top, max(1.0, right - left), bottom - top)

    def dot(self, x: float, y: float) -> str:
        """Mark a point."""
        across, down = self._to_pixels(x, y)
        return f'<circle class="dot" cx="{across:.2f}" cy="{down:.2f}" r="4"/>'

    def text(
        self, x: float, y: float, text: str, *, dx: float = 0, dy: float = 0, anchor: str = "start"
    ) -> str:
        """Write text beside a point."""
        across, down = self._to_pixels(x, y)
        return svg_text(across + dx, down + dy, text, f'text-anchor="{anchor}"')

    def _axes(self) -> list[str]:
        parts = []
        for value, name in self.up.ticks():
            down = self._bottom - self.up.share(value) * (self._bottom - self._top)
            parts += [
                svg_line("grid", _LEFT, down, _RIGHT, down),
                svg_text(_LEFT - 8, down + 4, name, 'class="small" text-anchor="end"'),
            ]
        for value, name in self.across.ticks():
            x = _LEFT + self.across.share(value) * (_RIGHT - _LEFT)
            parts += [
                svg_line("axis", x, self._bottom, x, self._bottom + 5),
                svg_text(x, self._bottom + 20, name, 'class="small" text-anchor="middle"'),
            ]
        middle, height = (_LEFT + _RIGHT) / 2, (self._top + self._bottom) / 2
        return [
            *parts,
            f'<path class="axis" fill="none" d="M{_LEFT} {self._top}V{self._bottom}H{_RIGHT}"/>',
            svg_text(middle, self.height - 14, self.across.name, 'text-anchor="middle"'),
            svg_text(18, height, self.up.name, f'text-anchor="middle" transform="rotate(-90 18 {height})"'),
        ]

    def _points(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{x:.2f},{y:.2f}" for x, y in (self._to_pixels(*point) for point in points))

    def _to_pixels(self, x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + self.across.share(x) * (_RIGHT - _LEFT),
            self._bottom - self.up.share(y) * (self._bottom - self._top),
        )


def render_svg(height: float, title: str, about: str, parts: Iterable[str]) -> str:
    """Return an SVG document: a title, a line about it, and the parts."""
    short = about if len(about) <= 88 else f"{about[:87]}…"
    size, view = f'width="{_WIDTH}" height="{height:g}"', f'viewBox="0 0 {_WIDTH} {height:g}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hubbub" role="img" {size} {view}>',
            f"<title>{html.escape(f'{title}: {about}')}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="back" {size}/>',
            svg_text(_LEFT, 28, title, 'font-size="17" font-weight="600"'),
            svg_text(_LEFT, 48, short, 'class="small"'),
            *parts,
            "</svg>\n",
        )
    )


def svg_text(x: float, y: float, words: str, attributes: str) -> str:
    """Draw text, at a place in pixels."""
    return f'<text x="{x:.2f}" y="{y:.2f}" {attributes}>{html.escape(words)}</text>'


def svg_legend(names: Sequence[str]) -> list[str]:
    """Draw a square in its colour and the name of each series, in a line above the plot."""
    parts, x = [], float(_LEFT)
    room = (_RIGHT - _LEFT) / max(1, len(names)) / 7 - 3
    for number, name in enumerate(names):
        short = name if len(name) <= max(24 / len(names), room) else f"{name[: int(room) - 1]}…"
        parts.append(f'<rect class="f{number}" x="{x:.2f}" y="58" width="10" height="10"/>')
        parts.append(svg_text(x + 14, 67, short, 'class="small"'))
        x += 32 + 7 * len(short)
    return parts


def svg_line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Draw a straight line, between two places in pixels."""
    return f'<line class="{kind}" x1="{x1:.2f}" x2="{x2:.2f}" y1="{y1:.2f}" y2="{y2:.2f}"/>'


def _bar(x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="bar" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def _upper_envelope(lines: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners within [0, 1] of the upper envelope of lines, each a slope and its height at 0."""
    steepest: dict[float, float] = {}
    for slope, height in lines:
        steepest[slope] = max(height, steepest.get(slope, -math.inf))
    hull: list[tuple[float, float]] = []
    for slope, height in sorted(steepest.items()):
        # The last line is nowhere the highest if the new one meets the line before it first.
        while (
            len(hull) > 1
            and _intersect(hull[-2], (slope, height)) <= _intersect(hull[-2], hull[-1]) + _TOLERANCE
        ):
            hull.pop()
        hull.append((slope, height))
    corners = [_intersect(one, other) for one, other in pairwise(hull)]
    places = [0.0, *(at for at in corners if 0 < at < 1), 1.0]
    return [(at, max(slope * at + height for slope, height in hull)) for at in places]


def _intersect(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (one[1] - other[1]) / (other[0] - one[0])


def _epsilon_at(loss: PrivacyLoss, delta: float) -> float:
    """Return ε at this δ, or at the next larger δ at which an ε exists."""
    for chance in (delta, *(more for more in _FALLBACK_DELTAS if more > delta)):
        if (epsilon := loss.epsilon(chance)) < math.inf:
            return epsilon
    return 0.0


def _evenly_spaced(top: float, count: int) -> list[float]:
    return [top * place / (count - 1) for place in range(count)]


def _or_iter(track: Track | None) -> Track:
    return iter if track is None else track


def _describe_epsilon(epsilon: float, delta: Number) -> str:
    return f"ε = {format_up(as_displayed(epsilon))} at δ = {float(delta):g}"
