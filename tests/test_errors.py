import ast
import copy
import pickle
import re
from pathlib import Path

import pytest

import hubbub.errors
from hubbub.errors import BudgetExceeded, Halted, HubbubError, InvalidInput, Refused, Unsupported


def _pickled(error):  # as a process pool sends it back
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes


SOURCE = Path(hubbub.errors.__file__).parent
LEAVES = [InvalidInput, Unsupported, Refused, BudgetExceeded, Halted]


@pytest.mark.parametrize("kind", LEAVES)
def test_one_except_clause_catches_every_error(kind):
    with pytest.raises(HubbubError):
        raise kind("it is so", why="that is bad", fix="do better")


def test_only_invalid_input_is_a_value_error():
    assert [kind for kind in LEAVES if issubclass(kind, ValueError)] == [InvalidInput]


@pytest.mark.parametrize("kind", [HubbubError, *LEAVES])
def test_an_error_carries_what_why_and_fix_as_fields_and_as_text(kind):
    error = kind("epsilon is 0", why="it would take infinite noise", fix="pass a positive epsilon")

    assert (error.what, error.why, error.fix) == (
        "epsilon is 0",
        "it would take infinite noise",
        "pass a positive epsilon",
    )
    assert str(error) == "epsilon is 0: it would take infinite noise. Fix: pass a positive epsilon."


@pytest.mark.parametrize("kind", [HubbubError, *LEAVES])
@pytest.mark.parametrize("again", [_pickled, copy.copy, copy.deepcopy])
def test_an_error_survives_pickling_and_copying(kind, again):
    error = again(kind("what", why="why", fix="fix"))

    assert type(error) is kind
    assert (error.what, error.why, error.fix) == ("what", "why", "fix")


@pytest.mark.parametrize("missing", [{"why": "why"}, {"fix": "fix"}, {}])
def test_every_error_needs_why_and_fix(missing):
    with pytest.raises(TypeError):
        HubbubError("what", **missing)


def test_the_tree_in_the_docstring_names_every_error_and_no_other():
    draws = {line.split("── ")[1].split()[0] for line in hubbub.errors.__doc__.splitlines() if "── " in line}

    assert draws | {"HubbubError"} == set(hubbub.errors.__all__)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("{epsilon} is 0", "epsilon is 0"),
        ("pass {delta=1e-6}", "pass delta=1e-6"),
        ("pass {bounds=cost=0:100}", 'pass bounds={"cost": (0, 100)}'),
        ("pass {bounds=cost=auto}", 'pass bounds={"cost": "auto"}'),
        ("pass {keys=region=N,S}", 'pass keys={"region": ["N", "S"]}'),
        ("pass {types=day=date}", 'pass types={"day": "date"}'),
        ("the column {x} is unknown", "the column {x} is unknown"),
    ],
)
def test_python_spells_parameters_as_keyword_arguments(text, python):
    error = HubbubError(text, why=text, fix=text)

    assert error.what == error.why == error.fix == python


def test_another_front_end_spells_parameters_its_own_way():
    error = HubbubError("{epsilon} is 0", why="{x}", fix="pass {delta=1} or {override=True}")

    assert error.parameter == "epsilon"
    assert error.render(lambda name, value: f"<{name} {value}>") == (
        "<epsilon None> is 0",
        "{x}",
        "pass <delta 1> or <override True>",
    )


@pytest.mark.parametrize("again", [_pickled, copy.deepcopy])
def test_copies_and_rewordings_keep_placeholders(again):
    error = again(
        Refused("what", why="why", fix="pass {delta=1}").reword(lambda what: f"in {{table}}, {what}")
    )

    assert type(error) is Refused
    assert error.what == "in table, what"
    assert error.templates == ("in {table}, what", "why", "pass {delta=1}")


@pytest.mark.slow
def test_every_placeholder_in_the_tree_is_spelled():
    known = {*hubbub.errors.PARAMETERS}
    unknown = []
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    for path, text in texts.items():
        if "fix=" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            by_name = {each.arg: each.value for each in getattr(node, "keywords", ())}
            if not {"why", "fix"} <= set(by_name):
                continue
            own = {
                each.value
                for each in ast.walk(by_name.get("parameter", node.func))
                if isinstance(each, ast.Constant)
            }
            texts = [
                each.value
                for part in [*node.args, by_name["why"], by_name["fix"]]
                for each in ast.walk(part)
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            results = {name for text in texts for name in re.findall(r"\{([a-z][a-z0-9_]*)", text)}
            unknown += [(str(path.relative_to(SOURCE)), node.lineno, name) for name in results - known - own]
    assert not unknown
