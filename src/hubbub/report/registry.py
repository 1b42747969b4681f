"""The fields of the OpenDP deployment registry and of NIST SP 800-226.

The ledger supplies what it knows; what only the owner knows is stated under `[about]` in hubbub.toml, or is
"not stated".
"""

from collections.abc import Mapping
from typing import Any

from hubbub.errors import InvalidInput
from hubbub.unit import Neighbours

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
"""The fields that an owner may state."""
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


def deployment(facts: Mapping[str, Any], about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the fields of a deployment in OpenDP's registry, by their names there.

    Args:
        facts: what the label says of the account; see `label.restate`.
        about: what the owner states.
    """
    statements, parameters = stated(about), dict(facts["promise"])
    is_pure = parameters["delta"] == "0"
    window, versions = facts["window"], facts["versions"]
    accesses = len(facts["times of non-private accesses"])
    exact = f"The owner had {_count(accesses, 'non-private access')}." if accesses else "None are known."
    published, first_day = statements["published"], (facts["first charge"] or NOT_STATED).partition("T")[0]
    is_added = Neighbours(facts["neighbours"]) is Neighbours.ADD_REMOVE
    mechanisms = ", ".join(f"{name} ({count})" for name, count in facts["mechanisms"].items())
    return {
        "product": {
            "name": facts["title"],
            "data_curators": statements["curators"],
            "intended_use": statements["use"],
            "data_product_type": statements["kind"],
            "data_product_region": statements["region"],
            "data_product_sector": statements["sector"],
            "description": statements["description"],
            "publication_date": first_day if published == NOT_STATED else published,
        },
        "dp_flavor": {
            "name": "Pure DP" if is_pure else "Approximate DP",
            "input_metric": f"number of units {'added or removed' if is_added else 'substituted'}",
            "bound_on_input_distance": 1,
            "output_measure": "max divergence" if is_pure else "smoothed max divergence",
            "bound_on_output_distance": parameters,
            "data_domain": statements["domain"],
            "unprotected_quantities": f"{exact} Others: {statements['unprotected']}.",
        },
        "privacy_loss": {
            "privacy_unit": facts["unit"],
            "privacy_unit_description": facts["unit description"],
            "privacy_parameters": parameters,
            "privacy_parameters_description": _parameters(facts),
        },
        "model": {
            "model_name": "Central",
            "model_name_description": "One curator holds the rows; only noisy aggregates leave the engine.",
            "actors": statements["actors"],
            "release_type": "Many releases",
            "release_type_description": _count(facts["charges"], "charge")
            + " so far; any time, within one budget.",
            "data_source_type": "Dynamic" if window is not None or len(set(versions)) > 1 else "Static",
            "data_source_type_description": f"Versions: {', '.join(dict.fromkeys(versions)) or 'one'}."
            + ("" if window is None else f" A budget for each window; this one: {window}."),
            "access_type": "Interactive",
            "access_type_description": "Questions may depend on earlier answers; a question has one answer.",
        },
        "accounting": {
            "post_processing": statements["post_processing"],
            "composition": "Adaptive, by a privacy filter: sums of (ε, δ), then of Gaussian μ² or Rényi "
            "divergences; charges are recorded before they run, none is refunded.",
        },
        "implementation": {
            "pre_processing_eda_hyperparameter_tuning": statements["tuning"],
            "mechanisms": mechanisms or "none yet",
            "justification": statements["justification"],
        },
        "resources": {"sources": statements["sources"]},
    }


def guarantees(facts: Mapping[str, Any], about: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what NIST SP 800-226 asks of a guarantee, from the parameters down to the data's collection.

    Args: as those of `deployment`.
    """
    statements = stated(about)
    return {
        "privacy parameters": _parameters(facts),
        "unit of privacy": f"{facts['unit']}; neighbours: {facts['neighbours']}",
        "correctness": "Mechanisms and sensitivities have proofs and tests; figures round up.",
        "utility": "Answers have intervals, said beforehand and with them; synthetic rows have none.",
        "bias": statements["bias"],
        "query model": "Interactive: questions may depend on answers; one filter bounds all of them.",
        "trust model": "Central: the curator and the machine are trusted; analysts and readers are not.",
        "floating point": "Noise is added to integers by exact samplers; doubles appear last.",
        "side channels": "Time and memory are not protected.",
        "random numbers": "The operating system's cryptographic generator.",
        "access control": "A file is its owner's alone (0600); in PostgreSQL one role writes.",
        "data security": statements["security"],
        "data collection exposure": statements["collection"],
        "non-private accesses": f"{len(facts['times of non-private accesses'])} by the owner, recorded",
    }


def _count(number: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def _parameters(facts: Mapping[str, Any]) -> str:
    promise, spent = facts["promise"], facts["spent"]
    text = f"at most ε = {promise['epsilon']}, δ = {promise['delta']}"
    text += f"; spent ε = {spent['epsilon']}, δ = {spent['delta']}"
    return text + (f"; per window, and for a lifetime {facts['lifetime']}" if "lifetime" in facts else "")
