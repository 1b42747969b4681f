"""The site's pages in the order in which they are read. `website/build.py` makes the menu of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["NAVIGATION", "READERS", "Reader", "list_pages"]

Section = Mapping[str, str]

NAVIGATION: Mapping[str, str | Section] = {
    "First answer": "index.md",
    "Tutorials": {
        "Publish a table with its label": "tutorials/publish-a-table.md",
        "A team and its budget": "tutorials/a-team-and-its-budget.md",
        "Ask by accuracy": "tutorials/ask-by-accuracy.md",
        "Train a model": "tutorials/train-a-model.md",
        "A synthetic table": "tutorials/a-synthetic-table.md",
        "Audit a mechanism": "tutorials/audit-a-mechanism.md",
        "Choose ε, δ, unit and bounds": "tutorials/choosing-parameters.md",
        "From Opacus": "tutorials/from-opacus.md",
        "From diffprivlib": "tutorials/from-diffprivlib.md",
        "From OpenDP": "tutorials/from-opendp.md",
        "From Tumult or PipelineDP": "tutorials/from-tumult-and-pipelinedp.md",
    },
    "How-to": {
        "Ask queries": "queries.md",
        "Keep a ledger": "ledger.md",
        "Serve a team": "serve.md",
        "Plan a budget": "budgets.md",
        "Release a synopsis or synthetic rows": "synopsis.md",
        "Train a model": "training.md",
        "Fit an estimator": "estimators.md",
        "Audit a mechanism": "audit.md",
        "Large tables": "scale.md",
        "Ask a server from psql, notebooks, DBeaver": "serve-clients.md",
    },
    "Explanation": {
        "Textbook": "textbook/",
        "Theory: statement, code, test": "theory.md",
        "Pitfalls": "pitfalls.md",
        "Threats": "threats.md",
        "Proofs": "proofs/",
        "Decisions": "decisions/",
    },
    "Reference": {
        "Commands": "cli.md",
        "SQL functions": "functions.md",
        "Engines and files": "engines.md",
        "Formats and codes": "formats.md",
        "Python API": "api/",
        "Benchmarks": "benchmarks.md",
        "Architecture": "architecture.md",
        "Contributing": "contributing.md",
        "Security": "security.md",
        "Changes": "changelog.md",
    },
    "Glossary": "glossary.md",
}
"""Title → page, or section → its pages. A page that ends in / is a folder: all its pages, by their titles."""


@dataclass(frozen=True)
class Reader:
    """For whom a page is, whether it is looked up rather than read, and where to go on."""

    who: str
    is_looked_up: bool = False
    onward: Mapping[str, str] = field(default_factory=dict)


_MAP = {"theory.md": "The theory map"}
_WORDS = {"glossary.md": "The glossary"}
READERS: Mapping[str, Reader] = {
    "proofs/": Reader("an auditor or a mathematician who checks a claim", onward=_MAP),
    "decisions/": Reader(
        "somebody who wonders why it is done like this", onward={"architecture.md": "Architecture"}
    ),
    "api/": Reader("a programmer", is_looked_up=True, onward=_WORDS),
    "cli.md": Reader("somebody at a shell", is_looked_up=True, onward={"queries.md": "Queries"}),
    "functions.md": Reader("somebody who writes SQL", is_looked_up=True, onward={"queries.md": "Queries"}),
    "benchmarks.md": Reader("somebody who compares tools", onward={"scale.md": "Large tables"}),
    "architecture.md": Reader("somebody who changes the code"),
    "contributing.md": Reader("somebody who sends a change"),
    "security.md": Reader("somebody who found a privacy bug"),
    "changelog.md": Reader("somebody who upgrades"),
    "glossary.md": Reader("everybody", is_looked_up=True, onward=_MAP),
}
"""Readers of pages, or of all pages of a folder, that do not say so themselves."""


def list_pages(section: str | Section | None = None) -> Sequence[str]:
    """The pages and folders of the site, or of a section, in order."""
    if isinstance(section, str):
        return [section]
    items = NAVIGATION if section is None else section
    return [page for item in items.values() for page in list_pages(item)]
