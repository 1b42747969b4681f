"""Many at once: nothing is overspent, no key is charged twice, no line is lost, and nobody waits for ever."""

import multiprocessing
import random
from fractions import Fraction

import pytest

from internals import store_of
from ledger import workers
from ledger.storage import account

# A server that was started before any thread, from which processes are made; all have loaded what they need.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["ledger.workers", "hubbub.ledger.postgres", "hubbub.ledger.sqlite", "psycopg"]
)


def together(worker, processes, *arguments):
    with CONTEXT.Pool(processes) as pool:
        running = [pool.apply_async(worker, arguments) for _ in range(processes)]
        return [each.get(timeout=3000) for each in running]


def check_sum(storage, processes, each, fitting):
    with storage.open() as ledger:
        account(ledger)
        let_through = together(workers.charge_many, processes, storage.address, each, Fraction(1, fitting))
        assert sum(let_through) == fitting
        spent = ledger.account("visits").spent().epsilon
        result = ledger.verify()
    assert spent == 1
    assert (result.ok, result.entries) == (True, fitting + 1)


def check_keys(storage, processes, keys):
    with storage.open() as ledger:
        account(ledger)
        result = together(workers.charge_keys, processes, storage.address, keys, Fraction(1, keys))
        spent = ledger.account("visits").spent().epsilon
        verdict = ledger.verify()
    assert spent == 1
    assert (verdict.ok, verdict.entries) == (True, 2 * keys + 1)
    for answers in zip(*result, strict=True):
        assert sum(is_new for is_new, _ in answers) == 1
        assert len({text for _, text in answers}) == 1


def test_racing_processes_never_overspend(storage):
    check_sum(storage, processes=8, each=100, fitting=500)


def test_concurrent_opening_and_closing_loses_nothing(storage):
    with storage.open() as ledger:
        account(ledger)
    assert sum(together(workers.open_and_charge, 6, storage.address, 15, Fraction(1, 1000))) == 90
    with storage.open() as ledger:
        assert ledger.account("visits").spent().epsilon == Fraction(9, 100)
        assert ledger.verify().ok


def test_key_charged_concurrently_has_one_charge_and_one_answer(storage):
    check_keys(storage, processes=8, keys=25)


@pytest.mark.long
def test_sixty_four_processes_with_a_hundred_thousand_charges_never_overspend(storage):
    check_sum(storage, processes=64, each=100_000 // 64, fitting=60_000)


@pytest.mark.long
def test_sixty_four_processes_charge_a_thousand_keys_once(storage):
    check_keys(storage, processes=64, keys=1000)


def check_kills(storage, kills, seed):
    """Kill −9, again and again, somewhere in charge → run → record; what was said before must hold after."""
    rng = random.Random(seed)
    with storage.open() as ledger:
        account(ledger)
    charged, values, first = {}, {}, 0
    for kill in range(kills):
        mine, its = CONTEXT.Pipe(duplex=False)
        child = CONTEXT.Process(target=workers.live, args=(storage.address, first, its))
        child.start()
        its.close()
        answers = [mine.recv() for _ in range(rng.randrange(8))]
        child.kill()
        child.join()
        try:
            while True:  # what was still in the pipe had been said too
                answers.append(mine.recv())
        except EOFError:
            mine.close()
        for what, key, value in answers:
            if what == "charged":
                assert value not in charged  # a charge is run once, by whoever made it
                charged[value] = key
            else:
                assert values.setdefault(key, value) == value
        first = max(values, default=-1) + 1
        if kill % max(50, kills // 10) == 0 or kill == kills - 1:
            check_what_was_said(storage, charged, values, kill + 1)


def check_what_was_said(storage, charged, output, kills):
    with storage.open() as ledger:
        spender = ledger.account("visits")
        store_of(ledger).write(lambda _: None)  # a server may still be at what the dead had sent
        assert ledger.verify().ok
        lines = {entry.number: entry.body["key"] for entry in spender.entries() if entry.kind == "charge"}
        for number, key in charged.items():
            assert lines[number] == f"key {key}"
        for number, text in output.values():
            assert spender.get_release(number) == text
        # Who is killed may have charged what nobody sees: budget wasted, and not run again.
        assert len(lines) - len(output) <= kills
        assert spender.spent().epsilon == Fraction(len(lines), 10**6)


def test_killed_process_loses_nothing_acknowledged(storage):
    check_kills(storage, 30, seed=5)


@pytest.mark.long
def test_ten_thousand_kills_lose_nothing_acknowledged(storage):
    check_kills(storage, 10_000, seed=6)
