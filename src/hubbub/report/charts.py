"""Pictures of a loss, as SVG text: the trade-off curve, δ(ε), and how the loss is distributed.

Each is drawn from a few dozen values of the certified curve δ(ε); bounds are drawn where they were
computed, on the safe side of the truth.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hubbub.accounting.privacy_loss import PrivacyLoss
from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.numbers import Number, as_displayed, format_up, parse_integer

if TYPE_CHECKING:
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = [
    "Axis",
    "Frame",
    "bars",
    "curve_picture",
    "distribution",
    "distribution_picture",
    "tradeoff_corners",
    "tradeoff_picture",
]

Track = Callable[[Sequence[float]], Iterable[float]]
"""Gives back what it is given, one by one, and may show how far it is."""

_SEEN = 1e-3
"""What lies closer to an axis than this cannot be seen."""
_SAME = 1e-9
_FARTHEST = 40.0
"""e^40 is steep enough for any picture."""
_LESS_AND_LESS = (1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9)


def tradeoff_corners(
    loss: PrivacyLoss, points: int = 40, *, track: Track | None = None
) -> list[tuple[float, float]]:
    """The corners (α, β) of a line below the trade-off curve, from α = 0 to α = 1.

    >>> [(round(a, 3), round(b, 3)) for a, b in tradeoff_corners(PrivacyLoss.pure(1))]
    [(0.0, 1.0), (0.269, 0.269), (1.0, 0.0)]

    Guarantee: up to rounding, no test with false alarms α misses less than the line says.
    Assumes: what `loss` assumes.
    Proof: docs/proofs/interpretation.md, "Tests"
    """
    count = parse_integer(points, "points", minimum=2)
    top = min(_FARTHEST, _reach(loss, _SEEN))
    end = loss.epsilon()
    grid = sorted({*_spread(top, count), *([end] if end <= _FARTHEST else [])})
    lines = [(0.0, 0.0)]
    for epsilon in _silently(track)(grid):
        kept = 1 - loss.delta(epsilon)
        slope = math.exp(epsilon)
        lines += [(-slope, kept), (-1 / slope, kept / slope)]
    return _upper_envelope(lines)


def tradeoff_picture(loss: PrivacyLoss, points: int = 40, *, track: Track | None = None) -> str:
    """The errors that a test "is this person in?" must make, beside those of guessing: 1 − α.

    >>> picture = tradeoff_picture(PrivacyLoss.gaussian(1), points=10)
    >>> picture.startswith("<svg"), "1 − α" in picture
    (True, True)
    """
    frame = Frame(
        "What an attacker must get wrong",
        f"{loss}",
        across=Axis("false alarms α", 0, 1),
        up=Axis("missed β", 0, 1),
    )
    corners = tradeoff_corners(loss, points, track=track)
    guessing = [(0.0, 1.0), (1.0, 0.0)]
    return frame.drawn(
        frame.area([*corners, (1.0, 1.0), (0.0, 1.0)]),
        frame.line(guessing, "pale"),
        frame.line(corners, "main"),
        frame.words(0.5, 0.5, "guessing: 1 − α", dx=8, dy=-6),
        frame.words(0.97, 0.95, "what is possible lies above the curve", anchor="end"),
    )


def curve_picture(
    loss: PrivacyLoss, delta: Number | None = None, points: int = 28, *, track: Track | None = None
) -> str:
    """δ at every ε, between its certified bounds, on a logarithmic axis; ε at `delta` is marked.

    >>> picture = curve_picture(PrivacyLoss.gaussian(1), delta=1e-5, points=6)
    >>> "ε = 4.37718" in picture
    True
    """
    count = parse_integer(points, "points", minimum=2)
    marked = None if delta is None else loss.epsilon(delta)
    # One power of ten below the δ that is marked.
    floor = 1e-10 if not delta else min(1e-10, 10.0 ** (math.floor(math.log10(max(1e-300, delta))) - 1))
    reach = _reach(loss, floor) or 1.0
    top = 1.05 * reach
    grid = _spread(reach, count)
    # Where something may be told, the curve goes on level.
    grid += [top] if loss.delta(reach) > 1.01 * floor else []
    found = [(epsilon, loss.delta_bounds(epsilon)) for epsilon in _silently(track)(grid)]
    upper = [(epsilon, max(floor, bounds.upper)) for epsilon, bounds in found]
    lower = [(epsilon, max(floor, bounds.lower)) for epsilon, bounds in found]
    frame = Frame(
        "The privacy curve δ(ε)",
        f"{loss}",
        across=Axis("ε", 0, top),
        up=Axis("δ", math.log10(floor), 0, logarithmic=True),
    )
    drawn = [frame.area([*upper, *reversed(lower)]), frame.line(upper, "main")]
    if delta is not None and marked is not None and marked < math.inf:
        at = max(floor, float(delta))
        drawn += [
            frame.line([(0, at), (marked, at), (marked, floor)], "mark"),
            frame.dot(marked, at),
            frame.words(marked, at, _at(marked, delta), dx=-8, dy=18, anchor="end")
            if marked > top / 2
            else frame.words(marked, at, _at(marked, delta), dx=8, dy=-8),
        ]
    return frame.drawn(*drawn)


def distribution(
    loss: PrivacyLoss, delta: Number = 1e-6, points: int = 40, *, track: Track | None = None
) -> list[tuple[float, float]]:
    """The losses and their probabilities that have the curve δ(ε) at so many ε, and above it in between.

    What lies beyond the last ε is given for the loss ∞, and so is what may be told outright. It is for
    looking at: between two ε the curve is taken as straight in e^ε, and both directions, a person added
    and removed, as bad as the worse.

    >>> [(loss, round(chance, 3)) for loss, chance in distribution(PrivacyLoss.pure(1),
    ...     points=3) if chance > 1e-9]
    [(-1.0, 0.269), (1.0, 0.731)]
    """
    count = parse_integer(points, "points", minimum=2)
    end = loss.epsilon()
    reach = _reach(loss, float(delta))
    top = end if end <= 1.05 * reach else reach
    grid = _spread(top, count) if top else [0.0]
    values = [loss.delta(epsilon) for epsilon in _silently(track)(grid)]
    step = top / (count - 1)
    above = []
    for place in range(1, len(grid)):
        into = (values[place - 1] - values[place]) / -math.expm1(-step)
        on = (values[place] - values[place + 1]) / math.expm1(step) if place + 1 < len(grid) else 0.0
        above.append((grid[place], max(0.0, into - on)))
    # Seen from the other side, a loss is its negative, and e^loss times as rare.
    below = [(-at, chance * math.exp(-at)) for at, chance in reversed(above)]
    rest = max(0.0, 1 - values[-1] - sum(chance for _, chance in (*below, *above)))
    return [*below, (0.0, rest), *above, (math.inf, values[-1])]


def distribution_picture(
    loss: PrivacyLoss, delta: Number = 1e-6, points: int = 40, *, track: Track | None = None
) -> str:
    """How large the loss is, how often: its mean, and the ε that it exceeds by hardly more than δ.

    >>> picture = distribution_picture(PrivacyLoss.gaussian(1), delta=1e-5, points=12)
    >>> "mean" in picture, "ε = 4.37718" in picture
    (True, True)
    """
    found = distribution(loss, delta, points, track=track)
    bars, outside = found[:-1], found[-1][1]
    most = max(chance for _, chance in bars) or 1.0
    mean = math.fsum(at * chance for at, chance in bars)
    epsilon = loss.epsilon(delta)
    width = bars[1][0] - bars[0][0] if len(bars) > 1 else 1.0
    seen = [at for at, chance in bars if chance > _SEEN * most]
    left = min(seen) - 2 * width
    right = max(*seen, epsilon if epsilon < math.inf else 0.0) + 2 * width
    frame = Frame(
        "How large the privacy loss is",
        f"{loss}",
        across=Axis("privacy loss (approximate picture)", left, right),
        up=Axis("probability", 0, 1.15 * most),
    )
    drawn = [frame.bar(at, width, chance) for at, chance in bars if chance > _SEEN * most / 10]
    drawn += [
        frame.line([(mean, 0), (mean, 1.07 * most)], "pale"),
        frame.words(mean, 1.07 * most, f"mean ≈ {mean:.3g}", dx=4, dy=4),
    ]
    if epsilon < math.inf:
        drawn += [
            frame.line([(epsilon, 0), (epsilon, 0.6 * most)], "mark"),
            frame.words(epsilon, 0.6 * most, _at(epsilon, delta), dx=-8, anchor="end"),
        ]
    if outside > 1.5 * float(delta):
        drawn.append(
            frame.words(right, 0.9 * most, f"no bound with probability {outside:.2g}", dx=-28, anchor="end")
        )
    return frame.drawn(*drawn)


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`; of a logarithmic one these are powers of ten."""

    name: str
    low: float
    high: float
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        at = math.log10(value) if self.logarithmic else value
        return min(1.0, max(0.0, (at - self.low) / ((self.high - self.low) or 1.0)))

    def ticks(self) -> list[tuple[float, str]]:
        """Some five round numbers and what they are called."""
        if self.logarithmic:
            step = max(1, round((self.high - self.low) / 6))
            powers = range(int(self.high), int(self.low) - 1, -step)
            return [(10.0**power, "1" if power == 0 else f"1e{power}") for power in powers]
        rough = ((self.high - self.low) or 1.0) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        step_size = size * next(factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
        first, last = math.ceil(self.low / step_size - 1e-9), math.floor(self.high / step_size + 1e-9)
        return [(place * step_size, f"{place * step_size:.6g}") for place in range(first, last + 1)]


_STYLE = (
    ".hubbub{font:13px system-ui,sans-serif}"
    ".hubbub .back{fill:#fff}.hubbub text{fill:#1b1f24}.hubbub .small{fill:#57606a;font-size:12px}"
    ".hubbub .grid{stroke:#d8dee4}.hubbub .axis{stroke:#57606a}"
    ".hubbub .main{stroke:#0a58ca;stroke-width:2}.hubbub .area,.hubbub .bar{fill:#0a58ca}"
    ".hubbub .area{fill-opacity:.12}.hubbub .bar{fill-opacity:.6}"
    ".hubbub .pale{stroke:#57606a;stroke-dasharray:5 4}.hubbub .mark{stroke:#b4370b;stroke-dasharray:2 3}"
    ".hubbub .dot{fill:#b4370b}"
    "@media (prefers-color-scheme:dark){"
    ".hubbub .back{fill:#12161c}.hubbub text{fill:#e6edf3}.hubbub .small{fill:#9aa4af}"
    ".hubbub .grid{stroke:#2b323b}.hubbub .axis{stroke:#9aa4af}"
    ".hubbub .main{stroke:#6cb0ff}.hubbub .area,.hubbub .bar{fill:#6cb0ff}"
    ".hubbub .pale{stroke:#9aa4af}.hubbub .mark{stroke:#ff9c6b}.hubbub .dot{fill:#ff9c6b}}"
)
_WIDTH, _HEIGHT = 640, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 616, 64, 364


@dataclass(frozen=True)
class Frame:
    """Axes with their names, and what is drawn between them, in the units of the axes."""

    title: str
    about: str
    across: Axis
    up: Axis

    def drawn(self, *parts: str) -> str:
        """The whole picture."""
        about = self.about if len(self.about) <= 88 else f"{self.about[:87]}…"
        size = f'width="{_WIDTH}" height="{_HEIGHT}"'
        view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        parts = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hubbub" role="img" {size} {view}>',
            f"<title>{html.escape(f'{self.title}: {self.about}')}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="back" {size}/>',
            _text(_LEFT, 28, self.title, 'font-size="17" font-weight="600"'),
            _text(_LEFT, 48, about, 'class="small"'),
            *self._axes(),
            *parts,
            "</svg>\n",
        )
        return "\n".join(parts)

    def line(self, points: Iterable[tuple[float, float]], kind: str) -> str:
        """A line through points."""
        return f'<polyline class="{kind}" fill="none" points="{self._places(points)}"/>'

    def area(self, points: Iterable[tuple[float, float]]) -> str:
        """What points enclose."""
        return f'<polygon class="area" points="{self._places(points)}"/>'

    def bar(self, at: float, width: float, height: float) -> str:
        """A bar that stands on the axis."""
        (left, top), (right, bottom) = (
            self._place(at - 0.42 * width, height),
            self._place(at + 0.42 * width, 0),
        )
        return (
            f'<rect class="bar" x="{left:.2f}" y="{top:.2f}" width="{max(1.0, right - left):.2f}" '
            f'height="{bottom - top:.2f}"/>'
        )

    def dot(self, x: float, y: float) -> str:
        """A point worth seeing."""
        across, down = self._place(x, y)
        return f'<circle class="dot" cx="{across:.2f}" cy="{down:.2f}" r="4"/>'

    def words(
        self, x: float, y: float, text: str, *, dx: float = 0, dy: float = 0, anchor: str = "start"
    ) -> str:
        """Words beside a point."""
        across, down = self._place(x, y)
        return _text(across + dx, down + dy, text, f'text-anchor="{anchor}"')

    def _axes(self) -> list[str]:
        parts = []
        for value, name in self.up.ticks():
            _, down = self._place(self.across.low, value)
            parts += [
                f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{down:.2f}" y2="{down:.2f}"/>',
                _text(_LEFT - 8, down + 4, name, 'class="small" text-anchor="end"'),
            ]
        for value, name in self.across.ticks():
            x = _LEFT + self.across.share(value) * (_RIGHT - _LEFT)
            parts += [
                f'<line class="axis" x1="{x:.2f}" x2="{x:.2f}" y1="{_BOTTOM}" y2="{_BOTTOM + 5}"/>',
                _text(x, _BOTTOM + 20, name, 'class="small" text-anchor="middle"'),
            ]
        middle, height = (_LEFT + _RIGHT) / 2, (_TOP + _BOTTOM) / 2
        return [
            *parts,
            f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}"/>',
            _text(middle, _HEIGHT - 14, self.across.name, 'text-anchor="middle"'),
            _text(18, height, self.up.name, f'text-anchor="middle" transform="rotate(-90 18 {height})"'),
        ]

    def _places(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{x:.2f},{y:.2f}" for x, y in (self._place(*point) for point in points))

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + self.across.share(x) * (_RIGHT - _LEFT),
            _BOTTOM - self.up.share(y) * (_BOTTOM - _TOP),
        )


def _text(x: float, y: float, words: str, how: str) -> str:
    return f'<text x="{x:.2f}" y="{y:.2f}" {how}>{html.escape(words)}</text>'


def _upper_envelope(lines: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners within 0 and 1 of the highest of some lines, each a slope and its height at 0."""
    steepest: dict[float, float] = {}
    for slope, height in lines:
        steepest[slope] = max(height, steepest.get(slope, -math.inf))
    hull: list[tuple[float, float]] = []
    for slope, height in sorted(steepest.items()):
        # The last one is nowhere the highest, or hardly, if the new one meets the one before it first.
        while len(hull) > 1 and _meet(hull[-2], (slope, height)) <= _meet(hull[-2], hull[-1]) + _SAME:
            hull.pop()
        hull.append((slope, height))
    corners = [_meet(one, other) for one, other in pairwise(hull)]
    places = [0.0, *(at for at in corners if 0 < at < 1), 1.0]
    return [(at, max(slope * at + height for slope, height in hull)) for at in places]


def _meet(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (one[1] - other[1]) / (other[0] - one[0])


def _reach(loss: PrivacyLoss, delta: float) -> float:
    """ε at this δ, or at the next larger one at which there is any."""
    for chance in (delta, *(more for more in _LESS_AND_LESS if more > delta)):
        if (epsilon := loss.epsilon(chance)) < math.inf:
            return epsilon
    return 0.0


def _spread(top: float, count: int) -> list[float]:
    return [top * place / (count - 1) for place in range(count)]


def _silently(track: Track | None) -> Track:
    return iter if track is None else track


def _at(epsilon: float, delta: Number) -> str:
    return f"ε = {format_up(as_displayed(epsilon))} at δ = {float(delta):g}"


# A picture of one released column, as SVG text: bars, each with its interval.

_MOST = 60
_BAR_LEFT, _BAR_WIDTH, _ROW, _BAR_TOP = 170, 640, 22, 46
_BAR_STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-size:14px;font-weight:bold}.bar{fill:#9ecae1}"
    ".whisker{stroke:#08519c;stroke-width:1.5}.axis{stroke:#999}"
)


def bars(answers: "Result", column: str | None = None) -> str:
    """One column's values as bars with their error bars, labelled by the keys."""
    chosen = _column(answers, column)
    assert chosen.low is not None
    assert chosen.high is not None
    rows = min(len(answers), _MOST)
    labels = [_label(answers, place) for place in range(rows)]
    ends = [
        float(end) for part in (chosen.values[:rows], chosen.low[:rows], chosen.high[:rows]) for end in part
    ]
    finite = [end for end in ends if math.isfinite(end)] or [0.0]
    low, high = min(0.0, *finite), max(0.0, *finite, 1e-300)

    def across(value: float) -> float:
        inside = min(max(value, low), high) if not math.isnan(value) else 0.0
        return _BAR_LEFT + (_BAR_WIDTH - _BAR_LEFT - 20) * (inside - low) / (high - low)

    zero = across(0.0)
    parts = [
        f'<text class="title" x="10" y="20">{html.escape(escape(chosen.name))}</text>',
        f'<text x="10" y="36">intervals: {float(answers.facts.get("confidence", 0.95)):.0%}</text>',
        f'<line class="axis" x1="{zero:.1f}" y1="{_BAR_TOP}" x2="{zero:.1f}" y2="{_BAR_TOP + rows * _ROW}"/>',
    ]
    for place in range(rows):
        middle = _BAR_TOP + place * _ROW + _ROW / 2
        value = across(float(chosen.values[place]))
        start, end = across(float(chosen.low[place])), across(float(chosen.high[place]))
        left, size, label = min(zero, value), abs(value - zero), html.escape(labels[place])
        parts += [
            f'<text x="{_BAR_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{label}</text>',
            f'<rect class="bar" x="{left:.1f}" y="{middle - 7:.1f}" width="{size:.1f}" height="14"/>',
            f'<line class="whisker" x1="{start:.1f}" y1="{middle:.1f}" x2="{end:.1f}" y2="{middle:.1f}"/>',
        ]
    height = _BAR_TOP + rows * _ROW + 30
    foot = f'<text x="{_BAR_LEFT}" y="{height - 10}">{low:g}</text>'
    foot += f'<text x="{_BAR_WIDTH - 20}" y="{height - 10}" text-anchor="end">{high:g}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_BAR_WIDTH} {height}" role="img">'
        f"<style>{_BAR_STYLE}</style>{''.join(parts)}{foot}</svg>\n"
    )


def _column(answers: "Result", name: str | None) -> "ResultColumn":
    able = [column for column in answers.columns if column.low is not None]
    for column in able:
        if name is None or column.name == name:
            return column
    raise InvalidInput(
        "there is no such column with an interval",
        why="only released numbers can be drawn",
        fix=f"use one of: {', '.join(column.name for column in able)}",
    )


def _label(answers: "Result", place: int) -> str:
    keys = [column.values[place] for column in answers.columns if column.low is None]
    said = ", ".join(
        "—" if key is None else f"{key:g}" if isinstance(key, float) else escape(key) for key in keys
    )
    return said if len(said) <= 24 else said[:23] + "…"
