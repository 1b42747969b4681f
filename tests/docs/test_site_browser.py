"""The site in a browser: its search works, no request leaves the machine, no page is wider than a phone."""

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("needs chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long
PHONE = {"width": 390, "height": 844}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, and the address at which it is served."""
    folder = tmp_path_factory.mktemp("site") / "build"
    subprocess.run([sys.executable, ROOT / "website" / "build.py", folder], check=True, capture_output=True)
    handler = functools.partial(Quiet, directory=folder / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder / "site", f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(site):
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(viewport=PHONE).new_page()
        page.set_default_timeout(120_000)  # of a busy machine
        page.requests, page.complaints = set(), []
        page.on("request", lambda request: page.requests.add(request.url))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        yield page
        browser.close()


def test_pages_load_nothing_from_elsewhere_and_fit_a_phone(site, page):
    folder, url = site
    for path in sorted(folder.rglob("index.html")):
        page.goto(url + path.parent.relative_to(folder).as_posix() + "/")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], path
    assert [request for request in page.requests if not request.startswith((url, "data:", "blob:"))] == []
    assert page.complaints == []


def test_search_finds_a_chapter(site, page):
    _, url = site
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(url, wait_until="networkidle")
    page.keyboard.press("/")
    page.locator("input:visible").first.fill("randomized response")
    result = page.locator("a:visible", has_text="3. Randomized response").first
    result.click()
    page.wait_for_url("**/textbook/03-randomized-response/**")
