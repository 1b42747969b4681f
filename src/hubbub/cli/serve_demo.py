"""`hubbub serve --demo`: the made-up hospital with an owner, two analysts and a public page."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hubbub.cli.demo import REGIONS, write_visits
from hubbub.cli.terminal import print_line
from hubbub.noise.entropy import random_bytes

if TYPE_CHECKING:
    from hubbub.server.serve import Addresses
    from hubbub.server.service import Service

__all__ = ["open_demo"]

_QUERY = "SELECT region, COUNT(*) AS n FROM visits GROUP BY region"
_CONFIG = """
rows_per_unit = 10
ledger = "visits.ledger"

[budget]
epsilon = 10
delta = 1e-5

[about]
name = "A made-up hospital"
use = "trying hubbub out: nobody was ever in this table"

[server]
public = true
epsilon = 0.1
port = {port}
wire_port = {wire_port}
host = "{host}"

[tables.visits]
path = "visits.parquet"
unit = "patient"
bounds = {{ cost = [0, 5000], age = [0, 100] }}
keys = {{ region = [{regions}] }}
"""


@contextmanager
def open_demo(
    chosen: Mapping[str, str | int | None],
) -> Iterator[tuple["Service", Callable[["Addresses"], None]]]:
    """Make the hospital and its people in a temporary folder; yield the service, and what shows its commands.

    Args:
        chosen: host, port and wire_port, where they were chosen.
    """
    from hubbub.server.service import Service
    from hubbub.server.service_types import Role

    defaults: dict[str, str | int] = {"host": "127.0.0.1", "port": 8443, "wire_port": 5433}
    places = {**defaults, **{name: value for name, value in chosen.items() if value is not None}}
    with TemporaryDirectory(prefix="hubbub-serve-") as name:
        folder = Path(name)
        write_visits(folder / "visits.parquet")
        regions = ", ".join(f'"{region}"' for region in REGIONS)
        file = folder / "hubbub.toml"
        file.write_text(_CONFIG.format(regions=regions, **places), encoding="utf-8")
        service = Service.open(file)
        passwords = {user: random_bytes(12).hex() for user in ("owner", "ada", "bob")}
        for user, password in passwords.items():
            service.auth.add_user(user, password, by="the demo")
            role = Role.OWNER if user == "owner" else Role.ANALYST
            service.auth.set_role(user, "visits", role, by="the demo")
        owner = service.auth.sign_in("owner", passwords["owner"])
        for analyst in ("ada", "bob"):
            service.administration.grant(owner, "visits", analyst, 3, Decimal("4e-6"))
        ada = service.auth.sign_in("ada", passwords["ada"])
        _, token = service.auth.make_token(ada, "the demo", days=1)
        asyncio.run(_publish(service, passwords["owner"]))

        def show(addresses: "Addresses") -> None:
            _show(addresses, passwords, token)

        yield service, show


async def _publish(service: "Service", password: str) -> None:
    from hubbub.server.service_types import Question

    owner = await service.call(service.auth.sign_in, "owner", password)
    question = Question("SELECT region, COUNT(*) AS visits FROM visits GROUP BY region", epsilon=1)
    answer = await service.ask(owner, "visits", question)
    await service.call(service.library.publish, owner, "visits", answer.entry, "Visits by region")


def _show(addresses: "Addresses", passwords: Mapping[str, str], token: str) -> None:
    certificate = addresses.certificate.certificate
    print_line("A made-up hospital is served. Nobody was ever in this table. Try, in another terminal:\n")
    if addresses.wire_port is not None:
        address = f"postgresql://ada:{passwords['ada']}@localhost:{addresses.wire_port}/visits"
        trust = f"sslmode=verify-full&sslrootcert={certificate}"
        print_line(f'psql "{address}?{trust}" -c "{_QUERY}"\n')
    body = f'{{"sql": "{_QUERY}", "epsilon": "0.1"}}'
    print_line(
        f"curl --cacert {certificate} -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' "
        f"-H 'Accept: text/csv' -d '{body}' {addresses.url}/api/v1/datasets/visits/run\n"
    )
    print_line(f"page: {addresses.url}/")
    for user, password in passwords.items():
        print_line(f"  sign in as {user}, password {password}")
    print_line("\nCtrl-C stops it, and everything is deleted.")
