"""`hubbub functions`: the SQL functions that are accepted."""

from typing import Annotated

import typer

from hubbub.cli.terminal import FormatOption, OutputFormat, print_line, show_json

__all__ = ["functions"]

Word = Annotated[
    str | None, typer.Argument(metavar="[WORD]", help="Show only functions with this in their name.")
]


def functions(word: Word = None, form: FormatOption = OutputFormat.TEXT) -> None:
    """List the SQL functions that are accepted: on rows, as aggregates, and over released values.

    In the examples x and y are numbers, t is a text, b a truth value, d a date, m a timestamp, l a list.


    hubbub functions
    hubbub functions date
    """
    from hubbub.report.text_tables import align_rows
    from hubbub.sql.function_list import list_entries

    entries = [entry for entry in list_entries() if word is None or word.upper() in entry.example.upper()]
    if form is OutputFormat.JSON:
        show_json(
            [
                {"function": each.example, "result": each.kind, "engines": each.engines, "used on": each.use}
                for each in entries
            ]
        )
        return
    rows = [[entry.example, entry.kind, entry.engines, entry.use] for entry in entries]
    for line in align_rows([["function", "result", "engines", "used on"], *rows]):
        print_line(line)
