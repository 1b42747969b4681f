"""Makes docs/cli.md from the commands, by typer's own generator: `make docs`."""

import html
import subprocess
import sys

HEAD = """# The command line

Made by `make docs` from the commands themselves. The guide to queries is [queries](queries.md).

Numbers are written as 0.5, 1/2 or 1e-6. Colours and progress bars appear on terminals only; `NO_COLOR=1`
turns colours off, `--quiet` all remarks. `hubbub --install-completion` makes the shell complete names, also
of columns and tables of a `hubbub.toml`. `python -m hubbub` is the same command.

With `--format json` answers are JSON on stdout, and errors JSON on stderr, with `what`, `why`, `fix`,
`parameter` and `code`, which is the exit code:

| code | meaning |
|---|---|
| 0 | done |
| 1 | `hubbub audit`, `hubbub ledger verify` or `hubbub report verify` found a violation |
| 2 | the command line, a file or a value cannot be used |
| 3 | refused: it could not be protected, or contradicts what the owner declared |
| 4 | the budget is exhausted |
| 5 | the engine or the ledger failed |
"""
_COMMAND = ("-m", "typer", "hubbub.cli.all_commands", "utils", "docs", "--name", "hubbub")


def make_page() -> str:
    """Return the page as Markdown."""
    page = subprocess.run([sys.executable, *_COMMAND], capture_output=True, text=True, check=True).stdout
    # The generator escapes for HTML, also inside code, where Markdown shows the escapes.
    _, _, commands = html.unescape(page).partition("\n")
    return f"{HEAD}{_fence_examples(commands)}".rstrip() + "\n"


def _fence_examples(text: str) -> str:
    """Put the examples of each command, which follow two blank lines, into a block of code."""
    out, is_example = [], False
    lines = text.splitlines()
    for place, line in enumerate(lines):
        starts = line.startswith("hubbub ") and place > 1 and not lines[place - 1] and not lines[place - 2]
        if starts:
            out.append("```")
            is_example = True
        if is_example and not line:
            out.append("```")
            is_example = False
        out.append(line)
    return "\n".join(out)


if __name__ == "__main__":
    sys.stdout.write(make_page())
