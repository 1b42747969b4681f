"""Pages of answers: tables with intervals, charts, downloads, the question to copy, publications."""

import json
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.numbers import format_estimate, format_up
from hubbub.server.console import texts
from hubbub.server.console.forms import prefill
from hubbub.server.console.layout import (
    Frame,
    address,
    button_form,
    copy_button,
    format_time,
    link,
    render_page,
    render_saving,
    render_table,
)
from hubbub.server.console.layout import field as labelled_field
from hubbub.server.console.markup import Html, element, join
from hubbub.server.service_types import Answer, Publication, Question, Role
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result

__all__ = [
    "render_answer",
    "render_publication_body",
    "render_publications",
    "render_result",
]

_MAX_ROWS = 1000


def _has_chart(result: Result) -> bool:
    """Return whether there is something to draw."""
    if not len(result):
        return False
    try:
        result.svg()
    except InvalidInput:
        return False
    return True


def render_result(result: Result, caption: str) -> Html:
    """Return a released table with its intervals."""
    count = min(len(result), _MAX_ROWS)
    rows = [[_cell(column, place) for column in result.columns] for place in range(count)]
    numbers = [place for place, column in enumerate(result.columns) if column.low is not None]
    table = render_table(caption, [column.name for column in result.columns], rows, numbers)
    why = result.facts.get("nothing shown")
    cut = texts.CUT.format(count=f"{count:,}", total=f"{len(result):,}") if count < len(result) else None
    return join(
        table,
        None if cut is None else element("p", cut, class_="small"),
        None if why is None else element("p", str(why), class_="small"),
    )


def _cell(column: ResultColumn, place: int) -> Html | str:
    value = column.values[place]
    plain = value.item() if hasattr(value, "item") else value
    if plain is None or plain != plain:  # noqa: PLR0124 - not a number
        return "NULL"
    if column.low is None or column.high is None:
        is_whole = isinstance(plain, float) and plain.is_integer() and abs(plain) < 2**53
        return str(int(plain)) if is_whole else str(plain)
    low, high = float(column.low[place]), float(column.high[place])
    middle, *ends = (format_estimate(each, (high - low) / 2) for each in (float(plain), low, high))
    return join(element("strong", middle), " ", element("span", f"{ends[0]} … {ends[1]}", class_="interval"))


def render_answer(frame: Frame, answer: Answer, *, origin: str, publication: Publication | None) -> str:
    """Return the page of a stored answer.

    Args:
        frame: who looks.
        answer: one's own, or any for the owner.
        origin: the address of the server, for commands to copy.
        publication: what is published of it.
    """
    dataset, entry = answer.dataset, answer.entry
    here = ("datasets", dataset, "answers")
    title = f"{texts.ANSWER} {entry}"
    owner = _render_publishing(frame, answer, publication) if frame.role is Role.OWNER else None
    return render_page(
        frame,
        f"{dataset}: {title}",
        element("p", texts.STORED_ANSWER.format(entry=entry, cost=answer.loss), class_="good"),
        element("pre", answer.sql, tabindex="0", aria_label=texts.SQL_LABEL),
        render_result(answer.result, title),
        element("p", texts.INTERVALS, class_="small"),
        _render_chart(answer.result, address(*here, f"{entry}.svg")),
        element("p", element("strong", texts.DOWNLOADS), ": ", _render_downloads(*here, str(entry))),
        element(
            "section",
            element("h2", texts.LABEL, id="facts"),
            _render_facts(answer.result.facts),
            aria_labelledby="facts",
        ),
        element("p", link(texts.ASK_AGAIN, "datasets", dataset, **prefill(answer.question, answer.sql))),
        _render_saving(frame, answer),
        owner,
        _render_snippets(answer, origin),
        heading=title,
    )


def _render_facts(facts: Mapping[str, Any]) -> Html:
    """The protection of an answer, in the words of a label."""
    formats: dict[str, Callable[[str], str]] = {
        "epsilon": lambda text: format_up(Fraction(text)),
        "delta": lambda text: format_up(Fraction(text)),
        "confidence": lambda text: f"{float(Fraction(text)):.4g}",
        "as of": lambda text: f"{format_time(text)} UTC",
    }
    listed = [
        element("div", element("dt", words), element("dd", formats.get(name, str)(str(facts[name]))))
        for name, words in texts.FACTS.items()
        if name in facts
    ]
    return element("dl", listed, class_="facts")


def _render_chart(result: Result, target: str) -> Html | None:
    if not _has_chart(result):
        return None
    return element("p", element("img", src=target, alt=texts.CHART, class_="chart"))


def _render_downloads(*parts: str) -> Html:
    *before, entry = parts
    forms = ("CSV", "JSON", "Parquet", "SVG")
    links = [link(form, *before, f"{entry}.{form.lower()}") for form in forms]
    return join(*(join(each, " ") for each in links))


def _render_saving(frame: Frame, answer: Answer) -> Html:
    hidden = [
        element("input", type="hidden", name=name, value=value)
        for name, value in prefill(answer.question, answer.sql).items()
    ]
    target = address("datasets", answer.dataset, "saved")
    return element("form", frame.csrf, hidden, render_saving(target), method="post", action=target)


def _render_publishing(frame: Frame, answer: Answer, publication: Publication | None) -> Html:
    target = address("datasets", answer.dataset, "answers", answer.entry, "publication")
    if publication is not None:
        return element(
            "p",
            link(publication.title, "public", answer.dataset, answer.entry),
            " ",
            button_form(frame, target, texts.WITHDRAW, None, action="withdraw"),
        )
    return element(
        "details",
        element("summary", texts.PUBLISH),
        element(
            "form",
            frame.csrf,
            element("p", texts.PUBLISH_HINT, class_="small"),
            labelled_field(texts.TITLE, "title", required=True, maxlength="200"),
            element(
                "div",
                element("button", texts.PUBLISH, type="submit", name="action", value="publish"),
                class_="actions",
            ),
            method="post",
            action=target,
        ),
    )


def _render_snippets(answer: Answer, origin: str) -> Html:
    parts = []
    for name, text in _make_snippets(answer, origin).items():
        identity = f"copy-{name.lower()}"
        snippet = element("pre", text, id=identity, tabindex="0", aria_label=name)
        parts.append(join(element("h3", name), copy_button(identity, name), snippet))
    return element("details", element("summary", texts.COPY_AS), parts)


def render_publications(dataset: str, every: Iterable[Publication]) -> Html:
    """Return links to published releases."""
    items = [
        element(
            "li",
            link(each.title, "public", dataset, each.entry),
            " ",
            element("span", format_time(each.timestamp), class_="small"),
        )
        for each in every
    ]
    return element("ul", items) if items else element("p", texts.NOTHING_PUBLIC)


def render_publication_body(publication: Publication) -> list[Any]:
    """Return the parts of the page of a published release."""
    dataset, entry = publication.dataset, str(publication.entry)
    return [
        render_result(publication.result, publication.title),
        element("p", texts.INTERVALS, class_="small"),
        _render_chart(publication.result, address("public", dataset, f"{entry}.svg")),
        element("p", element("strong", texts.DOWNLOADS), ": ", _render_downloads("public", dataset, entry)),
        element("h2", texts.QUESTION),
        element("pre", publication.sql, tabindex="0", aria_label=texts.SQL_LABEL),
        element("h2", texts.LABEL),
        _render_facts(publication.result.facts),
        element("p", link(texts.WHOLE_LABEL, "public", dataset, "label")),
    ]


def _make_snippets(answer: Answer, origin: str) -> dict[str, str]:
    """Return the question as Python, curl and SQL, by the language's name; a token is named, never written.

    Args:
        answer: with its question.
        origin: the address of the server.
    """
    question = answer.question or Question(answer.sql)
    body = json.dumps(question.to_dict(), ensure_ascii=False)
    url = f"{origin}/api/v1/datasets/{answer.dataset}/run"
    curl = (
        f'{texts.TOKEN_COMMENT}\ncurl --cacert server.pem -H "Authorization: Bearer $HUBBUB_TOKEN" '
        f"-H 'Content-Type: application/json' \\\n  -d {_quote_for_shell(body)} {url}"
    )
    python = "\n".join(
        [
            texts.TOKEN_COMMENT,
            "import json, os, ssl, urllib.request",
            "",
            f"question = json.loads({body!r})",
            "request = urllib.request.Request(",
            f"    {url!r},",
            "    json.dumps(question).encode(),",
            "    {",
            '        "Authorization": "Bearer " + os.environ["HUBBUB_TOKEN"],',
            '        "Content-Type": "application/json",',
            "    },",
            ")",
            'context = ssl.create_default_context(cafile="server.pem")',
            "with urllib.request.urlopen(request, context=context) as response:",
            '    answer = json.load(response)["result"]',
        ]
    )
    setting = ""
    if question.epsilon is not None:
        setting = f"SET hubbub.epsilon = '{question.epsilon}';\n"
    elif question.error:
        stated = ",".join(f"{name}={value}" for name, value in question.error.items())
        setting = f"SET hubbub.error = {_quote_for_sql(stated)};\n"
    return {"Python": python, "curl": curl, "SQL": f"{setting}{question.sql};"}


def _quote_for_shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quote_for_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
