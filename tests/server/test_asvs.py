"""OWASP ASVS 5.0: what applies to a server, each with its tests; and those that stand nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from hubbub.errors import AccessDenied, LedgerFailed
from server.hospital import COUNT, PASSWORD, Client, make_token, open_hospital

ROOT = Path(__file__).parents[2]
VISITS = "/api/v1/datasets/visits"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("served") / "hospital")
    yield service
    service.close()


def test_every_point_of_the_page_has_tests_that_exist():
    page = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+\.\d+\.\d+(?:, \d+\.\d+\.\d+)*) [^|]*\| (.+) \|$", page, re.MULTILINE)
    points = {point for cell, _ in rows for point in cell.split(", ")}
    assert points >= {
        "1.2.4", "2.3.3", "2.3.4", "2.3.5", "2.4.1", "3.4.3", "4.1.3", "7.2.3", "8.2.2", "11.5.1", "14.2.1",
        "15.4.2", "16.2.5", "16.4.2", "16.5.1", "16.5.3",
    }  # fmt: skip
    trees = (
        ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "tests" / "server").glob("test_*.py")
    )
    names = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for point, cell in rows:
        tests = re.findall(r"`(test_\w+)`", cell)
        assert tests, point
        assert set(tests) <= names, point


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "text",
    [
        "visits' OR '1'='1",
        'visits"; DROP TABLE users; --',
        "%00",
        "../../etc/passwd",
        "visits/../lab",
        "ä" * 500,
    ],
)
def test_hostile_names_are_names(service, text):
    client = Client(service, make_token(service, "olga"))

    assert client.get(f"/api/v1/datasets/{text}").status_code in {404, 405}
    assert client.request("DELETE", f"/api/v1/tokens/{text}").status_code in {403, 404, 405}
    assert client.get(VISITS).status_code == 200
    with pytest.raises(AccessDenied):
        service.auth.sign_in(text, PASSWORD, source=text)


def test_tokens_in_addresses_do_not_count(service):
    token = make_token(service, "olga")

    for name in ("token", "access_token", "authorization", "api_key"):
        assert Client(service).get(f"{VISITS}?{name}={token}").status_code == 401
    assert Client(service).get(VISITS, headers={"cookie": f"__Host-hubbub={token}"}).status_code == 401


def test_requests_of_one_user_are_limited(tmp_path):
    service = open_hospital(tmp_path / "hospital", "requests_per_minute = 12\npublic = true")
    try:
        ada, bob = (Client(service, make_token(service, user)) for user in ("ada", "bob"))
        codes = [ada.get(f"{VISITS}/budget").status_code]
        while codes[-1] == 200 and len(codes) < 100:  # a bucket of 12, and one more every five seconds
            codes.append(ada.get(f"{VISITS}/budget").status_code)
        assert len(codes) > 10
        assert codes[-1] == 429
        assert bob.get(f"{VISITS}/budget").status_code == 200
        strangers = [
            Client(service).get(f"{VISITS}/{page}").status_code for page in ("label", "publications") * 20
        ]
        assert strangers[0] == 200
        assert 429 in strangers
    finally:
        service.close()


def test_a_server_that_cannot_know_who_asks_does_nothing(tmp_path, monkeypatch):
    service = open_hospital(tmp_path / "hospital")
    try:
        client = Client(service, make_token(service, "ada"))
        body = {"sql": COUNT, "epsilon": "0.1"}
        assert client.get(f"{VISITS}/budget").json()["charges"] == 0

        def fail(*_):
            raise LedgerFailed("the disk is gone", why="it broke", fix="put it back")

        monkeypatch.setattr(type(service.state), "read", fail)
        assert client.post(f"{VISITS}/run", json=body).status_code == 503
        monkeypatch.undo()
        monkeypatch.setattr(type(service.state), "write", fail)  # neither cap nor key can be recorded
        assert client.post(f"{VISITS}/run", json=body).status_code == 503
        monkeypatch.undo()
        assert client.get(f"{VISITS}/budget").json()["charges"] == 0
    finally:
        service.close()
