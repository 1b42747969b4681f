"""`hubbub.connect`: a dataset that somebody else's server holds, with the interface of `hubbub.open`.

Plans and answers are the server's: rows, noise and budget stay in its process. Needs nothing that hubbub does
not need itself.
"""

import http.client
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self
from urllib.parse import quote, urlsplit

from hubbub import errors
from hubbub.accounting import PrivacyLoss
from hubbub.accounting.budget import refuse_copy
from hubbub.accounting.codec import canonical_json
from hubbub.accounting.serialization import decode_loss
from hubbub.engines.schema import Kind, Table
from hubbub.errors import AccessDenied, EngineFailed, HubbubError, InvalidInput, Unavailable
from hubbub.escaping import escape
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import Number, parse_rational
from hubbub.release import Release
from hubbub.sql.query_builder import QueryBuilder
from hubbub.sql.result import Result
from hubbub.unit import Neighbours, Unit

__all__ = ["RemoteBudget", "RemoteDataset", "RemotePlan", "connect"]

_KINDS: dict[str, type[HubbubError]] = {
    "access_denied": errors.AccessDenied,
    "budget_exceeded": errors.BudgetExceeded,
    "conflict": errors.InvalidInput,
    "engine_failed": errors.EngineFailed,
    "halted": errors.Halted,
    "invalid_input": errors.InvalidInput,
    "ledger_failed": errors.LedgerFailed,
    "not_found": errors.AccessDenied,
    "not_signed_in": errors.AccessDenied,
    "refused": errors.Refused,
    "too_many_requests": errors.Unavailable,
    "unavailable": errors.Unavailable,
    "unsupported": errors.Unsupported,
}
_ATTEMPTS = 3
_SECONDS = 60.0


def connect(
    url: str,
    *,
    token: str | None = None,
    dataset: str | None = None,
    certificate: str | Path | None = None,
) -> "RemoteDataset":
    """Connect to a dataset of a `hubbub serve`, as an analyst or an owner.

    Args:
        url: The server's address, which may end in the dataset's name: `https://dp.example/visits`.
        token: A token, made on the server's page or by `hubbub user token`; `HUBBUB_TOKEN` if omitted.
        dataset: The dataset's name, unless the address has it, or there is one only.
        certificate: The file of a certificate to trust, such as the server's own; `HUBBUB_CERTIFICATE` if
            omitted, or else the system's.
    """
    parts = urlsplit(str(url))
    is_local = parts.hostname in {"localhost", "127.0.0.1", "::1"}
    if parts.hostname is None or parts.scheme not in ({"https", "http"} if is_local else {"https"}):
        raise InvalidInput(
            "the address of the server is not https://…", why="the token and the answers would be readable",
            fix="write it as https://dp.example:8443/visits", parameter="url",
        )  # fmt: skip
    secret = token or os.environ.get("HUBBUB_TOKEN")
    if not secret:
        raise InvalidInput(
            "no {token} is given", why="it identifies you",
            fix="pass a {token}, or set HUBBUB_TOKEN", parameter="token",
        )  # fmt: skip
    trust = certificate or os.environ.get("HUBBUB_CERTIFICATE")
    link = _Link(parts.scheme, parts.hostname, parts.port, secret, None if trust is None else str(trust))
    try:
        name = dataset or parts.path.strip("/") or _find_dataset(link)
        return RemoteDataset(link, name, link.call("GET", f"/datasets/{quote(name, safe='')}"))
    except BaseException:
        link.close()
        raise


def _find_dataset(link: "_Link") -> str:
    """The name of the only dataset."""
    names = [str(each["name"]) for each in link.call("GET", "/datasets")["datasets"]]
    if len(names) != 1:
        raise InvalidInput(
            "no {dataset} is named, and there are none or several", why="each has a budget of its own",
            fix=f"name one of: {', '.join(names)}", parameter="dataset",
        )  # fmt: skip
    return names[0]


class _Link:
    """A connection to the server; one request at a time."""

    def __init__(self, scheme: str, host: str, port: int | None, token: str, trust: str | None) -> None:
        self._scheme, self._host, self._port, self._token = scheme, host, port, token
        self._lock = threading.Lock()
        self._open: http.client.HTTPConnection | None = None
        try:
            self._context = ssl.create_default_context(cafile=trust)
        except (OSError, ssl.SSLError):
            raise InvalidInput(
                "the {certificate} cannot be read", why="it says which server is trusted",
                fix="pass the path of a PEM file", parameter="certificate",
            ) from None  # fmt: skip

    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, seconds: float = 0
    ) -> Any:
        """Send a request; what the server refuses is raised as it raised it.

        If an answer is lost on the way, the request is sent again: the same question is charged once.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        text = None
        if body is not None:
            text = json.dumps(body, ensure_ascii=True).encode()
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        with self._lock:
            for attempt in range(_ATTEMPTS):
                try:
                    status, content = self._send(method, f"/api/v1{path}", text, headers, seconds + _SECONDS)
                    break
                except (OSError, http.client.HTTPException) as problem:
                    self.close()
                    if isinstance(problem, ssl.SSLCertVerificationError) or attempt == _ATTEMPTS - 1:
                        raise _unreachable(problem) from None
        return _read_answer(status, content)

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> tuple[int, bytes]:
        if self._open is None:
            self._open = (
                http.client.HTTPSConnection(self._host, self._port, context=self._context)
                if self._scheme == "https"
                else http.client.HTTPConnection(self._host, self._port)
            )
        self._open.timeout = seconds
        if self._open.sock is not None:
            self._open.sock.settimeout(seconds)
        self._open.request(method, path, body, headers)
        answer = self._open.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


def _read_answer(status: int, content: bytes) -> Any:
    try:
        answer = json.loads(content, parse_float=float)
        error = answer.get("error") if status >= 400 else None
        if error is not None:
            kind = _KINDS.get(error["code"], EngineFailed)
            what, why, fix = error.get("templates") or (error["what"], error["why"], error["fix"])
            raise kind(str(what), why=str(why), fix=str(fix), parameter=error["parameter"])
        if status >= 400:
            raise ValueError  # noqa: TRY301 - said below, with all else that may be wrong
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        if isinstance(problem, HubbubError):
            raise
        raise EngineFailed(
            "the server's answer cannot be understood", why="it may be another program, or another version",
            fix="check the address",
        ) from None  # fmt: skip
    return answer


def _unreachable(problem: Exception) -> HubbubError:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return AccessDenied(
            "the server's certificate is not trusted", why="somebody else may pose as the server",
            fix="pass the server's own as {certificate}, or set HUBBUB_CERTIFICATE", parameter="certificate",
        )  # fmt: skip
    return Unavailable(
        "the server cannot be reached",
        why="the connection failed",
        fix="check the address, and try again later",
    )


@dataclass(frozen=True)
class _Output:
    """A column of the answer to a plan."""

    name: str
    key: str | None
    """The column's own name if it is a group key."""


@dataclass(frozen=True)
class _Query:
    """What is shown of a query."""

    text: str
    outputs: tuple[_Output, ...]
    is_keyed: bool
    is_top: bool

    @property
    def keys(self) -> tuple[_Output, ...]:
        return tuple(each for each in self.outputs if each.key is not None)


@dataclass(frozen=True, repr=False)
class RemotePlan:
    """A plan that a server made: what a query will cost, and how large its errors will be."""

    query: _Query
    epsilon: Fraction
    delta: Fraction
    loss: PrivacyLoss
    unit: Unit
    deadline: float
    """The answer leaves this many seconds after the query starts."""
    count_more: int | None
    """About how many such queries the budget allows."""
    is_charged: bool
    """True if it was charged before: to those who paid, asking is free."""
    request: Mapping[str, Any] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)
    runner: Callable[["RemotePlan"], Release] | None = field(default=None, compare=False)

    error_kind: ClassVar[str] = "none"

    def run(self) -> "Release[Result]":
        """Charge, run and release, through the dataset that made the plan."""
        assert self.runner is not None
        return self.runner(self)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """Refused: each answer of a table has an interval of its own."""
        del confidence, coordinates
        raise InvalidInput(
            "a table has no single error", why="each answer has its own", fix="see its intervals"
        )

    @property
    def errors(self) -> tuple[tuple[_Output, str], ...]:
        """For each output that is no group key, its expected error in words."""
        return tuple((_Output(name, None), text) for name, text in self.document["errors"].items())

    def label(self) -> dict[str, Any]:
        """The protection and its cost."""
        return dict(self.document["label"])

    def to_json(self) -> str:
        """The label, for storage."""
        return canonical_json(self.label())

    def notes(self) -> list[str]:
        """What else a reader should know."""
        return [f"  {note}" for note in self.document["notes"]]

    def explain(self) -> str:
        """Sensitivities, mechanisms, the engine's SQL, and the proofs behind them."""
        return str(self.document["explanation"])

    def __str__(self) -> str:
        return str(self.document["text"])

    def __repr__(self) -> str:
        return escape(f"RemotePlan(ε = {self.document['epsilon']} for {self.unit})")


@dataclass(frozen=True)
class RemoteBudget:
    """The remaining budget, according to the server: the largest cost of one more query."""

    epsilon: Fraction
    delta: Fraction
    spent_epsilon: Fraction
    """An upper bound."""


class RemoteDataset:
    """A dataset of a server; made by `hubbub.connect`, and used like one of `hubbub.open`."""

    has_ledger = True

    def __init__(self, link: _Link, name: str, description: Mapping[str, Any]) -> None:
        self._link = link
        self._path = f"/datasets/{quote(name, safe='')}"
        self.name = name
        self.description = description
        """The declarations: tables, unit, bounds, keys, classes of deadlines."""
        self.version = str(description["version"])
        key = description["unit_column"]
        self.unit = Unit(key, Neighbours(description["neighbours"]))
        self.tables = {each["name"]: _read_table(each) for each in description["tables"]}

    def sql(
        self,
        text: str,
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        error: Mapping[str, Number] | None = None,
        rows_per_unit: int | None = None,
        groups_per_unit: int | None = None,
        rows_per_group: int | None = None,
        bounds: Mapping[str, Any] | None = None,
        keys: Mapping[str, Iterable[Any]] | None = None,
        confidence: Number = 0.95,
        bounding_report: bool = False,
        intervals: bool = True,
        allow_large_epsilon: bool = False,
        deadline: float | None = None,
    ) -> RemotePlan:
        """Plan a query on the server; nothing is read or spent.

        Args: as in `Dataset.sql`, and
            deadline: seconds after which the answer is wanted, where the plan's own class is too short.
        """
        stated = {
            "sql": text,
            "epsilon": _send_number(epsilon, "epsilon"),
            "delta": _send_number(delta, "delta"),
            "error": None
            if error is None
            else {name: _send_number(each, "error") for name, each in error.items()},
            "rows_per_unit": rows_per_unit,
            "groups_per_unit": groups_per_unit,
            "rows_per_group": rows_per_group,
            "bounds": None if bounds is None else {name: _send_bounds(each) for name, each in bounds.items()},
            "keys": None if keys is None else {name: list(each) for name, each in keys.items()},
            "confidence": None if confidence == 0.95 else _send_number(confidence, "confidence"),
            "bounding_report": bounding_report or None,
            "intervals": None if intervals else False,
            "allow_large_epsilon": allow_large_epsilon or None,
            "deadline": deadline,
        }
        request = {name: value for name, value in stated.items() if value is not None}
        document = self._link.call("POST", f"{self._path}/plan", request)
        outputs = tuple(
            _Output(each["name"], each["name"] if each["part"] == "key" else None)
            for each in document["columns"]
            if each["part"] not in {"low", "high"}
        )
        label = document["label"]
        return RemotePlan(
            _Query(text, outputs, bool(document["is_keyed"]), bool(document["is_top"])),
            Fraction(label["epsilon"]),
            Fraction(label["delta"]),
            decode_loss(document["loss"]),
            self.unit,
            float(document["deadline"]),
            document["count_more"],
            bool(document["is_asked"]),
            request,
            document,
            self.run,
        )

    def run(
        self, plan: RemotePlan, progress: Callable[[str], None] = lambda _: None, *, again: bool = False
    ) -> Release[Result]:
        """Charge, run and release on the server; the same query again is free. As `Dataset.run`."""
        if plan.runner != self.run:
            raise InvalidInput(
                "the plan was made by another dataset",
                why="its noise would protect another unit, or too little",
                fix="plan it again with this dataset",
            )  # fmt: skip
        progress("waiting for the server")
        body = {**plan.request, **({"again": True} if again else {})}
        key = random_bytes(16).hex()
        answer = self._link.call("POST", f"{self._path}/run", body, key=key, seconds=plan.deadline)
        result = Result.from_json(json.dumps(answer["result"]))
        return Release(
            result, decode_loss(answer["loss"]), plan, self.unit, user_asserted=False,
            coordinates=max(1, len(result)), post_processed=True,
        )  # fmt: skip

    def count_more(self, plan: RemotePlan) -> int | None:
        """About how many more queries like this one the budget allows."""
        return plan.count_more

    def is_answered(self, plan: RemotePlan) -> bool:
        """Return whether the server has one's answer to this query, so that it costs nothing more."""
        return plan.is_charged

    def exact(self, plan: RemotePlan) -> NoReturn:
        """Refused: exact answers are for the owner, beside the data."""
        del plan
        raise errors.Refused(
            "a server is asked for exact answers", why="only the owner may see them",
            fix="open the data itself, on the machine that has it",
        )  # fmt: skip

    @property
    def account(self) -> "RemoteDataset":
        """The budget is asked for here: `data.account.remaining()`."""
        return self

    def remaining(self) -> RemoteBudget:
        """Return what one more query may cost, and what was spent."""
        budget = self._link.call("GET", f"{self._path}/budget")
        names = ("left_epsilon", "left_delta", "spent_epsilon")
        return RemoteBudget(*(Fraction(budget[name]) for name in names))

    def history(self) -> list[dict[str, Any]]:
        """Return charged questions, the latest first."""
        return list(self._link.call("GET", f"{self._path}/history")["history"])

    def label(self) -> dict[str, Any]:
        """Return the privacy label of the account."""
        return dict(self._link.call("GET", f"{self._path}/label"))

    def table(self, name: str | None = None) -> QueryBuilder:
        """Start a query on this table, or on the first protected one."""
        chosen = name or next(table.name for table in self.tables.values() if not table.is_public)
        return QueryBuilder(self.sql, chosen)

    def where(self, condition: str) -> QueryBuilder:
        """Start a query on the rows that satisfy a condition."""
        return self.table().where(condition)

    def group_by(self, *keys: str, **values: Iterable[Any]) -> QueryBuilder:
        """Start a query by groups; `region=["North", "South"]` names a column with its public keys."""
        return self.table().group_by(*keys, **values)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def __reduce__(self) -> NoReturn:
        refuse_copy("a connection to a server", "connect where it is needed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return escape(f"RemoteDataset({self.name}; {self.unit})")


def _read_table(stated: Mapping[str, Any]) -> Table:
    columns = stated["columns"]
    unit = next((each["name"] for each in columns if each["is_unit"]), None)
    return Table.of(
        stated["name"],
        {each["name"]: Kind(each["kind"]) for each in columns},
        unit=unit,
        bounds={each["name"]: [Decimal(end) for end in each["bounds"]] for each in columns if each["bounds"]},
        is_public=stated["is_public"],
    )


def _send_number(value: Number | None, name: str) -> str | None:
    """An exact number as a text: the server means the same by it."""
    return None if value is None else str(parse_rational(value, name))


def _send_bounds(value: Any) -> Any:
    return value if isinstance(value, str) else [float(end) for end in value]
