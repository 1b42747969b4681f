"""Labels: what they say, the schema that they follow, and that a changed label is found."""

import copy
import json
from importlib.resources import files

import jsonschema
import pandas as pd
import pytest

import hubbub as hb
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.ledger import Ledger, new_signing_key
from hubbub.report.label import label, restate, signed_label
from hubbub.report.label_check import check_label
from hubbub.report.label_pages import label_html, label_markdown, label_text

ROWS = pd.DataFrame({"who": range(300), "g": ["a", "b", "c"] * 100, "x": [1.0, 2.0, 3.0] * 100})
ABOUT = {"name": "Visits", "description": "Counts by group", "use": "planning"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A ledger with queries, an exact look, an analyst's query with limits that are found, and a model."""
    folder = tmp_path_factory.mktemp("label")
    more = {"table": "t", "unit": "who", "ledger": str(folder / "x.ledger"), "version": "1"}
    with hb.open(ROWS, budget=Budget(3, 1e-6), bounds={"x": (0, 5)}, keys={"g": ["a", "b"]}, **more) as data:
        data.run(
            data.sql("SELECT g, COUNT(*) AS n, AVG(x) AS m FROM t GROUP BY g", epsilon=0.5, rows_per_unit=1)
        )
        data.exact(data.sql("SELECT COUNT(*) AS n FROM t", epsilon=1, rows_per_unit=1))
        data.account.grant("ada", Budget(1))
    with hb.open(ROWS, analyst="ada", **more) as data:
        data.run(data.sql("SELECT COUNT(*) AS found FROM t", epsilon=0.4))
    with Ledger.open(folder / "x.ledger") as ledger:
        ledger.account("t").charge("a model", PrivacyLoss.gaussian(0.1).poisson_subsampled(0.01) * 20)
    new_signing_key(folder / "owner.key")
    new_signing_key(folder / "other.key")
    return folder


@pytest.fixture(scope="module")
def facts(folder):
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        return json.loads(json.dumps(label(ledger.account("t"), ABOUT)))


def statuses(facts, **more):
    return [each.status for each in check_label(json.dumps(facts), **more).findings]


@pytest.mark.slow
def test_label_follows_its_schema(folder, facts):
    schema = json.loads(files("hubbub.report").joinpath("label.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(facts, schema)
    jsonschema.validate(signed_label(facts, folder / "owner.key"), schema)
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        jsonschema.validate(label(ledger.account("t"), release=facts["releases"][0]["entry"]), schema)


@pytest.mark.slow
def test_every_release_says_how_it_was_made(facts):
    first, result, model = facts["releases"]
    [plan] = first["plan"]
    [mechanism] = plan["mechanisms"]
    assert mechanism.startswith("n, m: Laplace noise of scale 2 (rows or units, in steps of 1/")
    assert plan["contribution bounds"] == {"rows per unit": 1}
    assert plan["clamping bounds"] == {"x": ["0", "5"]}
    assert plan["keys"] == "public, 2 groups"
    assert plan["errors"]["n"].startswith("±")
    assert (first["epsilon"], first["who"], result["who"]) == ("0.5", "owner", "ada")
    assert model["plan"] == []
    assert facts["non-private accesses"] == len(facts["times of non-private accesses"]) == 1


def test_label_does_not_tell_what_an_analyst_found(facts):
    """Her limits come from her own histogram: neither they nor a scale that depends on them are told."""
    [plan] = facts["releases"][1]["plan"]
    assert plan["contribution bounds"] == {"rows per unit": "found privately"}
    assert plan["mechanisms"] == ["Laplace; its scale depends on what is found"]
    assert "errors" not in plan
    assert "histogram" not in json.dumps(facts)


def test_page_stands_alone_and_lists_what_is_not_stated_in_one_line(facts):
    page = label_html(facts)
    assert page.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert "docs/" not in page
    assert "prefers-color-scheme:dark" in page
    assert "@page{size:A4" in page
    assert "Counts by group" in page
    for text in (page, label_text(facts), label_markdown(facts)):
        assert text.count("not stated") + text.count("Not stated") == 1
        assert "curators" in text
        assert "95.3 % sure" in text
        assert "ada" in text


def test_promise_in_words_is_an_upper_bound(facts):
    assert facts["promise"] == {"epsilon": "3", "delta": "1e-6"}
    assert "at most 20.1 times" in facts["promise in words"][0]  # e³ = 20.08…
    assert "at most 95.3 % sure" in facts["promise in words"][1]  # 95.26 %


@pytest.mark.slow
def test_label_can_be_checked_without_the_ledger(folder, facts):
    signed = signed_label(facts, folder / "owner.key")
    assert statuses(signed) == ["OK"] * 4 + ["not checked"] * 3
    assert statuses(signed, public_key=folder / "owner.key.pub")[:4] == ["OK"] * 4
    assert statuses(signed, public_key=folder / "other.key.pub")[3] == "FAILED"
    assert statuses(facts)[3] == "not checked"
    assert statuses(facts, public_key=folder / "owner.key.pub")[3] == "FAILED"
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        assert statuses(signed, ledger=ledger) == ["OK"] * 5 + ["not checked"] * 2


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            yield from leaves(each, (*path, place))
    else:
        yield path


def one_of_each(facts):
    """A path to a leaf of each name: of a list, one element is enough."""
    return {tuple(name for name in path if isinstance(name, str)): path for path in leaves(facts)}.values()


def flipped(facts, path):
    changed = copy.deepcopy(facts)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    value = inner[path[-1]]
    if isinstance(value, bool):
        inner[path[-1]] = not value
    elif isinstance(value, (int, float)):
        inner[path[-1]] = value + 1
    elif isinstance(value, str):
        inner[path[-1]] = value[:-1] + ("1" if value[-1:] != "1" else "2")
    else:
        inner[path[-1]] = ["x"] if value in ([], None) else "x"
    return changed


@pytest.mark.slow
@pytest.mark.sweep(7)
@pytest.mark.parametrize("part", range(7))
def test_every_changed_field_of_a_signed_label_is_found(folder, facts, part):
    signed = signed_label(facts, folder / "owner.key")
    paths = list(one_of_each(signed))
    assert len(paths) > 100
    for path in paths[part::7]:
        assert "FAILED" in statuses(flipped(signed, path)), path
        # A signature's last letters may spell the same bytes; all else that is changed is found.


RECOMPUTED = {"epsilon", "delta", "loss", "mechanisms"}
FROM_ELSEWHERE = {
    "made",
    "account",
    "family",
    "analysts",
    "versions",
    "owner assertions",
    "closed",
    "restores",
}
"""Only the ledger knows them."""


@pytest.mark.slow
def test_changed_figures_and_sentences_are_found_without_a_signature(facts):
    for path in one_of_each(facts):
        known = path[0] not in {*FROM_ELSEWHERE, "head", "entries", "stated", "burn-down", "releases"}
        known &= path[0] != "times of non-private accesses"  # their number is checked
        known |= path[0] == "stated"  # it is said again in the deployment
        known |= path[0] == "releases" and path[2] in RECOMPUTED
        known |= path[0] == "burn-down" and path[2] in {"left", "charges"}
        if known and path[-1] != "tight":  # which changes no ε
            assert "FAILED" in statuses(flipped(facts, path)), path


@pytest.mark.slow
@pytest.mark.sweep(5)
@pytest.mark.parametrize("part", range(5))
def test_every_changed_field_is_found_with_the_ledger(folder, facts, part):
    """One leaf of each field: the label is made again and compared."""
    fields = {path[:3] if path[0] == "releases" else path[:1]: path for path in leaves(facts)}
    del fields[("made",)]
    assert len(fields) > 50
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        for path in list(fields.values())[part::5]:
            assert "FAILED" in statuses(flipped(facts, path), ledger=ledger), path


@pytest.mark.slow
def test_owner_who_restates_all_of_it_is_found_with_the_ledger(folder, facts):
    """A label that is whole in itself, and signed: only the ledger shows that it is another's."""
    forged = copy.deepcopy(facts)
    forged["unit column"] = "household"
    forged["times of non-private accesses"] = []
    forged |= restate(forged)
    signed = signed_label(forged, folder / "owner.key")
    assert statuses(signed)[:4] == ["OK"] * 4
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        assert statuses(signed, ledger=ledger)[4] == "FAILED"


@pytest.mark.slow
def test_label_of_earlier_entries_cannot_hide_later_ones(folder, facts):
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        first = facts["releases"][0]["entry"]
        earlier = json.loads(json.dumps(label(ledger.account("t"), ABOUT, until=first)))
        earlier["analysts"] = {}  # ada had no budget yet
        report = check_label(json.dumps(earlier), ledger=ledger)
        assert report.ok
        assert any("more since" in each.text for each in report.findings)
        for change in ({"head": facts["head"]}, {"entries": facts["entries"]}, {"head": "0" * 64}):
            assert "FAILED" in statuses({**earlier, **change}, ledger=ledger)


@pytest.mark.slow
def test_changed_order_and_times_are_found_without_a_signature(facts):
    assert len(facts["releases"]) == 3
    assert "OK" in statuses(facts)
    for change in (
        {"first charge": facts["made"]},
        {"releases": facts["releases"][::-1]},
        {"releases": [{**each, "note": "approved"} for each in facts["releases"]]},
        {"entries": facts["releases"][-1]["entry"] - 1},
        {"burn-down": [{**each, "when": facts["made"]} for each in facts["burn-down"]]},
        {"lifetime": "ε = 0.1, δ = 0 over 1 window so far"},
    ):
        forged = {**facts, **change}
        forged |= restate(forged)
        assert "FAILED" in statuses(forged), change
    for name in ("closed", "versions", "analysts"):
        assert "FAILED" in statuses({key: value for key, value in facts.items() if key != name}), name


@pytest.mark.slow
def test_loss_of_a_lifetime_is_that_of_the_windows_of_then(tmp_path):
    labels = []
    rows = pd.DataFrame({"who": range(8), "day": pd.date_range("2026-01-01", periods=8, freq="MS")})
    for month in ("2026-01", "2026-02"):
        window = hb.Window.of("day", month)
        more = {"table": "t", "unit": "who", "window": window, "ledger": str(tmp_path / "l"), "version": "1"}
        with hb.open(rows, budget=Budget(1), **more) as data:
            data.run(data.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.5, rows_per_unit=1))
            labels.append(label(data.account))
    with Ledger.open_read_only(tmp_path / "l") as ledger:
        for facts in labels:
            assert check_label(json.dumps(facts), ledger=ledger).ok
            forged = {**facts, "lifetime": "ε = 0.1, δ = 0 over 9 windows so far"}
            forged |= restate(forged)
            assert statuses(forged, ledger=ledger)[4] == "FAILED"
            less = {name: value for name, value in facts.items() if name != "lifetime"}
            assert "FAILED" in statuses(less | restate(less))


def test_label_of_a_ledger_that_was_restored_verifies(tmp_path):
    place, backup = tmp_path / "x.ledger", tmp_path / "x.backup"
    with Ledger.open(place) as ledger:
        account = ledger.account("t", unit=hb.Unit("who"), budget=Budget(3))
        account.charge("one", PrivacyLoss.pure(1))
        ledger.backup(backup)
    place.unlink()
    Ledger.restore(place, backup, spent_since={"t": PrivacyLoss.pure(0.5)})
    with Ledger.open_read_only(place) as ledger:
        facts = label(ledger.account("t"))
        assert facts["burn-down"][-1]["left"] == 0.5
        assert check_label(json.dumps(facts), ledger=ledger).ok
        facts["burn-down"][-1]["left"] = 0.6667
        assert "FAILED" in statuses(facts)


def test_field_that_is_said_twice_or_unknown_is_found(folder, facts):
    """Of two values, a reader may see the first, and a check the last."""
    text = json.dumps(signed_label(facts, folder / "owner.key"))
    assert check_label(text).ok
    assert not check_label('{"promise": {"epsilon": "0.01", "delta": "0"},' + text[1:]).ok
    assert not check_label(json.dumps({**facts, "approved by": "everybody"})).ok


@pytest.mark.slow
def test_label_that_leaves_a_release_out_is_found(folder, facts):
    less = copy.deepcopy(facts)
    del less["releases"][0]
    assert "FAILED" in statuses(less)
    with Ledger.open_read_only(folder / "x.ledger") as ledger:
        assert statuses(less, ledger=ledger)[4] == "FAILED"
        renamed = copy.deepcopy(facts)
        renamed["releases"][0]["what"] = "SELECT 1"
        assert statuses(renamed, ledger=ledger)[4] == "FAILED"


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"format": "hubbub label/2"}', "[" * 100_000])
def test_foreign_text_is_reported_and_not_raised(text):
    assert not check_label(text).ok


def test_label_without_what_is_the_owners_is_rendered(facts):
    private = {"releases", "restores", "analysts", "head", "entries", "burn-down"}
    public = {name: value for name, value in facts.items() if name not in private}
    for text in (label_html(public), label_text(public), label_markdown(public)):
        assert "for the owner only" in text
        assert "ada may" not in text
        assert "SELECT" not in text
        assert facts["head"] not in text
