"""Backups of a ledger, and how it continues after it was restored, copied or moved: the owner confirms it.

Proof: docs/proofs/ledger.md, "One ledger"
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.budget import refuse_other_relation
from hubbub.accounting.filter_second_stage import encode_charge
from hubbub.accounting.serialization import encode_loss
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, LedgerFailed, Refused
from hubbub.ledger.copy_detection import HeadFile, KnownHead, is_same_ledger, lacks_entry, restored_ledger_id
from hubbub.ledger.entries import OWNER, Entries, EntryKind, corruption_error, read_loss
from hubbub.ledger.postgres import PostgresStore, is_postgres_url
from hubbub.ledger.sqlite import (
    SQLiteStore,
    convert_os_errors,
    create_file,
    has_leftover_log,
    resolve_path,
)
from hubbub.ledger.store import COPIED_TABLES, Store, Transaction, has_entry, read_ledger_id
from hubbub.ledger.verify import verify_entries
from hubbub.unit import Neighbours

__all__ = ["back_up", "open_store", "restore"]


def open_store(location: str | Path, *, read_only: bool = False, for_restore: bool = False) -> Store:
    """Open the store at a path or URL; it is created unless it is opened read-only."""
    if is_postgres_url(location):
        return PostgresStore(str(location), read_only=read_only, for_restore=for_restore)
    path = resolve_path(location)
    if read_only and not path.exists():
        raise InvalidInput(
            f"there is no ledger {location}",
            why="reading does not create one",
            fix="pass the path of a ledger; hubbub budget open creates one",
        )
    with convert_os_errors(path):
        return SQLiteStore(path, read_only=read_only)


def back_up(store: Store, path: str | Path) -> None:
    """Write one consistent state of a ledger to a new file that cannot be spent from."""
    target_path = resolve_path(path)

    def copy(source: Transaction) -> None:
        ledger_id, location = _read_location(source)
        try:
            create_file(target_path, lambda target: _copy(source, target), ledger_id, location)
        except FileExistsError:
            raise InvalidInput(
                "the file exists already", why="nothing is overwritten", fix="pass the path of a new file"
            ) from None

    store.read(copy)


def restore(location: str | Path, backup: str | Path | None, spent: Mapping[str, PrivacyLoss]) -> None:
    """Make a ledger of a backup; or, without one, adopt the file at this location.

    Args:
        location: where the ledger will be, or is.
        backup: the path of a backup.
        spent: what was spent since, by account.

    Guarantee: nothing is changed unless every entry is unchanged, the ledger that this is a copy of cannot be
        spent from, and, if nothing is stated as spent, nothing is known to be missing.
    Proof: docs/proofs/ledger.md, "One ledger"
    """
    if backup is not None and not is_postgres_url(location):
        if os.path.lexists(location):
            raise _occupied_error()
        path = resolve_path(location)
        with convert_os_errors(path):
            is_log_there = has_leftover_log(path)
        if is_log_there:
            raise Refused(
                "the log of an earlier ledger is still at this location",
                why="it would be merged into the restored ledger",
                fix="first move away the files with its name that end in -wal or -journal",
            )
    with closing(open_store(location if backup is None else backup, read_only=True)) as source:
        heads = source.known_heads()
        if (
            backup is None
            and source.read(lambda transaction: source.find_problem(transaction, heads)) is None
        ):
            raise Refused(
                "the ledger is at its recorded location",
                why="it was not restored, copied or moved: there is nothing to confirm",
                fix="use it as it is",
            )
        _refuse_corrupted(source)
        _refuse_second_copy(source, location)
        _refuse_missing_entries(source, location, spent)
        original = source.read(_original_path)
        if backup is None:
            source.adopt(lambda transaction: _record_restore(Entries(transaction), spent))
        elif is_postgres_url(location):
            with closing(open_store(location, for_restore=True)) as target_store:
                source.read(
                    lambda transaction: target_store.adopt(
                        lambda target: _fill_database(transaction, target, spent)
                    )
                )
        else:
            path = resolve_path(location)
            source.read(lambda transaction: _create_restored_file(path, transaction, spent))
    if original is not None and not is_postgres_url(location):
        _copy_key(original, resolve_path(location))


def _refuse_corrupted(source: Store) -> None:
    if not source.read(lambda transaction: verify_entries(Entries(transaction), None)).ok:
        raise corruption_error("something")


def _refuse_second_copy(source: Store, location: str | Path) -> None:
    """Refuse if the ledger that this is a copy of can still be spent from."""
    ledger_id, original = source.read(
        lambda transaction: (read_ledger_id(transaction), _original_path(transaction))
    )
    if original is None or (not is_postgres_url(location) and original == resolve_path(location)):
        return
    try:
        if not resolve_path(original).exists():
            return
        with closing(open_store(original)) as other:
            exists = is_same_ledger(other.read(read_ledger_id), ledger_id)
    except LedgerFailed:  # it may be locked, or another user's: it can be spent from later, or by others
        exists = True
    except HubbubError:  # it is no ledger, or is refused as this one is
        exists = False
    if exists:
        raise Refused(
            "the ledger that this is a copy of still exists",
            why="each of the two could spend the whole budget",
            fix="use that one; or, also if it is corrupted, move it away first",
        )


def _refuse_missing_entries(source: Store, location: str | Path, spent: Mapping[str, PrivacyLoss]) -> None:
    """Refuse the statement that nothing was spent if entries are known to be missing."""
    accounts = source.read(lambda transaction: Entries(transaction).accounts())
    unknown = sorted(set(spent) - set(accounts))
    if unknown:
        raise InvalidInput(
            f"there is no account {unknown[0]!r}",
            why="what was spent is charged to the account that paid for it",
            fix=f"name one of: {', '.join(accounts)}" if accounts else "leave it out",
        )
    if spent:
        return
    if source.is_log_missing():
        raise Refused(
            "the write-ahead log of the ledger was left behind",
            why="the ledger was in use when it was copied or moved, or its process was killed: the last "
            "charges are in the file with its old name that ends in -wal",
            fix="copy that file too, under the new name, or state what was spent",
        )
    original = source.read(_original_path)
    here = [] if is_postgres_url(location) else [resolve_path(location)]
    paths = dict.fromkeys((*here, *([] if original is None else [original])))
    for head in {*(HeadFile.beside(path).read() for path in paths), *source.known_heads()}:
        if _lacks_entry(source, head):
            raise Refused(
                "the ledger had entries that this file does not have",
                why="something was spent since",
                fix="state what was spent",
            )


def _lacks_entry(store: Store, head: KnownHead | None) -> bool:
    """Return whether a ledger lacks an entry that it is known to have had."""

    def work(transaction: Transaction) -> bool:
        ledger_id = read_ledger_id(transaction)
        return lacks_entry(ledger_id, lambda number, digest: has_entry(transaction, number, digest), head)

    return store.read(work)


def _read_location(transaction: Transaction) -> tuple[str, str]:
    ((ledger_id, location),) = transaction.execute("SELECT ledger_id, location FROM location")
    return ledger_id, location


def _original_path(transaction: Transaction) -> Path | None:
    """Return the path of the ledger that this is a copy of; None if it was in a database."""
    try:
        return Path(json.loads(_read_location(transaction)[1])["path"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _create_restored_file(path: Path, source: Transaction, spent: Mapping[str, PrivacyLoss]) -> None:
    ledger_id, _ = _read_location(source)

    def fill(target: Transaction) -> None:
        _copy(source, target)
        _record_restore(Entries(target), spent)

    try:
        head_files = (HeadFile.beside(path), HeadFile.in_user_folder(ledger_id))
        create_file(path, fill, restored_ledger_id(ledger_id, [each.read() for each in head_files]))
    except FileExistsError:
        raise _occupied_error() from None


def _fill_database(source: Transaction, target: Transaction, spent: Mapping[str, PrivacyLoss]) -> None:
    """Copy a backup into a database with an empty ledger."""
    if Entries(target).last() is not None:
        raise _occupied_error()
    target.execute("UPDATE location SET ledger_id = ?", (_read_location(source)[0],))
    _copy(source, target)
    _record_restore(Entries(target), spent)


def _occupied_error() -> Refused:
    return Refused(
        "there is a ledger at this location",
        why="what was spent from it would be forgotten",
        fix="restore to another location, or move this ledger away first",
    )


def _copy(source: Transaction, target: Transaction) -> None:
    for table in COPIED_TABLES:
        for row in source.stream(f"SELECT * FROM {table}"):  # noqa: S608 - a table of ours
            target.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608


def _record_restore(entries: Entries, spent: Mapping[str, PrivacyLoss]) -> None:
    """Record and charge what the owner states, per account; an account that it overspends is closed."""
    neighbours = {entry.account: Neighbours(entry.body["neighbours"]) for entry in entries.openings()}
    for name in entries.accounts():
        if name in spent:
            refuse_other_relation(neighbours[name], spent[name])
    for name in entries.accounts():
        account_filter = entries.get_filter(name, OWNER)
        if account_filter is None:
            raise corruption_error("a filter")
        if name not in spent:
            entries.append(name, EntryKind.RESTORE, OWNER, {"loss": None})
            continue
        stored = encode_loss(spent[name])
        loss = read_loss(stored)
        body: dict[str, Any] = {"loss": stored, "charged": None}
        try:
            charge = account_filter.price(loss)
        except BudgetExceeded:
            if not entries.of_kind(EntryKind.CLOSE, name):
                entries.append(name, EntryKind.CLOSE, OWNER, {})
            entries.append(name, EntryKind.RESTORE, OWNER, {**body, "fits": False})
            continue
        body |= {"charged": encode_charge(charge), "fits": True}
        entries.append(name, EntryKind.RESTORE, OWNER, body)
        entries.store_filter(name, OWNER, account_filter.apply(loss, charge))


def _copy_key(original: Path, path: Path) -> None:
    """Copy the key that authenticates releases, if it can be read."""
    source, target = original.with_name(original.name + ".key"), path.with_name(path.name + ".key")
    with suppress(OSError):
        content = source.read_bytes()
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
