"""A picture of one released column, as SVG text: bars, each with its interval."""

import html
import math
from typing import TYPE_CHECKING

from hubbub.errors import InvalidInput
from hubbub.queries.outputs import Shown
from hubbub.visible import visible

if TYPE_CHECKING:
    from hubbub.queries.answers import Answers

__all__ = ["bars"]

_MOST = 60
_LEFT, _WIDTH, _ROW, _TOP = 170, 640, 22, 46
_STYLE = (
    "text{font:12px sans-serif;fill:#333}.title{font-size:14px;font-weight:bold}.bar{fill:#9ecae1}"
    ".whisker{stroke:#08519c;stroke-width:1.5}.axis{stroke:#999}"
)


def bars(answers: "Answers", column: str | None = None) -> str:
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
        return _LEFT + (_WIDTH - _LEFT - 20) * (inside - low) / (high - low)

    zero = across(0.0)
    parts = [
        f'<text class="title" x="10" y="20">{html.escape(visible(chosen.name))}</text>',
        f'<text x="10" y="36">intervals: {float(answers.facts.get("confidence", 0.95)):.0%}</text>',
        f'<line class="axis" x1="{zero:.1f}" y1="{_TOP}" x2="{zero:.1f}" y2="{_TOP + rows * _ROW}"/>',
    ]
    for place in range(rows):
        middle = _TOP + place * _ROW + _ROW / 2
        value = across(float(chosen.values[place]))
        start, end = across(float(chosen.low[place])), across(float(chosen.high[place]))
        left, size, label = min(zero, value), abs(value - zero), html.escape(labels[place])
        parts += [
            f'<text x="{_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{label}</text>',
            f'<rect class="bar" x="{left:.1f}" y="{middle - 7:.1f}" width="{size:.1f}" height="14"/>',
            f'<line class="whisker" x1="{start:.1f}" y1="{middle:.1f}" x2="{end:.1f}" y2="{middle:.1f}"/>',
        ]
    height = _TOP + rows * _ROW + 30
    foot = f'<text x="{_LEFT}" y="{height - 10}">{low:g}</text>'
    foot += f'<text x="{_WIDTH - 20}" y="{height - 10}" text-anchor="end">{high:g}</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        f"<style>{_STYLE}</style>{''.join(parts)}{foot}</svg>\n"
    )


def _column(answers: "Answers", name: str | None) -> Shown:
    able = [column for column in answers.columns if column.low is not None]
    for column in able:
        if name is None or column.name == name:
            return column
    raise InvalidInput(
        "there is no such column with an interval",
        why="only released numbers can be drawn",
        fix=f"use one of: {', '.join(column.name for column in able)}",
    )


def _label(answers: "Answers", place: int) -> str:
    keys = [column.values[place] for column in answers.columns if column.low is None]
    said = ", ".join(
        "—" if key is None else f"{key:g}" if isinstance(key, float) else visible(key) for key in keys
    )
    return said if len(said) <= 24 else said[:23] + "…"
