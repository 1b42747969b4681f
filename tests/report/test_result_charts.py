"""Charts of results: what is drawn for which keys, with readable axes, and that they run in a notebook."""

import json
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from hubbub.engines.schema import Kind
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result

SVG = "{http://www.w3.org/2000/svg}"
NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def keys(name, values, kind):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return ResultColumn(name, out, kind=kind)


def counts(name, size, *, missing=False):
    values = 1000.0 * np.arange(1, size + 1)
    values[0] = np.nan if missing else values[0]
    return ResultColumn(name, values, values - 90, values + 90, Kind.NUMBER, is_integer=True)


def texts(picture):
    return [element.text for element in ET.fromstring(picture).iter(f"{SVG}text")]  # noqa: S314 - our own


REGIONS = keys("region", ["North", "<South>", "East"], Kind.TEXT)
YEARS = keys("year", [2015.0, 2016.0, 2017.0], Kind.NUMBER)
DAYS = keys("day", [date(2026, 1, 1), date(2026, 2, 1), date(2026, 3, 1)], Kind.DATE)


def test_the_price_of_a_chart_has_its_delta():
    facts = {"epsilon": "1/2", "delta": "1/1000000", "unit": "patient"}
    words = texts(Result((REGIONS, counts("n", 3)), facts).svg())
    assert words[1] == "95 % intervals; ε = 0.5, δ = 1e-6 for one patient"
    assert texts(Result((REGIONS, counts("n", 3)), {**facts, "delta": "0"}).svg())[1].endswith(
        "ε = 0.5 for one patient"
    )


def test_texts_are_bars_with_intervals_and_values():
    picture = Result((REGIONS, counts("n", 3)), {"epsilon": "1/2", "unit": "patient"}).svg()
    assert picture.count('class="bar"') == picture.count('class="whisker"') == 3
    words = texts(picture)
    assert words[:2] == ["n by region", "95 % intervals; ε = 0.5 for one patient"]
    assert {"<South>", "3,000", "2,000"} <= set(words)


@pytest.mark.parametrize(("column", "tick"), [(YEARS, "2016"), (DAYS, "2026-02-02")])
def test_years_and_dates_are_lines_over_an_axis(column, tick):
    picture = Result((column, counts("n", 3)), {}).svg()
    assert "polyline" in picture
    assert picture.count("stroke-opacity") == 3
    assert any(word.startswith(tick[:7]) for word in texts(picture))
    assert "2,015" not in picture


def test_second_key_makes_series_with_a_legend():
    both = (
        keys("year", [2015.0, 2016.0, 2017.0] * 2, Kind.NUMBER),
        keys("sex", ["f"] * 3 + ["m"] * 3, Kind.TEXT),
    )
    picture = Result((*both, counts("n", 6)), {}).svg()
    assert picture.count("<polyline") == 2
    assert {"f", "m"} <= set(texts(picture))
    assert 'class="s1"' in picture


def test_counts_by_even_numbers_are_a_histogram_and_years_are_not():
    ages = keys("age", [0.0, 10.0, 20.0, 30.0], Kind.NUMBER)
    picture = Result((ages, counts("n", 4)), {}).svg()
    assert picture.count('class="bar"') == picture.count('class="whisker"') == 4
    assert "polyline" not in picture
    uneven = keys("age", [0.0, 10.0, 25.0, 30.0], Kind.NUMBER)
    assert "polyline" in Result((uneven, counts("n", 4)), {}).svg()


def test_second_key_of_texts_is_a_colour_with_a_legend():
    table = Result(
        (
            keys("region", ["North", "North", "South", "South"], Kind.TEXT),
            keys("sex", ["f", "m"] * 2, Kind.TEXT),
            counts("n", 4),
        ),
        {},
    )
    picture = table.svg()
    assert texts(picture).count("North") == texts(picture).count("f") == 1
    assert [picture.count(f'<rect class="{kind}"') for kind in ("f0", "f1", "bar")] == [3, 3, 0]


def test_third_key_is_small_multiples_with_one_scale():
    table = Result(
        (
            keys("region", ["North", "North", "South", "South"] * 2, Kind.TEXT),
            keys("sex", ["f", "m"] * 4, Kind.TEXT),
            keys("year", [2015.0] * 4 + [2016.0] * 4, Kind.NUMBER),
            counts("n", 8),
        ),
        {},
    )
    words = texts(table.svg())
    assert {"year: 2015", "year: 2016"} <= set(words)
    assert words.count("8,000") > 1  # an axis' tick in each panel


def test_many_intervals_are_a_band():
    days = keys("day", [date.fromordinal(737000 + place) for place in range(400)], Kind.DATE)
    picture = Result((days, counts("n", 400)), {}).svg()
    assert picture.count("<polygon") == 1
    assert "stroke-opacity" not in picture
    assert {"2018-12", "2019-06"} & set(texts(picture)) or {"2019-01", "2019-07"} & set(texts(picture))


def test_several_answers_are_panels_and_null_is_said():
    table = Result((REGIONS, counts("n", 3, missing=True), counts("m", 3)), {})
    picture = table.svg()
    assert picture.count("<svg ") == 3
    assert "NULL" in texts(picture)
    assert table.svg("m").count("<svg ") == 1
    assert table.plot("m")._repr_svg_() == table.svg("m")


def test_notebook_runs(tmp_path, monkeypatch):
    """Each cell in order, in one namespace; the last expression of each is shown as a notebook shows it."""
    import ast

    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    namespace = {"__name__": "notebook"}
    pictures = tables = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), namespace)  # noqa: S102 - our own notebook
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)  # noqa: S307 - as above
            pictures += hasattr(value, "_repr_svg_") and value._repr_svg_().startswith("<svg")
            tables += hasattr(value, "_repr_html_") and "<" in (value._repr_html_() or "")
    assert pictures >= 1
    assert tables >= 3
