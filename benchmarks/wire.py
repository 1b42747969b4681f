"""The PostgreSQL wire on loopback: how long connecting takes, and what it adds to asking the service itself.

.venv/bin/python benchmarks/wire.py

Both sides run in one process and share its interpreter. Deadlines are switched off: a server holds answers
until theirs, so that the difference would not be seen.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.remove(str(Path(__file__).parent))  # another `server` would be found in it

import psycopg

from hubbub.server.service_types import Question
from server.hospital import PASSWORD, open_hospital
from server.wire import running_listener, url

CONNECTIONS = 50
QUESTIONS = 40


def timed(work, number):
    """Median and 95th percentile of the times of some calls, in milliseconds."""
    times = []
    for place in range(number):
        start = time.perf_counter()
        work(place)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def sql(place, offset):
    age = offset + place / 1000
    return f"SELECT region, COUNT(*) AS n FROM visits WHERE age > {age} GROUP BY region"  # noqa: S608


def main():
    with tempfile.TemporaryDirectory() as folder:
        service = open_hospital(Path(folder) / "hospital", "requests_per_minute = 1000000")
        ada = service.auth.sign_in("ada", PASSWORD)

        def ask(place, offset=20):
            question = Question(sql(place, offset), epsilon=0.001)
            asyncio.run(service.ask(ada, "visits", question))

        with running_listener(service) as port:
            address = url(port, epsilon="0.001")

            def connect(_):
                psycopg.connect(address).close()

            connect(0)
            ask(-1)
            rows = {"connect (TCP, SCRAM, settings)": timed(connect, CONNECTIONS)}
            rows["a new question, service"] = timed(ask, QUESTIONS)
            with psycopg.connect(address, autocommit=True) as connection:
                rows["a new question, wire"] = timed(
                    lambda place: connection.execute(sql(place, 30)).fetchall(), QUESTIONS
                )
                rows["the same question, service"] = timed(ask, QUESTIONS)
                rows["the same question, wire"] = timed(
                    lambda place: connection.execute(sql(place, 30)).fetchall(), QUESTIONS
                )
                connection.execute("SELECT oid FROM pg_class WHERE relname = 'visits'")
                rows["a query of the catalogs"] = timed(
                    lambda _: connection.execute("SELECT oid FROM pg_class WHERE relname = 'visits'"),
                    QUESTIONS,
                )
        service.close()
    print(f"{'':32} {'median':>9} {'95 %':>9}  ms")
    for name, (median, high) in rows.items():
        print(f"{name:32} {median:9.1f} {high:9.1f}")
    for kind in ("a new", "the same"):
        added = rows[f"{kind} question, wire"][0] - rows[f"{kind} question, service"][0]
        print(f"the wire adds to {kind} question: {added:.1f} ms")


if __name__ == "__main__":
    main()
