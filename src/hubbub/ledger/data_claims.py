"""Which account pays for which rows: each for its own, and none for another's.

Proof: docs/proofs/ledger.md, "Windows"
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import Refused
from hubbub.ledger.entries import Entries, digest
from hubbub.unit import Unit

__all__ = ["check_claims", "places_in", "refuse_public"]


@dataclass(frozen=True)
class _Asked:
    """Rows that somebody wants an account to pay for, as the ledger knows them: by digests."""

    dataset: str
    names: frozenset[str]
    numbers: frozenset[str]
    certain: frozenset[str]
    before: frozenset[str]
    """The names as the first ledgers had them: together with the unit's column."""

    @classmethod
    def of(cls, dataset: str, rows: DataIdentity, unit: str | None) -> "_Asked":
        return cls(
            dataset,
            frozenset(digest(list(name)) for name in rows.names),
            frozenset(digest(list(number)) for number in rows.numbers),
            frozenset(digest(list(number)) for number in rows.unique_numbers),
            frozenset(digest([list(name), unit]) for name in rows.names),
        )

    def meets(self, names: Iterable[str], numbers: Iterable[str]) -> bool:
        return not (self.names | self.before).isdisjoint(names) or not self.certain.isdisjoint(numbers)


def check_claims(
    book: Entries,
    family: str,
    unit: Unit,
    rows: Mapping[str, DataIdentity],
    *,
    new_rows: bool = False,
    override: bool = False,
) -> list[dict[str, Any]]:
    """What is to be written before this family of accounts may pay for these rows; or an error.

    Rows that another family pays for are refused, for the same unit always, for another one unless the owner
    overrides it. Rows that nobody pays for yet are the first of a ledger, or of an account that was opened
    by itself; or else the owner must say that they are new.
    """
    key = _key(unit.key)
    asked = [_Asked.of(dataset, identity, key) for dataset, identity in rows.items()]
    accounts = {
        entry.account: (entry.body.get("family", entry.account), _key(entry.body["unit"]))
        for entry in book.openings()
    }
    claims = [(*accounts[entry.account], entry.body) for entry in book.all_of_kind("rows")]
    ours = [body for payer, _, body in claims if payer == family]
    families = {payer for payer, _ in accounts.values()}
    is_alone = not families - {family}
    is_first = family in families and not ours
    names = {name for body in ours for name in places_in(body)}
    numbers = {number for body in ours for number in body.get("numbers", ())}
    placeless = {body["dataset"] for body in ours if not places_in(body)}
    overridden = set()
    for payer, protected, body in claims:
        for each in asked if payer != family else ():
            if each.meets(places_in(body), body.get("numbers", ())):
                # What is ours too was overridden when it was claimed.
                if protected == key or not (override or each.meets(names, ())):
                    raise _paid_for(each.dataset, payer, is_same_unit=protected == key)
                overridden.add(each.dataset)
    lines = []
    for each in asked:
        is_known = each.meets(names, ()) or (not each.names and each.dataset in placeless)
        is_known = is_known or is_alone or each.dataset in overridden
        if not (is_known or is_first or new_rows):
            raise _unknown(each.dataset, family, sorted(families))
        new_names = each.names - names if each.before.isdisjoint(names) else frozenset[str]()
        new_numbers = each.numbers - numbers
        # Only where it made a difference: so the ledger shows what rests on the owner's word.
        said = {"new rows": True} if new_rows and not is_known else {}
        said |= {"override": True} if each.dataset in overridden and new_names else {}
        if new_names or new_numbers or said:
            lines.append(
                {"dataset": each.dataset, "places": sorted(new_names), "numbers": sorted(new_numbers), **said}
            )
    return lines


def refuse_public(book: Entries, rows: Mapping[str, DataIdentity]) -> None:
    """Refuse, as public, rows that an account pays for: they are somebody's."""
    units = {entry.account: _key(entry.body["unit"]) for entry in book.openings()}
    for entry in book.all_of_kind("rows") if rows else ():
        for dataset, identity in rows.items():
            asked = _Asked.of(dataset, identity, units[entry.account])
            if asked.meets(places_in(entry.body), entry.body.get("numbers", ())):
                raise Refused(
                    f"{dataset} is passed as public, and the account {entry.account!r} pays for its rows",
                    why="what is public is shown as it is, and these rows are protected",
                    fix="pass only tables that are nobody's as public",
                )


def places_in(body: Mapping[str, Any]) -> list[str]:
    """The names of rows that a line claims; the first ledgers had one in each."""
    return list(body["places"]) if "places" in body else [body["place"]]


def _key(column: str | None) -> str | None:
    return None if column is None else column.lower()


def _paid_for(dataset: str, payer: str, *, is_same_unit: bool) -> Refused:
    if is_same_unit:
        return Refused(
            f"the rows of {dataset} are paid for by the account {payer!r}",
            why="a row that two budgets pay for is protected by neither of them",
            fix=f"pass {{account={payer!r}}}",
        )
    return Refused(
        f"the rows of {dataset} are paid for by the account {payer!r}, for another unit",
        why="what is told about a row is told about the person it is of, so that both budgets add up",
        fix=f"pass {{account={payer!r}}} and its unit, or {{override=True}} to spend both budgets on purpose",
    )


def _unknown(dataset: str, family: str, families: list[str]) -> Refused:
    others = ", ".join(name for name in families if name != family)
    if family in families:
        what = f"the account {family!r} does not know the rows of {dataset}, and there are others: {others}"
        fix = "pass {new_rows=True} if none of the others pays for them, also where the rows of "
        fix += f"{family!r} were moved; the ledger records it"
    else:
        what = f"the ledger does not know the rows of {dataset}, and has other accounts"
        fix = f"pass {{account}} with the one that pays for these rows (there are {others}), "
        fix += "or {new_rows=True} if none does; the ledger records it"
    return Refused(
        what,
        why="a copy or a view of rows that another account pays for would have a second budget",
        fix=fix,
    )
