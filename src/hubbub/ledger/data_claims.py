"""Claims on data: which account pays for which rows, so that no row has two budgets.

Proof: docs/proofs/ledger.md, "Windows"
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hubbub.engines.data_identity import DataIdentity
from hubbub.errors import Refused
from hubbub.ledger.entries import Entries, EntryKind, digest
from hubbub.unit import Unit

__all__ = ["plan_claims", "refuse_public"]


@dataclass(frozen=True)
class _DataDigests:
    """The identity of one dataset's rows as the ledger stores it: digests, so that no path is disclosed."""

    dataset: str
    names: frozenset[str]
    numbers: frozenset[str]
    unique_numbers: frozenset[str]

    @classmethod
    def of(cls, dataset: str, data: DataIdentity) -> "_DataDigests":
        return cls(
            dataset,
            frozenset(digest(list(name)) for name in data.names),
            frozenset(digest(list(number)) for number in data.numbers),
            frozenset(digest(list(number)) for number in data.unique_numbers),
        )

    def overlaps(self, names: Iterable[str], numbers: Iterable[str]) -> bool:
        return not self.names.isdisjoint(names) or not self.unique_numbers.isdisjoint(numbers)


def plan_claims(
    entries: Entries,
    family: str,
    unit: Unit,
    data: Mapping[str, DataIdentity],
    *,
    new_rows: bool = False,
    override: bool = False,
) -> list[dict[str, Any]]:
    """Return the bodies of the `claim` entries that let this family of accounts pay for these rows.

    Rows that another family pays for are refused: always for the same unit, and for another unit unless the
    owner overrides it. Unclaimed rows are accepted if they are the first of the ledger, or of an account that
    was opened by itself; otherwise the owner must assert that they are new.

    Args:
        entries: the ledger within one transaction.
        family: the name that the accounts of all windows share.
        unit: the privacy unit of the account.
        data: the identity of each dataset's rows, by the dataset's name.
        new_rows: the owner asserts that no other account pays for these rows.
        override: the owner accepts that an account of another unit pays for them too.
    """
    key = _fold(unit.key)
    requested = [_DataDigests.of(dataset, identity) for dataset, identity in data.items()]
    accounts = {
        entry.account: (entry.body.get("family", entry.account), _fold(entry.body["unit"]))
        for entry in entries.openings()
    }
    claims = [(*accounts[entry.account], entry.body) for entry in entries.entries_of_kind(EntryKind.CLAIM)]
    own_claims = [body for payer, _, body in claims if payer == family]
    families = {payer for payer, _ in accounts.values()}
    is_only_family = not families - {family}
    is_first_claim = family in families and not own_claims
    names = {name for body in own_claims for name in body["names"]}
    numbers = {number for body in own_claims for number in body["numbers"]}
    unnamed = {body["dataset"] for body in own_claims if not body["names"]}
    overridden = set()
    for payer, protected, body in claims:
        for each in requested if payer != family else ():
            if each.overlaps(body["names"], body["numbers"]):
                # Rows that are claimed here too were overridden when they were claimed.
                if protected == key or not (override or each.overlaps(names, ())):
                    raise _claimed_error(each.dataset, payer, is_same_unit=protected == key)
                overridden.add(each.dataset)
    bodies = []
    for each in requested:
        is_known = each.overlaps(names, ()) or (not each.names and each.dataset in unnamed)
        is_known = is_known or is_only_family or each.dataset in overridden
        if not (is_known or is_first_claim or new_rows):
            raise _unknown_data_error(each.dataset, family, sorted(families))
        new_names, new_numbers = each.names - names, each.numbers - numbers
        # Recorded only where it made a difference: so the ledger shows which claims are user-asserted.
        asserted = {"new_rows": True} if new_rows and not is_known else {}
        asserted |= {"override": True} if each.dataset in overridden and new_names else {}
        if new_names or new_numbers or asserted:
            bodies.append(
                {
                    "dataset": each.dataset,
                    "names": sorted(new_names),
                    "numbers": sorted(new_numbers),
                    **asserted,
                }
            )
    return bodies


def refuse_public(entries: Entries, data: Mapping[str, DataIdentity]) -> None:
    """Refuse a public table if an account pays for its rows: they are protected."""
    for entry in entries.entries_of_kind(EntryKind.CLAIM) if data else ():
        for dataset, identity in data.items():
            if _DataDigests.of(dataset, identity).overlaps(entry.body["names"], entry.body["numbers"]):
                raise Refused(
                    f"{dataset} is passed as public, but the account {entry.account!r} pays for its rows",
                    why="public tables are shown without noise, and these rows are protected",
                    fix="pass only public tables as {public}",
                )


def _fold(column: str | None) -> str | None:
    return None if column is None else column.lower()


def _claimed_error(dataset: str, payer: str, *, is_same_unit: bool) -> Refused:
    if is_same_unit:
        return Refused(
            f"the rows of {dataset} are paid for by the account {payer!r}",
            why="a row with two budgets is protected by neither of them",
            fix=f"pass {{account={payer!r}}}",
        )
    return Refused(
        f"the rows of {dataset} are paid for by the account {payer!r}, for another unit",
        why="a release about a row is a release about the person it belongs to, so both budgets add up",
        fix=f"pass {{account={payer!r}}} and its unit, or {{override=True}} to spend both budgets on purpose",
    )


def _unknown_data_error(dataset: str, family: str, families: list[str]) -> Refused:
    others = ", ".join(name for name in families if name != family)
    if family in families:
        what = f"the account {family!r} does not know the rows of {dataset}, and there are others: {others}"
        fix = "pass {new_rows=True} if no other account pays for them, also if the rows of "
        fix += f"{family!r} were moved; the ledger records it"
    else:
        what = f"the ledger does not know the rows of {dataset}, and has other accounts"
        fix = f"pass {{account}} with the account that pays for these rows (one of {others}), "
        fix += "or {new_rows=True} if none does; the ledger records it"
    return Refused(
        what,
        why="a copy or a view of rows that another account pays for would have a second budget",
        fix=fix,
    )
