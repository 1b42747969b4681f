"""The privacy label of an account's history: who is protected, how, and what all of it costs together."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hubbub.ledger.account import Account
from hubbub.ledger.book import Entry, read_as_written
from hubbub.ledger.history import History, Moment
from hubbub.ledger.registry import deployment, guarantees
from hubbub.loss import Loss
from hubbub.loss.stored import loss_from_json
from hubbub.rational import shown_down, shown_up
from hubbub.visible import visible, visible_json

__all__ = ["bars", "label", "label_html", "label_text", "label_yaml"]

_WIDTH = 40


@read_as_written()
def label(account: Account, about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The facts, as JSON can hold them; free of data.

    With what the OpenDP deployment registry and NIST SP 800-226 ask for; `about` is what the owner states.
    """
    history = History.of(account, keep=True)
    total, left, reading = history.total, account.left(), history.total.reading()
    return {
        "format": "hubbub label/1",
        "account": account.name,
        "unit": account.unit.name,
        "neighbours": account.unit.neighbours.value,
        "model": "central model",
        "definition": "pure differential privacy" if total.delta == 0 else "approximate differential privacy",
        "promise": {"epsilon": shown_up(total.epsilon), "delta": shown_up(total.delta)},
        "spent": {
            "epsilon": None if reading.epsilon is None else shown_up(reading.epsilon),
            "delta": shown_up(reading.delta),
        },
        "left": {"epsilon": shown_down(left.epsilon)},
        **({} if account.unit.window is None else {"lifetime": account.lifetime().said()}),
        "composition": "adaptive: a filter over pure, Rényi and Gaussian sums (docs/proofs/filters.md)",
        "analysts": {
            who: {"epsilon": shown_up(theirs.epsilon), "delta": shown_up(theirs.delta)}
            for who, theirs in account.analysts().items()
        },
        "datasets": {
            name: None if epsilon is None else shown_up(epsilon)
            for name, epsilon in history.by_dataset().items()
        },
        "versions": history.versions,
        "exact looks by the owner": history.exact,
        "the owner's word": history.words,
        "closed": account.is_closed,
        "deployment": deployment(account, history, about),
        "NIST SP 800-226": guarantees(account, history, about),
        "burn-down": [
            {"charges": each.charges, "when": each.when, "left": round(each.left, 4)}
            for each in history.burn_down()
        ],
        "releases": [_release(entry, is_kept=entry.number in history.released) for entry in history.charges],
        "head": history.head,
    }


def _release(entry: Entry, *, is_kept: bool) -> dict[str, Any]:
    loss = _loss(entry)
    return {
        "line": entry.number,
        "dataset": entry.body["dataset"],
        "when": entry.moment,
        "who": entry.who or "owner",
        "what": entry.body["what"],
        "loss": str(loss),
        "mechanisms": entry.body["loss"]["ways"],
        "answer kept": is_kept,
        "combined with lines": entry.body.get("with", []),
    }


def bars(moments: Sequence[Moment]) -> Iterator[str]:
    """What was left, charge by charge: a bar for each moment."""
    for each in moments:
        full = round(_WIDTH * each.left)
        bar = "█" * full + "·" * (_WIDTH - full)
        yield f"{each.when[:16].replace('T', ' ')} {bar} {100 * each.left:.0f} %"


def label_text(facts: dict[str, Any]) -> str:
    """The label for people."""
    promise, spent, left = facts["promise"], facts["spent"], facts["left"]
    lines = [
        f"{facts['account']}: one {facts['unit']} is protected ({facts['neighbours']}), {facts['model']}",
        f"promised: ε = {promise['epsilon']}, δ = {promise['delta']} ({facts['definition']})",
        f"spent so far: ε = {spent['epsilon'] or '∞'}, δ = {spent['delta']}; left: ε = {left['epsilon']}",
        f"composition: {facts['composition']}",
        *(f"{who} may spend ε = {theirs['epsilon']}" for who, theirs in facts["analysts"].items()),
        f"exact looks by the owner: {facts['exact looks by the owner']}",
        *(f"the owner's word: {word}" for word in facts["the owner's word"]),
        *([f"lifetime: {facts['lifetime']}"] if "lifetime" in facts else []),
        *(["closed"] if facts["closed"] else []),
        f"{len(facts['releases'])} charges:",
    ]
    for each in facts["releases"]:
        lines.append(f"  {each['line']}  {each['when'][:19]}  {each['who']}  {each['loss']}")
        lines.append(f"      {' '.join(each['what'].split())}")
    for part, values in facts["deployment"].items():
        lines += ["", part.replace("_", " ")]
        lines += [f"  {name.replace('_', ' ')}: {_shown(value)}" for name, value in values.items()]
    lines += ["", "NIST SP 800-226"]
    lines += [f"  {name}: {value}" for name, value in facts["NIST SP 800-226"].items()]
    return "\n".join(map(visible, lines)) + "\n"


def label_yaml(facts: dict[str, Any]) -> str:
    """The label as YAML: each name a line, each value as JSON, which YAML reads too."""
    return visible_json("\n".join(_yaml(facts, "")) + "\n")


def _yaml(facts: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"


def label_html(facts: dict[str, Any]) -> str:
    """The label as a page of its own."""
    apart = ("releases", "format", "deployment", "NIST SP 800-226", "burn-down")
    rest = {name: value for name, value in facts.items() if name not in apart}
    columns = ("line", "when", "who", "what", "loss")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(str(each[name]))}</td>" for name in columns) + "</tr>"
        for each in facts["releases"]
    )
    parts = "".join(
        f"<h3>{_safe(part.replace('_', ' '))}</h3>{_rows(values)}"
        for part, values in facts["deployment"].items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(facts["account"])}</title>'
        f"<h1>Privacy label of {_safe(facts['account'])}</h1>{_rows(rest)}{_picture(facts['burn-down'])}"
        f"<h2>Deployment (OpenDP registry)</h2>{parts}"
        f"<h2>Guarantee (NIST SP 800-226)</h2>{_rows(facts['NIST SP 800-226'])}"
        f"<h2>Releases</h2><table><tr>{head}</tr>{body}</table></html>\n"
    )


def _rows(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{_safe(name.replace('_', ' '))}</th><td>{_safe(_shown(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _picture(moments: Sequence[Mapping[str, Any]]) -> str:
    """What was left after each charge, as steps that go down."""
    if not moments:
        return ""
    most = moments[-1]["charges"]
    points, before = ["0,0"], 0.0
    for each in moments:
        across = 400 * each["charges"] / most
        points += [f"{across:.1f},{100 * before:.1f}", f"{across:.1f},{100 * (1 - each['left']):.1f}"]
        before = 1 - each["left"]
    return (
        '<svg viewBox="-10 -10 420 120" width="420" role="img" aria-label="what was left of the budget">'
        '<line x1="0" y1="100" x2="400" y2="100" stroke="currentColor"/>'
        f'<polyline points="{" ".join(points)}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items())
    return str(value)


def _safe(text: str) -> str:
    return html.escape(visible(text))


def _loss(entry: Entry) -> Loss:
    return loss_from_json(json.dumps(entry.body["loss"]))
