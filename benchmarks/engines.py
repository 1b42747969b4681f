# ruff: noqa: S608 - nothing here comes from a person
"""The same private query in PostgreSQL and Spark, beside the engines' own plain queries and peers on Spark.

Processor time is that of the server's processes, so what else the machine does is not counted.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Target, show, show_targets
from on_spark import COUNTS, GIVEN, PLAIN_COUNTS, PLAIN_USERS, USERS, questions
from processes import ROUNDS, best
from visits import visits

import hubbub as hb

sys.path.append(str(Path(__file__).parents[1] / "tests"))

LEAST = 1_000_000
"""Rows: below, an engine's own beginnings are what is measured."""
ROWS = {"PostgreSQL": (1_000_000, 10_000_000), "Spark": (1_000_000, 10_000_000, 100_000_000)}
PEERS = {"tmlt.analytics": ".venv-tumult", "pipeline-dp": ".venv-pipelinedp"}
"""Packages and their environments."""
PEER_ROWS = 1_000_000
"""The most that peers are asked of: they take minutes."""

Times = dict[str, tuple[float, float]]
"""Seconds of wall and of processor time of each question."""


def run(most: int | None = None) -> None:
    """All engines and peers that are here; `most` rows at most."""
    targets = []
    for engine, make in {"PostgreSQL": postgresql, "Spark": spark}.items():
        for rows in ROWS[engine]:
            if most is None or rows <= most:
                timed = make(visits(rows))
                targets += display(engine, rows, timed)
                if engine == "Spark" and rows <= PEER_ROWS and not isinstance(timed, str):
                    targets += beside_peers(rows, timed)
    show_targets(targets)


def display(engine: str, rows: int, timed: Times | str) -> list[Target]:
    if isinstance(timed, str):
        show("", (f"{engine}: {timed}",), ())  # a title alone would not be printed
        return []
    units, plainly = timed[PLAIN_USERS][1], timed[PLAIN_COUNTS][1]
    show(
        f"{engine}, {rows:,} rows (best of {ROUNDS})",
        ("", "wall s", "CPU s", "CPU over plain", "CPU over COUNT(DISTINCT user)"),
        [
            (what, f"{wall:.2f}", f"{cpu:.2f}", f"{cpu / plainly:.2f}×", f"{cpu / units:.2f}×")
            for what, (wall, cpu) in timed.items()
        ],
    )
    ours = timed[COUNTS][1] / units
    return [Target(f"{engine}, {rows:,} rows, over COUNT(DISTINCT user)", "≤ 3×", f"{ours:.2f}×", ours <= 3)]


def beside_peers(rows: int, ours: Times) -> list[Target]:
    """Processor time over that of plain queries in the same session, ours and the peers'."""
    lines, targets = [], []
    for package in ("hubbub", *PEERS):
        timed = ours if package == "hubbub" else spark(visits(rows), package)
        if isinstance(timed, str):
            lines.append((package, timed, "", "", ""))
            continue
        for what in (COUNTS, USERS):
            over = [timed[what][1] / timed[base][1] for base in (PLAIN_COUNTS, PLAIN_USERS)]
            lines.append((package, what, f"{timed[what][1]:.2f}", *(f"{ratio:.2f}×" for ratio in over)))
            if package == "tmlt.analytics":
                gain = over[0] / (ours[what][1] / ours[PLAIN_COUNTS][1])
                name = f"Spark, {rows:,} rows, Tumult's ratio over ours, {what}"
                targets.append(Target(name, "≥ 10×", f"{gain:.1f}×", gain >= 10))
    show(
        f"On Spark, {rows:,} rows, beside peers",
        ("", "", "CPU s", "over plain", "over COUNT(DISTINCT user)"),
        lines,
    )
    return targets


def spark(path: Path, package: str = "hubbub") -> Times | str:
    """What it took, in a process of its own: each begins with a Java that is as cold as the others'."""
    if shutil.which("java") is None:
        return "Java is not installed"
    here = Path(__file__).parent
    python = sys.executable if package == "hubbub" else here.parent / PEERS[package] / "bin" / "python"
    if not Path(python).exists():
        return f"{PEERS[package]} is not there"
    with tempfile.TemporaryDirectory() as folder:  # a peer leaves its warehouse where it runs
        command = [python, here / "on_spark.py", package, path]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else "failed"


def postgresql(path: Path) -> Times | str:
    from servers import WHY_NOT, Server

    if WHY_NOT:
        return WHY_NOT
    import duckdb
    import psycopg

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder), "-c shared_buffers=1GB -c work_mem=256MB -c max_wal_size=8GB")
        try:
            with psycopg.connect(server.address(), autocommit=True) as owner:
                owner.execute(
                    'CREATE UNLOGGED TABLE visits ("user" bigint, region text, product int, cost float8)'
                )
                rows = duckdb.execute(f"SELECT \"user\", region, product, cost FROM '{path}'")
                with owner.cursor() as cursor, cursor.copy("COPY visits FROM STDIN") as copy:
                    while some := rows.fetchmany(50_000):
                        copy.write("".join("\t".join(map(str, row)) + "\n" for row in some))
                owner.execute("VACUUM ANALYZE visits")
                owner.execute("SET work_mem = '256MB'")
                root = int((server.data / "postmaster.pid").read_text().splitlines()[0])
                with hb.open(server.address(), **GIVEN) as data:

                    def ask(what: str) -> Callable[[], object]:
                        text = f"SELECT region, {what} FROM visits GROUP BY region"
                        return lambda: owner.execute(text).fetchall()

                    own = {
                        PLAIN_COUNTS: ask("COUNT(*), AVG(cost)"),
                        PLAIN_USERS: ask('COUNT(DISTINCT "user")'),
                    }
                    return best(own | questions(data), root)
        finally:
            server.stop()


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else None)
