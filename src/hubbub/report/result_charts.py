"""Charts of released tables: bars, lines over dates, histograms, several series, small multiples.

Every answer is drawn with its interval. Colours are those of Okabe and Ito, which people with any colour
vision can tell apart; text is text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.numbers import format_estimate, format_percent, format_up
from hubbub.report.charts import LEGEND_HEIGHT, Axis, Frame, render_svg, svg_legend, svg_line, svg_text
from hubbub.report.text_tables import format_key

if TYPE_CHECKING:
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = ["Chart", "draw_result"]

_MAX_BARS, _MAX_ANSWERS, _MAX_PANELS, _MAX_SERIES = 60, 6, 12, 6
_MAX_WHISKERS = 60
"""More intervals than this along an axis are a band."""
_RIGHT, _TOP, _STEP, _THICKNESS, _CAP = 560, 66, 22, 14, 3.5
_WIDTH = 640
_LONGEST = 36
"""Longer keys are cut."""


@dataclass(frozen=True)
class Chart:
    """A chart that a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Chart({len(self.svg):,} characters of SVG)"


def draw_result(answers: "Result", column: str | None = None) -> str:
    """Draw the answers with their intervals, as SVG.

    By a date or a year they are lines, counts by other even numbers a histogram, and all else is bars. A
    second key of few values gives colours; a third, or a second of more values, panels with one scale; and
    so do several answers, each with its own.

    Args:
        answers: the table.
        column: the answer to draw; all of them, up to six, if omitted.
    """
    panels = [panel for each in _find_columns(answers, column) for panel in _make_panels(answers, each)]
    panels = panels[:_MAX_PANELS]
    if len(panels) == 1:
        return panels[0][0]
    height, parts = 0.0, []
    for picture, tall in panels:
        parts.append(picture.replace("<svg ", f'<svg y="{height:g}" ', 1))
        height += tall
    size = f'width="{_WIDTH}" height="{height:g}" viewBox="0 0 {_WIDTH} {height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>\n{"".join(parts)}</svg>\n'


def _find_columns(answers: "Result", name: str | None) -> "list[ResultColumn]":
    able = [column for column in answers.columns if column.low is not None]
    chosen = able[:_MAX_ANSWERS] if name is None else [column for column in able if column.name == name]
    if not chosen:
        raise InvalidInput(
            "there is no such column with an interval",
            why="only released numbers can be drawn",
            fix=f"use one of: {', '.join(column.name for column in able)}" if able else "ask with intervals",
        )
    return chosen


@dataclass(frozen=True)
class _Panel:
    """The content of one panel: an answer, by up to two keys."""

    column: "ResultColumn"
    keys: "list[ResultColumn]"
    title: str
    about: str
    low: float
    high: float

    def ends(self) -> list[tuple[float, float, float]]:
        """Each value, and the ends of its interval."""
        assert self.column.low is not None
        assert self.column.high is not None
        columns = (self.column.values, self.column.low, self.column.high)
        return [(float(value), float(low), float(high)) for value, low, high in zip(*columns, strict=True)]

    def draw(self) -> tuple[str, float]:
        """Return the picture, and its height."""
        size = len(self.column.values)
        if len(self.keys) == 1 and size > 2 and _is_ordered(self.keys[0]):
            if self.column.is_integer and size <= _MAX_BARS and (width := _find_step(self.keys[0])):
                return _draw_histogram(self, width)
            return _draw_lines(self, self.keys[0], None)
        if len(self.keys) == 2:
            # Colours are for the key of fewer values; if both have as many, for the second.
            across, series = sorted(self.keys, key=_count_values, reverse=True)
            if 1 < _count_values(series) <= _MAX_SERIES:
                if _is_ordered(across):
                    return _draw_lines(self, across, series)
                return _draw_bars(self, [across], series)
        return _draw_bars(self, self.keys, None)


def _find_keys(answers: "Result") -> "list[ResultColumn]":
    return [each for each in answers.columns if each.is_key]


def _make_panels(answers: "Result", column: "ResultColumn") -> list[tuple[str, float]]:
    """One panel, or one for each value of a key that is too much for one; these have one scale."""
    keys = _find_keys(answers)
    title, about = _title(answers, column)
    finite = [end for end in np.concatenate([column.values, column.low, column.high]) if math.isfinite(end)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    whole = _Panel(column, keys, title, about, low, high if high > low else low + 1.0)
    split = min(reversed(keys), key=_count_values, default=None)
    is_split = len(keys) == 3 or (len(keys) == 2 and min(map(_count_values, keys)) > _MAX_SERIES)
    if split is None or not is_split or not 1 < _count_values(split) <= _MAX_PANELS:
        return [whole.draw()]
    panels = []
    for name, rows in _split_rows(split).items():
        rest = [_take(each, rows) for each in keys if each is not split]
        part = f"{escape(split.name)}: {name}"
        panels.append(replace(whole, column=_take(column, rows), keys=rest, title=part, about=title))
    panels[0] = replace(panels[0], about=f"{title}; {about}")
    return [panel.draw() for panel in panels]


def _take(column: "ResultColumn", rows: Sequence[int]) -> "ResultColumn":
    at = list(rows)
    low, high = (None if part is None else part[at] for part in (column.low, column.high))
    return replace(column, values=column.values[at], low=low, high=high)


def _count_values(key: "ResultColumn") -> int:
    return len(set(map(format_key, key.values.tolist())))


def _is_ordered(key: "ResultColumn") -> bool:
    """True if keys are dates or numbers, so that what lies between two of them means something."""
    known = [value for value in key.values.tolist() if value is not None]
    is_date = all(isinstance(value, date) for value in known)
    is_number = all(isinstance(value, float) and math.isfinite(value) for value in known)
    return len(set(known)) > 2 and (is_date or is_number)


def _find_step(key: "ResultColumn") -> float | None:
    """The distance of evenly spaced numbers; None for other keys, and for years, which are times."""
    values = key.values.tolist()
    if not all(isinstance(value, float) for value in values):
        return None
    ordered = sorted(values)
    steps = [after - before for before, after in pairwise(ordered)]
    is_even = min(steps) > 0 and max(steps) - min(steps) <= 1e-9 * max(map(abs, ordered))
    is_year = all(value.is_integer() and 1500 <= value <= 2200 for value in ordered)
    return min(steps) if is_even and not is_year else None


def _split_rows(key: "ResultColumn") -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for place, name in enumerate(key.values.tolist()):
        rows.setdefault(format_key(name), []).append(place)
    return rows


def _title(answers: "Result", column: "ResultColumn") -> tuple[str, str]:
    """What is drawn, by what; and below it the kind of its intervals and its price."""
    keys = [each.name for each in _find_keys(answers)]
    title = escape(column.name + (f" by {', '.join(keys)}" if keys else ""))
    facts = answers.facts
    has_price = {"epsilon", "unit"} <= set(facts)
    price = f"; ε = {format_up(Fraction(facts['epsilon']))}" if has_price else ""
    delta = Fraction(facts.get("delta") or 0)
    price += f", δ = {format_up(delta)}" if has_price and delta else ""
    price += f" for one {facts['unit']}" if has_price else ""
    return title, escape(f"{format_percent(float(facts.get('confidence', 0.95)))} intervals{price}")


def _draw_histogram(panel: _Panel, width: float) -> tuple[str, float]:
    """Counts by evenly spaced numbers, as columns with their intervals."""
    [key] = panel.keys
    at = [float(value) for value in key.values]
    frame = Frame(
        panel.title,
        panel.about,
        across=Axis(escape(key.name), min(at) - 0.6 * width, max(at) + 0.6 * width, is_key=True),
        up=Axis(escape(panel.column.name), panel.low, panel.low + 1.05 * (panel.high - panel.low)),
    )
    parts = []
    for x, (value, lower, upper) in zip(at, panel.ends(), strict=True):
        if not math.isnan(value):
            parts += [frame.bar(x, width, value), frame.whisker(x, lower, upper, "whisker")]
    return frame.render(*parts), frame.height


def _draw_lines(panel: _Panel, key: "ResultColumn", by: "ResultColumn | None") -> tuple[str, float]:
    at = {place: _position(value) for place, value in enumerate(key.values.tolist()) if value is not None}
    series = {"": list(range(len(key.values)))} if by is None else _split_rows(by)
    ends, is_time = panel.ends(), any(isinstance(value, date) for value in key.values.tolist())
    room = (max(at.values()) - min(at.values())) * 0.02
    first, last = min(at.values()) - room, max(at.values()) + room
    top = panel.low + 1.05 * (panel.high - panel.low)
    frame = Frame(
        panel.title,
        panel.about,
        across=Axis(escape(key.name), first, last, times=is_time, is_key=True),
        up=Axis(escape(panel.column.name), panel.low, top),
        series=[] if by is None else list(series),
    )
    parts = []
    for number, places in enumerate(series.values()):
        order = sorted((place for place in places if place in at), key=lambda place: at[place])
        points = [(at[place], ends[place]) for place in order if not math.isnan(ends[place][0])]
        low = [(x, max(lower, panel.low)) for x, (_, lower, _) in points]
        high = [(x, min(upper, top)) for x, (_, _, upper) in points]
        if len(points) > _MAX_WHISKERS:
            parts.append(frame.band([*high, *reversed(low)], f"f{number}"))
        else:
            parts += [
                frame.whisker(x, lower, upper, f"s{number}")
                for (x, lower), (_, upper) in zip(low, high, strict=True)
            ]
        parts.append(frame.line([(x, value) for x, (value, _, _) in points], f"s{number}"))
    return frame.render(*parts), frame.height


def _position(value: Any) -> float:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value)


def _draw_bars(panel: _Panel, keys: "list[ResultColumn]", by: "ResultColumn | None") -> tuple[str, float]:
    """Bars with a label each; with `by`, those of one key are together, in colours."""
    column, ends = panel.column, panel.ends()
    rows = min(len(ends), _MAX_BARS)
    labels = [", ".join(format_key(key.values[place]) for key in keys) for place in range(rows)]
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        groups.setdefault(label if by is not None else f"{place}", []).append(place)
    names = [] if by is None else list(_split_rows(by))
    short = [label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…" for label in labels]
    left = min(280.0, max(68.0, 22 + 7.4 * max(map(len, short), default=0)))
    axis = Axis(column.name, panel.low, panel.high)

    def across(value: float) -> float:
        return left + (_RIGHT - left) * axis.share(min(max(value, panel.low), panel.high))

    top = float(_TOP + (LEGEND_HEIGHT if names else 0))
    step, gap = (_STEP, 0) if by is None else (_STEP - 4, 8)
    bottom = top + max(1, rows) * step + gap * len(groups)
    parts = svg_legend(names)
    for value, name in axis.ticks():
        x = across(value)
        parts += [
            svg_line("grid", x, top, x, bottom),
            svg_text(x, bottom + 17, name, 'class="small" text-anchor="middle"'),
        ]
    down = top + gap / 2
    for places in groups.values():
        middle = down + len(places) * step / 2
        parts.append(svg_text(left - 8, middle + 4, short[places[0]], 'text-anchor="end"'))
        for place in places:
            kind = "bar" if by is None else f"f{names.index(format_key(by.values[place]))}"
            parts += _draw_bar(ends[place], across, down + step / 2, kind, is_integer=column.is_integer)
            down += step
        down += gap
    zero = across(0.0)
    parts.append(svg_line("axis", zero, top, zero, bottom))
    parts.append(svg_text((left + _RIGHT) / 2, bottom + 36, escape(column.name), 'text-anchor="middle"'))
    more = len(ends) - rows
    if more:
        parts.append(svg_text(left, bottom + 52, f"and {more:,} more rows", 'class="small"'))
    tall = bottom + (62 if more else 48)
    return render_svg(tall, panel.title, panel.about, parts), tall


def _draw_bar(
    ends: tuple[float, float, float],
    across: Callable[[float], float],
    middle: float,
    kind: str,
    *,
    is_integer: bool,
) -> list[str]:
    value, lower, upper = ends
    zero = across(0.0)
    if math.isnan(value):
        return [svg_text(zero + 6, middle + 4, "NULL", 'class="small"')]
    start, end, tip = across(lower), across(upper), across(value)
    bar = f'x="{min(zero, tip):.2f}" y="{middle - _THICKNESS / 2:.2f}" width="{abs(tip - zero):.2f}"'
    caps = [f"M{at:.2f} {middle - _CAP}v{2 * _CAP}" for at in (start, end)]
    text = format_estimate(value, 0.0 if is_integer else (upper - lower) / 2)
    return [
        f'<rect class="{kind}" {bar} height="{_THICKNESS}"/>',
        f'<path class="whisker" fill="none" d="{caps[0]}M{start:.2f} {middle}H{end:.2f}{caps[1]}"/>',
        svg_text(_RIGHT + 8, middle + 4, text, 'class="small"'),
    ]
