"""`hubbub synopsis`, and `hubbub query` of its file."""

import pytest

from cli.terminal import run

OPTIONS = [
    *("--unit", "row", "--epsilon", "1", "--delta", "1e-6", "--step", "age=1"),
    *("--keys", "region=North,South", "sex=f,m", "--bounds", "age=0:99", "--cuts", "age=18:65"),
]


@pytest.fixture
def people(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{['North', 'South'][i % 2]},{'fm'[i // 2 % 2]},{i % 100}" for i in range(2000)]
    (tmp_path / "people.csv").write_text("\n".join(["region,sex,age", *rows]) + "\n")
    return tmp_path


def test_plan_is_shown_and_nothing_written_without_output(people):
    out = run("synopsis", "people.csv", *OPTIONS)
    assert out.code == 0, out.stderr
    assert "nothing spent" in out.stdout
    assert sorted(path.name for path in people.iterdir()) == ["people.csv"]


@pytest.mark.slow
def test_file_answers_queries_for_free(people):
    out = run("synopsis", "people.csv", *OPTIONS, "--output", "people.synopsis")
    assert out.code == 0, out.stderr
    assert "spent: ε = 1" in out.stdout
    (people / "people.csv").unlink()
    sql = "SELECT region, COUNT(*) AS n FROM people WHERE age >= 65 GROUP BY region"
    answer = run("query", "people.synopsis", sql, "--format", "csv")
    assert answer.code == 0, answer.stderr
    assert answer.stdout.splitlines()[0] == "region,n,n_low,n_high"
    assert len(answer.stdout.splitlines()) == 3
    for option in (["--epsilon", "1"], ["--unit", "row"], ["--exact"]):
        assert run("query", "people.synopsis", sql, *option).code == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--output", "people.csv"],
        ["--workload", "9"],
        ["--workload", "age,nobody"],
        ["--objective", "median"],
        ["--focus", "nobody"],
        ["--impossible", "age <"],
        ["--cuts", "sex=1"],
        ["--nulls", "nobody"],
        ["--columns", "age,name"],
    ],
)
def test_unusable_options_are_refused(people, options):
    out = run("synopsis", "people.csv", *OPTIONS, *options)
    assert out.code == 2
    assert "Fix:" in out.stderr
    assert sorted(path.name for path in people.iterdir()) == ["people.csv"]


def test_bounds_and_cuts_imply_numbers_and_dates_as_in_queries(people):
    lines = (people / "people.csv").read_text().splitlines()
    dated = [
        f"{line},{'day' if place == 0 else f'2026-01-{1 + place % 28:02}'}"
        for place, line in enumerate(lines)
    ]
    (people / "dated.csv").write_text("\n".join([*dated, "North,f,old,never"]) + "\n")
    price = ("--unit", "row", "--epsilon", "1", "--delta", "1e-6", "--keys", "region=North,South", "sex=f,m")
    ends = {
        "bounds": ("--bounds", "age=0:99", "day=2026-01-01:2026-01-28"),
        "cuts": ("--cuts", "age=0:18:99", "day=2026-01-01:2026-01-15:2026-01-28"),
    }
    for declared in ends.values():
        plan = run("synopsis", "dated.csv", *price, *declared)
        assert plan.code == 0, plan.stderr
        typed = run("synopsis", "dated.csv", *price, *declared, "--type", "age=number,day=date")
        assert typed.stdout == plan.stdout
    out = run(
        "synopsis", "dated.csv", *price, *ends["bounds"], "--nulls", "age,day", "--output", "d.synopsis"
    )
    assert out.code == 0, out.stderr
    answer = run("query", "d.synopsis", "SELECT COUNT(*) AS n FROM dated WHERE day >= DATE '2026-01-10'")
    assert answer.code == 0, answer.stderr
    rows = run("synthesize", "dated.csv", *price, *ends["bounds"], "--rows", "9", "--output", "rows.csv")
    assert rows.code == 0, rows.stderr
    day = (people / "rows.csv").read_text().splitlines()[1].split(",")[-1]
    assert "2026-01-01" <= day <= "2026-01-28"


def test_tables_and_rules_are_read(people):
    more = ["--workload", "age,sex;region", "--impossible", "age < 18 AND sex = 'm'", "--focus", "region"]
    out = run("synopsis", "people.csv", *OPTIONS, *more)
    assert out.code == 0, out.stderr
    assert "2 tables" in out.stdout


def test_synthetic_rows_from_a_synopsis_are_free(people):
    assert run("synopsis", "people.csv", *OPTIONS, "--output", "people.synopsis").code == 0
    out = run("synthesize", "people.synopsis", "--rows", "50", "--output", "rows.csv")
    assert out.code == 0, out.stderr
    lines = (people / "rows.csv").read_text().splitlines()
    assert lines[0] == "region,sex,age"
    assert len(lines) == 51
    assert run("synthesize", "people.synopsis", "--epsilon", "1", "--output", "rows.csv").code == 2


@pytest.mark.slow
def test_synthetic_rows_from_data_are_charged_and_can_be_made_again(people):
    out = run("synthesize", "people.csv", *OPTIONS, "--save", "model.synopsis", "--output", "rows.csv")
    assert out.code == 0, out.stderr
    assert "spent: ε = 1" in out.stdout
    again = run("synthesize", "model.synopsis", "--rows", "7", "--output", "more.csv")
    assert again.code == 0, again.stderr
    assert len((people / "more.csv").read_text().splitlines()) == 8
    answer = run("query", "model.synopsis", "SELECT COUNT(*) AS n FROM people")
    assert answer.code == 2
    assert "synthetic rows" in answer.stderr


def test_synthetic_rows_need_a_price_and_a_file_format(people):
    assert run("synthesize", "people.csv", "--unit", "row", "--output", "rows.csv").code == 2
    assert run("synthesize", "people.csv", *OPTIONS, "--output", "rows.xlsx").code == 2
    assert run("synthesize", "people.csv", *OPTIONS, "--output", "people.csv").code == 3
    assert sorted(path.name for path in people.iterdir()) == ["people.csv"]


def test_bounds_that_are_dates_in_a_file_imply_dates(people):
    """They were read as numbers of days, so that no row had one."""
    rows = [f"{'NS'[place % 2]},2026-01-{1 + place % 28:02}" for place in range(500)]
    (people / "days.csv").write_text("\n".join(["region,day", *rows]) + "\n")
    (people / "hubbub.toml").write_text(
        '[tables.days]\npath = "days.csv"\nunit = "row"\n'
        'bounds = { day = [2026-01-01, 2026-01-28] }\nkeys = { region = ["N", "S"] }\n'
    )
    price = ("--epsilon", "20", "--delta", "1e-3")
    assert run("synopsis", "days.csv", *price, "--output", "days.synopsis").code == 0
    sql = "SELECT COUNT(*) AS n FROM days WHERE day >= DATE '2026-01-15'"
    for file in (["days.synopsis"], ["days.csv", "--epsilon", "20"]):
        out = run("query", *file[:1], sql, *file[1:], "--format", "csv")
        assert out.code == 0, out.stderr
        assert 200 < float(out.stdout.splitlines()[1].split(",")[0]) < 300


def test_a_refused_table_says_how_to_have_it(people):
    two = ("--workload", "2", "--output", "two.synopsis")
    assert run("synopsis", "people.csv", *OPTIONS, *two).code == 0
    sql = "SELECT region, sex, COUNT(*) AS n FROM people WHERE age >= 65 GROUP BY region, sex"
    out = run("query", "two.synopsis", sql)
    assert out.code == 2
    assert "name this table in the workload of another synopsis" in out.stderr


def test_the_share_of_selections_is_declared_in_a_file(people):
    (people / "hubbub.toml").write_text(
        '[tables.people]\npath = "people.csv"\nunit = "row"\n[tables.people.synopsis]\n'
        'columns = ["region"]\nprivate_keys = ["region"]\nprivate_keys_share = 0.25\n'
    )
    out = run("synopsis", "people.csv", "--epsilon", "2", "--delta", "1e-6")
    assert out.code == 0, out.stderr
    assert "selected privately first, at ε = 0.5, δ = 2.5e-7" in out.stdout
