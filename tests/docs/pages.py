"""Runs the code blocks of a Markdown page in order, as a reader who copies them one after the other would.

Blocks: `python` runs in one namespace, and shows the value of its last expression as a notebook does; `sh`
runs in bash; `toml` with a file name as a comment in its first line, `# hubbub.toml`, writes the file.
The output that the page shows stands in the next block: `output` is compared to the letter, `noisy-output` by
its words and its layout, with any numbers. A line `…` in either stands for any number of lines. A block below
`<!-- not run: reason -->` does not run.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
RUN = ("python", "sh", "toml")
SHOWN = ("output", "noisy-output")
_FENCE = re.compile(
    r"(?P<mark><!-- not run: [^\n]+ -->\n+)?^(?P<indent> *)```(?P<language>[a-z-]*)\n(?P<text>.*?)^ *```$",
    flags=re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"[-+−±]?\d+(,\d{3}(?!\d))*(\.\d+)?(e[-+−]?\d+)?")

# Runs in a process of its own: blocks arrive as a list of (language, text), outputs leave as a list of texts.
_DRIVER = """
import ast, contextlib, io, json, pathlib, subprocess, sys
def run_python(text, names):
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<page>", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
        if value is not None:
            print(value if isinstance(value, str) else repr(value))
names, outputs = {"__name__": "__main__"}, []
blocks = json.loads(sys.stdin.read())
real = sys.stdout
for number, (language, text) in enumerate(blocks):
    print(number, file=sys.stderr)
    caught = io.StringIO()
    if language == "python":
        with contextlib.redirect_stdout(caught):
            run_python(text, names)
        outputs.append(caught.getvalue())
    elif language == "sh":
        done = subprocess.run(["bash", "-e", "-c", text], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        outputs.append(done.stdout)
    else:
        name = text.splitlines()[0].removeprefix("# ")
        if name.endswith(".toml"):
            pathlib.Path(name).write_text(text)
        outputs.append("")
json.dump(outputs, real)
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    output: str | None = None
    is_noisy: bool = False


def read_blocks(page: Path) -> list[Block]:
    """The blocks of a page that run, each with the output that the page shows for it."""
    text = page.read_text(encoding="utf-8")
    results: list[Block] = []
    for match in _FENCE.finditer(text):
        language, line = match["language"], text.count("\n", 0, match.start("language")) + 1
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        if language in SHOWN:
            assert results, f"{page.name}:{line}: output without a block that shows it"
            last = results.pop()
            results.append(Block(last.language, last.text, last.line, body, language == "noisy-output"))
        elif language in RUN and not match["mark"]:
            results.append(Block(language, body, line))
    return results


def run_page(page: Path, folder: Path) -> list[tuple[Block, str]]:
    """Run all blocks of a page in one folder; each with what it printed."""
    blocks = read_blocks(page)
    environment = _environment()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _DRIVER],
        input=json.dumps([(block.language, block.text) for block in blocks]),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )
    if done.returncode:
        start = [int(line) for line in done.stderr.splitlines() if line.isdigit()]
        where = f"{page.name}:{blocks[start[-1]].line}" if start else page.name
        raise AssertionError(f"{where} does not run:\n{done.stderr}")
    return list(zip(blocks, json.loads(done.stdout), strict=True))


def _environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "110", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def agrees(block: Block, printed: str) -> bool:
    """Whether a page shows what its block printed."""
    if block.output is None:
        return True
    pattern = "".join(
        r"(?:(?s:.*)\n)?" if line.strip() == "…" else re.escape(line) + "\n"
        for line in _lines(block.output, is_noisy=block.is_noisy)
    )
    text = "".join(f"{line}\n" for line in _lines(printed, is_noisy=block.is_noisy))
    return re.fullmatch(pattern, text) is not None


def _lines(text: str, *, is_noisy: bool) -> list[str]:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    if not is_noisy:
        return lines
    # Widths follow the numbers, and so do rules and paddings.
    lines = [re.sub(r"[━─═┄╌]+", "━", _NUMBER.sub("#", line)) for line in lines]
    return [re.sub(r"\s+", " ", line).strip() for line in lines]
