"""A small hospital to serve in tests: an owner, two analysts, a reader, and somebody of another dataset."""

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from hubbub.server.app import make_app
from hubbub.server.service import Service
from hubbub.server.service_types import Role

PASSWORD = "correct horse battery"  # noqa: S105 - of made-up people
COUNT = "SELECT COUNT(*) AS n FROM visits"
BY_REGION = "SELECT region, COUNT(*) AS n FROM visits GROUP BY region"
PEOPLE = {
    "olga": Role.OWNER,
    "omar": Role.OWNER,
    "ada": Role.ANALYST,
    "bob": Role.ANALYST,
    "rita": Role.READER,
}


def write_hospital(
    folder: Path,
    server: str = "",
    *,
    name: str = "visits",
    deadlines: str = "[]",
    slots: int = 1,
    ledger: str | None = None,
    extra_visits: int = 0,
) -> Path:
    """Write a table, and a hubbub.toml that declares it; return the latter."""
    folder.mkdir(exist_ok=True)
    regions = ("North", "South")
    lines = [f"{i // 2},{regions[i % 2]},{20 + i % 60},{i * 7 % 1000}" for i in range(200)]
    lines += [f"9999,North,40,{i % 1000}" for i in range(extra_visits)]
    (folder / f"{name}.csv").write_text("patient,region,age,cost\n" + "\n".join(lines) + "\n")
    file = folder / "hubbub.toml"
    file.write_text(
        f"""
rows_per_unit = 2
ledger = "{ledger or f"{name}.ledger"}"

[budget]
epsilon = 10
delta = 1e-6

[about]
use = "tests"

[server]
scrypt_cost = 10
deadlines = {deadlines}
slots = {slots}
{server}

[tables.{name}]
path = "{name}.csv"
unit = "patient"
types = {{ age = "number", cost = "number" }}
bounds = {{ cost = [0, 1000], age = [0, 120] }}
keys = {{ region = ["North", "South"] }}
"""
    )
    return file


def open_hospital(folder: Path, server: str = "", **options: Any) -> Service:
    """Serve the hospital in this process, with everybody in `PEOPLE`, and a second dataset for "eve"."""
    file = write_hospital(folder, server, **options)
    other = write_hospital(folder / "other", name="lab")
    service = Service.open(file, other)
    for user, role in {**PEOPLE, "eve": Role.ANALYST}.items():
        service.auth.add_user(user, PASSWORD, by="test")
        service.auth.set_role(user, "lab" if user == "eve" else "visits", role, by="test")
    owner = service.auth.sign_in("olga", PASSWORD)
    for analyst in ("ada", "bob"):
        service.administration.grant(owner, "visits", analyst, 2, Decimal("4e-7"))
    return service


class Client:
    """Calls the application in this process; what it logs, raises and returns is looked at by tests."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self.app = make_app(service)
        self.token = token

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if self.token is not None:
            headers.setdefault("authorization", f"Bearer {self.token}")

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


def make_token(service: Service, user: str, **options: Any) -> str:
    """Return the secret of a new token."""
    options.setdefault("role", Role.OWNER)
    return service.auth.make_token(service.auth.sign_in(user, PASSWORD), "test", **options)[1]
