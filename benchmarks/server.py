"""A server under load: questions over TLS from many connections; nothing lost, charged twice or overspent.

.venv/bin/python benchmarks/server.py [--connections 200] [--questions 2000]
"""

import argparse
import asyncio
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import httpx
from measure import Target, show, show_targets

from hubbub.cli.demo import REGIONS, write_visits
from hubbub.dataset_opening import open as open_dataset
from hubbub.ledger import Ledger
from hubbub.server.service import Service
from hubbub.server.service_types import Principal, Role

CONNECTIONS, QUESTIONS = 200, 2000
EPSILON = Fraction(1, 1000)
USERS = 8
REPETITIONS = 200
_CONFIG = """
rows_per_unit = 10
ledger = "visits.ledger"
[budget]
epsilon = 10
[server]
port = 0
wire_port = 0
slots = 2
queue = 4000
deadlines = {deadlines}
requests_per_minute = 10000000
[tables.visits]
path = "visits.parquet"
unit = "patient"
keys = {{ region = [{regions}] }}
"""


def question(place: int) -> dict[str, str]:
    text = f"SELECT region, COUNT(*) AS n FROM visits WHERE cost > {place} GROUP BY region"  # noqa: S608 - a number
    return {"sql": text, "epsilon": str(EPSILON)}


class Served:
    """A server process over a new ledger, with analysts and their tokens."""

    def __init__(self, folder: Path, deadlines: str) -> None:
        self.folder = folder
        write_visits(folder / "visits.parquet")
        regions = ", ".join(f'"{region}"' for region in REGIONS)
        config = folder / "hubbub.toml"
        config.write_text(_CONFIG.format(deadlines=deadlines, regions=regions))
        service = Service.open(config)
        self.tokens = []
        service.auth.add_user("owner", "correct horse battery", by="benchmark")
        service.auth.set_role("owner", "visits", Role.OWNER, by="benchmark")
        for number in range(USERS):
            name = f"user{number}"
            service.auth.add_user(name, "correct horse battery", by="benchmark")
            service.auth.set_role(name, "visits", Role.ANALYST, by="benchmark")
            service.administration.grant(Principal("owner"), "visits", name, 3)
            self.tokens.append(service.auth.make_token(Principal(name), "benchmark")[1])
        service.close()
        command = [sys.executable, "-c", "from hubbub.cli import main; main()", "serve", str(config)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.process.stdout.readline()
        self.trust = ssl.create_default_context(cafile=folder / "server.pem")

    def processor_seconds(self) -> float:
        """Seconds that processors have worked for the server."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGTERM)
        self.process.wait(120)


async def load(served: Served, connections: int, questions: int) -> tuple[list[float], list[dict], float]:
    """Ask all questions, each twice, from many connections; return times, answers, and seconds in all.

    A server closes a connection on which no request comes for 15 seconds, as a client that waits for a
    processor may find. The request is repeated then, as `hubbub.connect` does.
    """
    jobs: asyncio.Queue[int] = asyncio.Queue()
    for place in range(questions):
        jobs.put_nowait(place % (questions // 2))
    times: list[float] = []
    answers: list[dict] = []

    async def work(number: int) -> None:
        headers = {"authorization": f"Bearer {served.tokens[number % USERS]}"}
        async with httpx.AsyncClient(base_url=served.url, verify=served.trust, timeout=600) as client:
            while not jobs.empty():
                place = jobs.get_nowait()
                started = time.perf_counter()
                try:
                    answer = await client.post(
                        "/api/v1/datasets/visits/run", json=question(place), headers=headers
                    )
                except httpx.RemoteProtocolError:
                    jobs.put_nowait(place)
                    print(f"closed without an answer, and repeated: question {place}")
                    continue
                times.append(time.perf_counter() - started)
                answers.append({"place": place, "status": answer.status_code, **answer.json()})

    started = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(connections)))
    return times, answers, time.perf_counter() - started


def check(served: Served, answers: list[dict], questions: int) -> tuple[int, int, int]:
    """Return how many answers are lost, how many questions were charged twice, and 1 if more was spent."""
    lost = questions - sum(answer["status"] == 200 for answer in answers)
    with Ledger.open(served.folder / "visits.ledger") as ledger:
        assert ledger.verify().ok
        account = ledger.account("visits")
        keys = [entry.body["key"] for entry in account.entries() if entry.kind == "charge"]
        entries = {answer["place"]: set() for answer in answers}
        for answer in answers:
            entries[answer["place"]].add(answer.get("entry"))
        double = len(keys) - len(set(keys)) + sum(len(each) > 1 for each in entries.values())
        over = account.spent().epsilon > account.privacy_filter.epsilon
        over = over or account.spent().epsilon != len(keys) * EPSILON
    return lost, double, int(over)


async def overhead(
    served: Served,
) -> tuple[list[float], list[float], list[float], tuple[float, float], float]:
    """A repeated question over one connection, a file of the page, and `run` beside the ledger, in turns.

    Return the milliseconds of each, those of processors for the first and the last, and of connecting. The
    file shows what client, TLS and waiting for a processor take by themselves.
    """
    headers = {"authorization": f"Bearer {served.tokens[0]}"}
    served_times, file_times, own_times, connects = [], [], [], []
    served_busy = own_busy = 0.0
    request = question(0)
    async with httpx.AsyncClient(base_url=served.url, verify=served.trust, timeout=60) as client:
        with open_dataset(served.folder / "hubbub.toml", analyst="user0") as data:
            for number in range(10 + REPETITIONS):
                if number == 10:
                    served_busy = own_busy = 0.0
                before, started = served.processor_seconds(), time.perf_counter()
                await client.post("/api/v1/datasets/visits/run", json=request, headers=headers)
                served_times.append(1e3 * (time.perf_counter() - started))
                served_busy += served.processor_seconds() - before
                started = time.perf_counter()
                await client.get("/static/icon.svg")
                between, busy = time.perf_counter(), time.process_time()
                data.run(data.sql(request["sql"], epsilon=EPSILON))
                own_times.append(1e3 * (time.perf_counter() - between))
                own_busy += time.process_time() - busy
                file_times.append(1e3 * (between - started))
    for _ in range(20):
        started = time.perf_counter()
        host, _, port = served.url.removeprefix("https://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=served.trust)
        connects.append(1e3 * (time.perf_counter() - started))
        writer.close()
    busy_each = (1e3 * served_busy / REPETITIONS, 1e3 * own_busy / REPETITIONS)
    return served_times[10:], file_times[10:], own_times[10:], busy_each, statistics.median(connects)


def _compare(title: str, served: float, own: float) -> Target:
    measured = f"{served - own:.1f} ms ({served:.1f} − {own:.1f}, {served / own:.2f}×)"
    return Target(title, "≤ 10 ms", measured, served - own <= 10)


def run(connections: int = CONNECTIONS, questions: int = QUESTIONS) -> None:
    rows, targets = [], []
    for deadlines in ("[]", "[0.25, 1]"):
        with tempfile.TemporaryDirectory() as folder:
            served = Served(Path(folder), deadlines)
            try:
                times, answers, seconds = asyncio.run(load(served, connections, questions))
                if deadlines == "[]":
                    repeated, file, own, busy, connect = asyncio.run(overhead(served))
            finally:
                served.stop()
            lost, double, over = check(served, answers, questions)
        late = sum(answer["status"] == 500 for answer in answers)
        rows.append((
            f"deadlines = {deadlines}", f"{seconds:.0f} s", f"{questions / seconds:.0f}",
            f"{statistics.median(times):.2f} s", f"{max(times):.1f} s",
            *map(str, (lost, late, double, over)),
        ))  # fmt: skip
        targets.append(
            Target(
                f"lost, charged twice, overspent; {deadlines}",
                "0, 0, 0",
                f"{lost - late}, {double}, {over}",
                lost - late + double + over == 0,
            )
        )
    columns = (
        "",
        "time",
        "a second",
        "median",
        "longest",
        "not answered",
        "… late",
        "charged twice",
        "overspent",
    )
    show(f"{questions:,} questions, half of them repeated, over {connections} TLS connections", columns, rows)
    targets += [
        _compare("REST over `run` of a stored question, medians",
                 statistics.median(repeated), statistics.median(own)),
        _compare("… beyond a file over the same connection",
                 statistics.median(repeated) - statistics.median(file), statistics.median(own)),
        _compare("… the quickest tenths, which other programs lengthen least",
                 statistics.quantiles(repeated, n=10)[0], statistics.quantiles(own, n=10)[0]),
        _compare("… of processor time, which other programs do not lengthen", *busy),
        Target("TLS connection, idle", "≤ 50 ms", f"{connect:.1f} ms", connect <= 50),
    ]  # fmt: skip
    show_targets(targets)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A server under load.")
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    chosen = parser.parse_args()
    run(chosen.connections, chosen.questions)
