"""Servers that are killed under load, and several over one ledger: nothing lost, nothing charged twice."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import httpx
import pytest

from hubbub.ledger import Ledger
from server.hospital import COUNT, make_token, open_hospital
from server.processes import Served
from servers import running_server

pytestmark = pytest.mark.long
EPSILON = "0.01"


def question(place):
    return {"sql": f"{COUNT} WHERE age > {place}", "epsilon": EPSILON}


def prepare(folder, **options):
    """The hospital with its people; the tokens of the two analysts."""
    service = open_hospital(folder, "requests_per_minute = 100000", **options)
    tokens = [make_token(service, user) for user in ("ada", "bob")]
    service.close()
    return folder / "hubbub.toml", tokens


def test_a_server_that_is_killed_under_load_serves_every_acknowledged_answer_again(tmp_path):
    config, [token, _] = prepare(tmp_path / "hospital", slots=2)
    answers = {}
    server = Served(config)

    def ask(place):
        try:
            with server.connect(token) as client:
                answer = client.post("/run", json=question(place))
        except httpx.HTTPError:
            return
        if answer.status_code == 200:
            answers[place] = answer.json()

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(ask, place) for place in range(120)]
        while len(answers) < 20:
            assert not all(future.done() for future in futures)
            time.sleep(0.01)
        server.stop(signal.SIGKILL)
    assert 20 <= len(answers) < 120

    with Ledger.open(config.parent / "visits.ledger") as ledger:
        assert ledger.verify().ok
        spent = ledger.account("visits").analysts()["ada"].spent().epsilon
    server = Served(config)
    try:
        with server.connect(token) as client:
            for place, answer in answers.items():
                again = client.post("/run", json=question(place)).json()
                assert not again["is_new"]
                assert again["entry"] == answer["entry"]
                assert again["result"]["columns"] == answer["result"]["columns"]
            assert Fraction(client.get("/budget").json()["spent_epsilon"]) == spent
            for place in range(120):  # those that were lost are charged again, once
                assert client.post("/run", json=question(place)).status_code == 200
    finally:
        assert server.stop()[0] == 0
    with Ledger.open(config.parent / "visits.ledger") as ledger:
        assert ledger.verify().ok


def test_three_servers_over_one_postgresql_ledger_charge_each_question_once(tmp_path):
    with running_server() as database:
        config, tokens = prepare(tmp_path / "hospital", slots=2, ledger=database.address())
        servers = [Served(config) for _ in range(3)]
        try:

            def ask(job):
                server, token, place = job
                with servers[server].connect(token) as client:
                    answer = client.post("/run", json=question(place))
                assert answer.status_code == 200, answer.text
                document = answer.json()
                return place, document["entry"], document["result"]["columns"][0]["values"][0]

            jobs = [(server, token, place) for place in range(20) for server in range(3) for token in tokens]
            with ThreadPoolExecutor(12) as pool:
                results = list(pool.map(ask, jobs))
        finally:
            codes = [server.stop()[0] for server in servers]
        assert codes == [0, 0, 0]
        assert len(results) == 120
        for place in range(20):  # one entry, one answer
            assert len({each[1:] for each in results if each[0] == place}) == 1
        with Ledger.open(database.address()) as ledger:
            assert ledger.verify().ok
            account = ledger.account("visits")
            charges = [entry for entry in account.entries() if entry.kind == "charge"]
            assert len(charges) == 20
            assert account.spent().epsilon == 20 * Fraction(EPSILON)
            assert {str(each.spent().epsilon) for each in account.analysts().values()} == {"1/5"}
