"""`hubbub budget`, `hubbub ledger`, `hubbub report`: what was spent, by whom, and whether it is whole."""

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.cli.options import above_zero, chance, counted, share
from hubbub.cli.query import Large, Population
from hubbub.cli.terminal import bold, for_programs, put, say, screen, words
from hubbub.config import ROW
from hubbub.errors import InvalidInput
from hubbub.ledger import Entry, Ledger, LedgerAccount, check_signature, new_secret, new_signing_key
from hubbub.numbers import format_down, format_up
from hubbub.output_files import CONFIG_NAME, check_output_path, write_output
from hubbub.report.label import History, bars, label, label_html, label_text, label_yaml
from hubbub.sources import find_config
from hubbub.unit import Unit

__all__ = ["register"]

Where = Annotated[
    str, typer.Option("--ledger", help="The ledger: a file, or postgresql://…", envvar="HUBBUB_LEDGER")
]
Named = Annotated[str, typer.Option("--account", help="Which account; not needed where there is one.")]
As = Annotated[str, typer.Option("--as", help="Look as this analyst: only what is hers.")]


class Form(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"
    HTML = "html"


_ENDINGS = {
    ".txt": Form.TEXT,
    ".json": Form.JSON,
    ".yaml": Form.YAML,
    ".yml": Form.YAML,
    ".html": Form.HTML,
}
budget = typer.Typer(help="What was spent, what is left, and who may spend it.", invoke_without_command=True)
ledger = typer.Typer(
    help="The lines of a ledger, and whether they are whole: `hubbub ledger verify --ledger visits.ledger`.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(budget, name="budget")
    app.add_typer(ledger, name="ledger")
    app.command()(report)


@budget.callback()
def show_budget(context: typer.Context, where: Where = "", name: Named = "", who: As = "") -> None:
    """Say what was spent and what is left: `hubbub budget --ledger visits.ledger`."""
    if context.invoked_subcommand is not None:
        return
    with _looked_at(where) as opened:
        for account in _accounts(opened, name):
            _show_account(account.for_analyst(who) if who else account)


@budget.command("open")
def open_account(
    name: Annotated[str, typer.Argument(help="Its name; a table's, unless several share it.")],
    unit: Annotated[str, typer.Option(metavar="COLUMN|row", help="Who is protected.")],
    epsilon: Annotated[str, typer.Option(help="The ε that all releases together may cost.")],
    delta: Annotated[str, typer.Option(help="The δ that all releases together may cost.")] = "0",
    population: Population = None,
    where: Where = "",
    large_epsilon: Large = False,
) -> None:
    """Open an account: `hubbub budget open visits --unit patient --epsilon 1 --ledger visits.ledger`."""
    given = _budget(epsilon, delta, population, large=large_epsilon)
    with _opened(where, is_new=True) as opened:
        account = opened.account(name, Unit.row() if unit.lower() == ROW else Unit(unit), given)
        say(words(name), f": {_promise(account.privacy_filter)} for ", words(account.unit))


@budget.command("grant")
def grant(
    analyst: Annotated[str, typer.Argument(help="Her name.")],
    epsilon: Annotated[str, typer.Option(help="The ε she may spend, within the account's.")],
    delta: Annotated[str, typer.Option(help="The δ she may spend.")] = "0",
    population: Population = None,
    where: Where = "",
    name: Named = "",
    large_epsilon: Large = False,
) -> None:
    """Give an analyst a budget of her own: `hubbub budget grant ada --epsilon 0.5`."""
    given = _budget(epsilon, delta, population, large=large_epsilon)
    with _opened(where) as opened:
        account = _one(opened, name)
        account.grant(analyst, given)
        hers = _promise(account.analysts()[analyst])
        say(words(analyst), f" may spend {hers} of ", words(account.name))


def _budget(epsilon: str, delta: str, population: str | None, *, large: bool) -> Budget:
    people = None if population is None else counted(population, "--population")
    return Budget(
        above_zero(epsilon, "--epsilon"), chance(delta), population=people, allow_large_epsilon=large
    )


@ledger.command("list")
def list_lines(where: Where = "", name: Named = "", who: As = "") -> None:
    """List the lines, one a row."""
    table = Table("line", "when", "account", "who", "kind", "what", box=None)
    with _looked_at(where) as opened:
        for entry in _lines(opened, name, who):
            cells = (
                str(entry.number),
                entry.timestamp[:19],
                entry.account,
                entry.analyst or "owner",
                entry.kind,
            )
            table.add_row(*map(words, (*cells, _what(entry))))
    screen().print(table, soft_wrap=True)


@ledger.command("show")
def show_line(number: Annotated[int, typer.Argument(help="Which line.")], where: Where = "") -> None:
    """Show one line with all that it says."""
    with _looked_at(where) as opened:
        found = next((entry for entry in opened.entries() if entry.number == number), None)
    if found is None:
        raise InvalidInput(
            f"there is no line {number}", why="lines are numbered from 1", fix="see hubbub ledger list"
        )
    put(for_programs(_plain(found), indent=2) + "\n")


@ledger.command("verify")
def verify(
    where: Where = "",
    head: Annotated[str, typer.Option(help="The digest you kept: finds a ledger that was cut short.")] = "",
    is_signed: Annotated[
        Path | None, typer.Option("--signed", help="A head that hubbub ledger sign wrote; needs --public.")
    ] = None,
    public: Annotated[Path | None, typer.Option(help="The public key of who signed it.")] = None,
) -> None:
    """Check every line, every total and every release; ends with 1 where something is wrong."""
    if (is_signed is None) != (public is None) or (head and is_signed):
        raise InvalidInput(
            "--signed is given without --public, or both with --head",
            why="a signature is checked with the key of who signed",
            fix="give --signed and --public, or --head",
        )
    if is_signed is not None and public is not None:
        head = check_signature(_text_of(is_signed), public).digest
    with _looked_at(where) as opened:
        found = opened.verify(head or None)
    if not found.ok:
        for problem in found.problems:
            say(words("NOT OK", "red"), ": ", words(problem))
        raise typer.Exit(1)
    say(f"OK: {found.entries} entries verified")
    say(f"keep this digest elsewhere, and pass it as --head next time: {found.head_digest}")


@ledger.command("key")
def make_key(
    file: Annotated[Path, typer.Argument(help="Where to write it; it must not be there yet.")],
    secret: Annotated[
        bool, typer.Option("--secret", help="A secret that seals releases, instead of a key that signs.")
    ] = False,
) -> None:
    """Make a key to sign with, its public half beside it as FILE.pub; or a secret that seals releases."""
    if secret:
        new_secret(file)
        say("written: ", words(file), f"; name it as secret in {CONFIG_NAME}, and lose it never")
        return
    new_signing_key(file)
    say("written: ", words(file), ", yours alone, and ", words(file), ".pub, for everybody")


@ledger.command("sign")
def sign(
    key: Annotated[Path, typer.Option(help="Your private key: hubbub ledger key FILE makes one.")],
    where: Where = "",
    output: Annotated[Path | None, typer.Option(help="A file instead of the terminal.")] = None,
) -> None:
    """Sign the head: who keeps what is written finds any later change, with the public key alone."""
    with _opened(where) as opened:
        _write(opened.sign(key) + "\n", output, (".json",))


@ledger.command("backup")
def back_up(
    file: Annotated[Path, typer.Argument(help="Where to write it; it must not be there yet.")],
    where: Where = "",
) -> None:
    """Write all of a ledger to one file that cannot be spent from: `hubbub ledger backup visits.backup`."""
    with _looked_at(where) as opened:
        opened.backup(file)
        key = opened.key_path
    say("written: ", words(file), "; hubbub ledger restore makes a ledger of it again")
    if key is not None:
        say("keep ", words(key), ", too: with it what was released is given again")


@ledger.command("restore")
def restore(
    backup: Annotated[
        Path | None,
        typer.Argument(help="A backup; left out to go on with a ledger that was copied or moved."),
    ] = None,
    where: Where = "",
    spent_since: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ACCOUNT=]EPSILON[,DELTA]",
            help="What was spent of an account since, which the file does not know of.",
        ),
    ] = None,
    nothing_since: Annotated[
        bool, typer.Option("--nothing-since", help="Nothing was spent that the file does not know of.")
    ] = False,
) -> None:
    """Go on with a backup, a copy or a ledger that was moved, once you said what was spent since.

    `hubbub ledger restore visits.backup --ledger visits.ledger --spent-since 0.5`
    """
    if bool(spent_since) == nothing_since:
        raise InvalidInput(
            "it is not said what was spent since",
            why="a copy does not know of it, and would spend it once more",
            fix="pass --spent-since EPSILON, or --nothing-since",
        )
    place = _where(where)
    with Ledger.open_read_only(place if backup is None else backup) as found:
        names = found.accounts()
    spent = dict(_spent(each, names) for each in spent_since or [])
    verdict = Ledger.restore(place, backup, spent_since=spent)
    say(words(place), f" is the ledger from now on: {verdict.entries} lines")


def _spent(text: str, names: list[str]) -> tuple[str, PrivacyLoss]:
    name, _, figures = text.rpartition("=")
    if not name and len(names) != 1:
        raise InvalidInput(
            "no account is named",
            why="there are several",
            fix=f"pass --spent-since ACCOUNT=EPSILON, with one of: {', '.join(names)}",
        )
    epsilon, _, delta = figures.partition(",")
    given = above_zero(epsilon, "--spent-since")
    chance = share(delta or "0", "--spent-since")
    return name or names[0], PrivacyLoss.approximate(given, chance) if chance else PrivacyLoss.pure(given)


@ledger.command("export")
def export(where: Where = "", name: Named = "", who: As = "") -> None:
    """Write all lines as JSON, one a row."""
    with _looked_at(where) as opened:
        for entry in _lines(opened, name, who):
            put(for_programs(_plain(entry), sort_keys=True) + "\n")


def report(
    where: Where = "",
    name: Named = "",
    asked: Annotated[
        Form | None,
        typer.Option("--format", help="text, json, yaml or html; as --output ends, or else text."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="A file instead of the terminal.")] = None,
    about: Annotated[
        Path | None,
        typer.Option(
            help=f"A {CONFIG_NAME} whose [about] says what only the owner knows; the one here, unless told."
        ),
    ] = None,
) -> None:
    """Write the privacy label of an account: who is protected, how, and what all releases cost together.

    `hubbub report --ledger visits.ledger --format html --output label.html`
    """
    form = _form(asked, output)
    declared = find_config(about or CONFIG_NAME) if about is not None or Path(CONFIG_NAME).is_file() else None
    with _looked_at(where) as opened:
        facts = label(_one(opened, name), None if declared is None else declared.about)
    written = {
        Form.TEXT: label_text,
        Form.JSON: lambda all_of_it: for_programs(all_of_it, indent=2) + "\n",
        Form.YAML: label_yaml,
        Form.HTML: label_html,
    }[form](facts)
    _write(written, output, ("", *_ENDINGS))


def _form(asked: Form | None, output: Path | None) -> Form:
    """The form that was asked for, or else the one that the file's ending names."""
    if output is None:
        return asked or Form.TEXT
    check_output_path(output, ("", *_ENDINGS))
    named = _ENDINGS.get(output.suffix.lower())
    if asked is not None and named not in {None, asked}:
        raise InvalidInput(
            f"the output ends in {output.suffix}, and --format is {asked.value}",
            why="a program that opens it would not understand it",
            fix="leave --format out, or give the file another ending",
        )
    return asked or named or Form.TEXT


def _write(text: str, output: Path | None, endings: tuple[str, ...]) -> None:
    if output is None:
        put(text)
    else:
        write_output(output, text, endings)


def _show_account(account: LedgerAccount) -> None:
    total, left = account.privacy_filter, account.remaining()
    say(bold(account.name), f": {_promise(total)} for ", words(account.unit))
    say(f"  spent ε = {_figure(total.reading().epsilon)}, left ε = {format_down(left.epsilon)}")
    if account.unit.window is not None:
        say(f"  lifetime: {account.lifetime_loss().describe()}")
    history = History.of(account)
    for line in bars(history.burn_down()):
        say(f"  {line}")
    for who, theirs in account.analysts().items():
        say("  ", words(who), f": ε = {_figure(theirs.reading().epsilon)} of {format_up(theirs.epsilon)}")
    for dataset, each in history.by_dataset().items():
        say("  ", words(dataset), f", by itself: ε = {_figure(each)}")
    count = history.more_like_the_last(account)
    if count is not None:
        say(f"  about {count} more {'query' if count == 1 else 'queries'} like the last")
    if account.is_closed:
        say("  closed")


def _where(where: str) -> str:
    declared = find_config(CONFIG_NAME) if not where and Path(CONFIG_NAME).is_file() else None
    where = where or (declared.ledger if declared is not None else None) or ""
    if not where:
        raise InvalidInput(
            "no ledger is named",
            why="there may be many",
            fix=f"pass --ledger visits.ledger, set HUBBUB_LEDGER, or name it in a {CONFIG_NAME} here",
        )
    return where


def _looked_at(where: str) -> Ledger:
    """To look at: also a backup, or a copy."""
    return Ledger.open_read_only(_where(where))


def _opened(where: str, *, is_new: bool = False) -> Ledger:
    where = _where(where)
    if not is_new:
        Ledger.open_read_only(where).close()  # looking does not make one
    return Ledger.open(where)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            "the signed head cannot be read", why="it is a file of JSON", fix="give its path"
        ) from None


def _accounts(opened: Ledger, name: str) -> list[LedgerAccount]:
    return [opened.account(each) for each in ([name] if name else opened.accounts())]


def _one(opened: Ledger, name: str) -> LedgerAccount:
    found = _accounts(opened, name)
    if len(found) != 1:
        raise InvalidInput(
            "no account is named" if found else "the ledger has no account",
            why="there are others too" if found else "nothing was opened with it yet",
            fix=f"pass --account, one of: {', '.join(each.name for each in found)}"
            if found
            else "open a dataset",
        )
    return found[0]


def _lines(opened: Ledger, name: str, who: str) -> list[Entry]:
    accounts = _accounts(opened, name)
    shown = [entry for each in accounts for entry in (each.for_analyst(who) if who else each).entries()]
    return sorted(shown, key=lambda entry: entry.number)


def _plain(entry: Entry) -> dict[str, Any]:
    return {
        "line": entry.number,
        "account": entry.account,
        "kind": entry.kind,
        "who": entry.analyst or "owner",
        "timestamp": entry.timestamp,
        "body": entry.body,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def _what(entry: Entry) -> str:
    body = entry.body
    told = body.get("description") or body.get("analyst") or body.get("version")
    if entry.kind == "restore":
        told = "nothing was spent since" if body.get("loss") is None else "with what was spent since"
    if told is None and "charge" in body:
        told = f"of line {body['charge']}"
    return " ".join(str(told or "").split())[:80]


def _figure(epsilon: Fraction | None) -> str:
    return "∞" if epsilon is None else format_up(epsilon)


def _promise(total: PrivacyFilter) -> str:
    return f"ε = {format_up(total.epsilon)}" + (f", δ = {format_up(total.delta)}" if total.delta else "")
