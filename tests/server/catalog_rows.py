"""Writes the rows of PostgreSQL's own catalogs that the wire's catalog ships, from a real PostgreSQL 15.

    python tests/server/catalog_rows.py src/hubbub/server/pgwire/catalog_rows.json.gz

They are the same for every fresh cluster: types, operators, functions, the columns of the catalogs. Nothing
about any user's data is in them.
"""

import gzip
import json
import sys
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parents[1]))
from servers import running_server

ROWS = (
    *("pg_type", "pg_class", "pg_attribute", "pg_namespace", "pg_proc", "pg_operator", "pg_am", "pg_cast"),
    *(
        "pg_range",
        "pg_language",
        "pg_collation",
        "pg_aggregate",
        "pg_opclass",
        "pg_opfamily",
        "pg_tablespace",
    ),
)
"""Catalogs that drivers read; the others are there, and empty."""
BLANK = {
    *("prosrc", "probin", "prosqlbody", "proargdefaults", "relacl", "nspacl", "proacl", "attacl", "typacl"),
    *("lanacl", "spcacl", "relfrozenxid", "relminmxid", "relfilenode", "relpages", "reltuples"),
    *("relallvisible", "attmissingval", "relpartbound", "typdefaultbin"),
}
"""Columns without their values: texts of functions, storage, privileges."""
VISIBLE = {
    "pg_class": "relkind IN ('r', 'v') AND relnamespace IN (11, 'information_schema'::regnamespace)",
    "pg_attribute": "attnum > 0 AND EXISTS (SELECT FROM pg_class c WHERE c.oid = attrelid AND c.relkind IN "
    "('r', 'v') AND c.relnamespace IN (11, 'information_schema'::regnamespace))",
    "pg_type": "typnamespace IN (11, 'information_schema'::regnamespace) AND typname !~ '^_?pg_toast'",
    "pg_collation": "collname IN ('default', 'C', 'POSIX', 'ucs_basic')",
    "pg_namespace": "nspname !~ '^pg_t'",
}


def cell(value):
    """A value as text that DuckDB casts to the column's type: lists in brackets, booleans in words."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def vector(name, kind):
    """The expression by which a column is read."""
    if kind in {"oidvector", "int2vector"}:
        return f"string_to_array({name}::text, ' ')"
    return f"{name}::text" if kind != "bool" and not kind.startswith("_") else name


def main(path):
    with (
        running_server() as server,
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres") as connection,
    ):
        records = connection.execute(
            "SELECT n.nspname, c.relname, a.attname, t.typname FROM pg_attribute a JOIN pg_class c ON "
            "c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = "
            "a.atttypid WHERE a.attnum > 0 AND c.relkind IN ('r', 'v') AND n.nspname IN ('pg_catalog', "
            "'information_schema') ORDER BY 1, 2, a.attnum"
        ).fetchall()
        relations = {}
        for schema, table, column, kind in records:
            relations.setdefault(f"{schema}.{table}", []).append([column, kind])
        rows = {}
        for name in ROWS:
            columns = relations[f"pg_catalog.{name}"]
            read = ", ".join("NULL" if each in BLANK else vector(f'"{each}"', kind) for each, kind in columns)
            where = VISIBLE.get(name, "true")
            lines = connection.execute(f"SELECT {read} FROM {name} WHERE {where} ORDER BY 1, 2").fetchall()
            rows[name] = [[cell(line[place]) for line in lines] for place in range(len(columns))]
        words = connection.execute("SELECT * FROM pg_get_keywords() ORDER BY 1")
        relations["pg_catalog.pg_get_keywords"] = [[column.name, "text"] for column in words.description]
        rows["pg_get_keywords"] = [list(map(cell, column)) for column in zip(*words.fetchall(), strict=True)]
        version = connection.execute("SHOW server_version").fetchone()[0]
    stored = {"version": version, "relations": relations, "rows": rows}
    text = json.dumps(stored, separators=(",", ":"), sort_keys=True).encode()
    Path(path).write_bytes(gzip.compress(text, 9, mtime=0))
    print({name: len(each[0]) for name, each in rows.items()}, Path(path).stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
