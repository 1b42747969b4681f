"""Builds the site: `python website/build.py [FOLDER]` stages the pages in FOLDER, and Zensical renders them.

Pages are plain Markdown in `docs/`, and read well without the site. Staging adds what is made from other
files (the change log, the API reference, notebooks), says on pages of reference for whom they are and what to
read next, and turns links to files outside of `docs/` into text. Formulas become MathML (`formulas.py`).
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from api_reference import write_api_pages
from formulas import FormulaStore
from navigation import NAVIGATION, READERS, list_pages
from notebooks import make_notebook

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files outside of docs/ that are pages of the site, and their names there."""
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def stage(folder: Path, formulas: FormulaStore) -> None:
    """Copy all pages into a folder, ready for a site generator.

    Args:
        folder: Where they go, below `docs`; it is emptied first.
        formulas: Takes the formulas of the pages, to be put back into what the generator makes.
    """
    pages = folder / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("README.md"))
    for source, name in OUTSIDE.items():
        if name != "index.md" and (ROOT / source).exists():
            (pages / name).write_text((ROOT / source).read_text(encoding="utf-8"), encoding="utf-8")
    originals = {pages / name: ROOT / source for source, name in OUTSIDE.items() if name != "index.md"}
    write_api_pages(pages / "api")
    for page in sorted(pages.rglob("*.md")):
        original = originals.get(page, ROOT / "docs" / page.relative_to(pages))
        text = formulas.take_out(page.read_text(encoding="utf-8"))
        page.write_text(_with_site_links(text, page, original, pages), encoding="utf-8")
    _frame_reference_pages(pages)
    for chapter in sorted((pages / "textbook").glob("[0-9]*.md")):
        make_notebook(chapter, chapter.with_suffix(".ipynb"))
        with chapter.open("a", encoding="utf-8") as page:
            page.write(f"\n[Download this chapter as a notebook]({chapter.stem}.ipynb)\n")
    (pages / "extra.css").write_text((ROOT / "website" / "extra.css").read_text(), encoding="utf-8")
    frame = (ROOT / "website" / "zensical.toml").read_text(encoding="utf-8")
    menu = f"nav = [\n{_menu(pages)}]\n"
    (folder / "zensical.toml").write_text(
        re.sub(r"^nav = \[.*?^\]\n", lambda _: menu, frame, count=1, flags=re.DOTALL | re.MULTILINE),
        encoding="utf-8",
    )


def _with_site_links(text: str, page: Path, original: Path, pages: Path) -> str:
    """The text of a page whose links work on the site."""

    def convert(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        if original.exists():
            path = (original.parent / target).resolve()
            if path.is_relative_to(ROOT / "docs") and path.name != "README.md":
                inside = pages / path.relative_to(ROOT / "docs")
            elif path.is_relative_to(ROOT) and str(path.relative_to(ROOT)) in OUTSIDE:
                inside = pages / OUTSIDE[str(path.relative_to(ROOT))]
            else:  # the source tree is not part of the site
                return words
            return f"[{words}]({_relative(inside, page.parent)}{anchor})"
        return match[0]

    return _LINK.sub(convert, text)


def _frame_reference_pages(pages: Path) -> None:
    """Pages that are looked up, or made from code, get the first and the last lines that all others have."""
    order = [
        name
        for item in list_pages()
        for name in (
            [f"{item}{page.name}" for page in _in_order(pages / item)] if item.endswith("/") else [item]
        )
    ]
    for number, name in enumerate(order):
        reader = READERS.get(name) or READERS.get(f"{name.split('/', maxsplit=1)[0]}/")
        if reader is None:
            continue
        page, follower = pages / name, pages / order[(number + 1) % len(order)]
        heading, text = page.read_text(encoding="utf-8").split("\n", maxsplit=1)
        minutes = max(1, round(len(text.split()) / 200))
        length = "1 minute for each name" if reader.is_looked_up else f"{minutes} minute{'s' * (minutes > 1)}"
        links = [
            (follower, _title(follower)),
            *((pages / name, title) for name, title in reader.onward.items()),
        ]
        ending = " · ".join(f"[{title}]({_relative(target, page.parent)})" for target, title in links)
        ending = "" if "\n## Next" in text else f"\n## Next\n\n{ending}\n"
        page.write_text(f"{heading}\n\n*For {reader.who}; {length}.*\n{text}{ending}", encoding="utf-8")


def _relative(path: Path, folder: Path) -> str:
    ups = 0
    while not path.is_relative_to(folder):
        folder, ups = folder.parent, ups + 1
    return "../" * ups + str(path.relative_to(folder))


def _menu(pages: Path) -> str:
    lines = []
    for title, item in NAVIGATION.items():
        if isinstance(item, str):
            lines += _entries(title, item, pages, 1)
        else:
            lines.append(f'  {{ "{title}" = [')
            for name, page in item.items():
                lines += _entries(name, page, pages, 2)
            lines.append("  ] },")
    return "\n".join(lines) + "\n"


def _entries(title: str, item: str, pages: Path, depth: int) -> list[str]:
    indent = "  " * depth
    if not item.endswith("/"):
        return [f'{indent}{{ "{title}" = "{item}" }},']
    inside = [f'{indent}  {{ "{_title(page)}" = "{item}{page.name}" }},' for page in _in_order(pages / item)]
    return [f'{indent}{{ "{title}" = [', *inside, f"{indent}] }},"]


def _in_order(folder: Path) -> list[Path]:
    """The pages of a folder by their names, a package before what is inside it."""
    return sorted(folder.glob("*.md"), key=lambda page: page.stem)


def _title(page: Path) -> str:
    first = page.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.removeprefix("# ").replace("`", "").replace('"', "'").strip()


def let_names_break(site: Path) -> None:
    """Long names in tables break behind dots, colons, slashes and underscores, not within words."""

    def convert(match: re.Match[str]) -> str:
        return match[1] + re.sub(r"(?<=\w)([./:(,]+|_)(?=[^\W_])", r"\1<wbr>", match[2])

    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if "<td" in text:
            cells = re.split(r"(<td.*?</td>)", text, flags=re.DOTALL)
            cells[1::2] = [re.sub(r"(<code>)([^<]+)", convert, cell) for cell in cells[1::2]]
            page.write_text("".join(cells), encoding="utf-8")


def main() -> None:
    """Stage and render."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"
    formulas = FormulaStore()
    stage(folder, formulas)
    zensical = Path(sys.executable).parent / "zensical"
    done = subprocess.run(
        [zensical, "build", "--clean"], cwd=folder, capture_output=True, text=True, check=False
    )
    words = done.stdout + done.stderr
    if done.returncode or "warning" in words.lower():
        sys.exit(f"the site was not built:\n{words}")
    formulas.put_back(folder / "site")
    let_names_break(folder / "site")
    print(folder / "site" / "index.html")


if __name__ == "__main__":
    main()
