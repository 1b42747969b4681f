"""Makes docs/formats.md and docs/schemas/ from the code: `python website/formats.py`.

A format is a list of fields with their types. Schemas allow no other field, and a test checks real documents
against them, so that a new field must be described here.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from hubbub import errors
from hubbub.cli.runner import EXIT_CODES
from hubbub.report import label
from hubbub.server.descriptions import status_of
from hubbub.server.openapi import describe_api
from hubbub.server.pgwire.sqlstates import convert_error

__all__ = ["FORMATS", "Format", "make_page", "make_schemas"]

_ROOT = Path(__file__).parents[1]
_TEXT: dict[str, Any] = {"type": "string"}
_FLAG: dict[str, Any] = {"type": "boolean"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_EXACT: dict[str, Any] = {"type": "string", "pattern": r"^-?[0-9]+(/[0-9]+|(\.[0-9]+)?(e-?[0-9]+)?)$"}
_DIGEST: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_OBJECT: dict[str, Any] = {"type": "object"}
_LIST: dict[str, Any] = {"type": "array"}
_NEIGHBOURS: dict[str, Any] = {"enum": ["add/remove", "substitute"]}
_PAIR: dict[str, Any] = {
    "type": "object",
    "required": ["epsilon", "delta"],
    "additionalProperties": False,
    "properties": {"epsilon": _EXACT, "delta": _EXACT},
}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True)
class Field:
    """A field: its type as a schema, its meaning, and whether every document has it."""

    schema: dict[str, Any]
    meaning: str
    is_required: bool = True


@dataclass(frozen=True)
class Format:
    """A JSON document: who writes it, and its fields."""

    title: str
    about: str
    fields: Mapping[str, Field]

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema; it allows no other field."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.title,
            "description": self.about,
            "type": "object",
            "required": [name for name, field in self.fields.items() if field.is_required],
            "additionalProperties": False,
            "properties": {
                name: {**field.schema, "description": field.meaning} for name, field in self.fields.items()
            },
        }


def _constant(text: str) -> Field:
    return Field({"const": text}, f"`{text}`")


_COLUMN = {
    "type": "object",
    "required": ["name", "values", "low", "high"],
    "properties": {"name": _TEXT, "kind": _TEXT, "integer": _FLAG, "values": _LIST},
}
_LABEL_FIELDS: dict[str, Field] = {
    "query": Field(_TEXT, "the SQL"),
    "unit": Field(_TEXT, "who is protected: a column, or row"),
    "neighbours": Field(_NEIGHBOURS, "what is compared"),
    "epsilon": Field(_EXACT, "the cost of the query, exact"),
    "delta": Field(_EXACT, "its additive slack, exact"),
    "mechanism": Field(_TEXT, "the noise or the selection"),
    "answers": Field(
        _OBJECT,
        "the kind of each aggregate: `count`, `units`, `sum`, `signed sum`, `mean`, `quantile` …",
        is_required=False,
    ),
    "keys": Field(_TEXT, "where group keys come from"),
    "rows per unit": Field(_or_null(_COUNT), "contribution bound"),
    "rows per unit estimated privately": Field(_FLAG, "true if nobody declared it"),
    "groups per unit": Field(_or_null(_COUNT), "contribution bound"),
    "groups per unit estimated privately": Field(_FLAG, "true if nobody declared it"),
    "rows per group": Field(_or_null(_COUNT), "contribution bound"),
    "bounds": Field(_OBJECT, "[low, high] of each column that is summed, exact"),
    "bounds estimated privately": Field(_LIST, "columns with bounds that nobody declared"),
    "confidence": Field({"type": "number"}, "of the intervals"),
    "interval covers": Field(_or_null(_TEXT), "what the intervals are about; null without any"),
    "limits": Field(_OBJECT, "what each contribution bound does", is_required=False),
    "notes": Field(_LIST, "what else a reader should know"),
}
FORMATS: dict[str, Format] = {
    "table": Format(
        "hubbub table/1",
        "A released table, a row for each group: `hubbub query … --output answers.json`.",
        {
            "format": _constant("hubbub table/1"),
            "columns": Field(
                _LIST,
                "`name`, `kind`, `integer`, and `interval`: true if NAME_low and NAME_high stand beside it",
            ),
            "rows": Field(
                {"type": "array", "items": _OBJECT}, "one object for each group; dates as ISO 8601"
            ),
            "label": Field(
                _OBJECT,
                "the fields of a plan, below; from a ledger also `entry`, `as of` (time), `version` "
                "(of the data) and `asked before` (true if nothing was charged)",
            ),
        },
    ),
    "result": Format(
        "hubbub result/1",
        "The same table as ledgers store it, by columns and with all digits: `result.to_json()`.",
        {
            "format": _constant("hubbub result/1"),
            "columns": Field({"type": "array", "items": _COLUMN}, "`name`, `kind`, `values`, `low`, `high`"),
            "label": Field(
                _OBJECT,
                "the fields of a plan, below; where limits were searched or measured also "
                "`histograms`: `kind` (rows or groups of units), `conditions` (a digest of which "
                "rows), `ends` (the largest number of each bin), `counts` (noisy, of units), "
                "`scale` (of the Laplace noise), `measured` (true if for later queries)",
            ),
        },
    ),
    "plan": Format(
        "hubbub plan",
        "What a query would cost and how wrong it would be: `hubbub plan … --format json`.",
        {
            **_LABEL_FIELDS,
            "errors": Field(_OBJECT, "the error of each output at the confidence"),
            "queries like this": Field(_or_null(_COUNT), "how many fit the budget", is_required=False),
            "fits": Field(_FLAG, "true if the budget allows it", is_required=False),
            "answered before": Field(_FLAG, "true if asking again is free", is_required=False),
        },
    ),
    "synopsis": Format(
        "hubbub synopsis/1",
        "Measured tables, readable without the data: `hubbub synopsis … --output FILE.synopsis`.",
        {
            "format": _constant("hubbub synopsis/1"),
            "name": Field(_TEXT, "the table's name in queries"),
            "label": Field(_OBJECT, "what was protected, how, and at what cost"),
            "domain": Field(_OBJECT, "`columns`: name, kind, categories or cuts and steps"),
            "tables": Field(_LIST, "the tables of the workload, each a list of columns"),
            "unit": Field(_LIST, "the unit's column and the neighbours"),
            "scale": Field(_COUNT, "integers per row that counts fully"),
            "max weight": Field(_COUNT, "rows that one unit counts at most"),
            "noise": Field({"enum": ["laplace", "gaussian"]}, "the law of the noise"),
            "measured": Field(_LIST, "[columns, ε or μ as an exact fraction, noisy integers (zlib, base64)]"),
            "ranges": Field(_LIST, "[column, cuts, ε or μ, noisy integers] of each range"),
        },
    ),
    "ledger-entry": Format(
        "an entry of a ledger",
        "One line of `hubbub ledger export`. [The ledger](ledger.md#format) lists the body of each kind.",
        {
            "entry": Field({"type": "integer", "minimum": 1}, "its number"),
            "account": Field(_TEXT, "the account"),
            "kind": Field(_TEXT, "`open`, `claim`, `grant`, `charge`, `release` …"),
            "who": Field(_TEXT, "the analyst, or `owner`"),
            "timestamp": Field(_TEXT, "ISO 8601, UTC"),
            "body": Field(_OBJECT, "depends on the kind"),
            "previous": Field(_TEXT, "digest of the entry before; empty for the first"),
            "digest": Field(_DIGEST, "SHA-256 of the canonical JSON of all other columns"),
        },
    ),
    "head": Format(
        "hubbub head/1",
        "A signed receipt of a ledger's state: `hubbub ledger sign`. Whoever keeps it detects later changes.",
        {
            "format": _constant("hubbub head/1"),
            "entries": Field(_COUNT, "the number of entries"),
            "head": Field(_DIGEST, "digest of the last one"),
            "timestamp": Field(_TEXT, "ISO 8601, UTC"),
            "signature": Field(_TEXT, "Ed25519, base64, of the canonical JSON list of the other fields"),
        },
    ),
    "budget": Format(
        "an account's budget",
        "One element of `hubbub budget --format json`.",
        {
            "account": Field(_TEXT, "its name"),
            "unit": Field(_TEXT, "who is protected"),
            "budget": Field(_PAIR, "what may be spent"),
            "spent": Field(_PAIR, "rounded up"),
            "one more query": Field(_PAIR, "the largest that one more charge may cost, rounded down"),
            "analysts": Field(_OBJECT, "the same of each grant"),
            "closed": Field(_FLAG, "true if nothing more may be charged"),
        },
    ),
    "error": Format(
        "an error of the command line",
        "The last line on stderr with `--format json`. The REST interface has the same fields within "
        "`error`, and a `code` in words.",
        {
            "what": Field(_TEXT, "what is wrong"),
            "why": Field(_TEXT, "why it matters"),
            "fix": Field(_TEXT, "what to do"),
            "parameter": Field(_or_null(_TEXT), "the parameter at fault"),
            "code": Field(_COUNT, "the exit code"),
        },
    ),
    "audit": Format(
        "audit/1",
        "The result of `hubbub audit … --format json`.",
        {
            "kind": _constant("audit/1"),
            "subject": Field(_TEXT, "what was audited"),
            "claim": Field(_OBJECT, "`symbol`, `value`, `at`"),
            "refuted": Field(_FLAG, "true if the claim does not hold"),
            "lower": Field({"type": "number"}, "lower bound of ε, rounded down"),
            "confidence": Field({"type": "number"}, "of the lower bound"),
            "samples": Field(_COUNT, "draws in all"),
            "samples_to_refute": Field(_or_null(_COUNT), "draws until the claim was refuted"),
            "log_e_value": Field({"type": "number"}, "the logarithm of the capital"),
            "pairs_tried": Field(_COUNT, "pairs of inputs"),
            "witness": Field(_or_null(_OBJECT), "the event, its inputs and its frequencies"),
            "tradeoff": Field(_LIST, "[type I error, type II error] of tests, upper bounds"),
            "cannot_see": Field(_LIST, "what the audit did not look at"),
        },
    ),
}


def make_schemas() -> dict[str, str]:
    """Return all schemas as texts, by their file names."""
    pages = {f"{name}.schema.json": form.schema() for name, form in FORMATS.items()}
    pages["label.schema.json"] = json.loads(_label_schema())
    pages["openapi.json"] = describe_api()
    return {name: json.dumps(schema, ensure_ascii=False, indent=1) + "\n" for name, schema in pages.items()}


def _label_schema() -> str:
    return (Path(label.__file__).parent / "label.schema.json").read_text(encoding="utf-8")


def make_page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, *(_describe(name, form) for name, form in FORMATS.items()), _describe_label()]
    return "\n\n".join([*parts, _describe_rest(), _describe_errors(), _NEXT]) + "\n"


_HEAD = """# Formats and codes

*For somebody who writes a program that reads what hubbub writes; 10 minutes.*

Made by `make docs` from the code. Each format has a JSON schema that allows no other field, and real
documents are checked against it. Numbers that must be exact are texts: `"0.5"`, `"1/3"`, `"1e-6"`. Once 0.1.0
is released a format never changes its meaning; other fields are another version.

Mechanisms and privacy losses have a `kind` with a version (`laplace/1`, `privacy-loss/1`); `hubbub.from_json`
reads mechanisms, and refuses anything but exactly the fields of their kind."""
_NEXT = """## Next

- [The ledger](ledger.md): its tables and entries. [The command line](cli.md): every option.
- [Ask a server](serve-clients.md) from psql, notebooks and DBeaver."""


def _describe(name: str, form: Format) -> str:
    rows = []
    for field, each in form.fields.items():
        mark = "" if each.is_required else " (optional)"
        rows.append(f"| `{field}`{mark} | {_type_name(each.schema)} | {each.meaning} |")
    title = (
        form.title[0].upper() + form.title[1:]
        if not form.title.startswith(("hubbub ", "audit/"))
        else form.title
    )
    head = [f"## {title}", "", f"{form.about} [Schema](schemas/{name}.schema.json)", ""]
    return "\n".join([*head, "| field | type | meaning |", "|---|---|---|", *rows])


def _type_name(schema: dict[str, Any]) -> str:
    if schema is _EXACT:
        return "exact number, as text"
    if schema is _DIGEST:
        return "64 hexadecimal digits"
    if "const" in schema:
        return "text"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return f"{_type_name(schema['anyOf'][0])} or null"
    names = {"string": "text", "object": "object", "array": "list", "boolean": "true or false"}
    return names.get(schema["type"], "whole number" if schema["type"] == "integer" else "number")


def _describe_label() -> str:
    schema = json.loads(_label_schema())
    names = ", ".join(f"`{name}`" for name in schema["required"])
    about = f"{schema['description']} [Schema](schemas/label.schema.json)"
    return f"## {schema['title']}\n\n{about}\n\nFields: {names}."


def _describe_rest() -> str:
    api = describe_api()
    rows = []
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            if method != "parameters":
                statuses = ", ".join(operation["responses"])
                rows.append(f"| `{method.upper()} {path}` | {operation['summary']} | {statuses} |")
    return "\n".join(
        [
            "## The REST interface",
            "",
            "A server describes itself at `/api/v1/openapi.json`. [The same document](schemas/openapi.json)",
            "",
            "| request | does | statuses |",
            "|---|---|---|",
            *rows,
        ]
    )


def _describe_errors() -> str:
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        error = kind("what", why="why", fix="fix")
        code = next((code for each, code in EXIT_CODES.items() if issubclass(kind, each)), 2)
        status, word = status_of(error)
        state = convert_error(error).code
        about = (kind.__doc__ or "").split("\n")[0].rstrip(".")
        rows.append(f"| `{name}` | {about} | {code} | {status} `{word}` | {state} |")
    head = (
        "An error is a class in Python, an exit code in the shell, a status over HTTP and a SQLSTATE in psql."
    )
    more = (
        "Exit code 0: done. Exit code 1: `hubbub audit`, `hubbub ledger verify` or "
        "`hubbub report verify` found a violation."
    )
    table = ["| error | meaning | exit code | HTTP | SQLSTATE |", "|---|---|---|---|---|", *rows]
    return "\n".join(["## Errors", "", head, more, "", *table])


if __name__ == "__main__":
    (_ROOT / "docs" / "formats.md").write_text(make_page(), encoding="utf-8")
    (_ROOT / "docs" / "schemas").mkdir(exist_ok=True)
    for file_name, text in make_schemas().items():
        (_ROOT / "docs" / "schemas" / file_name).write_text(text, encoding="utf-8")
