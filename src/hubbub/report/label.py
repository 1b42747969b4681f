"""The privacy label of an account or of one release, as facts: who is protected, how, and at what cost.

The format is that of label.schema.json, beside this file. `label_pages` renders it, `label_check` checks it.
Everything in it is in the ledger's entries or stated by the owner: no stored answer is read, so that nobody
learns from a label what somebody else was released.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.errors import InvalidInput
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.entries import Entry, read_loss, refuse_malformed, utc_now
from hubbub.ledger.signing import sign_text
from hubbub.numbers import format_down, format_up
from hubbub.report.history import History
from hubbub.report.registry import NOT_STATED, deployment, guarantees, stated
from hubbub.unit import Unit

__all__ = ["FORMAT", "describe_promise", "label", "signed_label", "signed_part", "state_epsilon"]

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
    account: LedgerAccount, about: Mapping[str, str] | None = None, *, release: int | None = None
) -> dict[str, Any]:
    """Return the facts, as JSON can hold them; free of data.

    Args:
        account: the account.
        about: what the owner states, by the names of `[about]` in hubbub.toml.
        release: the entry of a charge: the label is of that release alone, within its account.

    Guarantee: a function of the ledger's entries and of what the owner states.
    """
    history = History.of(account, keep=True)
    total, left, reading = history.total, account.remaining(), history.total.spent()
    charges = [entry for entry in history.charges if release in {None, entry.number}]
    if release is not None and not charges:
        raise InvalidInput(
            f"entry {release} is not a charge of this account",
            why="a label describes a charged release",
            fix="see hubbub ledger list",
        )
    statements = stated(about)
    return {
        "format": FORMAT,
        "scope": "account" if release is None else "release",
        "made": utc_now(),
        "account": account.name,
        "title": account.family if statements["name"] == NOT_STATED else statements["name"],
        "unit": account.unit.name,
        "neighbours": account.unit.neighbours.value,
        "unit description": f"Neighbouring databases differ in all rows of {account.unit}.",
        "from whom": _FROM_WHOM,
        "model": "central model",
        "definition": "pure differential privacy" if total.delta == 0 else "approximate differential privacy",
        "promise": {"epsilon": format_up(total.epsilon), "delta": format_up(total.delta)},
        "promise in words": describe_promise(account.unit, total.epsilon, total.delta),
        "spent": {"epsilon": format_up(reading.epsilon), "delta": format_up(reading.delta)},
        "left": {"epsilon": format_down(left.epsilon), "delta": format_down(left.delta)},
        **({} if account.unit.window is None else {"lifetime": account.lifetime_loss().describe()}),
        "composition": "adaptive: a privacy filter of sums of (ε, δ), then of Gaussian or Rényi curves",
        "filter": type(total)(total).to_json(),
        "analysts": {
            who: {"epsilon": format_up(theirs.epsilon), "delta": format_up(theirs.delta)}
            for who, theirs in account.analysts().items()
        },
        "datasets": {name: format_up(epsilon) for name, epsilon in history.by_dataset().items()},
        "versions": history.versions,
        "non-private accesses": len(history.accesses),
        "times of non-private accesses": [entry.timestamp for entry in history.accesses],
        "owner assertions": history.words,
        "closed": account.is_closed,
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
        "not covered": list(_NOT_COVERED),
        "deployment": deployment(account, history, about),
        "NIST SP 800-226": guarantees(account, history, about),
        "not stated": [name for name, text in statements.items() if text == NOT_STATED],
        "head": history.head,
        "entries": history.entries,
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


def describe_promise(unit: Unit, epsilon: Fraction, delta: Fraction) -> list[str]:
    """Return what (ε, δ) means for one person, in plain words.

    >>> describe_promise(Unit("patient"), Fraction(1), Fraction(0))[0]
    'What was released would have been released without any one patient, too, at most 2.72 times less likely.'
    """
    loss = PrivacyLoss.pure(epsilon)
    who = "row" if unit.key is None else unit.name
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
        f"This is about what a {who}'s own rows give away. It does not depend on what others know, and no "
        "later analysis of the releases can undo it."
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
