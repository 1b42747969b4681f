"""The privacy label of an account or of one release, as facts: who is protected, how, and at what cost.

The format is that of label.schema.json, beside this file. `label_pages` renders it, `label_check` checks it.
Everything in it is in the ledger's entries or stated by the owner, or restates that: no stored answer is
read, so that nobody learns from a label what somebody else was released.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from hubbub.accounting import PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.errors import InvalidInput
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.entries import Entry, read_loss, refuse_malformed, utc_now
from hubbub.ledger.signing import sign_text
from hubbub.numbers import format_down, format_up
from hubbub.report.history import History
from hubbub.report.registry import NOT_STATED, deployment, guarantees, stated

__all__ = [
    "FORMAT",
    "describe_budgets",
    "describe_promise",
    "label",
    "restate",
    "signed_label",
    "signed_part",
    "state_epsilon",
]

FORMAT = "hubbub label/2"
_FROM_WHOM = (
    "From everybody who sees what was released, and all of them together, whatever else they know or will "
    "learn: analysts, readers, the public. Not from the curator, who holds the rows, nor from the machine "
    "that computes."
)
_NOT_COVERED = (
    "What clamping and contribution bounding change: intervals are of the bounded query.",
    "Time and memory: how long a query takes is not protected.",
    "What holds for the crowd: that smoking harms is learnt with or without any one person.",
    "What was declared: keys, bounds and limits are public, and must not come from the rows.",
    "What else was published of the same people: other accounts, other ledgers and anything outside of them.",
)


@refuse_malformed()
def label(
    account: LedgerAccount,
    about: Mapping[str, str] | None = None,
    *,
    release: int | None = None,
    until: int | None = None,
) -> dict[str, Any]:
    """Return the facts, as JSON can hold them; free of data.

    Args:
        account: the account.
        about: what the owner states, by the names of `[about]` in hubbub.toml.
        release: the entry of a charge: the label is of that release alone, within its account.
        until: the last entry that it covers, as if it had been made then, but for analysts' budgets; all of
            them if omitted.

    Guarantee: a function of the ledger's entries and of what the owner states.
    """
    history = History.of(account, keep=True, until=until)
    total, reading = history.total, history.total.spent()
    left = account.remaining() if until is None else total.remaining()
    upto = float("inf") if until is None else until
    charges = [entry for entry in history.charges if release in {None, entry.number}]
    if release is not None and not charges:
        raise InvalidInput(
            f"entry {release} is not a charge of this account",
            why="a label describes a charged release",
            fix="see hubbub ledger list",
        )
    unit = account.unit
    facts: dict[str, Any] = {
        "format": FORMAT,
        "scope": "account" if release is None else "release",
        "made": utc_now(),
        "account": account.name,
        "family": account.family,
        "unit column": unit.key,
        "window": None if unit.window is None else str(unit.window),
        "neighbours": unit.neighbours.value,
        "filter": type(total)(total).to_json(),
        "spent": {"epsilon": format_up(reading.epsilon), "delta": format_up(reading.delta)},
        "left": {"epsilon": format_down(left.epsilon), "delta": format_down(left.delta)},
        **({} if unit.window is None else {"lifetime": account.lifetime_loss(upto).describe()}),
        "analysts": describe_budgets(account.analysts()),
        "datasets": {name: format_up(epsilon) for name, epsilon in history.by_dataset().items()},
        "versions": history.versions,
        "charges": history.count,
        "first charge": history.first_moment,
        "mechanisms": history.mechanisms(),
        "times of non-private accesses": [entry.timestamp for entry in history.accesses],
        "owner assertions": history.words,
        "closed": history.is_closed,
        "burn-down": [
            {"charges": each.charges, "when": each.when, "left": round(each.left, 4)}
            for each in history.burn_down()
        ],
        "releases": [
            _release(entry, history, is_stored=entry.number in history.released) for entry in charges
        ],
        "restores": [
            {"entry": entry.number, "loss": entry.body["loss"], "charged": entry.body["charged"]}
            for entry in history.restores
        ],
        "stated": dict(about or {}),
        "head": history.head,
        "entries": history.entries,
    }
    return {**facts, **restate(facts)}


def describe_budgets(filters: Mapping[str, PrivacyFilter]) -> dict[str, dict[str, str]]:
    """Return the budget of each analyst."""
    return {
        who: {"epsilon": format_up(each.epsilon), "delta": format_up(each.delta)}
        for who, each in filters.items()
    }


def restate(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that a label says in words or says twice, from its other facts: readers can check it.

    Args:
        facts: a label, or the part of it that the ledger and the owner give; not trusted.
    """
    budget = PrivacyFilter.from_json(facts["filter"])
    statements = stated(facts["stated"])
    promise = {"epsilon": format_up(budget.epsilon), "delta": format_up(budget.delta)}
    is_row, window = facts["unit column"] is None, facts["window"]
    unit = ("row" if is_row else facts["unit column"]) + ("" if window is None else f" × window ({window})")
    words = {
        "unit": unit,
        "title": facts["family"] if statements["name"] == NOT_STATED else statements["name"],
        "unit description": f"Neighbouring databases differ in {'' if is_row else 'all rows of '}one {unit}, "
        f"{facts['neighbours']}.",
        "from whom": _FROM_WHOM,
        "model": "central model",
        "definition": f"{'pure' if budget.delta == 0 else 'approximate'} differential privacy",
        "promise": promise,
        "promise in words": describe_promise(unit, budget.epsilon, budget.delta, is_row=is_row),
        "composition": "adaptive: a privacy filter of sums of (ε, δ), then of Gaussian or Rényi curves",
        "non-private accesses": len(facts["times of non-private accesses"]),
        "not covered": list(_NOT_COVERED),
        "not stated": [name for name, text in statements.items() if text == NOT_STATED],
    }
    known = {**facts, **words}
    return {
        **words,
        "deployment": deployment(known, facts["stated"]),
        "NIST SP 800-226": guarantees(known, facts["stated"]),
    }


def _release(entry: Entry, history: History, *, is_stored: bool) -> dict[str, Any]:
    body = entry.body
    loss = read_loss(body["loss"])
    epsilon, delta = state_epsilon(loss, history.total.delta)
    return {
        "entry": entry.number,
        "dataset": body["dataset"],
        "when": entry.timestamp,
        "who": entry.analyst or "owner",
        "what": body["description"],
        "epsilon": epsilon,
        "delta": delta,
        "loss": str(loss),
        "mechanisms": body["loss"],
        "charged": body["charged"][history.payer],
        "plan": body.get("plan", []),
        "answer stored": is_stored,
    }


@cache
def state_epsilon(loss: PrivacyLoss, delta: Fraction) -> tuple[str, str]:
    """Return the ε of a release and the δ at which it holds, rounded up: δ = 0 if there is an ε, else δ.

    >>> state_epsilon(PrivacyLoss.pure(1), Fraction(1, 10**6))
    ('1', '0')
    """
    epsilon = loss.epsilon(0)
    if epsilon < float("inf"):
        return format_up(epsilon), "0"
    return format_up(loss.epsilon(delta) if delta else epsilon), format_up(delta)


def describe_promise(who: str, epsilon: Fraction, delta: Fraction, *, is_row: bool = False) -> list[str]:
    """Return what (ε, δ) means for one person, in plain words.

    >>> describe_promise("patient", Fraction(1), Fraction(0))[0]
    'What was released would have been released without any one patient, too, at most 2.72 times less likely.'
    """
    loss = PrivacyLoss.pure(epsilon)
    ratio = f"at most {format_up(_exp_up(epsilon), 3)} times less likely"
    sure = format_up(100 * loss.posterior(Fraction(1, 2)).upper_bound, 3)
    rare = format_up(100 * loss.posterior(Fraction(1, 100)).upper_bound, 3)
    lines = [f"What was released would have been released without any one {who}, too, {ratio}."]
    lines.append(
        f"Somebody who thinks it as likely as not (50 %) that a certain {who} is in the data, or has a "
        f"certain value there, is at most {sure} % sure of it after seeing every release; somebody with a "
        f"suspicion of 1 %, at most {rare} %."
    )
    lines.append(
        f"This is about what {'one row gives' if is_row else f'the rows of one {who} give'} away. It does "
        "not depend on what others know, and no later analysis of the releases can undo it."
    )
    if delta:
        lines.append(
            f"All of this holds but for an additive slack of δ = {format_up(delta)}: no event has a "
            "probability that is larger by more than that."
        )
    return lines


def _exp_up(epsilon: Fraction) -> Fraction:
    return Fraction(math.nextafter(math.exp(min(700.0, float(epsilon))) * (1 + 2.0**-40), math.inf))


def signed_part(facts: Mapping[str, Any]) -> str:
    """Return the text that is signed: all of a label but its signature."""
    return canonical_json({name: value for name, value in facts.items() if name != "signature"})


def signed_label(facts: Mapping[str, Any], key: str | Path) -> dict[str, Any]:
    """Return the label with a signature by the owner's private key, and the public key.

    Args:
        facts: the label.
        key: the path of the private key that `hubbub ledger key` made.
    """
    return {**facts, "signature": sign_text(signed_part(facts), key)}
