"""Answers leave at public times: the time of a query does not tell what its rows are."""

import asyncio
import threading
import time

import pytest

from hubbub.errors import EngineFailed, InvalidInput
from hubbub.ledger import Ledger
from hubbub.server.hosted_dataset import HostedDataset
from hubbub.server.service_types import Question
from server.hospital import BY_REGION, COUNT, PASSWORD, open_hospital


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    # The first class is long enough for a query on a busy machine, the second is only planned with.
    service = open_hospital(tmp_path_factory.mktemp("served") / "hospital", deadlines="[1.5, 30, 600]")
    yield service
    service.close()


def ask(service, sql, **options):
    ada = service.auth.sign_in("ada", PASSWORD)
    started = time.monotonic()
    try:
        return asyncio.run(service.ask(ada, "visits", Question(sql, epsilon=0.01, **options))), started
    except EngineFailed as error:
        return error, started


def delay_engine(service, monkeypatch, seconds):
    """Make the engine that answers questions slow, until it is interrupted."""
    stop = threading.Event()
    engine_kind = type(service.find("visits").sources.engine)
    execute = engine_kind.execute

    def execute_slowly(self, *arguments):
        if stop.wait(seconds):
            raise EngineFailed("it was stopped", why="somebody interrupted it", fix="ask again")
        return execute(self, *arguments)

    monkeypatch.setattr(engine_kind, "execute", execute_slowly)
    monkeypatch.setattr(engine_kind, "interrupt", lambda _: stop.set())


def test_deadlines_follow_from_the_plan(service):
    ada = service.auth.sign_in("ada", PASSWORD)

    def deadline(sql, **options):
        return service.plan(ada, "visits", Question(sql, epsilon=1, **options)).deadline

    assert deadline(COUNT) == 1.5
    assert deadline(BY_REGION, deadline=20) == 30
    assert deadline(f"SELECT a.n - b.n AS d FROM ({COUNT}) a, ({COUNT} WHERE age > 50) b") == 30
    with pytest.raises(InvalidInput, match="later than the owner allows"):
        deadline(COUNT, deadline=601)


@pytest.mark.slow
def test_answers_leave_no_earlier_than_their_deadline(service):
    _, started = ask(service, COUNT)

    assert time.monotonic() - started >= 1.5


@pytest.mark.slow
def test_errors_after_the_charge_leave_no_earlier_than_answers(service, monkeypatch):
    ask(service, COUNT)
    engine_kind = type(service.find("visits").sources.engine)

    def fail(*_):
        raise EngineFailed("it failed", why="it is broken", fix="repair it")

    monkeypatch.setattr(engine_kind, "execute", fail)

    error, started = ask(service, COUNT + " WHERE age > 21")

    assert isinstance(error, EngineFailed)
    assert time.monotonic() - started >= 1.5


@pytest.mark.slow
def test_a_query_that_is_late_is_stopped_and_that_is_its_outcome(service, monkeypatch):
    ask(service, COUNT)
    delay_engine(service, monkeypatch, 60)

    error, started = ask(service, COUNT + " WHERE age > 22")

    assert "not finished in time" in str(error)
    assert 1.5 <= time.monotonic() - started < 30
    monkeypatch.undo()
    again, _ = ask(service, COUNT + " WHERE age > 22")
    assert str(again) == str(error)
    assert service.administration.verify_ledger(service.auth.sign_in("olga", PASSWORD), "visits").ok


@pytest.mark.slow
def test_outcomes_are_stored_at_a_public_moment(service):
    """Nobody sees in the ledger when a query was done: its outcome appears late in its deadline class."""
    ada = service.auth.sign_in("ada", PASSWORD)
    question = Question(COUNT + " WHERE age > 23", epsilon=0.01)
    ask(service, COUNT)
    moments = []

    async def watch():
        started = time.monotonic()
        task = asyncio.create_task(asyncio.to_thread(ask, service, question.sql))
        while not task.done():
            await asyncio.sleep(0.01)
            latest = service.history(ada, "visits")[0]
            if not moments and latest.sql == question.sql and latest.outcome != "none":
                moments.append(time.monotonic() - started)
        await task

    asyncio.run(watch())

    assert moments[0] >= 0.75 * 1.5  # the last quarter of its class is for storing


def test_plans_wait_for_no_query(service):
    """They are made on an engine of their own."""
    hosted = service.find("visits")
    assert isinstance(hosted, HostedDataset)
    assert hosted.dataset_of("ada").tables is hosted.sources.engine.tables


@pytest.mark.slow
def test_an_answer_that_is_computed_is_stored_when_the_server_stops(tmp_path, monkeypatch):
    service = open_hospital(tmp_path / "hospital", deadlines="[1, 600]")
    ada = service.auth.sign_in("ada", PASSWORD)
    question = Question(COUNT, epsilon=0.01, deadline=600)
    engine_kind = type(service.find("visits").sources.engine)
    execute = engine_kind.execute
    is_computed = threading.Event()

    def execute_and_tell(self, *arguments):
        rows = execute(self, *arguments)
        is_computed.set()
        return rows

    monkeypatch.setattr(engine_kind, "execute", execute_and_tell)

    async def leave():
        task = asyncio.create_task(service.ask(ada, "visits", question))
        assert await asyncio.to_thread(is_computed.wait, 60)
        task.cancel()

    asyncio.run(leave())
    service.close()

    with Ledger.open(tmp_path / "hospital" / "visits.ledger") as ledger:
        assert ledger.verify().ok
        [charge] = [entry.number for entry in ledger.account("visits").entries() if entry.kind == "charge"]
        assert ledger.account("visits").get_release(charge) is not None
