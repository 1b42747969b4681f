"""The console in a real Chromium: with JavaScript and without, and by axe-core's rules."""

import os
import shutil
from pathlib import Path

import pytest

from server.hospital import BY_REGION, PASSWORD, open_hospital
from server.processes import serving

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None and not os.environ.get("CI"):
    pytest.skip("needs chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser") / "hospital"
    service = open_hospital(folder, "public = true\nport = 0\nwire_port = 0")
    with serving(service) as addresses:
        yield addresses.url


@pytest.fixture(scope="module")
def chromium(url):  # closed before the server, which waits for its connections
    arguments = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


def open_page(chromium, url, **options):
    """A page of a fresh visitor, and the hosts that it asks and what it complains about."""
    page = chromium.new_context(ignore_https_errors=True, **options).new_page()
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if "Refused to" in line.text else None)
    page.goto(url)
    return page, requests, complaints


def sign_in(page, user):
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="visits").click()


def test_cost_appears_while_one_types_and_ctrl_enter_asks(chromium, url):
    page, requests, complaints = open_page(chromium, url)
    sign_in(page, "ada")
    page.get_by_label("SQL").fill(BY_REGION)
    page.get_by_label("ε for the whole question").fill("0.1")
    page.locator("#plan").get_by_text("ε = 0.1", exact=True).wait_for()
    page.get_by_label("SQL").fill("SELECT cost, COUNT(*) AS n FROM visits GROUP BY cost")
    page.get_by_role("link", name="Use δ = 4e-7").wait_for()
    page.get_by_label("SQL").fill(BY_REGION)
    page.get_by_label("SQL").press("Control+Enter")
    page.wait_for_url("**/answers/*")
    assert page.get_by_role("row").count() == 3
    assert page.evaluate("document.querySelector('img.chart').naturalWidth") > 0
    assert all(each.startswith(url) for each in requests)
    assert complaints == []


def test_the_main_flow_works_without_javascript(chromium, url):
    page, requests, _ = open_page(chromium, url, java_script_enabled=False)
    sign_in(page, "bob")
    page.get_by_label("SQL").fill(BY_REGION)
    page.get_by_label("ε for the whole question").fill("0.15")
    page.get_by_role("button", name="See cost").click()
    page.get_by_text("Nothing is spent yet").wait_for()
    page.get_by_role("button", name="Ask and spend").click()
    page.wait_for_url("**/answers/*")
    page.get_by_role("link", name="History").click()
    assert page.get_by_role("row").count() == 2
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Password").wait_for()
    assert all(each.startswith(url) for each in requests)


def test_the_slider_finds_epsilon_for_an_error(chromium, url):
    page, _, complaints = open_page(chromium, url)
    sign_in(page, "ada")
    page.get_by_label("SQL").fill(BY_REGION)
    page.get_by_role("slider").fill("30")
    assert page.get_by_label("or: error").input_value() == "10"
    page.locator("#plan").get_by_text("n: ± 10", exact=True).wait_for()
    page.get_by_label("or: error").press("End")
    page.get_by_label("or: error").press("0")
    assert page.get_by_role("slider").input_value() == "20"
    assert complaints == []


@pytest.mark.parametrize("has_javascript", [True, False])
def test_questions_are_asked_and_published_with_and_without_javascript(chromium, url, has_javascript):
    page, requests, complaints = open_page(chromium, url, java_script_enabled=has_javascript)
    sign_in(page, "olga")

    def press(name):
        page.get_by_role("button", name=name).click()

    # A refusal is rewritten by a click, tried on made-up rows, saved, opened again, and asked.
    age = 20 + has_javascript
    page.get_by_label("SQL").fill(f"SELECT regio, COUNT(*) AS n FROM visits WHERE age > {age} GROUP BY regio")
    page.get_by_label("ε for the whole question").fill("0.2")
    press("See cost")
    page.get_by_role("link", name="Write region instead of regio").click()
    press("Try on made-up rows")
    page.get_by_role("heading", name="A dry run").wait_for()
    page.get_by_text("Save this question").first.click()
    page.get_by_label("Name").fill(f"Older than {age}")
    press("Save this question")
    page.get_by_role("link", name=f"Older than {age}").click()
    press("Ask and spend")
    page.wait_for_url("**/answers/*")

    # The answer is published, read by everybody, withdrawn, downloaded and found in the history.
    answer = page.url
    page.get_by_text("Publish this release").first.click()
    page.get_by_label("Title").fill(f"Visits over {age}")
    press("Publish this release")
    page.goto(f"{url}/public")
    page.get_by_role("link", name=f"Visits over {age}").click()
    page.get_by_role("heading", name=f"Visits over {age}").wait_for()
    page.goto(answer)
    press("Withdraw")
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert Path(download.value.path()).read_text().startswith("region,n,n_low,n_high")
    page.get_by_role("link", name="History").click()
    page.get_by_label("Search the questions").fill(f"AGE > {age}")
    press("Search")
    assert page.get_by_role("row").count() == 2

    assert all(each.startswith(url) for each in requests)
    assert complaints == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("has_javascript", [True, False])
def test_owners_manage_with_and_without_javascript(chromium, url, has_javascript):
    page, _, complaints = open_page(chromium, url, java_script_enabled=has_javascript)
    sign_in(page, "olga")
    page.get_by_role("link", name="Manage").click()
    page.get_by_label("Analyst").fill("bob")
    page.get_by_label("ε", exact=True).fill("3" if has_javascript else "4")
    page.get_by_role("button", name="Give a budget").click()
    page.get_by_text("A second owner must approve").wait_for()
    page.get_by_role("button", name="Refuse: bob").first.click()
    page.get_by_role("button", name="Pause: bob").click()
    page.get_by_role("button", name="Resume: bob").click()
    page.get_by_role("button", name="Verify: Ledger").click()
    page.get_by_text("entries verified").wait_for()
    page.get_by_role("button", name="Verify: Audit log").click()
    page.get_by_text("The log is complete").wait_for()
    page.get_by_role("link", name="Tokens").click()
    page.get_by_label("What it is for").fill("a notebook")
    page.get_by_role("button", name="Make a token").click()
    assert page.locator("#secret").inner_text().startswith("hub_")
    page.get_by_role("button", name="Revoke: a notebook").first.click()
    assert page.locator("#secret").count() == 0
    assert complaints == []


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1200),
        pytest.param("dark", 1200, marks=pytest.mark.long),
        pytest.param("light", 360, marks=pytest.mark.long),
    ],
)
def test_pages_break_no_rule_of_axe(chromium, url, scheme, width):
    import axe_playwright_python

    rules = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    size = {"width": width, "height": 800}
    page, _, _ = open_page(chromium, url, color_scheme=scheme, viewport=size, bypass_csp=True)

    def check():
        page.evaluate(rules)
        result = page.evaluate("async () => (await axe.run()).violations.map((each) => each.id)")
        assert result == [], page.url
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url

    check()
    sign_in(page, "olga")
    page.get_by_label("SQL").fill("SELECT cost, COUNT(*) AS n FROM visits GROUP BY cost")
    page.get_by_label("ε for the whole question").fill("0.2")
    page.locator("#plan .refusal").wait_for()
    check()
    page.get_by_label("SQL").fill(BY_REGION)
    page.get_by_role("button", name="Try on made-up rows").click()
    page.get_by_role("heading", name="A dry run").wait_for()
    check()
    page.get_by_role("button", name="Ask and spend").click()
    page.wait_for_url("**/answers/*")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    check()
    names = ("history", "saved", "manage", "label")
    for path in (*(f"/datasets/visits/{name}" for name in names), "/tokens", "/public"):
        page.goto(url + path)
        check()
