"""The SQL of docs/serve-clients.md runs as it stands, and the page lists what there is."""

import re
from pathlib import Path

import pytest

from hubbub import errors
from hubbub.server.pgwire.sqlstates import convert_error
from hubbub.server.pgwire.statements import CopyOut, classify, split_statements
from hubbub.server.pgwire.variables import Variables
from server.hospital import open_hospital
from server.wire import running_listener, url

PAGE = (Path(__file__).parents[2] / "docs" / "serve-clients.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_sql_of_the_page_runs(tmp_path):
    import psycopg

    statements = [
        each for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL) for each in split_statements(block)
    ]
    service = open_hospital(tmp_path / "hospital", "requests_per_minute = 100000")
    with running_listener(service) as port, psycopg.connect(url(port), autocommit=True) as connection:
        for statement in statements:
            if isinstance(classify(statement), CopyOut):
                with connection.cursor().copy(statement.text) as copy:
                    assert list(copy)
            else:
                connection.execute(statement.text)
    service.close()
    assert len(statements) > 10


def test_page_lists_all_settings():
    assert {name for name, _ in Variables("ada") if name.startswith("hubbub.")} == set(
        re.findall(r"hubbub\.[a-z_]+(?=`(?:,| \|))", PAGE)
    )


@pytest.mark.parametrize("name", sorted({*errors.__all__} - {"HubbubError", "Halted"}))
def test_page_lists_the_sqlstate_of_each_error(name):
    error = getattr(errors, name)("a", why="b", fix="c")

    assert convert_error(error).code in PAGE
