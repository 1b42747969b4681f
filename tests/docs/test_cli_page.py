"""docs/cli.md is made from the commands, and says all of them."""

from pathlib import Path

import pytest
import typer

from cli.terminal import run
from hubbub.cli.app import app
from hubbub.cli.reference import reference

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = typer.main.get_command(app).commands


def test_the_page_is_the_one_that_is_made():
    assert reference() == PAGE, "python -m hubbub.cli.reference > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_on_it_and_says_what_it_is(name):
    command = COMMANDS[name]
    part = PAGE.split(f"## hubbub {name}\n")[1].split("\n## ")[0]
    for parameter in command.params:
        assert parameter.help, parameter.name
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            assert f"`{option}" in part


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(name):
    assert f"hubbub {name}" in run(name, "--help").stdout.split("Usage:")[1].split("\n", 1)[1]


def test_the_shell_can_complete_names():
    for option in ("--install-completion", "--show-completion"):
        assert option in run("--help").stdout
