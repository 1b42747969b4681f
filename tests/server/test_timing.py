"""The time of a query with rows that explode (A39) does not tell whether they are there."""

import asyncio
import statistics
import time

import pytest

from hubbub.errors import EngineFailed
from hubbub.server.service_types import Question
from server.hospital import PASSWORD, open_hospital

pytestmark = pytest.mark.long
ROUNDS = 17
"""If times do not tell, all of one kind are below all of the other with probability 2 / C(34, 17) < 1e-9."""
JOIN = "SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b ON a.patient = b.patient WHERE a.age > {}"


def measure(tmp_path, deadlines):
    """Times of the same questions, asked of two hospitals in turn; one has a patient with 1,000 visits."""
    services = []
    for name, rows in (("without", 1), ("with", 1000)):
        service = open_hospital(tmp_path / name, deadlines=deadlines, extra_visits=rows)
        services.append((service, service.auth.sign_in("ada", PASSWORD)))
    times = ([], [])
    try:
        for place in range(-1, ROUNDS):
            for (service, ada), durations in zip(services, times, strict=True):
                started = time.monotonic()
                try:
                    question = Question(JOIN.format(place), epsilon=0.01)
                    asyncio.run(service.ask(ada, "visits", question))
                except EngineFailed:
                    assert deadlines != "[]"  # late, on a busy machine
                if place >= 0:  # the first one opens the data
                    durations.append(time.monotonic() - started)
    finally:
        for service, _ in services:
            service.close()
    return times


def test_times_of_answers_do_not_tell_who_is_there(tmp_path):
    without, there = measure(tmp_path, "[0.5, 2]")

    assert min(without + there) >= 2
    assert max(without) > min(there)
    assert max(there) > min(without)


def test_times_would_tell_without_deadlines(tmp_path):
    """The attack works where there is no defence: else the test above says nothing."""
    without, there = measure(tmp_path, "[]")

    assert statistics.median(there) > 1.5 * statistics.median(without)
