"""Public functions describe their parameters.

The rule: whatever a package exports and people call with three parameters or more has an `Args:` section, or
one line `Args: as in …` that names the function with the same parameters. `self`, `*args` and `**kwargs` do
not count; neither do the fields of dataclasses, which have texts of their own.
"""

import inspect
from importlib import import_module

import pytest

PACKAGES = (
    "hubbub",
    "hubbub.accounting",
    "hubbub.audit",
    "hubbub.estimators",
    "hubbub.ledger",
    "hubbub.mechanisms",
    "hubbub.noise",
    "hubbub.report",
    "hubbub.synthesis",
    "hubbub.textbook",
    "hubbub.training",
)
MANY = 3
MADE_ELSEWHERE = {
    "Dataset": "hubbub.open",
    "HubbubError": "raised by the library",
    "LedgerAccount": "Ledger.account",
    "Trainer": "make_private",
}
"""Classes with constructors that nobody calls, and who does."""


def parameters_of(function):
    """The names of the parameters that a caller passes one by one."""
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind not in varying and each.name not in {"self", "cls"}]


def callables_of(thing):
    """By name: the functions that an exported thing offers, each with the text that describes it."""
    if inspect.isfunction(thing):
        yield thing.__name__, thing, thing.__doc__
    if not inspect.isclass(thing):
        return
    own = vars(thing)
    if "__init__" in own and "__dataclass_fields__" not in own and thing.__name__ not in MADE_ELSEWHERE:
        yield thing.__name__, own["__init__"], thing.__doc__
    for name, value in own.items():
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if not name.startswith("_") and inspect.isfunction(function):
            yield f"{thing.__name__}.{name}", function, function.__doc__


def undescribed(package):
    """The exported functions of a package with many parameters and no `Args:`."""
    module = import_module(package)
    things = [getattr(module, name) for name in getattr(module, "__all__", ())]
    return {
        name
        for thing in things
        if getattr(thing, "__module__", "").startswith("hubbub")
        for name, function, text in callables_of(thing)
        if len(parameters_of(function)) >= MANY and "Args:" not in (text or "")
    }


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_parameters_of_exported_functions_are_described(package):
    assert undescribed(package) == set(), "add Args:, or a line `Args: as in` the function that has them"


def test_the_check_sees_functions_methods_and_constructors():
    class Example:
        def __init__(self, one, two, three):
            """Nothing is said."""

        @classmethod
        def of(cls, one, *, two, three=0):
            """Nothing is said."""

    def function(one, two, *many, three):
        """Args: as in `other`."""

    names = {name: text for name, each, text in callables_of(Example) if len(parameters_of(each)) >= MANY}
    assert set(names) == {"Example", "Example.of"}
    assert [name for name, *_ in callables_of(function)] == ["function"]
    assert len(parameters_of(function)) == MANY
