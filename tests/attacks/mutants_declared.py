"""What the owner declared holds, and what people see of it: as it was before.

Kept so that each attack is seen to find what it looks for. Each is a context in which one step is as it was.
"""

import glob
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from hubbub.cli import results
from hubbub.config import Config, read_config
from hubbub.engines.data_identity import DataIdentity
from hubbub.engines.duckdb import DuckDB
from hubbub.errors import Refused
from hubbub.ledger.entries import digest
from hubbub.output_files import CONFIG_NAME, check_output_path


@contextmanager
def _patched(**steps):
    """With `module__name` of the package as given."""
    with ExitStack() as patches:
        for step, replacement in steps.items():
            patches.enter_context(mock.patch(f"hubbub.{step.replace('__', '.')}", replacement))
        yield


@contextmanager
def places_by_their_paths():
    """A43: rows are known by the path or pattern as it is typed, and what has none is not asked about."""

    def identity(self, table):
        location = self._fingerprints[table]
        return DataIdentity() if location is None else DataIdentity(frozenset({tuple(location)}))

    def unclaimed(entries, family, unit, rows, **_):
        requests = {
            digest([list(name), unit.key]): dataset
            for dataset, identity in rows.items()
            for name in identity.names
        }
        known = {
            place: line.account for line in entries.entries_of_kind("claim") for place in line.body["names"]
        }
        for place in known.keys() & requests.keys():
            if known[place] != family:
                raise Refused("the rows are paid for", why="by another account", fix="use that")
        return [
            {"dataset": dataset, "names": [place], "numbers": []}
            for place, dataset in requests.items()
            if place not in known
        ]

    with (
        mock.patch.object(DuckDB, "identity", identity),
        _patched(ledger__account__plan_claims=unclaimed, ledger__ledger__plan_claims=unclaimed),
    ):
        yield


def _beside_as_given(data) -> Config | None:
    if not isinstance(data, (str, Path)):
        return None
    path = Path(data)
    if path.suffix == ".toml":
        return read_config(path)
    if glob.has_magic(str(path.parent)) or not (path.parent / CONFIG_NAME).is_file():
        return None
    config = read_config(path.parent / CONFIG_NAME)
    same = [table.name for table in config.tables if Path(table.path).resolve() == path.resolve()]
    return replace(config, opened_table=same[0]) if same else None


@contextmanager
def declared_beside_the_path_as_given():
    """A44: hubbub.toml is looked for beside the link, not beside the file that it leads to."""
    with _patched(sources__find_config=_beside_as_given, config_lookup__find_config=_beside_as_given):
        yield


@contextmanager
def what_is_passed_wins():
    """A61: rows are recognised by their path alone, and an option or a variable wins over a declaration."""
    with (
        declared_beside_the_path_as_given(),
        places_by_their_paths(),
        _patched(sources___check_declaration=lambda *_, **__: None),
    ):
        yield


@contextmanager
def public_and_protected():
    """A62: nobody looks whether a public table is the protected one."""
    nothing = mock.Mock(return_value=None)
    with _patched(
        sources___refuse_public_and_protected=nothing,
        sources___refuse_declared_as_public=nothing,
        config___Reader___refuse_public_and_protected=nothing,
        config_lookup___refuse_contradiction=nothing,
        ledger__ledger__refuse_public=nothing,
    ):
        yield


@contextmanager
def printed_raw():
    """A63: texts are kept from being markup, but not from steering the terminal."""
    with _patched(
        errors__escape=str,
        cli__terminal__escape=str,
        cli__terminal__escape_lines=str,
        cli__terminal__escape_json=str,
        cli__results__escape_json=str,
        report__text_tables__escape=str,
        cli__init__escape=str,
        report__label_pages__escape=str,
        report__label_pages__escape_json=str,
        sql__explain__escape=str,
        sql__result__escape=str,
    ):
        yield


@contextmanager
def written_in_place():
    """A64: the output is opened and written, whatever it is, after the charge."""
    with _patched(
        cli__results__check_output_path=lambda path, _=(): Path(path),
        cli__query__check_output_path=lambda path, _=(): Path(path),
        cli__report__check_output_path=lambda path, _=(): Path(path),
        cli__results__write_output=lambda path, text: Path(path).write_text(text, encoding="utf-8"),
        cli__ledger__write_output=lambda path, text, _=(): Path(path).write_text(text, encoding="utf-8"),
        sql__result__write_output=lambda path, text, _=(): Path(path).write_text(text, encoding="utf-8"),
    ):
        yield


@contextmanager
def any_ending():
    """A54: an ending that is not known means a table in text."""
    with mock.patch.object(results, "check_output_path", lambda path, _=(): check_output_path(path)):
        yield
