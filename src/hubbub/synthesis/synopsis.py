"""`Synopsis`: tables that were measured once, and answer later questions at no cost.

It is public. One file holds it, with its label; the data is not needed to read it.
"""

import base64
import html
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.engines.schema import Kind
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.escaping import escape
from hubbub.numbers import Number, format_nearest, format_up
from hubbub.output_files import write_output
from hubbub.sql.post_processing import ResultColumn
from hubbub.sql.result import Result
from hubbub.synthesis.counting import WEIGHT_BITS
from hubbub.synthesis.domain import Column, ColumnKind, Domain, to_date
from hubbub.synthesis.domain_storage import (
    UNREADABLE,
    check_label,
    decode_domain,
    decode_rational,
    encode_domain,
)
from hubbub.synthesis.laplace_tables import LaplaceNoise, LaplaceTable, pool_tables
from hubbub.synthesis.measured_tables import MeasuredTables, interval
from hubbub.synthesis.prefix_sums import MeasuredRange, PrefixNoise
from hubbub.synthesis.range_tree import TreeNoise
from hubbub.synthesis.residuals import Residual, ResidualNoise
from hubbub.synthesis.synopsis_queries import answer_query
from hubbub.synthesis.synthetic_table import fit_to_tables, make_consistent_rows, make_metadata, make_rows
from hubbub.synthesis.table_model import TableModel
from hubbub.synthesis.workload import MAX_TABLE_CELLS, MAX_WHOLE_COLUMNS, Names
from hubbub.unit import Neighbours, Unit

__all__ = ["ENDING", "Synopsis"]

_FORMAT = "hubbub synopsis/1"
_SCALES = range(1, (1 << WEIGHT_BITS) + 1)
ENDING = ".synopsis"


@dataclass(frozen=True, eq=False, repr=False)
class Synopsis:
    """Measured tables with known errors: `table`, `sql`, `report`, `save`.

    Guarantee: a function of what was measured; nothing that is asked of it costs anything.
    Proof: docs/proofs/post-processing.md
    """

    name: str
    """The table's name in queries."""
    measured: MeasuredTables
    facts: Mapping[str, Any]
    """What was protected, how, and at what cost."""
    tables: tuple[Names, ...]
    """The tables of the workload."""
    ranges: tuple[MeasuredRange, ...] = ()
    """Columns with ranges: histograms with any cut of their grid, and quantiles."""

    @property
    def domain(self) -> Domain:
        """The columns and their cells."""
        return self.measured.domain

    def table(self, *names: str, confidence: Number = 0.95, version: str = "unbiased") -> Result:
        """The table of these columns: a row for each cell, with its standard deviation and interval.

        Args:
            names: columns that were measured together.
            confidence: the confidence of each interval.
            version: "unbiased"; or one without negative cells and intervals, which is biased:
                "nonnegative" and "integer" have one total for all tables, and are the closest to each table
                by itself; "consistent" has whole numbers that agree wherever tables have columns in common.
        """
        if version not in {"unbiased", "nonnegative", "integer", "consistent"}:
            raise InvalidInput(
                "the version is not one of unbiased, nonnegative, integer and consistent",
                why="they differ in bias and in intervals",
                fix='pass version="unbiased"',
            )
        columns = tuple(self.domain.find(name).name for name in names)
        if not columns or len(set(columns)) < len(columns):
            raise InvalidInput(
                "a table of no column, or of one column twice, is asked for",
                why="each of its columns says which cell a row is in",
                fix="name each column once; for the total, ask SELECT COUNT(*)",
            )
        cells = np.indices(self.domain.shape(columns)).reshape(len(columns), -1)
        labels = [
            ResultColumn(
                name,
                np.array([self.domain.column(name).label(cell) for cell in own], dtype=object),
                kind=Kind.TEXT,
            )
            for name, own in zip(columns, cells, strict=True)
        ]
        if version != "unbiased":
            if version == "consistent":
                fit = self._count_consistently(columns).ravel()
            else:
                fit = self.measured.nonnegative(columns, integer=version == "integer").ravel()
            notes = [*self.facts.get("notes", []), f"{version}: post-processed, biased, without intervals"]
            counts = ResultColumn(_free_name("n", columns), fit, kind=Kind.NUMBER)
            return Result((*labels, counts), {**self.facts, "notes": notes})
        values = self.measured.estimate(columns).ravel()
        sd = np.full(values.size, self.measured.standard_deviation(columns))
        estimate = interval(values, sd**2, confidence, self.measured.deviations)
        counts = ResultColumn(_free_name("n", columns), values, estimate.low, estimate.high, Kind.NUMBER)
        error = ResultColumn(_free_name("sd", columns), sd, kind=Kind.NUMBER, is_error=True)
        return Result(
            (*labels, counts, error),
            {**self.facts, "confidence": float(Fraction(str(confidence)))},
        )

    def sql(self, text: str, *, confidence: Number = 0.95) -> Result:
        """Answer a SELECT with COUNT, SUM or AVG over the columns of one measured table; it costs nothing.

        A binned column in the GROUP BY shows where each bin starts. Conditions must fit the bins.

        Args:
            text: one SELECT statement; the table has the name that it had in the data.
            confidence: the confidence of each interval.
        """
        columns, names = self._answer(text, confidence)
        facts = {
            **self.facts,
            "query": text,
            "confidence": float(Fraction(str(confidence))),
            "computed from the measured table of": list(names),
        }
        return Result(tuple(columns), facts)

    def _answer(self, text: str, confidence: Number) -> tuple[list[ResultColumn], Names]:
        """From the measured tables; or, if their bins do not fit, from the ranges of a column."""
        try:
            return answer_query(text, self.name, self.measured, confidence)
        except (InvalidInput, Unsupported):
            for each in self.ranges:
                with suppress(HubbubError):
                    return answer_query(text, self.name, each, confidence)
            raise

    def quantile(self, column: str, fraction: Number, *, confidence: Number = 0.95) -> Result:
        """The value that a share of the rows is not above, to the width of a bin of its ranges.

        Args:
            column: a column that was planned with ranges.
            fraction: the share, as 0.5 for the median.
            confidence: the confidence of the interval.
        """
        name = self.domain.find(column).name
        own = next((each for each in self.ranges if each.noise.column.name == name), None)
        if own is None:
            raise InvalidInput(
                f"{column} was not measured with ranges",
                why="a quantile needs the number of rows below every value",
                fix=f'plan the synopsis with ranges={{"{column}": step}}',
            )
        figures = own.quantile(fraction, confidence)
        facts = {**self.facts, "confidence": float(Fraction(str(confidence)))}
        if own.noise.column.kind is ColumnKind.DATES:
            dates = (np.array([to_date(Fraction(each))], dtype=object) for each in figures)
            names = ("value", "value_low", "value_high")
            return Result(
                tuple(ResultColumn(*each, kind=Kind.DATE) for each in zip(names, dates, strict=True)), facts
            )
        value, low, high = (np.array([each]) for each in figures)
        return Result((ResultColumn("value", value, low, high, Kind.NUMBER),), facts)

    def synthetic(self, rows: int | None = None) -> Result:
        """Made-up rows that fit the measured tables, with the columns of the source; it costs nothing.

        They follow the tables of one column and a tree of pairs; see `fit_to_tables`. Every call makes other
        rows. `result.to_pandas()` and `result.write("rows.parquet")` pass them on.

        Args:
            rows: how many; the estimated number of rows if omitted.
        """
        return make_rows(self._model, rows, self.facts)

    def metadata(self) -> dict[str, Any]:
        """The columns of synthetic rows, as the metadata of SDV describes tables."""
        return make_metadata(self.name, self.domain)

    @cached_property
    def _model(self) -> TableModel:
        return fit_to_tables(self.measured)

    @cached_property
    def _consistent_rows(self) -> list[Any]:
        """The cells of one list of made-up rows, by column: all tables are counted of it."""
        return make_consistent_rows(self._model, self.measured)

    def _count_consistently(self, names: Names) -> Any:
        self.measured.estimate(names)  # raises if the table was not measured
        places = [self.domain.names.index(name) for name in names]
        total = len(self._consistent_rows[0])
        flat = np.zeros(total, dtype=np.int64)
        for place, name in zip(places, names, strict=True):
            flat = flat * self.domain.column(name).size + self._consistent_rows[place]
        return np.bincount(flat, minlength=self.domain.cells(names)).astype(np.float64)

    def report(self) -> str:
        """What was measured, how well, and what it is not good for."""
        total, sd = self.measured.total
        width = self.measured.deviations(0.95) * sd
        epsilon, delta = (format_up(Fraction(self.facts[name])) for name in ("epsilon", "delta"))
        price = f"ε = {epsilon}, δ = {delta}"
        lines = [
            f"Synopsis of {self.name}: {price}, for one {self.facts['unit']}",
            f"rows: {format_nearest(total, 6)} ± {format_nearest(width, 3)} (95 %)",
            f"{len(self.tables)} tables were measured. Standard deviation of each cell, and share of cells",
            "that are below it in size (no signal by themselves):",
        ]
        for names in sorted(
            self.tables, key=lambda each: (len(each), self.measured.standard_deviation(each))
        ):
            cells = np.abs(self.measured.estimate(names))
            deviation = self.measured.standard_deviation(names)
            lost = float(np.mean(cells < deviation))
            lines.append(
                f"  {' × '.join(names)}: {format_nearest(deviation, 3)}, {cells.size} cells, {lost:.0%} below"
            )
        most = max(map(len, self.tables))
        lines.append(
            f"Not measured: what {most + 1} columns say together; nothing is known of it beyond these tables."
        )
        lines += [f"Note: {note}" for note in self.facts.get("notes", [])]
        return "\n".join(map(escape, lines))

    # Storage

    def to_json(self) -> str:
        """The synopsis as one text; `from_json` reads it back."""
        is_pure = bool(self.measured.tables)
        released: Mapping[Names, Any] = self.measured.tables or self.measured.residuals
        first = next(iter(released.values())).noise
        stored = {
            "format": _FORMAT,
            "name": self.name,
            "label": dict(self.facts),
            "domain": encode_domain(self.domain),
            "tables": [list(names) for names in self.tables],
            "unit": [first.unit.key, first.unit.neighbours.value],
            "scale": first.scale,
            "max weight": first.max_weight,
            "noise": "laplace" if is_pure else "gaussian",
            "measured": [
                [list(names), str(each.noise.epsilon if is_pure else each.noise.mu), _encode(each.noisy)]
                for names, each in released.items()
            ],
            "ranges": [
                [
                    each.noise.column.name,
                    [str(cut) for cut in each.noise.column.cuts],
                    str(each.noise.epsilon if is_pure else each.noise.mu),
                    _encode(each.noisy),
                ]
                for each in self.ranges
            ],
        }
        return json.dumps(stored, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Synopsis":
        """Read what `to_json` wrote."""
        try:
            stored = json.loads(text)
            if stored["format"] != _FORMAT:
                raise ValueError
            check_label(stored["name"], stored["label"])
            domain = decode_domain(stored["domain"])
            key, neighbours = stored["unit"]
            unit = Unit(key, Neighbours(neighbours))
            scale, weight = stored["scale"], stored["max weight"]
            if type(scale) is not int or type(weight) is not int or not (scale in _SCALES and weight > 0):
                raise ValueError
            is_pure = {"laplace": True, "gaussian": False}[stored["noise"]]
            units = (unit, scale, weight)
            measured = (_decode_whole if is_pure else _decode_residuals)(domain, units, stored["measured"])
            tables = tuple(tuple(names) for names in stored["tables"])
            ranges = tuple(
                _decode_range(domain.column(name), cuts, units, figure, noisy, is_pure=is_pure)
                for name, cuts, figure, noisy in stored["ranges"]
            )
            if not tables or not all(measured.covers(names) for names in tables):
                raise ValueError
            return cls(stored["name"], measured, dict(stored["label"]), tables, ranges)
        except (*UNREADABLE, zlib.error):
            raise InvalidInput(
                "the text is not a stored synopsis, or one of a newer version",
                why="it cannot be read",
                fix="pass what save() wrote",
            ) from None

    def save(self, path: str | Path) -> None:
        """Write one file that holds everything; its name ends in .synopsis."""
        write_output(path, self.to_json(), (ENDING,))

    @classmethod
    def open(cls, path: str | Path) -> "Synopsis":
        """Read a file that `save` wrote. The data is not needed."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            why = getattr(problem, "strerror", None) or "it is not UTF-8"
            raise InvalidInput(
                f"{path} cannot be read", why=str(why).lower(), fix="pass the path of a .synopsis file"
            ) from None
        return cls.from_json(text)

    def with_facts(self, **facts: Any) -> "Synopsis":
        """The same synopsis with more on its label."""
        return replace(self, facts={**self.facts, **facts})

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        cells = sum(math.prod(self.domain.shape(names)) for names in self.tables)
        return escape(f"Synopsis({self.name}: {len(self.tables)} tables, {cells} cells)")


def _free_name(name: str, columns: Sequence[str]) -> str:
    """The name, with lines below it until no column has it or one of its interval's ends."""
    known = {column.lower() for column in columns}
    while known & {name, f"{name}_low", f"{name}_high"}:
        name = f"_{name}"
    return name


def _decode_figure(text: Any) -> Fraction:
    """The μ or the ε of a measurement."""
    figure = decode_rational(text)
    if figure <= 0:
        raise ValueError
    return figure


def _decode_names(domain: Domain, names: Any) -> Names:
    if tuple(names) != domain.ordered(names):
        raise ValueError
    return tuple(names)


def _decode_residuals(domain: Domain, units: tuple[Unit, int, int], stored: list[Any]) -> MeasuredTables:
    residuals = {}
    for names, mu, noisy in stored:
        noise = ResidualNoise(domain.shape(_decode_names(domain, names)), *units, _decode_figure(mu))
        _ = noise.mechanism
        residuals[tuple(names)] = Residual(noise, _decode(noisy, noise.coordinates))
    if () not in residuals:
        raise ValueError
    return MeasuredTables(domain, residuals)


def _decode_whole(domain: Domain, units: tuple[Unit, int, int], stored: list[Any]) -> MeasuredTables:
    tables = {}
    for names, epsilon, noisy in stored:
        shape = domain.shape(_decode_names(domain, names))
        if math.prod(shape) > MAX_TABLE_CELLS or len(shape) > MAX_WHOLE_COLUMNS or 1 in shape:
            raise ValueError
        noise = LaplaceNoise(shape, *units, _decode_figure(epsilon))
        _ = noise.mechanism
        tables[tuple(names)] = LaplaceTable(noise, _decode(noisy, noise.coordinates))
    if not tables:
        raise ValueError
    return pool_tables(domain, tables)


def _decode_range(
    column: Column, cuts: list[Any], units: tuple[Unit, int, int], figure: Any, noisy: str, *, is_pure: bool
) -> MeasuredRange:
    if not column.is_binned:
        raise ValueError
    column = column.with_cuts(map(decode_rational, cuts))
    noise = (TreeNoise if is_pure else PrefixNoise)(column, *units, _decode_figure(figure))
    _ = noise.mechanism
    return MeasuredRange(noise, _decode(noisy, noise.coordinates))


def _encode(integers: Any) -> str:
    return base64.b64encode(zlib.compress(integers.astype("<i8").tobytes())).decode()


def _decode(text: str, count: int) -> Any:
    # Never more than is expected, whatever the file holds.
    reader = zlib.decompressobj()
    raw = reader.decompress(base64.b64decode(text, validate=True), 8 * count + 1)
    if len(raw) != 8 * count:
        raise ValueError
    return np.frombuffer(raw, "<i8").astype(np.int64)
