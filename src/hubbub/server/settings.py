"""The `[server]` section of hubbub.toml: where the server listens, and what it allows.

    [server]
    name = "visits"             # of the dataset in addresses; by default its account's
    host = "127.0.0.1"          # other addresses need a certificate
    port = 8443                 # of the page and the REST interface
    wire_port = 5433            # of the PostgreSQL wire; 0 for none
    certificate = "server.pem"  # with its key; self-made for loopback if omitted
    key = "server.key"
    state = "server.db"         # users, tokens, sessions, the audit log
    public = false              # true shows published releases to everybody
    deadlines = [1, 10, 60, 600]  # seconds after which answers leave; [] for as soon as they are there
    slots = 2                   # queries that run at once, each on an engine of its own
    epsilon = 0.1               # of a question that states none
    window = "2026-11"          # the period that is served, where hubbub.toml declares a window
    second_approver = true      # another owner must approve a larger budget of an analyst
    requests_per_minute = 600   # of one user
    allowed_hosts = ["dp.example"]  # names by which the server may be addressed, besides its own

    [server.oidc]               # sign in through an identity provider: hubbub[oidc]
    issuer = "https://login.example"
    client_id = "hubbub"
    client_secret_file = "oidc.secret"

Settings of the process come from the first file that is served; of others, name, public and window are read.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from hubbub.config import Config
from hubbub.errors import HubbubError, InvalidInput
from hubbub.numbers import parse_positive

__all__ = ["OidcSettings", "ServerSettings", "is_loopback", "read_settings"]


@dataclass(frozen=True)
class OidcSettings:
    """An identity provider."""

    issuer: str
    client_id: str
    client_secret_file: str


@dataclass(frozen=True)
class ServerSettings:
    """The settings of `[server]`, with their defaults."""

    name: str | None = None
    host: str = "127.0.0.1"
    port: int = 8443
    wire_port: int = 5433
    certificate: str | None = None
    key: str | None = None
    state: str = "server.db"
    public: bool = False
    deadlines: tuple[float, ...] = (1.0, 10.0, 60.0, 600.0)
    slots: int = 2
    queue: int = 256
    """Questions that may wait for a slot; others are turned away before anything is charged."""
    epsilon: Decimal | None = None
    window: str | None = None
    second_approver: bool = True
    requests_per_minute: int = 600
    allowed_hosts: tuple[str, ...] = ()
    max_body: int = 1 << 20
    """Bytes of a request."""
    scrypt_cost: int = 15
    oidc: OidcSettings | None = None


def is_loopback(host: str) -> bool:
    """Return whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(config: Config) -> ServerSettings:
    """Read and check the `[server]` section; unknown entries are refused."""
    reader = _Reader(config.file)
    stated = dict(config.server)
    known = {each.name for each in fields(ServerSettings)}
    reader.refuse_unknown(stated, known, "server.")
    values: dict[str, Any] = {}
    folder = Path(config.file).parent
    for name in ("name", "host", "window"):
        reader.take(stated, name, str, values)
    for name in ("certificate", "key", "state"):
        reader.take(stated, name, str, values, lambda text: str(folder / text))
    values.setdefault("state", str(folder / ServerSettings.state))
    for name in ("public", "second_approver"):
        reader.take(stated, name, bool, values)
    for name, low, high in (
        ("port", 0, 65535),
        ("wire_port", 0, 65535),
        ("slots", 1, 64),
        ("queue", 1, 10_000),
        ("requests_per_minute", 1, 10_000_000),
        ("max_body", 1024, 1 << 30),
        ("scrypt_cost", 10, 20),
    ):
        reader.take(stated, name, int, values, _between(reader, name, low, high))
    if "epsilon" in stated:
        values["epsilon"] = reader.check("epsilon", lambda: _parse_epsilon(stated["epsilon"]))
    if "deadlines" in stated:
        values["deadlines"] = reader.check("deadlines", lambda: _parse_deadlines(stated["deadlines"]))
    if "allowed_hosts" in stated:
        values["allowed_hosts"] = reader.check("allowed_hosts", lambda: _parse_names(stated["allowed_hosts"]))
    if "oidc" in stated:
        values["oidc"] = reader.check("oidc", lambda: _parse_oidc(stated["oidc"], folder))
    settings = ServerSettings(**values)
    if (settings.certificate is None) != (settings.key is None):
        raise reader.wrong("certificate", "is given without its key, or the key alone", "TLS needs both",
                           "name both files")  # fmt: skip
    return settings


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file

    def wrong(self, name: str, what: str, why: str, fix: str) -> InvalidInput:
        return InvalidInput(f"{self._file}: server.{name} {what}", why=why, fix=fix)

    def refuse_unknown(self, stated: Mapping[str, Any], known: set[str], before: str) -> None:
        for name in stated:
            if name not in known:
                raise InvalidInput(
                    f"{self._file}: {before}{name} is not known",
                    why="ignoring it would change what is served",
                    fix=f"use one of: {', '.join(sorted(known))}",
                )  # fmt: skip

    def take(
        self,
        stated: Mapping[str, Any],
        name: str,
        kind: type,
        values: dict[str, Any],
        convert: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        if name not in stated:
            return
        value = stated[name]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or value == "":
            words = {str: "a text", bool: "true or false", int: "a whole number"}
            raise self.wrong(
                name, f"is not {words[kind]}", "it could not be understood", f"write {words[kind]}"
            )
        values[name] = convert(value)

    def check(self, name: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except HubbubError as problem:
            raise InvalidInput(
                f"{self._file}: in server.{name}, {problem.what}", why=problem.why, fix=problem.fix
            ) from None


def _between(reader: _Reader, name: str, low: int, high: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if not low <= value <= high:
            raise reader.wrong(
                name, f"is not between {low} and {high}", "it is a limit", "choose one between them"
            )
        return value

    return check


def _parse_epsilon(value: Any) -> Decimal:
    parse_positive(value, "epsilon")
    return Decimal(value)


def _parse_deadlines(value: Any) -> tuple[float, ...]:
    is_list = isinstance(value, list)
    numbers = value if is_list else []
    if not is_list or not all(isinstance(each, (int, Decimal)) and 0.01 <= each <= 86400 for each in numbers):
        raise InvalidInput(
            "the deadlines are not a list of seconds", why="each answer leaves at one of them",
            fix="write [1, 10, 60, 600], each between 0.01 and 86400",
        )  # fmt: skip
    seconds = tuple(float(each) for each in numbers)
    if list(seconds) != sorted(set(seconds)):
        raise InvalidInput(
            "the deadlines are not in order",
            why="a longer query gets a later one",
            fix="list them in increasing order",
        )
    return seconds


def _parse_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise InvalidInput("it is not a list of names", why="each is a host", fix='write ["dp.example"]')
    return tuple(value)


def _parse_oidc(value: Any, folder: Path) -> OidcSettings:
    names = [each.name for each in fields(OidcSettings)]
    if not isinstance(value, dict) or sorted(value) != sorted(names):
        raise InvalidInput(
            "an entry is missing, or not known", why="all of them are needed", fix=f"write {', '.join(names)}"
        )
    if not all(isinstance(each, str) and each for each in value.values()):
        raise InvalidInput(
            "an entry is not a text", why="it could not be understood", fix="write it in quotes"
        )
    return OidcSettings(value["issuer"], value["client_id"], str(folder / value["client_secret_file"]))
