"""Queries of the catalogs, from PostgreSQL's dialect into DuckDB's, over relations and functions of our own.

A query goes to the catalogs if it names nothing but relations of theirs, or none at all. Only SELECT is
passed on; functions are those of the list here, of SQL itself, and macros that `catalog` defines.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import sqlglot
from sqlglot import exp

from hubbub.server.pgwire.messages import WireError
from hubbub.server.pgwire.statements import tokenize

__all__ = ["CATALOG", "INFORMATION", "read_catalog_query", "rewrite"]

CATALOG: Final = "pgc"
"""The schema that stands for pg_catalog, which DuckDB keeps for its own."""
INFORMATION: Final = "pgi"
_SCHEMAS = {"pg_catalog": CATALOG, "information_schema": INFORMATION, "hubbub": "hubbub"}
_BUILT_IN = {
    *("generate_series", "generate_subscripts", "unnest", "array_agg", "string_agg", "array_length"),
    *("bool_or", "bool_and", "every", "position", "substr", "btrim", "ltrim", "rtrim"),
    *("regexp_replace", "translate", "concat", "concat_ws", "nullif", "length", "upper", "lower"),
    *("array_append", "array_cat", "array_position", "row_number", "to_char", "date_part", "now", "md5"),
    *("char_length", "octet_length", "reverse", "left", "right", "split_part", "greatest", "least"),
}
"""Functions that DuckDB computes as PostgreSQL does."""
_ROW_FUNCTIONS = {"generate_series", "generate_subscripts", "unnest"}
"""Functions that may stand in a FROM."""
_RESERVED = {"TABLE", "COLUMN", "SELECT", "INSERT", "UPDATE", "DELETE", "SCHEMA", "ROLE", "INDEX"}
_REFUSED = (
    *(exp.Into, exp.Lock, exp.Command, exp.Placeholder, exp.Parameter, exp.ReadCSV, exp.ReadParquet),
    *(exp.Repeat, exp.Pad, exp.Space, exp.Format),  # texts of any length: no limit stops them
)
_TEXT_TYPES = {
    "NAME",
    "CHAR",
    "TEXT",
    "VARCHAR",
    "REGPROC",
    "REGPROCEDURE",
    "REGROLE",
    "XID",
    "ACLITEM",
    "BPCHAR",
}
_REG_TYPES = {"REGCLASS": "hub_regclass", "REGTYPE": "hub_regtype", "REGNAMESPACE": "hub_regnamespace"}


def read_catalog_query(text: str, tables: frozenset[str], relations: frozenset[str]) -> exp.Expr | None:
    """Return the syntax tree of a query of the catalogs; None if it is a question about declared tables.

    Args:
        text: One statement.
        tables: Names of declared tables, in lower case: they go before unqualified catalogs.
        relations: Names of catalogs, as `pg_catalog.pg_class`.
    """
    try:
        tree = sqlglot.parse_one(_quote_aliases(text), read="postgres")
    except (WireError, sqlglot.errors.SqlglotError, RecursionError, ValueError, AttributeError):
        return None
    if not isinstance(tree, exp.Query):
        return None
    bound = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function of rows, checked when it is rewritten
        schema, name = table.db.lower(), table.name.lower()
        if schema in {"pg_catalog", "information_schema", "hubbub"}:
            continue
        if schema or (name not in bound and (name in tables or f"pg_catalog.{name}" not in relations)):
            return None
    return tree


def _quote_aliases(text: str) -> str:
    """Quote names that are words of SQL, as in `AS table`: PostgreSQL allows them, the parser does not."""
    tokens = list(tokenize(text))
    for before, token in reversed(list(pairwise(tokens))):
        if (before.word == "AS" or before.text == ".") and token.word in _RESERVED:
            text = f'{text[: token.start]}"{token.text.lower()}"{text[token.end :]}'
    return text


def rewrite(tree: exp.Expr, constants: Mapping[str, Any], live: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return a query in DuckDB's dialect, and the live relations that it names.

    Args:
        tree: What `read_catalog_query` returned.
        constants: Values of functions without arguments, by name.
        live: Relations that are made for one query.
    """
    bound = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    used: set[str] = set()

    def change(node: exp.Expr) -> exp.Expr:
        if isinstance(node, _REFUSED):
            raise _unsupported()
        if isinstance(node, exp.Table):
            return _table(node, bound, live, used)
        if isinstance(node, exp.Column):
            return _column(node, constants)
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(node)
        if isinstance(node, (exp.EQ, exp.NEQ)):
            return _comparison(node, constants["functions"])
        if isinstance(node, exp.Identifier) and not node.quoted:
            return exp.to_identifier(node.name.lower(), quoted=False)  # as PostgreSQL reads names
        if isinstance(node, exp.Anonymous):
            return _function(node, constants)
        if isinstance(node, exp.Func):
            constant = node.sql_name().lower()
            if constant in constants:
                return _literal(constants[constant])
        return node

    # From the leaves up: a handler sees the arguments as they will be.
    changed = _transform(tree.copy(), change)
    _name_outputs(tree, changed)
    try:
        return changed.sql(dialect="duckdb"), frozenset(used)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        raise _unsupported() from None


def _unsupported() -> WireError:
    return WireError(
        "0A000",
        "this query of the catalogs is not supported",
        hint="information_schema.columns and hubbub.functions have what is declared.",
    )


def _transform(tree: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    nodes = list(tree.walk(bfs=False))
    for node in reversed(nodes):
        new = change(node)
        if new is not node:
            if node is tree:
                return new
            if node.parent is not None:
                node.replace(new)
    return tree


def _literal(value: Any) -> exp.Expr:
    if isinstance(value, list):
        return exp.Array(expressions=[_literal(each) for each in value])
    return exp.convert(value)


def _table(node: exp.Table, bound: set[str], live: frozenset[str], used: set[str]) -> exp.Expr:
    if not isinstance(node.this, exp.Identifier):
        return _row_function(node)
    schema, name = node.db.lower(), node.name.lower()
    if not schema and name in bound:
        return node
    full = name if schema == "hubbub" else f"{schema or 'pg_catalog'}.{name}"
    key = f"hubbub.{name}" if schema == "hubbub" else full
    if key in live:
        used.add(key)
        target = exp.to_identifier(key, quoted=True)
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
        fresh = exp.Table(this=target, alias=alias)
    elif schema == "hubbub":
        raise WireError(
            "42P01",
            f"there is no relation hubbub.{name[:60]}",
            hint="Use hubbub.budget, hubbub.history or hubbub.functions.",
        )
    else:
        fresh = _relation(node, schema or "pg_catalog", name)
    for part in ("joins", "laterals", "pivots"):
        if node.args.get(part):
            fresh.set(part, node.args[part])
    return fresh


def _relation(node: exp.Table, schema: str, name: str) -> exp.Table:
    fresh = node.copy()
    fresh.set("this", exp.to_identifier(name, quoted=True))
    fresh.set("db", exp.to_identifier(_SCHEMAS[schema]))
    fresh.set("catalog", None)
    if not fresh.alias:
        fresh.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    return fresh


def _row_function(node: exp.Table) -> exp.Expr:
    """A function in the FROM, such as generate_series; its alias also names its one column."""
    call = node.this
    if str(call.this).lower() == "pg_get_keywords":
        return _relation(node, "pg_catalog", "pg_get_keywords")
    if isinstance(call, exp.Explode):
        call = exp.Anonymous(this="unnest", expressions=[call.this])
        node.set("this", call)
    is_list = isinstance(call, (exp.GenerateSeries, exp.Unnest))
    if not is_list and str(getattr(call, "this", "")).lower() not in _ROW_FUNCTIONS:
        raise _unsupported()
    node.set("db", None)
    alias = node.args.get("alias")
    if alias is not None and not alias.columns:
        alias.set("columns", [alias.this.copy()])
    return node


def _column(node: exp.Column, constants: Mapping[str, Any]) -> exp.Expr:
    if node.args.get("db") is not None:
        fresh = node.copy()
        fresh.set("db", None)
        fresh.set("catalog", None)
        return fresh
    if node.name.lower() == "xmin":
        return exp.Literal.number(1)  # no row was ever changed
    if not node.table and node.name.lower() in constants and not getattr(node.this, "quoted", False):
        return _literal(constants[node.name.lower()])
    return node


def _function(node: exp.Anonymous, constants: Mapping[str, Any]) -> exp.Expr:
    name = str(node.this).lower()
    if name == "current_setting" and node.expressions:
        setting_name = node.expressions[0]
        while isinstance(setting_name, exp.Cast):
            setting_name = setting_name.this
        setting = constants["settings"].get(setting_name.name.lower())
        if setting is None and len(node.expressions) < 2:
            raise WireError("42704", f"there is no setting {setting_name.name[:60]}")
        return _literal(setting)
    if name in constants:
        return _literal(constants[name])
    if name == "all" and len(node.expressions) == 1:
        return _any(exp.All(this=node.expressions[0]))
    if name in {"json_build_object", "jsonb_build_object"}:
        return exp.Anonymous(this="json_object", expressions=node.expressions)
    if name == "pg_get_keywords" and isinstance(node.parent, exp.Table):
        return node  # a relation: see `_row_function`
    if name in _BUILT_IN:
        return exp.Anonymous(this=name, expressions=node.expressions)
    if f"hub_{name}" in constants["macros"]:
        return exp.Anonymous(this=f"hub_{name}", expressions=node.expressions)
    raise WireError(
        "42883",
        f"the function {name[:60]} is not known here",
        hint="SELECT * FROM hubbub.functions lists those of questions.",
    )


def _comparison(node: exp.Expr, functions: frozenset[str]) -> exp.Expr:
    """Columns of type regproc are texts here, and none of them is written as a dash, not as 0."""
    for here, there in ((node.this, "expression"), (node.expression, "this")):
        other = node.args[there]
        if isinstance(here, exp.Column) and here.name.lower() in functions and other.sql() == "0":
            node.set(there, exp.Literal.string("-"))
    return node


def _dot(node: exp.Expr) -> exp.Expr:
    """`pg_catalog.f(x)` is `f(x)`; `(record).field` stays."""
    left, right = node.this, node.expression
    name = left.name.lower() if isinstance(left, (exp.Identifier, exp.Column, exp.Var)) else ""
    if name in {"pg_catalog", "information_schema"} and isinstance(right, exp.Expr):
        return right
    return node


def _cast(node: exp.Expr) -> exp.Expr:
    target = node.args["to"]
    kind = _type_name(target)
    inner = node.this
    if kind.endswith("[]"):
        if inner.is_string:
            return _array(inner.name, kind)
        item = kind[:-2]
        node.set(
            "to",
            exp.DataType.build(
                "text[]"
                if item in _TEXT_TYPES
                else "uinteger[]"
                if item == "OID"
                else _plain_type(item) + "[]",
                dialect="duckdb",
            ),
        )
        return node
    if kind in _REG_TYPES:
        macro = _REG_TYPES[kind]
        shows = isinstance(node.parent, (exp.Alias, exp.Select, exp.DPipe))
        outer = node.parent
        while isinstance(outer, exp.Paren):
            outer = outer.parent
        if isinstance(outer, exp.Cast) and _type_name(outer.args["to"]) in _TEXT_TYPES:
            shows = True
        return exp.Anonymous(this=f"{macro}_name" if shows else macro, expressions=[inner])
    if kind == "OID":
        return exp.TryCast(this=inner, to=exp.DataType.build("uinteger", dialect="duckdb"))
    if kind in _TEXT_TYPES or kind not in _KNOWN_TYPES:
        return exp.Cast(this=inner, to=exp.DataType.build("text", dialect="duckdb"))
    node.set("to", exp.DataType.build(_plain_type(kind), dialect="duckdb"))
    return node


_WHOLE_TYPES = {"INT", "INTEGER", "INT4", "BIGINT", "INT8", "SMALLINT", "INT2"}
_KNOWN_TYPES = {
    "BOOLEAN": "boolean", "BOOL": "boolean", "INT2": "smallint", "SMALLINT": "smallint", "INT": "integer",
    "INT4": "integer", "INTEGER": "integer", "BIGINT": "bigint", "INT8": "bigint", "FLOAT8": "double",
    "DOUBLE": "double", "DOUBLE PRECISION": "double", "REAL": "real", "FLOAT4": "real", "FLOAT": "double",
    "NUMERIC": "double", "DECIMAL": "double", "DATE": "date", "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp", "INTERVAL": "interval",
}  # fmt: skip


def _plain_type(kind: str) -> str:
    return _KNOWN_TYPES.get(kind, "text")


def _type_name(target: exp.DataType) -> str:
    text = target.sql(dialect="postgres").upper().replace('"', "")
    text = text.replace("PG_CATALOG.", "").replace("INFORMATION_SCHEMA.", "")
    return text.split("(")[0].strip() if "(" in text and not text.endswith("[]") else text


def _array(text: str, kind: str = "TEXT[]") -> exp.Expr:
    items = [item.strip().strip('"') for item in text.strip("{}").split(",") if item.strip()]
    item_kind = kind[:-2]
    if item_kind in _TEXT_TYPES or item_kind not in {*_KNOWN_TYPES, "OID"}:
        return exp.Cast(
            this=exp.Array(expressions=[exp.Literal.string(item) for item in items]),
            to=exp.DataType.build("text[]", dialect="duckdb"),
        )
    numbers = [
        exp.Literal.number(item) if not item.startswith("-") else exp.Neg(this=exp.Literal.number(item[1:]))
        for item in items
    ]
    return exp.Array(expressions=numbers)


def _any(node: exp.Expr) -> exp.Expr:
    """ANY('{a,b}'): the literal is an array."""
    inner = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    if isinstance(inner, exp.Literal) and inner.is_string and inner.name.startswith("{"):
        node.set("this", exp.Paren(this=_array(inner.name)))
    return node


def _operator(node: exp.Expr) -> exp.Expr:
    """`a OPERATOR(pg_catalog.~) b`."""
    sign = str(node.args.get("operator") or "").rpartition(".")[2].strip(") ")
    left, right = node.this, node.expression
    if sign == "~":
        return exp.RegexpLike(this=left, expression=right)
    if sign == "!~":
        return exp.Not(this=exp.RegexpLike(this=left, expression=right))
    if sign == "=":
        return exp.EQ(this=left, expression=right)
    raise _unsupported()


def _division(node: exp.Expr) -> exp.Expr:
    """Whole numbers are divided without a remainder."""
    are_whole = all(
        (isinstance(each, exp.Literal) and each.is_int)
        or (isinstance(each, exp.Cast) and _type_name(each.args["to"]) in _WHOLE_TYPES)
        for each in (node.this, node.expression)
    )
    return exp.IntDiv(this=node.this, expression=node.expression) if are_whole else node


def _like(node: exp.Expr) -> exp.Expr:
    """A backslash in a pattern is an escape, also where ESCAPE does not say so."""
    if isinstance(node.parent, exp.Escape) or "\\" not in node.expression.name:
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _collate(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this
    return inner


_HANDLERS: Mapping[type, Callable[[Any], exp.Expr]] = {
    exp.Dot: _dot,
    exp.Cast: _cast,
    exp.Any: _any,
    exp.All: _any,
    exp.Operator: _operator,
    exp.Collate: _collate,
    exp.Div: _division,
    exp.Like: _like,
    exp.ILike: _like,
}


def _name_outputs(before: exp.Expr, after: exp.Expr) -> None:
    """Give each output the name that PostgreSQL gives it: of the column, the function or the type."""
    old, new = _first_select(before), _first_select(after)
    if old is None or new is None:
        return
    for was, now in zip(old.expressions, list(new.expressions), strict=False):
        if isinstance(was, exp.Star) or (isinstance(was, exp.Column) and isinstance(was.this, exp.Star)):
            continue
        if not isinstance(now, exp.Alias):
            name = _output_name(was)
            now.replace(exp.alias_(now.copy(), name, quoted=True))


def _first_select(tree: exp.Expr) -> exp.Select | None:
    while isinstance(tree, (exp.SetOperation, exp.Subquery)):
        tree = tree.this
    return tree if isinstance(tree, exp.Select) else None


def _output_name(node: exp.Expr) -> str:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Cast):
        inner = _output_name(node.this)
        return inner if inner != "?column?" else _type_name(node.args["to"]).lower()
    if isinstance(node, exp.Dot):
        return _output_name(node.expression)
    if isinstance(node, (exp.Column, exp.Identifier)):
        identifier = node.this if isinstance(node, exp.Column) else node
        return node.name if getattr(identifier, "quoted", False) else node.name.lower()
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Case):
        default = _output_name(node.args["default"]) if node.args.get("default") is not None else "?column?"
        return default if default != "?column?" else "case"
    if isinstance(node, exp.Exists):
        return "exists"
    if isinstance(node, exp.Subquery):
        inner_select = _first_select(node)
        return (
            inner_select.expressions[0].alias_or_name
            if inner_select and inner_select.expressions
            else "?column?"
        )
    if isinstance(node, exp.Array):
        return "array"
    if isinstance(node, exp.Func):
        return node.sql(dialect="postgres").partition("(")[0].strip().lower()
    return "?column?"
