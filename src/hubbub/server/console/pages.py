"""Pages beside asking: signing in, datasets, tokens, published releases, errors."""

from collections.abc import Mapping, Sequence

from hubbub.errors import HubbubError
from hubbub.server.console import texts
from hubbub.server.console.answer_pages import render_publication_body, render_publications
from hubbub.server.console.layout import (
    Frame,
    address,
    button_form,
    copy_button,
    field,
    format_time,
    link,
    render_page,
    render_refusal,
    render_table,
    show_time,
)
from hubbub.server.console.markup import element
from hubbub.server.service_types import DatasetSummary, Publication, Role, Token

__all__ = [
    "render_datasets",
    "render_error",
    "render_public_dataset",
    "render_public_datasets",
    "render_publication",
    "render_sign_in",
    "render_status",
    "render_tokens",
]


def render_sign_in(
    target: str, error: HubbubError | None = None, user: str = "", *, has_provider: bool = False
) -> str:
    """Return the page on which people sign in; `target` is where they go then."""
    return render_page(
        Frame(),
        texts.SIGN_IN,
        None if error is None else render_refusal(error),
        element(
            "form",
            element("input", type="hidden", name="next", value=target),
            field(texts.USER, "user", user, autocomplete="username", required=True, autocapitalize="off"),
            field(
                texts.PASSWORD, "password", type="password", autocomplete="current-password", required=True
            ),
            element("div", element("button", texts.SIGN_IN, type="submit", class_="main"), class_="actions"),
            method="post",
            action="/sign-in",
            class_="panel narrow",
        ),
        element("p", link(texts.PROVIDER, "oidc", "login")) if has_provider else None,
    )


def render_datasets(frame: Frame, summaries: Sequence[DatasetSummary]) -> str:
    """Return the datasets of somebody who has signed in."""
    rows = [
        (
            link(each.name, "datasets", each.name),
            each.role.value,
            each.unit,
            ", ".join(each.tables),
            texts.IS_PAUSED if each.is_paused else "",
        )
        for each in summaries
    ]
    head = (texts.DATASET, texts.ROLE, texts.UNIT, texts.TABLES, texts.STATE)
    content = render_table(texts.DATASETS, head, rows) if rows else element("p", texts.NO_DATASETS)
    return render_page(frame, texts.DATASETS, content)


def render_tokens(
    frame: Frame, tokens: Sequence[Token], secret: str | None = None, error: HubbubError | None = None
) -> str:
    """Return one's tokens; the secret of a new one is on the page that answers the form, and never again."""
    rows = [
        (
            token.name,
            element("code", token.token_id, class_="line"),
            texts.EVERYWHERE if token.datasets is None else ", ".join(token.datasets),
            token.role.value,
            token.epsilon or "",
            token.spent,
            show_time(token.expires),
            button_form(
                frame,
                address("tokens", token.token_id, "revoke"),
                texts.TOKEN_REVOKE,
                f"{texts.TOKEN_REVOKE}: {token.name}",
            )
            if token.is_active
            else texts.INACTIVE,
        )
        for token in tokens
    ]
    head = (
        texts.TOKEN_NAME,
        texts.IDENTITY,
        texts.DATASETS,
        texts.MOST_ROLE,
        texts.CAP,
        texts.SPENT,
        texts.EXPIRES,
        texts.ACTION,
    )
    new = None
    if secret is not None:
        new = element(
            "div",
            element("p", texts.TOKEN_SECRET),
            element("pre", secret, id="secret", tabindex="0"),
            copy_button("secret", texts.TOKENS),
            class_="panel",
            role="status",
        )
    roles = [element("option", role.value, value=role.value, selected=role is Role.ANALYST) for role in Role]
    return render_page(
        frame,
        texts.TOKENS,
        element("p", texts.TOKEN_HINT),
        None if error is None else render_refusal(error),
        new,
        render_table(texts.TOKENS, head, rows),
        element(
            "form",
            frame.csrf,
            element("h2", texts.TOKEN_MAKE),
            field(texts.TOKEN_NAME, "name", required=True, maxlength="100"),
            field(texts.TOKEN_DATASET, "dataset"),
            element("label", texts.MOST_ROLE, for_="role"),
            element("select", roles, id="role", name="role"),
            field(texts.TOKEN_CAP, "epsilon", inputmode="decimal"),
            field(texts.TOKEN_DAYS, "days", "30", inputmode="decimal"),
            element("div", element("button", texts.TOKEN_MAKE, type="submit"), class_="actions"),
            method="post",
            action="/tokens",
            class_="panel narrow",
        ),
    )


# Published releases


def render_public_datasets(frame: Frame, every: Mapping[str, Sequence[Publication]]) -> str:
    """Return what is published of all datasets that somebody may read."""
    parts = []
    for dataset, publications in every.items():
        parts += [element("h2", link(dataset, "public", dataset)), render_publications(dataset, publications)]
    return render_page(frame, texts.PUBLIC_PAGES, parts or element("p", texts.NOTHING_PUBLIC))


def render_public_dataset(frame: Frame, dataset: str, every: Sequence[Publication]) -> str:
    """Return what is published of a dataset."""
    return render_page(
        frame,
        f"{texts.PUBLIC_PAGES}: {dataset}",
        render_publications(dataset, every),
        element("p", link(texts.WHOLE_LABEL, "public", dataset, "label")),
    )


def render_publication(frame: Frame, publication: Publication) -> str:
    """Return a published release: its table, chart, question and label."""
    where = element(
        "p",
        link(publication.dataset, "public", publication.dataset),
        ", ",
        format_time(publication.timestamp),
    )
    return render_page(frame, publication.title, where, *render_publication_body(publication))


# Errors


def render_error(frame: Frame, error: HubbubError, typed: str = "") -> str:
    """Return the page of an error; what was typed is kept."""
    typed_parts = [element("h2", texts.TYPED), element("pre", typed, tabindex="0")] if typed else []
    return render_page(
        frame, texts.NOT_DONE, render_refusal(error), *typed_parts, element("p", link(texts.BACK))
    )


def render_status(what: str) -> str:
    """Return the page for an address that there is not, or a request that is not understood."""
    return render_page(Frame(), texts.NOT_DONE, element("p", what), element("p", link(texts.BACK)))
