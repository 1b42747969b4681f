"""Assistants explore by the Model Context Protocol: under their person's budget, and without a row."""

import asyncio
import json
import os
import sys

import httpx
import pytest
from mcp import Client as ToolClient
from mcp import StdioServerParameters

from hubbub.server.app import make_app
from hubbub.server.assistants import AssistantDoor, make_tool_server
from hubbub.server.service_types import Principal
from server.hospital import BY_REGION, COUNT, Client, make_token, open_hospital, write_hospital

TOOLS = ["ask", "budget", "describe", "history", "plan"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("assisted") / "hospital")
    yield service
    service.close()


def call(service, user, *calls):
    """Call tools as a user, in this process; each result as (is an error, what it says)."""

    async def talk():
        async with ToolClient(make_tool_server(service, lambda _: Principal(user))) as client:
            return [await client.call_tool(name, arguments) for name, arguments in calls]

    return [(each.is_error, each.structured_content or each.content[0].text) for each in asyncio.run(talk())]


def test_tools_say_which_of_them_spend(service):
    async def talk():
        async with ToolClient(make_tool_server(service, lambda _: Principal("ada"))) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(talk())
    assert sorted(tool.name for tool in tools) == TOOLS
    assert {tool.name for tool in tools if not tool.annotations.read_only_hint} == {"ask"}


def test_an_assistant_describes_plans_asks_and_is_charged_once(service):
    question = {"dataset": "visits", "sql": BY_REGION, "epsilon": "0.1"}
    listed, described, plan, first, again, budget, history = (
        value
        for is_error, value in call(
            service,
            "ada",
            ("describe", {}),
            ("describe", {"dataset": "visits"}),
            ("plan", question),
            ("ask", question),
            ("ask", question),
            ("budget", {"dataset": "visits"}),
            ("history", {"dataset": "visits"}),
        )
    )
    assert [each["name"] for each in listed["datasets"]] == ["visits"]
    assert described["unit_column"] == "patient"
    assert plan["epsilon"] == "0.1"
    assert (first["is_new"], again["is_new"]) == (True, False)
    assert first["rows"] == again["rows"]
    assert [row["region"] for row in first["rows"]] == ["North", "South"]
    assert budget["spent_epsilon"] == "0.1"
    assert [each["sql"] for each in history["history"]] == [BY_REGION]


def test_an_error_asked_for_is_turned_into_its_price(service):
    [(is_error, plan)] = call(
        service, "ada", ("plan", {"dataset": "visits", "sql": COUNT, "error": {"n": 20}})
    )
    assert not is_error
    assert 0 < float(plan["epsilon"]) < 1


@pytest.mark.parametrize(
    ("user", "name", "arguments", "words"),
    [
        ("ada", "plan", {"dataset": "visits", "sql": "SELECT * FROM visits", "epsilon": "1"}, "Fix:"),
        ("ada", "ask", {"dataset": "lab", "sql": COUNT, "epsilon": "1"}, "no such dataset"),
        ("rita", "ask", {"dataset": "visits", "sql": COUNT, "epsilon": "1"}, "only an analyst"),
        ("ada", "ask", {"dataset": "visits", "sql": COUNT, "epsilon": "9"}, "does not fit"),
        ("nobody", "budget", {"dataset": "visits"}, "no such dataset"),
    ],
)
def test_refusals_are_errors_in_plain_words(service, user, name, arguments, words):
    [(is_error, text)] = call(service, user, (name, arguments))
    assert is_error
    assert words in text


def test_over_http_a_token_is_needed_and_decides_who_asks(service):
    door = AssistantDoor(service)
    app = make_app(service, door.routes())
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "budget", "arguments": {"dataset": "visits"}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}

    async def send(token):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        signed = headers if token is None else {**headers, "authorization": f"Bearer {token}"}
        async with door.run(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                await client.post("/mcp", json=message, headers={**signed, **each})
                for each in ({}, {"authorization": "Bearer hub_wrong"})
            ]

    own, wrong = asyncio.run(send(make_token(service, "bob")))
    assert wrong.status_code == 401
    assert own.status_code == 200
    assert json.loads(own.json()["result"]["content"][0]["text"])["user"] == "bob"
    assert Client(service).post("/mcp", json=message).status_code == 404  # no door, no address


def test_over_http_nobody_gets_in_without_a_token(service):
    door = AssistantDoor(service)
    app = make_app(service, door.routes())

    async def send():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with door.run(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/mcp", json={})

    assert asyncio.run(send()).status_code == 401


@pytest.mark.slow
def test_hubbub_mcp_speaks_over_stdio(tmp_path):
    from hubbub.server.service import Service
    from hubbub.server.service_types import Role

    config = write_hospital(tmp_path)
    service = Service.open(config)
    service.auth.add_user("olga", "correct horse battery", by="test")
    service.auth.set_role("olga", "visits", Role.OWNER, by="test")
    service.close()
    command = ["-c", "from hubbub.cli import main; main()", "mcp", str(config), "--user", "olga"]
    process = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))

    async def talk():
        async with ToolClient(process) as client:
            return await client.call_tool("ask", {"dataset": "visits", "sql": COUNT, "epsilon": "1"})

    result = asyncio.run(talk())
    assert not result.is_error
    assert abs(result.structured_content["rows"][0]["n"] - 200) < 60
