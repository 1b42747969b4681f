"""Finds the `hubbub.toml` that declares rows, whatever name they are opened by."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubbub.config import Config, TableConfig, read_config
from hubbub.engines.data_identity import identify_files, list_files
from hubbub.errors import InvalidInput, Refused
from hubbub.output_files import CONFIG_NAME

__all__ = ["find_config", "is_table_mapping"]


def find_config(data: Any) -> Config | None:
    """Return the declaration of these rows: their own hubbub.toml, or one in a folder of theirs.

    Rows are known by their files, whatever these are called: a pattern, one file of a declared pattern, a
    link, a mapping from names to paths and an Arrow dataset are the files they lead to. A hubbub.toml is
    looked for beside each file, where it is and where a link to it is, and in all folders above. None where
    the data is in no file, and where nothing declares it.

    Guarantee: all declarations that are found agree on who is protected and what pays for it.
    """
    if _is_toml(data):
        config = read_config(data)
        _refuse_other_declarations(config)
        return replace(config, account=config.payer)
    if is_table_mapping(data):
        return _find_config_of_tables(data)
    declarations = _declarations_of(list_files(data))
    if not declarations:
        return None
    config, table = declarations[0]
    for other in declarations[1:]:
        _refuse_contradiction(config, table, *other)
    _refuse_other_declarations(config)
    if config.database is not None:  # the file has all of its tables
        return replace(config, account=config.payer)
    tables = tuple(replace(each, path=data) if each is table else each for each in config.tables)
    return replace(config, tables=tables, opened_table=table.name, account=config.payer)


def _find_config_of_tables(data: Mapping[str, Any]) -> Config | None:
    """Return the declaration of several tables, under the names that they are passed with."""
    configs = {name: find_config(rows) for name, rows in data.items() if not _is_toml(rows)}
    declared = {name: config for name, config in configs.items() if config is not None}
    if not declared:
        return None
    first = next(iter(declared.values()))
    tables = []
    for name, rows in data.items():
        config = declared.get(name)
        if config is None:
            tables.append(TableConfig(name, rows, first.unit.key))
            continue
        table = next(each for each in config.tables if each.name == config.opened_table)
        _refuse_contradiction(first, None, config, None)
        tables.append(replace(table, name=name))
    return replace(first, tables=tuple(tables), opened_table=None)


def _declarations_of(files: Sequence[str]) -> list[tuple[Config, TableConfig]]:
    """Return each hubbub.toml that declares one of these files, with its table; the nearest first."""
    ours = identify_files(files)
    out = []
    for path in dict.fromkeys(each for file in files for each in _configs_above(file)):
        config = read_config(path)
        if config.database is not None and identify_files([config.database]).overlaps(ours):
            out.append((config, next(table for table in config.tables if not table.is_public)))
            continue
        known = [(table, identify_files(table.files)) for table in config.tables]
        same = [table for table, files in known if files.overlaps(ours)]
        protected = [table for table in same if not table.is_public]
        is_whole = any(files.numbers >= ours.numbers for table, files in known if table in protected[:1])
        if len(protected) > 1 and not is_whole:
            raise InvalidInput(
                f"the files are in several tables of {path}: {', '.join(table.name for table in protected)}",
                why="what is declared of one table does not hold for the other",
                fix=f"open them one by one, or open {path}",
            )
        out += [(config, table) for table in (protected or same)[:1]]
    return out


def _configs_above(file: str) -> Iterator[Path]:
    """Yield the declarations above a file: those of the file itself first, then of links to it."""
    for path in (Path(os.path.realpath(file)), Path(os.path.abspath(file))):  # noqa: PTH100 - links stay
        for folder in path.parents:
            if os.path.isfile(folder / CONFIG_NAME):  # noqa: PTH113 - False where a folder cannot be searched
                yield folder / CONFIG_NAME


def _refuse_other_declarations(config: Config) -> None:
    """Refuse a table that another file declares differently: all tables are opened together."""
    for table in config.tables:
        for other in _declarations_of(table.files):
            if not Path(other[0].file).samefile(config.file):
                _refuse_contradiction(config, table, *other)


def _refuse_contradiction(
    config: Config, table: TableConfig | None, other_config: Config, other_table: TableConfig | None
) -> None:
    if config.promise(table) != other_config.promise(other_table):
        raise Refused(
            f"{config.file} and {other_config.file} declare the same rows differently",
            why="it would be unclear which unit and which budget protect the rows",
            fix="declare the same unit, ledger, account and budget, or declare them in one file only",
        )


def is_table_mapping(data: Any) -> bool:
    """Return True for a mapping from names to tables; a data frame may be a mapping too."""
    return isinstance(data, Mapping) and not hasattr(data, "columns")


def _is_toml(data: Any) -> bool:
    return isinstance(data, (str, Path)) and Path(data).suffix == ".toml"
