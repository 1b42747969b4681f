"""`hubbub report`: the label of an account or of a release, written, signed and verified."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hubbub.cli.ledger import AccountName, LedgerAddress, open_to_read, single_account
from hubbub.cli.terminal import (
    FormatOption,
    OutputFormat,
    escaped,
    print_line,
    show_json,
    to_json,
    write_stdout,
)
from hubbub.errors import InvalidInput
from hubbub.output_files import CONFIG_NAME, check_output_path, write_output
from hubbub.report.label import label, signed_label
from hubbub.report.label_check import check_label
from hubbub.report.label_pages import label_html, label_markdown, label_text, label_yaml

__all__ = ["report"]


class ReportFormat(StrEnum):
    """The formats of a label."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    HTML = "html"
    MD = "md"


_SUFFIXES = {
    ".txt": ReportFormat.TEXT,
    ".json": ReportFormat.JSON,
    ".yaml": ReportFormat.YAML,
    ".yml": ReportFormat.YAML,
    ".html": ReportFormat.HTML,
    ".md": ReportFormat.MD,
}
report = typer.Typer(
    help="Write or verify the privacy label: `hubbub report --ledger visits.ledger --output label.html`.",
    invoke_without_command=True,
)


@report.callback()
def write_report(
    context: typer.Context,
    where: LedgerAddress = "",
    name: AccountName = "",
    choice: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="text, html, md, json or yaml; from the suffix of --output, or text."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write to a file instead of the terminal.")
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help=f"A {CONFIG_NAME} with an \\[about] section for the label; default: the one in this folder."
        ),
    ] = None,
    release: Annotated[
        int | None,
        typer.Option(metavar="ENTRY", help="Only the release of this entry (hubbub ledger list)."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Sign the label with this private key (hubbub ledger key).")
    ] = None,
) -> None:
    """Write the privacy label of an account: who is protected, how, and the total cost of all releases.

    `hubbub report --ledger visits.ledger --output label.html`
    """
    if context.invoked_subcommand is not None:
        return
    form = _choose_format(choice, output)
    declared = None
    if about is not None or Path(CONFIG_NAME).is_file():
        from hubbub.config_lookup import find_config

        declared = find_config(about or CONFIG_NAME)
    with open_to_read(where) as opened_ledger:
        facts = label(
            single_account(opened_ledger, name), None if declared is None else declared.about, release=release
        )
    if key is not None:
        facts = signed_label(facts, key)
    render = {
        ReportFormat.TEXT: label_text,
        ReportFormat.JSON: lambda all_of_it: to_json(all_of_it, indent=2) + "\n",
        ReportFormat.YAML: label_yaml,
        ReportFormat.HTML: label_html,
        ReportFormat.MD: label_markdown,
    }[form]
    if output is None:
        write_stdout(render(facts))
    else:
        write_output(output, render(facts), ("", *_SUFFIXES))


@report.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="LABEL.json", help="The label, as JSON.")],
    public: Annotated[
        Path | None, typer.Option(help="The signer's public key; the label's own if omitted.")
    ] = None,
    where: Annotated[
        str, typer.Option("--ledger", help="The ledger, to make the label again and compare all of it.")
    ] = "",
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Verify a label: every ε from its mechanisms, the totals, the signature; exits with 1 if one is wrong.

    \b
    hubbub report --ledger visits.ledger --key owner.key --output label.json
    hubbub report verify label.json --public owner.key.pub
    hubbub report verify label.json --ledger visits.ledger
    """  # noqa: D301 - the mark that keeps lines is a real \b
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            f"the label {file} cannot be read",
            why="there is no such file, or it is not JSON",
            fix="pass the path of a label that `hubbub report --output label.json` wrote",
        ) from None
    if where:
        with open_to_read(where) as opened_ledger:
            findings = check_label(text, public_key=public, ledger=opened_ledger)
    else:
        findings = check_label(text, public_key=public)
    styles = {"OK": "green", "FAILED": "red"}
    if form is OutputFormat.JSON:
        checks = [{"status": each.status, "text": each.text} for each in findings.findings]
        show_json({"ok": findings.ok, "findings": checks})
    for each in findings.findings if form is OutputFormat.TEXT else ():
        print_line(escaped(each.status, styles.get(each.status, "")), ": ", escaped(each.text))
    if not findings.ok:
        raise typer.Exit(1)


def _choose_format(choice: ReportFormat | None, output: Path | None) -> ReportFormat:
    """Return the format that was asked for, or else the one that the file's suffix names."""
    if output is None:
        return choice or ReportFormat.TEXT
    check_output_path(output, ("", *_SUFFIXES))
    by_suffix = _SUFFIXES.get(output.suffix.lower())
    if choice is not None and by_suffix not in {None, choice}:
        raise InvalidInput(
            f"the output ends in {output.suffix}, and --format is {choice.value}",
            why="programs choose how to read a file by its suffix",
            fix="leave --format out, or give the file another suffix",
            parameter="format",
        )
    return choice or by_suffix or ReportFormat.TEXT
