"""What somebody tries who has an account and wants more: others' questions, or a larger cap."""

import asyncio
import threading
from decimal import Decimal

import pytest

from hubbub.errors import AccessDenied, EngineFailed, Unavailable
from hubbub.server.service_types import Question
from server.hospital import COUNT, PASSWORD, make_token, open_hospital
from server.wire import RawClient, errors_in, query, running_listener


@pytest.fixture
def service(tmp_path):
    service = open_hospital(tmp_path / "hospital")
    yield service
    service.close()


def question(age):
    return Question(f"{COUNT} WHERE age > {age}", epsilon=Decimal("0.1"))


def ask(service, principal, age, **options):
    return asyncio.run(service.ask(principal, "visits", question(age), **options))


def sign_in(service, user):
    return service.auth.sign_in(user, PASSWORD)


def fail_engine(service, monkeypatch):
    def fail(*_):
        raise EngineFailed("it failed", why="it is broken", fix="repair it")

    monkeypatch.setattr(type(service.find("visits").sources.engine), "execute", fail)


def spent(service, user):
    return Decimal(service.budget(sign_in(service, user), "visits").spent_epsilon)


def test_a_plan_does_not_tell_that_another_analyst_asked(service):
    ask(service, sign_in(service, "ada"), 30)

    plans = [service.plan(sign_in(service, user), "visits", question(30)) for user in ("ada", "bob")]

    assert [plan.is_asked for plan in plans] == [True, False]


def test_an_answer_that_was_paid_for_is_in_the_history_of_all_who_paid(service):
    for user in ("ada", "bob"):
        ask(service, sign_in(service, user), 31)

    for user in ("ada", "bob"):
        listed = service.history(sign_in(service, user), "visits")
        assert [(each.user, each.outcome) for each in listed] == [(user, "answer")]
        assert service.stored_answer(sign_in(service, user), "visits", listed[0].entry).result


@pytest.mark.parametrize(
    ("hers", "his"),
    [
        ("SELECT COUNT(*) AS n /* rare */ FROM visits WHERE age > 41", f"{COUNT} WHERE age > 41"),
        (
            f"SELECT a.n - b.n AS rare FROM ({COUNT} /* rare */) a, ({COUNT} WHERE age > 42) b",
            f"SELECT a.n + b.n AS total FROM ({COUNT}) a, ({COUNT} WHERE age > 42) b",
        ),
    ],
)
def test_nobody_reads_the_text_in_which_another_asked_the_same(service, hers, his):
    ada, bob = sign_in(service, "ada"), sign_in(service, "bob")

    def run(principal, sql):
        return asyncio.run(service.ask(principal, "visits", Question(sql, epsilon=Decimal("0.1"))))

    answer = run(ada, hers)
    seen = [run(bob, his), run(bob, his), service.stored_answer(bob, "visits", answer.entry)]

    assert [each.entry for each in seen] == [answer.entry] * 3
    texts = [*seen, *(each.result.to_json() for each in seen), service.history(bob, "visits")]
    assert "rare" not in "".join(map(str, texts))
    assert "rare" in str(service.history(ada, "visits"))


def test_a_token_pays_its_cap_also_for_failures_of_others(service, monkeypatch):
    ask(service, sign_in(service, "ada"), 20)
    fail_engine(service, monkeypatch)
    for age in (32, 33):
        with pytest.raises(EngineFailed):
            ask(service, sign_in(service, "ada"), age)
    token = service.auth.sign_in_with_token(make_token(service, "bob", epsilon="0.15"))

    with pytest.raises(EngineFailed):
        ask(service, token, 32)
    with pytest.raises(AccessDenied, match="cap"):
        ask(service, token, 33)

    assert spent(service, "bob") == Decimal("0.1")


def test_asking_again_what_failed_for_others_is_paid_once(service, monkeypatch):
    ask(service, sign_in(service, "ada"), 20)
    fail_engine(service, monkeypatch)
    with pytest.raises(EngineFailed):
        ask(service, sign_in(service, "ada"), 34)
    token = service.auth.sign_in_with_token(make_token(service, "bob", epsilon="0.1"))

    with pytest.raises(EngineFailed):
        ask(service, token, 34, again=True)

    assert spent(service, "bob") == Decimal("0.1")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("change", ["revoke", "role", "lock", "pause"])
def test_questions_no_longer_allowed_when_their_turn_comes_are_not_charged(service, monkeypatch, change):
    ask(service, sign_in(service, "olga"), 20)
    token = service.auth.sign_in_with_token(make_token(service, "ada"))
    reserve, refunded = service.auth.reserve, threading.Event()

    def change_while_it_waits(principal, epsilon):
        reserve(principal, epsilon)
        if epsilon < 0:
            refunded.set()
        elif change == "revoke":
            service.auth.revoke_token(token.token_id, by="olga", user=None)
        elif change == "role":
            service.auth.set_role("ada", "visits", None, by="olga")
        elif change == "lock":
            service.auth.set_active("ada", is_active=False, by="olga")
        else:
            service.administration.pause(sign_in(service, "olga"), "visits")

    monkeypatch.setattr(service.auth, "reserve", change_while_it_waits)

    with pytest.raises(Unavailable if change == "pause" else AccessDenied):
        ask(service, token, 35)

    assert service.find("visits").account_of("ada").spent().epsilon == 0
    assert refunded.wait(30)
    assert next(each.spent for each in service.auth.tokens("ada")) == "0"


def test_an_answer_is_not_shown_to_a_token_that_was_revoked_meanwhile(service, monkeypatch):
    ask(service, sign_in(service, "olga"), 20)
    token = service.auth.sign_in_with_token(make_token(service, "ada"))
    engine = type(service.find("visits").sources.engine)
    execute = engine.execute

    def revoke(self, *arguments):
        service.auth.revoke_token(token.token_id, by="olga", user=None)
        return execute(self, *arguments)

    monkeypatch.setattr(engine, "execute", revoke)

    with pytest.raises(AccessDenied):
        ask(service, token, 36)

    assert spent(service, "ada") == Decimal("0.1")


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 2000000000))",
        "SELECT lpad('x', 2000000000, 'y')",
        "SELECT pg_catalog.rpad('x', 2000000000, 'y')",
        "SELECT format('{:>1000000000}', 'x')",
    ],
)
def test_the_catalogs_make_no_text_of_any_length(service, sql):
    with running_listener(service) as port, RawClient(port) as client:
        client.sign_in("rita")
        errors = errors_in(client.ask(query(sql)))

    assert errors[0]["C"] in {"0A000", "42883"}
