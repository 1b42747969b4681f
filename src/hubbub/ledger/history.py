"""What the lines of an account come to, read once: sums, moments, and about how many more would fit."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubbub.ledger.account import Account
from hubbub.ledger.book import Entry, cost_from_plain, plain_text
from hubbub.loss import Cost, Filter, Odometer

__all__ = ["History", "Moment"]

_STEPS = 12
_MOST = 20


@dataclass(frozen=True)
class Moment:
    """What was left after so many charges."""

    charges: int
    when: str
    left: float
    """The share of the budget's ε that was left."""


@dataclass
class History:
    """One reading of an account's lines.

    Equal costs are counted, and added up once: a million lines have few different ones.
    """

    total: Filter
    charges: list[Entry] = field(default_factory=list)
    """Only where they are asked for: there may be millions."""
    released: set[int] = field(default_factory=set)
    versions: list[str] = field(default_factory=list)
    exact: int = 0
    count: int = 0
    head: str | None = None
    last: Entry | None = None
    first_moment: str | None = None
    _costs: dict[str, Cost] = field(default_factory=dict)
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _marks: list[tuple[int, str, Counter[str]]] = field(default_factory=list)
    _so_far: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, account: Account, *, keep: bool = False) -> "History":
        """Read the lines of an account; `keep` the charges."""
        history = cls(account.total)
        for entry in account.entries():
            history._add(entry, keep=keep)
        return history

    def _add(self, entry: Entry, *, keep: bool) -> None:
        self.head = entry.digest
        body = entry.body
        if entry.kind == "release":
            self.released.add(body["charge"])
        elif entry.kind == "version":
            self.versions.append(body["version"])
        self.exact += entry.kind == "exact"
        if entry.kind != "charge":
            return
        self.count, self.last = self.count + 1, entry
        self.first_moment = self.first_moment or entry.moment
        if keep:
            self.charges.append(entry)
        text = plain_text(body["cost"])
        self._counts[body["dataset"], text] += 1
        self._so_far[text] += 1
        if text not in self._costs:
            self._costs[text] = cost_from_plain(body["cost"], self.total.orders)
        # Marks are thinned out as they grow, so that a dozen to two are left, evenly.
        every = 1 << max(0, (self.count // _STEPS).bit_length() - 1)
        if self.count % every == 0:
            self._marks.append((self.count, entry.moment, self._so_far.copy()))
        if len(self._marks) > 4 * _STEPS:
            self._marks = [mark for mark in self._marks if mark[0] % every == 0]

    def by_dataset(self) -> dict[str, Fraction | None]:
        """The ε of each dataset's charges by themselves, at the account's δ; infinite where it is None."""
        names = dict.fromkeys(name for name, _ in self._counts if name)
        out = {}
        for name in names:
            odometer = Odometer(self.total.delta, self.total.orders)
            for (dataset, text), count in self._counts.items():
                if dataset == name:
                    odometer = odometer.after(self._costs[text].times(count))
            out[name] = odometer.reading().epsilon
        return out

    def burn_down(self) -> list[Moment]:
        """What was left, at about a dozen moments, the last charge among them."""
        if self.last is None:
            return []
        marks = [*self._marks, (self.count, self.last.moment, self._so_far)]
        every = max(1, -(-self.count // _STEPS))
        chosen = {-(-mark[0] // every): mark for mark in marks}  # the last of each step
        return [Moment(count, when, self._left(so_far)) for count, when, so_far in chosen.values()]

    def _left(self, so_far: Counter[str]) -> float:
        budget = self.total
        spent = Odometer(0, budget.orders).spent
        for text, count in so_far.items():
            spent += self._costs[text].times(count)
        reached = Filter(budget, budget.orders, budget.split, spent=spent).reading().epsilon
        return 0.0 if reached is None else max(0.0, 1.0 - float(reached / budget.epsilon))

    def more_like_the_last(self, account: Account) -> int | None:
        """About how many more charges like the last one fit; None where there was none."""
        if self.last is None:
            return None
        cost = self._costs[plain_text(self.last.body["cost"])]
        return min(_more(total, cost) for total in account.totals())

    def mechanisms(self) -> dict[str, int]:
        """Which mechanisms were charged, and how often: the kinds of the parts of all losses."""
        found: Counter[str] = Counter()
        for entry in self.charges:
            kinds = {part for way in entry.body["loss"]["ways"] for _, each in way for part in _kinds(each)}
            found.update(kinds)
        return dict(sorted(found.items()))


def _kinds(part: Any) -> set[str]:
    """The names of a stored part and of those in it."""
    if isinstance(part, dict):
        own = {str(part["part"]).partition("/")[0]} if "part" in part else set()
        return own.union(*(_kinds(value) for value in part.values()))
    if isinstance(part, list):
        return set().union(*map(_kinds, part))
    return set()


def _more(total: Filter, cost: Cost) -> int:
    sums = [cost]
    while len(sums) < _MOST and total.allows(sums[-1]):  # doubling, and then what is between
        sums.append(sums[-1] + sums[-1])
    count = 0
    for power in reversed(range(len(sums))):
        if total.allows(sums[power]):
            total, count = total.charge(sums[power]), count + 2**power
    return count
