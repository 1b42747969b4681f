"""Routing of queries: to the service, which plans and charges them, or to the catalogs, which are free.

A query that names a declared table, or a name that is not known, is a question. One that names only
`pg_catalog`, `information_schema` or `hubbub`, or no table at all, is answered from what is declared.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar

import sqlglot
from sqlglot import exp

from hubbub.engines.schema import Kind
from hubbub.errors import AccessDenied
from hubbub.server.pgwire.catalog import Catalog, Live, catalog_columns
from hubbub.server.pgwire.catalog_sql import read_catalog_query
from hubbub.server.pgwire.messages import Column, WireError
from hubbub.server.pgwire.portals import Rows, Source
from hubbub.server.pgwire.statements import Statement, count_parameters
from hubbub.server.pgwire.values import ARRAYS, Type, type_of_kind
from hubbub.server.pgwire.variables import SERVER_VERSION, Variables
from hubbub.server.service import Service
from hubbub.server.service_types import PlanReport, Principal, Question
from hubbub.sql.result import Result

__all__ = ["ServiceAnswers"]

_CATALOG_TYPES = {
    "oid": Type.OID, "bool": Type.BOOL, "int2": Type.INT2, "int4": Type.INT4, "int8": Type.INT8,
    "float4": Type.FLOAT4, "float8": Type.FLOAT8, "cardinal_number": Type.INT4,
}  # fmt: skip
_CAST_TYPES = {
    "BOOLEAN": Type.BOOL, "BOOL": Type.BOOL, "SMALLINT": Type.INT2, "INT2": Type.INT2, "INT": Type.INT4,
    "INTEGER": Type.INT4, "INT4": Type.INT4, "BIGINT": Type.INT8, "INT8": Type.INT8, "OID": Type.OID,
    "DOUBLE PRECISION": Type.FLOAT8, "FLOAT8": Type.FLOAT8, "REAL": Type.FLOAT4, "NUMERIC": Type.NUMERIC,
    "DECIMAL": Type.NUMERIC, "DATE": Type.DATE, "TIMESTAMP": Type.TIMESTAMP,
    "TEXT": Type.TEXT, "VARCHAR": Type.TEXT,
}  # fmt: skip
_PLACEHOLDERS: Mapping[int, Any] = {
    **dict.fromkeys((Type.INT2, Type.INT4, Type.INT8, Type.OID, Type.FLOAT4, Type.FLOAT8, Type.NUMERIC), 1),
    Type.BOOL: True,
    Type.DATE: date(2000, 1, 1),
    Type.TIMESTAMP: datetime(2000, 1, 1),  # noqa: DTZ001 - timestamps have no zone
    Type.TIMESTAMPTZ: datetime(2000, 1, 1),  # noqa: DTZ001 - as above
}
_T = TypeVar("_T")
_MAX_CATALOG_TEXT = 20_000
_HISTORY_LIMIT = 1000
_MAX_COLUMNS = 100
"""Questions that a connection remembers the columns of."""


class _QuerySource:
    """A query: a question about protected tables, or one of the catalogs; read when it is first needed."""

    def __init__(self, answers: "ServiceAnswers", text: str, variables: Variables) -> None:
        self._answers, self._text, self._variables = answers, text, variables
        self._question = variables.question(text)
        self._again = variables.get("hubbub.again") == "on"
        self._tree: exp.Expr | None = None
        self._rows: Rows | None = None
        self._is_read = False

    async def columns(self) -> tuple[Column, ...]:
        """Return the columns: of the plan, or of the catalogs' answer, which is free and is kept."""
        if await self._is_question():
            return await self._answers.columns(self._question)
        return (await self.rows()).columns

    async def rows(self) -> Rows:
        """Return the rows; a question is charged."""
        if await self._is_question():
            return await self._answers.ask(self._question, again=self._again)
        if self._rows is None:
            self._rows = Rows(*await self._answers.ask_catalog(self._tree, self._variables))
        return self._rows

    async def _is_question(self) -> bool:
        if not self._is_read:
            self._tree = await self._answers.read_catalog(self._text)
            if self._tree is not None:
                _apply_set_config(self._tree, self._variables)
            self._is_read = True
        return self._tree is None


@dataclass(frozen=True)
class _PlanSource:
    """The plan of a query in words; of the catalogs there is nothing to plan."""

    answers: "ServiceAnswers"
    text: str
    question: Question
    is_verbose: bool

    async def columns(self) -> tuple[Column, ...]:
        return (Column("QUERY PLAN", Type.TEXT),)

    async def rows(self) -> Rows:
        if await self.answers.read_catalog(self.text) is not None:
            lines = ["Answered from what is declared: free, and exact."]
        else:
            lines = _describe_plan(await self.answers.plan(self.question), is_verbose=self.is_verbose)
        return Rows(await self.columns(), [(line,) for line in lines])


class ServiceAnswers:
    """One person's view of one dataset through the wire.

    Args:
        service: The service of all doors.
        principal: Who has signed in.
        dataset: The dataset, which is the database of the connection.
        catalog: The catalogs of the dataset.
        process: The number of the connection, as `pg_backend_pid()` tells it.
        executor: Threads for the catalogs.
    """

    def __init__(
        self,
        service: Service,
        principal: Principal,
        dataset: str,
        catalog: Catalog,
        *,
        process: int = 1,
        executor: Executor | None = None,
    ) -> None:
        self._executor = executor
        self._service, self._principal, self._dataset = service, principal, dataset
        self._catalog, self._process = catalog, process
        self._relations = frozenset(catalog_columns())
        self._columns: dict[str, tuple[Column, ...]] = {}

    def open(self, text: str, variables: Variables) -> Source:
        """Return the source of a query."""
        return _QuerySource(self, text, variables)

    def explain(self, text: str, variables: Variables, *, is_verbose: bool) -> Source:
        """Return the plan of a query, its cost and its error, as lines."""
        return _PlanSource(self, text, variables.question(text), is_verbose)

    async def read_catalog(self, text: str) -> exp.Expr | None:
        """Return the syntax tree of a query of the catalogs; None if it is a question."""
        if "differential_privacy" in text.lower() or len(text) > _MAX_CATALOG_TEXT:
            return None
        return await self._run(read_catalog_query, text, self._catalog.tables, self._relations)

    async def _run(self, work: Callable[..., _T], *arguments: Any) -> _T:
        """Run what takes time in a thread of the catalogs' own: questions never wait for them."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*arguments))

    # The service

    async def columns(self, question: Question) -> tuple[Column, ...]:
        """Return the columns of a question's answer; free. Drivers describe the same one again and again."""
        key = repr(question)
        known = self._columns.get(key)
        if known is None:
            service = self._service
            columns = await service.call(service.columns, self._principal, self._dataset, question)
            known = tuple(Column(each.name, type_of_kind(each.kind)) for each in columns)
            if len(self._columns) >= _MAX_COLUMNS:
                self._columns.clear()
            self._columns[key] = known
        return known

    async def plan(self, question: Question) -> PlanReport:
        """Plan a question; free."""
        return await self._service.call(self._service.plan, self._principal, self._dataset, question)

    async def ask(self, question: Question, *, again: bool = False) -> Rows:
        """Ask a question; it is charged unless it was asked before."""
        answer = await self._service.ask(self._principal, self._dataset, question, again=again)
        columns = tuple(
            Column(name, type_of_kind(kind)) for name, kind in _result_kinds(answer.result).items()
        )
        table = answer.result.to_dict()
        rows = list(zip(*(table[column.name] for column in columns), strict=True))
        return Rows(columns, rows, is_charged=answer.is_new)

    async def ask_catalog(
        self, tree: exp.Expr | None, variables: Variables
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Answer a query of the catalogs; free, for whoever still has a role."""

        def execute() -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
            if self._dataset not in self._service.auth.roles(self._principal):
                raise AccessDenied(
                    "there is no such dataset, or you have no role in it",
                    why="names cannot be guessed",
                    fix="ask its owner",
                    parameter="dataset",
                )
            return self._catalog.execute(tree, self._live(variables), self._constants(variables))

        return await self._run(execute)

    def _constants(self, variables: Variables) -> dict[str, Any]:
        user = self._principal.user
        version = f"PostgreSQL {SERVER_VERSION} (hubbub: answers with differential privacy)"
        return {
            **dict.fromkeys(("current_user", "session_user", "user", "current_role"), user),
            **dict.fromkeys(("current_database", "current_catalog"), self._dataset),
            **dict.fromkeys(("version", "current_version"), version),
            "current_schema": "public",
            "pg_backend_pid": self._process,
            "settings": {name.lower(): value for name, value in variables},
        }

    def _live(self, variables: Variables) -> Live:
        """Relations that depend on who asks, and when."""
        service, principal, dataset = self._service, self._principal, self._dataset

        def budget() -> Any:
            report = service.budget(principal, dataset)
            names = ("epsilon", "delta", "spent_epsilon", "spent_delta", "left_epsilon", "left_delta")
            columns = [("dataset", "VARCHAR"), *((name, "DOUBLE") for name in names)]
            columns += [("charges", "BIGINT"), ("about_more", "BIGINT"), ("is_paused", "BOOLEAN")]
            figures = [_number(getattr(report, name)) for name in names]
            return columns, [[report.dataset, *figures, report.charges, report.count_more, report.is_paused]]

        def history() -> Any:
            items = service.history(principal, dataset, limit=_HISTORY_LIMIT)
            columns = [
                ("entry", "BIGINT"),
                *((name, "VARCHAR") for name in ("analyst", "time", "query", "cost", "outcome")),
            ]
            return columns, [
                [each.entry, each.user, each.timestamp, each.sql, each.loss, each.outcome] for each in items
            ]

        def functions() -> Any:
            names = ("example", "use", "kind", "engines")
            rows = [[getattr(each, name) for name in names] for each in service.functions()]
            return [(name, "VARCHAR") for name in names], rows

        def databases() -> Any:
            columns = catalog_columns()["pg_catalog.pg_database"]
            rows = []
            for place, each in enumerate(service.datasets(principal)):
                values = {
                    "oid": 5 + place, "datname": each.name, "datdba": 10, "encoding": 6,
                    "datlocprovider": "c", "datistemplate": False, "datallowconn": True, "datconnlimit": -1,
                    "dattablespace": 1663, "datcollate": "C", "datctype": "C.UTF-8",
                }  # fmt: skip
                rows.append([values.get(name) for name in columns])
            return [(name, _DUCKDB.get(kind, "VARCHAR")) for name, kind in columns.items()], rows

        def roles() -> Any:
            return [
                *(
                    ("oid", "UINTEGER"),
                    ("rolname", "VARCHAR"),
                    ("rolsuper", "BOOLEAN"),
                    ("rolinherit", "BOOLEAN"),
                ),
                *(("rolcreaterole", "BOOLEAN"), ("rolcreatedb", "BOOLEAN"), ("rolcanlogin", "BOOLEAN")),
                *(("rolreplication", "BOOLEAN"), ("rolconnlimit", "INTEGER"), ("rolpassword", "VARCHAR")),
                *(("rolvaliduntil", "TIMESTAMP"), ("rolbypassrls", "BOOLEAN"), ("rolconfig", "VARCHAR[]")),
            ], [[10, principal.user, *[False] * 4, True, False, -1, None, None, False, None]]

        def settings() -> Any:
            columns = [
                (name, "VARCHAR")
                for name in (
                    "name",
                    "setting",
                    "unit",
                    "category",
                    "short_desc",
                    "context",
                    "vartype",
                    "source",
                )
            ]
            return columns, [
                [name, value, None, "", "", "user", "string", "default"] for name, value in variables
            ]

        return {
            "hubbub.budget": budget,
            "hubbub.history": history,
            "hubbub.functions": functions,
            "pg_catalog.pg_database": databases,
            "pg_catalog.pg_roles": roles,
            "pg_catalog.pg_settings": settings,
        }

    # Parameters

    async def parameter_types(self, statement: Statement, stated: Sequence[int]) -> tuple[int, ...]:
        """Return the types of parameters; where none is stated, that of what they stand beside."""
        count = count_parameters(statement)
        types = [*stated, *[0] * (count - len(stated))]
        if not any(oid in {0, Type.UNKNOWN} for oid in types):
            return tuple(types)
        is_query = statement.words[:1] in {("SELECT",), ("WITH",), ("VALUES",), ("(",)}
        inferred = await self._run(self._infer, statement.text) if is_query else {}
        return tuple(
            inferred.get(place, Type.TEXT) if oid in {0, Type.UNKNOWN} else oid
            for place, oid in enumerate(types, 1)
        )

    def _infer(self, text: str) -> dict[int, int]:
        try:
            tree = sqlglot.parse_one(text, read="postgres")
        except (sqlglot.errors.SqlglotError, RecursionError, ValueError, AttributeError):
            return {}
        kinds = self._catalog.columns
        inferred: dict[int, int] = {}
        for parameter in tree.find_all(exp.Parameter):
            number = parameter.name or parameter.this.name
            oid = self._infer_one(parameter, kinds)
            if number.isdigit() and oid:
                inferred.setdefault(int(number), oid)
        return inferred

    def _infer_one(self, parameter: exp.Expr, kinds: Mapping[str, Kind]) -> int:
        node, parent, is_list = parameter, parameter.parent, False
        while isinstance(parent, (exp.Paren, exp.Any, exp.Neg)):
            is_list |= isinstance(parent, exp.Any)
            node, parent = parent, parent.parent
        if isinstance(parent, exp.Cast):
            kind = parent.args["to"].sql(dialect="postgres").upper()
            oid = _CAST_TYPES.get(kind.removesuffix("[]"), Type.TEXT)
            return _array_of(oid) if kind.endswith("[]") else oid
        if isinstance(parent, (exp.Limit, exp.Offset)):
            return Type.INT8
        if isinstance(parent, (exp.Binary, exp.Between, exp.In)):
            others = [each for each in parent.iter_expressions() if each is not node]
            for column in (each for other in others for each in other.find_all(exp.Column)):
                oid = self._column_type(column.name.lower(), kinds)
                if oid:
                    return _array_of(oid) if is_list else oid
            if any(isinstance(other, exp.Literal) and not other.is_string for other in others):
                return Type.FLOAT8
        return _array_of(Type.TEXT) if is_list else 0

    def _column_type(self, name: str, kinds: Mapping[str, Kind]) -> int:
        if name in kinds:
            return type_of_kind(kinds[name])
        for columns in catalog_columns().values():
            if name in columns:
                return _CATALOG_TYPES.get(columns[name], Type.TEXT)
        return 0

    def placeholders(self, types: Sequence[int]) -> list[Any]:
        """Return a value of each type, with which a statement is described before values are known."""
        return [
            [_PLACEHOLDERS.get(ARRAYS[oid], "a")] if oid in ARRAYS else _PLACEHOLDERS.get(oid, "a")
            for oid in types
        ]


_DUCKDB = {"oid": "UINTEGER", "bool": "BOOLEAN", "int4": "INTEGER", "int2": "SMALLINT"}
_ARRAY_OIDS: Mapping[int, int] = {item: array for array, item in ARRAYS.items()}


def _array_of(oid: int) -> int:
    return _ARRAY_OIDS.get(oid, 1009)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")


def _result_kinds(result: Result) -> dict[str, Kind | None]:
    """The columns of a result in the order of `to_dict`, with their kinds."""
    kinds: dict[str, Kind | None] = {}
    for column in result.columns:
        kinds[column.name] = column.kind
        if column.low is not None and column.high is not None:
            kinds[f"{column.name}_low"] = kinds[f"{column.name}_high"] = Kind.NUMBER
    return kinds


def _describe_plan(report: PlanReport, *, is_verbose: bool) -> list[str]:
    price = "asked before: free" if report.is_asked else f"costs ε = {report.epsilon}, δ = {report.delta}"
    more = "" if report.count_more is None else f"; about {report.count_more} such questions are left"
    # The engine's SQL is a line of thousands of characters, which psql would pad the others to.
    words = report.explanation if is_verbose else report.text
    when = "at once" if report.is_asked else f"after {report.deadline:g} s"
    return [f"{price}{more}; answered {when}", *words.splitlines()]


def _apply_set_config(tree: exp.Expr, variables: Variables) -> None:
    """`SELECT set_config('hubbub.epsilon', '0.1', false)` sets, as SET does."""
    for call in tree.find_all(exp.Anonymous):
        if str(call.this).lower() != "set_config":
            continue
        parts = call.expressions
        if len(parts) != 3 or not (parts[0].is_string and parts[1].is_string):
            raise WireError(
                "0A000", "set_config takes a name and a value that are written out", hint="Use SET."
            )
        variables.set(parts[0].name, parts[1].name, is_local=parts[2].sql().lower() == "true")
        call.replace(exp.Literal.string(variables.get(parts[0].name)))
