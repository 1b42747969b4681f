"""Keys, names and questions are anybody's words: in no format are they more than text."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import numpy as np
import pytest

from hubbub.engines.schema import Kind
from hubbub.report.pages import markdown_text
from hubbub.report.result_files import render_bytes, render_text
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result

WORDS = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "]]>",
    "&lt;b&gt;",
    "[a](javascript:alert(1))",
    "![a](http://elsewhere/p.png)",
    "http://elsewhere, www.elsewhere or me@elsewhere",
    "a|b\n| c",
    "\x1b[2J\x1b]0;title\x07",
    "\u202eabc",
    "=HYPERLINK(1)",
    "+cmd|x",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\n=1",
    " =1",
    "\ufeff=1",
    "＝1",
    "a;=1",
    "a\tb",
    "$x$",
    "-1",
    "+4.5",
]


@pytest.fixture(scope="module")
def answers():
    keys = np.empty(len(WORDS), dtype=object)
    keys[:] = WORDS
    values = np.arange(1.0, len(WORDS) + 1)
    counts = ResultColumn('n"><img src=x>', values, values - 1, values + 1, Kind.NUMBER, is_integer=True)
    facts = {"query": "SELECT '<script>' -- ](http://x)", "unit": "<b>", "epsilon": "1"}
    return Result((ResultColumn("k<i>|", keys, kind=Kind.TEXT), counts), facts)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in {"href", "src"} or name.startswith("on")]


def test_pages_and_pictures_hold_no_element_of_a_key(answers):
    page = Tags()
    page.feed(render_text(answers, "html"))
    assert not page.tags & {"script", "img", "i", "b", "iframe", "a"}
    assert page.links == []
    notebook = Tags()
    notebook.feed(answers._repr_html_())
    assert not notebook.tags & {"script", "img", "i", "iframe", "a"}
    picture = ET.fromstring(render_text(answers, "svg"))  # noqa: S314 - our own
    names = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert names <= {"svg", "title", "style", "rect", "text", "line", "path", "g", "polyline", "polygon"}


def test_markdown_renders_keys_as_text(answers):
    markdown = pytest.importorskip("markdown_it")
    text = render_text(answers, "md")
    page = Tags()
    page.feed(markdown.MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text))
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert all(line.count("|") - line.count("\\|") == 4 for line in text.splitlines() if line[:1] == "|")
    assert "http:" not in text
    assert markdown_text("2015, n_low < 5 %") == "2015, n\\_low &lt; 5 %"


def test_csv_holds_no_formula_and_other_formats_hold_keys_as_they_are(answers):
    rows = list(csv.reader(io.StringIO(render_text(answers, "csv"))))
    assert [row[0] for row in rows[1:]] == [
        f"'{word}"
        if word.strip("\ufeff \t\n")[:1] in set("=+-@＝") - {""} and word not in {"-1", "+4.5"}
        else word
        for word in WORDS
    ]
    assert '"a;=1",' in render_text(answers, "csv")  # one field also where a semicolon separates them
    table = json.loads(render_text(answers, "json"))
    assert [row["k<i>|"] for row in table["rows"]] == WORDS
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(io.BytesIO(render_bytes(answers, "xlsx")))
    assert {cell.data_type for cell in book["answers"]["A"]} == {"s"}


def test_text_for_a_terminal_has_no_control_characters(answers):
    for form in ("table", "md", "html", "svg"):
        assert all(each.isprintable() or each == "\n" for each in render_text(answers, form)), form
