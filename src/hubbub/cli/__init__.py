"""The command line: `hubbub --help`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    from hubbub.cli.shell import make_app, run

    if sys.argv[1:2] == ["loss"]:
        # By itself: to import engines and SQL for the other commands takes longer than most losses.
        from hubbub.cli.loss import loss

        run(make_app(loss))
    else:
        from hubbub.cli.app import app

        run(app)
