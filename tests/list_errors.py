"""Prints every error message in the tree once: what, why and fix, with the place of each.

    python -m tests.list_errors              all of them
    python -m tests.list_errors ledger cli   those of some packages

Texts are taken from the syntax trees: what a message interpolates is shown as {…}.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "hubbub"


def find_messages(path: Path) -> Iterator[tuple[int, str, str, str]]:
    """Yield the line, what, why and fix of each call that has a `why` and a `fix`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            by_name = {each.arg: each.value for each in node.keywords}
            if "why" in by_name and "fix" in by_name:
                what = node.args[0] if node.args else by_name.get("what")
                yield node.lineno, _text(what), _text(by_name["why"]), _text(by_name["fix"])


def _text(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.IfExp):
        return f"{_text(node.body)} | {_text(node.orelse)}"
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "{…}"


def main() -> None:
    """Print the messages of the packages that are named, or all."""
    names = sys.argv[1:]
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE)
        if names and name.parts[0].removesuffix(".py") not in names:
            continue
        for line, what, why, fix in find_messages(path):
            sys.stdout.write(f"{name}:{line}\n  what: {what}\n  why:  {why}\n  fix:  {fix}\n")


if __name__ == "__main__":
    main()
