"""Charts of released tables: bars, lines over dates and numbers, several series, one panel for each answer.

Every answer is drawn with its interval. Colours are those of Okabe and Ito, which people with any colour
vision can tell apart; text is text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.numbers import format_estimate, format_percent, format_up
from hubbub.report.charts import Axis, Frame, render_svg, svg_line, svg_text
from hubbub.report.tables import format_key

if TYPE_CHECKING:
    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = ["Chart", "draw_result"]

_MAX_BARS, _MAX_PANELS, _MAX_SERIES = 60, 6, 6
_LEFT, _RIGHT, _TOP, _STEP, _THICKNESS, _CAP = 190, 560, 66, 22, 14, 3.5
_WIDTH = 640


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

    A table by a date or a number is drawn as lines, others as bars; several answers are panels.

    Args:
        answers: the table.
        column: the answer to draw; all of them, up to six, if omitted.
    """
    columns = _find_columns(answers, column)
    panels = [_draw_panel(answers, each) for each in columns]
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
    chosen = able[:_MAX_PANELS] if name is None else [column for column in able if column.name == name]
    if not chosen:
        raise InvalidInput(
            "there is no such column with an interval",
            why="only released numbers can be drawn",
            fix=f"use one of: {', '.join(column.name for column in able)}" if able else "ask with intervals",
        )
    return chosen


def _draw_panel(answers: "Result", column: "ResultColumn") -> tuple[str, float]:
    keys = [each for each in answers.columns if each.low is None and not each.is_integer]
    ordered = [each for each in keys if _is_ordered(each.values.tolist())]
    if len(answers) > 2 and len(ordered) == 1 and len(keys) <= 2:
        others = [each for each in keys if each is not ordered[0]]
        series = _split_series(others[0].values.tolist() if others else [""] * len(answers))
        if len(series) <= _MAX_SERIES:
            return _draw_lines(answers, column, ordered[0], series), 420.0
    return _draw_bars(answers, column, keys)


def _is_ordered(values: Sequence[Any]) -> bool:
    """Whether keys are dates or numbers, so that what lies between two of them means something."""
    known = [value for value in values if value is not None]
    is_date = all(isinstance(value, date) for value in known)
    is_number = all(isinstance(value, float) and math.isfinite(value) for value in known)
    return len(set(known)) > 2 and (is_date or is_number)


def _split_series(names: Sequence[Any]) -> dict[str, list[int]]:
    series: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        series.setdefault("" if name == "" else format_key(name), []).append(place)
    return series


def _title(answers: "Result", column: "ResultColumn") -> tuple[str, str]:
    """What is drawn, by what; and below it the kind of its intervals and its price."""
    keys = [each.name for each in answers.columns if each.low is None and not each.is_integer]
    title = escape(column.name + (f" by {', '.join(keys)}" if keys else ""))
    facts = answers.facts
    has_price = {"epsilon", "unit"} <= set(facts)
    price = f"; ε = {format_up(Fraction(facts['epsilon']))} for one {facts['unit']}" if has_price else ""
    return title, escape(f"{format_percent(float(facts.get('confidence', 0.95)))} intervals{price}")


def _ends(column: "ResultColumn", places: Sequence[int]) -> list[tuple[float, float, float]]:
    assert column.low is not None
    assert column.high is not None
    return [(float(column.values[at]), float(column.low[at]), float(column.high[at])) for at in places]


def _span(column: "ResultColumn", places: Sequence[int]) -> tuple[float, float]:
    finite = [end for ends in _ends(column, places) for end in ends if math.isfinite(end)] or [0.0]
    low, high = min(0.0, *finite), max(0.0, *finite)
    return (low, high) if high > low else (low, low + 1.0)


def _draw_lines(
    answers: "Result", column: "ResultColumn", key: "ResultColumn", series: dict[str, list[int]]
) -> str:
    title, about = _title(answers, column)
    at = {place: _position(value) for place, value in enumerate(key.values.tolist()) if value is not None}
    is_time = any(isinstance(value, date) for value in key.values.tolist())
    low, high = _span(column, list(at))
    room = (max(at.values()) - min(at.values())) * 0.02
    frame = Frame(
        title,
        about,
        across=Axis(
            escape(key.name), min(at.values()) - room, max(at.values()) + room, times=is_time, is_key=True
        ),
        up=Axis(escape(column.name), low, low + 1.05 * (high - low)),
    )
    parts = []
    for number, (name, places) in enumerate(series.items()):
        order = sorted((place for place in places if place in at), key=lambda place: at[place])
        points = [(at[place], ends) for place, ends in zip(order, _ends(column, order), strict=True)]
        points = [(x, ends) for x, ends in points if not math.isnan(ends[0])]
        kind = f"s{number}"
        for x, (_, lower, upper) in points:
            parts.append(frame.whisker(x, max(lower, low), min(upper, low + 1.05 * (high - low)), kind))
        parts.append(frame.line([(x, ends[0]) for x, ends in points], kind))
        if name and points:
            parts.append(
                f'<rect class="f{number}" x="{84 + number * 92}" y="68" width="10" height="10"/>'
                + svg_text(98 + number * 92, 77, name[:11], 'class="small"')
            )
    return frame.render(*parts)


def _position(value: Any) -> float:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value)


def _draw_bars(answers: "Result", column: "ResultColumn", keys: "list[ResultColumn]") -> tuple[str, float]:
    rows = min(len(answers), _MAX_BARS)
    low, high = _span(column, range(rows))
    axis = Axis(column.name, low, high)

    def across(value: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * axis.share(min(max(value, low), high))

    bottom = _TOP + max(1, rows) * _STEP
    parts = []
    for value, name in axis.ticks():
        x = across(value)
        parts += [
            svg_line("grid", x, _TOP, x, bottom),
            svg_text(x, bottom + 17, name, 'class="small" text-anchor="middle"'),
        ]
    zero = across(0.0)
    for place, (value, lower, upper) in enumerate(_ends(column, range(rows))):
        middle = _TOP + (place + 0.5) * _STEP
        label = ", ".join(format_key(key.values[place]) for key in keys)
        label = label if len(label) <= 24 else f"{label[:23]}…"
        parts.append(svg_text(_LEFT - 8, middle + 4, label, 'text-anchor="end"'))
        if math.isnan(value):
            parts.append(svg_text(zero + 6, middle + 4, "NULL", 'class="small"'))
            continue
        start, end, tip = across(lower), across(upper), across(value)
        width = 0.0 if column.is_integer else (upper - lower) / 2
        top = middle - _THICKNESS / 2
        parts.append(
            f'<rect class="bar" x="{min(zero, tip):.2f}" y="{top:.2f}" '
            f'width="{abs(tip - zero):.2f}" height="{_THICKNESS}"/>'
        )
        parts.append(
            f'<path class="whisker" fill="none" d="M{start:.2f} {middle - _CAP}v{2 * _CAP}'
            f'M{start:.2f} {middle}H{end:.2f}M{end:.2f} {middle - _CAP}v{2 * _CAP}"/>'
        )
        parts.append(svg_text(_RIGHT + 8, middle + 4, format_estimate(value, width), 'class="small"'))
    parts.append(svg_line("axis", zero, _TOP, zero, bottom))
    parts.append(svg_text((_LEFT + _RIGHT) / 2, bottom + 36, escape(column.name), 'text-anchor="middle"'))
    more = len(answers) - rows
    if more:
        parts.append(svg_text(_LEFT, bottom + 52, f"and {more:,} more rows", 'class="small"'))
    title, about = _title(answers, column)
    tall = bottom + (62 if more else 48)
    return render_svg(tall, title, about, parts), tall
