"""Pages on which people ask: the editor with its plan, dry runs, answers, history and saved questions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hubbub.engines.schema import Kind
from hubbub.errors import HubbubError, InvalidInput
from hubbub.numbers import format_estimate
from hubbub.server.console import texts
from hubbub.server.console.forms import FIELDS, question_fields
from hubbub.server.console.layout import (
    Frame,
    address,
    button_form,
    find_settings,
    format_time,
    link,
    render_meter,
    render_page,
    render_refusal,
    render_table,
)
from hubbub.server.console.layout import field as labelled_field
from hubbub.server.console.markup import Html, element, join
from hubbub.server.console.snippets import make_snippets
from hubbub.server.records import (
    Answer,
    BudgetReport,
    ColumnDescription,
    DatasetDescription,
    HistoryItem,
    PlanReport,
    Publication,
    Question,
    Role,
    SavedQuestion,
)
from hubbub.sql.function_list import FunctionEntry
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result

__all__ = [
    "Editor",
    "has_chart",
    "render_answer",
    "render_editor",
    "render_history",
    "render_plan",
    "render_plan_refusal",
    "render_publication_body",
    "render_publications",
    "render_result",
    "render_saved",
    "render_schema_page",
]

_MAX_ROWS = 1000
_FACTS = ("unit", "neighbours", "epsilon", "delta", "mechanism", "confidence", "as of")
_SHOWN_KEYS = 12


@dataclass(frozen=True)
class Editor:
    """All that the editor shows."""

    description: DatasetDescription
    budget: BudgetReport
    functions: Sequence[FunctionEntry] = ()
    saved: Sequence[SavedQuestion] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    """What was typed, by field."""
    plan: PlanReport | None = None
    refusal: HubbubError | None = None
    dry_run: Result | None = None
    can_retry: bool = False
    """True if the question failed after its charge, so that it may be charged again."""


# The editor


def render_editor(frame: Frame, editor: Editor) -> str:
    """Return the page on which a question is typed, planned and asked."""
    dataset = editor.description.name
    plan: Html
    if editor.refusal is not None:
        plan = render_plan_refusal(dataset, editor.refusal, editor.values, editor.budget)
    elif editor.plan is not None:
        plan = render_plan(editor.plan, editor.budget)
    else:
        plan = join(element("p", texts.COST_EMPTY), render_meter(editor.budget))
    cost = element(
        "section",
        element("h2", texts.COST, id="cost"),
        element("div", plan, id="plan", aria_live="polite"),
        class_="panel",
        aria_labelledby="cost",
    )
    dry = None
    if editor.dry_run is not None:
        dry = element(
            "section",
            element("h2", texts.DRY_TITLE, id="dry"),
            element("p", texts.DRY_HINT, class_="small"),
            render_result(editor.dry_run, texts.DRY_TITLE),
            class_="panel",
            aria_labelledby="dry",
        )
    left = element("div", _render_form(frame, editor), dry)
    right = element("div", cost, _render_saved_links(editor))
    return render_page(
        frame,
        dataset,
        element("p", texts.PAUSED, class_="notice") if editor.description.is_paused else None,
        element("div", left, right, class_="columns"),
        _render_schema(editor.description),
        _render_functions(editor.functions),
    )


def _render_form(frame: Frame, editor: Editor) -> Html:
    dataset, values = editor.description.name, editor.values
    target = address("datasets", dataset)
    more = [
        labelled_field(label, name, values.get(name, ""), hint)
        for name, (label, hint) in FIELDS.items()
        if name not in {"epsilon", "error"}
    ]
    is_open = any(values.get(name) for name in FIELDS if name not in {"epsilon", "error"})
    retry = element("button", texts.RETRY, type="submit", name="action", value="again")
    return element(
        "form",
        frame.csrf,
        element("label", texts.SQL_LABEL, for_="sql"),
        element(
            "textarea",
            # A first line break of a text area is dropped by browsers.
            "\n" + values.get("sql", ""),
            id="sql",
            name="sql",
            rows="8",
            spellcheck="false",
            autocapitalize="off",
            aria_describedby="sql-hint",
            required=True,
        ),
        element("p", texts.SQL_HINT, class_="small", id="sql-hint"),
        element(
            "div",
            labelled_field(*_stated("epsilon", values), inputmode="decimal"),
            labelled_field(*_stated("error", values), inputmode="decimal"),
            class_="fields",
        ),
        element("details", element("summary", texts.MORE_SETTINGS), more, open=is_open),
        element(
            "div",
            element("button", texts.SEE_COST, type="submit", name="action", value="plan"),
            element("button", texts.DRY_RUN, type="submit", name="action", value="dry-run"),
            element("button", texts.RUN, type="submit", name="action", value="ask", class_="main"),
            retry if editor.can_retry else None,
            class_="actions",
        ),
        method="post",
        action=target,
        class_="panel",
        hx_post=address("datasets", dataset, "plan"),
        hx_trigger="input delay:400ms",
        hx_target="#plan",
        hx_swap="innerHTML",
        hx_sync="this:replace",
        data_asks="true",
    )


def _stated(name: str, values: Mapping[str, str]) -> tuple[str, str, str, str | None]:
    label, hint = FIELDS[name]
    return label, name, values.get(name, ""), hint


def render_plan(plan: PlanReport, budget: BudgetReport) -> Html:
    """Return cost, expected error, the meter and how many more such questions fit."""
    cost = f"ε = {plan.epsilon}" + ("" if plan.delta == "0" else f", δ = {plan.delta}")
    errors = [element("li", element("code", name), ": ", words) for name, words in plan.errors.items()]
    notes = [element("li", note) for note in plan.notes]
    more = texts.MORE.format(count=f"{plan.count_more:,}") if plan.count_more is not None else None
    return join(
        element("p", cost, class_="big"),
        element("p", texts.ASKED_BEFORE if plan.is_asked else texts.NOTHING_SPENT, class_="good"),
        element("ul", errors, class_="plain") if errors else None,
        render_meter(budget, plan),
        element("p", more, class_="small") if more is not None else None,
        element("ul", notes) if notes else None,
        element("p", texts.DEADLINE.format(seconds=f"{plan.deadline:g}"), class_="small")
        if plan.deadline
        else None,
        element(
            "details",
            element("summary", texts.EXPLANATION),
            element("pre", plan.explanation, tabindex="0"),
        ),
    )


def render_plan_refusal(
    dataset: str, error: HubbubError, values: Mapping[str, str], budget: BudgetReport | None = None
) -> Html:
    """Return a refusal, with links that fill in what it names; they run nothing."""
    fixes = {}
    for name, value in find_settings(error).items():
        changed = {**values, name: value}
        if name == "epsilon":
            changed.pop("error", None)
        fixes[texts.APPLY.format(setting=f"{texts.SETTINGS[name]} = {value}")] = address(
            "datasets", dataset, **changed
        )
    return join(render_refusal(error, fixes), None if budget is None else render_meter(budget))


def _render_schema(description: DatasetDescription) -> Html:
    tables = []
    for table in description.tables:
        rows = [
            (
                element("code", column.name),
                texts.IS_UNIT if column.is_unit else column.kind.value,
                "" if column.bounds is None else _describe_bounds(column),
                _describe_keys(column),
            )
            for column in table.columns
        ]
        name = f"{table.name} ({texts.PUBLIC_TABLE})" if table.is_public else table.name
        head = (texts.COLUMN, texts.KIND, texts.BOUNDS, texts.KEYS)
        tables.append(join(element("h3", element("code", name)), render_table(name, head, rows)))
    facts = [
        (texts.UNIT, description.unit),
        (texts.ROWS_PER_UNIT, description.rows_per_unit),
        (texts.GROUPS_PER_UNIT, description.groups_per_unit),
        *((name, value) for name, value in description.about.items()),
    ]
    listed = [
        element("div", element("dt", name), element("dd", value))
        for name, value in facts
        if value is not None
    ]
    return element(
        "section",
        element("h2", texts.SCHEMA, id="schema"),
        element("dl", listed, class_="facts"),
        tables,
        aria_labelledby="schema",
    )


def _describe_bounds(column: ColumnDescription) -> str:
    assert column.bounds is not None
    low, high = column.bounds
    return f"{low} … {high}" + (texts.DAYS if column.kind in {Kind.DATE, Kind.TIMESTAMP} else "")


def _describe_keys(column: ColumnDescription) -> str:
    if column.keys is None:
        return ""
    words = ", ".join("NULL" if key is None else str(key) for key in column.keys[:_SHOWN_KEYS])
    count = column.key_count or len(column.keys)
    return words if count <= _SHOWN_KEYS else f"{words}, … ({count:,})"


def _render_functions(functions: Sequence[FunctionEntry]) -> Html | None:
    if not functions:
        return None
    by_use: dict[str, list[str]] = {}
    for each in functions:
        by_use.setdefault(each.use, []).append(each.example)
    groups = [
        join(
            element("h3", use),
            element("p", join(*(join(element("code", text), "  ") for text in examples))),
        )
        for use, examples in by_use.items()
    ]
    return element("details", element("summary", texts.FUNCTIONS), groups)


def _render_saved_links(editor: Editor) -> Html:
    dataset = editor.description.name
    links = [element("li", link(each.name, *_open_parts(dataset), **_prefill(each.question)))
             for each in editor.saved]  # fmt: skip
    return element(
        "section",
        element("h2", texts.SAVED, id="saved"),
        element("ul", links, class_="plain") if links else element("p", texts.NO_SAVED, class_="small"),
        class_="panel",
        aria_labelledby="saved",
    )


def _open_parts(dataset: str) -> tuple[str, str]:
    return "datasets", dataset


def _prefill(question: Question | None, sql: str = "") -> dict[str, str]:
    """The fields of the editor for a question; a permalink, which runs nothing."""
    return {"sql": sql} if question is None else question_fields(question)


def render_schema_page(frame: Frame, description: DatasetDescription, every: Sequence[Publication]) -> str:
    """Return what a reader sees of a dataset: publications, and what is declared."""
    return render_page(
        frame,
        description.name,
        element("h2", texts.PUBLIC_PAGES),
        render_publications(description.name, every),
        _render_schema(description),
    )


# Answers


def has_chart(result: Result) -> bool:
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
    facts = answer.result.facts
    listed = [
        element("div", element("dt", name), element("dd", str(facts[name])))
        for name in _FACTS
        if name in facts
    ]
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
            element("dl", listed, class_="facts"),
            aria_labelledby="facts",
        ),
        element("p", link(texts.ASK_AGAIN, "datasets", dataset, **_prefill(answer.question, answer.sql))),
        _render_saving(frame, answer),
        owner,
        _render_snippets(answer, origin),
        heading=title,
    )


def _render_chart(result: Result, target: str) -> Html | None:
    if not has_chart(result):
        return None
    return element("p", element("img", src=target, alt=texts.CHART, class_="chart"))


def _render_downloads(*parts: str) -> Html:
    *before, entry = parts
    links = [link(form.upper(), *before, f"{entry}.{form}") for form in ("csv", "json", "parquet", "svg")]
    return join(*(join(each, " ") for each in links))


def _render_saving(frame: Frame, answer: Answer) -> Html:
    hidden = [
        element("input", type="hidden", name=name, value=value)
        for name, value in _prefill(answer.question, answer.sql).items()
    ]
    return element(
        "details",
        element("summary", texts.SAVE),
        element(
            "form",
            frame.csrf,
            hidden,
            labelled_field(texts.SAVE_NAME, "name", required=True, maxlength="100"),
            element(
                "label",
                element("input", type="checkbox", name="shared", value="yes"),
                texts.SHARE,
                class_="inline",
            ),
            element("div", element("button", texts.SAVE, type="submit"), class_="actions"),
            method="post",
            action=address("datasets", answer.dataset, "saved"),
        ),
    )


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
    for name, text in make_snippets(answer, origin).items():
        identity = f"copy-{name.lower()}"
        copy = element(
            "button",
            texts.COPY,
            type="button",
            data_copy=identity,
            hidden=True,
            aria_label=f"{texts.COPY}: {name}",
        )
        parts.append(
            join(element("h3", name), copy, element("pre", text, id=identity, tabindex="0", aria_label=name))
        )
    return element("details", element("summary", texts.COPY_AS), parts)


# History and saved questions


def render_history(frame: Frame, dataset: str, items: Sequence[HistoryItem], older: int | None) -> str:
    """Return charged questions, the latest first; showing an answer again is free."""
    rows = [
        (
            link(item.entry, "datasets", dataset, "answers", item.entry),
            format_time(item.timestamp),
            item.user or texts.OWNER,
            element("code", _shorten(item.sql)),
            item.loss,
            texts.OUTCOMES[item.outcome] + (f", {texts.IS_PUBLISHED}" if item.is_published else ""),
        )
        for item in items
    ]
    head = (texts.ENTRY, texts.TIME, texts.WHO, texts.WHAT, texts.PRICE, texts.OUTCOME)
    return render_page(
        frame,
        f"{dataset}: {texts.HISTORY}",
        element("p", texts.HISTORY_HINT, class_="small"),
        render_table(texts.HISTORY, head, rows) if rows else element("p", texts.NO_HISTORY),
        None
        if older is None
        else element("p", link(texts.OLDER, "datasets", dataset, "history", before=older)),
        heading=texts.HISTORY,
    )


def _shorten(sql: str) -> str:
    line = " ".join(sql.split())
    return line if len(line) <= 200 else line[:199] + "…"


def render_saved(frame: Frame, dataset: str, saved: Sequence[SavedQuestion]) -> str:
    """Return saved questions: one's own, and those that others share."""
    rows = []
    for each in saved:
        is_own = each.user == frame.principal.user
        delete = button_form(
            frame,
            address("datasets", dataset, "saved", each.question_id, "delete"),
            texts.DELETE,
            f"{texts.DELETE}: {each.name}",
        )
        rows.append(
            (
                link(each.name, "datasets", dataset, **_prefill(each.question)),
                element("code", _shorten(each.question.sql)),
                each.user,
                texts.YES if each.is_shared else texts.NO,
                delete if is_own else "",
            )
        )
    head = (texts.SAVE_NAME, texts.WHAT, texts.WHO, texts.IS_SHARED, texts.ACTION)
    return render_page(
        frame,
        f"{dataset}: {texts.SAVED}",
        element("p", texts.SAVED_HINT, class_="small"),
        render_table(texts.SAVED, head, rows) if rows else element("p", texts.NO_SAVED),
        heading=texts.SAVED,
    )


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
    facts = publication.result.facts
    listed = [
        element("div", element("dt", name), element("dd", str(facts[name])))
        for name in _FACTS
        if name in facts
    ]
    return [
        render_result(publication.result, publication.title),
        element("p", texts.INTERVALS, class_="small"),
        _render_chart(publication.result, address("public", dataset, f"{entry}.svg")),
        element("p", element("strong", texts.DOWNLOADS), ": ", _render_downloads("public", dataset, entry)),
        element("h2", texts.QUESTION),
        element("pre", publication.sql, tabindex="0", aria_label=texts.SQL_LABEL),
        element("h2", texts.LABEL),
        element("dl", listed, class_="facts"),
        element("p", link(texts.WHOLE_LABEL, "public", dataset, "label")),
    ]
