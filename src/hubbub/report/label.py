"""The privacy label of an account: who is protected, how, and what all releases cost together.

It has the fields of the OpenDP deployment registry and of NIST SP 800-226. The ledger supplies what it knows
(`History`); what only the owner knows is stated under `[about]` in hubbub.toml, or is "not stated".
"""

import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubbub.accounting import FilterCharge, PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.accounting.serialization import decode_loss
from hubbub.errors import InvalidInput
from hubbub.escaping import escape, escape_json
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.entries import OWNER, Entry, EntryKind, read_charge, read_loss, refuse_malformed
from hubbub.numbers import format_down, format_up

__all__ = [
    "ABOUT",
    "History",
    "Moment",
    "bars",
    "deployment",
    "guarantees",
    "label",
    "label_html",
    "label_text",
    "label_yaml",
]

_STEPS = 12
_REMEMBERED = 4096


@dataclass(frozen=True)
class Moment:
    """The room for one more charge, after a number of charges."""

    charges: int
    when: str
    left: float
    """The largest pure ε that one more charge could cost then, as a fraction of the budget's ε."""


@dataclass
class History:
    """What the entries of an account add up to, read once.

    Equal costs are counted and added up once: a million entries have few different ones.
    """

    total: PrivacyFilter
    charges: list[Entry] = field(default_factory=list)
    """Only if asked for: there may be millions."""
    released: set[int] = field(default_factory=set)
    versions: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """What the owner asserted: that rows are new, and overrides of the declaration."""
    exact: int = 0
    count: int = 0
    head: str | None = None
    last: Entry | None = None
    first_moment: str | None = None
    payer: str = OWNER
    """The analyst who pays; empty for the account itself."""
    _datasets: dict[str, Counter[PrivacyLoss]] = field(default_factory=dict)
    _charges: dict[str, FilterCharge] = field(default_factory=dict)
    """By their text: a million entries have few different ones."""
    _marks: list[tuple[int, str, PrivacyFilter]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._state = PrivacyFilter(self.total)

    @classmethod
    @refuse_malformed()
    def of(cls, account: LedgerAccount, *, keep: bool = False) -> "History":
        """Read the entries of an account; `keep` the charges."""
        history = cls(account.privacy_filter, payer=account.analyst)
        for entry in account.entries():
            history._add(entry, keep=keep)
        return history

    def _add(self, entry: Entry, *, keep: bool) -> None:
        self.head = entry.digest
        body = entry.body
        if entry.kind == EntryKind.RELEASE:
            self.released.add(body["charge"])
        elif entry.kind == EntryKind.VERSION:
            self.versions.append(body["version"])
        elif entry.kind == EntryKind.OVERRIDE:
            self.words.append(body["description"])
        elif entry.kind == EntryKind.CLAIM and body.get("override"):
            self.words.append(f"an account of another unit also pays for the rows of {body['dataset']}")
        elif entry.kind == EntryKind.CLAIM and body.get("new_rows"):
            self.words.append(f"no other account pays for the rows of {body['dataset']}")
        self.exact += entry.kind == EntryKind.NONPRIVATE_ACCESS
        if entry.kind == EntryKind.RESTORE and body.get("fits"):
            # What the owner says was spent since the backup belongs to no dataset.
            self._spend(read_loss(body["loss"]), body["charged"])
        if entry.kind != EntryKind.CHARGE:
            return
        self.count, self.last = self.count + 1, entry
        self.first_moment = self.first_moment or entry.timestamp
        if keep:
            self.charges.append(entry)
        loss = read_loss(body["loss"])
        self._datasets.setdefault(body["dataset"], Counter())[loss] += 1
        self._spend(loss, body["charged"][self.payer])
        # Marks are thinned out as they grow, so that a dozen to two are left, evenly.
        every = 1 << max(0, (self.count // _STEPS).bit_length() - 1)
        if self.count % every == 0:
            self._marks.append((self.count, entry.timestamp, self._state))
        if len(self._marks) > 4 * _STEPS:
            self._marks = [mark for mark in self._marks if mark[0] % every == 0]

    def by_dataset(self) -> dict[str, Fraction]:
        """About the ε of each dataset's charges by themselves, at the account's δ: as if fixed beforehand."""
        return {name: self._alone(losses) for name, losses in self._datasets.items() if name}

    def _alone(self, losses: Mapping[PrivacyLoss, int]) -> Fraction:
        state = PrivacyFilter(self.total)
        for loss, times in losses.items():
            state, fitting = state.charge_times(loss, times)
            if fitting < times:
                return self.total.epsilon  # all charges together keep the budget
        return state.spent().epsilon

    def burn_down(self) -> list[Moment]:
        """The room for one more charge, at about a dozen moments, the last charge among them."""
        if self.last is None:
            return []
        marks = [*self._marks, (self.count, self.last.timestamp, self.total)]
        every = max(1, -(-self.count // _STEPS))
        chosen = {-(-mark[0] // every): mark for mark in marks}  # the last of each step
        return [Moment(count, when, _left(state)) for count, when, state in chosen.values()]

    def _spend(self, loss: PrivacyLoss, stored: Any) -> None:
        text = canonical_json(stored)
        if text not in self._charges:
            if len(self._charges) >= _REMEMBERED:
                self._charges.clear()
            self._charges[text] = read_charge(stored)
        self._state = self._state.after(loss, self._charges[text]) or self._state

    def more_like_the_last(self, account: LedgerAccount) -> int | None:
        """About how many more charges like the last one fit; None where there was none."""
        if self.last is None:
            return None
        return account.count_more(read_loss(self.last.body["loss"]))

    def mechanisms(self) -> dict[str, int]:
        """Which mechanisms were charged, and how often: the kinds of the parts of all losses."""
        counts: Counter[str] = Counter()
        for entry in self.charges:
            kinds = _kinds(entry.body["loss"]["alternatives"])
            counts.update(kinds)
        return dict(sorted(counts.items()))


def _kinds(part: Any) -> set[str]:
    """The names of a stored part and of those in it."""
    if isinstance(part, dict):
        own = {str(part["kind"]).partition("/")[0]} if "kind" in part else set()
        return own.union(*(_kinds(value) for value in part.values()))
    if isinstance(part, list):
        return set().union(*map(_kinds, part))
    return set()


def _left(state: PrivacyFilter) -> float:
    """The largest pure ε that one more charge may cost, as a fraction of the budget's.

    Not what the odometer leaves: its ε is an upper bound, and may be the budget's while charges still fit.
    """
    return float(state.remaining().epsilon / state.epsilon)


# The fields of the OpenDP deployment registry and of NIST SP 800-226

ABOUT = {
    "name": "what the product is called",
    "curators": "who holds the data",
    "use": "what it is for",
    "kind": "summary statistics, a model, synthetic data …",
    "region": "where the people in the data live",
    "sector": "health, education …",
    "description": "what is published",
    "published": "since when",
    "domain": "what one row is, and which columns there are",
    "unprotected": "what was published or chosen from the data without protection",
    "actors": "who is trusted with what",
    "tuning": "how bounds, limits and ε were chosen, and whether from the data",
    "justification": "why these parameters",
    "post_processing": "what is done with answers before they are published",
    "collection": "how the data was collected, and who saw it on the way",
    "security": "who can reach the rows, and how they are kept",
    "bias": "whom noise, bounds and limits serve worse",
    "sources": "where more can be read",
}
"""What an owner may state."""
_NOT = "not stated"


def stated(about: Mapping[str, str] | None) -> dict[str, str]:
    """What the owner stated, and for all else that she did not."""
    statements = dict(about or {})
    for name, text in statements.items():
        if name not in ABOUT or not isinstance(text, str):
            raise InvalidInput(
                f"about.{str(name)[:40]} is not known, or not a text",
                why="a label has fixed fields",
                fix=f"use one of: {', '.join(ABOUT)}",
            )
    return {name: statements.get(name, _NOT) for name in ABOUT}


def deployment(
    account: LedgerAccount, history: History, about: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The fields of a deployment in OpenDP's registry, by their names there."""
    facts, total, unit = stated(about), history.total, account.unit
    parameters = {"epsilon": format_up(total.epsilon), "delta": format_up(total.delta)}
    is_pure = total.delta == 0
    window = unit.window
    versions = ", ".join(dict.fromkeys(history.versions)) or "one"
    exact = f"The owner had {history.exact} non-private accesses." if history.exact else "None are known."
    return {
        "product": {
            "name": facts["name"] if facts["name"] != _NOT else account.family,
            "data_curators": facts["curators"],
            "intended_use": facts["use"],
            "data_product_type": facts["kind"],
            "data_product_region": facts["region"],
            "data_product_sector": facts["sector"],
            "description": facts["description"],
            "publication_date": facts["published"] if facts["published"] != _NOT else history.first_moment,
        },
        "dp_flavor": {
            "name": "Pure DP" if is_pure else "Approximate DP",
            "input_metric": "number of units added or removed"
            if unit.neighbours.histogram_distance == 1
            else "number of units substituted",
            "bound_on_input_distance": 1,
            "output_measure": "max divergence" if is_pure else "smoothed max divergence",
            "bound_on_output_distance": parameters,
            "data_domain": facts["domain"],
            "unprotected_quantities": f"{exact} Others: {facts['unprotected']}.",
        },
        "privacy_loss": {
            "privacy_unit": unit.name,
            "privacy_unit_description": f"Neighbouring databases differ in all rows of {unit}.",
            "privacy_parameters": parameters,
            "privacy_parameters_description": _parameters(account, history),
        },
        "model": {
            "model_name": "Central",
            "model_name_description": "One curator holds the rows; only noisy aggregates leave the engine.",
            "actors": facts["actors"],
            "release_type": "Many releases",
            "release_type_description": f"{history.count} charges so far; any time, within one budget.",
            "data_source_type": "Dynamic"
            if window is not None or len(set(history.versions)) > 1
            else "Static",
            "data_source_type_description": f"Versions: {versions}."
            + ("" if window is None else f" A budget for each window; this one: {window}."),
            "access_type": "Interactive",
            "access_type_description": "Questions may depend on earlier answers; a question has one answer.",
        },
        "accounting": {
            "post_processing": facts["post_processing"],
            "composition": "Adaptive, by a privacy filter: sums of (ε, δ), then of Gaussian μ² or Rényi "
            "divergences (docs/proofs/filters.md); charges are recorded before they run, none is refunded.",
        },
        "implementation": {
            "pre_processing_eda_hyperparameter_tuning": facts["tuning"],
            "mechanisms": ", ".join(f"{name} ({count})" for name, count in history.mechanisms().items())
            or "none yet",
            "justification": facts["justification"],
        },
        "resources": {"sources": facts["sources"]},
    }


def guarantees(
    account: LedgerAccount, history: History, about: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What NIST SP 800-226 asks of a guarantee, from the parameters down to how the data was collected."""
    facts = stated(about)
    return {
        "privacy parameters": _parameters(account, history),
        "unit of privacy": f"{account.unit.name}; neighbours: {account.unit.neighbours.value}",
        "correctness": "Mechanisms and sensitivities have proofs and tests (docs/proofs); figures round up.",
        "utility": "Every answer has an interval, said before it is asked for and with the answer.",
        "bias": facts["bias"],
        "query model": "Interactive: questions may depend on answers; one filter bounds all of them.",
        "trust model": "Central: the curator and the machine are trusted; analysts and readers are not.",
        "floating point": "Noise is added to integers by exact samplers; doubles appear last.",
        "side channels": "Time and memory are not protected (docs/threats.md).",
        "random numbers": "The operating system's cryptographic generator.",
        "access control": "A file is its owner's alone (0600); in PostgreSQL one role writes.",
        "data security": facts["security"],
        "data collection exposure": facts["collection"],
        "non-private accesses": f"{history.exact} by the owner, recorded",
    }


def _parameters(account: LedgerAccount, history: History) -> str:
    total, reading = history.total, history.total.spent()
    text = f"at most ε = {format_up(total.epsilon)}, δ = {format_up(total.delta)}"
    text += f"; spent ε = {format_up(reading.epsilon)}, δ = {format_up(reading.delta)}"
    if account.unit.window is not None:
        text += f"; per window, and for a lifetime {account.lifetime_loss().describe()}"
    return text


# The label, and its renderings

_WIDTH = 40


@refuse_malformed()
def label(account: LedgerAccount, about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The facts, as JSON can hold them; free of data.

    With what the OpenDP deployment registry and NIST SP 800-226 ask for; `about` is what the owner states.
    """
    history = History.of(account, keep=True)
    total, left, reading = history.total, account.remaining(), history.total.spent()
    return {
        "format": "hubbub label/1",
        "account": account.name,
        "unit": account.unit.name,
        "neighbours": account.unit.neighbours.value,
        "model": "central model",
        "definition": "pure differential privacy" if total.delta == 0 else "approximate differential privacy",
        "promise": {"epsilon": format_up(total.epsilon), "delta": format_up(total.delta)},
        "spent": {
            "epsilon": format_up(reading.epsilon),
            "delta": format_up(reading.delta),
        },
        "left": {"epsilon": format_down(left.epsilon), "delta": format_down(left.delta)},
        **({} if account.unit.window is None else {"lifetime": account.lifetime_loss().describe()}),
        "composition": "adaptive: a privacy filter of sums, then of curves (docs/proofs/filters.md)",
        "analysts": {
            who: {"epsilon": format_up(theirs.epsilon), "delta": format_up(theirs.delta)}
            for who, theirs in account.analysts().items()
        },
        "datasets": {name: format_up(epsilon) for name, epsilon in history.by_dataset().items()},
        "versions": history.versions,
        "non-private accesses": history.exact,
        "owner assertions": history.words,
        "closed": account.is_closed,
        "deployment": deployment(account, history, about),
        "NIST SP 800-226": guarantees(account, history, about),
        "burn-down": [
            {"charges": each.charges, "when": each.when, "left": round(each.left, 4)}
            for each in history.burn_down()
        ],
        "releases": [
            _release(entry, is_stored=entry.number in history.released) for entry in history.charges
        ],
        "head": history.head,
    }


def _release(entry: Entry, *, is_stored: bool) -> dict[str, Any]:
    loss = _loss(entry)
    return {
        "entry": entry.number,
        "dataset": entry.body["dataset"],
        "when": entry.timestamp,
        "who": entry.analyst or "owner",
        "what": entry.body["description"],
        "loss": str(loss),
        "mechanisms": entry.body["loss"]["alternatives"],
        "answer stored": is_stored,
    }


def bars(moments: Sequence[Moment]) -> Iterator[str]:
    """Yield the room for one more charge as a bar of text, for each moment."""
    for each in moments:
        full = round(_WIDTH * each.left)
        bar = "█" * full + "·" * (_WIDTH - full)
        yield f"{each.when[:16].replace('T', ' ')} {bar} {100 * each.left:.0f} %"


def label_text(facts: dict[str, Any]) -> str:
    """Render the label as text."""
    promise, spent, left = facts["promise"], facts["spent"], facts["left"]
    lines = [
        f"{facts['account']}: one {facts['unit']} is protected ({facts['neighbours']}), {facts['model']}",
        f"promised: ε = {promise['epsilon']}, δ = {promise['delta']} ({facts['definition']})",
        f"spent so far: ε = {spent['epsilon']}, δ = {spent['delta']}; left: ε = {left['epsilon']}",
        f"composition: {facts['composition']}",
        *(f"{who} may spend ε = {theirs['epsilon']}" for who, theirs in facts["analysts"].items()),
        f"non-private accesses by the owner: {facts['non-private accesses']}",
        *(f"asserted by the owner: {word}" for word in facts["owner assertions"]),
        *([f"lifetime: {facts['lifetime']}"] if "lifetime" in facts else []),
        *(["closed"] if facts["closed"] else []),
        f"{len(facts['releases'])} charges:",
    ]
    for each in facts["releases"]:
        lines.append(f"  {each['entry']}  {each['when'][:19]}  {each['who']}  {each['loss']}")
        lines.append(f"      {' '.join(each['what'].split())}")
    for part, values in facts["deployment"].items():
        lines += ["", part.replace("_", " ")]
        lines += [f"  {name.replace('_', ' ')}: {_describe_value(value)}" for name, value in values.items()]
    lines += ["", "NIST SP 800-226"]
    lines += [f"  {name}: {value}" for name, value in facts["NIST SP 800-226"].items()]
    return "\n".join(map(escape, lines)) + "\n"


def label_yaml(facts: dict[str, Any]) -> str:
    """Render the label as YAML: each name on a line, each value as JSON, which YAML reads too."""
    return escape_json("\n".join(_yaml(facts, "")) + "\n")


def _yaml(facts: dict[str, Any], indent: str) -> Iterator[str]:
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}:"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{indent}{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"


def label_html(facts: dict[str, Any]) -> str:
    """Render the label as an HTML page."""
    apart = ("releases", "format", "deployment", "NIST SP 800-226", "burn-down")
    rest = {name: value for name, value in facts.items() if name not in apart}
    columns = ("entry", "when", "who", "what", "loss")
    head = "".join(f"<th>{name}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_safe(str(each[name]))}</td>" for name in columns) + "</tr>"
        for each in facts["releases"]
    )
    from hubbub.report.charts import draw_burn_down  # not needed by the other renderings

    moments = [(each["charges"], each["left"]) for each in facts["burn-down"]]
    picture = draw_burn_down(moments) if moments else ""
    parts = "".join(
        f"<h3>{_safe(part.replace('_', ' '))}</h3>{_rows(values)}"
        for part, values in facts["deployment"].items()
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{_safe(facts["account"])}</title>'
        f"<h1>Privacy label of {_safe(facts['account'])}</h1>{_rows(rest)}{picture}"
        f"<h2>Deployment (OpenDP registry)</h2>{parts}"
        f"<h2>Guarantee (NIST SP 800-226)</h2>{_rows(facts['NIST SP 800-226'])}"
        f"<h2>Releases</h2><table><tr>{head}</tr>{body}</table></html>\n"
    )


def _rows(facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{_safe(name.replace('_', ' '))}</th><td>{_safe(_describe_value(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _describe_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_describe_value(each)}" for name, each in value.items())
    return str(value)


def _safe(text: str) -> str:
    return html.escape(escape(text))


def _loss(entry: Entry) -> PrivacyLoss:
    return decode_loss(entry.body["loss"])
