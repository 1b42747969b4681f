"""`Synthesis`: a model of a table that was measured for synthetic rows, and its plan.

Proof: docs/proofs/synthesis.md
"""

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.errors import InvalidInput
from hubbub.escaping import escape
from hubbub.ledger.entries import digest
from hubbub.numbers import Number, format_nearest, format_up
from hubbub.output_files import write_output
from hubbub.sql.result import Result
from hubbub.synthesis.category_selection import CategorySelection
from hubbub.synthesis.domain import Domain
from hubbub.synthesis.domain_storage import UNREADABLE, check_label, encode_domain
from hubbub.synthesis.engine_counts import EngineCounts
from hubbub.synthesis.release_budget import ReleaseBudget
from hubbub.synthesis.synopsis import ENDING, Synopsis
from hubbub.synthesis.synopsis_plan import note_rows_left_out
from hubbub.synthesis.synthesizer import check_domain, check_noise, synthesize
from hubbub.synthesis.synthetic_table import make_metadata, make_rows
from hubbub.synthesis.table_model import TableModel
from hubbub.unit import Unit

if TYPE_CHECKING:
    from hubbub.release import Release

__all__ = ["Synthesis", "SynthesisPlan", "open_synopsis"]

_FORMAT = "hubbub synthesis/1"
_KIND = "synthesis/1"


@dataclass(frozen=True, eq=False, repr=False)
class Synthesis:
    """A model of a table, fitted to measured tables; `synthetic` makes rows from it.

    Guarantee: a function of what was measured; rows cost nothing.
    Proof: docs/proofs/post-processing.md
    """

    name: str
    model: TableModel
    facts: Mapping[str, Any]
    """What was protected, how, and at what cost."""

    def synthetic(self, rows: int | None = None) -> Result:
        """Made-up rows with the columns of the source in their order; declared rules hold for all of them.

        Every call makes other rows. `result.to_pandas()` and `result.write("rows.parquet")` pass them on.

        Args:
            rows: how many; the estimated number of rows if omitted.
        """
        return make_rows(self.model, rows, self.facts)

    def metadata(self) -> dict[str, Any]:
        """The columns of synthetic rows, as the metadata of SDV describes tables."""
        return make_metadata(self.name, self.model.columns.domain)

    def report(self) -> str:
        """What was measured, and how well the model reproduces it: compared with the noise, not with data."""
        names = self.model.columns.names
        epsilon, delta = (format_up(Fraction(self.facts[name])) for name in ("epsilon", "delta"))
        lines = [
            f"Synthetic rows of {self.name}: ε = {epsilon}, δ = {delta}, for one {self.facts['unit']}",
            f"{len(self.model.measured)} tables were measured. Noise of each cell, and how far the model is",
            "off the measured table (root mean square): about the noise is what can be expected.",
        ]
        for each in self.model.measured:
            expected = self.model.expected(each.variables)
            if each.is_residual:
                for axis in range(expected.ndim):
                    expected = expected - expected.mean(axis=axis, keepdims=True)
            distance = float(np.sqrt(np.mean((each.values - expected) ** 2)))
            title = " × ".join(names[variable] for variable in each.variables)
            kind = "residual of " if each.is_residual else ""
            lines.append(f"  {kind}{title}: {format_nearest(each.sd, 3)}, {format_nearest(distance, 3)}")
        pairs = [" × ".join(pair) for pair in self.model.unmeasured_pairs]
        listed = "; ".join(pairs[:12]) + ("; …" if len(pairs) > 12 else "")
        lines.append(f"Pairs of columns that were not measured together: {listed or 'none'}.")
        lines.append("Nothing else is known of the rows. Use no row by itself.")
        return "\n".join(map(escape, lines))

    def to_json(self) -> str:
        """The measurements and the model as one text; `from_json` reads it back."""
        stored = {
            "format": _FORMAT,
            "name": self.name,
            "label": dict(self.facts),
            "model": self.model.to_json(),
        }
        return json.dumps(stored, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Synthesis":
        """Read what `to_json` wrote."""
        try:
            stored = json.loads(text)
            if stored["format"] != _FORMAT:
                raise ValueError
            check_label(stored["name"], stored["label"])
            return cls(stored["name"], TableModel.from_json(stored["model"]), dict(stored["label"]))
        except UNREADABLE:
            raise InvalidInput(
                "the text is not a stored synthesis, or one of a newer version",
                why="it cannot be read",
                fix="pass what save() wrote",
            ) from None

    def save(self, path: str | Path) -> None:
        """Write one file that holds everything; its name ends in .synopsis."""
        write_output(path, self.to_json(), (ENDING,))

    def with_facts(self, **facts: Any) -> "Synthesis":
        """The same with more on its label."""
        return replace(self, facts={**self.facts, **facts})

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return escape(f"Synthesis({self.name}: {len(self.model.measured)} measured tables)")


def open_synopsis(path: str | Path) -> Synopsis | Synthesis:
    """Read a .synopsis file: tables that answer queries, or a model that makes rows."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return Synopsis.open(path)  # raises, and says why
    return Synthesis.from_json(text) if f'"{_FORMAT}"' in text[:100] else Synopsis.from_json(text)


@dataclass(frozen=True)
class SynthesisPlan:
    """What the measurement for synthetic rows costs. Its steps are chosen privately, within that cost.

    Guarantee: `run` costs no unit more than `loss`.
    Proof: docs/proofs/synthesis.md
    """

    table: str
    counts: EngineCounts
    epsilon: Fraction
    delta: Fraction
    runner: Callable[["SynthesisPlan"], "Release[Synthesis]"]
    selection: CategorySelection | None = None
    """The categories that are selected first; the domain then stands for as many as there may be."""
    make_rest: Callable[[Mapping[str, Any]], Any] | None = None
    """From selected categories to the plan of the rest."""

    error_kind: ClassVar[str] = "none"

    @property
    def domain(self) -> Domain:
        """The columns and their cells."""
        return self.counts.domain

    @property
    def unit(self) -> Unit:
        """Who is protected."""
        return self.counts.unit

    def make_budget(self) -> ReleaseBudget:
        """The budget of one run, without that of selected categories."""
        epsilon, delta = self.epsilon, self.delta
        if self.selection is not None:
            epsilon, delta = epsilon - self.selection.epsilon, delta - self.selection.delta
        return ReleaseBudget.of(epsilon=epsilon, delta=delta, allow_large_epsilon=True)

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The privacy loss of one unit for all steps together."""
        own = self.make_budget().loss
        return own if self.selection is None else PrivacyLoss.compose([self.selection.loss, own])

    @property
    def text(self) -> str:
        """The plan in one line, as the ledger shows it."""
        return f"synthesis of {self.table} from {', '.join(self.domain.names)}"

    def label(self) -> dict[str, Any]:
        """What is protected, what is measured and what it costs: public, and free of data."""
        return {
            "query": self.text,
            "unit": self.unit.name,
            "neighbours": self.unit.neighbours.value,
            "epsilon": str(self.epsilon),
            "delta": str(self.delta),
            "mechanism": "Gaussian, exponential mechanism",
            **({} if self.selection is None else {"private keys": self.selection.label()}),
            "rows per unit": self.counts.max_weight if self.unit.key is not None else None,
            "columns": {column.name: column.size for column in self.domain.columns},
            "focus": self.domain.focus,
            "notes": [
                *(f"no row breaks the rule: {rule.text}" for rule in self.domain.rules),
                *note_rows_left_out(self.domain, self.unit, self.counts.max_weight),
            ],
        }

    def to_json(self) -> str:
        """The label, for storage."""
        return canonical_json(self.label())

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:  # noqa: ARG002 - as of a mechanism
        """Synthetic rows have no error bound; use a synopsis for answers with intervals."""
        raise InvalidInput(
            "synthetic rows have no error bound",
            why="their errors depend on the data and on which tables were selected",
            fix="use plan_synopsis for answers with intervals",
        )

    def fingerprint(self, origin: Any) -> str:
        """A digest of everything that the law of the synthesis depends on, except the rows."""
        unit = [self.unit.key, self.unit.neighbours.value, str(self.unit.window)]
        figures = [str(self.epsilon), str(self.delta), self.counts.max_weight]
        selection = [] if self.selection is None else self.selection.fingerprints(origin)
        return digest([_KIND, self.table, encode_domain(self.domain), unit, figures, selection, origin])

    def run(self) -> "Release[Synthesis]":
        """Charge, measure and fit, by the dataset that planned it."""
        return self.runner(self)

    def check(self) -> None:
        """Refuse what no model can be made of, before anything is charged."""
        check_domain(self.domain)
        check_noise(self.counts, self.make_budget())
        self.counts.compile()

    def execute(
        self, progress: Callable[[str], None] = lambda _: None, facts: Mapping[str, Any] | None = None
    ) -> str:
        """Count, select and measure; called after the charge, and by nobody else.

        Args:
            progress: called with the name of each step.
            facts: more for the label.

        Guarantee: what comes out went through the mechanisms that draw from the budget.
        Proof: docs/proofs/synthesis.md
        """
        progress("counting, selecting and measuring tables")
        model = synthesize(self.counts, self.make_budget())
        # Bins were found, so that columns have other numbers of cells than before.
        columns = {column.name: column.size for column in model.columns.domain.columns}
        label = {**self.label(), **(facts or {}), "columns": columns}
        return Synthesis(self.table, model, label).to_json()

    def __str__(self) -> str:
        cells = ", ".join(
            f"{column.name} ({'bins to be found' if column.finds_bins else column.size})"
            for column in self.domain.columns
        )
        text = f"Synthesis of {self.table} for {self.unit}: {self.loss}; columns and cells: {cells}"
        return escape(text if self.selection is None else f"{text}. {self.selection}")

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return escape(f"SynthesisPlan({self.table}: {self.loss})")
