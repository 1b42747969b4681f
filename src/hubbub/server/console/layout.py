"""What all pages of the console share: the frame, forms, refusals and the budget meter."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from hubbub.errors import HubbubError
from hubbub.server.auth import Session
from hubbub.server.console import texts
from hubbub.server.console.markup import Html, element, join
from hubbub.server.console.rewrites import spell
from hubbub.server.service_types import BudgetReport, PlanReport, Principal, Role

__all__ = [
    "Frame",
    "address",
    "button_form",
    "copy_button",
    "field",
    "format_time",
    "link",
    "render_meter",
    "render_page",
    "render_refusal",
    "render_saving",
    "render_table",
    "show_time",
]


@dataclass(frozen=True)
class Frame:
    """The reader of a page, and the page she is on."""

    session: Session | None = None
    dataset: str | None = None
    role: Role | None = None
    tab: str = ""
    """The name of the page among those of the dataset."""

    @property
    def principal(self) -> Principal:
        """Somebody who has signed in, or nobody."""
        return Principal.anonymous() if self.session is None else self.session.principal

    @property
    def csrf(self) -> Html | None:
        """The hidden field that every form of a session has."""
        if self.session is None:
            return None
        return element("input", type="hidden", name="csrf", value=self.session.csrf)


def address(*parts: object, **query: object) -> str:
    """Return a local address; every part and every value is quoted.

    >>> address("datasets", "a/b", sql="x & y")
    '/datasets/a%2Fb?sql=x+%26+y'
    """
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    stated = {name: value for name, value in query.items() if value not in {None, ""}}
    return path + ("?" + urlencode(stated) if stated else "")


def link(words: object, *parts: object, **query: object) -> Html:
    """Return a link to a page of the console."""
    return element("a", words, href=address(*parts, **query))


def field(label: str, name: str, value: object = "", hint: str | None = None, **attributes: object) -> Html:
    """Return a labelled input; `hint` is read with it."""
    identity = attributes.pop("id", None) or f"field-{name}"
    described = None if hint is None else f"{identity}-hint"
    stated = {"type": "text", "autocomplete": "off", **attributes}
    return element(
        "div",
        element("label", label, for_=identity),
        element("input", id=identity, name=name, value=value, aria_describedby=described, **stated),
        None if hint is None else element("p", hint, class_="small", id=described),
    )


def button_form(frame: Frame, path: str, words: str, label: str | None = None, /, **values: object) -> Html:
    """Return a form that is one button; `label` names what it is for, where several look alike."""
    hidden = [element("input", type="hidden", name=name, value=value) for name, value in values.items()]
    button = element("button", words, type="submit", aria_label=label)
    return element("form", frame.csrf, hidden, button, method="post", action=path)


def render_saving(target: str) -> Html:
    """Return the part of a form that saves its question under a name."""
    return element(
        "details",
        element("summary", texts.SAVE),
        field(texts.SAVE_NAME, "name", maxlength="100"),
        element(
            "label",
            element("input", type="checkbox", name="shared", value="yes"),
            texts.SHARE,
            class_="inline",
        ),
        element("div", element("button", texts.SAVE, type="submit", formaction=target), class_="actions"),
    )


def render_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()
) -> Html:
    """Return a table, or a line that says that there is nothing."""
    right = set(numbers)
    body = [
        element(
            "tr",
            [
                element("td", cell, class_="number" if place in right else None)
                for place, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    if not body:
        return element("p", texts.NO_ROWS, class_="small")
    names = [
        element("th", name, scope="col", class_="number" if place in right else None)
        for place, name in enumerate(head)
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="hidden"),
            element("thead", element("tr", names)),
            element("tbody", body),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"{texts.TABLE}: {caption}",
    )


def format_time(moment: str) -> str:
    """Return a moment to the minute; all are UTC.

    >>> format_time("2026-11-18T05:34:12.123456+00:00")
    '2026-11-18 05:34'
    """
    return moment[:16].replace("T", " ")


def show_time(moment: str) -> Html:
    """Return a moment for a cell of a table, on one line."""
    return element("span", format_time(moment), class_="line")


def render_meter(budget: BudgetReport, plan: PlanReport | None = None) -> Html:
    """Return the meter: what is spent, what this question would take, what is left."""
    total = float(budget.epsilon)
    spent = float(budget.spent_epsilon)
    this = 0.0 if plan is None or plan.is_asked else float(plan.epsilon)
    shares = [min(1.0, max(0.0, each / total)) if total else 0.0 for each in (spent, this)]
    start, width = 300 * shares[0], 300 * shares[1]
    words = [f"{texts.SPENT} ε = {budget.spent_epsilon} {texts.OF} {budget.epsilon}"]
    if this and plan is not None:
        words.append(f"{texts.THIS} ε = {plan.epsilon}")
    delta = "" if budget.left_delta == "0" else f", δ = {budget.left_delta}"
    words.append(f"{texts.LEFT} ε = {budget.left_epsilon}{delta}")
    picture = element(
        "svg",
        element("rect", x="0", y="0", width="300", height="12", class_="back"),
        element("rect", x="0", y="0", width=f"{start:.2f}", height="12", class_="spent"),
        element(
            "rect",
            x=f"{start:.2f}",
            y="0",
            width=f"{min(width, 300 - start):.2f}",
            height="12",
            class_="this",
        ),
        viewBox="0 0 300 12",
        preserveAspectRatio="none",
        class_="meter",
        role="img",
        aria_label=f"{texts.BUDGET}: {', '.join(words)}",
    )
    legend = [
        element("span", word, class_="this-words" if word.startswith(texts.THIS) else None) for word in words
    ]
    return element("div", picture, element("p", legend, class_="legend"))


def copy_button(identity: str, name: str) -> Html:
    """Return a button that copies the text of an element; it appears where scripts run."""
    return element(
        "button",
        texts.COPY,
        type="button",
        data_copy=identity,
        hidden=True,
        data_done=texts.COPIED,
        aria_label=f"{texts.COPY}: {name}",
    )


# Refusals


def render_refusal(
    error: HubbubError, fixes: Mapping[str, str] | None = None, *, title: str = texts.REFUSED
) -> Html:
    """Return what, why and fix, with links that apply the fix to the question; nothing runs by them."""
    what, why, fix = error.render(spell)
    clicks = [
        element("p", element("a", words, href=target, class_="button"))
        for words, target in (fixes or {}).items()
    ]
    return element(
        "div",
        element("h2", title),
        element("p", _sentence(what)),
        element("p", element("strong", texts.WHY), ": ", _sentence(why, is_start=False)),
        element("p", element("strong", texts.FIX), ": ", _sentence(fix, is_start=False)),
        clicks,
        class_="refusal",
        role="alert",
    )


def _sentence(text: str, *, is_start: bool = True) -> str:
    return (text[:1].upper() + text[1:] if is_start else text) + "."


# The frame


def render_page(frame: Frame, title: str, *content: object, heading: object = None) -> str:
    """Return a whole page."""
    settings = '{"includeIndicatorCSS":false}'
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="htmx-config", content=settings),
        element("title", f"{title} · {texts.NAME}"),
        element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/static/style.css"),
        element("script", src="/static/htmx.min.js", defer=True),
        element("script", src="/static/console.js", defer=True),
    )
    body = element(
        "body",
        element("a", texts.SKIP, href="#content", class_="skip"),
        _render_top(frame),
        element(
            "main",
            element("h1", heading or title),
            _render_tabs(frame),
            *content,
            id="content",
            tabindex="-1",
        ),
        element("footer", element("p", texts.TAGLINE, class_="small")),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en")


def _render_top(frame: Frame) -> Html:
    is_known = frame.session is not None
    links = [link(texts.DATASETS, "datasets"), link(texts.TOKENS, "tokens")] if is_known else []
    links.append(link(texts.PUBLIC_PAGES, "public"))
    who: Html
    if is_known:
        who = element(
            "form",
            frame.csrf,
            element("span", frame.principal.user, class_="who"),
            " ",
            element("button", texts.SIGN_OUT, type="submit"),
            method="post",
            action="/sign-out",
        )
    else:
        who = link(texts.SIGN_IN, "sign-in")
    return element(
        "header",
        element("a", texts.NAME, href="/", class_="brand"),
        element("nav", links, aria_label=texts.SITE_NAVIGATION),
        who,
        class_="top",
    )


def _render_tabs(frame: Frame) -> Html | None:
    if frame.dataset is None or frame.role is None:
        return None
    tabs: dict[str, tuple[str, ...]] = {texts.ASK if frame.role is not Role.READER else texts.SCHEMA: ()}
    if frame.role is not Role.READER:
        tabs |= {texts.HISTORY: ("history",), texts.SAVED: ("saved",)}
    tabs |= {texts.LABEL: ("label",)}
    if frame.role is Role.OWNER:
        tabs |= {texts.MANAGE: ("manage",)}
    links = [
        element(
            "a",
            words,
            href=address("datasets", frame.dataset, *parts),
            aria_current="page" if words == frame.tab else None,
        )
        for words, parts in tabs.items()
    ]
    return element("nav", join(*links), class_="tabs", aria_label=texts.DATASET_NAVIGATION)
