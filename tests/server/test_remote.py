"""`hubbub.connect` and `hubbub query https://…`: the interface of `hubbub.open`, over a server."""

import asyncio
import threading

import pytest

import hubbub as hb
from cli.terminal import run
from hubbub.errors import AccessDenied, BudgetExceeded, InvalidInput
from hubbub.server.serve import serve
from server.hospital import BY_REGION, COUNT, make_token, open_hospital

STRANGER = "hub_x"


class Running:
    """A server in a thread of this process, with TLS."""

    def __init__(self, service):
        self.service, self.ready = service, threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)
        self.thread.start()
        assert self.ready.wait(60)

    async def run(self):
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()

        def note(addresses):
            self.addresses = addresses
            self.ready.set()

        await serve(self.service, on_ready=note, stop=self.end)

    def stop(self):
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(60)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "hospital"
    server = Running(open_hospital(folder, "port = 0\nwire_port = 0"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def remote(running):
    with hb.connect(
        f"{running.addresses.url}/visits",
        token=make_token(running.service, "ada"),
        certificate=running.addresses.certificate.certificate,
    ) as data:
        yield data


def test_plans_and_answers_are_those_of_the_data_itself(running, remote):
    local = running.service.find("visits").dataset_of("ada")
    plan, own = remote.sql(BY_REGION, epsilon=0.1), local.sql(BY_REGION, epsilon=0.1)

    assert str(plan) == str(own)
    assert (plan.epsilon, plan.delta, plan.loss) == (own.epsilon, own.delta, own.loss)
    assert plan.label() == own.label()
    assert plan.explain() == own.explain()

    release = plan.run()
    assert release.value.to_dict() == local.run(own).value.to_dict()
    assert release.loss == own.loss
    assert list(release.to_pandas().columns) == ["region", "n", "n_low", "n_high"]
    assert release.label()["entry"] > 0
    assert remote.run(plan).label()["asked before"]


def test_queries_are_built_step_by_step(remote):
    plan = remote.where("age > 30").group_by("region").count().plan(epsilon=0.02)

    assert len(plan.run().value) == 2


def test_declarations_and_budget_are_known(remote):
    assert remote.tables["visits"].find("cost").bounds == (0, 1000)
    assert remote.unit == hb.Unit("patient")
    left = remote.account.remaining()
    assert 0 < left.epsilon <= 2
    assert remote.count_more(remote.sql(COUNT, epsilon=0.1)) > 0
    assert any(item["sql"] for item in remote.history()) or remote.history() == []
    assert remote.label()["unit"] == "patient"


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda data: data.sql(COUNT, epsilon=0), InvalidInput),
        (lambda data: data.sql("SELECT nothing FROM visits", epsilon=1), hb.HubbubError),
        (lambda data: data.sql(COUNT, epsilon=5).run(), BudgetExceeded),
        (lambda data: data.exact(data.sql(COUNT, epsilon=1)), hb.Refused),
    ],
)
def test_refusals_are_raised_as_the_server_raised_them(remote, ask, kind):
    with pytest.raises(kind) as refusal:
        ask(remote)
    assert refusal.value.why


def test_strangers_and_other_addresses_are_refused(running):
    certificate = running.addresses.certificate.certificate
    with pytest.raises(AccessDenied, match="token is wrong"):
        hb.connect(running.addresses.url, token=STRANGER, certificate=certificate)
    with pytest.raises(AccessDenied, match="certificate is not trusted"):
        hb.connect(running.addresses.url, token=STRANGER)
    with pytest.raises(InvalidInput, match="https"):
        hb.connect("http://dp.example/visits", token=STRANGER)
    with pytest.raises(InvalidInput, match="token"):
        hb.connect(running.addresses.url)


def test_the_shell_asks_a_server(running, monkeypatch):
    monkeypatch.setenv("HUBBUB_TOKEN", make_token(running.service, "ada"))
    monkeypatch.setenv("HUBBUB_CERTIFICATE", str(running.addresses.certificate.certificate))
    address = f"{running.addresses.url}/visits"

    answer = run("query", address, BY_REGION, "--epsilon", "0.05", "--format", "csv")
    table = run("query", address, BY_REGION, "--epsilon", "0.05")
    plan = run("plan", address, BY_REGION, "--epsilon", "0.05")
    refusal = run("query", address, BY_REGION)
    unit = run("query", address, BY_REGION, "--epsilon", "1", "--unit", "patient")

    assert answer.stdout.splitlines()[0] == "region,n,n_low,n_high"
    assert "asked before" in table.stdout
    assert "budget left in the ledger" in table.stdout
    assert "ε = 0.05 for one patient" in plan.stdout
    assert "--epsilon" in refusal.stderr
    assert "--unit is given for a server" in unit.stderr
