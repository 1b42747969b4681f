import re
import sqlite3
import sys
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest

from hubbub.errors import AccessDenied, InvalidInput, Refused
from hubbub.server.console import texts
from hubbub.server.console.dry_run import run_dry
from hubbub.server.console.forms import find_local_path, question_fields, read_question
from hubbub.server.console.rewrites import find_rewrites
from hubbub.server.service_types import Question
from server.browser import ORIGIN, Browser
from server.hospital import BY_REGION, COUNT, PASSWORD, open_hospital

HIDDEN = "SELECT COUNT(*) AS n FROM visits WHERE age > 77"
"""Bob's question: nobody but he and the owner may see it."""
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    service = open_hospital(tmp_path_factory.mktemp("console") / "hospital", "public = true")
    yield service
    service.close()


@pytest.fixture(scope="module")
def ada(service):
    return Browser(service, "ada")


@pytest.fixture(scope="module")
def olga(service):
    return Browser(service, "olga")


@pytest.fixture(scope="module")
def hidden(service):
    """The number of bob's answer."""
    bob = Browser(service, "bob")
    bob.get("/datasets/visits")
    bob.submit("/datasets/visits", sql=HIDDEN, epsilon="0.01", action="ask")
    return int(bob.path.rpartition("/")[2])


def test_signing_in_sets_a_cookie_that_only_this_host_gets(service):
    browser = Browser(service)
    browser.get("/sign-in?next=/datasets/visits")
    answer = browser.submit(0, user="ada", password=PASSWORD, follow=False)

    assert (answer.status_code, answer.headers["location"]) == (303, "/datasets/visits")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-hubbub=")
    assert {part.strip().lower() for part in cookie.split(";")[1:]} == {
        "httponly", "path=/", "samesite=lax", "secure",
    }  # fmt: skip


def test_a_wrong_password_is_refused_and_the_name_kept(service):
    browser = Browser(service)
    browser.get("/sign-in")
    answer = browser.submit(0, user="ada", password="not " + PASSWORD)
    assert answer.status_code == 401
    assert browser.find_form(0)["fields"]["user"] == "ada"
    assert PASSWORD not in answer.text
    assert not browser.cookies


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/\n/x"]
)
def test_signing_in_leads_to_this_server_only(target):
    assert find_local_path(target) == "/"


def test_signing_out_ends_the_session(service):
    browser = Browser(service, "ada")
    old = dict(browser.cookies)
    form = next(form for form in browser.parsed.forms if form["action"] == "/sign-out")
    browser.post("/sign-out", form["fields"])
    browser.cookies = old
    assert browser.get("/datasets", follow=False).status_code == 303


# Asking


def test_a_question_is_planned_tried_asked_and_shown_again(service, ada):
    spent = service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges
    ada.get("/datasets/visits")
    plan = ada.submit("/datasets/visits", sql=BY_REGION, epsilon="0.1", action="plan")
    assert "ε = 0.1" in plan.text
    assert "such questions" in plan.text
    dry = ada.submit("/datasets/visits", action="dry-run")
    assert "made-up rows" in dry.text
    assert "North" in dry.text
    assert service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges == spent

    first = ada.submit("/datasets/visits", action="ask")
    entry = ada.path.rpartition("/")[2]
    assert first.status_code == 200
    assert "North" in first.text
    for words in ("hubbub.epsilon", "curl --cacert", "urllib.request"):
        assert words in first.text

    ada.get("/datasets/visits")
    again = ada.submit("/datasets/visits", sql=BY_REGION, epsilon="0.1", action="ask")
    assert ada.path.rpartition("/")[2] == entry
    assert again.text.split("</header>")[1] == first.text.split("</header>")[1]
    assert service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges == spent + 1
    history = ada.get("/datasets/visits/history")
    assert f'href="/datasets/visits/answers/{entry}"' in history.text


def test_an_answer_can_be_downloaded(ada):
    ada.get("/datasets/visits")
    ada.submit("/datasets/visits", sql=BY_REGION, epsilon="0.1", action="ask")
    here = ada.path
    assert ada.get(f"{here}.csv").text.startswith("region,n,n_low,n_high")
    assert "attachment" in ada.page.headers["content-disposition"]
    assert ada.get(f"{here}.json").json()["columns"]
    assert ada.get(f"{here}.parquet").content.startswith(b"PAR1")
    assert ada.get(f"{here}.svg").text.startswith("<svg")
    assert "script-src" not in ada.page.headers["content-security-policy"]
    assert ada.get(f"{here}.exe").status_code == 404


def test_the_plan_alone_is_a_piece_of_a_page(ada):
    ada.get("/datasets/visits")
    fields = {**ada.find_form("/datasets/visits")["fields"], "sql": BY_REGION, "epsilon": "0.2"}
    plan = ada.post("/datasets/visits/plan", fields)
    assert plan.status_code == 200
    assert "<html" not in plan.text
    assert "ε = 0.2" in plan.text
    refusal = ada.post("/datasets/visits/plan", {**fields, "sql": "SELECT patient FROM visits"})
    assert refusal.status_code in {400, 422}
    assert "Fix" in refusal.text


@pytest.mark.parametrize("error", ["20", "n=20"])
def test_epsilon_follows_from_the_error(ada, error):
    ada.get("/datasets/visits")
    plan = ada.submit("/datasets/visits", sql=BY_REGION, epsilon="", error=error, action="plan")
    assert "n</code>: ± 20" in plan.text


def test_a_refusal_keeps_what_was_typed_and_offers_its_fix(ada):
    ada.get("/datasets/visits")
    text = "SELECT nothing,\n  of FROM this"
    answer = ada.submit("/datasets/visits", sql=text, epsilon="0.1", action="ask")
    assert answer.status_code in {400, 422}
    assert "Fix" in answer.text
    assert ada.find_form("/datasets/visits")["fields"]["sql"].replace("\r\n", "\n") == text

    ada.get("/datasets/visits")
    beyond = ada.submit("/datasets/visits", sql=COUNT, epsilon="9", action="ask")
    assert beyond.status_code == 402


def test_a_fix_that_names_a_setting_can_be_clicked(ada):
    ada.get("/datasets/visits")
    text = "SELECT cost, COUNT(*) AS n FROM visits GROUP BY cost"
    ada.submit("/datasets/visits", sql=text, epsilon="0.1", action="plan")
    links = [link for link in ada.parsed.links if "delta=" in link]
    assert links, ada.page.text
    query = parse_qs(urlsplit(links[0]).query)
    assert query["sql"] == [text]
    ada.get(links[0])
    assert ada.find_form("/datasets/visits")["fields"]["delta"] == query["delta"][0]


@pytest.mark.parametrize(
    ("sql", "words", "changed"),
    [
        ("SELECT COUNT(*) AS n FROM visit", "Write visits instead of visit", COUNT),
        ("SELECT AVG(costs) AS m FROM visits", "Write cost instead of costs",
         "SELECT AVG(cost) AS m FROM visits"),
        ("SELECT MEDAIN(cost) AS m FROM visits", "Write MEDIAN instead of MEDAIN",
         "SELECT MEDIAN(cost) AS m FROM visits"),
        ("select * FROM visits", "Count the rows instead", "SELECT COUNT(*) AS n FROM visits"),
        ("SELECT region FROM visits", "Group by region",
         "SELECT region, COUNT(*) AS n FROM visits GROUP BY region"),
    ],
)  # fmt: skip
def test_a_refused_question_can_be_rewritten_by_a_click(ada, sql, words, changed):
    ada.get("/datasets/visits")
    ada.submit("/datasets/visits", sql=sql, epsilon="0.1", action="plan")
    assert words in ada.page.text
    ada.get(next(link for link in ada.parsed.links if "epsilon=0.1" in link))
    assert ada.find_form("/datasets/visits")["fields"]["sql"] == changed
    plan = ada.submit("/datasets/visits", action="plan")
    assert plan.status_code == 200
    assert any(words in plan.text for words in (texts.NOTHING_SPENT, texts.ASKED_BEFORE))


def test_a_refusal_speaks_of_the_fields_of_the_editor(ada):
    ada.get("/datasets/visits")
    text = "SELECT cost, COUNT(*) AS n FROM visits GROUP BY cost"
    page = ada.submit("/datasets/visits", sql=text, epsilon="0.1", action="plan").text
    assert "δ = 1e-6" in page
    assert "Group keys: cost=" in page
    assert "delta=1e-6 to" not in page


def test_bounds_that_are_not_declared_can_be_estimated_by_a_click():
    fix = "declare public bounds, such as {bounds=cost=0:100}, or {bounds=cost=auto} to estimate them"
    error = InvalidInput("cost has no bounds", why="one person could move a sum", fix=fix)

    rewrites = find_rewrites(error, {"sql": COUNT, "bounds": "age=0:120"})

    fields = {"sql": COUNT, "bounds": "age=0:120; cost=auto"}
    assert rewrites == {"Estimate the bounds of cost privately": fields}
    assert list(read_question(fields).bounds) == ["age", "cost"]


def test_a_plan_beyond_the_budget_says_so_and_offers_what_is_left(ada):
    ada.get("/datasets/visits")
    page = ada.submit("/datasets/visits", sql=f"{COUNT} WHERE age > 3", epsilon="9", action="plan").text
    assert "does not fit your budget" in page
    ada.get(next(link for link in ada.parsed.links if "epsilon=" in link and "epsilon=9" not in link))
    plan = ada.submit("/datasets/visits", action="plan")
    assert "does not fit your budget" not in plan.text


def test_delta_beyond_the_budget_is_not_offered(service, ada):
    text = "SELECT age, COUNT(*) AS n FROM visits GROUP BY age"
    ada.get("/datasets/visits")
    page = ada.submit("/datasets/visits", sql=text, epsilon="0.1", delta="1e-6", action="plan").text
    assert "does not fit your budget" in page
    assert "Use ε" not in page
    ada.get(next(link for link in ada.parsed.links if "delta=" in link and "delta=1e-6" not in link))
    assert "does not fit your budget" not in ada.submit("/datasets/visits", action="plan").text

    budget = replace(service.budget(service.auth.sign_in("ada", PASSWORD), "visits"), left_delta="0")
    with pytest.raises(Refused) as refusal:
        service.plan(service.auth.sign_in("ada", PASSWORD), "visits", Question(text, epsilon=0.1))
    assert find_rewrites(refusal.value, {"sql": text}) != {}
    assert find_rewrites(refusal.value, {"sql": text}, budget) == {}


def test_an_empty_editor_offers_an_example_that_can_be_planned(ada):
    ada.get("/datasets/visits")
    ada.get(next(link for link in ada.parsed.links if "?sql=" in link))
    assert ada.submit("/datasets/visits", epsilon="0.1", action="plan").status_code == 200


def test_the_editor_has_a_link_to_the_question_and_saves_it_unasked(service, ada):
    before = service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges
    ada.get("/datasets/visits")
    fields = {"sql": f"{COUNT} WHERE age > 4", "error": "20", "epsilon": ""}
    ada.submit("/datasets/visits", **fields, action="plan")
    assert any("age+%3E+4" in link for link in ada.parsed.links)
    form = ada.find_form("/datasets/visits")["fields"]
    nameless = ada.post("/datasets/visits/saved", {**form, "name": ""})
    assert nameless.status_code == 400
    assert ada.find_form("/datasets/visits")["fields"]["sql"] == fields["sql"]  # nothing typed is lost
    ada.post("/datasets/visits/saved", {**form, "name": "Older than 4"})
    ada.get(next(link for link in ada.parsed.links if "?sql=" in link))
    data = ada.find_form("/datasets/visits")["fields"]
    assert {name: data[name] for name in fields} == fields
    assert service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges == before


def test_the_history_is_searched(ada):
    for age in (91, 92):
        ada.get("/datasets/visits")
        ada.submit("/datasets/visits", sql=f"{COUNT} WHERE age > {age}", epsilon="0.01", action="ask")
    result = ada.get("/datasets/visits/history?containing=AGE+%3E+91").text
    assert "age &gt; 91" in result
    assert "age &gt; 92" not in result
    assert "No question contains this" in ada.get("/datasets/visits/history?containing=nothing").text


def test_permalinks_fill_the_editor_and_run_nothing(service, ada):
    before = service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges
    ada.get("/datasets/visits?sql=SELECT+COUNT(*)+AS+n+FROM+visits&epsilon=0.5&action=ask")
    fields = ada.find_form("/datasets/visits")["fields"]
    assert (fields["sql"], fields["epsilon"]) == (COUNT, "0.5")
    assert "Nothing is spent yet" in ada.page.text
    assert "Refused" in ada.get("/datasets/visits?sql=SELECT+age+FROM+visits&epsilon=0.5").text
    assert service.budget(service.auth.sign_in("ada", PASSWORD), "visits").charges == before


def test_questions_are_saved_opened_and_deleted(service, ada):
    ada.get("/datasets/visits")
    ada.submit("/datasets/visits", sql=BY_REGION, epsilon="0.1", action="ask")
    ada.submit("/datasets/visits/saved", name="By region")
    assert "By region" in ada.page.text
    bob = Browser(service, "bob")
    assert "By region" not in bob.get("/datasets/visits/saved").text
    ada.get(next(link for link in ada.parsed.links if "?sql=" in link))
    assert ada.find_form("/datasets/visits")["fields"]["sql"] == BY_REGION
    ada.get("/datasets/visits/saved")
    ada.submit(0)
    assert "By region" not in ada.page.text


def test_fields_of_the_editor_and_questions_mean_the_same():
    stated = {
        "sql": COUNT, "error": "n=5", "delta": "1e-7", "rows_per_unit": "2", "groups_per_unit": "3",
        "bounds": "cost=0:100; age=auto", "keys": "region=North,South",
    }  # fmt: skip
    question = read_question(stated)
    assert question_fields(question).keys() == stated.keys()
    assert read_question(question_fields(question)) == question


@pytest.mark.parametrize("missing", [(), ("pandas", "polars", "pyarrow")])
def test_a_dry_run_reaches_neither_rows_nor_accounts(service, monkeypatch, missing):
    for package in missing:
        monkeypatch.setitem(sys.modules, package, None)
    ada = service.auth.sign_in("ada", PASSWORD)
    description = service.describe(ada, "visits")
    monkeypatch.setattr("hubbub.server.service.Service.find", None)
    monkeypatch.setattr("hubbub.server.hosted_dataset.HostedDataset.sources", None)
    result = run_dry(description, Question(BY_REGION, epsilon=1))
    assert result["region"] == ["North", "South"]
    assert all(100 < each < 400 for each in result["n"])  # 500 made-up rows, not the 200 of the hospital


# The owner


def test_the_owner_grants_raises_with_a_second_owner_and_pauses(service, olga):
    here = "/datasets/visits/manage"
    olga.get(here)
    form = next(f for f in olga.parsed.forms if ("action", "role") in f["buttons"])
    olga.post(here, {**form["fields"], "user": "eve", "role": "analyst", "action": "role"})
    assert "eve" in olga.page.text
    csrf = olga.csrf
    olga.post(here, {"csrf": csrf, "user": "eve", "epsilon": "0.5", "action": "grant"})
    olga.post(here, {"csrf": csrf, "user": "eve", "epsilon": "1", "action": "grant"})
    assert "second owner must approve" in olga.page.text
    request = re.search(r'name="request" value="(\w+)"', olga.page.text)[1]
    own = olga.post(here, {"csrf": csrf, "request": request, "action": "approve"})
    assert own.status_code == 403
    omar = Browser(service, "omar")
    omar.get(here)
    omar.post(here, {"csrf": omar.csrf, "request": request, "action": "approve"})
    assert service.budget(olga_principal(service), "visits").analysts["eve"][0] == "1"
    olga.post(here, {"csrf": csrf, "action": "pause"})
    eve = Browser(service, "eve")
    eve.get("/datasets/visits")
    assert eve.submit("/datasets/visits", sql=COUNT, epsilon="0.1", action="ask").status_code == 503
    olga.post(here, {"csrf": csrf, "action": "resume"})
    olga.post(here, {"csrf": csrf, "user": "eve", "role": "none", "action": "role"})
    assert eve.get("/datasets/visits").status_code == 404
    assert "entries verified" in olga.post(here, {"csrf": csrf, "action": "verify"}).text
    assert "The log is complete" in olga.post(here, {"csrf": csrf, "action": "verify-audit"}).text


def test_the_owner_pauses_one_person_and_revokes_a_token(service, olga):
    here = "/datasets/visits/manage"
    _, secret = service.auth.make_token(service.auth.sign_in("bob", PASSWORD), "bob's notebook")
    olga.get(here)
    assert "bob&#x27;s notebook" in olga.page.text
    assert secret not in olga.page.text
    olga.post(here, {"csrf": olga.csrf, "user": "bob", "action": "pause"})
    for user, status in (("bob", 503), ("ada", 200)):
        browser = Browser(service, user)
        browser.get("/datasets/visits")
        query = browser.submit("/datasets/visits", sql=f"{COUNT} WHERE age > 5", epsilon="0.01", action="ask")
        assert query.status_code == status
    olga.get(here)
    olga.post(here, {"csrf": olga.csrf, "user": "bob", "action": "resume"})
    olga.post(here, {"csrf": olga.csrf, "token": secret.split("_")[1], "action": "revoke"})
    assert olga.page.status_code == 200
    with pytest.raises(AccessDenied):
        service.auth.sign_in_with_token(secret)
    other, _ = service.auth.make_token(service.auth.sign_in("eve", PASSWORD), "of the lab")
    foreign = olga.post(here, {"csrf": olga.csrf, "token": other.token_id, "action": "revoke"})
    assert foreign.status_code == 400


def olga_principal(service):
    return service.auth.sign_in("olga", PASSWORD)


def test_a_release_is_published_read_by_everybody_and_withdrawn(service, olga):
    olga.get("/datasets/visits")
    olga.submit("/datasets/visits", sql=BY_REGION, epsilon="0.2", action="ask")
    here, entry = olga.path, olga.path.rpartition("/")[2]
    olga.submit(f"{here}/publication", title="Visits by region", action="publish")
    everybody = Browser(service)
    assert "Visits by region" in everybody.get("/public").text
    assert "Visits by region" in everybody.get("/public/visits").text
    assert "North" in everybody.get(f"/public/visits/{entry}").text
    assert everybody.get(f"/public/visits/{entry}.csv").text.startswith("region,")
    assert everybody.get("/public/visits/label").status_code == 200
    assert everybody.get("/public/lab").status_code == 404
    olga.get(here)
    olga.submit(f"{here}/publication")
    assert everybody.get(f"/public/visits/{entry}").status_code == 404


def test_tokens_are_shown_once_and_revoked(service, ada):
    ada.get("/tokens")
    ada.submit("/tokens", name="notebook", epsilon="0.5", days="1")
    secret = re.search(r"hub_[0-9a-f]{16}_[\w-]{43}", ada.page.text)[0]
    assert service.auth.sign_in_with_token(secret).user == "ada"
    assert secret not in ada.get("/tokens").text
    token_id = secret.split("_")[1]
    ada.submit(f"/tokens/{token_id}/revoke")
    assert "not active" in ada.page.text
    ada.submit("/tokens", name="x", days="999")
    assert ada.page.status_code == 400


# Who may do what

PAGES = [
    ("/datasets/visits", "reader"),
    ("/datasets/visits/answers/ENTRY", "analyst"),
    ("/datasets/visits/answers/ENTRY.csv", "analyst"),
    ("/datasets/visits/answers/ENTRY.svg", "analyst"),
    ("/datasets/visits/history", "analyst"),
    ("/datasets/visits/saved", "analyst"),
    ("/datasets/visits/label", "reader"),
    ("/datasets/visits/manage", "owner"),
    ("/datasets", None),
    ("/tokens", None),
]
FORMS = [
    ("/datasets/visits", "analyst", {"sql": COUNT, "epsilon": "0.01", "action": "plan"}),
    ("/datasets/visits", "analyst", {"sql": COUNT, "epsilon": "0.01", "action": "dry-run"}),
    ("/datasets/visits", "analyst", {"sql": COUNT, "epsilon": "0.01", "action": "ask"}),
    ("/datasets/visits/plan", "analyst", {"sql": COUNT, "epsilon": "0.01"}),
    ("/datasets/visits/saved", "analyst", {"sql": COUNT, "name": "mine"}),
    ("/datasets/visits/answers/ENTRY/publication", "owner", {"title": "t", "action": "publish"}),
    ("/datasets/visits/answers/ENTRY/publication", "owner", {"action": "withdraw"}),
    ("/datasets/visits/manage", "owner", {"action": "verify"}),
    ("/datasets/visits/manage", "owner", {"action": "verify-audit"}),
    ("/datasets/visits/manage", "owner", {"action": "pause"}),
    ("/datasets/visits/manage", "owner", {"action": "resume"}),
    ("/datasets/visits/manage", "owner", {"action": "role", "user": "bob", "role": "analyst"}),
    ("/datasets/visits/manage", "owner", {"action": "grant", "user": "bob", "epsilon": "1"}),
    ("/datasets/visits/manage", "owner", {"action": "refuse", "request": "none"}),
]
RANKS = {"reader": 0, "analyst": 1, "owner": 2}
USERS = {"other dataset": "eve", "reader": "rita", "analyst": "ada", "owner": "omar"}


@pytest.fixture(scope="module")
def visitors(service):
    out = {who: Browser(service, user) for who, user in USERS.items()}
    out["nobody"] = Browser(service)
    out["expired"] = Browser(service, "ada")
    key = service.auth.find_session(out["expired"].cookies["__Host-hubbub"]).principal.session_id
    service.state.write(
        lambda connection: connection.execute("UPDATE sessions SET expires = 1 WHERE digest = ?", [key])
    )
    tokens = {}
    for who in USERS:
        out[who].get("/tokens")
        tokens[who] = out[who].csrf
    return out, tokens


@pytest.mark.parametrize("who", ["nobody", "expired", *USERS])
@pytest.mark.parametrize("page", PAGES)
def test_pages_open_to_those_who_may_see_them(visitors, hidden, who, page):
    path, least = page
    answer = visitors[0][who].get(path.replace("ENTRY", str(hidden)), follow=False)
    if who in {"nobody", "expired"}:
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/sign-in?next=")
    elif least is None:
        assert answer.status_code == 200
    elif who == "other dataset":
        # The label of a public dataset is everybody's.
        assert answer.status_code == (200 if path.endswith("label") else 404)
    elif RANKS[who] >= RANKS[least] and ("ENTRY" not in path or who == "owner"):
        assert answer.status_code == 200
    else:
        # Of another's entry: a refusal by the ledger.
        assert answer.status_code in ({403, 404, 422} if "ENTRY" in path else {403})
    if who != "owner":
        assert "age &gt; 77" not in answer.text
        assert "bob" not in answer.text


@pytest.mark.parametrize("who", ["nobody", "expired", *USERS])
@pytest.mark.parametrize("form", FORMS)
def test_forms_are_taken_from_those_who_may_send_them(visitors, hidden, who, form):
    path, least, fields = form
    browsers, tokens = visitors
    stated = {"csrf": tokens.get(who, "x"), **fields}
    answer = browsers[who].post(path.replace("ENTRY", str(hidden)), stated, follow=False)
    if who in {"nobody", "expired"}:
        assert answer.status_code == 401
    elif who == "other dataset":
        assert answer.status_code == 404
    elif RANKS[who] >= RANKS[least]:
        assert answer.status_code in {200, 303}
    else:
        assert answer.status_code == 403
    if who != "owner":
        assert "age &gt; 77" not in answer.text


def test_typed_text_survives_an_expired_session(visitors):
    browser = visitors[0]["expired"]
    browser.post("/datasets/visits", {"csrf": "x", "sql": COUNT, "epsilon": "0.3", "action": "ask"})
    browser.submit(0, user="ada", password=PASSWORD)
    fields = browser.find_form("/datasets/visits")["fields"]
    assert (fields["sql"], fields["epsilon"]) == (COUNT, "0.3")


# Attacks


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": "http://localhost"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": None, "sec-fetch-site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_refused(service, ada, headers):
    ada.get("/datasets/visits")
    fields = {"csrf": ada.csrf, "sql": COUNT, "epsilon": "0.9", "action": "ask"}
    assert ada.post("/datasets/visits", fields, headers=headers).status_code == 403
    stranger = Browser(service)
    right = {"user": "ada", "password": PASSWORD, "next": "/"}
    assert stranger.post("/sign-in", right, headers=headers).status_code == 403
    assert not stranger.cookies


@pytest.mark.parametrize("csrf", [None, "", "wrong", "é"])
def test_forms_without_the_sessions_token_are_refused(ada, csrf):
    fields = {"sql": COUNT, "epsilon": "0.9", "action": "ask"}
    if csrf is not None:
        fields["csrf"] = csrf
    assert ada.post("/datasets/visits", fields).status_code == 403


def test_the_token_of_another_session_is_refused(service, ada):
    other = Browser(service, "ada")
    other.get("/tokens")
    fields = {"csrf": other.csrf, "sql": COUNT, "epsilon": "0.9", "action": "ask"}
    assert ada.post("/datasets/visits", fields).status_code == 403


def test_typed_text_is_never_markup(service, olga):
    text = f"SELECT COUNT(*) AS n FROM visits WHERE region = '{SCRIPT}'"
    olga.get("/datasets/visits")
    olga.submit("/datasets/visits", sql=text, epsilon="0.01", action="ask")
    here = olga.path
    olga.submit("/datasets/visits/saved", name=SCRIPT, shared="yes")
    olga.get(here)
    olga.submit(f"{here}/publication", title=SCRIPT, action="publish")
    entry = here.rpartition("/")[2]
    ada = Browser(service, "ada")
    for browser, path in [
        (olga, here), (olga, "/datasets/visits/history"), (olga, "/datasets/visits/manage"),
        (olga, "/datasets/visits/label"), (ada, "/datasets/visits/saved"), (ada, "/datasets/visits"),
        (ada, f"/public/visits/{entry}"), (ada, "/public"), (ada, f"/datasets/visits?sql={SCRIPT}"),
        (ada, f"/sign-in?next=/{SCRIPT}"), (ada, f"/datasets/{SCRIPT}"),
    ]:  # fmt: skip
        answer = browser.get(path, follow=False)
        assert SCRIPT not in answer.text, path
        assert "alert(1)</script>" not in answer.text
    olga.get(here)
    olga.submit(f"{here}/publication", action="withdraw")
    for text in (SCRIPT, f'"><img src=x onerror=alert(1)>{SCRIPT}'):
        ada.get("/datasets/visits")
        refusal = ada.submit("/datasets/visits", sql=text, epsilon="0.1", action="plan")
        assert SCRIPT not in refusal.text
        assert "<img src=x" not in refusal.text


def test_no_page_has_an_inline_style_or_script(service, olga):
    olga.get("/datasets/visits")
    olga.submit("/datasets/visits", sql=BY_REGION, epsilon="0.1", action="plan")
    pages = [olga.page]
    olga.submit("/datasets/visits", action="ask")
    pages.append(olga.page)
    pages += [olga.get(f"/datasets/visits{path}") for path in ("", "/history", "/saved", "/manage")]
    pages += [olga.get(path) for path in ("/", "/tokens", "/public", "/sign-in", "/nothing/here")]
    for page in pages:
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:", page.text)
        assert re.findall(r"<script[^>]*>([^<]+)", page.text) == []
        assert "'unsafe-inline'" not in page.headers["content-security-policy"]
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', page.text)
        assert page.headers["cache-control"] == "no-store"
        assert page.text.count("<h1") == page.text.count("<main") == 1
    assert pages[-1].status_code == 404


@pytest.mark.parametrize("name", ["style.css", "console.js", "htmx.min.js", "icon.svg"])
def test_static_files_have_their_types(service, name):
    answer = Browser(service).get(f"/static/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(("text/css", "text/javascript", "image/svg+xml"))
    assert "max-age" in answer.headers["cache-control"]


@pytest.mark.parametrize("name", ["htmx-LICENSE.txt", "..%2fforms.py", "nothing"])
def test_no_other_file_is_served(service, name):
    assert Browser(service).get(f"/static/{name}").status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"a=1&a=2", "application/x-www-form-urlencoded", 400),
        (b"\xff", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a%d=1" % i for i in range(100)), "application/x-www-form-urlencoded", 400),
        (b"{}", "application/json", 415),
        (b"a=" + b"x" * (1 << 21), "application/x-www-form-urlencoded", 413),
    ],
)
def test_forms_that_no_page_sends_are_refused(ada, content, kind, status):
    headers = {"content-type": kind, "origin": ORIGIN}
    assert ada.send("POST", "/datasets/visits", headers, content).status_code == status


def test_the_sessions_secret_is_not_stored(service, ada):
    with sqlite3.connect(service.settings.state) as connection:
        stored = "\n".join(connection.iterdump())
    assert ada.cookies["__Host-hubbub"] not in stored
