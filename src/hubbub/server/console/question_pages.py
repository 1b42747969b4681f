"""Pages on which people ask: the editor with its plan, dry runs, history and saved questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from hubbub.engines.schema import Kind
from hubbub.errors import HubbubError
from hubbub.server.console import texts
from hubbub.server.console.answer_pages import render_publications, render_result
from hubbub.server.console.forms import FIELDS, prefill, question_fields
from hubbub.server.console.layout import (
    Frame,
    address,
    button_form,
    link,
    render_meter,
    render_page,
    render_refusal,
    render_saving,
    render_table,
    show_time,
)
from hubbub.server.console.layout import field as labelled_field
from hubbub.server.console.markup import Html, element, join
from hubbub.server.console.rewrites import find_rewrites
from hubbub.server.service_types import (
    BudgetReport,
    ColumnDescription,
    DatasetDescription,
    HistoryItem,
    PlanReport,
    Publication,
    SavedQuestion,
)
from hubbub.sql.function_list import FunctionEntry
from hubbub.sql.result import Result

__all__ = [
    "Editor",
    "render_editor",
    "render_history",
    "render_plan",
    "render_plan_refusal",
    "render_saved",
    "render_schema_page",
]

_SHOWN_KEYS = 12


@dataclass(frozen=True)
class Editor:
    """All that the editor shows."""

    description: DatasetDescription
    budget: BudgetReport
    functions: Sequence[FunctionEntry] = ()
    saved: Sequence[SavedQuestion] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    """The typed texts, by field."""
    plan: PlanReport | None = None
    refusal: HubbubError | None = None
    dry_run: Result | None = None
    can_retry: bool = False
    """True if the question failed after its charge, so that it may be charged again."""
    epsilon: str = ""
    """ε of a question that states none, where the owner has declared it."""


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
        plan = join(
            element("p", texts.COST_EMPTY), _render_example(editor.description), render_meter(editor.budget)
        )
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
            labelled_field(
                *_stated("epsilon", values), inputmode="decimal", placeholder=editor.epsilon or None
            ),
            labelled_field(*_stated("error", values), inputmode="decimal", data_slider=texts.SLIDER),
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
        render_saving(address("datasets", dataset, "saved")),
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


def _render_example(description: DatasetDescription) -> Html | None:
    """A link that fills the editor with a question that the declaration allows."""
    table = next((each for each in description.tables if not each.is_public), None)
    if table is None:
        return None
    key = next((each.name for each in table.columns if each.keys and each.name.isidentifier()), None)
    count = f"COUNT(*) AS n FROM {table.name}"
    sql = f"SELECT {count}" if key is None else f"SELECT {key}, {count} GROUP BY {key}"
    target = address("datasets", description.name, sql=sql)
    return element("p", f"{texts.EXAMPLE}: ", element("a", element("code", sql), href=target))


def render_plan(plan: PlanReport, budget: BudgetReport) -> Html:
    """Return cost, expected error, the meter and how many more such questions fit."""
    cost = f"ε = {plan.epsilon}" + ("" if plan.delta == "0" else f", δ = {plan.delta}")
    errors = [element("li", element("code", name), ": ", words) for name, words in plan.errors.items()]
    notes = [element("li", note) for note in plan.notes]
    more = None if plan.count_more is None else texts.MORE.format(count=f"{plan.count_more:,}")
    more = texts.ONE_MORE if plan.count_more == 1 else more
    here = question_fields(plan.question)
    if plan.count_more == 0 and not plan.is_asked:
        more, state = None, _render_misfit(plan, budget, here)
    else:
        state = element("p", texts.ASKED_BEFORE if plan.is_asked else texts.NOTHING_SPENT, class_="good")
    return join(
        element("p", cost, class_="big"),
        state,
        element("ul", errors, class_="plain") if errors else None,
        render_meter(budget, plan),
        element("p", more, class_="small") if more is not None else None,
        element("ul", notes) if notes else None,
        element("p", texts.DEADLINE.format(seconds=f"{plan.deadline:g}"), class_="small")
        if plan.deadline and not plan.is_asked
        else None,
        element(
            "details",
            element("summary", texts.EXPLANATION),
            element("pre", plan.explanation, tabindex="0"),
        ),
        element("p", link(texts.PERMALINK, "datasets", plan.dataset, **here), class_="small"),
    )


def _render_misfit(plan: PlanReport, budget: BudgetReport, here: Mapping[str, str]) -> Html:
    """Return that a question does not fit the budget, with a link to what would."""
    needs_delta = Fraction(plan.delta) > Fraction(budget.left_delta)
    name, left = ("delta", budget.left_delta) if needs_delta else ("epsilon", budget.left_epsilon)
    changed = {**here, name: left}
    if name == "epsilon":
        changed.pop("error", None)
    is_smaller = needs_delta or Fraction(left) < Fraction(plan.epsilon)
    fitting = element(
        "a",
        texts.APPLY.format(setting=f"{texts.SETTINGS[name]} = {left}"),
        href=address("datasets", plan.dataset, **changed),
        class_="button",
    )
    return element(
        "div",
        element("p", texts.TOO_MUCH),
        element("p", fitting) if Fraction(left) > 0 and is_smaller else None,
        element("p", texts.NO_DELTA) if needs_delta and Fraction(left) == 0 else None,
        class_="refusal",
        role="alert",
    )


def render_plan_refusal(
    dataset: str, error: HubbubError, values: Mapping[str, str], budget: BudgetReport | None = None
) -> Html:
    """Return a refusal, with links that fill in what it names; they run nothing."""
    fixes = {
        words: address("datasets", dataset, **changed)
        for words, changed in find_rewrites(error, values, budget).items()
    }
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
        *((name[:1].upper() + name[1:], value) for name, value in description.about.items()),
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
    links = [element("li", link(each.name, "datasets", dataset, **prefill(each.question)))
             for each in editor.saved]  # fmt: skip
    return element(
        "section",
        element("h2", texts.SAVED, id="saved"),
        element("ul", links, class_="plain") if links else element("p", texts.NO_SAVED, class_="small"),
        class_="panel",
        aria_labelledby="saved",
    )


def render_schema_page(frame: Frame, description: DatasetDescription, every: Sequence[Publication]) -> str:
    """Return what a reader sees of a dataset: publications, and what is declared."""
    return render_page(
        frame,
        description.name,
        element("h2", texts.PUBLIC_PAGES),
        render_publications(description.name, every),
        _render_schema(description),
    )


# History and saved questions


def render_history(
    frame: Frame, dataset: str, items: Sequence[HistoryItem], older: int | None, search: str = ""
) -> str:
    """Return charged questions, the latest first; showing an answer again is free."""
    rows = [
        (
            link(item.entry, "datasets", dataset, "answers", item.entry),
            show_time(item.timestamp),
            item.user or texts.OWNER,
            element("code", _shorten(item.sql), class_="question"),
            element("span", item.loss, class_="line"),
            texts.OUTCOMES[item.outcome] + (f", {texts.IS_PUBLISHED}" if item.is_published else ""),
        )
        for item in items
    ]
    head = (texts.ENTRY, texts.TIME, texts.WHO, texts.WHAT, texts.PRICE, texts.OUTCOME)
    return render_page(
        frame,
        f"{dataset}: {texts.HISTORY}",
        element("p", texts.HISTORY_HINT, class_="small"),
        element(
            "form",
            labelled_field(texts.SEARCH, "containing", search, type="search"),
            element("button", texts.SEARCH_BUTTON, type="submit"),
            action=address("datasets", dataset, "history"),
            class_="search",
            role="search",
        ),
        render_table(texts.HISTORY, head, rows)
        if rows
        else element("p", texts.NOTHING_FOUND if search else texts.NO_HISTORY),
        None
        if older is None
        else element(
            "p", link(texts.OLDER, "datasets", dataset, "history", before=older, containing=search or None)
        ),
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
                link(each.name, "datasets", dataset, **prefill(each.question)),
                element("code", _shorten(each.question.sql), class_="question"),
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
