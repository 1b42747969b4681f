"""The stored form of a domain: JSON, with every rational as text. Files may come from anybody."""

import re
from fractions import Fraction
from typing import Any

from hubbub.accounting.codec import decode_cell, encode_cell
from hubbub.synthesis.domain import Column, ColumnKind, Condition, Domain, Function, Rule

__all__ = ["UNREADABLE", "check_label", "decode_domain", "decode_rational", "encode_domain"]

UNREADABLE = (
    *(KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError, AssertionError),
    *(RecursionError, RuntimeError, MemoryError),
)
"""Errors that reading a malformed file may raise."""
_RATIONAL = re.compile(r"-?[0-9]{1,1200}(/[0-9]{1,1200})?")


def decode_rational(text: Any) -> Fraction:
    """A rational that was stored as text; anything else, and powers of ten, raise ValueError."""
    if not isinstance(text, str) or not _RATIONAL.fullmatch(text):
        raise ValueError
    return Fraction(text)


def check_label(name: Any, label: Any) -> None:
    """Raise ValueError or KeyError unless a stored name and label can be shown."""
    notes = label.get("notes", [])
    texts = [name, label["unit"], *notes]
    if not isinstance(notes, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError
    if decode_rational(label["epsilon"]) <= 0 or not 0 <= decode_rational(label["delta"]) < 1:
        raise ValueError


def encode_domain(domain: Domain) -> dict[str, Any]:
    """The domain as JSON."""
    return {
        "columns": [_encode_column(column) for column in domain.columns],
        "functions": [[each.target, each.source, list(each.table)] for each in domain.functions],
        "rules": [
            [rule.text, [_encode_condition(each) for each in rule.impossible]] for rule in domain.rules
        ],
        "focus": domain.focus,
    }


def decode_domain(stored: Any) -> Domain:
    """The domain that `encode_domain` stored; anything else raises KeyError, TypeError or ValueError."""
    return Domain(
        tuple(_decode_column(column) for column in stored["columns"]),
        tuple(Function(target, source, tuple(table)) for target, source, table in stored["functions"]),
        tuple(
            Rule(tuple(_decode_condition(each) for each in conditions), text)
            for text, conditions in stored["rules"]
        ),
        stored["focus"],
    )


def _encode_column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "kind": column.kind.value,
        "categories": [encode_cell(each) for each in column.categories],
        "edges": [str(edge) for edge in column.edges],
        "unit": None if column.unit is None else str(column.unit),
        "nullable": column.is_nullable,
        "other": column.has_other,
        "finds bins": column.finds_bins,
        "forced cuts": [str(cut) for cut in column.forced_cuts],
        "ends after last": column.ends_after_last,
    }


def _decode_column(stored: Any) -> Column:
    if not isinstance(stored["name"], str):
        raise TypeError
    return Column(
        stored["name"],
        ColumnKind(stored["kind"]),
        tuple(decode_cell(each) for each in stored["categories"]),
        tuple(decode_rational(edge) for edge in stored["edges"]),
        None if stored["unit"] is None else decode_rational(stored["unit"]),
        bool(stored["nullable"]),
        bool(stored["other"]),
        bool(stored["finds bins"]),
        tuple(decode_rational(cut) for cut in stored["forced cuts"]),
        bool(stored["ends after last"]),
    )


def _encode_condition(condition: Condition) -> dict[str, Any]:
    return {
        "column": condition.column,
        "categories": sorted((encode_cell(each) for each in condition.categories), key=str),
        "low": None if condition.low is None else str(condition.low),
        "high": None if condition.high is None else str(condition.high),
        "range": condition.is_range,
        "null": condition.with_null,
    }


def _decode_condition(stored: Any) -> Condition:
    return Condition(
        stored["column"],
        frozenset(decode_cell(each) for each in stored["categories"]),
        None if stored["low"] is None else decode_rational(stored["low"]),
        None if stored["high"] is None else decode_rational(stored["high"]),
        bool(stored["range"]),
        bool(stored["null"]),
    )
