"""The command line: `hubbub --help`."""

from hubbub.cli.app import main

__all__ = ["main"]
