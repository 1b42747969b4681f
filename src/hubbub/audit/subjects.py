"""Subjects of audits: a Python function, a file's function, a command, a loopback endpoint, a mechanism."""

import http.client
import importlib
import importlib.util
import ipaddress
import json
import math
import os
import selectors
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, final, runtime_checkable

import numpy as np

from hubbub.audit.outcomes import Failure, Outcomes
from hubbub.errors import EngineFailed, HubbubError, InvalidInput, Refused
from hubbub.mechanisms import Mechanism
from hubbub.noise import bernoulli

__all__ = [
    "CommandSubject",
    "EndpointSubject",
    "FunctionSubject",
    "MechanismSubject",
    "Subject",
    "TimedSubject",
    "draw_both",
    "load_function",
    "make_subject",
]

_TIMEOUT = 60.0
_MAX_ANSWER = 2**20
"""Bytes of an answer of a command or an endpoint; a longer one is a failure."""


class Subject(Protocol):
    """Something that answers on a database, as often as it is asked."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    def draw(self, database: Any, count: int) -> Outcomes:
        """Return `count` answers on a database."""
        ...


@runtime_checkable
class TimedSubject(Subject, Protocol):
    """A subject that may say how long each answer took."""

    @property
    def is_timed(self) -> bool:
        """True if its outcomes have times."""
        ...

    def draw_each(self, databases: Sequence[Any]) -> Outcomes:
        """Return one answer on each database, in this order."""
        ...


def draw_both(subject: Subject, x: Any, x_prime: Any, count: int) -> tuple[Outcomes, Outcomes]:
    """Return answers on two databases: `count` on each, or about as many if they are timed.

    Guarantee: if times are looked at, a fair coin says of each answer which database it is on, so that load,
        caches and clocks that drift while it is drawn are the same for both.
    Proof: docs/proofs/sequential-audit.md
    """
    if isinstance(subject, TimedSubject) and subject.is_timed:
        on_x = np.asarray(bernoulli(0.5, size=2 * count), dtype=bool)
        outcomes = subject.draw_each([x if coin else x_prime for coin in on_x.tolist()])
        return outcomes.pick(on_x), outcomes.pick(~on_x)
    outcomes_x, outcomes_y = (subject.draw(database, count).without_times() for database in (x, x_prime))
    if len(outcomes_x) != count or len(outcomes_y) != count:
        raise InvalidInput(
            "the subject returned another number of answers than it was asked for",
            why="bets are settled on equally many draws of both inputs",
            fix="return an array with one row for each answer",
        )
    return outcomes_x, outcomes_y


@dataclass(frozen=True)
class FunctionSubject:
    """A function of a database. An exception is an answer too.

    With a `batch` attribute, or with `batch=True`, it is called once as function(database, count) and returns
    `count` independent answers.
    """

    function: Callable[..., Any]
    name: str = "function"
    times: bool = False
    """Measure how long each answer takes. A batch is not timed."""
    batch: bool = False

    @property
    def is_timed(self) -> bool:
        """True if each answer is timed."""
        return self.times and not self.batch

    def draw(self, database: Any, count: int) -> Outcomes:
        """Call the function on its own copy of the database, `count` times."""
        if self.batch:
            return Outcomes.of(self.function(_copy(database), count))
        return self.draw_each([database] * count)

    def draw_each(self, databases: Sequence[Any]) -> Outcomes:
        """Call the function on its own copy of each database."""
        answers, seconds = [], np.empty(len(databases))
        for place, database in enumerate(databases):
            copy = _copy(database)
            start = time.perf_counter()
            try:
                answers.append(self.function(copy))
            except Exception as problem:  # noqa: BLE001 - whatever it raises is what an attacker sees
                answers.append(Failure(type(problem).__name__))
            seconds[place] = time.perf_counter() - start
        return Outcomes.of(answers, seconds if self.times else None)


def _copy(database: Any) -> Any:
    return list(database) if isinstance(database, list) else database


class _RemoteSubject(ABC):
    """Abstract: answers one by one, on this machine but outside this process."""

    times: bool
    """Measure how long each answer takes."""

    @property
    def is_timed(self) -> bool:
        """True if each answer is timed."""
        return self.times

    def draw(self, database: Any, count: int) -> Outcomes:
        """Ask `count` times; a failure is an answer too."""
        return self.draw_each([database] * count)

    @abstractmethod
    def draw_each(self, databases: Sequence[Any]) -> Outcomes:
        """Ask once on each database."""


@final
@dataclass(frozen=True)
class CommandSubject(_RemoteSubject):
    """A command that reads a database on its standard input and prints an answer."""

    command: tuple[str, ...]
    times: bool = False

    @property
    def name(self) -> str:
        """The command as it was typed."""
        return shlex.join(self.command)

    def draw_each(self, databases: Sequence[Any]) -> Outcomes:
        """Run the command on each database; a failure's exit code is its answer."""
        answers, seconds = [], np.empty(len(databases))
        for place, database in enumerate(databases):
            with tempfile.TemporaryFile() as rows:
                rows.write(_write_database(database).encode("utf-8", "replace"))
                rows.seek(0)
                start = time.perf_counter()
                answers.append(self._answer(rows))
                seconds[place] = time.perf_counter() - start
        return Outcomes.of(answers, seconds if self.times else None)

    def _answer(self, rows: IO[bytes]) -> Any:
        try:
            process = subprocess.Popen(  # noqa: S603 - the caller's own command
                self.command, stdin=rows, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except (OSError, ValueError, IndexError):
            raise InvalidInput(
                "the command cannot be run",
                why="there is nothing to audit",
                fix="pass the full path of a program that may be executed",
            ) from None
        with process:
            assert process.stdout is not None
            try:
                printed = _read_until(process.stdout, time.monotonic() + _TIMEOUT)
                code = process.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                return Failure("timeout")
            except _TooLongError:
                return Failure("an answer that is too long")
            finally:
                process.kill()
        return Failure(f"exit code {code}") if code else _parse_answer(printed.decode("utf-8", "replace"))


class _TooLongError(Exception):
    """A command printed more than an audit reads."""


def _read_until(pipe: IO[bytes], deadline: float) -> bytes:
    """Read what a command prints, but not for ever and not without end."""
    printed = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while ready.select(max(0.0, deadline - time.monotonic())):
            part = os.read(pipe.fileno(), 65_536)
            if not part:
                return bytes(printed)
            printed += part
            if len(printed) > _MAX_ANSWER:
                raise _TooLongError
    raise subprocess.TimeoutExpired("", _TIMEOUT)


@final
@dataclass(frozen=True)
class EndpointSubject(_RemoteSubject):
    """An HTTP endpoint on this machine: a database is posted as JSON, the body is the answer."""

    url: str
    times: bool = False

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            is_here = parts.scheme == "http" and _is_loopback(parts.hostname) and parts.port != 0
        except ValueError:  # a port above 65535, brackets that do not close
            is_here = False
        if not is_here:
            raise Refused(
                "the endpoint is not on this machine",
                why="an audit sends thousands of requests, which others did not agree to",
                fix="audit a service at http://127.0.0.1:PORT/PATH, or forward its port",
            )

    @property
    def name(self) -> str:
        """The address."""
        return self.url

    def draw_each(self, databases: Sequence[Any]) -> Outcomes:
        """Post each database on one connection; another status than 200 is an answer too."""
        parts = urllib.parse.urlsplit(self.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=_TIMEOUT)
        answers: list[Any] = []
        seconds = np.empty(len(databases))
        try:
            for place, database in enumerate(databases):
                body = json.dumps(database, default=str)
                start = time.perf_counter()
                connection.request("POST", path, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                text = response.read(_MAX_ANSWER + 1)
                if len(text) > _MAX_ANSWER:
                    connection.close()  # the next request opens another one
                    answers.append(Failure("an answer that is too long"))
                elif response.status == 200:
                    answers.append(_parse_answer(text.decode("utf-8", "replace")))
                else:
                    answers.append(Failure(f"status {response.status}"))
                seconds[place] = time.perf_counter() - start
        except (OSError, http.client.HTTPException):
            raise EngineFailed(
                "the endpoint does not answer", why="there is nothing to audit", fix="start the service"
            ) from None
        finally:
            connection.close()
        return Outcomes.of(answers, seconds if self.times else None)


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class MechanismSubject:
    """A mechanism of hubbub, with a query that makes its exact input from a database: by default the sum."""

    mechanism: Mechanism
    query: Callable[[Any], Any] | None = None

    @property
    def name(self) -> str:
        """The mechanism in words."""
        return f"{self.mechanism}"

    def draw(self, database: Any, count: int) -> Outcomes:
        """Release `count` times by the batch door."""
        exact = self.query(database) if self.query is not None else _sum(database, self.mechanism)
        try:
            return Outcomes.of(self.mechanism.release_many(exact, count).value)
        except HubbubError as problem:
            return Outcomes.of([Failure(type(problem).__name__)] * count)


def _sum(database: Any, mechanism: Mechanism) -> Any:
    total = math.fsum(database)
    return total if getattr(mechanism, "grid", None) is not None else int(total)


def make_subject(subject: Any, *, times: bool = False, batch: bool = False) -> Subject:
    """Make a subject of a function, a mechanism, or anything that already is one."""
    if isinstance(subject, Mechanism):
        return MechanismSubject(subject)
    if hasattr(subject, "draw"):
        target: Subject = subject
        return target
    if callable(subject):
        name = getattr(subject, "__qualname__", type(subject).__name__)
        is_batch = batch or bool(getattr(subject, "batch", False))
        return FunctionSubject(subject, name, times, is_batch)
    raise InvalidInput(
        "the subject cannot be called",
        why="an audit asks it for answers",
        fix="pass a function of a database, or a Mechanism",
    )


def load_function(address: str) -> Callable[..., Any]:
    """Return the function at `module:function` or `file.py:function`."""
    where, colon, name = address.rpartition(":")
    if not colon or not where or not name:
        raise _cannot_load("it has no function's name", "pass module:function or file.py:function")
    try:
        if where.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(where).stem, where)
            if spec is None or spec.loader is None or not Path(where).is_file():
                raise _cannot_load("there is no such file", "pass the path of a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(spec.name, module)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        target = module
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError):
        raise _cannot_load("the module or the function is missing", "check both names") from None
    if not callable(target) and not isinstance(target, Mechanism):
        raise _cannot_load("it is not a function", "name a function of a database")
    return target  # type: ignore[return-value]


def _cannot_load(why: str, fix: str) -> InvalidInput:
    return InvalidInput("the subject cannot be loaded", why=why, fix=fix)


def _write_database(database: Any) -> str:
    """Write a list with one row per line, and anything else as JSON."""
    if isinstance(database, list) and all(isinstance(row, (int, float, str)) for row in database):
        return "".join(f"{row}\n" for row in database)
    return json.dumps(database, default=str) + "\n"


def _parse_answer(text: str) -> Any:
    stripped = text.strip()
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        pass
    try:
        return float(stripped)
    except ValueError:
        return stripped
