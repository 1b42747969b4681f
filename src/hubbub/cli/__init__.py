"""The command line: `hubbub --help`."""

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; only the command that is run is loaded."""
    from hubbub.cli.commands import COMMANDS, load_app
    from hubbub.cli.runner import run, show_examples
    from hubbub.cli.terminal import be_quiet

    words = sys.argv[1:]
    if not words and "_HUBBUB_COMPLETE" not in os.environ:
        show_examples()
        return
    # What a shell wants to complete is in its environment.
    typed = " ".join(os.environ.get(name, "") for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")).split()
    command = next((word for word in [*words, *typed] if word in COMMANDS), "")
    app = load_app(command, has_options=not words or words[0] != command)
    be_quiet(is_quiet=False)
    if "--quiet" in words:  # wherever it stands
        words = ["--quiet", *(word for word in words if word != "--quiet")]
    run(app, words)
