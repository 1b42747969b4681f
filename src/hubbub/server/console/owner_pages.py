"""The page of the owner: people, budgets, pauses, requests, the ledger and the audit log."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from hubbub.ledger.entries import Entry, EntryKind, read_loss
from hubbub.ledger.verify import VerificationReport
from hubbub.numbers import format_up
from hubbub.server.console import texts
from hubbub.server.console.layout import (
    Frame,
    address,
    button_form,
    field,
    render_meter,
    render_page,
    render_table,
    show_time,
)
from hubbub.server.console.markup import Html, element, join
from hubbub.server.service_types import AuditRecord, BudgetReport, RaiseRequest, Role, Token

__all__ = ["SHOWN", "Management", "render_management"]

SHOWN = 100
"""Entries of the ledger and of the audit log on the page; `hubbub ledger list` has all."""


@dataclass(frozen=True)
class Management:
    """All that an owner's page shows."""

    dataset: str
    people: Mapping[str, Role]
    budget: BudgetReport
    raises: Sequence[RaiseRequest]
    entries: Sequence[Entry]
    audit: Sequence[AuditRecord]
    """The latest first."""
    tokens: Sequence[Token]
    paused: Collection[str]
    """Users who may not ask at the moment."""
    verification: VerificationReport | None = None
    """Where the owner asked for it."""
    audit_problems: Sequence[str] | None = None
    message: str = ""


def render_management(frame: Frame, state: Management) -> str:
    """Return the page on which an owner manages a dataset."""
    target = address("datasets", state.dataset, "manage")
    return render_page(
        frame,
        f"{state.dataset}: {texts.MANAGE}",
        element("p", state.message, class_="notice", role="status") if state.message else None,
        _section("budget", texts.BUDGET, render_meter(state.budget), _render_pause(frame, state, target)),
        _section("people", texts.PEOPLE, _render_people(frame, state, target)),
        _section("tokens", texts.OF_ANALYSTS, _render_tokens(frame, state, target)),
        _section("raises", texts.RAISES, _render_raises(frame, state, target)),
        _section("ledger", texts.LEDGER, _render_ledger(frame, state, target)),
        _section("audit", texts.AUDIT_LOG, _render_audit(frame, state, target)),
        heading=texts.MANAGE,
    )


def _section(identity: str, title: str, *content: object) -> Html:
    return element(
        "section",
        element("h2", title, id=f"{identity}-title"),
        *content,
        id=identity,
        aria_labelledby=f"{identity}-title",
    )


def _render_pause(frame: Frame, state: Management, target: str) -> Html:
    if "" in state.paused:
        return join(
            element("p", texts.PAUSED, class_="notice"),
            button_form(frame, target, texts.RESUME, None, action="resume"),
        )
    return join(
        button_form(frame, target, texts.PAUSE, None, action="pause"),
        element("p", texts.PAUSE_ALL, class_="small"),
    )


def _render_people(frame: Frame, state: Management, target: str) -> Html:
    rows = [
        (
            name,
            role.value,
            *state.budget.analysts.get(name, ("", "", "")),
            texts.PERSON_PAUSED if name in state.paused else "",
            button_form(
                frame, target, texts.RESUME if name in state.paused else texts.PAUSE,
                f"{texts.RESUME if name in state.paused else texts.PAUSE}: {name}",
                action="resume" if name in state.paused else "pause", user=name,
            ) if role is not Role.READER else "",
        )
        for name, role in state.people.items()
    ]  # fmt: skip
    options = [
        element("option", role.value, value=role.value, selected=role is Role.ANALYST) for role in Role
    ]
    names = element("datalist", [element("option", value=name) for name in state.people], id="known")
    roles = element(
        "form",
        frame.csrf,
        element("h3", texts.GIVE_ROLE),
        field(texts.USER, "user", required=True, list="known", id="role-user"),
        element("label", texts.ROLE_LABEL, for_="role"),
        element("select", options, element("option", texts.ROLE_NONE, value="none"), id="role", name="role"),
        element("div", _button(texts.GIVE_ROLE, "role"), class_="actions"),
        method="post",
        action=target,
        class_="panel",
    )
    grants = element(
        "form",
        frame.csrf,
        element("h3", texts.GRANT),
        field(texts.ANALYST, "user", required=True, list="known", id="grant-user"),
        field("ε", "epsilon", required=True, inputmode="decimal"),
        field("δ", "delta", inputmode="decimal"),
        element("p", texts.GRANT_HINT, class_="small"),
        element("div", _button(texts.GRANT, "grant"), class_="actions"),
        method="post",
        action=target,
        class_="panel",
    )
    head = (
        texts.USER, texts.ROLE_LABEL, texts.GRANTED, texts.SPENT, texts.GRANTED_DELTA, texts.STATE,
        texts.ACTION,
    )  # fmt: skip
    return join(
        render_table(texts.PEOPLE, head, rows, (2, 3, 4)),
        names,
        element("div", roles, grants, class_="fields wide"),
    )


def _render_tokens(frame: Frame, state: Management, target: str) -> Html:
    rows = [
        (
            each.user,
            each.name,
            element("code", each.token_id, class_="line"),
            each.role.value,
            each.epsilon or "",
            each.spent,
            show_time(each.expires),
            button_form(
                frame, target, texts.TOKEN_REVOKE, f"{texts.TOKEN_REVOKE}: {each.name}",
                action="revoke", token=each.token_id,
            ),
        )
        for each in state.tokens
    ]  # fmt: skip
    head = (
        texts.USER, texts.TOKEN_NAME, texts.IDENTITY, texts.MOST_ROLE, texts.CAP, texts.SPENT, texts.EXPIRES,
        texts.ACTION,
    )  # fmt: skip
    return render_table(texts.OF_ANALYSTS, head, rows, (4, 5))


def _button(words: str, action: str) -> Html:
    return element("button", words, type="submit", name="action", value=action)


def _render_raises(frame: Frame, state: Management, target: str) -> Html:
    rows = [
        (
            show_time(each.timestamp),
            each.analyst,
            _show_number(each.epsilon),
            _show_number(each.delta),
            each.requester,
            join(
                button_form(
                    frame, target, texts.APPROVE, f"{texts.APPROVE}: {each.analyst}",
                    action="approve", request=each.request_id,
                ),
                button_form(
                    frame, target, texts.REFUSE, f"{texts.REFUSE}: {each.analyst}",
                    action="refuse", request=each.request_id,
                ),
            ),
        )
        for each in state.raises
    ]  # fmt: skip
    head = (texts.TIME, texts.ANALYST, "ε", "δ", texts.REQUESTER, texts.ACTION)
    return render_table(texts.RAISES, head, rows)


def _show_number(text: str) -> str:
    """Return an exact number, which may be a fraction, as people read it."""
    return format_up(Fraction(text))


def _render_ledger(frame: Frame, state: Management, target: str) -> Html:
    report = None
    if state.verification is not None:
        is_right = state.verification.ok
        words = (
            texts.LEDGER_OK.format(count=state.verification.entries)
            if is_right
            else texts.LEDGER_BAD.format(problem=state.verification.problem)
        )
        report = element("p", words, class_="good" if is_right else "bad", role="status")
    rows = [
        (
            entry.number,
            show_time(entry.timestamp),
            entry.kind,
            entry.analyst or texts.OWNER,
            element("span", read_loss(entry.body["loss"]), class_="line")
            if entry.kind == EntryKind.CHARGE
            else "",
            element("code", entry.digest[:16], class_="line"),
        )
        for entry in list(reversed(state.entries))[:SHOWN]
    ]
    head = (texts.ENTRY, texts.TIME, texts.KIND, texts.WHO, texts.PRICE, texts.DIGEST)
    return join(
        button_form(frame, target, texts.VERIFY, f"{texts.VERIFY}: {texts.LEDGER}", action="verify"),
        report,
        render_table(texts.LEDGER, head, rows),
    )


def _render_audit(frame: Frame, state: Management, target: str) -> Html:
    report = None
    if state.audit_problems is not None:
        is_right = not state.audit_problems
        words = texts.AUDIT_OK if is_right else texts.AUDIT_BAD
        report = element("p", words, class_="good" if is_right else "bad", role="status")
    rows = [
        (
            record.number,
            show_time(record.timestamp),
            record.user,
            record.action,
            ", ".join(
                f"{name}: {_show_number(value) if name in {'epsilon', 'delta'} else value}"
                for name, value in record.detail.items()
                if value is not None
            ),
        )
        for record in state.audit
    ]
    head = (texts.ENTRY, texts.TIME, texts.WHO, texts.ACTION, texts.DETAIL)
    return join(
        button_form(frame, target, texts.VERIFY, f"{texts.VERIFY}: {texts.AUDIT_LOG}", action="verify-audit"),
        report,
        render_table(texts.AUDIT_LOG, head, rows),
    )
