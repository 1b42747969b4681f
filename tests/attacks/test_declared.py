"""What the owner declared holds, and what people see of it.

| row | what an attacker does | mutant |
|---|---|---|
| A43 | the same rows under other names: hard link, pattern, view, Arrow dataset, copy, rows in memory | places_by_their_paths |
| A43-word | the same, with the word that they are new | places_by_their_paths |
| A44 | a link to the data from a folder that has no hubbub.toml | declared_beside_the_path_as_given |
| A54 | an output with an ending that is not known | any_ending |
| A61 | declared rows as a mapping, a pattern, a member; another ledger, unit or account than declared | what_is_passed_wins |
| A61-population | a smaller population than declared, which allows a larger δ | what_is_passed_wins |
| A61-member | one file of a declared pattern, or more files than were declared | what_is_passed_wins |
| A62 | the protected rows passed as a public table | public_and_protected |
| A62-ledger | rows that an account of the ledger pays for, passed as a public table | public_and_protected |
| A63 | letters that steer a terminal, or are markup, in every text that is not ours | printed_raw |
| A64 | an output that is, or leads to, data or a ledger | written_in_place |
"""  # noqa: E501 - a row is a line

import json
import os
import shutil
from contextlib import chdir, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import duckdb
import pandas as pd
import pyarrow.dataset
from typer.main import get_command

import hubbub as hb
from attacks import mutants_declared as mutants
from attacks.rows import Row, both_tests
from cli.terminal import run
from hubbub.cli.all_commands import app
from hubbub.errors import HubbubError
from hubbub.ledger import Ledger
from internals import engine_of

PEOPLE = 60
DECLARED = """ledger = "visits.ledger"
rows_per_unit = 1
[budget]
epsilon = 1
[tables.visits]
path = "visits.parquet"
unit = "patient"
"""


@contextmanager
def folder(target, declared=""):
    """A folder with rows, in which the step that is attacked is the target's."""
    with TemporaryDirectory() as directory, chdir(directory), target():
        Path("data").mkdir()
        rows = pd.DataFrame({"patient": range(PEOPLE), "region": ["North", "South"] * (PEOPLE // 2)})
        rows.to_parquet("data/visits.parquet")
        if declared:
            Path("data/hubbub.toml").write_text(declared, encoding="utf-8")
        yield Path(directory)


def spent(data, number, **options):
    """How much is spent by opening it so, and asking a question that was not asked before."""
    try:
        with hb.open(data, **options) as dataset:
            table = next(name for name, each in dataset.tables.items() if not each.is_public)
            dataset.run(dataset.sql(f"SELECT COUNT(*) AS n{number} FROM {table}", epsilon=1))
    except HubbubError:
        return 0
    return 1


# The same rows under other names


def _other_names():
    file = Path("data/visits.parquet")
    os.link(file, "linked.parquet")
    shutil.copy(file, "copy.parquet")
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW seen AS SELECT * FROM '{file}'")
    return {
        "hard link": ("linked.parquet", {}),
        "pattern": ("data/visit*.parquet", {"table": "v"}),
        "class": ("data/visits.parque[t]", {"table": "v"}),
        "copy": ("copy.parquet", {}),
        "view": (connection, {"table": "seen"}),
        "Arrow dataset": (pyarrow.dataset.dataset(file), {"table": "v"}),
        "memory": (pd.read_parquet(file), {"table": "v"}),
        "mapping": ({"v": file}, {}),
    }


def attack_A43(target):
    """All names together must not be worth more than one budget."""
    with folder(target):
        options = {"unit": "patient", "budget": hb.Budget(1), "ledger": "l", "rows_per_unit": 1}
        names = _other_names()
        total = spent("data/visits.parquet", 0, **options)
        for number, (data, more) in enumerate(names.values(), 1):
            total += spent(data, number, **options, **more)
            total += spent(data, number, **options, **more, account=f"a{number}")
        return total != 1


def attack_A43_word(target):
    """Nor may the word that rows are new win over what is known of them."""
    with folder(target):
        options = {"unit": "patient", "budget": hb.Budget(1), "ledger": "l", "rows_per_unit": 1}
        names = _other_names()
        spent("data/visits.parquet", 0, **options)
        known = ("hard link", "pattern", "class", "Arrow dataset", "mapping")
        return any(
            spent(data, 1, **options, **more, account="b", new_rows=True)
            for data, more in (names[name] for name in known)
        )


# What was declared


def attack_A44(target):
    """A link from elsewhere opens rows without the ledger that was declared for them."""
    with folder(target, DECLARED):
        Path("elsewhere").mkdir()
        Path("elsewhere/v.parquet").symlink_to(Path("data/visits.parquet").resolve())
        Path("elsewhere/all").symlink_to(Path("data").resolve())
        ways = ("elsewhere/v.parquet", "elsewhere/all/visits.parquet", "data/visits.parquet")
        return sum(spent(way, number, unit="patient") for number, way in enumerate(ways)) != 1


def _ways_around():
    file = Path("data/visits.parquet")
    os.link(file, "data/same.parquet")
    Path("data/below").mkdir()
    os.link(file, "data/below/same.parquet")
    Path("own.toml").write_text(
        DECLARED.replace("visits.ledger", "own.ledger").replace("visits.p", "data/visits.p"),
        encoding="utf-8",
    )
    return [
        (file, {}),
        (file, {"unit": "patient"}),
        ({"visits": file}, {"unit": "patient"}),
        ({"v": str(file)}, {"unit": "patient", "account": "v"}),
        ("data/visits.parque[t]", {"unit": "patient"}),
        ("data/same.parquet", {"unit": "patient"}),
        ("data/below/same.parquet", {"unit": "patient"}),
        (pyarrow.dataset.dataset(file), {"unit": "patient"}),
        (file, {"ledger": "other.ledger"}),
        (file, {"unit": hb.Unit.row(), "account": "b"}),
        (file, {"account": "b"}),
        (file, {"budget": hb.Budget(9), "ledger": "large.ledger"}),
        ("own.toml", {}),
    ]


def attack_A61(target):
    """All ways together must not be worth more than the declared budget, nor the shell's."""
    with folder(target, DECLARED):
        total = sum(spent(data, number, **options) for number, (data, options) in enumerate(_ways_around()))
        shell = ("query", "data/visits.parquet", "--epsilon", "1", "SELECT COUNT(*) AS m FROM visits")
        with mock.patch.dict(os.environ, {"HUBBUB_LEDGER": "env.ledger"}):
            total += run(*shell).code == 0
        total += run(*shell, "--ledger", "typed.ledger").code == 0
        total += run(*shell, "--unit", "row", "--account", "b").code == 0
        return total != 1


def attack_A61_population(target):
    """A δ above 1/population of the declared people must not be allowed by naming fewer."""
    with folder(target, f"population = 1000000\n{DECLARED}"):
        text = "SELECT region, COUNT(*) AS m FROM visits GROUP BY region"
        shell = (
            "plan",
            "data/visits.parquet",
            text,
            "--epsilon",
            "1",
            "--delta",
            "0.05",
            "--population",
            "9",
        )
        if run(*shell).code == 0:
            return True
        with suppress(HubbubError):
            hb.open("data/visits.parquet", population=9).sql(text, epsilon=1, delta=0.05)
            return True
        return False


def attack_A61_member(target):
    """A file of a declared pattern is declared."""
    with folder(target, DECLARED.replace("visits.parquet", "visits*.parquet")):
        shutil.copy("data/visits.parquet", "data/visits2.parquet")
        ways = ("data/visits2.parquet", "data/visits.parquet", "data/visits*.parquet", "data/*.parquet")
        return sum(spent(way, number, unit="patient") for number, way in enumerate(ways)) != 1


# Public and protected


def attack_A62(target):
    """Keys of a table that is passed as public are told as they are: none may be the patients'."""
    with folder(target):
        file = Path("data/visits.parquet")
        os.link(file, "linked.parquet")
        Path("link.parquet").symlink_to(file)
        connection = duckdb.connect()
        connection.execute(f"CREATE TABLE t AS SELECT * FROM '{file}'")
        connection.execute("CREATE VIEW w AS SELECT * FROM t")
        frame = pd.read_parquet(file)
        both = "\n[tables.p]\npublic = true\npath = "
        ways = [
            (file, {"public": {"p": each}})
            for each in (file, "linked.parquet", "link.parquet", "data/v*.parquet")
        ]
        ways += [(connection, {"table": "t", "public": {"p": each}}) for each in ("t", "main.t", "T")]
        ways += [(connection, {"table": "w", "public": {"p": each}}) for each in ("w", "main.w", '"W"')]
        ways.append((frame, {"public": {"p": frame}}))
        if any(_public_keys(data, unit="patient", **options) for data, options in ways):
            return True
        for path in ("visits.parquet", "v*.parquet", "../linked.parquet"):
            Path("data/hubbub.toml").write_text(f'{DECLARED}{both}"{path}"', encoding="utf-8")
            if _public_keys("data/hubbub.toml") or _public_keys(file):
                return True
        # Declared to be somebody's: not public beside other rows either.
        Path("data/hubbub.toml").write_text(DECLARED, encoding="utf-8")
        frame.to_csv("others.csv", index=False)
        if _public_keys("others.csv", unit="patient", public={"p": file}):
            return True
        declared = DECLARED.replace("visits.parquet", "others.csv") + both + '"data/visits.parquet"'
        Path("hubbub.toml").write_text(declared, encoding="utf-8")
        return bool(_public_keys("others.csv") or _public_keys("hubbub.toml"))


def attack_A62_ledger(target):
    """Rows that an account of the ledger pays for are not public to another."""
    with folder(target):
        options = {"unit": "patient", "budget": hb.Budget(1), "ledger": "l"}
        hb.open("data/visits.parquet", **options).close()
        os.link("data/visits.parquet", "same.parquet")
        pd.DataFrame({"patient": range(9)}).to_csv("others.csv", index=False)
        ways = ("data/visits.parquet", "same.parquet", "data/*.parquet")
        return any(_public_keys("others.csv", **options, public={"p": way}, new_rows=True) for way in ways)


def _public_keys(data, **options):
    try:
        with hb.open(data, **options) as dataset:
            return len(engine_of(dataset).distinct_values("p", "patient"))
    except HubbubError:
        return 0


# What people see

HOSTILE = "\x1b[2J\x1b]0;x\x07\x9b2J\u202e\u2066\r\b[red]x[/red]"
_STEERING = set("\x1b\x07\x9b\u202e\u2066\r\b\x7f\x85\u2028")


def attack_A63(target):
    """No command prints a letter that steers a terminal, wherever the letter comes from."""
    with folder(target):
        commands = list(_hostile_commands())
        assert {words[0] for words in commands} >= set(get_command(app).commands)
        texts = [text for words in commands for text in run(*words)[1:]]
        with suppress(HubbubError):
            hb.open("data/visits.parquet", unit=f"patient{HOSTILE}")
        return any(_STEERING & set(text) for text in texts) or _is_markup(texts)


def _is_markup(texts):
    """Whether what is written as markup was taken for it: then it is no longer there."""
    return any("2J" in text and "red]x[" not in text for text in texts)


def _hostile_commands():
    rows = pd.DataFrame({"patient": range(9), f"r{HOSTILE}\n": ["North"] * 9})
    rows.to_parquet("h.parquet")
    about = json.dumps(f"use {HOSTILE}")
    Path("hubbub.toml").write_text(
        f'ledger = "l"\n[budget]\nepsilon = 9\n[about]\nuse = {about}\n'
        '[tables.v]\npath = "data/visits.parquet"\nunit = "patient"\n',
        encoding="utf-8",
    )
    text = f"SELECT region, COUNT(*) AS n FROM v WHERE region <> '{HOSTILE}' GROUP BY region"
    plain = HOSTILE.replace("/", "")  # in the name of a file
    column = f"r{HOSTILE}\n".replace('"', '""')
    command = ("data/visits.parquet", text, "--epsilon", "1", "--rows-per-unit", "1")
    keys = ("--keys", f"region=North,{HOSTILE}")
    names = (f'SELECT COUNT(*) AS "n{HOSTILE}" FROM v', "--epsilon", "1", "--rows-per-unit", "1")
    other = ("h.parquet", "--unit", "patient", "--epsilon", "1", "--rows-per-unit", "1")
    return [
        ("query", *command, *keys),
        ("query", *command, *keys, "--format", "json"),
        ("query", *command, *keys, "--explain"),
        ("query", *command, *keys, "--output", f"{plain}.txt"),
        ("query", "data/visits.parquet", *names),
        ("plan", *command, *keys, "--explain"),
        ("plan", *command, *keys, "--format", "json"),
        ("plan", "data/visits.parquet", *names),
        ("limits", "data/visits.parquet", "--epsilon", "1", "--by", f"region{HOSTILE}"),
        ("functions", HOSTILE),
        ("plan", *other, f'SELECT SUM("{column}") AS s FROM h'),
        ("plan", *other, "SELECT SUM(nothing) AS s FROM h"),
        ("plan", *other, f"SELECT COUNT(*) AS n FROM h{HOSTILE}"),
        ("plan", "data/visits.parquet", text, *keys, "--epsilon", "1", "--bounds", f"{HOSTILE}=0:1"),
        ("query", "data/visits.parquet", text, "--epsilon", HOSTILE),
        ("query", f"{HOSTILE}.csv", text, "--epsilon", "1"),
        ("ledger", "list"),
        ("ledger", "show", "3"),
        ("ledger", "export"),
        ("ledger", "list", "--account", HOSTILE),
        ("budget",),
        ("budget", "open", f"a{HOSTILE}", "--unit", HOSTILE, "--epsilon", "1"),
        ("budget", "open", "b", "--unit", HOSTILE, "--epsilon", "1"),
        ("budget", "grant", HOSTILE, "--epsilon", "1"),
        ("budget", "--account", "b"),
        *(("report", "--account", "v", "--format", form) for form in ("text", "json", "yaml", "html")),
        ("init", "h.parquet", "--unit", HOSTILE, "--force"),
        ("init", "h.parquet", "--unit", "patient", "--yes", "--force"),
        ("choose", f"{HOSTILE}=9", "b=1", "--epsilon", "1"),
        ("choose", f"{HOSTILE}", "b=1", "--epsilon", "1"),
        ("loss", f"--{HOSTILE}"),
        ("error", "--epsilon", HOSTILE),
        ("demo", "--save", f"no{HOSTILE}"),
        ("ledger", "verify", "--head", HOSTILE, "--ledger", "l"),
        ("ledger", "key", f"k{plain}"),
        ("ledger", "sign", "--key", HOSTILE, "--ledger", "l"),
        ("ledger", "backup", f"b{plain}", "--ledger", "l"),
        ("ledger", "restore", f"b{plain}", "--ledger", f"r{plain}", "--nothing-since"),
        ("ledger", "list", "--ledger", HOSTILE),
        ("synopsis", "data/visits.parquet", "--epsilon", "1", "--delta", HOSTILE, "--output", "s.synopsis"),
        ("synopsis", "data/visits.parquet", "--epsilon", "1", "--delta", "1e-6", "--columns", f"a,{HOSTILE}"),
        ("synthesize", f"{HOSTILE}.synopsis", "--output", f"{plain}.csv"),
        (
            "synthesize",
            "data/visits.parquet",
            "--epsilon",
            "1",
            "--cuts",
            f"{HOSTILE}=1",
            "--output",
            "s.csv",
        ),
        ("audit", f"{HOSTILE}:f", "--epsilon", "1"),
        ("release", HOSTILE, "--epsilon", "1"),
        ("toss", HOSTILE),
        ("serve", f"{plain}.toml"),
        ("user", "list", "--config", f"{plain}.toml"),
        ("mcp", f"{plain}.toml", "--user", HOSTILE),
        (HOSTILE,),
    ]


# Outputs


def attack_A64(target):
    """Whatever an output is called, rows and ledger stay as they are; what fails costs nothing."""
    with folder(target):
        pd.read_parquet("data/visits.parquet").to_csv("data/visits.csv", index=False)
        os.link("data/visits.csv", "data/same.csv")
        words = ("query", "data/visits.csv", "--unit", "patient", "--epsilon", "1", "--rows-per-unit", "1")
        count = "SELECT COUNT(*) AS n FROM visits"
        Path("hubbub.toml").write_text(
            '[budget]\nepsilon = 9\n[tables.v]\npath="data/visits.csv"\nunit="patient"\n', encoding="utf-8"
        )
        Path("towns.csv").write_text("town\nUlm\n", encoding="utf-8")
        assert run(*words, "--ledger", "l", count.replace("visits", "v")).code == 0
        for link, to in (("a.csv", "data/visits.csv"), ("b.json", "l"), ("c.txt", "l-wal"), ("d.html", "l")):
            Path(link).symlink_to(to)
        before = _contents()
        failed = False
        for number, name in enumerate(
            ("data/visits.csv", "a.csv", "data/same.csv", "b.json", "towns.csv", "missing/x.csv"), 1
        ):
            text = f"SELECT COUNT(*) AS n{number} FROM v"
            out = run(*words, "--ledger", "l", text, "--public", "towns=towns.csv", "--output", name)
            failed |= out.code == 0
        for name in ("d.html", "data/visits.csv"):
            failed |= run("report", "--ledger", "l", "--format", "html", "--output", name).code == 0
        with suppress(HubbubError), hb.open("data/visits.csv") as data:
            release = data.run(data.sql("SELECT COUNT(*) AS n FROM v", epsilon=1, rows_per_unit=1))
            release.value.write("data/visits.csv")
            failed = True
        return failed or _contents() != before


def _contents():
    with suppress(HubbubError), Ledger.open("l") as ledger:
        assert ledger.verify().ok
        lines = len(list(ledger.entries()))
        return lines, Path("data/visits.csv").read_bytes(), Path("towns.csv").read_bytes()
    return None


def attack_A54(target):
    """A file with an ending that nobody knows holds a table in text, which no program reads."""
    with folder(target):
        words = ("query", "data/visits.parquet", "SELECT COUNT(*) AS n FROM visits", "--unit", "patient")
        names = ("x.htm", "x.xls", "x.doc")
        return any(run(*words, "--epsilon", "1", "--output", name).code == 0 for name in names)


OURS = {"hubbub": nullcontext}
ROWS = [
    Row("A43", attack_A43, OURS, mutants.places_by_their_paths),
    Row("A43-word", attack_A43_word, OURS, mutants.places_by_their_paths),
    Row("A44", attack_A44, OURS, mutants.declared_beside_the_path_as_given),
    Row("A54", attack_A54, OURS, mutants.any_ending),
    Row("A61", attack_A61, OURS, mutants.what_is_passed_wins),
    Row("A61-population", attack_A61_population, OURS, mutants.what_is_passed_wins),
    Row("A61-member", attack_A61_member, OURS, mutants.what_is_passed_wins),
    Row("A62", attack_A62, OURS, mutants.public_and_protected),
    Row("A62-ledger", attack_A62_ledger, OURS, mutants.public_and_protected),
    Row("A63", attack_A63, OURS, mutants.printed_raw),
    Row("A64", attack_A64, OURS, mutants.written_in_place),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)
