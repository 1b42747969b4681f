"""The site builds: all pages are in its menu, all links lead somewhere, nothing comes from another host."""

import html.parser
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

from api_reference import PACKAGES  # noqa: E402
from build import OUTSIDE  # noqa: E402
from navigation import list_pages  # noqa: E402
from pictures import draw_all  # noqa: E402

DOCS = ROOT / "docs"


class Links(html.parser.HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if values.get("id"):
            self.places.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        if tag in {"script", "img", "iframe", "source"} and values.get("src"):
            self.loads.add(values["src"])
        if tag == "link" and values.get("href") and values.get("rel") != "canonical":
            self.loads.add(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "website" / "build.py", folder / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = (folder / "build" / "site").resolve()
    return {path: Links(path.read_text(encoding="utf-8")) for path in pages.rglob("*.html")}


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(site):
    for page, content in site.items():
        if page.name == "404.html":
            continue  # it is served from any place
        for link in content.links | content.loads:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page}: {link}"
            if parts.fragment and target in site and parts.fragment != "__skip":
                assert unquote(parts.fragment) in site[target].places, f"{page}: {link}"


@pytest.mark.slow
def test_site_loads_nothing_from_another_host(site):
    for page, content in site.items():
        assert not [link for link in content.loads if urlsplit(link).netloc], page


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    import hubbub

    (page,) = (path for path in site if path.parent.name == "hubbub" and path.parent.parent.name == "api")
    assert {name.lower() for name in hubbub.__all__ if name.isidentifier()} - site[page].places <= {
        "audit",
        "estimators",
        "training",
        "__version__",
    }
    assert len(PACKAGES) > 5


def test_every_page_is_in_the_menu_once():
    listed = list_pages()
    assert len(listed) == len(set(listed))
    pages = {*OUTSIDE.values(), "api/"}
    for page in DOCS.rglob("*.md"):
        name = str(page.relative_to(DOCS))
        if page.name != "README.md":
            assert name in listed or f"{name.split('/', maxsplit=1)[0]}/" in listed, name
    for name in listed:
        assert name in pages or (DOCS / name).exists(), name


@pytest.mark.slow
def test_pictures_are_those_that_the_code_draws():
    pictures = draw_all()
    for name, picture in pictures.items():
        assert (DOCS / name).read_text(encoding="utf-8") == picture, f"{name}: run website/pictures.py"
    # A training run of minutes, by examples/generalisation.py.
    drawn_elsewhere = {"pictures/generalisation.svg"}
    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.svg")} == {*pictures, *drawn_elsewhere}
