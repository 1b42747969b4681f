"""docs/formats.md and docs/schemas/ are made from the code, and real documents follow the schemas."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from cli.terminal import run
from hubbub.noise import discrete_laplace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

from formats import FORMATS, make_page, make_schemas  # noqa: E402

QUESTION = "SELECT town, COUNT(*) AS n, SUM(cost) AS cost FROM visits GROUP BY town"


@pytest.fixture
def folder_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"p{row},{'AB'[row % 2]},{row % 7}" for row in range(60))
    Path("visits.csv").write_text(f"person,town,cost\n{rows}\n")
    Path("hubbub.toml").write_text(
        'rows_per_unit = 1\nledger = "visits.ledger"\naccount = "visits"\n\n[budget]\nepsilon = 3\n\n'
        '[tables.visits]\npath = "visits.csv"\nunit = "person"\nbounds = { cost = [0, 7] }\n'
        'keys = { town = ["A", "B"] }\n\n[tables.visits.synopsis]\ncolumns = ["town"]\n'
    )
    return tmp_path


def follows(name, document):
    jsonschema.validate(document, FORMATS[name].schema())


def test_page_and_schemas_are_current():
    assert (ROOT / "docs" / "formats.md").read_text(encoding="utf-8") == make_page(), "run: make docs"
    schemas = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schemas").iterdir()}
    assert schemas == make_schemas(), "run: make docs"


@pytest.mark.parametrize("name", FORMATS)
def test_schemas_are_schemas_and_refuse_other_fields(name):
    schema = FORMATS[name].schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"something else": 1}, schema)


def test_documents_of_a_query_follow_their_schemas(folder_files):
    follows(
        "plan", json.loads(run("plan", "visits.csv", QUESTION, "--epsilon", "1", "--format", "json").stdout)
    )
    answer = run("query", "visits.csv", QUESTION, "--epsilon", "1", "--output", "answers.json")
    assert answer.code == 0, answer.stderr
    table = json.loads(Path("answers.json").read_text())
    follows("table", table)
    from_ledger = {"entry", "as of", "version", "asked before"}
    assert set(table["label"]) - from_ledger <= set(FORMATS["plan"].fields)
    for line in run("ledger", "export", "--ledger", "visits.ledger").stdout.splitlines():
        follows("ledger-entry", json.loads(line))
    for account in json.loads(run("budget", "--ledger", "visits.ledger", "--format", "json").stdout):
        follows("budget", account)


def test_documents_of_errors_and_receipts_follow_their_schemas(folder_files):
    refused = run("query", "visits.csv", "SELECT x FROM visits", "--epsilon", "1", "--format", "json")
    error = json.loads(refused.stderr.splitlines()[-1])
    follows("error", error)
    assert error["code"] == refused.code == 2
    assert (
        run("budget", "open", "other", "--unit", "person", "--epsilon", "1", "--ledger", "other.ledger").code
        == 0
    )
    assert run("ledger", "key", "owner.key").code == 0
    signed = run("ledger", "sign", "--key", "owner.key", "--ledger", "other.ledger")
    follows("head", json.loads(signed.stdout))


def test_stored_results_synopses_and_audits_follow_their_schemas(folder_files):
    import hubbub
    from hubbub.audit import audit

    with hubbub.open("visits.csv") as data:
        result = data.sql(QUESTION, epsilon=1).run().value
        synopsis = data.plan_synopsis(workload=1, epsilon=1, delta=0, columns=["town"]).run().value
    follows("result", json.loads(result.to_json()))
    follows("synopsis", json.loads(synopsis.to_json()))
    finding = audit(lambda database: len(database) + int(discrete_laplace(1)), epsilon=1, samples=200)
    follows("audit", json.loads(finding.to_json()))
