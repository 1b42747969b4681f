"""Which `hubbub.toml` declares rows, by whatever name they are opened."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubbub.accounting import Budget
from hubbub.config import Config, TableConfig, read_config
from hubbub.engines.data_identity import expand_pattern, identify_files, list_files
from hubbub.engines.engine import Engine, TableSource
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.output_files import CONFIG_NAME
from hubbub.unit import Unit, Window

__all__ = [
    "find_config",
    "keep_declared",
    "refuse_both",
    "refuse_declared",
    "refuse_without_ledger",
    "refuse_words",
    "window_of",
]


def find_config(data: Any) -> Config | None:
    """What is declared of these rows: by itself, if it is a hubbub.toml, or by one in a folder of theirs.

    Rows are known by their files, not by what these are called: a pattern, one file of a declared pattern, a
    link, a mapping from names to paths and an Arrow dataset are what their files are. A hubbub.toml is looked
    for beside each file, where it is and where a link to it is, and in all folders above. None where the data
    is in no file, and where nothing is declared of it.

    Guarantee: all declarations that are found say the same of who is protected and what pays for it.
    """
    if isinstance(data, (str, Path)) and Path(data).suffix == ".toml":
        facts = read_config(data)
        _refuse_others(facts)
        return replace(facts, account=facts.payer)
    if isinstance(data, Mapping) and not hasattr(data, "columns"):
        return _found_together(data)
    declaring = _declaring(list_files(data))
    if not declaring:
        return None
    facts, table = declaring[0]
    for other, declared in declaring[1:]:
        _refuse_unlike(facts, table, other, declared)
    _refuse_others(facts)
    tables = tuple(replace(each, path=data) if each is table else each for each in facts.tables)
    return replace(facts, tables=tables, opened=table.name, account=facts.payer)


def _found_together(data: Mapping[str, Any]) -> Config | None:
    """What is declared of several tables by the names that they are given."""
    each = {name: find_config(rows) for name, rows in data.items() if not _is_toml(rows)}
    declared = {name: facts for name, facts in each.items() if facts is not None}
    if not declared:
        return None
    first = next(iter(declared.values()))
    tables = []
    for name, rows in data.items():
        facts = declared.get(name)
        if facts is None:
            tables.append(TableConfig(name, rows, first.unit.key))
            continue
        table = next(each for each in facts.tables if each.name == facts.opened)
        _refuse_unlike(first, None, facts, None)
        tables.append(replace(table, name=name))
    return replace(first, tables=tuple(tables), opened=None)


def _is_toml(rows: Any) -> bool:
    return isinstance(rows, (str, Path)) and Path(rows).suffix == ".toml"


def _declaring(files: Sequence[str]) -> list[tuple[Config, TableConfig]]:
    """Each hubbub.toml that declares one of these files, with its table; nearest to the files first."""
    ours = identify_files(files)
    out = []
    for path in dict.fromkeys(each for file in files for each in _beside(file)):
        facts = read_config(path)
        known = [(table, identify_files(expand_pattern(table.path))) for table in facts.tables]
        same = [table for table, files in known if files.meets(ours)]
        protected = [table for table in same if not table.is_public]
        is_whole = any(files.numbers >= ours.numbers for table, files in known if table in protected[:1])
        if len(protected) > 1 and not is_whole:
            raise InvalidInput(
                f"the files are of several tables of {path}: {', '.join(table.name for table in protected)}",
                why="what is declared of one does not hold for the other",
                fix=f"open them one by one, or open {path}",
            )
        out += [(facts, table) for table in (protected or same)[:1]]
    return out


def _beside(file: str) -> Iterator[Path]:
    """The declarations in a file's folders: of the file itself first, then of what leads to it."""
    for path in (Path(os.path.realpath(file)), Path(os.path.abspath(file))):  # noqa: PTH100 - links stay
        for folder in path.parents:
            if os.path.isfile(folder / CONFIG_NAME):  # noqa: PTH113 - False where a folder may not be looked into
                yield folder / CONFIG_NAME


def _refuse_others(facts: Config) -> None:
    """Refuse a table that is declared elsewhere too, and unlike here: all tables are opened together."""
    for table in facts.tables:
        for other, declared in _declaring(expand_pattern(table.path)):
            if not Path(other.file).samefile(facts.file):
                _refuse_unlike(facts, table, other, declared)


def _refuse_unlike(
    facts: Config, table: TableConfig | None, other: Config, declared: TableConfig | None
) -> None:
    mine, theirs = facts.promise(table), other.promise(declared)
    if mine != theirs:
        raise Refused(
            f"{facts.file} and {other.file} declare the same rows unlike each other",
            why="the rows would be protected as neither says, or by two budgets",
            fix="declare the unit, the ledger, the account and the budget alike, or in one of them only",
        )


# What the owner declared holds when a dataset is opened: her unit, ledger, account and budget.
#
# What is passed besides a `hubbub.toml` may say more than it does, but nothing else; unless the owner says
# aloud that she sets it aside, and that is written in the declared ledger first.


def keep_declared(
    facts: Config,
    who: Unit,
    *,
    ledger: Ledger | str | Path | None,
    account: str | None,
    budget: Budget | None,
    override: bool,
) -> None:
    """Refuse what is passed against a declaration; or record, before anything else, that it is set aside.

    Guarantee: who opens declared rows spends what the declaration says, from where it says; or a line of the
        declared ledger says that its owner wanted otherwise.
    """
    others = list(_others(facts, who, ledger, account, budget))
    if not others:
        return
    passed = ", ".join(others)
    if not override:
        raise Refused(
            f"{facts.file} declares another {passed}",
            why="what the owner declared holds, so that rows are protected as she says, by one budget",
            fix="leave it out, or change what is declared; {override=True} sets it aside, and is recorded",
        )
    payer, where = facts.payer, facts.ledger
    if payer is None or where is None:
        raise Refused(
            f"{facts.file} declares another {passed}, and no ledger in which to record that it is set aside",
            why="what the owner declared is set aside aloud, or not at all",
            fix=f"change {facts.file}",
        )
    declared = facts.unit if facts.window is None else replace(facts.unit, window=who.window)
    with Ledger.open(where, secret=facts.secret) as kept:
        kept.account(payer, declared, facts.budget).override(f"another {passed} than declared")


def _others(
    facts: Config, who: Unit, ledger: Ledger | str | Path | None, account: str | None, budget: Budget | None
) -> Iterator[str]:
    """What is passed that is not as declared."""
    if (who.key or "").lower() != (facts.unit.key or "").lower() or who.neighbours != facts.unit.neighbours:
        yield "unit"
    if ledger is not None and facts.ledger is not None and not _is_at(ledger, facts.ledger):
        yield "ledger"
    if account is not None and facts.account is not None and account != facts.account:
        yield "account"
    if budget is not None and facts.budget is not None and budget != facts.budget:
        yield "budget"
    # A budget that is declared without a window is for all time: it is not each window's.
    is_divided = facts.window is not None or facts.budget is None
    if who.window is not None and not (is_divided and facts.window in {None, who.window.column}):
        yield "window"


def _is_at(ledger: Ledger | str | Path, declared: str) -> bool:
    where = ledger.where if isinstance(ledger, Ledger) else str(ledger)
    return where == declared or Path(where).resolve() == Path(declared).resolve()


def refuse_declared(public: Mapping[str, Any]) -> None:
    """Refuse, as public, what a hubbub.toml declares to be somebody's."""
    for name, rows in public.items():
        facts = find_config(rows)
        table = None if facts is None else next((t for t in facts.tables if t.name == facts.opened), None)
        if facts is not None and table is not None and not table.is_public:
            raise _both(name, f"{table.name} of {facts.file}")


def refuse_both(engine: Engine, sources: Mapping[str, TableSource]) -> None:
    """Refuse rows that would be public and protected at once, by whatever names.

    Guarantee: no file, table, partition or object is opened as both.
    Assumes: what cannot be known, a copy or a view, is as the owner says.
    """
    identities = {name: engine.identity(name) for name in sources}
    for public, rows in sources.items():
        for protected, others in sources.items():
            if not rows.is_public or others.is_public:
                continue
            one, other = identities[public], identities[protected]
            is_same = one.meets(other) if one.names and other.names else _is_same(rows.rows, others.rows)
            if is_same:
                raise _both(public, protected)


def _is_same(rows: Any, others: Any) -> bool:
    """Whether it is one object, or may be one name in full and in short: then no more is known of it."""
    if isinstance(rows, str) and isinstance(others, str):
        short, long = sorted((_parts(rows), _parts(others)), key=len)
        return long[-len(short) :] == short
    return rows is others


def _parts(name: str) -> list[str]:
    return [part.strip('"`').lower() for part in name.split(".")]


def _both(public: str, protected: str) -> Refused:
    return Refused(
        f"{public} is passed as public, and has rows of {protected}, which is protected",
        why="what is public is shown as it is",
        fix="pass only tables that are nobody's as public",
    )


def refuse_words(analyst: str | None, *, has_ledger: bool, **words: bool) -> None:
    """Refuse the owner's words from others, and where nothing would record them."""
    for name, is_said in words.items():
        if is_said and analyst is not None:
            raise Refused(
                f"{{{name}}} is passed on behalf of an analyst",
                why="it is the owner's word",
                fix="ask the owner",
            )
        if is_said and not has_ledger:
            refuse_without_ledger(**{name: True})


def window_of(given: Window | str | None, who: Unit, column: str | None) -> Window | None:
    """The window that is meant; `column` is the one that is declared."""
    if given is None and who.window is None and column is not None:
        raise InvalidInput(
            "no window is given",
            why=f"the budget is for each stretch of time by {column}, and pays for its rows alone",
            fix='pass {window="2026-11"}',
        )
    if isinstance(given, str):
        if column is None:
            raise InvalidInput(
                "the window's column is not known",
                why="a row is in it by a date of its own",
                fix='pass Window.of("day", "2026-11"), or declare window = "day" in hubbub.toml',
            )
        return Window.of(column, given)
    return given or who.window


def refuse_without_ledger(**given: Any) -> None:
    """Refuse what only a ledger keeps."""
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"{{{name}}} is given without a ledger",
                why="only a ledger keeps it",
                fix="pass a {ledger} too",
            )
