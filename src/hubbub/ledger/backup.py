"""Backups of a ledger, and how one goes on after it was restored, copied or moved: by its owner's word.

Proof: docs/proofs/ledger.md, "One ledger"
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.serialization import cost_from_json, encode_loss
from hubbub.errors import BudgetExceeded, HubbubError, InvalidInput, Refused
from hubbub.ledger.entries import EVERYBODY, Entries, cost_to_plain, damaged, plain_text
from hubbub.ledger.location import Note, Remembered, is_copy, misses, next_name
from hubbub.ledger.postgres import Postgres, is_address
from hubbub.ledger.sqlite import COPIED, Rows, SQLite, Store, has_line, leftovers, name_of, new_file
from hubbub.ledger.verify import verify_entries

__all__ = ["back_up", "restore", "store_at"]

_PLACE = "SELECT id, lies FROM place"


def store_at(where: str | Path, *, is_looked_at: bool = False, is_restored: bool = False) -> Store:
    """The store at a path or an address; one that is looked at is not made."""
    if is_address(where):
        return Postgres(str(where), is_looked_at=is_looked_at, is_restored=is_restored)
    if is_looked_at and not Path(where).exists():
        raise InvalidInput(
            "the ledger is not there", why="looking does not make one", fix="give the path of a ledger"
        )
    return SQLite(where, is_looked_at=is_looked_at)


def back_up(store: Store, path: str | Path) -> None:
    """Write all of a ledger, as it is at one moment, to a new file that cannot be spent from."""

    def copy(rows: Rows) -> None:
        ((name, stored),) = rows.run(_PLACE)
        new_file(Path(path).resolve(), lambda out: _copy(rows, out), name, stored)

    try:
        store.read(copy)
    except FileExistsError:
        raise InvalidInput(
            "the file is there already", why="nothing is written over", fix="give the path of a new file"
        ) from None


def restore(where: str | Path, backup: str | Path | None, spent: Mapping[str, PrivacyLoss]) -> None:
    """Make a ledger of a backup at its place; or, without one, go on with the file that lies there.

    Guarantee: nothing is changed unless every line is as it was written, the ledger that it is a copy of is
        not there to be spent from, and, if nothing is said to be spent, nothing is known to be missing.
    Proof: docs/proofs/ledger.md, "One ledger"
    """
    if backup is not None and not is_address(where):
        if os.path.lexists(where):
            raise _occupied()
        if leftovers(Path(where).resolve()):
            raise Refused(
                "the log of a ledger that lay here is still there",
                why="it would be put into the one that is restored",
                fix="move the files of its name with -wal or -journal at the end away first",
            )
    with closing(store_at(where if backup is None else backup, is_looked_at=True)) as source:
        before = source.remembered()
        if backup is None and source.read(lambda rows: source.check(rows, before)) is None:
            raise Refused(
                "the ledger lies where it was",
                why="nothing was restored, copied or moved: there is nothing to confirm",
                fix="go on with it",
            )
        _refuse_not_whole(source)
        _refuse_two(source, where)
        _refuse_forgetting(source, where, spent)
        keys = source.read(_old_path)
        if backup is None:
            source.adopt(lambda rows: _say(Entries(rows), spent))
        elif is_address(where):
            with closing(store_at(where, is_restored=True)) as made:
                source.read(lambda rows: made.adopt(lambda out: _refill(rows, out, spent)))
        else:
            path = Path(where).resolve()
            source.read(lambda rows: _make(path, rows, spent))
    if keys is not None and not is_address(where):
        _bring_key(keys, Path(where).resolve())


def _refuse_not_whole(source: Store) -> None:
    if not source.read(lambda rows: verify_entries(Entries(rows), None)).is_whole:
        raise damaged("something")


def _refuse_two(source: Store, where: str | Path) -> None:
    """Refuse where the ledger that this is a copy of can still be spent from."""
    name, old = source.read(lambda rows: (rows.run(_PLACE)[0][0], _old_path(rows)))
    if old is None or not old.exists() or (not is_address(where) and old == Path(where).resolve()):
        return
    try:
        with closing(SQLite(old)) as other:
            is_there = is_copy(other.read(lambda rows: rows.run(_PLACE))[0][0], name)
    except HubbubError:
        is_there = False
    if is_there:
        raise Refused(
            "the ledger that this is a copy of is still there",
            why="each of the two would spend the whole budget",
            fix="go on with that one; or move it away first",
        )


def _refuse_forgetting(source: Store, where: str | Path, spent: Mapping[str, PrivacyLoss]) -> None:
    """Refuse to believe that nothing was spent where it is known that lines are missing."""
    accounts = source.read(lambda rows: Entries(rows).accounts())
    unknown = sorted(set(spent) - set(accounts))
    if unknown:
        raise InvalidInput(
            f"there is no account {unknown[0]!r}",
            why="what was spent is charged to the account that paid for it",
            fix=f"name one of: {', '.join(accounts)}" if accounts else "leave it out",
        )
    if spent:
        return
    if source.lacks_log():
        raise Refused(
            "a part of the ledger was left behind",
            why="it was in use when it was copied or moved, or its process was killed: what was charged "
            "last is in the file of its old name with -wal at the end",
            fix="bring that file along under the new name, or say what was spent",
        )
    old = source.read(_old_path)
    places = [] if is_address(where) else [Path(where).resolve()]
    paths = dict.fromkeys((*places, *([] if old is None else [old])))
    for head in {*(Note.beside(path).read() for path in paths), *source.remembered()}:
        if _misses(source, head):
            raise Refused(
                "lines were written that this file does not have",
                why="something was spent since",
                fix="say what was spent",
            )


def _misses(store: Store, head: Remembered | None) -> bool:
    """Whether a ledger lacks a line that it had."""

    def work(rows: Rows) -> bool:
        return misses(name_of(rows), lambda number, digest: has_line(rows, number, digest), head)

    return store.read(work)


def _old_path(rows: Rows) -> Path | None:
    """Where the ledger lay that this is a copy of, if that was a file."""
    try:
        return Path(json.loads(rows.run(_PLACE)[0][1])["path"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _make(path: Path, rows: Rows, spent: Mapping[str, PrivacyLoss]) -> None:
    ((name, _),) = rows.run(_PLACE)

    def fill(out: Rows) -> None:
        _copy(rows, out)
        _say(Entries(out), spent)

    try:
        notes = (Note.beside(path), Note.at_home(name))
        new_file(path, fill, next_name(name, [note.read() for note in notes]))
    except FileExistsError:
        raise _occupied() from None


def _refill(rows: Rows, out: Rows, spent: Mapping[str, PrivacyLoss]) -> None:
    """Into a database whose ledger is empty."""
    if Entries(out).last() is not None:
        raise _occupied()
    out.run("UPDATE place SET id = ?", rows.run(_PLACE)[0][:1])
    _copy(rows, out)
    _say(Entries(out), spent)


def _occupied() -> Refused:
    return Refused(
        "there is a ledger at this place",
        why="what was spent of it would be forgotten",
        fix="restore to another place, or move what lies here away first",
    )


def _copy(rows: Rows, out: Rows) -> None:
    for table in COPIED:
        for row in rows.each(f"SELECT * FROM {table}"):  # noqa: S608 - a name of ours
            out.run(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608


def _say(book: Entries, spent: Mapping[str, PrivacyLoss]) -> None:
    """Record what the owner said in a line of each account, and charge it; what does not fit closes it."""
    for name in book.accounts():
        total = book.total(name, EVERYBODY)
        if total is None:
            raise damaged("a total")
        if name not in spent:
            book.append(name, "restored", EVERYBODY, {"loss": None})
            continue
        stored = encode_loss(spent[name])
        cost = cost_from_json(plain_text(stored), total.orders)
        body = {"loss": stored, "cost": cost_to_plain(cost)}
        try:
            after = total.charge(cost)
        except BudgetExceeded:
            if not book.of_kind("close", name):
                book.append(name, "close", EVERYBODY, {})
            book.append(name, "restored", EVERYBODY, {**body, "fits": False})
            continue
        book.append(name, "restored", EVERYBODY, {**body, "fits": True})
        book.keep(name, EVERYBODY, after)


def _bring_key(old: Path, path: Path) -> None:
    """What marks releases comes along, where it is to be had."""
    source, target = old.with_name(old.name + ".key"), path.with_name(path.name + ".key")
    with suppress(OSError):
        content = source.read_bytes()
        opened = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
