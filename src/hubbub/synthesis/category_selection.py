"""Categories that nobody declared: selected privately before anything is counted, at a share of the price.

A category that enough units have, after noise, becomes a cell; all others share the cell for other values.
What was selected is released with the synopsis, and everything after it is planned from there.

Proof: docs/proofs/synopsis.md, "Categories that are selected"
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hubbub.accounting import PrivacyLoss
from hubbub.engines.engine import Engine
from hubbub.engines.schema import Column, Key, Kind, is_valid_text
from hubbub.errors import InvalidInput, Unsupported
from hubbub.numbers import Number, format_up, parse_probability
from hubbub.sql.composite_plan import fingerprint_plan
from hubbub.sql.executor import execute
from hubbub.sql.plan import Plan
from hubbub.synthesis.declarations import SynopsisDeclarations, find_columns

__all__ = ["MAX_SELECTED", "CategorySelection", "check_selection", "parse_share", "placeholder_keys"]

MAX_SELECTED = 64
"""The maximum number of categories of a column that are selected; more are counted as other values."""


@dataclass(frozen=True)
class CategorySelection:
    """The columns with categories that are selected, each by one query of its own."""

    queries: Mapping[str, Plan]
    """By column, the plan of SELECT column GROUP BY column with keys that are selected privately."""
    epsilon: Fraction
    delta: Fraction

    @property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of all selections together."""
        return PrivacyLoss.compose([plan.loss for plan in self.queries.values()])

    def select(self, engine: Engine, progress: Callable[[str], None]) -> dict[str, tuple[Key, ...]]:
        """Select the categories; called after the charge, and by nobody else.

        Guarantee: what comes out was released by the queries' own mechanisms; it costs `loss`.
        Proof: docs/proofs/synopsis.md, "Categories that are selected"
        """
        selected = {}
        for name, plan in self.queries.items():
            progress(f"selecting categories of {name}")
            keys = execute(plan, engine).columns[0].values.tolist()
            selected[name] = tuple(filter(_is_category, keys))[:MAX_SELECTED]
        return selected

    def fingerprints(self, origin: Any) -> list[str]:
        """Digests of everything that the law of the selections depends on, except the rows."""
        return [fingerprint_plan(plan, origin) for plan in self.queries.values()]

    def label(self) -> dict[str, Any]:
        """Which columns are selected, and at what price."""
        price = {"epsilon": str(self.epsilon), "delta": str(self.delta)}
        return {"columns": list(self.queries), "at most": MAX_SELECTED, **price}

    def __str__(self) -> str:
        names = ", ".join(self.queries)
        price = f"ε = {format_up(self.epsilon)}, δ = {format_up(self.delta)}"
        return (
            f"Categories of {names} are selected privately first, at {price} of the whole; "
            f"the errors are those of {MAX_SELECTED} categories each"
        )


def _is_category(key: Key) -> bool:
    """True if a key can be declared; others are counted as other values, because nothing may fail here.

    NULL has a cell by declaration, or none. NaN is no category, nor is a text that some engine refuses.
    """
    if isinstance(key, str):
        return is_valid_text(key)
    return key is not None and key == key  # noqa: PLR0124 - False for NaN


def parse_share(share: Number) -> Fraction:
    """The share of ε and δ that selections have."""
    return Fraction(parse_probability(share, "private_keys_share"))


def check_selection(declared: SynopsisDeclarations, columns: Sequence[Column], delta: Fraction) -> None:
    """Refuse selections that could fail after the charge, or that nothing protects.

    Args:
        declared: what is declared for the synopsis.
        columns: the columns with categories that are selected.
        delta: the additive slack of the whole release.
    """
    for column in columns:
        if column.kind not in {Kind.TEXT, Kind.NUMBER} or column.is_unit:
            raise Unsupported(
                f"the categories of {column.name} cannot be selected",
                why="only texts and numbers of columns that do not identify anybody can",
                fix="declare its keys or bounds",
                parameter="private_keys",
            )
        names = {name.lower() for name in (*declared.keys, *declared.bounds, *declared.cuts)}
        if column.name.lower() in names:
            raise InvalidInput(
                f"the categories of {column.name} are declared, and to be selected",
                why="its cells are either declared or selected, not both",
                fix=f"leave {column.name} out of one of them",
                parameter="private_keys",
            )
        functions = declared.functions.values()
        sources = {str(each.get("of")) for each in functions if isinstance(each, Mapping)}
        texts = [*sources, *declared.functions, *declared.impossible]
        # A quoted name may be spelled in another way in a rule.
        ruled = (name for text in declared.impossible for name in find_columns(text))
        if any(column.name.lower() in text.lower() for text in (*texts, *ruled)):
            raise Unsupported(
                f"a function or a rule names {column.name}, which has categories that are selected",
                why="it is not known beforehand whether it has the categories that they name",
                fix="declare its keys, or leave the function or the rule out",
                parameter="private_keys",
            )
    if not delta:
        raise InvalidInput(
            "categories are to be selected with {delta} of 0",
            why="{delta} bounds the probability of showing a category that only one person has",
            fix="pass {delta=1e-6}, or declare all keys",
        )


def placeholder_keys(column: Column) -> list[Key]:
    """As many categories as may be selected, of the column's kind: for the plan, before any row is read."""
    if column.kind is Kind.NUMBER:
        return [float(number) for number in range(MAX_SELECTED)]
    return [f"category {number + 1}" for number in range(MAX_SELECTED)]
