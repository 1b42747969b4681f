import base64
import io
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub.server.openapi import describe_api
from hubbub.server.service_types import Role
from server.hospital import BY_REGION, COUNT, PASSWORD, Client, make_token, open_hospital

API = "/api/v1"
VISITS = f"{API}/datasets/visits"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("served") / "hospital")
    yield service
    service.close()


@pytest.fixture(scope="module")
def ada(service):
    return Client(service, make_token(service, "ada"))


@pytest.fixture(scope="module")
def olga(service):
    return Client(service, make_token(service, "olga"))


def test_a_question_is_planned_asked_and_shown_again(ada):
    question = {"sql": BY_REGION, "epsilon": "0.1"}
    plan = ada.post(f"{VISITS}/plan", json=question)
    assert plan.json()["epsilon"] == "0.1"
    assert [column["name"] for column in plan.json()["columns"]] == ["region", "n", "n_low", "n_high"]

    answer = ada.post(f"{VISITS}/run", json=question)
    again = ada.post(f"{VISITS}/run", json=question)
    text = ada.get(f"{VISITS}/history/{answer.json()['entry']}")

    assert (answer.json()["is_new"], again.json()["is_new"]) == (True, False)
    columns = [each.json()["result"]["columns"] for each in (answer, again, text)]
    assert columns[0] == columns[1] == columns[2]
    [item] = [each for each in ada.get(f"{VISITS}/history").json()["history"] if each["sql"] == BY_REGION]
    assert (item["entry"], item["outcome"]) == (answer.json()["entry"], "answer")


def test_decimals_mean_what_is_written(ada):
    plan = ada.request(
        "POST",
        f"{VISITS}/plan",
        content=b'{"sql": "%s", "epsilon": 0.1}' % COUNT.encode(),
        headers={"content-type": "application/json"},
    )
    assert plan.json()["epsilon"] == "0.1"


def test_answers_come_as_csv_parquet_arrow_and_svg(ada):
    question = {"sql": BY_REGION, "epsilon": "0.05"}

    def ask(accept):
        return ada.post(f"{VISITS}/run", json=question, headers={"accept": accept})

    rows = ask("text/csv").text.splitlines()
    assert rows[0] == "region,n,n_low,n_high"
    table = pq.read_table(io.BytesIO(ask("application/vnd.apache.parquet").content))
    stream = pa.ipc.open_stream(ask("application/vnd.apache.arrow.stream").content).read_all()
    assert table.column_names == stream.column_names == ["region", "n", "n_low", "n_high"]
    assert table["n"].to_pylist() == stream["n"].to_pylist() == [float(row.split(",")[1]) for row in rows[1:]]
    assert ask("image/svg+xml").text.startswith("<svg")
    assert ask("application/pdf").status_code == 406


def test_idempotency_keys_of_two_requests_conflict(ada):
    headers = {"idempotency-key": "one"}
    assert (
        ada.post(f"{VISITS}/run", json={"sql": COUNT, "epsilon": "0.01"}, headers=headers).status_code == 200
    )
    assert (
        ada.post(f"{VISITS}/run", json={"sql": COUNT, "epsilon": "0.02"}, headers=headers).status_code == 409
    )


@pytest.mark.parametrize(
    ("body", "parameter", "status"),
    [
        ({"sql": COUNT}, "epsilon", 400),
        ({"sql": COUNT, "epsilon": 0}, "epsilon", 400),
        ({"sql": COUNT, "epsilon": "x"}, "epsilon", 400),
        ({"sql": COUNT, "epsilon": True}, "epsilon", 400),
        ({"sql": COUNT, "epsilon": "1e999999999"}, "epsilon", 400),
        ({"sql": COUNT, "epsilon": 1, "rows_per_unit": "2"}, "rows_per_unit", 400),
        ({"sql": COUNT, "epsilon": 1, "colour": 1}, None, 400),
        ({"epsilon": 1}, "sql", 400),
        ([], "sql", 400),
        ({"sql": "SELECT patient FROM visits", "epsilon": 1}, None, 422),
        ({"sql": "DROP TABLE visits", "epsilon": 1}, None, 422),
        ({"sql": COUNT, "epsilon": 9}, None, 402),
    ],
)
def test_refusals_say_what_why_and_fix(ada, body, parameter, status):
    answer = ada.post(f"{VISITS}/run", json=body)
    error = answer.json()["error"]

    assert answer.status_code == status or (status == 422 and answer.status_code == 400)
    assert all(error[name] for name in ("code", "what", "why", "fix"))
    assert parameter is None or error["parameter"] == parameter


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b'{"sql": 1', b'{"a": NaN}', b'{"sql": "x", "sql": "y"}', b"\xff\xfe", b"[" * 100_000],
)
def test_bodies_that_are_not_json_are_refused(ada, content):
    answer = ada.request(
        "POST", f"{VISITS}/plan", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["parameter"] == "body"


def test_large_bodies_and_other_types_are_refused(service, ada):
    large = b'{"sql": "' + b" " * (service.settings.max_body + 1) + b'"}'
    headers = {"content-type": "application/json"}
    assert ada.request("POST", f"{VISITS}/plan", content=large, headers=headers).status_code == 413
    assert ada.request("POST", f"{VISITS}/plan", content=b"a=1").status_code == 415


# Who may do what

ROUTES = [
    ("GET", f"{API}/datasets", None),
    ("GET", f"{API}/functions", None),
    ("GET", VISITS, "reader"),
    ("POST", f"{VISITS}/plan", "analyst"),
    ("POST", f"{VISITS}/run", "analyst"),
    ("GET", f"{VISITS}/history", "analyst"),
    ("GET", f"{VISITS}/history/ENTRY", "analyst"),
    ("GET", f"{VISITS}/budget", "analyst"),
    ("GET", f"{VISITS}/label", "reader"),
    ("GET", f"{VISITS}/publications", "reader"),
    ("GET", f"{VISITS}/publications/ENTRY", "reader"),
    ("GET", f"{API}/tokens", None),
]
RANKS = {"reader": 0, "analyst": 1, "owner": 2}
SECRET_WORDS = ("age > 77", "bob", "12345.678")
"""In the questions and the data of others: nobody else's document may hold them."""


@pytest.fixture(scope="module")
def tokens(service):
    def expire(secret):
        service.state.write(
            lambda connection: connection.execute(
                "UPDATE tokens SET expires = 1 WHERE id = ?", [secret.split("_")[1]]
            )
        )
        return secret

    def revoke(secret):
        service.auth.revoke_token(secret.split("_")[1], by="ada", user="ada")
        return secret

    right = make_token(service, "ada")
    return {
        "nobody": None,
        "wrong": right[:-1] + ("A" if right[-1] != "A" else "B"),
        "garbage": "hub_x",
        "expired": expire(make_token(service, "ada")),
        "revoked": revoke(make_token(service, "ada")),
        "other dataset": make_token(service, "eve"),
        "other scope": make_token(service, "ada", datasets=("lab",)),
        "reader": make_token(service, "rita"),
        "reading analyst": make_token(service, "ada", role=Role.READER),
        "analyst": right,
        "owner": make_token(service, "olga"),
    }


@pytest.fixture(scope="module")
def hidden(service):
    """A question of bob's, which only he and the owner may see."""
    bob = Client(service, make_token(service, "bob"))
    body = {"sql": COUNT + " WHERE age > 77", "epsilon": "0.01"}
    return bob.post(f"{VISITS}/run", json=body).json()["entry"]


@pytest.mark.parametrize("who", ["nobody", "wrong", "garbage", "expired", "revoked"])
@pytest.mark.parametrize("route", ROUTES)
def test_routes_are_closed_to_strangers(service, tokens, hidden, who, route):
    method, path, _ = route
    answer = Client(service, tokens[who]).request(
        method,
        path.replace("ENTRY", str(hidden)),
        json={"sql": COUNT, "epsilon": "0.01"} if method == "POST" else None,
    )
    # A stranger who has not signed in may ask for public pages: these are not.
    assert answer.status_code in ({401, 404} if who == "nobody" else {401, 429})
    assert set(answer.json()) == {"error"}
    assert not [word for word in (*SECRET_WORDS, "North", "visits.csv", "patient") if word in answer.text]


@pytest.mark.parametrize(
    "who", ["other dataset", "other scope", "reader", "reading analyst", "analyst", "owner"]
)
@pytest.mark.parametrize("route", [each for each in ROUTES if each[2] is not None])
def test_routes_are_open_by_role(service, tokens, hidden, who, route):
    method, path, role = route
    body = {"sql": COUNT, "epsilon": "0.01"} if method == "POST" else None
    answer = Client(service, tokens[who]).request(method, path.replace("ENTRY", str(hidden)), json=body)

    own = {"reader": "reader", "reading analyst": "reader", "analyst": "analyst", "owner": "owner"}.get(who)
    if own is None:
        assert answer.status_code == 404
    elif RANKS[own] < RANKS[role]:
        assert answer.status_code == 403
    elif "history/ENTRY" in path:  # bob's
        assert answer.status_code == (200 if who == "owner" else 404)
    elif "publications/ENTRY" in path:
        assert answer.status_code == 404
    else:
        assert answer.status_code == 200
    if who != "owner":
        assert not [word for word in SECRET_WORDS if word in answer.text]


def test_tokens_are_shown_once_scoped_and_revoked(service):
    password = {"authorization": "Basic " + base64.b64encode(f"ada:{PASSWORD}".encode()).decode()}
    client = Client(service)
    response = client.post(
        f"{API}/tokens",
        json={"name": "notebook", "datasets": ["visits"], "role": "analyst", "epsilon": "0.05", "days": 1},
        headers=password,
    )
    assert response.status_code == 201
    secret = response.json()["secret"]

    holder = Client(service, secret)
    assert holder.get(f"{API}/datasets").json()["datasets"][0]["name"] == "visits"
    assert secret not in holder.get(f"{API}/tokens").text
    assert holder.post(f"{API}/tokens", json={"name": "more"}).status_code == 403
    assert client.get(VISITS, headers=password).status_code == 401  # a password is for tokens only

    ask = {"sql": COUNT + " WHERE age > 50", "epsilon": "0.04"}
    assert holder.post(f"{VISITS}/run", json=ask).status_code == 200
    assert holder.post(f"{VISITS}/run", json=ask).status_code == 200  # the same again is free
    assert holder.post(f"{VISITS}/run", json={**ask, "epsilon": "0.02"}).status_code == 403  # over its cap

    assert holder.request("DELETE", f"{API}/tokens/{response.json()['token_id']}").status_code == 204
    assert holder.get(f"{API}/datasets").status_code == 401


def test_a_token_neither_sees_nor_revokes_others_of_its_user(service):
    password = {"authorization": "Basic " + base64.b64encode(f"bob:{PASSWORD}".encode()).decode()}
    stolen, other = (make_token(service, "bob", role=Role.READER) for _ in range(2))
    id_of = {secret: secret.split("_")[1] for secret in (stolen, other)}
    thief = Client(service, stolen)

    assert [each["token_id"] for each in thief.get(f"{API}/tokens").json()["tokens"]] == [id_of[stolen]]
    assert thief.request("DELETE", f"{API}/tokens/{id_of[other]}").status_code == 403
    assert Client(service, other).get(f"{API}/datasets").status_code == 200

    client = Client(service)
    listed = client.get(f"{API}/tokens", headers=password).json()["tokens"]
    assert {each["token_id"] for each in listed} >= set(id_of.values())
    assert client.request("DELETE", f"{API}/tokens/{id_of[stolen]}", headers=password).status_code == 204
    assert thief.get(f"{API}/datasets").status_code == 401


def test_publications_of_a_public_dataset_need_no_sign_in(tmp_path):
    service = open_hospital(tmp_path / "hospital", "public = true")
    try:
        olga = Client(service, make_token(service, "olga"))
        entry = olga.post(f"{VISITS}/run", json={"sql": BY_REGION, "epsilon": "0.1"}).json()["entry"]
        stranger = Client(service)
        assert stranger.get(f"{VISITS}/publications").json() == {"publications": []}
        assert stranger.get(f"{VISITS}/publications/{entry}").status_code == 404

        service.library.publish(service.auth.sign_in("olga", PASSWORD), "visits", entry, "By region")

        assert (
            stranger.get(f"{VISITS}/publications/{entry}", headers={"accept": "text/csv"}).status_code == 200
        )
        assert "epsilon" in str(stranger.get(f"{VISITS}/label").json()["promise"])
        assert stranger.get(VISITS).status_code == 401
        assert stranger.get(f"{VISITS}/history/{entry}").status_code == 401
    finally:
        service.close()


# The document


def test_the_document_describes_every_route_and_no_other(service):
    from hubbub.server.rest import make_routes

    served = {
        (route.path.replace(":int", ""), method)
        for route in make_routes(service)
        for method in route.methods - {"HEAD"}
    }
    described = {
        (path, method.upper())
        for path, operations in describe_api()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    assert served - {("/api/v1/openapi.json", "GET")} == described
    assert Client(service).get(f"{API}/openapi.json").json() == json.loads(json.dumps(describe_api()))


def test_unknown_addresses_and_methods_are_errors_as_documents(ada):
    assert ada.get("/nothing").status_code == 404
    assert ada.request("DELETE", VISITS).status_code == 405
    assert "error" in ada.get("/nothing").json()


# Headers, hosts, logs


def test_responses_carry_security_headers(ada):
    for path in (f"{API}/datasets", "/nothing"):
        headers = ada.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_headers_that_a_client_may_set_do_not_count(ada, service):
    assert ada.get(f"{API}/datasets", headers={"host": "evil.example"}).status_code == 421
    spoof = {
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-user": "olga",
        "x-user": "olga",
        "remote-user": "olga",
    }
    assert Client(service).get(f"{API}/datasets", headers=spoof).status_code == 401


def test_logs_hold_no_secret_no_question_and_no_data(service, tokens, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.CRITICAL, "httpx")  # the test's own client
    client = Client(service, tokens["analyst"])
    client.post(f"{VISITS}/run", json={"sql": COUNT + " WHERE age > 66", "epsilon": "0.01"})
    client.get(f"{VISITS}/secret-in-a-path?token=secret-in-a-query")
    Client(service, tokens["wrong"]).get(f"{API}/datasets")
    with pytest.raises(Exception, match="wrong"):
        service.auth.sign_in("ada", "a secret password")
    audit = json.dumps([each.to_json() for each in service.state.audit_records()])

    for text in (caplog.text, audit):
        for secret in (*filter(None, tokens.values()), PASSWORD, "a secret password", "secret-in-a"):
            assert secret not in text
    assert "age > 66" not in caplog.text


def test_foreign_exceptions_are_neither_shown_nor_logged(service, tokens, caplog, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("12345.678")

    monkeypatch.setattr(type(service), "budget", fail)
    caplog.set_level(logging.DEBUG)

    answer = Client(service, tokens["analyst"]).get(f"{VISITS}/budget")

    assert answer.status_code == 500
    assert "12345.678" not in answer.text + caplog.text
    assert "RuntimeError" in caplog.text
