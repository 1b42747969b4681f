"""Completions for the shell: columns and tables of a hubbub.toml, or of FILE. No row is read."""

import os
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from hubbub.output_files import CONFIG_NAME

__all__ = ["complete_column", "complete_pair", "complete_table"]


def complete_column(context: typer.Context, incomplete: str) -> list[str]:
    """Columns that begin so."""
    return _matches(_list_columns(context), incomplete)


def complete_pair(context: typer.Context, incomplete: str) -> list[str]:
    """Columns that begin so, each with the sign before its value."""
    return _matches([f"{name}=" for name in _list_columns(context)], incomplete)


def complete_table(context: typer.Context, incomplete: str) -> list[str]:
    """Tables that begin so."""
    return _matches([table.name for table in _list_tables(context)], incomplete)


def _matches(names: list[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.lower().startswith(incomplete.lower())]


def _list_columns(context: typer.Context) -> list[str]:
    return [column for table in _list_tables(context) for column in table.columns]


@dataclass(frozen=True)
class _Names:
    """A table's name, and those of its columns."""

    name: str
    columns: list[str]


def _list_tables(context: typer.Context) -> list[_Names]:
    """The tables of FILE if one is typed, else of the hubbub.toml in this folder."""
    file = context.params.get("file") or _find_typed_file()
    file = file or (CONFIG_NAME if Path(CONFIG_NAME).is_file() else None)
    tables: list[_Names] = []
    if isinstance(file, str):
        for read in (_read_declared, _read_schema):
            with suppress(Exception):  # a shell shows no error while a word is typed
                tables += read(file)
    return tables


def _find_typed_file() -> str | None:
    """The first word that is a file: the parser gives up at an option without a value, arguments included."""
    for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        text = os.environ.get(name, "")
        try:
            words = shlex.split(text)
        except ValueError:  # a quote that is still open
            words = text.split()
        for word in words[1:]:
            with suppress(OSError, ValueError):
                if Path(word).is_file():
                    return word
    return None


def _read_declared(file: str) -> list[_Names]:
    from hubbub.config_lookup import find_config

    config = find_config(file)
    tables = () if config is None else config.tables
    return [
        _Names(table.name, [*filter(None, [table.unit]), *table.types, *table.bounds, *table.keys])
        for table in tables
    ]


def _read_schema(file: str) -> list[_Names]:
    from hubbub.config_lookup import find_config
    from hubbub.engines.duckdb import DuckDB
    from hubbub.engines.engine import TableSource
    from hubbub.engines.file_endings import name_of_file

    config = find_config(file)
    sources: dict[str, Any] = {name_of_file(file): TableSource(file)}
    if config is not None:
        sources = {table.name: TableSource(table.path, table.types, table.unit) for table in config.tables}
    engine = DuckDB(sources)
    engine.close()
    return [_Names(name, [each.name for each in table.columns]) for name, table in engine.tables.items()]
