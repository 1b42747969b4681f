"""Checks a label as an auditor would: every ε from the stated mechanisms, the totals, the signature.

Without the ledger a label can be checked against itself and against its signature; what only the ledger, the
machine or the owner knows is said to be unchecked.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.accounting import PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.errors import HubbubError
from hubbub.escaping import escape
from hubbub.ledger import Ledger
from hubbub.ledger.entries import OWNER, read_charge, read_loss
from hubbub.ledger.signing import check_text_signature
from hubbub.numbers import format_down, format_up
from hubbub.report.history import count_mechanisms, epsilon_alone, share_left
from hubbub.report.label import FORMAT, describe_budgets, label, restate, signed_part, state_epsilon

__all__ = ["LabelFinding", "LabelReport", "check_label"]

_SLACK = 1e-4
"""The burn-down of a label has four digits."""
_FIELDS = {
    *(
        "format",
        "scope",
        "made",
        "account",
        "family",
        "unit",
        "unit column",
        "window",
        "neighbours",
        "filter",
    ),
    *("spent", "left", "lifetime", "analysts", "datasets", "versions", "charges", "first charge"),
    *("mechanisms", "times of non-private accesses", "owner assertions", "closed", "burn-down", "releases"),
    *("restores", "stated", "head", "entries", "signature"),
}
"""What the ledger and the owner give; all else restates it."""
_OF_A_RELEASE = {
    *("entry", "dataset", "when", "who", "what", "epsilon", "delta", "loss", "mechanisms", "charged", "plan"),
    "answer stored",
}
_UNCHECKED = (
    "that nothing is missing; questions, plans, analysts, accesses and other windows: this takes --ledger",
    "that the mechanisms ran as stated, on the rows of these people: this takes the machine and its code",
    "what the owner states: names, purposes, who is trusted, how bounds and limits were chosen",
)


@dataclass(frozen=True)
class LabelFinding:
    """One thing that was checked, or could not be."""

    status: str
    """OK, FAILED or "not checked"."""
    text: str

    def __str__(self) -> str:
        return f"{self.status}: {self.text}"


@dataclass(frozen=True)
class LabelReport:
    """The findings of a label's check."""

    findings: tuple[LabelFinding, ...]

    @property
    def ok(self) -> bool:
        """True if nothing failed."""
        return all(finding.status != "FAILED" for finding in self.findings)


def check_label(
    text: str, *, public_key: str | Path | None = None, ledger: Ledger | None = None
) -> LabelReport:
    """Check a label in JSON; nothing in it is trusted.

    Args:
        text: the label.
        public_key: the signer's public key, from elsewhere than the label; that of the label if omitted.
        ledger: the ledger of the account, if it is there.

    Guarantee: if the report is OK, every ε, the budget, the totals and the sentences about them are those of
        the stated mechanisms; with the ledger, all but what the owner states is what its entries say.
    """
    try:
        facts = json.loads(text, object_pairs_hook=_read_object, parse_constant=_refuse_constant)
        if not isinstance(facts, dict) or facts["format"] != FORMAT:
            raise ValueError  # noqa: TRY301 - one error for all causes
    except (ValueError, KeyError, TypeError, RecursionError):
        return LabelReport((LabelFinding("FAILED", f"this is not a label in the format {FORMAT}"),))
    findings = [
        _check(_check_releases, facts, "the releases cannot be read"),
        _check(_check_totals, facts, "the budget and the charges cannot be read"),
        _check(_check_words, facts, "the facts of which it speaks cannot be read"),
        _check(
            lambda all_of_it: _check_signature(all_of_it, public_key), facts, "the signature cannot be read"
        ),
    ]
    if ledger is None:
        findings += [LabelFinding("not checked", each) for each in _UNCHECKED]
    else:
        findings.append(
            _check(
                lambda all_of_it: _check_ledger(all_of_it, ledger), facts, "it is not a label of this ledger"
            )
        )
        findings += [LabelFinding("not checked", each) for each in _UNCHECKED[1:]]
    return LabelReport(tuple(findings))


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says everything once: of two values, one reader may see the first, another the last."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(fields)
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _check(
    check: Callable[[Mapping[str, Any]], LabelFinding], facts: Mapping[str, Any], otherwise: str
) -> LabelFinding:
    try:
        return check(facts)
    except Exception:  # noqa: BLE001 - whatever a label contains, it is reported and not raised
        return LabelFinding("FAILED", otherwise)


def _check_releases(facts: Mapping[str, Any]) -> LabelFinding:
    """Every ε from its mechanisms."""
    delta, last = PrivacyFilter.from_json(facts["filter"]).delta, 0
    for each in facts["releases"]:
        if set(each) != _OF_A_RELEASE or not last < each["entry"] <= facts["entries"]:
            return LabelFinding(
                "FAILED", f"a release after entry {last}: not the fields, or not the place, of an entry"
            )
        last = each["entry"]
        loss = read_loss(each["mechanisms"])
        if (each["epsilon"], each["delta"]) != state_epsilon(loss, delta) or each["loss"] != str(loss):
            epsilon, at = state_epsilon(loss, delta)
            return LabelFinding(
                "FAILED",
                f"entry {each['entry']}: its mechanisms cost ε = {epsilon} at δ = {at}, and it says another",
            )
    count = len(facts["releases"])
    if facts["scope"] != "account" and (facts["scope"] != "release" or count != 1):
        return LabelFinding("FAILED", "scope: it is neither the label of an account nor of one release")
    return LabelFinding(
        "OK", f"the ε of {count} {'release' if count == 1 else 'releases'}, from the mechanisms"
    )


def _check_totals(facts: Mapping[str, Any]) -> LabelFinding:
    """The budget, that every charge is at least its cost, and what they add up to."""
    state = PrivacyFilter.from_json(facts["filter"])
    promise = {"epsilon": format_up(state.epsilon), "delta": format_up(state.delta)}
    if facts["promise"] != promise or state != PrivacyFilter(state):
        return LabelFinding("FAILED", f"the budget is ε = {promise['epsilon']}, δ = {promise['delta']}")
    if facts["scope"] != "account":
        return LabelFinding(
            "not checked",
            "what is spent and left, to which all releases add up: this is the label of one of them",
        )
    moments = {each["charges"]: (each["left"], each["when"]) for each in facts["burn-down"]}
    if len(moments) < len(facts["burn-down"]):
        return LabelFinding("FAILED", "the burn-down has two figures for one number of charges")
    count, datasets = 0, dict[str, Counter[PrivacyLoss]]()
    for each in facts["releases"]:
        datasets.setdefault(each["dataset"], Counter())[read_loss(each["mechanisms"])] += 1
    times = [each["when"] for each in facts["releases"]]
    if facts["first charge"] != (times[0] if times else None):
        return LabelFinding("FAILED", "first charge: it is not that of the first release")
    for number, loss, stored, is_release in _charges(facts):
        charge = read_charge(stored)
        if not state.certifies(loss, charge) or (after := state.after(loss, charge)) is None:
            return LabelFinding(
                "FAILED", f"entry {number} is charged less than it costs, or exceeds the budget"
            )
        state, count = after, count + is_release
        if not is_release or count == len(times) or count not in moments:
            continue  # what was restored since the last charge belongs to the last figure
        if not _fits(moments.pop(count), state, times[count - 1]):
            return LabelFinding("FAILED", f"the burn-down after {count} charges is not what they add up to")
    if count in moments and not _fits(moments.pop(count), state, times[-1]):
        return LabelFinding("FAILED", f"the burn-down after {count} charges is not what they add up to")
    spent, left = state.spent(), state.remaining()
    stated = {
        "spent": {"epsilon": format_up(spent.epsilon), "delta": format_up(spent.delta)},
        "left": {"epsilon": format_down(left.epsilon), "delta": format_down(left.delta)},
    }
    for name, figures in stated.items():
        if facts[name] != figures:
            return LabelFinding(
                "FAILED", f"{name}: the charges give ε = {figures['epsilon']}, not what it says"
            )
    if moments or facts["charges"] != count:
        return LabelFinding("FAILED", "it has, or counts, charges that it does not list")
    if facts["mechanisms"] != count_mechanisms(each["mechanisms"] for each in facts["releases"]):
        return LabelFinding("FAILED", "mechanisms: they are not those of the releases")
    alone = {name: format_up(epsilon_alone(state, losses)) for name, losses in datasets.items() if name}
    if facts["datasets"] != alone:
        return LabelFinding("FAILED", "datasets: their ε is not that of their releases")
    return LabelFinding("OK", f"the charges fit the budget, and add up to ε = {stated['spent']['epsilon']}")


def _fits(moment: tuple[float, str], state: PrivacyFilter, when: str) -> bool:
    return abs(moment[0] - share_left(state)) <= _SLACK and moment[1] == when


def _charges(facts: Mapping[str, Any]) -> Iterator[tuple[int, PrivacyLoss, Any, bool]]:
    """All charges, in the order of the ledger."""
    charges = [(each["entry"], each["mechanisms"], each["charged"], True) for each in facts["releases"]]
    charges += [(each["entry"], each["loss"], each["charged"], False) for each in facts["restores"]]
    for number, loss, charged, is_release in sorted(charges, key=lambda each: each[0]):
        yield number, read_loss(loss), charged, is_release


def _check_words(facts: Mapping[str, Any]) -> LabelFinding:
    """All that is said in words, or twice, and that there is nothing else."""
    again = restate(facts)
    for name, value in again.items():
        if canonical_json(facts[name]) != canonical_json(value):
            return LabelFinding("FAILED", f"{name}: the label's own figures say otherwise")
    optional = {"signature", *(("lifetime",) if facts["window"] is None else ())}
    others = set(facts) - set(again) - (_FIELDS if facts["window"] is not None else _FIELDS - {"lifetime"})
    if others:
        return LabelFinding("FAILED", f"{escape(min(others))[:40]}: no label has such a field")
    missing = _FIELDS - optional - set(facts)
    if missing:
        return LabelFinding("FAILED", f"{min(missing)}: the label does not say it")
    return LabelFinding("OK", f"what is said in words: ε = {again['promise']['epsilon']} is promised")


def _check_signature(facts: Mapping[str, Any], public_key: str | Path | None) -> LabelFinding:
    signature = facts.get("signature")
    if signature is None:
        status = "not checked" if public_key is None else "FAILED"
        return LabelFinding(
            status, "the label is not signed: anybody may have written it (hubbub report --key)"
        )
    try:
        name = check_text_signature(signed_part(facts), signature, public_key)
    except HubbubError:
        return LabelFinding("FAILED", "the signature does not belong to this label and this key")
    if public_key is not None:
        return LabelFinding("OK", f"signed by the key {name}, which you passed")
    return LabelFinding(
        "OK", f"signed by the key {name}, which the label names itself: compare it, or pass --public"
    )


def _check_ledger(facts: Mapping[str, Any], ledger: Ledger) -> LabelFinding:
    """The chain up to the label's head, and the label again from its entries up to there."""
    report = ledger.verify(facts["head"])
    if not report.ok:
        return LabelFinding("FAILED", f"the ledger: {report.problem}")
    until, name = facts["entries"], facts["account"]
    release = None if facts["scope"] == "account" else facts["releases"][0]["entry"]
    again = label(ledger.account(name), facts["stated"], release=release, until=until)
    budgets = {who: each for (account, who), each in ledger.filters_at(until).items() if account == name}
    again["analysts"] = describe_budgets({who: each for who, each in budgets.items() if who != OWNER})
    more = report.entries - until
    for field, value in again.items():
        if field != "made" and canonical_json(facts[field]) != canonical_json(value):
            return LabelFinding("FAILED", f"{field}: the ledger says otherwise")
    count = f"{until} {'entry' if until == 1 else 'entries'}"
    since = f"; the ledger has {more} more since" if more else ""
    return LabelFinding("OK", f"the label again from {count} of the ledger, an unbroken chain{since}")
