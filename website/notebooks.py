"""Makes notebooks of pages, so that a reader can run and change what a chapter shows."""

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["make_notebook"]

_BLOCK = re.compile(r"^```(?P<language>[a-z-]*)\n(?P<text>.*?)^```\n?", flags=re.DOTALL | re.MULTILINE)


def make_notebook(page: Path, path: Path) -> None:
    """Write a page as a notebook: text as Markdown cells, Python blocks as code cells with their output.

    Args:
        page: A Markdown page whose Python blocks run in order.
        path: The notebook to write.
    """
    text, cells, at = page.read_text(encoding="utf-8"), [], 0
    for match in _BLOCK.finditer(text):
        if match["language"] not in {"python", "output", "noisy-output"}:
            continue  # stays in the text around it
        cells += _markdown(text[at : match.start()])
        at = match.end()
        if match["language"] == "python":
            cells.append(_cell("code", match["text"], execution_count=None, outputs=[]))
        else:
            values = {
                "output_type": "stream",
                "name": "stdout",
                "text": match["text"].splitlines(keepends=True),
            }
            cells[-1]["outputs"].append(values)
    cells += _markdown(text[at:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _markdown(text: str) -> list[dict[str, Any]]:
    return [_cell("markdown", text.strip())] if text.strip() else []


def _cell(kind: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text.strip("\n").splitlines(keepends=True), **fields}
