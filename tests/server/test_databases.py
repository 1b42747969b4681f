"""Rows that are in PostgreSQL are served like files: asked, stopped in time, with the ledger beside them."""

import asyncio

import psycopg
import pytest

from hubbub.errors import EngineFailed
from hubbub.server.service import Service
from hubbub.server.service_types import Question, Role
from server.hospital import PASSWORD
from servers import running_server

pytestmark = pytest.mark.long
CONFIG = """
url = "{address}"
ledger = "{address}"
account = "visits"
rows_per_unit = 2
[budget]
epsilon = 10
[server]
scrypt_cost = 10
slots = 2
deadlines = [{deadlines}]
[tables.visits]
unit = "patient"
bounds = {{ age = [0, 120] }}
"""


@pytest.mark.parametrize("deadlines", ["3, 60", "0.05, 60"])
def test_rows_in_postgresql_are_served_until_their_deadline(tmp_path, deadlines):
    with running_server() as database:
        with psycopg.connect(database.address(), autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE visits AS SELECT i / 2 AS patient, i % 100 AS age "
                "FROM generate_series(1, 1500000) AS g(i)"
            )
        file = tmp_path / "hubbub.toml"
        file.write_text(CONFIG.format(address=database.address(), deadlines=deadlines))
        service = Service.open(file)
        try:
            service.auth.add_user("olga", PASSWORD, by="test")
            service.auth.set_role("olga", "visits", Role.OWNER, by="test")
            olga = service.auth.sign_in("olga", PASSWORD)

            def ask(age):
                question = Question(f"SELECT COUNT(*) AS n FROM visits WHERE age > {age}", epsilon=0.1)
                return asyncio.run(service.ask(olga, "visits", question))

            if deadlines.startswith("0.05"):
                with pytest.raises(EngineFailed, match="not finished in time"):
                    ask(10)
                with pytest.raises(EngineFailed, match="not finished in time"):
                    ask(20)  # the engine was stopped, and is used again
            else:
                try:
                    assert ask(10).result["n"][0] > 0
                except EngineFailed as late:  # on a busy machine
                    assert "not finished in time" in str(late)  # noqa: PT017
            assert service.administration.verify_ledger(olga, "visits").ok
        finally:
            service.close()
