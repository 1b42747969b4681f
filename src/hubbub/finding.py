"""Which `hubbub.toml` declares rows, by whatever name they are opened."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubbub.errors import InvalidInput, Refused
from hubbub.facts import NAME, Declared, Facts, read
from hubbub.tables.identity import files_of, members, of_files

__all__ = ["found"]


def found(data: Any) -> Facts | None:
    """What is declared of these rows: by itself, if it is a hubbub.toml, or by one in a folder of theirs.

    Rows are known by their files, not by what these are called: a pattern, one file of a declared pattern, a
    link, a mapping from names to paths and an Arrow dataset are what their files are. A hubbub.toml is looked
    for beside each file, where it is and where a link to it is, and in all folders above. None where the data
    is in no file, and where nothing is declared of it.

    Guarantee: all declarations that are found say the same of who is protected and what pays for it.
    """
    if isinstance(data, (str, Path)) and Path(data).suffix == ".toml":
        facts = read(data)
        _refuse_others(facts)
        return replace(facts, account=facts.payer)
    if isinstance(data, Mapping) and not hasattr(data, "columns"):
        return _found_together(data)
    declaring = _declaring(files_of(data))
    if not declaring:
        return None
    facts, table = declaring[0]
    for other, declared in declaring[1:]:
        _refuse_unlike(facts, table, other, declared)
    _refuse_others(facts)
    tables = tuple(replace(each, path=data) if each is table else each for each in facts.tables)
    return replace(facts, tables=tables, opened=table.name, account=facts.payer)


def _found_together(data: Mapping[str, Any]) -> Facts | None:
    """What is declared of several tables by the names that they are given."""
    each = {name: found(rows) for name, rows in data.items() if not _is_toml(rows)}
    declared = {name: facts for name, facts in each.items() if facts is not None}
    if not declared:
        return None
    first = next(iter(declared.values()))
    tables = []
    for name, rows in data.items():
        facts = declared.get(name)
        if facts is None:
            tables.append(Declared(name, rows, first.unit.key))
            continue
        table = next(each for each in facts.tables if each.name == facts.opened)
        _refuse_unlike(first, None, facts, None)
        tables.append(replace(table, name=name))
    return replace(first, tables=tuple(tables), opened=None)


def _is_toml(rows: Any) -> bool:
    return isinstance(rows, (str, Path)) and Path(rows).suffix == ".toml"


def _declaring(files: Sequence[str]) -> list[tuple[Facts, Declared]]:
    """Each hubbub.toml that declares one of these files, with its table; nearest to the files first."""
    ours = of_files(files)
    out = []
    for path in dict.fromkeys(each for file in files for each in _beside(file)):
        facts = read(path)
        known = [(table, of_files(members(table.path))) for table in facts.tables]
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
            if os.path.isfile(folder / NAME):  # noqa: PTH113 - False where a folder may not be looked into
                yield folder / NAME


def _refuse_others(facts: Facts) -> None:
    """Refuse a table that is declared elsewhere too, and unlike here: all tables are opened together."""
    for table in facts.tables:
        for other, declared in _declaring(members(table.path)):
            if not Path(other.file).samefile(facts.file):
                _refuse_unlike(facts, table, other, declared)


def _refuse_unlike(facts: Facts, table: Declared | None, other: Facts, declared: Declared | None) -> None:
    mine, theirs = facts.promise(table), other.promise(declared)
    if mine != theirs:
        raise Refused(
            f"{facts.file} and {other.file} declare the same rows unlike each other",
            why="the rows would be protected as neither says, or by two budgets",
            fix="declare the unit, the ledger, the account and the budget alike, or in one of them only",
        )
