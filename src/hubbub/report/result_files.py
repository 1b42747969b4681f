"""Released tables as files: CSV, JSON, lines of JSON, Markdown, HTML, Excel and pictures.

All are functions of the released table alone. Digits follow the width of each interval; ends are rounded
outward. Excel and PNG need optional libraries, which are looked for before anything is charged.
"""

import io
import json
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.report.pages import html_text, markdown_text, render_page
from hubbub.report.text_tables import describe_facts, format_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hubbub.sql.post_processing import ResultColumn
    from hubbub.sql.result import Result

__all__ = [
    "ENDINGS",
    "TABLE_FORMAT",
    "check_format",
    "csv_line",
    "public_facts",
    "render_bytes",
    "render_html",
    "render_text",
    "shown_cells",
]

TABLE_FORMAT = "hubbub table/1"
ENDINGS = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".html": "html",
    ".md": "md",
    ".xlsx": "xlsx",
    ".svg": "svg",
    ".png": "png",
    ".txt": "table",
}
"""Which ending is which format."""
_QUOTED = frozenset('",;\t\r\n')
_TWO_QUOTES = '""'
_LIBRARIES = {"xlsx": ("openpyxl", "excel"), "png": ("resvg_py", "png")}
_EXACT = 2.0**53
"""Below it every whole number is a double."""
_PRIVATE_FACTS = ("histograms",)
"""What a label holds for later queries, and no reader needs: `limits` says what it says in words."""
_MANY_ROWS = 20
_MAX_DECIMALS = 12


def check_format(form: str) -> None:
    """Refuse, before anything is charged, a format of which the library is missing."""
    library, extra = _LIBRARIES.get(form, ("", ""))
    if library and find_spec(library) is None:
        raise InvalidInput(
            f"{form} files need the library {library}, which is not installed",
            why="the file could not be written after the query was paid for",
            fix=f"pip install hubbub[{extra}], or choose another format: csv, json, html, svg",
        )


def public_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the label without what is only kept for later queries."""
    return {name: value for name, value in facts.items() if name not in _PRIVATE_FACTS}


def shown_cells(result: "Result") -> dict[str, list[Any]]:
    """Return the columns by name for text formats: integers without a point, digits as intervals allow.

    A missing value, and the end of an interval that is open there, is None.
    """
    import numpy as np  # here, so that the shell's help is shown without it

    cells: dict[str, list[Any]] = {}
    for column in result.columns:
        if column.low is None or column.high is None:
            cells[column.name] = [_plain_key(value) for value in column.values.tolist()]
            continue
        low, high = (np.asarray(end, dtype=np.float64) for end in (column.low, column.high))
        values = np.asarray(column.values, dtype=np.float64)
        if column.is_integer:
            parts = (values, low, high)
        else:
            scale = _decimal_scale((high - low) / 2)
            with np.errstate(invalid="ignore", over="ignore"):
                parts = (
                    np.rint(values * scale) / scale,
                    np.floor(low * scale) / scale,
                    np.ceil(high * scale) / scale,
                )
        for suffix, part in zip(("", "_low", "_high"), parts, strict=True):
            cells[column.name + suffix] = [_plain_number(value) for value in part.tolist()]
    return cells


def _decimal_scale(width: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """The power of ten to which a number of this half-width is rounded: a digit beyond the first in doubt."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 1 - np.floor(np.log10(width))
    digits = np.where(np.isfinite(digits), np.clip(digits, 0, _MAX_DECIMALS), 0)
    return np.asarray(10.0**digits)


def _plain_number(value: float) -> Any:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _plain_key(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() and abs(value) < _EXACT else value
    return value


def render_text(result: "Result", form: str, cost: Sequence[str] = ()) -> str:
    """Return the table as text in one of the formats csv, json, ndjson, md, html, svg and table.

    Args:
        result: the table.
        form: the format.
        cost: lines for people about what it cost; formats for programs leave them out.
    """
    if form == "csv":
        return _csv(result)
    if form == "json":
        return _json(result)
    if form == "ndjson":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _rows(result))
    if form == "md":
        return _markdown(result, cost)
    if form == "html":
        return render_html(result, cost)
    if form == "svg":
        return result.svg()
    from hubbub.report.text_tables import align_rows

    lines = (
        [*align_rows(format_rows(result)), "", *map(escape, cost)]
        if cost
        else align_rows(format_rows(result))
    )
    return "\n".join(lines) + "\n"


def render_bytes(result: "Result", form: str) -> bytes:
    """Return the table as an Excel workbook (xlsx), or its chart as a picture (png)."""
    check_format(form)
    return _xlsx(result) if form == "xlsx" else _png(result.svg())


def _csv(result: "Result") -> str:
    cells = shown_cells(result)
    return "".join([csv_line(cells), *map(csv_line, zip(*cells.values(), strict=True))])


def csv_line(values: Iterable[Any]) -> str:
    r"""Return a line of CSV, in which a spreadsheet finds no formula.

    A semicolon is quoted, too: it separates fields where a comma is the decimal point.

    >>> csv_line(["=1+1", "a;=1", -1, None])
    '\'=1+1,"a;=1",-1,\n'
    """
    line = ",".join("" if value is None else _csv_field(value) for value in values)
    return f"{line or _TWO_QUOTES}\n"


def _csv_field(value: Any) -> str:
    if not isinstance(value, str):
        return str(value)
    text = f"'{value}" if _is_formula(value) else value
    return '"' + text.replace('"', _TWO_QUOTES) + '"' if any(sign in text for sign in _QUOTED) else text


def _is_formula(text: str) -> bool:
    """True if a spreadsheet would compute it: an apostrophe before it makes it a text.

    Keys may be anybody's words. Spaces and invisible characters before it may be removed on the way, and
    wide signs mean what narrow ones do. Texts that are numbers stay as they are, and so do other formats.
    """
    if text[:1].isalnum():
        return False
    first = next((each for each in text if unicodedata.category(each)[0] not in "ZC"), "")
    if text[:1] not in {"\t", "\r", "\n"} and unicodedata.normalize("NFKC", first) not in {
        "=",
        "+",
        "-",
        "@",
    }:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _rows(result: "Result") -> Iterator[dict[str, Any]]:
    cells = shown_cells(result)
    names = list(cells)
    for row in zip(*cells.values(), strict=True):
        yield dict(zip(names, map(_json_value, row), strict=True))


def _json_value(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else value.isoformat()


def _json(result: "Result") -> str:
    """`{"rows": […], "label": {…}}`, with the types of the columns; a row on each line."""
    columns = [_describe_column(column) for column in result.columns]
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False, allow_nan=False)}" for row in _rows(result))
    label = json.dumps(public_facts(result.facts), ensure_ascii=False, indent=1, allow_nan=False, default=str)
    return (
        f'{{"format": {json.dumps(TABLE_FORMAT)},\n"columns": {json.dumps(columns, ensure_ascii=False)},\n'
        f'"rows": [\n{rows}\n],\n"label": {label}}}\n'
    )


def _describe_column(column: "ResultColumn") -> dict[str, Any]:
    return {
        "name": column.name,
        **({} if column.kind is None else {"kind": column.kind.value}),
        **({"integer": True} if column.is_integer else {}),
        "interval": column.low is not None,
    }


def _markdown(result: "Result", cost: Sequence[str]) -> str:
    head, *rows = format_rows(result)
    is_number = [each for column in result.columns for each in _alignments(column)]
    rule = "|".join("---:" if number else "---" for number in is_number)
    lines = ["| " + " | ".join(map(markdown_text, row)) + " |" for row in (head, *rows)]
    lines.insert(1, f"|{rule}|")
    notes = [f"- {markdown_text(line)}" for line in (cost or describe_facts(result.facts))]
    return "\n".join([*lines, "", *notes]) + "\n"


def _alignments(column: "ResultColumn") -> list[bool]:
    """True if each shown column of a column is aligned as a number."""
    return [column.is_integer] if column.low is None else [True, False]


def render_html(result: "Result", cost: Sequence[str] = ()) -> str:
    """Return a page that stands alone: the question, the table, its chart and its guarantee."""
    query = str(result.facts.get("query", ""))
    question = f'<code class="question">{html_text(query)}</code>' if query else ""
    chart = f"<figure>{result.svg()}</figure>" if _can_draw(result) else ""
    lines = cost or describe_facts(result.facts)
    notes = "".join(f"<li>{html_text(line)}</li>" for line in lines)
    title, table = title_of(result), f'<div class="wide">{html_table(result)}</div>'
    # The picture comes first where one would have to look for it below a long table.
    parts = f"{chart}{table}" if len(result) > _MANY_ROWS else f"{table}{chart}"
    body = (
        f'<p class="kicker">Released with differential privacy</p><h1>{html_text(title)}</h1>{question}'
        f"{parts}<h2>What this is</h2><ul>{notes}</ul>"
    )
    return render_page(title, body)


def title_of(result: "Result") -> str:
    """Return what the table is of: its answers, by its keys."""
    keys = [column.name for column in result.columns if column.is_key]
    answers = [column.name for column in result.columns if column.low is not None or column.is_integer]
    return (", ".join(answers) or "keys") + (f" by {', '.join(keys)}" if keys and answers else "")


def _can_draw(result: "Result") -> bool:
    return len(result) > 1 and any(column.low is not None for column in result.columns)


def html_table(result: "Result", max_rows: int | None = None) -> str:
    """Return the table as HTML, with at most `max_rows` rows."""
    head, *rows = format_rows(result)
    kinds = [kind for column in result.columns for kind in _classes(column)]
    names = "".join(f"<th{kind}>{html_text(name)}</th>" for name, kind in zip(head, kinds, strict=True))
    first = rows if max_rows is None else rows[:max_rows]
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{html_text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in first
    )
    more = len(rows) - len(first)
    rest = f'<tr><td colspan="{len(head)}">… {more:,} more rows</td></tr>' if more else ""
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}{rest}</tbody></table>"


def _classes(column: "ResultColumn") -> list[str]:
    if column.low is None:
        return [' class="number"' if column.is_integer else ""]
    return [' class="number"', ' class="interval"']


def _xlsx(result: "Result") -> bytes:
    """A workbook: the table with numbers as numbers, and the label on a second sheet."""
    from openpyxl import Workbook
    from openpyxl.styles import Font

    book = Workbook()
    sheet = book.active
    sheet.title = "answers"
    cells = shown_cells(result)
    _append(sheet, list(cells))
    for row in zip(*cells.values(), strict=True):
        _append(sheet, list(row))
    label = book.create_sheet("label")
    for name, value in public_facts(result.facts).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        _append(label, [name, text])
    for each in sheet[1]:
        each.font = Font(bold=True)
    sheet.freeze_panes = "A2"
    paper = io.BytesIO()
    book.save(paper)
    return paper.getvalue()


def _append(sheet: Any, values: Sequence[Any]) -> None:
    row = sheet.max_row + 1 if sheet.max_row > 1 or sheet["A1"].value is not None else 1
    for place, value in enumerate(values, 1):
        cell = sheet.cell(row, place)
        cell.value = escape(value) if isinstance(value, str) else value
        if isinstance(value, str):
            cell.data_type = "s"  # a key that starts with = is text, never a formula


def _png(picture: str) -> bytes:
    from resvg_py import svg_to_bytes

    return bytes(
        svg_to_bytes(svg_string=picture, zoom=2, background="#ffffff", sans_serif_family="DejaVu Sans")
    )
