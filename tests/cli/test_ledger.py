"""`hubbub budget`, `hubbub ledger` and `hubbub report`, on a ledger in which something happened."""

import json
import shutil
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from cli.terminal import run
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger
from hubbub.report.history import History
from hubbub.unit import Unit
from ledger.storage import forget

FIRST = Path(__file__).parents[1] / "ledger" / "data" / "first.ledger"


@pytest.fixture
def path(tmp_path):
    copy = tmp_path / "first.ledger"
    shutil.copy(FIRST, copy)
    forget(copy)
    assert Ledger.restore(copy, spent_since={}).ok
    return str(copy)


def output_of(*words):
    out = run(*words)
    assert out.code == 0, out.stderr
    return out.stdout


def refused(*words):
    out = run(*words)
    assert out.code in {2, 3}
    return " ".join(out.stderr.split())


@pytest.mark.slow
def test_budget_shows_spending_by_analyst_and_the_remainder(path):
    out = output_of("budget", "--ledger", path, "--account", "visits")
    for part in (
        "ε = 3, δ = 1e-6",
        "spent ε = 1.239",
        "may cost ε = 0.47",
        "ada: ε = 0.1 of 1",
        "more queries",
        "█",
    ):
        assert part in out
    assert "sales" not in out
    assert "closed" in output_of("budget", "--ledger", path)


@pytest.mark.slow
def test_analyst_sees_only_her_own_entries(path):
    out = output_of("budget", "--ledger", path, "--account", "visits", "--analyst", "ada")
    assert "ada" in out
    assert "bob" not in out
    assert "about 9 more queries" in out
    listed = output_of("ledger", "list", "--ledger", path, "--account", "visits", "--analyst", "ada")
    assert "a count" in listed
    assert "training" not in listed


def test_remaining_queries_are_estimated(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger.open(path) as ledger:
        account = ledger.account("visits", Unit("patient"), Budget(1))
        assert "more queries" not in output_of("budget", "--ledger", str(path))
        account.record_charge("a count", PrivacyLoss.pure(Fraction(1, 50)), dataset="visits")
        out = output_of("budget", "--ledger", str(path))
        assert "about 49 more queries like the last" in out
        assert "visits, alone: ε = 0.02" in out
        for _ in range(49):
            account.charge("a count", PrivacyLoss.pure(Fraction(1, 50)))
        out = output_of("budget", "--ledger", str(path))
        assert "about 0 more" in out
        assert out.count("·") > 0
        assert 10 <= out.count(" %") <= 12


def test_a_grant_is_given_and_written(path):
    assert "carl may spend ε = 0.5" in output_of(
        "budget", "grant", "carl", "--epsilon", "0.5", "--ledger", path, "--account", "visits"
    )
    with Ledger.open(path) as ledger:
        assert ledger.account("visits").analysts()["carl"].epsilon == Fraction(1, 2)
        assert ledger.verify().ok
    assert "--account" in refused("budget", "grant", "carl", "--epsilon", "0.5", "--ledger", path)
    assert "closed" in refused(
        "budget", "grant", "carl", "--epsilon", "0.5", "--ledger", path, "--account", "sales"
    )


def test_entries_are_listed_shown_and_exported(path):
    listed = output_of("ledger", "list", "--ledger", path)
    assert [line.split()[0] for line in listed.splitlines()[1:]] == [str(number) for number in range(1, 16)]
    entry = json.loads(output_of("ledger", "show", "4", "--ledger", path))
    assert (entry["who"], entry["body"]["description"], entry["kind"]) == ("ada", "a count", "charge")
    lines = [json.loads(line) for line in output_of("ledger", "export", "--ledger", path).splitlines()]
    assert lines[3] == entry
    assert len(lines) == 15
    assert "no entry 99" in refused("ledger", "show", "99", "--ledger", path)


@pytest.mark.slow
def test_verify_accepts_an_intact_ledger_and_shows_its_digest(path):
    out = output_of("ledger", "verify", "--ledger", path)
    assert "OK: 15 entries verified" in out
    digest = out.split()[-1]
    assert "OK: 15 entries verified" in output_of("ledger", "verify", "--ledger", path, "--head", digest)
    cut = run("ledger", "verify", "--ledger", path, "--head", "0" * 63 + "1")
    assert cut.code == 1
    assert "not in the chain" in cut.stdout


def test_verify_rejects_a_changed_ledger(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE entries SET analyst = 'bob' WHERE number = 9")
    connection.close()
    out = run("ledger", "verify", "--ledger", path)
    assert out.code == 1
    assert "NOT OK: entry 9 has been changed" in out.stdout


@pytest.mark.slow
def test_label_is_the_same_in_every_format(path, tmp_path):
    command = ("report", "--ledger", path, "--account", "visits", "--format")
    facts = json.loads(output_of(*command, "json"))
    assert (facts["unit"], facts["neighbours"], facts["promise"]["epsilon"]) == ("patient", "add/remove", "3")
    assert [each["what"] for each in facts["releases"]] == ["a count", "sums", "training"]
    assert facts["non-private accesses"] == 1
    contents = output_of(*command, "text")
    assert "protected: one patient (add/remove)" in contents
    assert "20 × ((Gaussian μ = 1) of a Poisson sample, rate 0.01)" in contents
    assert '"unit": "patient"' in output_of(*command, "yaml").splitlines()
    output_of(*command, "html", "--output", str(tmp_path / "label.html"))
    page = (tmp_path / "label.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert ">training</code>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "# Privacy label of visits" in output_of(*command, "md")


FIELDS = {
    "product": "name data_curators intended_use data_product_type data_product_region data_product_sector "
    "description publication_date",
    "dp_flavor": "name input_metric bound_on_input_distance output_measure bound_on_output_distance "
    "data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_description privacy_parameters privacy_parameters_description",
    "model": "model_name model_name_description actors release_type release_type_description "
    "data_source_type data_source_type_description access_type access_type_description",
    "accounting": "post_processing composition",
    "implementation": "pre_processing_eda_hyperparameter_tuning mechanisms justification",
    "resources": "sources",
}
"""What a deployment says in OpenDP's registry."""


@pytest.mark.slow
def test_label_has_every_field_of_the_registries(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ("report", "--ledger", path, "--account", "visits", "--format")
    facts = json.loads(output_of(*command, "json"))
    assert {part: set(values) for part, values in facts["deployment"].items()} == {
        part: set(names.split()) for part, names in FIELDS.items()
    }
    used = facts["deployment"]["implementation"]["mechanisms"]
    assert used == "epsilon-delta (2), gaussian (2), subsampled (1)"
    assert facts["deployment"]["dp_flavor"]["name"] == "Approximate DP"
    assert "1 non-private access." in facts["deployment"]["dp_flavor"]["unprotected_quantities"]
    assert facts["deployment"]["product"]["intended_use"] == "not stated"
    registry = facts["NIST SP 800-226"]
    assert "at most ε = 3, δ = 1e-6; spent ε = 1.239" in registry["privacy parameters"]
    for name in (
        *("unit of privacy", "correctness", "utility", "bias", "query model", "trust model", "side channels"),
        *("access control", "data security", "data collection exposure"),
    ):
        assert registry[name]
    Path("hubbub.toml").write_text(
        '[about]\nuse = "planning"\nsecurity = "a locked room"\n'
        '[tables.visits]\npath = "visits.csv"\nunit = "patient"\n'
    )
    Path("visits.csv").write_text("patient\n1\n")
    facts = json.loads(output_of(*command, "json"))
    assert facts["deployment"]["product"]["intended_use"] == "planning"
    assert facts["NIST SP 800-226"]["data security"] == "a locked room"
    for form in ("text", "yaml", "html"):
        assert "a locked room" in output_of(*command, form)
    assert "<polyline" in output_of(*command, "html")
    Path("hubbub.toml").write_text(Path("hubbub.toml").read_text().replace("use =", "purpose ="))
    assert "about.purpose is not known" in refused(*command, "json")


@pytest.mark.slow
def test_burn_down_chart_has_about_a_dozen_points(tmp_path):
    with Ledger.open(tmp_path / "x.ledger") as ledger:
        account = ledger.account("visits", Unit("patient"), Budget(1))
        for count in range(1, 301):
            account.charge("a count", PrivacyLoss.pure(Fraction(1, 500)))
            if count not in {1, 12, 13, 100, 300}:
                continue
            moments = History.of(account).burn_down()
            assert 1 <= len(moments) <= 13
            assert len(moments) == count or len(moments) >= 7
            assert moments[-1].charges == count
            for each in moments:
                assert each.left == pytest.approx(1 - each.charges / 500)


def test_label_page_escapes_user_text(tmp_path):
    path = tmp_path / "x.ledger"
    with Ledger.open(path) as ledger:
        ledger.account("visits", Unit("patient"), Budget(1)).charge("<script>[red]x", PrivacyLoss.pure(1))
    assert "<script>" not in output_of("report", "--ledger", str(path), "--format", "html")
    assert "<script>[red]x" in output_of("ledger", "list", "--ledger", str(path))


def test_missing_ledger_is_reported_and_not_created(tmp_path):
    assert "no ledger is named" in refused("budget")
    missing = tmp_path / "missing.ledger"
    assert "no ledger" in refused("ledger", "verify", "--ledger", str(missing))
    assert not missing.exists()
    Ledger.open(missing).close()
    assert "has no account" in refused("report", "--ledger", str(missing))


def test_budget_for_a_small_population_states_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    registry = (
        "budget",
        "open",
        "v",
        "--unit",
        "p",
        "--epsilon",
        "1",
        "--delta",
        "0.01",
        "--ledger",
        "v.ledger",
    )
    assert "or the number of people as --population" in run(*registry).stderr
    assert run(*registry, "--population", "20").code == 0
    granted = ("budget", "grant", "ada", "--epsilon", "1", "--delta", "0.01", "--ledger", "v.ledger")
    assert run(*granted).code == 3
    assert run(*granted, "--population", "20").code == 0
