"""A terminal in the test's own process: what `hubbub WORDS` prints, and how it ends."""

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from hubbub.cli import main


class Outcome(NamedTuple):
    code: int
    stdout: str
    stderr: str


def run(*words: str, width: int = 200, typed: str = "") -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["hubbub", *words]),
        mock.patch.object(sys, "stdin", io.StringIO(typed)),
        mock.patch.dict("os.environ", {"COLUMNS": str(width), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())
