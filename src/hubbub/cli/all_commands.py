"""The `hubbub` command with all of its commands, for the reference page; see `cli/commands.py`."""

from hubbub.cli.commands import COMMANDS, load_app

__all__ = ["app"]

app = load_app(*COMMANDS)
