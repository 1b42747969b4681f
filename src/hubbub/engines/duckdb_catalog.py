"""Objects that an owner made in a DuckDB database: which of them are read, and which are refused.

A table is read. A view is refused: what it computes may fail on some row, or take a type from one, and both
would show. A macro that has the name of a function of the engine's own would stand for it in every query, and
so would a function that Python registered under such a name: a connection with one is refused, and one from
which a function of the engine's own was removed. Settings that change what a query means must be as they are
by default. All of this is looked at in the same transaction as the rows, by names of the system's catalog,
which nobody else can write to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import duckdb

from hubbub.errors import InvalidInput

__all__ = ["check_catalog", "cursor_of", "table_named"]

_MEANING = {
    *("default_collation", "default_null_order", "null_order", "default_order", "integer_division"),
    *("ieee_floating_point_ops", "error_on_division_by_zero", "regex_match_operator_semantics", "calendar"),
    *("dialect_compatibility_mode", "current_dialect", "active_grammar_extensions", "old_implicit_casting"),
    *("disable_timestamptz_casts", "legacy_disable_null_type", "order_by_non_integer_literal"),
    *("scalar_subquery_error_on_multiple_rows", "preserve_identifier_case"),
    "allow_parser_override_extension",
}
"""Settings that change what a query means, or on which rows it fails; a version may not have them all."""


def check_catalog(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse what would change the meaning of a query.

    Guarantee: every function in a query is the engine's own, and means what it means by default.
    Assumes: it is asked in the transaction of the query.
    """
    found = _listed(connection)
    # Whether these are refused follows from them alone, and to look at 3000 functions takes long.
    if found not in _accepted:
        _check_names(*found)
        _accepted[:] = [found, *_accepted[:1]]
    for name, value in _settings(connection).items():
        if value != _defaults().settings.get(name, value):
            raise InvalidInput(
                f"the setting {name} of the connection is not what it is by default",
                why="it changes what a query means, or which texts are equal",
                fix=f"RESET {name}, also if it is set for all connections",
            )


def _check_names(listed: list[Any], types: list[Any]) -> None:
    """Refuse functions and types that stand for the engine's own; all that there are is given."""
    functions = _functions(listed)
    own = {function.name for function in functions if function.is_internal}
    if any(function.name in own for function in functions if not function.is_internal):
        raise InvalidInput(
            "the database has a macro with the name of one of the engine's own functions",
            why="it would stand for that function in every query, and one row could count for many",
            fix="drop the macro, or give it another name",
        )
    known = {str(name).lower() for name, is_internal in types if is_internal}
    if _was_replaced(functions) or any(_stands_in(function, known) for function in functions):
        raise InvalidInput(
            "the connection has a function of somebody's with the name of one of the engine's own",
            why="it would be called instead of that one in every query, and one row could count for many",
            fix="give it another name, on a new connection: to remove it removes the engine's own as well",
        )
    if any(str(name).lower() in known for name, is_internal in types if not is_internal):
        raise InvalidInput(
            "the database has a type with the name of one of the engine's own",
            why="what is cast to the one would be cast to the other, and could fail on some row",
            fix="drop the type, or give it another name",
        )


_accepted: list[tuple[list[Any], list[Any]]] = []
"""The functions and types of connections that were not refused, as they were listed."""


def _listed(connection: duckdb.DuckDBPyConnection) -> tuple[list[Any], list[Any]]:
    """All functions, with their numbers in the catalog, and all types that a connection has.

    A macro of the engine's own gets its number when it is first met: it counts as 0 here.
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
    more: str | None
    """The type of any number of further arguments."""
    result: str | None
    kind: str


def _functions(listed: list[Any]) -> dict[_Function, int]:
    return {
        _Function(
            str(name).lower(), is_internal, tuple(map(str, parameters or ())), more, result, kind
        ): number
        for name, is_internal, parameters, more, result, kind, number in listed
    }


def _was_replaced(functions: dict[_Function, int]) -> bool:
    """Whether one of the engine's own is gone, or is another that looks the same.

    Python can remove one and register its own in its place, which is then the last in the order of their
    numbers. The numbers themselves follow from what a database held when it was opened. Those of a name to
    which an extension has added are new, too: of these there are more than before.
    """
    defaults = _defaults()
    if not defaults.functions.keys() <= functions.keys():
        return True
    more = {function.name for function in functions.keys() - defaults.functions.keys()}
    pairs = sorted(
        (number, functions[function])
        for function, number in defaults.functions.items()
        if function.name not in more
    )
    return any(later[1] < earlier[1] for earlier, later in pairwise(pairs))


def _stands_in(function: _Function, known: set[str]) -> bool:
    """Whether a function has the name of one of the engine's, and is none, nor of a type of an extension's.

    What Python registers is called internal by the catalog, and is preferred where its arguments fit exactly.
    """
    defaults = _defaults()
    if function.name not in defaults.names or function in defaults.functions:
        return False
    bases = {each.partition("(")[0].partition("[")[0].lower() for each in function.parameters}
    return not bases & (known - defaults.types)


@dataclass(frozen=True)
class _Defaults:
    """What a connection has on which nobody did anything."""

    settings: dict[str, Any]
    functions: dict[_Function, int]
    names: set[str]
    types: set[str]


def _settings(connection: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    found = connection.execute("SELECT name, value FROM system.main.duckdb_settings()").fetchall()
    # Some versions write an unset collation as "binary".
    return {
        str(name).lower(): "" if value == "binary" else value
        for name, value in found
        if str(name).lower() in _MEANING
    }


@cache
def _defaults() -> _Defaults:
    with duckdb.connect(":memory:") as fresh:
        listed, types = _listed(fresh)
        functions = _functions(listed)
        return _Defaults(
            _settings(fresh),
            functions,
            {function.name for function in functions},
            {str(name).lower() for name, _ in types},
        )


def cursor_of(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """A cursor for which a name means what it means on the connection itself: by its USE and search path.

    Guarantee: none of these names is that of a temporary table, which only its own connection can see.
    """
    found = connection.execute(
        "SELECT system.main.current_database(), system.main.current_schema()"
    ).fetchone()
    own = connection.execute(
        "SELECT table_name FROM system.main.duckdb_tables() WHERE database_name = 'temp'"
    ).fetchall()
    cursor = connection.cursor()
    if found is not None:
        cursor.execute("USE " + ".".join('"' + str(part).replace('"', '""') + '"' for part in found))
    temporary = {str(table).lower() for (table,) in own}
    for table in tables:
        if table.strip('"').lower().removeprefix("temp.") in temporary:
            raise InvalidInput(
                f"{table} is a temporary table",
                why="it is seen by its own connection alone, and another table may have the same name",
                fix="make it a table: CREATE TABLE … AS FROM it; or name the other one in full",
            )
    return cursor


def table_named(connection: duckdb.DuckDBPyConnection, parts: Sequence[str]) -> tuple[str, str, str]:
    """The full name of the table that is meant by one, two or three names, if it is one."""
    found = connection.execute(
        "SELECT t.database_name, t.schema_name, t.table_name, t.sql, d.type "
        "FROM system.main.duckdb_tables() AS t JOIN system.main.duckdb_databases() AS d USING (database_oid)"
    ).fetchall()
    wanted = [part.lower() for part in parts]
    path = connection.execute(
        "SELECT system.main.current_database(), system.main.current_schema()"
    ).fetchone()
    here = [str(part).lower() for part in path or ()]
    meant = []
    for row in found:
        full = [str(part).lower() for part in row[:3]]
        # Of two names the first is a schema here, or a database.
        fits = {
            1: full == [*here, *wanted],
            2: full[2] == wanted[-1] and (full[:2] == [here[0], wanted[0]] or full[0] == wanted[0]),
            3: full == wanted,
        }
        if fits.get(len(wanted), False):
            meant.append(row)
    if len(meant) != 1 or meant[0][4] != "duckdb" or "GENERATED ALWAYS AS" in str(meant[0][3]).upper():
        raise InvalidInput(
            f"{parts[-1]} is no table of the database, or one whose columns are computed when they are read",
            why="what a view or such a column computes may fail on some row, and whether it does would show",
            fix="name a table of DuckDB's own, or make one: CREATE TABLE … AS SELECT … FROM the view",
        )
    database, schema, table, *_ = meant[0]
    return str(database), str(schema), str(table)
