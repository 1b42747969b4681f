"""What an account's label must tell: the fields of the OpenDP deployment registry, and of NIST SP 800-226.

What the ledger knows it says by itself. What only the owner knows, such as what the data is used for, she
states once, under `[about]` in hubbub.toml; what nobody stated is said to be not stated.
"""

from collections.abc import Mapping
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.ledger.account import Account
from hubbub.ledger.history import History
from hubbub.rational import shown_up

__all__ = ["ABOUT", "deployment", "guarantees"]

ABOUT = {
    "name": "what the product is called",
    "curators": "who holds the data",
    "use": "what it is for",
    "kind": "summary statistics, a model, synthetic data …",
    "region": "whose data it is: where",
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
    given = dict(about or {})
    for name, text in given.items():
        if name not in ABOUT or not isinstance(text, str):
            raise InvalidInput(
                f"about.{str(name)[:40]} is not known, or not a text",
                why="a label has fixed fields",
                fix=f"use one of: {', '.join(ABOUT)}",
            )
    return {name: given.get(name, _NOT) for name in ABOUT}


def deployment(account: Account, history: History, about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The fields of a deployment in OpenDP's registry, by their names there."""
    said, total, unit = stated(about), history.total, account.unit
    parameters = {"epsilon": shown_up(total.epsilon), "delta": shown_up(total.delta)}
    is_pure = total.delta == 0
    window = unit.window
    versions = ", ".join(dict.fromkeys(history.versions)) or "one"
    exact = (
        f"The owner looked at exact answers {history.exact} times." if history.exact else "None are known."
    )
    return {
        "product": {
            "name": said["name"] if said["name"] != _NOT else account.family,
            "data_curators": said["curators"],
            "intended_use": said["use"],
            "data_product_type": said["kind"],
            "data_product_region": said["region"],
            "data_product_sector": said["sector"],
            "description": said["description"],
            "publication_date": said["published"] if said["published"] != _NOT else history.first_moment,
        },
        "dp_flavor": {
            "name": "Pure DP" if is_pure else "Approximate DP",
            "input_metric": "number of units added or removed"
            if unit.neighbours.histogram_distance == 1
            else "number of units substituted",
            "bound_on_input_distance": 1,
            "output_measure": "max divergence" if is_pure else "smoothed max divergence",
            "bound_on_output_distance": parameters,
            "data_domain": said["domain"],
            "unprotected_quantities": f"{exact} Others: {said['unprotected']}.",
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
            "actors": said["actors"],
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
            "post_processing": said["post_processing"],
            "composition": "Adaptive, by a filter over sums of pure ε, Rényi divergences and Gaussian μ² "
            "(docs/proofs/filters.md); every charge is recorded before it runs, none is given back.",
        },
        "implementation": {
            "pre_processing_eda_hyperparameter_tuning": said["tuning"],
            "mechanisms": ", ".join(f"{name} ({count})" for name, count in history.mechanisms().items())
            or "none yet",
            "justification": said["justification"],
        },
        "resources": {"sources": said["sources"]},
    }


def guarantees(account: Account, history: History, about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What NIST SP 800-226 asks of a guarantee, from the parameters down to how the data was collected."""
    said = stated(about)
    return {
        "privacy parameters": _parameters(account, history),
        "unit of privacy": f"{account.unit.name}; neighbours: {account.unit.neighbours.value}",
        "correctness": "Mechanisms and sensitivities have proofs and tests (docs/proofs); figures round up.",
        "utility": "Every answer has an interval, said before it is asked for and with the answer.",
        "bias": said["bias"],
        "query model": "Interactive: questions may depend on answers; one filter bounds all of them.",
        "trust model": "Central: the curator and the machine are trusted; analysts and readers are not.",
        "floating point": "Noise is added to integers by exact samplers; doubles appear last.",
        "side channels": "Time and memory are not protected (docs/threats.md).",
        "random numbers": "The operating system's cryptographic generator.",
        "access control": "A file is its owner's alone (0600); in PostgreSQL one role writes.",
        "data security": said["security"],
        "data collection exposure": said["collection"],
        "unprotected looks": f"{history.exact} by the owner, recorded",
    }


def _parameters(account: Account, history: History) -> str:
    reading = history.total.reading()
    spent = "∞" if reading.epsilon is None else shown_up(reading.epsilon)
    total = history.total
    text = f"at most ε = {shown_up(total.epsilon)}, δ = {shown_up(total.delta)}; spent ε = {spent}"
    if account.unit.window is not None:
        text += f"; per window, and for a lifetime {account.lifetime().said()}"
    return text
