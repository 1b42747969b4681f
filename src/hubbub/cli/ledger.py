"""`hubbub budget` and `hubbub ledger`: what was spent and by whom, and whether the entries are unchanged."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss
from hubbub.cli.options import (
    LargeEpsilon,
    Population,
    parse_above_zero,
    parse_count,
    parse_delta,
    parse_share,
)
from hubbub.cli.terminal import (
    FormatOption,
    OutputFormat,
    bold,
    escaped,
    make_console,
    print_line,
    show_json,
    show_outcome,
    to_json,
    write_stdout,
)
from hubbub.config_values import drop_password
from hubbub.errors import InvalidInput
from hubbub.ledger import Entry, Ledger, LedgerAccount, check_signature, new_secret, new_signing_key
from hubbub.ledger.entries import EntryKind
from hubbub.numbers import format_down, format_up
from hubbub.output_files import CONFIG_NAME, write_output
from hubbub.report.history import History, bars
from hubbub.unit import Unit

__all__ = ["AccountName", "LedgerAddress", "budget", "ledger", "open_to_read", "single_account"]

LedgerAddress = Annotated[
    str, typer.Option("--ledger", help="The ledger: a file or postgresql://…", envvar="HUBBUB_LEDGER")
]
AccountName = Annotated[str, typer.Option("--account", help="Account; not needed if there is only one.")]
Purpose = Annotated[
    str,
    typer.Option(
        help="What the budget is for: training, 'many queries' or 'few queries'. It changes how charges are "
        "added up, never what is guaranteed."
    ),
]
Analyst = Annotated[str, typer.Option("--analyst", help="Show only what this analyst may see.")]


budget = typer.Typer(
    help="Show what was spent; open accounts and grant budgets.", invoke_without_command=True
)
ledger = typer.Typer(
    help="List, verify, sign, back up and restore a ledger: `hubbub ledger verify --ledger visits.ledger`.",
    no_args_is_help=True,
)


@budget.callback()
def show_budget(
    context: typer.Context,
    where: LedgerAddress = "",
    name: AccountName = "",
    who: Analyst = "",
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Show what was spent and what is left: `hubbub budget --ledger visits.ledger`."""
    if context.invoked_subcommand is not None:
        return
    with open_to_read(where) as opened_ledger:
        accounts = [each.for_analyst(who) if who else each for each in _accounts(opened_ledger, name)]
        if form is OutputFormat.JSON:
            show_json([_describe_account(account) for account in accounts])
            return
        for account in accounts:
            _show_account(account)


@budget.command("open")
def open_account(
    name: Annotated[str, typer.Argument(help="Name of the account, usually the table's.")],
    unit: Annotated[str, typer.Option(metavar="COLUMN|row", help="The privacy unit.")],
    epsilon: Annotated[str, typer.Option(help="Total ε of all releases.")],
    delta: Annotated[str, typer.Option(help="Total δ of all releases.")] = "0",
    population: Population = None,
    purpose: Purpose = "",
    where: LedgerAddress = "",
    allow_large_epsilon: LargeEpsilon = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Open an account: `hubbub budget open visits --unit patient --epsilon 1 --ledger visits.ledger`."""
    budget_to_open = _parse_budget(epsilon, delta, population, purpose, large=allow_large_epsilon)
    with _open_to_write(where, is_new=True) as opened_ledger:
        account = opened_ledger.account(
            name, Unit.row() if unit.lower() == "row" else Unit(unit), budget_to_open
        )
        text = f": {_format_budget(account.privacy_filter)} for "
        show_outcome(form, _describe_account(account), escaped(name), text, escaped(account.unit))


@budget.command("grant")
def grant(
    analyst: Annotated[str, typer.Argument(help="Name of the analyst.")],
    epsilon: Annotated[str, typer.Option(help="The ε that the analyst may spend of the account.")],
    delta: Annotated[str, typer.Option(help="The δ that the analyst may spend.")] = "0",
    population: Population = None,
    purpose: Purpose = "",
    where: LedgerAddress = "",
    name: AccountName = "",
    allow_large_epsilon: LargeEpsilon = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Grant an analyst a budget: `hubbub budget grant ada --epsilon 0.5`."""
    grant_budget = _parse_budget(epsilon, delta, population, purpose, large=allow_large_epsilon)
    with _open_to_write(where) as opened_ledger:
        account = single_account(opened_ledger, name)
        account.grant(analyst, grant_budget)
        text = f" may spend {_format_budget(account.analysts()[analyst])} of "
        show_outcome(form, _describe_account(account), escaped(analyst), text, escaped(account.name))


def _parse_budget(epsilon: str, delta: str, population: str | None, purpose: str, *, large: bool) -> Budget:
    people = None if population is None else parse_count(population, "population")
    return Budget(
        parse_above_zero(epsilon, "epsilon"),
        parse_delta(delta),
        population=people,
        purpose=purpose,
        allow_large_epsilon=large,
    )


@ledger.command("list")
def list_entries(
    where: LedgerAddress = "",
    name: AccountName = "",
    who: Analyst = "",
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """List the entries, one per row."""
    table = Table("entry", "when", "account", "who", "kind", "what", box=None)
    with open_to_read(where) as opened_ledger:
        if form is OutputFormat.JSON:
            show_json([_to_dict(entry) for entry in _entries(opened_ledger, name, who)])
            return
        for entry in _entries(opened_ledger, name, who):
            cells = (
                str(entry.number),
                entry.timestamp[:19],
                entry.account,
                entry.analyst or "owner",
                entry.kind,
            )
            table.add_row(*map(escaped, (*cells, _summary(entry))))
    make_console().print(table, soft_wrap=True)


@ledger.command("show")
def show_entry(
    number: Annotated[int, typer.Argument(help="Number of the entry.")],
    where: LedgerAddress = "",
    form: FormatOption = OutputFormat.JSON,
) -> None:
    """Show one entry in full."""
    with open_to_read(where) as opened_ledger:
        entries = list(opened_ledger.entries())
    entry_to_show = next((entry for entry in entries if entry.number == number), None)
    if entry_to_show is None:
        raise InvalidInput(
            f"there is no entry {number}",
            why=f"entries are numbered from 1 to {len(entries)}" if entries else "the ledger is empty",
            fix="see hubbub ledger list",
        )
    if form is OutputFormat.TEXT:
        for field, value in _to_dict(entry_to_show).items():
            print_line(f"{field}: ", escaped(to_json(value) if isinstance(value, dict) else value))
        return
    write_stdout(to_json(_to_dict(entry_to_show), indent=2) + "\n")


@ledger.command("verify")
def verify(
    where: LedgerAddress = "",
    head: Annotated[str, typer.Option(help="Head digest that you kept: detects a truncated ledger.")] = "",
    is_signed: Annotated[
        Path | None,
        typer.Option("--signed", help="Signed head digest (hubbub ledger sign); requires --public."),
    ] = None,
    public: Annotated[Path | None, typer.Option(help="Public key of the signer.")] = None,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Verify every entry, total and release; exits with 1 if something is wrong."""
    if (is_signed is None) != (public is None) or (head and is_signed):
        raise InvalidInput(
            "--signed is given without --public, or both with --head",
            why="a signature is checked with the signer's public key",
            fix="give --signed and --public, or --head",
        )
    if is_signed is not None and public is not None:
        head = check_signature(_read_text(is_signed), public).digest
    with open_to_read(where) as opened_ledger:
        report = opened_ledger.verify(head or None)
    if form is OutputFormat.JSON:
        show_json(
            {
                "ok": report.ok,
                "entries": report.entries,
                "head_digest": report.head_digest,
                "problems": list(report.problems),
            }
        )
        raise typer.Exit(0 if report.ok else 1)
    if not report.ok:
        for problem in report.problems:
            print_line(escaped("NOT OK", "red"), ": ", escaped(problem))
        raise typer.Exit(1)
    print_line(f"OK: {report.entries} {'entry' if report.entries == 1 else 'entries'} verified")
    print_line(f"head digest, to keep elsewhere and pass as --head next time: {report.head_digest}")


@ledger.command("admit")
def admit(
    name: Annotated[str, typer.Argument(help="Role of the database.")],
    role: Annotated[
        str,
        typer.Option(metavar="reader|spender", help="Read all entries; or charge, as the data's process."),
    ],
    where: LedgerAddress = "",
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Let a database role read a ledger in PostgreSQL: `hubbub ledger admit rita --role reader`."""
    with _open_to_write(where) as opened_ledger:
        opened_ledger.admit(name, role)
    show_outcome(form, {"name": name, "role": role}, escaped(name), f" is a {role} of the ledger")


@ledger.command("key")
def make_key(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist yet.")],
    secret: Annotated[
        bool,
        typer.Option("--secret", help="Make a secret that authenticates releases, not a signing key."),
    ] = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Make a signing key and its public key FILE.pub; or a secret that authenticates stored releases."""
    if secret:
        new_secret(file)
        advice = f"; name it as secret in {CONFIG_NAME}, and never lose it"
        show_outcome(form, {"secret": str(file)}, "written: ", escaped(file), advice)
        return
    new_signing_key(file)
    facts = {"private": str(file), "public": f"{file}.pub"}
    words = ("written: ", escaped(file), " (keep it private) and ", escaped(file), ".pub (public)")
    show_outcome(form, facts, *words)


@ledger.command("sign")
def sign(
    key: Annotated[Path, typer.Option(help="Private key, made by hubbub ledger key FILE.")],
    where: LedgerAddress = "",
    output: Annotated[Path | None, typer.Option(help="Write to a file instead of the terminal.")] = None,
) -> None:
    """Sign the head digest: with it and the public key, anybody can detect later changes."""
    with _open_to_write(where) as opened_ledger:
        _write(opened_ledger.sign(key) + "\n", output, (".json",))


@ledger.command("backup")
def back_up(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist yet.")],
    where: LedgerAddress = "",
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Back up a ledger to a file that cannot be charged: `hubbub ledger backup visits.backup`."""
    with open_to_read(where) as opened_ledger:
        opened_ledger.backup(file)
        key = opened_ledger.key_path
    facts = {"backup": str(file), "secret": None if key is None else str(key)}
    advice = "; hubbub ledger restore turns it into a ledger again"
    show_outcome(form, facts, "written: ", escaped(file), advice)
    if key is not None and form is OutputFormat.TEXT:
        print_line("keep ", escaped(key), ", too: stored releases cannot be read without it")


@ledger.command("restore")
def restore(
    backup: Annotated[
        Path | None,
        typer.Argument(help="A backup; omit it to continue with a ledger that was copied or moved."),
    ] = None,
    where: LedgerAddress = "",
    spent_since: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ACCOUNT=]EPSILON[,DELTA]",
            help="What an account spent since the backup.",
        ),
    ] = None,
    nothing_since: Annotated[
        bool, typer.Option("--nothing-since", help="Nothing was spent since the backup.")
    ] = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Continue with a backup, a copy or a moved ledger, after stating what was spent since.

    `hubbub ledger restore visits.backup --ledger visits.ledger --spent-since 0.5`
    """
    if bool(spent_since) == nothing_since:
        raise InvalidInput(
            "both --spent-since and --nothing-since are given"
            if spent_since
            else "neither --spent-since nor --nothing-since is given",
            why="a copy does not know later charges, and would spend them once more",
            fix="pass --spent-since EPSILON, or --nothing-since",
        )
    place = _resolve_address(where)
    with Ledger.open_read_only(place if backup is None else backup) as source:
        names = source.accounts()
    spent = dict(_parse_spent(each, names) for each in spent_since or [])
    verdict = Ledger.restore(place, backup, spent_since=spent)
    facts = {"ledger": drop_password(place), "entries": verdict.entries}
    text = f" is the ledger from now on: {verdict.entries} entries"
    show_outcome(form, facts, escaped(drop_password(place)), text)


def _parse_spent(text: str, names: list[str]) -> tuple[str, PrivacyLoss]:
    name, _, figures = text.rpartition("=")
    if not name and len(names) != 1:
        raise InvalidInput(
            "no account is named",
            why="there are several",
            fix=f"pass --spent-since ACCOUNT=EPSILON, with one of: {', '.join(names)}",
        )
    epsilon, _, delta = figures.partition(",")
    spent = parse_above_zero(epsilon, "spent_since")
    chance = parse_share(delta or "0", "spent_since")
    return name or names[0], PrivacyLoss.approximate(spent, chance) if chance else PrivacyLoss.pure(spent)


@ledger.command("export")
def export(where: LedgerAddress = "", name: AccountName = "", who: Analyst = "") -> None:
    """Write all entries as JSON, one per line."""
    with open_to_read(where) as opened_ledger:
        for entry in _entries(opened_ledger, name, who):
            write_stdout(to_json(_to_dict(entry), sort_keys=True) + "\n")


def _write(text: str, output: Path | None, endings: tuple[str, ...]) -> None:
    if output is None:
        write_stdout(text)
    else:
        write_output(output, text, endings)


def _describe_account(account: LedgerAccount) -> dict[str, Any]:
    total, left, spent = account.privacy_filter, account.remaining(), account.spent()
    return {
        "account": account.name,
        "unit": str(account.unit),
        "budget": {"epsilon": format_up(total.epsilon), "delta": format_up(total.delta)},
        "spent": {"epsilon": format_up(spent.epsilon), "delta": format_up(spent.delta)},
        "one more query": {"epsilon": format_down(left.epsilon), "delta": format_down(left.delta)},
        "analysts": {
            who: {"epsilon": format_up(theirs.epsilon), "spent": format_up(theirs.spent().epsilon)}
            for who, theirs in account.analysts().items()
        },
        "closed": account.is_closed,
    }


def _show_account(account: LedgerAccount) -> None:
    total, left, spent = account.privacy_filter, account.remaining(), account.spent()
    print_line(bold(account.name), f": {_format_budget(total)} for ", escaped(account.unit))
    print_line(
        f"  spent ε = {format_up(spent.epsilon)}, δ = {format_up(spent.delta)}; "
        f"one more query may cost ε = {format_down(left.epsilon)} or δ = {format_down(left.delta)}"
    )
    if account.unit.window is not None:
        print_line(f"  lifetime: {account.lifetime_loss().describe()}")
    history = History.of(account)
    for line in bars(history.burn_down()):
        print_line(f"  {line}")
    for who, theirs in account.analysts().items():
        print_line(
            "  ",
            escaped(who),
            f": ε = {format_up(theirs.spent().epsilon)} of {format_up(theirs.epsilon)}",
        )
    for dataset, each in history.by_dataset().items():
        print_line("  ", escaped(dataset), f", alone: ε = {format_up(each)}")
    count = history.more_like_the_last(account)
    if count is not None:
        print_line(f"  about {count} more {'query' if count == 1 else 'queries'} like the last")
    if account.is_closed:
        print_line("  closed")


def _resolve_address(where: str) -> str:
    if not where and Path(CONFIG_NAME).is_file():
        from hubbub.config_lookup import find_config

        declared = find_config(CONFIG_NAME)
        where = "" if declared is None else declared.ledger or ""
    if not where:
        raise InvalidInput(
            "no ledger is named",
            why="there may be several",
            fix=f"pass --ledger visits.ledger, set HUBBUB_LEDGER, or name it in a {CONFIG_NAME} here",
        )
    return where


def open_to_read(where: str) -> Ledger:
    """Open a ledger to read; it may be a backup or a copy."""
    return Ledger.open_read_only(_resolve_address(where))


def _open_to_write(where: str, *, is_new: bool = False) -> Ledger:
    where = _resolve_address(where)
    if not is_new:
        Ledger.open_read_only(where).close()  # looking does not make one
    return Ledger.open(where)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InvalidInput(
            "the signed head digest cannot be read", why="it is a JSON file", fix="pass its path"
        ) from None


def _accounts(opened_ledger: Ledger, name: str) -> list[LedgerAccount]:
    return [opened_ledger.account(each) for each in ([name] if name else opened_ledger.accounts())]


def single_account(opened_ledger: Ledger, name: str) -> LedgerAccount:
    """Return the account of this name, or the only one."""
    accounts = _accounts(opened_ledger, name)
    if len(accounts) != 1:
        raise InvalidInput(
            "no account is named" if accounts else "the ledger has no account",
            why="there are several" if accounts else "no dataset was opened with it yet",
            fix=f"pass --account, one of: {', '.join(each.name for each in accounts)}"
            if accounts
            else "open a dataset",
        )
    return accounts[0]


def _entries(opened_ledger: Ledger, name: str, who: str) -> list[Entry]:
    accounts = _accounts(opened_ledger, name)
    visible = [entry for each in accounts for entry in (each.for_analyst(who) if who else each).entries()]
    return sorted(visible, key=lambda entry: entry.number)


def _to_dict(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.number,
        "account": entry.account,
        "kind": entry.kind,
        "who": entry.analyst or "owner",
        "timestamp": entry.timestamp,
        "body": entry.body,
        "previous": entry.previous,
        "digest": entry.digest,
    }


def _summary(entry: Entry) -> str:
    body = entry.body
    summary = body.get("description") or body.get("analyst") or body.get("version")
    if entry.kind == EntryKind.RESTORE:
        summary = "nothing was spent since" if body.get("loss") is None else "with what was spent since"
    if summary is None and "charge" in body:
        summary = f"of entry {body['charge']}"
    text = " ".join(str(summary or "").split())
    return text if len(text) <= 80 else f"{text[:79]}…"


def _format_budget(total: PrivacyFilter) -> str:
    return f"ε = {format_up(total.epsilon)}" + (f", δ = {format_up(total.delta)}" if total.delta else "")
