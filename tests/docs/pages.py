"""Runs the code blocks of a Markdown page in order, as a reader who copies them one after the other would.

Blocks: `python` runs in one namespace, and shows the value of its last expression as a notebook does; `sh`
runs in bash; `toml` with a file name as a comment in its first line, `# hubbub.toml`, writes the file.
The output that the page shows stands in the next block: `output` is compared to the letter, `noisy-output` by
its words and its layout, with any numbers. A line `…` in either stands for any number of lines. A block below
`<!-- not run: reason -->` does not run; one below `<!-- run in .venv-name -->` shows another library and runs
in the environment that has it, if the Makefile has made it.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
RUN = ("python", "sh", "toml")
SHOWN = ("output", "noisy-output")
_FENCE = re.compile(
    r"(?P<mark><!-- (?:not run: |run in (?P<where>\S+))[^\n]* -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[a-z-]*)\n(?P<text>.*?)^ *```$",
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
    environment: str | None = None


def list_environments(page: Path) -> list[str]:
    """The environments of other libraries in which blocks of a page run."""
    blocks = _FENCE.finditer(page.read_text(encoding="utf-8"))
    return sorted({block["where"] for block in blocks if block["where"]})


def read_blocks(page: Path, environment: str | None = None) -> list[Block]:
    """The blocks of a page that run, here or in an environment, each with the output that the page shows."""
    text = page.read_text(encoding="utf-8")
    results: list[Block] = []
    for match in _FENCE.finditer(text):
        language, line = match["language"], text.count("\n", 0, match.start("language")) + 1
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        if language in SHOWN:
            assert results, f"{page.name}:{line}: output without a block that shows it"
            last = results.pop()
            is_noisy = language == "noisy-output"
            results.append(replace(last, output=body, is_noisy=is_noisy))
        elif language in RUN and (match["where"] or not match["mark"]):
            results.append(Block(language, body, line, environment=match["where"]))
    return [block for block in results if block.environment == environment]


def run_page(page: Path, folder: Path, environment: str | None = None) -> list[tuple[Block, str]]:
    """Run all blocks of a page in one folder, here or those of an environment; each with what it printed."""
    blocks = read_blocks(page, environment)
    programs = DOCS.parent / environment / "bin" if environment else Path(sys.executable).parent
    # Warnings of other libraries are theirs.
    done = subprocess.run(
        [programs / "python", *([] if environment else ["-W", "error"]), "-c", _DRIVER],
        input=json.dumps([(block.language, block.text) for block in blocks]),
        capture_output=True,
        text=True,
        cwd=folder,
        env=_environment(programs),
        check=False,
    )
    if done.returncode:
        start = [int(line) for line in done.stderr.splitlines() if line.isdigit()]
        where = f"{page.name}:{blocks[start[-1]].line}" if start else page.name
        raise AssertionError(f"{where} does not run:\n{done.stderr}")
    return list(zip(blocks, json.loads(done.stdout), strict=True))


def _environment(programs: Path) -> dict[str, str]:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
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
