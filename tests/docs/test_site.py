"""The site builds: all pages are in its menu, all links lead somewhere, nothing comes from another host."""

import html.parser
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "website"))

from api_reference import PACKAGES, list_public_names  # noqa: E402
from build import OUTSIDE, let_names_break  # noqa: E402
from formulas import FormulaStore, convert_formula  # noqa: E402
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
def test_every_page_says_for_whom_it_is_and_what_to_read_next(site):
    for page, content in site.items():
        if page.name != "404.html":
            text = page.read_text(encoding="utf-8")
            length = r"(about )?\d+ (minutes?|seconds)( for each name)?"
            assert re.search(rf"<p><em>For [^<]+; {length}\.</em>", text), page
            assert "next" in content.places, page


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(site, package):
    (page,) = (path for path in site if path.parts[-3:-1] == ("api", package))
    names = list_public_names(importlib.import_module(package))
    assert {name.lower() for name in names} <= site[page].places


def test_every_package_with_public_names_has_a_reference():
    folders = (ROOT / "src" / "hubbub").glob("*/__init__.py")
    packages = {
        f"hubbub.{path.parent.name}" for path in folders if "__all__" in path.read_text(encoding="utf-8")
    }
    assert packages - {"hubbub.cli"} <= set(PACKAGES)


@pytest.mark.parametrize("package", ["hubbub.mechanisms", "hubbub.noise", "hubbub.estimators"])
def test_names_that_draw_noise_state_their_guarantee_and_their_proof(package):
    module = importlib.import_module(package)
    for name in set(list_public_names(module)) - {"Estimate", "Mechanism", "from_json", "MAX_SCALE"}:
        text = inspect.getdoc(getattr(module, name))
        assert "Guarantee:" in text, name
        assert "Proof: docs/proofs/" in text, name


def test_formulas_are_mathml_outside_of_code(tmp_path):
    store = FormulaStore()
    text = store.take_out("Let $x_1 < 2$; `$HOME$`.\n\n```sh\necho $A $B\n```\n\n$$\\sum_{k \\ge 1} q^k$$\n")
    assert "`$HOME$`" in text
    assert "echo $A $B" in text
    assert text.count("$") == 4
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    (tmp_path / "search.json").write_text(text, encoding="utf-8")
    store.put_back(tmp_path)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<msub><mi>x</mi><mn>1</mn></msub><mo form="infix">&lt;</mo>' in page
    assert '<math display="block">' in page
    assert "Let x1&lt;2; " in (tmp_path / "search.json").read_text(encoding="utf-8")


def test_signs_words_and_bars_are_spaced_as_in_print():
    assert '<mo form="prefix">−</mo><mi>a</mi>' in convert_formula(r"b(-a)")
    assert "<mo>−</mo><mi>a</mi>" in convert_formula(r"b - a")
    assert '<mi>ln</mi><mspace width="0.17em"></mspace><mn>2</mn>' in convert_formula(r"\ln 2")
    assert convert_formula(r"2 \ln 2").count("mspace ") == 2
    assert "mspace" not in convert_formula(r"1 + \ln(2)")
    assert '<mo stretchy="false" lspace="0" rspace="0">|</mo>' in convert_formula("|a|/b")


def test_long_names_in_tables_break_between_words(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<code>a.b</code><td><code>hubbub.sql:Plan.run_all</code> a.b <code>.rho</code></td>")
    let_names_break(tmp_path)
    cell = "<code>hubbub.<wbr>sql:<wbr>Plan.<wbr>run_<wbr>all</code> a.b <code>.rho</code>"
    assert page.read_text() == f"<code>a.b</code><td>{cell}</td>"


@pytest.mark.parametrize("tex", [r"\unknown x", r"\frac{1}{2", r"x_"])
def test_formula_that_cannot_be_drawn_stops_the_build(tex):
    with pytest.raises(ValueError, match="formula"):
        convert_formula(tex)


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
