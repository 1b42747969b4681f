"""A session: what a client that has signed in may send, simple and extended queries, cursors, COPY.

Describing a statement or a portal is answered from the plan and is free; only executing it asks, and is
charged. A portal asks once, however often its rows are fetched.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

from hubbub.server.pgwire.copy_formats import encode_copy
from hubbub.server.pgwire.messages import (
    Column,
    Fields,
    WireError,
    encode_copy_start,
    encode_error,
    encode_message,
    encode_notice,
    encode_parameter_types,
    encode_row,
    encode_row_description,
    encode_status,
    encode_tag,
    read_message,
)
from hubbub.server.pgwire.portals import Answers, Portal, Prepared, Rows, Source, TextTable
from hubbub.server.pgwire.sqlstates import convert_error
from hubbub.server.pgwire.statements import (
    CloseCursor,
    Command,
    CopyOut,
    Deallocate,
    DeclareCursor,
    Discard,
    Empty,
    Explain,
    FetchCursor,
    Query,
    Reset,
    SetVariable,
    Show,
    Statement,
    Transaction,
    classify,
    count_parameters,
    fill_parameters,
    split_statements,
)
from hubbub.server.pgwire.values import decode_parameter, encode_binary, encode_text
from hubbub.server.pgwire.variables import Variables

__all__ = ["MESSAGE_LIMIT", "Session"]

MESSAGE_LIMIT: Final = 1 << 20
"""Bytes of one message; a query has at most 100,000 characters."""
_MAX_TEXT = 100_000
_SHORT_TEXT = 5000
_MAX_PREPARED = 500
_MAX_PREPARED_TOKENS = 300_000
_MAX_PORTALS = 100
_CHUNK = 1 << 16
_LOG = logging.getLogger("hubbub.server.pgwire")
_T = TypeVar("_T")


@dataclass
class _State:
    """State of the session: I for idle, T in a transaction, E in one that failed."""

    status: str = "I"
    savepoints: list[str] = field(default_factory=list)
    is_charged: bool = False
    """True if something was charged in the transaction."""


class Session:
    """One connection after it has signed in.

    Args:
        reader: What the client sends.
        writer: Where answers go.
        answers: Where rows come from.
        variables: The settings.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: Answers,
        variables: Variables,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._answers, self._variables = answers, variables
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._state = _State()
        self._cancelled = asyncio.Event()
        self._is_skipping = False
        self._undescribed: Portal | None = None
        """A portal that is described with the next message, or executed by it."""
        self._abandoned: set[asyncio.Future[Any]] = set()

    def cancel(self) -> None:
        """Stop waiting for the running query; what was charged stays charged, and its outcome is stored."""
        self._cancelled.set()

    async def run(self) -> None:
        """Answer messages until the client leaves."""
        try:
            await self._answer_messages()
        finally:
            for task in self._abandoned:
                task.cancel()
            await asyncio.gather(*self._abandoned, return_exceptions=True)

    async def _answer_messages(self) -> None:
        handlers = {
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
        }
        self._ready()
        while True:
            await self._writer.drain()
            kind, fields = await read_message(self._reader, MESSAGE_LIMIT)
            if kind == b"X":
                return
            if self._undescribed is not None and kind != b"E":
                await self._describe_now()
            if kind == b"S":
                self._is_skipping = False
                self._end_implicit()
                self._ready()
            elif kind == b"Q":
                # A simple query also ends the skipping after an error, as nothing else would.
                self._is_skipping = False
                await self._simple(fields)
            elif kind in {b"H", b"d", b"c", b"f"}:
                continue  # everything is sent at once; data of a COPY that has failed is ignored
            elif self._is_skipping:
                continue
            elif kind in handlers:
                try:
                    self._cancelled.clear()
                    await handlers[kind](fields)
                except ConnectionError:
                    raise
                except Exception as problem:  # noqa: BLE001 - whatever it is, the client gets an error
                    self._is_skipping = True
                    self._fail(problem)
            else:
                raise WireError("08P01", "a message has an unknown type", is_fatal=True)

    # Simple queries

    async def _simple(self, fields: Fields) -> None:
        try:
            text = fields.text()
            fields.end()
            self._cancelled.clear()
            for statement in await _split(text):
                command = classify(statement)
                if count_parameters(statement):
                    raise WireError("42P02", "there is a parameter, and no value for it")  # noqa: TRY301
                portal = await self._open(command, ())
                await self._send_portal(portal, None, describes=True)
        except ConnectionError:
            raise
        except Exception as problem:  # noqa: BLE001 - whatever it is, the client gets an error
            self._fail(problem)
        self._end_implicit()
        self._ready()

    # Extended queries

    async def _parse(self, fields: Fields) -> None:
        name, text = fields.text(), fields.text()
        stated = [fields.int32() & 0xFFFFFFFF for _ in range(fields.count(4))]
        fields.end()
        statements = await _split(text)
        if len(statements) != 1:
            raise WireError(
                "42601", "there is more than one statement in a prepared one", hint="Send them one by one."
            )
        if name and name in self._prepared:
            raise WireError("42P05", "there is a prepared statement of this name already")
        tokens = sum(len(each.statement.tokens) for each in self._prepared.values())
        if len(self._prepared) >= _MAX_PREPARED or tokens + len(statements[0].tokens) > _MAX_PREPARED_TOKENS:
            raise WireError("54000", "there are too many prepared statements", hint="DEALLOCATE some.")
        command = classify(statements[0])
        self._check_transaction(command)
        types = await self._answers.parameter_types(statements[0], stated[: count_parameters(statements[0])])
        self._prepared[name] = Prepared(command, statements[0], types)
        self._writer.write(encode_message(b"1"))

    async def _bind(self, fields: Fields) -> None:
        portal, name = fields.text(), fields.text()
        forms = [fields.int16() for _ in range(fields.count(2))]
        raw = [fields.value() for _ in range(fields.count(4))]
        formats = tuple(fields.int16() for _ in range(fields.count(2)))
        fields.end()
        prepared = self._find(self._prepared, name, "26000", "prepared statement")
        if len(raw) != len(prepared.types):
            raise WireError("08P01", f"there are {len(raw)} values for {len(prepared.types)} parameters")
        if len(forms) not in {0, 1, len(raw)} or not {*forms, *formats} <= {0, 1}:
            raise WireError("08P01", "the formats of parameters or results are wrong")
        every = [*(forms or [0])] * len(raw) if len(forms) < 2 else forms
        values = [
            decode_parameter(value, oid, form)
            for value, oid, form in zip(raw, prepared.types, every, strict=True)
        ]
        if portal and portal in self._portals:
            raise WireError("42P03", "there is a cursor of this name already")
        if len(self._portals) >= _MAX_PORTALS:
            raise WireError("54000", "there are too many open cursors", hint="CLOSE some.")
        self._check_transaction(prepared.command)
        source = self._source(prepared.command, values)
        self._portals[portal] = Portal(prepared.command, source, formats, prepared.columns)
        self._writer.write(encode_message(b"2"))

    async def _describe(self, fields: Fields) -> None:
        kind, name = fields.take(1), fields.text()
        fields.end()
        if kind == b"S":
            prepared = self._find(self._prepared, name, "26000", "prepared statement")
            self._check_transaction(prepared.command)
            source = self._source(prepared.command, self._answers.placeholders(prepared.types))
            self._writer.write(encode_parameter_types(prepared.types))
            prepared.columns = await self._tell_columns(prepared.command, source, None)
        elif kind == b"P":
            portal = self._find(self._portals, name, "34000", "cursor")
            self._check_transaction(portal.command)
            # Most drivers execute what they describe: then the answer has the columns, and no plan is needed.
            self._undescribed = portal
        else:
            raise WireError("08P01", "neither a statement nor a portal is described", is_fatal=True)

    async def _describe_now(self) -> None:
        """Answer a Describe that was not followed by an Execute of its portal; free."""
        portal, self._undescribed = self._undescribed, None
        assert portal is not None
        try:
            portal.columns = await self._tell_columns(portal.command, portal.source, portal)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the client gets an error
            self._is_skipping = True
            self._fail(problem)

    async def _tell_columns(
        self, command: Command, source: Source | None, portal: Portal | None
    ) -> tuple[Column, ...] | None:
        if isinstance(command, FetchCursor) and not command.is_move:
            cursor = self._find(self._portals, command.name, "34000", "cursor")
            source = cursor.source
        if source is None or isinstance(command, (CopyOut, DeclareCursor)):
            self._writer.write(encode_message(b"n"))
            return None
        known = portal.columns if portal is not None else None
        columns = known if known is not None else await self._wait(source.columns())
        formats = portal.spread(columns) if portal is not None else [0] * len(columns)
        self._writer.write(encode_row_description(columns, formats))
        return columns

    async def _execute(self, fields: Fields) -> None:
        name, limit = fields.text(), fields.int32()
        fields.end()
        waiting = self._undescribed
        describes = (
            waiting is not None
            and self._portals.get(name) is waiting
            and isinstance(waiting.command, (Query, Explain, Show))
        )
        if waiting is not None and not describes:
            await self._describe_now()
            if self._is_skipping:
                return
        self._undescribed = None
        portal = self._find(self._portals, name, "34000", "cursor")
        self._check_transaction(portal.command)
        await self._send_portal(portal, limit if limit > 0 else None, describes=describes)

    async def _close(self, fields: Fields) -> None:
        kind, name = fields.take(1), fields.text()
        fields.end()
        if kind == b"S":
            self._prepared.pop(name, None)
        elif kind == b"P":
            self._portals.pop(name, None)
        else:
            raise WireError("08P01", "neither a statement nor a portal is closed", is_fatal=True)
        self._writer.write(encode_message(b"3"))

    # Running

    async def _open(self, command: Command, values: Sequence[Any]) -> Portal:
        self._check_transaction(command)
        return Portal(command, self._source(command, values))

    def _source(self, command: Command, values: Sequence[Any]) -> Source | None:
        """The source of a command's rows; None for one that has none."""
        if isinstance(command, (Query, CopyOut)):
            return self._answers.open(fill_parameters(command.statement, values), self._variables)
        if isinstance(command, Explain):
            text = fill_parameters(command.statement, values)
            return self._answers.explain(text, self._variables, is_verbose=command.is_verbose)
        if isinstance(command, Show):
            if command.name is None:
                return TextTable(("name", "setting"), list(self._variables))
            return TextTable((command.name,), [(self._variables.get(command.name),)])
        if isinstance(command, DeclareCursor):
            return self._answers.open(fill_parameters(command.statement, values), self._variables)
        return None

    async def _send_portal(self, portal: Portal, limit: int | None, *, describes: bool) -> None:
        """Send what a portal has: rows, the data of a COPY, or the tag of a command."""
        command = portal.command
        if isinstance(command, (Query, Explain, Show)):
            await self._send_rows(portal, limit, describes=describes)
        elif isinstance(command, CopyOut):
            await self._send_copy(portal, command)
        elif isinstance(command, FetchCursor):
            await self._fetch(command, portal, describes=describes)
        elif isinstance(command, DeclareCursor):
            self._declare(command, portal)
        elif isinstance(command, Empty):
            self._writer.write(encode_message(b"I"))
        else:
            self._writer.write(encode_tag(self._command(command)))

    async def _load(self, portal: Portal) -> Rows:
        """The rows of a portal, asked for once."""
        if portal.rows is None:
            assert portal.source is not None
            rows = await self._wait(portal.source.rows())
            self._state.is_charged |= rows.is_charged
            if portal.columns is not None and rows.columns != portal.columns:
                raise WireError(
                    "0A000",
                    "the answer has other columns than were described",
                    detail="The SQL over the released tables failed on their values; the answer is stored.",
                    hint="Ask again by a simple query, which is free and shows the released table.",
                )
            portal.rows = rows
        return portal.rows

    async def _send_rows(self, portal: Portal, limit: int | None, *, describes: bool) -> None:
        rows = await self._load(portal)
        formats = portal.spread(rows.columns)
        if describes:
            self._writer.write(encode_row_description(rows.columns, formats))
        end = len(rows.rows) if limit is None else portal.place + limit
        batch = rows.rows[portal.place : end]
        portal.place += len(batch)
        await self._write_all(_encode_rows(rows.columns, formats, batch))
        if portal.place < len(rows.rows):
            self._writer.write(encode_message(b"s"))
        else:
            verb = {Explain: "EXPLAIN", Show: "SHOW"}.get(type(portal.command))
            self._writer.write(encode_tag(verb or f"SELECT {len(batch)}"))

    async def _send_copy(self, portal: Portal, command: CopyOut) -> None:
        rows = await self._load(portal)
        is_binary = command.options["format"] == "binary"
        self._writer.write(encode_copy_start(len(rows.columns), is_binary=is_binary))
        await self._write_all(encode_copy(rows.columns, rows.rows, command.options))
        self._writer.write(encode_message(b"c") + encode_tag(f"COPY {len(rows.rows)}"))

    def _declare(self, command: DeclareCursor, portal: Portal) -> None:
        if self._state.status == "I" and not command.is_holdable:
            raise WireError(
                "25P01", "a cursor is declared outside of a transaction",
                hint="BEGIN first, or declare it WITH HOLD.",
            )  # fmt: skip
        if command.name in self._portals:
            raise WireError("42P03", "there is a cursor of this name already")
        if len(self._portals) >= _MAX_PORTALS:
            raise WireError("54000", "there are too many open cursors", hint="CLOSE some.")
        self._portals[command.name] = replace(
            portal,
            command=Query(command.statement),
            formats=(int(command.is_binary),),
            is_cursor=True,
            is_holdable=command.is_holdable,
        )
        self._writer.write(encode_tag("DECLARE CURSOR"))

    async def _fetch(self, command: FetchCursor, portal: Portal, *, describes: bool) -> None:
        cursor = self._find(self._portals, command.name, "34000", "cursor")
        rows = await self._load(cursor)
        end = len(rows.rows) if command.count is None else cursor.place + command.count
        batch = rows.rows[cursor.place : end]
        cursor.place += len(batch)
        if command.is_move:
            self._writer.write(encode_tag(f"MOVE {len(batch)}"))
            return
        formats = (portal if portal.formats else cursor).spread(rows.columns)
        if describes:
            self._writer.write(encode_row_description(rows.columns, formats))
        await self._write_all(_encode_rows(rows.columns, formats, batch))
        self._writer.write(encode_tag(f"FETCH {len(batch)}"))

    def _command(self, command: Command) -> str:
        """Do what has no rows; return its tag."""
        if isinstance(command, SetVariable):
            self._report(self._variables.set(command.name, command.value, is_local=command.is_local))
            return "SET"
        if isinstance(command, Reset):
            self._report(self._variables.reset(command.name))
            return "RESET"
        if isinstance(command, Transaction):
            return self._transact(command)
        if isinstance(command, CloseCursor):
            if command.name is None:
                self._portals = {name: each for name, each in self._portals.items() if not each.is_cursor}
                return "CLOSE CURSOR ALL"
            self._find(self._portals, command.name, "34000", "cursor")
            del self._portals[command.name]
            return "CLOSE CURSOR"
        if isinstance(command, Deallocate):
            if command.name is None:
                self._prepared.clear()
                return "DEALLOCATE ALL"
            self._find(self._prepared, command.name, "26000", "prepared statement")
            del self._prepared[command.name]
            return "DEALLOCATE"
        assert isinstance(command, Discard)
        self._prepared.clear()
        self._portals.clear()
        self._report(self._variables.reset(None))
        return "DISCARD ALL"

    # Transactions

    def _check_transaction(self, command: Command) -> None:
        if self._state.status != "E":
            return
        if isinstance(command, Transaction) and command.verb in {"COMMIT", "ROLLBACK", "ROLLBACK TO"}:
            return
        raise WireError(
            "25P02", "the transaction has failed; statements are ignored until it ends", hint="Send ROLLBACK."
        )

    def _transact(self, command: Transaction) -> str:
        state, verb = self._state, command.verb
        if verb == "UNLISTEN":
            return "UNLISTEN"
        if verb == "BEGIN":
            if state.status != "I":
                self._writer.write(encode_notice("there is a transaction already", code="25001"))
            else:
                self._state = _State("T")
            return "BEGIN"
        if verb in {"SAVEPOINT", "RELEASE", "ROLLBACK TO"}:
            return self._save(verb, command.name)
        if state.status == "I":
            self._writer.write(encode_notice("there is no transaction", code="25P01"))
            return verb
        is_commit = verb == "COMMIT" and state.status == "T"
        if not is_commit and state.is_charged:
            self._writer.write(
                encode_notice(
                    "questions asked in this transaction stay charged: ROLLBACK gives nothing back",
                    hint="Their answers are stored; asking again is free.",
                )
            )
        self._report(self._variables.end_transaction(is_commit=is_commit))
        self._portals = {name: each for name, each in self._portals.items() if each.is_holdable and is_commit}
        self._state = _State()
        return "COMMIT" if is_commit else "ROLLBACK"

    def _save(self, verb: str, name: str) -> str:
        state = self._state
        if state.status == "I":
            raise WireError("25P01", f"{verb} outside of a transaction", hint="BEGIN first.")
        if verb == "SAVEPOINT":
            if len(state.savepoints) >= _MAX_PREPARED:
                raise WireError("54000", "there are too many savepoints", hint="RELEASE some.")
            state.savepoints.append(name)
            return "SAVEPOINT"
        if name not in state.savepoints:
            raise WireError("3B001", "there is no savepoint of this name")
        last = len(state.savepoints) - state.savepoints[::-1].index(name)
        if verb == "RELEASE":
            del state.savepoints[last - 1 :]
            return "RELEASE"
        del state.savepoints[last:]
        state.status = "T"
        return "ROLLBACK"

    def _end_implicit(self) -> None:
        """Without BEGIN a transaction ends with each Sync, and portals with it."""
        if self._state.status == "I":
            self._portals = {name: each for name, each in self._portals.items() if each.is_holdable}
            self._report(self._variables.end_transaction(is_commit=True))
            self._state.is_charged = False

    # Sending

    def _ready(self) -> None:
        self._writer.write(encode_message(b"Z", self._state.status.encode()))

    def _report(self, changes: dict[str, str]) -> None:
        for name, value in changes.items():
            self._writer.write(encode_status(name, value))

    def _fail(self, problem: Exception) -> None:
        """Send an error; a transaction has failed with it, and a fatal one ends the connection."""
        error = convert_error(problem)
        if error.code == "XX000":
            # The class alone: a text may come from an engine, and speak of rows.
            _LOG.error("internal error in a session: %s", type(problem).__name__)
        if error.is_fatal:
            raise error
        if self._state.status == "T":
            self._state.status = "E"
        self._writer.write(encode_error(error))

    async def _write_all(self, messages: Iterable[bytes]) -> None:
        iterator = iter(messages)
        while batch := b"".join(islice(iterator, 256)):
            for start in range(0, len(batch), _CHUNK):
                self._writer.write(batch[start : start + _CHUNK])
                await self._writer.drain()

    async def _wait(self, work: Awaitable[_T]) -> _T:
        """Wait for work until it is done, cancelled by the client, or longer than statement_timeout.

        A question that was charged runs on in the service: its outcome is stored, and asking again is free.
        """
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._cancelled.wait())
        try:
            done, _ = await asyncio.wait(
                {task, stop}, timeout=self._timeout(), return_when=asyncio.FIRST_COMPLETED
            )
            if task in done:
                return task.result()
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                self._abandoned.add(task)
        reason = "on the client's request" if stop in done else "after statement_timeout"
        raise WireError(
            "57014", f"the statement is cancelled {reason}",
            detail="A question that was charged stays charged, and its answer is stored.",
            hint="Ask the same question again: it is free.",
        )  # fmt: skip

    def _timeout(self) -> float | None:
        match = re.fullmatch(r"(\d{1,9})\s*(ms|s|min|h|)", self._variables.get("statement_timeout").strip())
        if match is None or not int(match[1]):
            return None
        return int(match[1]) * {"ms": 0.001, "": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}[match[2]]

    @staticmethod
    def _find(where: dict[str, _T], name: str, code: str, what: str) -> _T:
        if name not in where:
            raise WireError(code, f"there is no {what} of this name")
        return where[name]


async def _split(text: str) -> list[Statement]:
    if len(text) > _MAX_TEXT:
        raise WireError(
            "54000", f"the text has more than {_MAX_TEXT:,} characters", hint="Write a shorter query."
        )
    if len(text) < _SHORT_TEXT:
        return split_statements(text)
    return await asyncio.to_thread(split_statements, text)  # others need not wait for it


def _encode_rows(
    columns: Sequence[Column], formats: Sequence[int], rows: Sequence[Sequence[Any]]
) -> Iterable[bytes]:
    encoders = [
        (encode_binary if form else encode_text, column.oid)
        for column, form in zip(columns, formats, strict=True)
    ]
    for row in rows:
        yield encode_row([encode(value, oid) for value, (encode, oid) in zip(row, encoders, strict=True)])
