"""Checks of a DuckDB connection that belongs to its owner: which objects are read, and which are refused.

A table is read. A view is refused: what it computes may fail on some row, or take its type from one, and both
would show. A macro, or a function registered from Python, under the name of a built-in function would replace
it in every query: such a connection is refused, and so is one from which a built-in function was removed.
Settings that change the meaning of a query must have their defaults. All of this is checked in the
transaction that reads the rows, through the system catalog, which users cannot write to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb

from hubbub.errors import InvalidInput

__all__ = ["check_catalog", "open_cursor", "resolve_table"]

_SEMANTIC_SETTINGS = {
    *("default_collation", "default_null_order", "null_order", "default_order", "integer_division"),
    *("ieee_floating_point_ops", "error_on_division_by_zero", "regex_match_operator_semantics", "calendar"),
    *("dialect_compatibility_mode", "current_dialect", "active_grammar_extensions", "old_implicit_casting"),
    *("disable_timestamptz_casts", "legacy_disable_null_type", "order_by_non_integer_literal"),
    *("scalar_subquery_error_on_multiple_rows", "preserve_identifier_case"),
    "allow_parser_override_extension",
}
"""Settings that change what a query means, or on which rows it fails; no version has all of them."""


def check_catalog(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse functions, types and settings that would change the meaning of a query.

    Guarantee: every function in a query is built in, and means what it means by default.
    Assumes: it is called in the transaction of the query.
    """
    objects = _list_objects(connection)
    # The check depends on these objects alone, and 3000 functions take long to check.
    if objects not in _accepted:
        _check_names(*objects)
        _accepted[:] = [objects, *_accepted[:1]]
    for name, value in _settings(connection).items():
        if value != _defaults().settings.get(name, value):
            raise InvalidInput(
                f"the setting {name} of the connection does not have its default value",
                why="it changes what a query means, or which texts are equal",
                fix=f"RESET {name}, also if it is set for all connections",
            )


def _check_names(functions: list[Any], types: list[Any]) -> None:
    """Refuse functions and types that replace built-in ones.

    Args:
        functions: rows of the catalog, all functions of the connection.
        types: rows of the catalog, all types of the connection.
    """
    parsed = _parse_functions(functions)
    builtin = {function.name for function in parsed if function.is_internal}
    if any(function.name in builtin for function in parsed if not function.is_internal):
        raise InvalidInput(
            "the database has a macro with the name of one of the engine's own functions",
            why="it would replace that function in every query, and one row could count for many",
            fix="drop the macro, or give it another name",
        )
    known = {str(name).lower() for name, is_internal in types if is_internal}
    if _is_replaced(parsed) or any(_shadows_builtin(function, known) for function in parsed):
        raise InvalidInput(
            "the connection has a registered function with the name of one of the engine's own",
            why="it would be called instead of that one in every query, and one row could count for many",
            fix="open a new connection and give it another name: removing it removes the built-in one too",
        )
    if any(str(name).lower() in known for name, is_internal in types if not is_internal):
        raise InvalidInput(
            "the database has a type with the name of one of the engine's own",
            why="casts to the built-in type would use it, and could fail on some row",
            fix="drop the type, or give it another name",
        )


_accepted: list[tuple[list[Any], list[Any]]] = []
"""Functions and types of the last two connections that passed the check, as rows of the catalog."""


def _list_objects(connection: duckdb.DuckDBPyConnection) -> tuple[list[Any], list[Any]]:
    """All functions of a connection, with their OIDs in the catalog, and all of its types.

    A built-in macro gets its OID on its first use, so its OID is taken as 0.
    """
    functions = connection.execute(
        "SELECT function_name, internal, parameter_types, varargs, return_type, function_type, "
        "CASE WHEN function_type IN ('macro', 'table_macro') THEN 0 ELSE function_oid END "
        "FROM system.main.duckdb_functions()"
    ).fetchall()
    types = connection.execute("SELECT type_name, internal FROM system.main.duckdb_types()").fetchall()
    return functions, types


class _Function(NamedTuple):
    name: str
    is_internal: bool
    parameters: tuple[str, ...]
    varargs: str | None
    """The type of any number of further arguments."""
    result: str | None
    kind: str


def _parse_functions(rows: list[Any]) -> dict[_Function, int]:
    """Functions with their OIDs."""
    return {
        _Function(
            str(name).lower(), is_internal, tuple(map(str, parameters or ())), varargs, result, kind
        ): oid
        for name, is_internal, parameters, varargs, result, kind, oid in rows
    }


def _is_replaced(functions: dict[_Function, int]) -> bool:
    """True if a built-in function is gone, or was replaced by one with the same signature.

    Python can remove a function and register another in its place, which then has the last OID. The OIDs
    themselves depend on what the database contained when it was opened, so only their order is compared. A
    name to which an extension has added a function has new OIDs too, and more functions than before.
    """
    defaults = _defaults()
    if not defaults.functions.keys() <= functions.keys():
        return True
    extended = {function.name for function in functions.keys() - defaults.functions.keys()}
    pairs = sorted(
        (oid, functions[function])
        for function, oid in defaults.functions.items()
        if function.name not in extended
    )
    return any(later[1] < earlier[1] for earlier, later in pairwise(pairs))


def _shadows_builtin(function: _Function, known: set[str]) -> bool:
    """True for a function under a built-in name that is neither built in nor on an extension's type.

    The catalog calls a function registered from Python internal, and it wins where its arguments fit exactly.
    """
    defaults = _defaults()
    if function.name not in defaults.names or function in defaults.functions:
        return False
    bases = {each.partition("(")[0].partition("[")[0].lower() for each in function.parameters}
    return not bases & (known - defaults.types)


@dataclass(frozen=True)
class _Defaults:
    """The settings, functions and types of a fresh connection."""

    settings: dict[str, Any]
    functions: dict[_Function, int]
    names: set[str]
    types: set[str]


def _settings(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    rows = connection.execute("SELECT name, value FROM system.main.duckdb_settings()").fetchall()
    # Some versions write an unset collation as "binary".
    return {
        str(name).lower(): "" if value == "binary" else value
        for name, value in rows
        if str(name).lower() in _SEMANTIC_SETTINGS
    }


@cache
def _defaults() -> _Defaults:
    with duckdb.connect(":memory:") as fresh:
        rows, types = _list_objects(fresh)
        functions = _parse_functions(rows)
        return _Defaults(
            _settings(fresh),
            functions,
            {function.name for function in functions},
            {str(name).lower() for name, _ in types},
        )


def open_cursor(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """A cursor on which a name means what it means on the connection itself, by its USE and search path.

    Guarantee: none of the tables is temporary; only its own connection could see it.
    """
    path = connection.execute(
        "SELECT system.main.current_database(), system.main.current_schema()"
    ).fetchone()
    own = connection.execute(
        "SELECT table_name FROM system.main.duckdb_tables() WHERE database_name = 'temp'"
    ).fetchall()
    cursor = connection.cursor()
    if path is not None:
        cursor.execute("USE " + ".".join('"' + str(part).replace('"', '""') + '"' for part in path))
    temporary = {str(table).lower() for (table,) in own}
    for table in tables:
        if table.strip('"').lower().removeprefix("temp.") in temporary:
            raise InvalidInput(
                f"{table} is a temporary table",
                why="only its own connection sees it, and another table may have the same name",
                fix="make it a table: CREATE TABLE … AS FROM it; or name the other one in full",
            )
    return cursor


def resolve_table(connection: duckdb.DuckDBPyConnection, parts: Sequence[str]) -> tuple[str, str, str]:
    """The full name of a table, from its name and, optionally, its schema and database; refuse views."""
    rows = connection.execute(
        "SELECT t.database_name, t.schema_name, t.table_name, t.sql, d.type "
        "FROM system.main.duckdb_tables() AS t JOIN system.main.duckdb_databases() AS d USING (database_oid)"
    ).fetchall()
    name = [part.lower() for part in parts]
    path = connection.execute(
        "SELECT system.main.current_database(), system.main.current_schema()"
    ).fetchone()
    here = [str(part).lower() for part in path or ()]
    matches = []
    for row in rows:
        full = [str(part).lower() for part in row[:3]]
        # The first of two names is a schema of the current database, or a database.
        fits = {
            1: full == [*here, *name],
            2: full[2] == name[-1] and (full[:2] == [here[0], name[0]] or full[0] == name[0]),
            3: full == name,
        }
        if fits.get(len(name), False):
            matches.append(row)
    if len(matches) != 1 or matches[0][4] != "duckdb" or "GENERATED ALWAYS AS" in str(matches[0][3]).upper():
        raise InvalidInput(
            f"{parts[-1]} is not a table of the database, or has columns that are computed when read",
            why="what a view or such a column computes may fail on some row, and the failure would show",
            fix="name a DuckDB table, or make one: CREATE TABLE … AS SELECT … FROM the view",
        )
    database, schema, table, *_ = matches[0]
    return str(database), str(schema), str(table)
