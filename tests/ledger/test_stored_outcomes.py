"""One outcome per charge: whatever a run comes to, at whichever step, is what all see who ask again."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest

import hubbub as hb
import hubbub.sql.composite_plan
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.errors import BudgetExceeded, EngineFailed, HubbubError, InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger, stored_outcomes
from hubbub.ledger.stored_outcomes import Attempt, capture_outcome, charge_and_run, has_ended, load_outcome
from hubbub.sql.planned_aggregates import NoisyAggregate
from ledger.storage import PATIENT

ROWS = pd.DataFrame({"who": range(20), "g": ["ab"[i % 2] for i in range(20)]})
SOURCE = str(Path(hb.__file__).parent)
SECRET = "the row of Ada Lovelace"  # noqa: S105 - what an error must not say
ERROR_CLASSES = [RuntimeError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit, Refused]
QUESTIONS = {
    "combined": "SELECT g, COUNT(*) AS n FROM people GROUP BY g",
    "ordered": "SELECT g, COUNT(*) AS n FROM people GROUP BY g ORDER BY n DESC LIMIT 1",
}
CHARGING = {("account.py", "record_charge"), ("in_memory_account.py", "charge")}
PRICE = PrivacyLoss.pure(Fraction(1, 10))


@pytest.fixture
def ledger(folder):
    with Ledger.open(folder / "people.ledger") as book:
        book.account("people", hb.Unit("who"), Budget(10))
        yield book


def open_data(ledger, version="1"):
    options = {"ledger": ledger, "version": version} if ledger is not None else {"budget": Budget(10)}
    return hb.open({"people": ROWS}, unit="who", keys={"g": ["a", "b"]}, rows_per_unit=1, **options)


def make(kind):
    return kind(SECRET, why=SECRET, fix=SECRET) if issubclass(kind, HubbubError) else kind(SECRET)


class Failing:
    """Raises at the n-th call of a function of ours after the charge; how many there were is in `calls`."""

    def __init__(self, at, kind):
        self.at, self.kind, self.calls, self.is_charged = at, kind, 0, False

    def __enter__(self):
        sys.setprofile(self.watch)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def watch(self, frame, event, _):
        code = frame.f_code
        if event == "return" and (Path(code.co_filename).name, code.co_name) in CHARGING:
            self.is_charged = True
        elif event == "call" and self.is_charged and code.co_filename.startswith(SOURCE):
            self.calls += 1
            if self.calls == self.at:
                sys.setprofile(None)
                raise make(self.kind)


class Asked:
    """What was seen of a question, and how often the rows were asked for it."""

    def __init__(self, data, text, epsilon):
        self.data, self.plan, self.runs = data, data.sql(text, epsilon=epsilon), 0

    def __call__(self):
        def count(*arguments, **options):
            self.runs += 1
            return hubbub.sql.executor.execute(*arguments, **options)

        try:
            with mock.patch.object(hubbub.sql.composite_plan, "execute", count):
                return self.data.run(self.plan).value.to_dict()
        except BaseException as problem:
            hangs = [problem.__cause__, problem.__context__]
            return type(problem).__name__, str(problem), hangs


def charges(data):
    """How often the question of price 1/10000 was charged; all else costs next to nothing."""
    return int(data.account.spent().epsilon * 10**4)


def fail_at_every(ledger, text, kind, step):
    """Let a run fail at every call after its charge, and ask again; how many steps there were."""
    at, reached = ERROR_CLASSES.index(kind) - step + 1, True
    while reached:
        at += step
        data = open_data(ledger, f"{at}")
        Asked(data, text, Fraction(1, 10**9))()  # at another price it is another question
        before = charges(data)
        ask = Asked(data, text, Fraction(1, 10**4))
        with Failing(at, kind) as failing:
            first = ask()
        runs, lines = ask.runs, charges(data) - before
        assert (runs <= 1, lines) == (True, 1)
        second = ask()
        paid = charges(data) - before
        assert ask.runs <= paid  # never a second noise for one charge
        assert [ask() for _ in range(2)] == [second, second]
        assert (ask.runs <= paid, charges(data) - before) == (True, paid)
        for seen in (first, second):
            if isinstance(seen, tuple) and seen[0] in {"EngineFailed", "Refused"}:
                # What is said of the first run is what is said for ever, unless it was said after the answer
                # had been stored; an interrupt goes on, and is told.
                is_stored = isinstance(second, dict) or "interrupted" in second[1]
                assert paid > 1 or second == first or is_stored
                assert seen[2] == [None, None]
                assert (SECRET in seen[1]) is (seen[0] == "Refused")
        reached = failing.calls >= at
    return at


# An exception that is raised in a generator which nobody asks any more is shown, and goes nowhere.
@pytest.mark.sweep(5)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("kind", ERROR_CLASSES)
def test_failure_at_any_call_after_the_charge_has_one_outcome(ledger, name, kind):
    assert fail_at_every(ledger, QUESTIONS[name], kind, 197) > 100
    assert ledger.verify().ok


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("kind", ERROR_CLASSES)
def test_failure_at_every_call_after_the_charge_has_one_outcome(ledger, name, kind):
    assert fail_at_every(ledger, QUESTIONS[name], kind, 1) > 100
    assert ledger.verify().ok


@pytest.mark.sweep(5)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ERROR_CLASSES)
def test_without_a_ledger_each_run_is_charged(kind):
    data = open_data(None)
    for number, at in enumerate(range(1, 400, 23), 1):
        ask = Asked(data, QUESTIONS["ordered"], Fraction(1, 1000))
        with Failing(at, kind):
            ask()
        assert data.account.spent().epsilon == Fraction(number, 1000)
        assert ask.runs <= 1


@pytest.mark.parametrize("ways", ["ledger", "memory"])
def test_each_stream_is_charged_even_if_it_fails_midway(ledger, ways):
    data = open_data(ledger if ways == "ledger" else None)
    plan = data.sql(QUESTIONS["combined"], epsilon=Fraction(1, 100))
    noises = []
    draw = NoisyAggregate.release

    def failing(*arguments, **options):
        noises.append(draw(*arguments, **options))
        if len(noises) % 2:
            raise RuntimeError(SECRET)
        return noises[-1]

    with mock.patch.object(NoisyAggregate, "release", failing):
        for number in range(1, 7):
            if number % 2:
                with pytest.raises(EngineFailed) as failed:
                    data.stream(plan)
                assert SECRET not in str(failed.value)
                assert (failed.value.__cause__, failed.value.__context__) == (None, None)
            else:
                stream = data.stream(plan).value
                assert [answers["n"] for answers in stream] == [answers["n"] for answers in stream]
            assert len(noises) == number
            assert data.account.spent().epsilon == Fraction(number, 100)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_callback_errors_reach_the_caller_after_the_outcome_is_stored(ledger, kind):
    data = open_data(ledger)
    plan = data.sql(QUESTIONS["ordered"], epsilon=0.1)
    own = kind("hers")

    def progress(step):
        raise own

    for _ in range(2):
        with pytest.raises(kind) as raised:
            data.run(plan, progress)
        assert raised.value is own
        plan = data.sql(QUESTIONS["ordered"], epsilon=0.2)
    for epsilon in (0.1, 0.2):
        with pytest.raises(EngineFailed, match="interrupted after it was charged, and its answer is lost"):
            data.run(data.sql(QUESTIONS["ordered"], epsilon=epsilon))
    assert data.account.spent().epsilon == Fraction(3, 10)


def test_refusal_keeps_its_class_and_message(ledger):
    class Special(Refused):
        pass

    def refused(*_, **__):
        raise Special("no bounds could be estimated", why="noise", fix="say them") from ValueError(SECRET)

    data = open_data(ledger)
    answers = []
    for way in (refused, hubbub.sql.executor.execute):
        with mock.patch.object(hubbub.sql.composite_plan, "execute", way), pytest.raises(Refused) as raised:
            data.run(data.sql(QUESTIONS["ordered"], epsilon=0.1))
        assert (raised.value.__cause__, raised.value.__context__) == (None, None)
        answers.append((type(raised.value), str(raised.value)))
    assert answers == [(Refused, "no bounds could be estimated: noise. Fix: say them.")] * 2


def test_unstored_outcome_makes_the_next_run_a_new_charge(ledger):
    data = open_data(ledger)
    full = LedgerFailed("the disk is full", why="x", fix="y")
    for number in range(1, 4):
        ask = Asked(data, QUESTIONS["combined"], Fraction(1, 10))
        with mock.patch.object(type(data.account), "record_release", side_effect=full):
            assert ask()[0] == "LedgerFailed"
        assert data.account.spent().epsilon == Fraction(number, 10)
    answer = ask()
    assert ask.runs == 2
    assert data.account.spent().epsilon == Fraction(4, 10)
    assert ask() == answer
    assert data.account.spent().epsilon == Fraction(4, 10)
    assert ledger.verify().ok


def test_answer_that_cannot_be_stored_is_a_stored_failure(ledger):
    spender = ledger.account("people")
    requests = {"what": "keys", "loss": PRICE, "unit": spender.unit, "key": "k"}
    for text in ("a key with \0", "another"):
        with pytest.raises(EngineFailed, match="the run failed"):
            charge_and_run(spender, lambda _, text=text: text, **requests)
    assert spender.spent().epsilon == Fraction(1, 10)


def test_waiting_for_another_attempt_ends_at_the_timeout(ledger, monkeypatch):
    spender = ledger.account("people")
    requests = {"what": "a count", "loss": PRICE, "unit": spender.unit, "key": "k"}
    slow = spender.record_charge(**requests, attempt="another machine 1 2 3")
    looks = []
    monkeypatch.setattr(stored_outcomes.time, "sleep", looks.append)
    clock = itertools.count(0, 100)
    monkeypatch.setattr(stored_outcomes.time, "monotonic", lambda: next(clock))
    charge, text = charge_and_run(spender, lambda _: "42", **requests)
    assert (charge.is_new, text, len(looks)) == (True, "42", 2)
    assert looks == [0.01, 0.02]
    assert spender.record_release(slow.number, "41") == "41"  # it was alive after all, and has paid too
    assert charge_and_run(spender, lambda _: "43", **requests)[1] == "42"
    assert spender.spent().epsilon == Fraction(2, 10)
    assert ledger.verify().ok


def test_old_charge_is_not_waited_for(ledger, monkeypatch):
    spender = ledger.account("people")
    requests = {"what": "a count", "loss": PRICE, "unit": spender.unit, "key": "k"}
    spender.record_charge(**requests)
    monkeypatch.setattr(stored_outcomes, "TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(stored_outcomes.time, "sleep", lambda _: pytest.fail("it waits"))
    assert charge_and_run(spender, lambda _: "42", **requests)[1] == "42"


def test_has_ended_of_attempts_in_this_process():
    with Attempt() as attempt:
        assert has_ended(attempt.name)  # who would wait for itself
        seen = []
        thread = threading.Thread(target=lambda: seen.append(has_ended(attempt.name)))
        thread.start()
        thread.join()
        assert seen == [False]
    assert has_ended(attempt.name)
    for unknown in (None, "", "one", "another machine 1 2", f"{attempt.name.split()[0]} x y z"):
        assert not has_ended(unknown)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells of other processes")
def test_has_ended_of_another_process():
    text = (
        "from hubbub.ledger.stored_outcomes import Attempt; import time\n"
        "print(Attempt().name, flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        name = other.stdout.readline().strip()
        assert not has_ended(name)
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
        assert has_ended(name)
        other.wait()
    assert has_ended(name)


def test_interrupt_carries_no_data():
    for kind, arguments in ((SystemExit, 3), (KeyboardInterrupt, SECRET), (GeneratorExit, SECRET)):

        def run(kind=kind, arguments=arguments):
            raise kind(arguments) from ValueError(SECRET)

        result = capture_outcome(run)
        assert type(result.interrupt) is kind
        assert result.interrupt.args == ((3,) if kind is SystemExit else ())
        assert result.interrupt.__cause__ is None


def test_base_exception_is_a_failure():
    class Panic(BaseException):
        pass

    def run():
        raise Panic(SECRET)

    result = capture_outcome(run)
    assert isinstance(result.error, EngineFailed)
    assert result.interrupt is None
    assert SECRET not in str(result.error)


def test_stored_outcomes_are_read_unchanged():
    stored = json.dumps({"format": "hubbub outcome/1", "error": ["Refused", "a", "b", "c"]})
    with pytest.raises(Refused, match=r"a: b\. Fix: c\."):
        load_outcome(stored)
    assert load_outcome('{"format": "hubbub result/1"}') == '{"format": "hubbub result/1"}'


def test_replaced_charges_are_named_in_entries(ledger):
    other = ledger.account("visits", PATIENT, Budget(1))
    first = other.record_charge("a count", PRICE, key="k")
    other.record_charge("a count", PRICE, key="k", replace_lost=first.number)
    bodies = [entry.body for entry in other.entries() if entry.kind == "charge"]
    assert [body.get("replaces") for body in bodies] == [None, first.number]
    assert ledger.verify().ok


def test_failure_is_run_again_for_a_new_charge_only(ledger):
    data = open_data(ledger)
    plan = data.sql(QUESTIONS["ordered"], epsilon=1)
    with (
        mock.patch("hubbub.sql.composite_plan.execute", side_effect=MemoryError(SECRET)),
        pytest.raises(EngineFailed),
    ):
        data.run(plan)
    with pytest.raises(EngineFailed, match="after it was charged"):
        data.run(plan)
    assert data.account.spent().epsilon == 1
    with (
        mock.patch("hubbub.sql.composite_plan.execute", side_effect=MemoryError(SECRET)),
        pytest.raises(EngineFailed),
    ):
        data.run(plan, again=True)
    assert data.account.spent().epsilon == 2
    result = data.run(plan, again=True).value
    assert data.account.spent().epsilon == 3
    # An answer is an answer: it is given again, and not drawn again.
    assert data.run(plan, again=True).value.to_dict() == result.to_dict() == data.run(plan).value.to_dict()
    assert data.account.spent().epsilon == 3
    assert ledger.verify().ok


def test_refusal_is_not_run_again(ledger):
    data = open_data(ledger)
    plan = data.sql(QUESTIONS["ordered"], epsilon=1)
    with mock.patch("hubbub.sql.composite_plan.execute", side_effect=make(Refused)), pytest.raises(Refused):
        data.run(plan)
    with pytest.raises(Refused):
        data.run(plan, again=True)
    assert data.account.spent().epsilon == 1


@pytest.mark.parametrize("kind", [LedgerFailed, InvalidInput])
def test_failure_can_be_asked_again_after_it_is_fixed(ledger, kind):
    data = open_data(ledger)
    plan = data.sql(QUESTIONS["ordered"], epsilon=1)
    with mock.patch("hubbub.sql.composite_plan.execute", side_effect=make(kind)), pytest.raises(kind):
        data.run(plan)
    with pytest.raises(kind):
        data.run(plan)
    data.run(plan, again=True)
    assert data.account.spent().epsilon == 2


def test_failure_is_no_part_of_later_answers(ledger):
    data = open_data(ledger)
    prices = [Fraction(1, 10), Fraction(2, 10)]
    for price in prices:
        plan = data.sql(QUESTIONS["combined"], epsilon=price)
        with (
            mock.patch("hubbub.sql.composite_plan.execute", side_effect=MemoryError),
            pytest.raises(EngineFailed),
        ):
            data.run(plan)
    answer = data.run(plan, again=True).value.to_dict()
    assert sum("replaces" in entry.body for entry in data.account.entries()) == 1
    # Who is shown it pays for it, and not for what came to nothing before.
    data.account.grant("ada", Budget(1))
    hers = hb.open(
        {"people": ROWS}, unit="who", keys={"g": ["a", "b"]}, rows_per_unit=1, ledger=ledger, analyst="ada",
        version="1",
    )  # fmt: skip
    assert hers.run(hers.sql(QUESTIONS["combined"], epsilon=prices[1])).value.to_dict() == answer
    assert hers.account.spent().epsilon == prices[1]
    assert ledger.verify().ok


@pytest.mark.parametrize("name", QUESTIONS)
def test_concurrent_reruns_are_charged_once(ledger, name):
    plans = [
        (data := open_data(ledger), data.sql(QUESTIONS[name], epsilon=Fraction(1, 10))) for _ in range(8)
    ]
    with (
        mock.patch("hubbub.sql.composite_plan.execute", side_effect=MemoryError),
        pytest.raises(EngineFailed),
    ):
        plans[0][0].run(plans[0][1])
    start, seen = threading.Barrier(8), []

    def ask(data, plan):
        start.wait()
        seen.append(data.run(plan, again=True).value.to_dict())

    threads = [threading.Thread(target=ask, args=each) for each in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [seen[0]] * 8
    assert plans[0][0].account.spent().epsilon == Fraction(2, 10)
    assert ledger.verify().ok


def test_rerun_beyond_the_budget_keeps_the_stored_failure(ledger):
    data = open_data(ledger)
    plan = data.sql(QUESTIONS["ordered"], epsilon=6)
    with (
        mock.patch("hubbub.sql.composite_plan.execute", side_effect=MemoryError),
        pytest.raises(EngineFailed),
    ):
        data.run(plan)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            data.run(plan, again=True)
        with pytest.raises(EngineFailed, match="after it was charged"):
            data.run(plan)
    assert data.account.spent().epsilon == 6
    assert ledger.verify().ok
