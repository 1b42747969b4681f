"""The door for assistants: the Model Context Protocol, over HTTP beside the other doors or over stdio.

An assistant gets five tools: describe, plan, ask, budget and history. It asks under the budget of the person
who let it in and sees what she would see: declarations, plans and released answers, never a row. Planning is
free; each charge names its question.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hubbub.errors import AccessDenied, HubbubError
from hubbub.server.requests import error_document
from hubbub.server.rest import answer_document, plan_document, to_plain
from hubbub.server.service import Service
from hubbub.server.service_types import Principal, Question

if TYPE_CHECKING:
    from mcp.server import MCPServer

__all__ = ["AssistantDoor", "make_tool_server"]

_PATH = "/mcp"
_PRINCIPAL = "hubbub.principal"
_INSTRUCTIONS = """\
This server answers SQL questions about protected data with differential privacy. No row is ever returned.
First `describe` a dataset, then `plan` a question: the plan is free and says what the answer costs and how
large its error will be. `ask` charges the budget of the person you work for, once for each new question; the
same question again is free. Ask few and good questions, and name the cost before you ask."""

Dataset = Annotated[str, Field(description="Name of the dataset; see describe without a name.")]
Sql = Annotated[str, Field(description="One SELECT over the declared tables, with aggregates only.")]
Epsilon = Annotated[str | None, Field(description="Price ε of the whole question, such as 0.1.")]
Error = Annotated[
    dict[str, float] | None,
    Field(description="Instead of epsilon: the error of each column that is acceptable, as {'n': 50}."),
]
Delta = Annotated[str | None, Field(description="Additive slack δ, where group keys are not declared.")]


def make_tool_server(service: Service, identify: Callable[[Any], Principal]) -> "MCPServer":
    """Return the protocol's server, with its tools.

    Args:
        service: what all doors call.
        identify: who asks, given the context of a call.

    Guarantee: a tool returns declarations, plans and stored answers only, and errors that hold no data.
    """
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    server = MCPServer("hubbub", instructions=_INSTRUCTIONS, log_level="ERROR")
    free = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    charged = ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )

    async def answer(work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """The result, or an error in plain words; nothing of another exception is passed on."""
        try:
            return await work
        except HubbubError as error:
            fields = error_document(error)["error"]
            raise ToolError(f"{fields['what']}: {fields['why']}. Fix: {fields['fix']}") from None
        except Exception:  # noqa: BLE001 - whatever it is, nobody may read it
            raise ToolError("the request could not be served") from None

    @server.tool(annotations=free)
    async def describe(context: Context, dataset: Dataset = "") -> dict[str, Any]:
        """Describe a dataset: tables, columns, unit, bounds, group keys. Without a name: list them."""

        async def work() -> dict[str, Any]:
            principal = identify(context)
            if not dataset:
                each = await service.call(service.datasets, principal)
                return {"datasets": to_plain([asdict(one) for one in each])}
            return dict(to_plain(asdict(await service.call(service.describe, principal, dataset))))

        return await answer(work())

    @server.tool(annotations=free)
    async def plan(  # noqa: PLR0917 - the protocol passes names
        context: Context,
        dataset: Dataset,
        sql: Sql,
        epsilon: Epsilon = None,
        error: Error = None,
        delta: Delta = None,
    ) -> dict[str, Any]:
        """Say what a question would cost and how large its error would be. Free; no row is read."""

        async def work() -> dict[str, Any]:
            question = _make_question(sql, epsilon, error, delta)
            report = await service.call(service.plan, identify(context), dataset, question)
            return {
                name: value for name, value in plan_document(report).items() if name not in {"loss", "label"}
            }

        return await answer(work())

    @server.tool(annotations=charged)
    async def ask(  # noqa: PLR0917 - the protocol passes names
        context: Context,
        dataset: Dataset,
        sql: Sql,
        epsilon: Epsilon = None,
        error: Error = None,
        delta: Delta = None,
    ) -> dict[str, Any]:
        """Ask a question and spend its ε; the same question again is free. Plan it first."""

        async def work() -> dict[str, Any]:
            question = _make_question(sql, epsilon, error, delta)
            got = await service.ask(identify(context), dataset, question)
            document = answer_document(got)
            rows = to_plain([dict(row) for row in got.result])
            facts = {name: document[name] for name in ("dataset", "sql", "entry", "is_new", "cost")}
            return {**facts, "rows": rows, "text": str(got.result)}

        return await answer(work())

    @server.tool(annotations=free)
    async def budget(context: Context, dataset: Dataset) -> dict[str, Any]:
        """Say what was spent, what is left, and about how many more such questions fit."""

        async def work() -> dict[str, Any]:
            return dict(to_plain(asdict(await service.call(service.budget, identify(context), dataset))))

        return await answer(work())

    @server.tool(annotations=free)
    async def history(context: Context, dataset: Dataset) -> dict[str, Any]:
        """List the questions that were charged; asking one of them again is free."""

        async def work() -> dict[str, Any]:
            items = await service.call(service.history, identify(context), dataset)
            names = ("entry", "timestamp", "sql", "loss", "outcome")
            return {"history": [{name: to_plain(getattr(item, name)) for name in names} for item in items]}

        return await answer(work())

    return server


def _make_question(
    sql: str, epsilon: str | None, error: dict[str, float] | None, delta: str | None
) -> Question:
    stated = {"sql": sql, "epsilon": epsilon, "error": error, "delta": delta}
    return Question.from_dict({name: value for name, value in stated.items() if value is not None})


class AssistantDoor:
    """The protocol over HTTP, at /mcp, for whoever has a token.

    Args:
        service: what all doors call.
    """

    def __init__(self, service: Service) -> None:
        from mcp.server.transport_security import TransportSecuritySettings

        self._service = service
        self._server = make_tool_server(service, _principal_of_request)
        # The application's guard has checked the host's name; each request stands for itself.
        self._app = self._server.streamable_http_app(
            streamable_http_path=_PATH,
            stateless_http=True,
            json_response=True,
            max_request_body_size=service.settings.max_body,
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    def run(self) -> AbstractAsyncContextManager[None]:
        """Serve within this context: requests outside of it fail."""
        return self._server.session_manager.run()

    def routes(self) -> list[Route]:
        """Return the route of the door."""
        return [Route(_PATH, endpoint=_Endpoint(self._service, self._app), methods=["GET", "POST", "DELETE"])]


class _Endpoint:
    """Signs in whoever asks, by a token, before the protocol sees anything."""

    def __init__(self, service: Service, app: Any) -> None:
        self._service = service
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        stated = request.headers.getlist("authorization")
        scheme, _, secret = stated[0].partition(" ") if len(stated) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise AccessDenied(
                "no bearer token is given", why="programs identify themselves by tokens",
                fix="send Authorization: Bearer TOKEN", parameter="authorization",
            )  # fmt: skip
        source = request.client.host if request.client is not None else ""
        sign_in = self._service.auth.sign_in_with_token
        scope[_PRINCIPAL] = await self._service.call(sign_in, secret.strip(), source)
        await self._app(scope, receive, send)


def _principal_of_request(context: Any) -> Principal:
    principal = context.request_context.request.scope.get(_PRINCIPAL)
    return principal if isinstance(principal, Principal) else Principal.anonymous()
