"""The privacy label of an account's history: who is protected, how, and what all of it costs together."""

import html
import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from hubbub.ledger.account import Account
from hubbub.ledger.book import Entry, cost_from_plain
from hubbub.loss import Cost, Filter, Loss, Odometer
from hubbub.loss.stored import loss_from_json
from hubbub.rational import shown_down, shown_up

__all__ = ["burn_down", "by_dataset", "label", "label_html", "label_text", "label_yaml", "more_like_the_last"]

_WIDTH = 40
_STEPS = 12
_MOST = 20


def label(account: Account) -> dict[str, Any]:
    """The facts, as JSON can hold them; free of data.

    What is asked for by NIST SP 800-226 and the deployment registry of OpenDP, as far as a ledger knows it.
    """
    total, entries = account.total, list(account.entries())
    left, reading = account.left(), total.reading()
    charges = [entry for entry in entries if entry.kind == "charge"]
    released = {entry.body["charge"] for entry in entries if entry.kind == "release"}
    return {
        "format": "hubbub label/1",
        "account": account.name,
        "unit": account.unit.key or "row",
        "neighbours": account.unit.neighbours.value,
        "model": "central model",
        "definition": "pure differential privacy" if total.delta == 0 else "approximate differential privacy",
        "promise": {"epsilon": shown_up(total.epsilon), "delta": shown_up(total.delta)},
        "spent": {
            "epsilon": None if reading.epsilon is None else shown_up(reading.epsilon),
            "delta": shown_up(reading.delta),
        },
        "left": {"epsilon": shown_down(left.epsilon)},
        "composition": "adaptive: a filter over pure, Rényi and Gaussian sums (docs/proofs/filters.md)",
        "analysts": {
            who: {"epsilon": shown_up(theirs.epsilon), "delta": shown_up(theirs.delta)}
            for who, theirs in account.analysts().items()
        },
        "versions": [entry.body["version"] for entry in entries if entry.kind == "version"],
        "exact looks by the owner": sum(entry.kind == "exact" for entry in entries),
        "closed": account.is_closed,
        "releases": [_release(entry, is_kept=entry.number in released) for entry in charges],
        "head": entries[-1].digest if entries else None,
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
    }


def more_like_the_last(account: Account) -> int | None:
    """About how many more charges like the last one fit; None where there was none."""
    last = None
    for entry in account.entries():
        last = entry if entry.kind == "charge" else last
    if last is None:
        return None
    return min(_more(total, cost_from_plain(last.body["cost"], total.orders)) for total in account.totals())


def _more(total: Filter, cost: Cost) -> int:
    sums = [cost]
    while len(sums) < _MOST and total.allows(sums[-1]):  # doubling, and then what is between
        sums.append(sums[-1] + sums[-1])
    count = 0
    for power in reversed(range(len(sums))):
        if total.allows(sums[power]):
            total, count = total.charge(sums[power]), count + 2**power
    return count


def by_dataset(account: Account) -> dict[str, Fraction | None]:
    """The ε of each dataset's charges by themselves, at the account's δ; infinite where it is None."""
    total = account.total
    sums: dict[str, Odometer] = {}
    for entry in account.entries():
        if entry.kind == "charge" and entry.body["dataset"]:
            name = entry.body["dataset"]
            start = sums.get(name, Odometer(total.delta, total.orders))
            sums[name] = start.after(cost_from_plain(entry.body["cost"], total.orders))
    return {name: odometer.reading().epsilon for name, odometer in sums.items()}


def burn_down(account: Account) -> Iterator[str]:
    """What was left, charge by charge: a bar for each of a dozen moments."""
    budget = account.total
    orders, spent = budget.orders, Odometer(0, budget.orders).spent
    charges = [entry for entry in account.entries() if entry.kind == "charge"]
    every = max(1, -(-len(charges) // _STEPS))
    for place, entry in enumerate(charges, 1):
        spent += cost_from_plain(entry.body["cost"], orders)
        if place % every == 0 or place == len(charges):
            reached = Filter(budget, orders, budget.split, spent=spent).reading().epsilon
            share = 1.0 if reached is None else min(1.0, float(reached / budget.epsilon))
            full = round(_WIDTH * (1 - share))
            bar = "█" * full + "·" * (_WIDTH - full)
            yield f"{entry.moment[:16].replace('T', ' ')} {bar} {100 * (1 - share):.0f} %"


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
        *(["closed"] if facts["closed"] else []),
        f"{len(facts['releases'])} charges:",
    ]
    for each in facts["releases"]:
        lines.append(f"  {each['line']}  {each['when'][:19]}  {each['who']}  {each['loss']}")
        lines.append(f"      {' '.join(each['what'].split())}")
    return "\n".join(lines) + "\n"


def label_yaml(facts: dict[str, Any]) -> str:
    """The label as YAML: each name a line, each value as JSON, which YAML reads too."""
    return "\n".join(_yaml(facts, "")) + "\n"


def _yaml(facts: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"


def label_html(facts: dict[str, Any]) -> str:
    """The label as a page of its own."""
    rest = {name: value for name, value in facts.items() if name not in {"releases", "format"}}
    rows = "".join(
        f"<tr><th>{_safe(name)}</th><td>{_safe(_shown(value))}</td></tr>" for name, value in rest.items()
    )
    columns = ("line", "when", "who", "what", "loss")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(str(each[name]))}</td>" for name in columns) + "</tr>"
        for each in facts["releases"]
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(facts["account"])}</title>'
        f"<h1>Privacy label of {_safe(facts['account'])}</h1><table>{rows}</table>"
        f"<h2>Releases</h2><table><tr>{head}</tr>{body}</table></html>\n"
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items())
    return str(value)


def _safe(text: str) -> str:
    return html.escape(text)


def _loss(entry: Entry) -> Loss:
    return loss_from_json(json.dumps(entry.body["loss"]))
