"""What the entries of an account add up to: the room that is left, by charges and by datasets."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hubbub.accounting import FilterCharge, PrivacyFilter, PrivacyLoss
from hubbub.accounting.codec import canonical_json
from hubbub.ledger.account import LedgerAccount
from hubbub.ledger.entries import OWNER, Entry, EntryKind, read_charge, read_loss, refuse_malformed

__all__ = ["History", "Moment", "bars", "count_mechanisms", "epsilon_alone", "share_left"]

_WIDTH = 40
_STEPS = 12
_REMEMBERED = 4096


@dataclass(frozen=True)
class Moment:
    """The room for one more charge, after a number of charges."""

    charges: int
    when: str
    left: float
    """The largest pure ε that one more charge could cost then, as a fraction of the budget's ε."""


@dataclass
class History:
    """What the entries of an account add up to, read once.

    Equal costs are counted and added up once: a million entries have few different ones.
    """

    total: PrivacyFilter
    charges: list[Entry] = field(default_factory=list)
    """Only if asked for: there may be millions."""
    released: set[int] = field(default_factory=set)
    versions: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    """The owner's assertions: that rows are new, and overrides of the declaration."""
    accesses: list[Entry] = field(default_factory=list)
    """Non-private accesses by the owner."""
    restores: list[Entry] = field(default_factory=list)
    """The losses that the owner states were spent since a backup."""
    entries: int = 0
    """The number of the last entry."""
    count: int = 0
    head: str | None = None
    last: Entry | None = None
    first_moment: str | None = None
    is_closed: bool = False
    payer: str = OWNER
    """The analyst who pays; empty for the account itself."""
    _datasets: dict[str, Counter[PrivacyLoss]] = field(default_factory=dict)
    _charges: dict[str, FilterCharge] = field(default_factory=dict)
    """By their text: a million entries have few different ones."""
    _marks: list[tuple[int, str, PrivacyFilter]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._state = PrivacyFilter(self.total)

    @classmethod
    @refuse_malformed()
    def of(cls, account: LedgerAccount, *, keep: bool = False, until: int | None = None) -> "History":
        """Read the entries of an account.

        Args:
            account: the account.
            keep: whether to keep the charges.
            until: the last entry to read, of the owner's account; all of them if omitted.
        """
        history = cls(account.privacy_filter, payer=account.analyst)
        for entry in account.entries():
            if until is not None and entry.number > until:
                break
            history._add(entry, keep=keep)
        if until is not None:
            history.total = history._state
        return history

    def _add(self, entry: Entry, *, keep: bool) -> None:
        self.head, self.entries = entry.digest, entry.number
        body = entry.body
        if entry.kind == EntryKind.RELEASE:
            self.released.add(body["charge"])
        elif entry.kind == EntryKind.VERSION:
            self.versions.append(body["version"])
        elif entry.kind == EntryKind.OVERRIDE:
            self.words.append(body["description"])
        elif entry.kind == EntryKind.CLAIM and body.get("override"):
            self.words.append(f"an account of another unit also pays for the rows of {body['dataset']}")
        elif entry.kind == EntryKind.CLAIM and body.get("new_rows"):
            self.words.append(f"no other account pays for the rows of {body['dataset']}")
        self.is_closed |= entry.kind == EntryKind.CLOSE
        if entry.kind == EntryKind.NONPRIVATE_ACCESS:
            self.accesses.append(entry)
        if entry.kind == EntryKind.RESTORE and body.get("fits"):
            self.restores.append(entry)
            # What the owner says was spent since the backup belongs to no dataset.
            self._spend(read_loss(body["loss"]), body["charged"])
        if entry.kind != EntryKind.CHARGE:
            return
        self.count, self.last = self.count + 1, entry
        self.first_moment = self.first_moment or entry.timestamp
        if keep:
            self.charges.append(entry)
        loss = read_loss(body["loss"])
        self._datasets.setdefault(body["dataset"], Counter())[loss] += 1
        self._spend(loss, body["charged"][self.payer])
        # Marks are thinned out as they grow, so that a dozen to two are left, evenly.
        every = 1 << max(0, (self.count // _STEPS).bit_length() - 1)
        if self.count % every == 0:
            self._marks.append((self.count, entry.timestamp, self._state))
        if len(self._marks) > 4 * _STEPS:
            self._marks = [mark for mark in self._marks if mark[0] % every == 0]

    def by_dataset(self) -> dict[str, Fraction]:
        """About the ε of each dataset's charges by themselves, at the account's δ: as if fixed beforehand."""
        return {name: epsilon_alone(self.total, losses) for name, losses in self._datasets.items() if name}

    def burn_down(self) -> list[Moment]:
        """The room for one more charge, at about a dozen moments, the last charge among them."""
        if self.last is None:
            return []
        marks = [*self._marks, (self.count, self.last.timestamp, self.total)]
        every = max(1, -(-self.count // _STEPS))
        chosen = {-(-mark[0] // every): mark for mark in marks}  # the last of each step
        return [Moment(count, when, share_left(state)) for count, when, state in chosen.values()]

    def _spend(self, loss: PrivacyLoss, stored: Any) -> None:
        text = canonical_json(stored)
        if text not in self._charges:
            if len(self._charges) >= _REMEMBERED:
                self._charges.clear()
            self._charges[text] = read_charge(stored)
        self._state = self._state.after(loss, self._charges[text]) or self._state

    def more_like_the_last(self, account: LedgerAccount) -> int | None:
        """About how many more charges like the last one fit; None where there was none."""
        if self.last is None:
            return None
        return account.count_more(read_loss(self.last.body["loss"]))

    def mechanisms(self) -> dict[str, int]:
        """Which mechanisms were charged, and how often: the kinds of the parts of all losses."""
        return count_mechanisms(entry.body["loss"] for entry in self.charges)


def epsilon_alone(budget: PrivacyFilter, losses: Mapping[PrivacyLoss, int]) -> Fraction:
    """Return about the ε of some charges by themselves, at the budget's δ: as if fixed beforehand."""
    state = PrivacyFilter(budget)
    for loss, times in losses.items():
        state, fitting = state.charge_times(loss, times)
        if fitting < times:
            return budget.epsilon  # all charges together keep the budget
    return state.spent().epsilon


def count_mechanisms(losses: Iterable[Any]) -> dict[str, int]:
    """Return which kinds of events stored losses have, and in how many of them each is."""
    counts: Counter[str] = Counter()
    for loss in losses:
        counts.update(_kinds(loss["alternatives"]))
    return dict(sorted(counts.items()))


def _kinds(part: Any) -> set[str]:
    """The names of a stored part and of those in it."""
    if isinstance(part, dict):
        own = {str(part["kind"]).partition("/")[0]} if "kind" in part else set()
        return own.union(*(_kinds(value) for value in part.values()))
    if isinstance(part, list):
        return set().union(*map(_kinds, part))
    return set()


def share_left(state: PrivacyFilter) -> float:
    """The largest pure ε that one more charge may cost, as a fraction of the budget's.

    Not what the odometer leaves: its ε is an upper bound, and may be the budget's while charges still fit.
    """
    return float(state.remaining().epsilon / state.epsilon)


def bars(moments: Sequence[Moment]) -> Iterator[str]:
    """Yield the room for one more charge as a bar of text, for each moment."""
    for each in moments:
        full = round(_WIDTH * each.left)
        bar = "█" * full + "·" * (_WIDTH - full)
        yield f"{each.when[:16].replace('T', ' ')} {bar} {100 * each.left:.0f} %"
