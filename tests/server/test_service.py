import asyncio
import threading

import pytest

from hubbub.engines.schema import Kind
from hubbub.errors import AccessDenied, BudgetExceeded, EngineFailed, InvalidInput, Unavailable
from hubbub.server.request_keys import RequestKeys
from hubbub.server.service_types import Principal, Question, Role
from server.hospital import BY_REGION, COUNT, PASSWORD, open_hospital


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("served") / "hospital")
    yield service
    service.close()


def sign_in(service, user):
    return service.auth.sign_in(user, PASSWORD)


def ask(service, user, sql, **options):
    settings = {name: options.pop(name) for name in ("again", "idempotency_key") if name in options}
    principal = user if isinstance(user, Principal) else sign_in(service, user)
    return asyncio.run(
        service.ask(principal, "visits", Question(sql, **{"epsilon": 0.01, **options}), **settings)
    )


def test_description_has_declarations_only(service):
    description = service.describe(sign_in(service, "rita"), "visits")

    columns = {column.name: column for column in description.tables[0].columns}
    assert columns["patient"].is_unit
    assert columns["cost"].bounds == ("0", "1000")
    assert columns["region"].keys == ("North", "South")
    assert columns["age"].kind is Kind.NUMBER


def test_plans_are_free_and_name_the_columns_of_the_answer(service):
    ada = sign_in(service, "ada")
    before = service.budget(ada, "visits")

    plan = service.plan(ada, "visits", Question(BY_REGION, epsilon=0.5))

    assert [(column.name, column.part) for column in plan.columns] == [
        ("region", "key"), ("n", "estimate"), ("n_low", "low"), ("n_high", "high"),
    ]  # fmt: skip
    assert plan.epsilon == "0.5"
    assert service.budget(ada, "visits") == before


def test_answers_have_the_planned_columns(service):
    question = "SELECT region, AVG(cost) AS c, COUNT(*) * 2 AS d FROM visits GROUP BY region"
    plan = service.plan(sign_in(service, "ada"), "visits", Question(question, epsilon=0.01))

    answer = ask(service, "ada", question)

    assert list(answer.result.to_dict()) == [column.name for column in plan.columns]


def test_sql_over_released_values_has_the_planned_columns(service):
    question = f"SELECT region, n, n / SUM(n) OVER () AS share FROM ({BY_REGION}) ORDER BY n DESC"
    plan = service.plan(sign_in(service, "ada"), "visits", Question(question, epsilon=0.02))

    answer = ask(service, "ada", question, epsilon=0.02)

    assert list(answer.result.to_dict()) == [column.name for column in plan.columns]
    again = service.stored_answer(sign_in(service, "ada"), "visits", answer.entry)
    assert again.result.to_dict() == answer.result.to_dict()


def test_a_question_is_charged_once_and_repeated_for_free(service):
    question = COUNT + " WHERE age > 31"
    first = ask(service, "ada", question)
    spent = service.budget(sign_in(service, "ada"), "visits").spent_epsilon

    second = ask(service, "ada", question)

    assert (first.is_new, second.is_new) == (True, False)
    assert second.result.to_dict() == first.result.to_dict()
    assert second.entry == first.entry
    assert service.budget(sign_in(service, "ada"), "visits").spent_epsilon == spent


def test_two_who_ask_the_same_at_once_are_answered_by_one_charge(service):
    question = Question(COUNT + " WHERE age > 32", epsilon=0.01)
    ada, bob = sign_in(service, "ada"), sign_in(service, "bob")

    async def both():
        return await asyncio.gather(*(service.ask(who, "visits", question) for who in (ada, bob, ada)))

    answers = asyncio.run(both())

    assert len({answer.entry for answer in answers}) == 1
    assert len({answer.result["n"][0] for answer in answers}) == 1


def test_a_client_that_goes_away_does_not_lose_the_answer(service, monkeypatch):
    question = Question(COUNT + " WHERE age > 33", epsilon=0.01)
    ada = sign_in(service, "ada")
    engine_kind = type(service.find("visits").sources.engine)
    execute = engine_kind.execute
    runs, may_end = threading.Event(), threading.Event()

    def execute_when_told(self, *arguments):
        runs.set()
        assert may_end.wait(60)
        return execute(self, *arguments)

    monkeypatch.setattr(engine_kind, "execute", execute_when_told)

    async def leave_and_return():
        task = asyncio.create_task(service.ask(ada, "visits", question))
        assert await asyncio.to_thread(runs.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_end.set()
        return await service.ask(ada, "visits", question)

    assert not asyncio.run(leave_and_return()).is_new
    assert [item.sql for item in service.history(ada, "visits")].count(question.sql) == 1


def test_history_is_ones_own_and_the_owners_is_everything(service):
    ask(service, "ada", COUNT + " WHERE age > 34")
    ask(service, "bob", COUNT + " WHERE age > 35")

    own = {item.user for item in service.history(sign_in(service, "ada"), "visits")}
    every = {item.user for item in service.history(sign_in(service, "olga"), "visits")}

    assert own == {"ada"}
    assert {"ada", "bob"} <= every


def test_another_analysts_answer_is_refused(service):
    entry = ask(service, "bob", COUNT + " WHERE age > 36").entry

    for number in (entry, 10_000, 1):  # nor is she told which of them there are
        with pytest.raises(AccessDenied, match="not yours"):
            service.stored_answer(sign_in(service, "ada"), "visits", number)


def test_an_unknown_dataset_and_a_forbidden_one_are_refused_alike(service):
    texts = set()
    for user, name in (("eve", "visits"), ("eve", "nothing"), ("ada", "lab"), ("ada", "nothing")):
        with pytest.raises(AccessDenied) as refusal:
            service.describe(sign_in(service, user), name)
        texts.add(str(refusal.value))
    assert len(texts) == 1


def test_readers_do_not_plan_and_analysts_do_not_grant(service):
    with pytest.raises(AccessDenied):
        service.plan(sign_in(service, "rita"), "visits", Question(COUNT, epsilon=1))
    with pytest.raises(AccessDenied):
        service.administration.grant(sign_in(service, "ada"), "visits", "ada", 9)


def test_a_budget_is_never_exceeded(service):
    with pytest.raises(BudgetExceeded):
        ask(service, "ada", COUNT + " WHERE age > 37", epsilon=5)


def test_a_role_that_is_taken_away_ends_at_once(service):
    service.auth.add_user("leon", PASSWORD, by="test")
    service.auth.set_role("leon", "visits", Role.ANALYST, by="test")
    leon = sign_in(service, "leon")
    service.datasets(leon)

    service.auth.set_role("leon", "visits", None, by="test")

    with pytest.raises(AccessDenied):
        service.describe(leon, "visits")


def test_idempotency_keys_name_one_request(service):
    question = COUNT + " WHERE age > 38"
    first = ask(service, "ada", question, idempotency_key="k1")

    assert ask(service, "ada", question, idempotency_key="k1").entry == first.entry
    with pytest.raises(InvalidInput, match="another request"):
        ask(service, "ada", COUNT, idempotency_key="k1")


def fail(*_):
    """Fail as a broken engine does."""
    raise EngineFailed("it failed", why="it is broken", fix="repair it")


def fail_once(service, question):
    """Ask a question while the engine is broken: its stored outcome is a failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(service.find("visits").sources.engine), "execute", fail)
        with pytest.raises(EngineFailed):
            ask(service, "ada", question)


def count_charges(service, question):
    return [item.sql for item in service.history(sign_in(service, "ada"), "visits")].count(question)


def test_a_request_that_was_refused_as_busy_is_charged_once_when_repeated(service, monkeypatch):
    question = COUNT + " WHERE age > 42"
    fail_once(service, question)
    with monkeypatch.context() as patch:
        patch.setattr(service.find("visits"), "queue", 0)
        with pytest.raises(Unavailable, match="waiting"):
            ask(service, "ada", question, again=True, idempotency_key="k2")
    assert count_charges(service, question) == 1

    first = ask(service, "ada", question, again=True, idempotency_key="k2")
    second = ask(service, "ada", question, again=True, idempotency_key="k2")

    assert (first.is_new, second.is_new, second.entry) == (True, False, first.entry)
    assert count_charges(service, question) == 2  # the failure, and this one


def test_a_refusal_counts_also_when_the_client_has_gone_away(service, monkeypatch):
    question = Question(COUNT + " WHERE age > 43", epsilon=0.01)
    fail_once(service, question.sql)
    ada = sign_in(service, "ada")
    waits, may_end = threading.Event(), threading.Event()
    refuse_paused = service.administration.refuse_paused

    def pause_at_its_turn(*arguments):
        if threading.current_thread().name.startswith("hubbub-ask"):
            waits.set()
            assert may_end.wait(60)
            raise Unavailable("it is paused", why="the owner paused it", fix="ask later")
        refuse_paused(*arguments)

    async def leave_and_return():
        with monkeypatch.context() as patch:
            patch.setattr(service.administration, "refuse_paused", pause_at_its_turn)
            task = asyncio.create_task(service.ask(ada, "visits", question, again=True, idempotency_key="k3"))
            assert await asyncio.to_thread(waits.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        may_end.set()
        # There is one slot: once it is free for this one, the other has been refused.
        await service.ask(ada, "visits", Question(COUNT + " WHERE age > 44", epsilon=0.01))
        return await service.ask(ada, "visits", question, again=True, idempotency_key="k3")

    assert asyncio.run(leave_and_return()).is_new
    assert count_charges(service, question.sql) == 2


def test_a_key_that_was_charged_under_is_not_freed_by_a_refusal_of_its_first_request(service, monkeypatch):
    question = Question(COUNT + " WHERE age > 45", epsilon=0.01)
    ada = sign_in(service, "ada")
    waits, may_end = threading.Event(), threading.Event()

    def refuse_late(*_):
        waits.set()
        assert may_end.wait(60)
        raise AccessDenied("it costs too much", why="the token is capped", fix="ask for less")

    def ask_again():
        return service.ask(ada, "visits", question, again=True, idempotency_key="k4")

    async def ask_twice():
        with monkeypatch.context() as patch:
            patch.setattr(service.auth, "reserve", refuse_late)
            first = asyncio.create_task(ask_again())
            assert await asyncio.to_thread(waits.wait, 60)
        with monkeypatch.context() as patch:
            patch.setattr(type(service.find("visits").sources.engine), "execute", fail)
            with pytest.raises(EngineFailed):
                await ask_again()
        may_end.set()
        with pytest.raises(AccessDenied):
            await first
        with pytest.raises(EngineFailed):  # the repetition's outcome, and no charge for another
            await ask_again()

    asyncio.run(ask_twice())
    assert count_charges(service, question.sql) == 1


def test_a_key_is_charged_once_though_it_is_confirmed_late(service, monkeypatch):
    question = Question(COUNT + " WHERE age > 47", epsilon=0.01)
    ada, reserve, confirm = sign_in(service, "ada"), service.auth.reserve, RequestKeys.confirm
    has_come, may_go = [threading.Event() for _ in range(3)], [threading.Event() for _ in range(2)]
    numbers = iter(range(3))

    def refuse_the_first(*arguments):
        number = next(numbers)
        if number != 1:
            has_come[number].set()
        if number == 0:
            assert may_go[0].wait(60)
            raise AccessDenied("it costs too much", why="the token is capped", fix="ask for less")
        reserve(*arguments)

    def confirm_late(*arguments):
        has_come[1].set()
        assert may_go[1].wait(60)
        confirm(*arguments)

    async def ask_three_times():
        tasks = []
        for number in range(3):
            request = service.ask(ada, "visits", question, again=True, idempotency_key="k6")
            tasks.append(asyncio.create_task(request))
            assert await asyncio.to_thread(has_come[number].wait, 60)
            if number == 1:  # it is charged, and the key does not say so yet
                may_go[0].set()
                with pytest.raises(AccessDenied):
                    await tasks[0]
        may_go[1].set()
        return await asyncio.gather(*tasks[1:], return_exceptions=True)

    monkeypatch.setattr(service.auth, "reserve", refuse_the_first)
    monkeypatch.setattr(RequestKeys, "confirm", confirm_late)
    monkeypatch.setattr(type(service.find("visits").sources.engine), "execute", fail)
    outcomes = asyncio.run(ask_three_times())

    assert [type(each) for each in outcomes] == [EngineFailed, EngineFailed]
    assert count_charges(service, question.sql) == 1


def test_a_question_is_recorded_though_its_key_names_another_request_by_now(service, monkeypatch):
    question = Question(COUNT + " WHERE age > 46", epsilon=0.01)
    ada, reserve = sign_in(service, "ada"), service.auth.reserve
    firsts, go = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    numbers = iter((0, 1))

    def wait_for_turn(*arguments):
        number = next(numbers)
        firsts[number].set()
        assert go[number].wait(60)
        if number == 0:
            raise AccessDenied("it costs too much", why="the token is capped", fix="ask for less")
        reserve(*arguments)

    async def ask_three_times():
        with monkeypatch.context() as patch:
            patch.setattr(service.auth, "reserve", wait_for_turn)
            tasks = []
            for has_come in firsts:
                tasks.append(asyncio.create_task(service.ask(ada, "visits", question, idempotency_key="k5")))
                assert await asyncio.to_thread(has_come.wait, 60)
        go[0].set()
        with pytest.raises(AccessDenied):
            await tasks[0]
        await service.ask(ada, "visits", Question(COUNT, epsilon=0.01), idempotency_key="k5")
        go[1].set()
        return await tasks[1]

    answer = asyncio.run(ask_three_times())

    items = {item.entry: item for item in service.history(ada, "visits")}
    assert items[answer.entry].question == question


def test_a_default_price_is_for_questions_that_state_none(tmp_path):
    service = open_hospital(tmp_path / "hospital", "epsilon = 0.03")
    ada = sign_in(service, "ada")
    clause = "WITH DIFFERENTIAL_PRIVACY OPTIONS({}) COUNT(*) AS n FROM visits"
    prices = {
        COUNT: "0.03",
        'SELECT COUNT(*) AS "options" FROM visits': "0.03",
        COUNT + " WHERE region = 'options(epsilon = 1)' -- OPTIONS(epsilon = 1)": "0.03",
        f"SELECT {clause.format('epsilon = 0.2')}": "0.2",
        f"SELECT {clause.format('max_groups_contributed = 1')}": "0.03",
    }

    try:
        assert {sql: service.plan(ada, "visits", Question(sql)).epsilon for sql in prices} == prices
        with pytest.raises(InvalidInput):
            service.plan(ada, "visits", Question(f"SELECT {clause.format('epsilon = x')}"))
        with pytest.raises(InvalidInput):
            service.plan(
                ada, "visits", Question(f"SELECT {clause.format('epsilon = 1')} WHERE age > '\ud800'")
            )
    finally:
        service.close()


def test_nothing_is_charged_during_a_pause(service):
    olga = sign_in(service, "olga")
    service.administration.pause(olga, "visits")
    try:
        with pytest.raises(Unavailable, match="paused"):
            ask(service, "ada", COUNT + " WHERE age > 39")
    finally:
        service.administration.pause(olga, "visits", is_paused=False)
    assert ask(service, "ada", COUNT + " WHERE age > 39").is_new


def test_a_larger_budget_needs_a_second_owner(service):
    olga, omar = sign_in(service, "olga"), sign_in(service, "omar")
    request = service.administration.grant(olga, "visits", "bob", 3)
    assert service.budget(olga, "visits").analysts["bob"][::2] == ("2", "4e-7")

    with pytest.raises(AccessDenied, match="yourself"):
        service.administration.approve(olga, "visits", request.request_id)
    service.administration.approve(omar, "visits", request.request_id)

    assert service.budget(olga, "visits").analysts["bob"][::2] == ("3", "4e-7")
    with pytest.raises(InvalidInput):
        service.administration.approve(omar, "visits", request.request_id)


def test_published_releases_are_seen_by_readers(service):
    olga, rita = sign_in(service, "olga"), sign_in(service, "rita")
    answer = ask(service, "ada", BY_REGION)
    service.library.publish(olga, "visits", answer.entry, "Visits by region")

    [publication] = service.library.read(rita, "visits")

    assert publication.title == "Visits by region"
    assert publication.result.to_dict() == answer.result.to_dict()
    with pytest.raises(AccessDenied):
        service.library.read(Principal.anonymous(), "visits")


def test_saved_questions_are_shared_only_on_purpose(service):
    ada, bob = sign_in(service, "ada"), sign_in(service, "bob")
    service.library.save(ada, "visits", "mine", Question(COUNT, epsilon=1))
    service.library.save(ada, "visits", "ours", Question(COUNT, epsilon=1), is_shared=True)

    assert {each.name for each in service.library.saved_questions(ada, "visits")} == {"mine", "ours"}
    assert {each.name for each in service.library.saved_questions(bob, "visits")} == {"ours"}


def test_labels_of_analysts_hide_the_questions_of_others(service):
    ask(service, "bob", COUNT + " WHERE age > 41")

    facts = service.label(sign_in(service, "ada"), "visits")

    assert "age > 41" not in str(facts)
    assert "age > 41" in str(service.label(sign_in(service, "olga"), "visits"))


def test_ledger_and_audit_log_verify(service):
    olga = sign_in(service, "olga")

    assert service.administration.verify_ledger(olga, "visits").ok
    assert service.administration.verify_audit(olga, "visits") == []
    assert any(each.action == "ask" for each in service.administration.audit(olga, "visits"))


def test_a_plan_does_not_tell_what_somebody_else_asked(service):
    question = Question("SELECT COUNT(*) AS n FROM visits WHERE age > 77", epsilon=0.01)
    ask(service, "ada", question.sql)
    assert service.plan(sign_in(service, "ada"), "visits", question).is_asked
    assert not service.plan(sign_in(service, "bob"), "visits", question).is_asked
