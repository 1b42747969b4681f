"""The fields of the OpenDP deployment registry and of NIST SP 800-226.

The ledger supplies what it knows; what only the owner knows is stated under `[about]` in hubbub.toml, or is
"not stated".
"""

from collections.abc import Mapping
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.ledger.account import LedgerAccount
from hubbub.numbers import format_up
from hubbub.report.history import History

__all__ = ["ABOUT", "NOT_STATED", "deployment", "guarantees", "stated"]

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
NOT_STATED = "not stated"


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
    return {name: statements.get(name, NOT_STATED) for name in ABOUT}


def deployment(
    account: LedgerAccount, history: History, about: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The fields of a deployment in OpenDP's registry, by their names there."""
    facts, total, unit = stated(about), history.total, account.unit
    parameters = {"epsilon": format_up(total.epsilon), "delta": format_up(total.delta)}
    is_pure = total.delta == 0
    window = unit.window
    versions = ", ".join(dict.fromkeys(history.versions)) or "one"
    exact = (
        f"The owner had {len(history.accesses)} non-private accesses."
        if len(history.accesses)
        else "None are known."
    )
    return {
        "product": {
            "name": facts["name"] if facts["name"] != NOT_STATED else account.family,
            "data_curators": facts["curators"],
            "intended_use": facts["use"],
            "data_product_type": facts["kind"],
            "data_product_region": facts["region"],
            "data_product_sector": facts["sector"],
            "description": facts["description"],
            "publication_date": facts["published"]
            if facts["published"] != NOT_STATED
            else history.first_moment,
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
            "divergences; charges are recorded before they run, none is refunded.",
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
        "correctness": "Mechanisms and sensitivities have proofs and tests; figures round up.",
        "utility": "Every answer has an interval, said before it is asked for and with the answer.",
        "bias": facts["bias"],
        "query model": "Interactive: questions may depend on answers; one filter bounds all of them.",
        "trust model": "Central: the curator and the machine are trusted; analysts and readers are not.",
        "floating point": "Noise is added to integers by exact samplers; doubles appear last.",
        "side channels": "Time and memory are not protected.",
        "random numbers": "The operating system's cryptographic generator.",
        "access control": "A file is its owner's alone (0600); in PostgreSQL one role writes.",
        "data security": facts["security"],
        "data collection exposure": facts["collection"],
        "non-private accesses": f"{len(history.accesses)} by the owner, recorded",
    }


def _parameters(account: LedgerAccount, history: History) -> str:
    total, reading = history.total, history.total.spent()
    text = f"at most ε = {format_up(total.epsilon)}, δ = {format_up(total.delta)}"
    text += f"; spent ε = {format_up(reading.epsilon)}, δ = {format_up(reading.delta)}"
    if account.unit.window is not None:
        text += f"; per window, and for a lifetime {account.lifetime_loss().describe()}"
    return text
