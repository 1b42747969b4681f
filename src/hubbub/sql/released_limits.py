"""Noisy histograms of contributions that were released, and what they are of.

Such a histogram is a public fact: it was paid for. Limits of later queries on the same rows are read from it
at no cost, each for its own ε and number of groups.

Proof: docs/proofs/bounding.md, "The limit on rows"
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hubbub.sql.limit_choice import ROW_BINS

__all__ = ["Conditions", "ContributionHistogram", "FoundLimit", "KnownHistograms", "read_histograms"]


@dataclass(frozen=True)
class FoundLimit:
    """A contribution bound that was chosen from a noisy histogram, and that histogram. It is public."""

    kind: str
    """rows or groups."""
    limit: int
    share_above: float | None
    """An estimate of the share of all rows, or of all units' groups, that the limit cuts off.

    None if the histogram shows nothing but noise.
    """
    counts: tuple[int, ...]
    """The noisy number of units in each of `ROW_BINS`."""
    scale: Fraction
    """The scale of their noise."""
    is_new: bool = True
    """False if the histogram was released before: then it cost nothing."""
    is_declared: bool = False
    """True if the limit was declared, and the histogram only says what lies above it."""
    entry: int | None = None
    """The ledger's charge that paid for the histogram, if it was released before."""
    is_of_more: bool = False
    """True if the histogram is also of rows that WHERE or the keys of the query leave out."""


@dataclass(frozen=True)
class Conditions:
    """Which rows a histogram is of, as digests; the first is that of the query itself."""

    own: tuple[str, ...]
    """The same rows: a histogram of these fits."""
    whole: str
    """All rows of the tables, whatever the WHERE: a histogram that was measured on purpose stands in."""


@dataclass(frozen=True)
class ContributionHistogram:
    """The noisy number of units in each of `ROW_BINS`, by their rows or groups."""

    kind: str
    """rows or groups."""
    conditions: str
    """A digest of which rows, units and group keys it is of."""
    counts: tuple[int, ...]
    scale: Fraction
    is_measured: bool = False
    """True if it was measured for later queries, not found for one."""
    entry: int | None = None
    """The ledger's charge that paid for it; its label does not hold it."""
    since: int = 0
    """The ledger's entry by which it became readable: later than the charge for one who views it later."""

    def to_dict(self) -> dict[str, Any]:
        """As a label holds it."""
        return {
            "kind": self.kind,
            "conditions": self.conditions,
            "ends": list(ROW_BINS),
            "counts": list(self.counts),
            "scale": str(self.scale),
            "measured": self.is_measured,
        }


def read_histograms(label: Mapping[str, Any]) -> Iterator[ContributionHistogram]:
    """The histograms that a stored label holds; those of other bins, from another version, are left out."""
    for stored in label.get("histograms", ()):
        if stored.get("ends") == list(ROW_BINS) and len(stored["counts"]) == len(ROW_BINS):
            yield ContributionHistogram(
                str(stored["kind"]),
                str(stored["conditions"]),
                tuple(map(int, stored["counts"])),
                Fraction(stored["scale"]),
                bool(stored.get("measured")),
            )


class KnownHistograms:
    """All histograms that were released."""

    def __init__(self) -> None:
        self._histograms: dict[tuple[str, str, bool], list[ContributionHistogram]] = {}

    def add(self, label: Mapping[str, Any], entry: int | None = None, since: int = 0) -> None:
        """Remember the histograms of a label, the ledger's charge that paid for them, and since when."""
        for histogram in read_histograms(label):
            each = replace(histogram, entry=entry, since=since)
            same = self._histograms.setdefault((each.kind, each.conditions, each.is_measured), [])
            if all((each.counts, each.scale) != (known.counts, known.scale) for known in same):
                same.append(each)

    def find(self, kind: str, conditions: Conditions) -> list[ContributionHistogram]:
        """Those that fit, the best first: of the same rows, or measured on all rows of the tables.

        Of the same rows, the one with the least noise comes first; of equals, the earlier one.
        """
        own = [
            each
            for place in conditions.own
            for is_measured in (False, True)
            for each in self._histograms.get((kind, place, is_measured), ())
        ]
        whole = self._histograms.get((kind, conditions.whole, True), ())
        best = [*sorted(own, key=lambda each: each.scale), *sorted(whole, key=lambda each: each.scale)]
        return list(dict.fromkeys(best))  # the rows of a query without WHERE are the whole
