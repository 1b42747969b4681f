"""docs/cli.md is made from the commands, and documents all of them."""

from pathlib import Path

import pytest
import typer

from cli.terminal import run
from docs.cli_page import make_page
from hubbub.cli.all_commands import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.slow
def test_page_is_current():
    assert make_page() == PAGE, "run: make docs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name):
    command = COMMANDS[name]
    part = PAGE.split(f"## `hubbub {name}`\n")[1].split("\n## ")[0]
    for parameter in command.params:
        assert parameter.help, parameter.name
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert f"`{option}" in part


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(name):
    assert f"hubbub {name}" in run(name, "--help").stdout.split("Usage:")[1].split("\n", 1)[1]


def test_shell_completion_is_offered():
    for option in ("--install-completion", "--show-completion"):
        assert option in run("--help").stdout
