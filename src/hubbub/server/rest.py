"""The REST interface, `/api/v1`: plan, run, history, budget, datasets, label, tokens.

`Authorization: Bearer TOKEN`, never a token in an address. No cookie is read here, so no other site can ask
on somebody's behalf. Answers are JSON, CSV, Parquet, Arrow or SVG, as `Accept` says.
"""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hubbub.accounting.codec import encode_cell
from hubbub.accounting.serialization import encode_loss
from hubbub.errors import AccessDenied, HubbubError, InvalidInput
from hubbub.server.openapi import describe_api
from hubbub.server.requests import read_json
from hubbub.server.service import Service
from hubbub.server.service_types import Answer, PlanReport, Principal, Question, Role, Token
from hubbub.sql.result import Result

__all__ = ["answer_document", "make_routes", "plan_document", "render_result", "to_plain"]

_PREFIX = "/api/v1"
FORMATS = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.apache.arrow.stream": "arrow",
    "image/svg+xml": "svg",
}
"""Formats of an answer, by media type."""
_FEW_ROWS = 200
Handler = Callable[[Request, Principal], Awaitable[Response]]


def make_routes(service: Service) -> list[Route]:
    """Return the routes of the REST interface."""
    door = _Rest(service)
    dataset = f"{_PREFIX}/datasets/{{dataset}}"
    table: list[tuple[str, str, Handler]] = [
        ("GET", f"{_PREFIX}/datasets", door.datasets),
        ("GET", f"{_PREFIX}/functions", door.functions),
        ("GET", dataset, door.describe),
        ("POST", f"{dataset}/plan", door.plan),
        ("POST", f"{dataset}/run", door.run),
        ("GET", f"{dataset}/history", door.history),
        ("GET", f"{dataset}/history/{{entry:int}}", door.stored_answer),
        ("GET", f"{dataset}/budget", door.budget),
        ("GET", f"{dataset}/label", door.label),
        ("GET", f"{dataset}/publications", door.publications),
        ("GET", f"{dataset}/publications/{{entry:int}}", door.publication),
        ("GET", f"{_PREFIX}/tokens", door.tokens),
        ("POST", f"{_PREFIX}/tokens", door.make_token),
        ("DELETE", f"{_PREFIX}/tokens/{{token_id}}", door.revoke_token),
    ]
    # One route for each address, so that another method is answered with 405.
    handlers: dict[str, dict[str, Handler]] = {}
    for method, path, handler in table:
        handlers.setdefault(path, {})[method] = handler
    routes = [
        Route(path, door.dispatch(by_method), methods=list(by_method)) for path, by_method in handlers.items()
    ]
    return [Route(f"{_PREFIX}/openapi.json", door.openapi, methods=["GET"]), *routes]


class _Rest:
    def __init__(self, service: Service) -> None:
        self._service = service

    def dispatch(self, by_method: dict[str, Handler]) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that signs in whoever asks, and calls the handler of the method."""

        async def endpoint(request: Request) -> Response:
            handler = by_method["GET" if request.method == "HEAD" else request.method]
            return await handler(request, await self._sign_in(request))

        return endpoint

    async def _sign_in(self, request: Request) -> Principal:
        stated = request.headers.getlist("authorization")
        if not stated:
            return Principal.anonymous()
        scheme, _, secret = stated[0].partition(" ")
        source = request.client.host if request.client is not None else ""
        auth, call = self._service.auth, self._service.call
        if len(stated) == 1 and scheme.lower() == "bearer":
            return await call(auth.sign_in_with_token, secret.strip(), source)
        # A password makes and revokes tokens, and is of no other use here.
        is_about_tokens = f"{request.url.path}/".startswith(f"{_PREFIX}/tokens/")
        if len(stated) == 1 and scheme.lower() == "basic" and is_about_tokens:
            try:
                user, _, password = base64.b64decode(secret, validate=True).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                user, password = "", ""
            return await call(auth.sign_in, user, password, source)
        raise AccessDenied(
            "the authorization is not a bearer token", why="programs identify themselves by tokens",
            fix="send Authorization: Bearer TOKEN", parameter="authorization",
        )  # fmt: skip

    # What is there

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(describe_api())

    async def datasets(self, _: Request, principal: Principal) -> Response:
        _require_user(principal)
        summaries = await self._service.call(self._service.datasets, principal)
        return JSONResponse({"datasets": [to_plain(asdict(each)) for each in summaries]})

    async def functions(self, _: Request, principal: Principal) -> Response:
        _require_user(principal)
        entries = await self._service.call(self._service.functions)
        return JSONResponse({"functions": [to_plain(asdict(each)) for each in entries]})

    async def describe(self, request: Request, principal: Principal) -> Response:
        description = await self._call_for(self._service.describe, request, principal)
        return JSONResponse(to_plain(asdict(description)))

    # Asking

    async def plan(self, request: Request, principal: Principal) -> Response:
        question, _ = await _read_question(request, principal)
        report = await self._call_for(self._service.plan, request, principal, question)
        return JSONResponse(plan_document(report))

    async def run(self, request: Request, principal: Principal) -> Response:
        question, again = await _read_question(request, principal)
        form = _choose_format(request)
        answer = await self._service.ask(
            principal,
            request.path_params["dataset"],
            question,
            again=again,
            idempotency_key=request.headers.get("idempotency-key"),
        )
        if len(answer.result) <= _FEW_ROWS:
            return _render_answer(answer, form)  # a thread would take longer to wake up
        return await self._service.call(_render_answer, answer, form)

    async def history(self, request: Request, principal: Principal) -> Response:
        before = _read_integer(request, "before", None, 1, 1 << 62)
        limit = _read_integer(request, "limit", 100, 1, 1000)
        assert limit is not None
        _require_user(principal)
        items = await self._service.call(
            self._service.history, principal, request.path_params["dataset"], before=before, limit=limit
        )
        listed = []
        for item in items:
            stated = None if item.question is None else item.question.to_dict()
            listed.append({**to_plain(asdict(item)), "question": stated})
        return JSONResponse({"history": listed})

    async def stored_answer(self, request: Request, principal: Principal) -> Response:
        form = _choose_format(request)
        answer = await self._call_for(
            self._service.stored_answer, request, principal, int(request.path_params["entry"])
        )
        return await self._service.call(_render_answer, answer, form)

    async def budget(self, request: Request, principal: Principal) -> Response:
        return JSONResponse(to_plain(asdict(await self._call_for(self._service.budget, request, principal))))

    async def label(self, request: Request, principal: Principal) -> Response:
        facts = await self._service.call(self._service.label, principal, request.path_params["dataset"])
        return JSONResponse(to_plain(facts))

    async def publications(self, request: Request, principal: Principal) -> Response:
        every = await self._service.call(
            self._service.library.read, principal, request.path_params["dataset"]
        )
        listed = [
            {"entry": each.entry, "title": each.title, "sql": each.sql, "timestamp": each.timestamp}
            for each in every
        ]
        return JSONResponse({"publications": listed})

    async def publication(self, request: Request, principal: Principal) -> Response:
        form = _choose_format(request)
        dataset, entry = request.path_params["dataset"], int(request.path_params["entry"])
        release = await self._service.call(self._service.library.read_one, principal, dataset, entry)
        return await self._service.call(render_result, release.result, form)

    # Tokens

    async def tokens(self, _: Request, principal: Principal) -> Response:
        _require_user(principal)
        tokens = await self._service.call(self._service.auth.own_tokens, principal)
        return JSONResponse({"tokens": [_token_document(each) for each in tokens]})

    async def make_token(self, request: Request, principal: Principal) -> Response:
        _require_user(principal)
        stated = _TokenRequest.read(await read_json(request))
        token, secret = await self._service.call(self._service.auth.make_token, principal, **stated)
        return JSONResponse({**_token_document(token), "secret": secret}, 201)

    async def revoke_token(self, request: Request, principal: Principal) -> Response:
        _require_user(principal)
        token_id = request.path_params["token_id"]
        await self._service.call(self._service.auth.revoke_own_token, principal, token_id)
        return Response(status_code=204)

    async def _call_for(
        self, method: Callable[..., Any], request: Request, principal: Principal, *arguments: Any
    ) -> Any:
        _require_user(principal)
        return await self._service.call(method, principal, request.path_params["dataset"], *arguments)


def _require_user(principal: Principal) -> None:
    if not principal.user:
        raise AccessDenied(
            "nobody is signed in", why="datasets are for people who may use them",
            fix="send Authorization: Bearer TOKEN", parameter="authorization",
        )  # fmt: skip


# Reading requests


async def _read_question(request: Request, principal: Principal) -> tuple[Question, bool]:
    _require_user(principal)
    stated = await read_json(request)
    again = stated.pop("again", False) if isinstance(stated, dict) else False
    if not isinstance(again, bool):
        raise InvalidInput(
            "{again} is not true or false",
            why="it is a yes-or-no setting",
            fix="pass true or false",
            parameter="again",
        )
    return Question.from_dict(stated), again


def _read_integer(request: Request, name: str, default: int | None, low: int, high: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not low <= int(text) <= high:
        raise InvalidInput(
            f"{{{name}}} is not a number from {low} to {high}", why="it is a position in a list",
            fix="pass such a number", parameter=name,
        )  # fmt: skip
    return int(text)


class _TokenRequest:
    """The fields of a request for a token."""

    _FIELDS = frozenset({"name", "datasets", "role", "epsilon", "days"})

    @classmethod
    def read(cls, stated: Any) -> dict[str, Any]:
        """Return the arguments of `Auth.make_token`."""
        problem = InvalidInput(
            "the request for a token is not understood", why="unknown entries and other types are refused",
            fix='send {"name": "notebook", "datasets": ["visits"], "epsilon": "0.5", "days": 30}',
            parameter="body",
        )  # fmt: skip
        if not isinstance(stated, dict) or not set(stated) <= cls._FIELDS or "name" not in stated:
            raise problem
        try:
            out: dict[str, Any] = {"name": _text(stated["name"])}
            if stated.get("datasets") is not None:
                out["datasets"] = tuple(_text(each) for each in stated["datasets"])
            if stated.get("role") is not None:
                out["role"] = Role(stated["role"])
            if stated.get("epsilon") is not None:
                out["epsilon"] = str(stated["epsilon"])
            if stated.get("days") is not None:
                out["days"] = float(stated["days"])
        except (TypeError, ValueError, OverflowError):
            raise problem from None
        return out


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 100 or "," in value or not value.isprintable():
        raise ValueError
    return value


def _choose_format(request: Request) -> str:
    """The format that `Accept` names first; JSON for anything."""
    accept = request.headers.get("accept", "*/*")
    for part in accept.split(","):
        media, _, _ = part.partition(";")
        if media.strip().lower() in {"*/*", "application/*"}:
            return "json"
        form = FORMATS.get(media.strip().lower())
        if form is not None:
            return form
    raise HTTPException(406)


# Documents


def plan_document(report: PlanReport) -> dict[str, Any]:
    """Return a plan as JSON."""
    names = (
        "dataset",
        "epsilon",
        "delta",
        "errors",
        "notes",
        "text",
        "explanation",
        "deadline",
        "count_more",
    )
    return {
        **{name: to_plain(getattr(report, name)) for name in names},
        "is_asked": report.is_asked,
        "is_keyed": report.is_keyed,
        "is_top": report.is_top,
        "question": report.question.to_dict(),
        "columns": [to_plain(asdict(column)) for column in report.columns],
        "loss": encode_loss(report.loss),
        "label": to_plain(report.label),
    }


def answer_document(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON, with its table, its label and its cost."""
    return {
        "dataset": answer.dataset,
        "sql": answer.sql,
        "entry": answer.entry,
        "timestamp": answer.timestamp,
        "is_new": answer.is_new,
        "loss": encode_loss(answer.loss),
        "cost": str(answer.loss),
        "result": json.loads(answer.result.to_json()),
    }


def _render_answer(answer: Answer, form: str) -> Response:
    headers = {"hubbub-entry": str(answer.entry), "hubbub-new": "true" if answer.is_new else "false"}
    if form == "json":
        return JSONResponse(answer_document(answer), headers=headers)
    response = render_result(answer.result, form)
    response.headers.update(headers)
    return response


def render_result(result: Result, form: str) -> Response:
    """Return a released table in a format of `FORMATS`."""
    media = next(media for media, each in FORMATS.items() if each == form)
    if form == "json":
        return JSONResponse(json.loads(result.to_json()))
    if form == "csv":
        return Response(result.to_csv(), media_type=f"{media}; charset=utf-8")
    if form == "svg":
        return Response(result.svg(), media_type=media)
    if form == "arrow":
        return Response(_arrow_stream(result), media_type=media)
    with TemporaryDirectory(prefix="hubbub-") as folder:
        path = Path(folder) / "answer.parquet"
        result.relation().write_parquet(str(path))
        return Response(path.read_bytes(), media_type=media)


def _arrow_stream(result: Result) -> bytes:
    try:
        import pyarrow as pa
    except ImportError:
        raise HTTPException(406) from None
    sink = pa.BufferOutputStream()
    table = result.to_arrow()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _token_document(token: Token) -> dict[str, Any]:
    return dict(to_plain(asdict(token)))


def to_plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return encode_cell(value)
    if isinstance(value, HubbubError):
        return str(value)
    return encode_cell(value) if hasattr(value, "isoformat") else str(value)
