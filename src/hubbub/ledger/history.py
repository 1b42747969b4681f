"""What the lines of an account come to, read once: sums, moments, and about how many more would fit."""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubbub.ledger.account import Account
from hubbub.ledger.book import Entry, cost_from_plain, plain_text, read_as_written
from hubbub.loss import Cost, Filter, Odometer

__all__ = ["History", "Moment"]

_STEPS = 12
_REMEMBERED = 4096
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
    words: list[str] = field(default_factory=list)
    """What rests on the owner's word: that rows are new, and that she set aside what was declared."""
    exact: int = 0
    count: int = 0
    head: str | None = None
    last: Entry | None = None
    first_moment: str | None = None
    _costs: dict[str, Cost] = field(default_factory=dict)
    _pending: Counter[tuple[str, str]] = field(default_factory=Counter)
    _sums: dict[str, Cost] = field(default_factory=dict)
    """By dataset, without what is pending."""
    _marks: list[tuple[int, str, Cost]] = field(default_factory=list)

    @classmethod
    @read_as_written()
    def of(cls, account: Account, *, keep: bool = False) -> "History":
        """Read the lines of an account; `keep` the charges."""
        history = cls(account.total)
        for entry in account.entries():
            history._add(entry, keep=keep)
        history._settle()
        return history

    def _add(self, entry: Entry, *, keep: bool) -> None:
        self.head = entry.digest
        body = entry.body
        if entry.kind == "release":
            self.released.add(body["charge"])
        elif entry.kind == "version":
            self.versions.append(body["version"])
        elif entry.kind == "override":
            self.words.append(body["what"])
        elif entry.kind == "rows" and body.get("override"):
            self.words.append(f"an account of another unit also pays for the rows of {body['dataset']}")
        elif entry.kind == "rows" and body.get("new rows"):
            self.words.append(f"no other account pays for the rows of {body['dataset']}")
        self.exact += entry.kind == "exact"
        if entry.kind == "restored" and body.get("fits"):  # what its owner said was spent, of no dataset
            self._sums[""] = self._sums.get("", Cost.of(0, mu_squared=0, orders=self.total.orders))
            self._sums[""] += cost_from_plain(body["cost"], self.total.orders)
        if entry.kind != "charge":
            return
        self.count, self.last = self.count + 1, entry
        self.first_moment = self.first_moment or entry.moment
        if keep:
            self.charges.append(entry)
        text = plain_text(body["cost"])
        if text not in self._costs:
            if len(self._costs) >= _REMEMBERED:
                self._settle()
                self._costs.clear()
            self._costs[text] = cost_from_plain(body["cost"], self.total.orders)
        self._pending[body["dataset"], text] += 1
        # Marks are thinned out as they grow, so that a dozen to two are left, evenly.
        every = 1 << max(0, (self.count // _STEPS).bit_length() - 1)
        if self.count % every == 0:
            self._settle()
            self._marks.append((self.count, entry.moment, self._spent()))
        if len(self._marks) > 4 * _STEPS:
            self._marks = [mark for mark in self._marks if mark[0] % every == 0]

    def by_dataset(self) -> dict[str, Fraction | None]:
        """The ε of each dataset's charges by themselves, at the account's δ; infinite where it is None."""
        start = Odometer(self.total.delta, self.total.orders)
        return {name: start.after(spent).reading().epsilon for name, spent in self._sums.items() if name}

    def burn_down(self) -> list[Moment]:
        """What was left, at about a dozen moments, the last charge among them."""
        if self.last is None:
            return []
        marks = [*self._marks, (self.count, self.last.moment, self._spent())]
        every = max(1, -(-self.count // _STEPS))
        chosen = {-(-mark[0] // every): mark for mark in marks}  # the last of each step
        return [Moment(count, when, self._left(spent)) for count, when, spent in chosen.values()]

    def _settle(self) -> None:
        """Add up what is pending."""
        for (dataset, text), count in self._pending.items():
            cost = self._costs[text].times(count)
            self._sums[dataset] = self._sums[dataset] + cost if dataset in self._sums else cost
        self._pending.clear()

    def _spent(self) -> Cost:
        return sum(self._sums.values(), start=Odometer(0, self.total.orders).spent)

    def _left(self, spent: Cost) -> float:
        budget = self.total
        reached = Filter(budget, budget.orders, budget.split, spent=spent).reading().epsilon
        return 0.0 if reached is None else max(0.0, 1.0 - float(reached / budget.epsilon))

    def more_like_the_last(self, account: Account) -> int | None:
        """About how many more charges like the last one fit; None where there was none."""
        if self.last is None:
            return None
        cost = cost_from_plain(self.last.body["cost"], self.total.orders)
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
