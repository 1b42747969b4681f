"""`hubbub serve` and `hubbub user`: one process through which a team asks, and its people."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hubbub.cli.options import parse_above_zero, parse_delta
from hubbub.cli.terminal import FormatOption, OutputFormat, escaped, print_line, show_json, show_outcome
from hubbub.errors import InvalidInput
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import CONFIG_NAME

if TYPE_CHECKING:
    from hubbub.server.serve import Addresses
    from hubbub.server.service import Service

__all__ = ["serve", "serve_assistant", "user"]

user = typer.Typer(
    help="People who may use a server: hubbub user add ada --role analyst", no_args_is_help=True
)
_BY = "the command line"
_PASSWORD_BYTES = 12

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE", help=f"One {CONFIG_NAME} for each dataset; by default the one in this folder."
    ),
]
ConfigFile = Annotated[
    Path, typer.Option("--config", metavar="FILE", help=f"The {CONFIG_NAME} that is served first.")
]
UserName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
RoleOption = Annotated[str, typer.Option(metavar="reader|analyst|owner", help="What the user may do.")]
DatasetOption = Annotated[
    str, typer.Option("--dataset", metavar="NAME", help="Name of the dataset; by default that of the file.")
]


def serve(
    files: Files = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a made-up hospital, with people and a public page.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, instead of the declared one.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port of the page and the REST interface.")] = None,
    wire_port: Annotated[int | None, typer.Option(help="Port of the PostgreSQL wire; 0 for none.")] = None,
) -> None:
    """Serve datasets to a team: PostgreSQL clients, REST and a page, over one budget. See docs/serve.md.

    \b
    hubbub serve hubbub.toml
    hubbub serve --demo
    """  # noqa: D301 - the mark that keeps lines is a real \b
    from hubbub.cli.serve_demo import open_demo

    require_server()
    chosen = {"host": host, "port": port, "wire_port": wire_port}
    # Libraries report problems only: some log addresses, or what they were sent.
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("hubbub").setLevel(logging.INFO)
    if demo:
        if files:
            raise InvalidInput(
                "files are named besides --demo",
                why="the demo serves its own table",
                fix="leave one of the two out",
            )
        with open_demo(chosen) as (service, show):
            _run(service, show)
        return
    with _open_service(*(files or [Path(CONFIG_NAME)])) as service:
        settings = {name: value for name, value in chosen.items() if value is not None}
        service.settings = replace(service.settings, **settings)  # type: ignore[arg-type]
        if not service.auth.users():
            print_line("nobody may sign in yet: hubbub user add NAME --role owner", to_stderr=True)
        _run(service, _show_addresses)


def serve_assistant(
    name: Annotated[
        str, typer.Option("--user", metavar="NAME", help="The user whom the assistant works for.")
    ],
    files: Files = None,
) -> None:
    """Let an assistant on this machine ask, by the Model Context Protocol over stdio, as a user.

    \b
    hubbub mcp hubbub.toml --user ada
    """  # noqa: D301 - the mark that keeps lines is a real \b
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise InvalidInput(
            "the packages for assistants are not installed",
            why="they are an extra",
            fix="pip install 'hubbub[mcp]'",
        )
    from hubbub.server.assistants import make_tool_server
    from hubbub.server.service_types import Principal

    with _open_service(*(files or [Path(CONFIG_NAME)])) as service:
        if name not in service.auth.users():
            raise InvalidInput(
                "there is no such user", why="an assistant asks under somebody's budget",
                fix="hubbub user add NAME --epsilon 1", parameter="user",
            )  # fmt: skip
        principal = Principal(name)
        asyncio.run(make_tool_server(service, lambda _: principal).run_stdio_async())


def require_server() -> None:
    """Refuse to serve without the packages that it takes."""
    from importlib.util import find_spec

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise InvalidInput(
            "the packages of a server are not installed",
            why="they are an extra",
            fix="pip install 'hubbub[server]'",
        )


def _run(service: "Service", show: "object") -> None:
    from hubbub.server.serve import serve as serve_doors

    asyncio.run(serve_doors(service, on_ready=show))  # type: ignore[arg-type]


def _show_addresses(addresses: "Addresses") -> None:
    print_line(f"page and REST: {addresses.url}")
    if addresses.wire_port is not None:
        print_line(f"PostgreSQL clients: port {addresses.wire_port}, TLS required beyond this machine")
    print_line("certificate: ", escaped(addresses.certificate.certificate))


@contextmanager
def _open_service(*files: Path) -> Iterator["Service"]:
    from hubbub.server.service import Service

    service = Service.open(*files)
    try:
        yield service
    finally:
        service.close()


@contextmanager
def _open_people(config: Path) -> Iterator["Service"]:
    with _open_service(config) as service:
        yield service


def _choose_password(password: str | None) -> tuple[str, bool]:
    """The password that was typed, or a new one; and whether it is new."""
    if password is None:
        return random_bytes(_PASSWORD_BYTES).hex(), True
    return password, False


def _ask_password(is_asked: bool) -> str | None:
    return typer.prompt("Password", hide_input=True, confirmation_prompt=True) if is_asked else None


PromptOption = Annotated[bool, typer.Option("--prompt", help="Type the password instead of having one made.")]


@user.command("add")
def add_user(
    name: UserName,
    role: RoleOption = "analyst",
    epsilon: Annotated[str | None, typer.Option(help="Budget ε of an analyst, within the account's.")] = None,
    delta: Annotated[str, typer.Option(help="Budget δ of an analyst.")] = "0",
    dataset: DatasetOption = "",
    is_prompted: PromptOption = False,
    is_external: Annotated[
        bool,
        typer.Option("--oidc", help="Without a password: NAME is an address at the identity provider."),
    ] = False,
    config: ConfigFile = Path(CONFIG_NAME),
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Add a user with a role; a password is made and shown once: `hubbub user add ada --epsilon 1`."""
    from hubbub.accounting import Budget

    with _open_people(config) as service:
        chosen = _find_dataset(service, dataset)
        rank = _parse_role(role)
        budget = None
        if epsilon is not None:
            people = service.find(chosen).sources.population
            budget = Budget(parse_above_zero(epsilon, "epsilon"), parse_delta(delta), population=people)
        password, is_new = _choose_password(_ask_password(is_prompted))
        service.auth.add_user(name, None if is_external else password, by=_BY)
        service.auth.set_role(name, chosen, rank, by=_BY)
        if budget is not None:
            service.find(chosen).account.grant(name, budget)
            service.state.audit(_BY, "grant", chosen, analyst=name, epsilon=str(budget.epsilon))
        is_shown = is_new and not is_external
        facts = {
            "user": name,
            "role": rank.value,
            "dataset": chosen,
            "password": password if is_shown else None,
        }
        show_outcome(form, facts, "added: ", escaped(name), f", {rank} of {chosen}")
        if is_shown and form is OutputFormat.TEXT:
            print_line("password, shown once: ", escaped(password))


@user.command("password")
def set_password(
    name: UserName,
    is_prompted: PromptOption = False,
    config: ConfigFile = Path(CONFIG_NAME),
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Set a new password; all sessions of the user end."""
    with _open_people(config) as service:
        password, is_new = _choose_password(_ask_password(is_prompted))
        service.auth.set_password(name, password, by=_BY)
        facts = {"user": name, "password": password if is_new else None}
        words = ("password, shown once: ", escaped(password)) if is_new else ("set: ", escaped(name))
        show_outcome(form, facts, *words)


@user.command("role")
def set_role(
    name: UserName,
    role: Annotated[str, typer.Argument(metavar="reader|analyst|owner|none", help="What the user may do.")],
    dataset: DatasetOption = "",
    config: ConfigFile = Path(CONFIG_NAME),
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Give a user another role in a dataset, or none."""
    with _open_people(config) as service:
        chosen = _find_dataset(service, dataset)
        service.auth.set_role(name, chosen, None if role == "none" else _parse_role(role), by=_BY)
        facts = {"user": name, "role": None if role == "none" else role, "dataset": chosen}
        text = f": {'no role in' if role == 'none' else f'{role} of'} {chosen}"
        show_outcome(form, facts, escaped(name), text)


@user.command("lock")
def lock_user(
    name: UserName,
    is_unlocked: Annotated[bool, typer.Option("--undo", help="Let the user in again.")] = False,
    config: ConfigFile = Path(CONFIG_NAME),
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Lock a user out, with all sessions and tokens."""
    with _open_people(config) as service:
        service.auth.set_active(name, is_active=is_unlocked, by=_BY)
        text = ": may sign in again" if is_unlocked else ": locked out"
        show_outcome(form, {"user": name, "locked": not is_unlocked}, escaped(name), text)


@user.command("token")
def make_token(
    name: UserName,
    purpose: Annotated[str, typer.Option(help="What the token is for.")] = "command line",
    role: RoleOption = "analyst",
    epsilon: Annotated[str | None, typer.Option(help="The most ε that may be spent through it.")] = None,
    days: Annotated[float, typer.Option(help="Days until it expires, at most 366.")] = 30,
    config: ConfigFile = Path(CONFIG_NAME),
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Make a token for programs of a user; it is shown once."""
    from hubbub.server.service_types import Principal

    with _open_people(config) as service:
        if name not in service.auth.users():
            raise InvalidInput(
                "there is no such user",
                why="a token belongs to a user",
                fix="see hubbub user list",
                parameter="user",
            )
        _, secret = service.auth.make_token(
            Principal(name), purpose, role=_parse_role(role), epsilon=epsilon, days=days
        )
        show_outcome(form, {"user": name, "token": secret}, "token, shown once: ", escaped(secret))


@user.command("list")
def list_users(config: ConfigFile = Path(CONFIG_NAME), form: FormatOption = OutputFormat.TEXT) -> None:
    """List users who may sign in, with their roles."""
    with _open_people(config) as service:
        if form is OutputFormat.JSON:
            show_json(service.auth.users())
            return
        for name, roles in service.auth.users().items():
            words = ", ".join(f"{role} of {dataset}" for dataset, role in roles.items()) or "no role"
            print_line(escaped(name), ": ", escaped(words))


def _find_dataset(service: "Service", name: str) -> str:
    names = service.names()
    if name and name not in names:
        raise InvalidInput(
            "this dataset is not declared in the file", why="roles are for datasets that are served",
            fix=f"use one of: {', '.join(names)}", parameter="dataset",
        )  # fmt: skip
    return name or names[0]


def _parse_role(text: str) -> "Role":
    from hubbub.server.service_types import Role

    if text not in {each.value for each in Role}:
        raise InvalidInput(
            "the {role} is not known",
            why="there are three",
            fix="use reader, analyst or owner",
            parameter="role",
        )
    return Role(text)


if TYPE_CHECKING:
    from hubbub.server.service_types import Role
