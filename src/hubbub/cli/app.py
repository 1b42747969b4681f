"""The commands: each one thing that mechanisms can do, with its cost and its error said first."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hubbub.cli.demo import demo
from hubbub.cli.init import init
from hubbub.cli.ledger import register
from hubbub.cli.loss import Population, loss
from hubbub.cli.options import Several, above_zero, chance, counted, number, round_up_text, sure
from hubbub.cli.query import Large, plan, query
from hubbub.cli.terminal import bold, say, words
from hubbub.errors import HubbubError, InvalidInput
from hubbub.escaping import escape_lines
from hubbub.mechanisms import Gaussian, Laplace, PermuteAndFlip, RandomizedResponse, choose_additive_noise
from hubbub.numbers import parse_nonnegative
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Unit

__all__ = ["app", "main"]


class _Shown(TyperGroup):
    """What is wrong with the words that were typed is told without their letters steering the terminal."""

    def make_context(self, *given: Any, **more: Any) -> Any:
        with _visibly():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        with _visibly():
            return super().invoke(ctx)


@contextmanager
def _visibly() -> Iterator[None]:
    try:
        yield
    except Exception as problem:
        message = getattr(problem, "message", None)
        if isinstance(message, str) and hasattr(problem, "exit_code"):
            problem.message = escape_lines(message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Shown,
    help="Publish true things about the crowd; let no single person be made out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(cls=Several)(query)
app.command(cls=Several)(plan)
app.command()(init)
app.command()(demo)
app.command()(loss)
register(app)

_OPTIONS = {
    "allow_large_epsilon": "--large-epsilon",
    "analyst": "--as",
    "times": "--steps",
    "types": "--type",
}
"""Options that are not named as the library's parameters are."""
_QUOTES = "'\""
_ANSWERS = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "1"), 1),
    **dict.fromkeys(("false", "no", "off", "f", "n", "0"), 0),
}

Epsilon = Annotated[str, typer.Option(help="How much one person may be exposed: ε, as 0.5 or 1/2.")]
Delta = Annotated[str, typer.Option(help="Chance that ε does not hold; 0 for pure ε.")]
HowFar = Annotated[str, typer.Option("--sensitivity", help="How far one person can move the answer.")]
Confidence = Annotated[str, typer.Option(help="Of the interval, as 0.95.")]
Coordinates = Annotated[
    str,
    typer.Option(
        metavar="M",
        help="How many counts are released together. They must be disjoint: each person is in one of them. "
        "Else --sensitivity is how far one person can move all of them together.",
    ),
]
Real = Annotated[bool, typer.Option("--real", help="The answer is not a whole number.")]


def _show_version(asked: bool) -> None:
    if asked:
        say(f"hubbub {metadata.version('hubbub')}")
        raise typer.Exit


@app.callback()
def hubbub(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Publish true things about the crowd; let no single person be made out."""


@app.command(context_settings={"ignore_unknown_options": True})  # so that −5 is an answer, not an option
def release(
    value: Annotated[str, typer.Argument(help="The exact answer; it is not stored.")],
    epsilon: Epsilon,
    delta: Delta = "0",
    population: Population = None,
    sensitivity: HowFar = "1",
    confidence: Confidence = "0.95",
    real: Real = False,
    large_epsilon: Large = False,
) -> None:
    """Release one number with noise: `hubbub release 42 --epsilon 0.5`."""
    certain, allowed, people = sure(confidence), chance(delta), _people(population)
    mechanism = choose_additive_noise(
        sensitivity=_moved(sensitivity, real=real),
        epsilon=above_zero(epsilon, "--epsilon"),
        delta=allowed,
        real=real,
        confidence=certain,
        population=people,
        allow_large_epsilon=large_epsilon,
    )
    exact = number(value, "the value")
    if not real and exact.denominator != 1:
        raise InvalidInput(
            "the value is not a whole number", why="integer noise is for integers", fix="add --real"
        )
    out = mechanism.release(exact if real else int(exact))
    say(bold(out.value), f" ± {mechanism.error(certain)} ({_percent(certain)})")
    say(f"{_with_epsilon(mechanism, allowed)}; the sensitivity is your word")


@app.command()
def error(
    epsilon: Epsilon = "",
    within: Annotated[str, typer.Option(help="Ask the other way: the ε for this error.")] = "",
    delta: Delta = "0",
    population: Population = None,
    sensitivity: HowFar = "1",
    confidence: Confidence = "0.95",
    coordinates: Coordinates = "1",
    real: Real = False,
) -> None:
    """Say how far answers will be off, or what ε an error takes; nothing is released.

    `hubbub error --epsilon 1 --coordinates 10000` or `hubbub error --within 50`.
    """
    if bool(epsilon) == bool(within):
        raise InvalidInput(
            "neither or both of --epsilon and --within are given",
            why="one of them is asked for, the other is the answer",
            fix="give exactly one",
        )
    certain, allowed, people = sure(confidence), chance(delta), _people(population)
    bound, count = _moved(sensitivity, real=real), counted(coordinates, "--coordinates")
    mechanism: Laplace | Gaussian
    if epsilon:
        mechanism = choose_additive_noise(
            sensitivity=bound,
            epsilon=above_zero(epsilon, "--epsilon"),
            delta=allowed,
            real=real,
            coordinates=count,
            confidence=certain,
            population=people,
            allow_large_epsilon=True,  # nothing is released
        )
    elif allowed:
        mechanism = Gaussian.for_error(
            above_zero(within, "--within"),
            delta=allowed,
            confidence=certain,
            sensitivity=bound,
            real=real,
            coordinates=count,
            population=people,
        )
    else:
        mechanism = Laplace.for_error(
            above_zero(within, "--within"),
            confidence=certain,
            sensitivity=bound,
            real=real,
            coordinates=count,
        )
    say(f"each answer ± {mechanism.error(certain)} ({_percent(certain)})")
    if count > 1:
        say(f"all {count} at once ± {mechanism.error(certain, coordinates=count)} ({_percent(certain)})")
    say(f"{_with_epsilon(mechanism, allowed)}; nothing spent")


@app.command()
def choose(
    scores: Annotated[
        list[str], typer.Argument(help="Candidates and their exact counts: fever=120 cough=98 …")
    ],
    epsilon: Epsilon,
    confidence: Confidence = "0.95",
    large_epsilon: Large = False,
) -> None:
    """Name the most common candidate; one person may be in every count. Only the name leaves.

    `hubbub choose fever=120 cough=98 rash=7 --epsilon 1`.
    """
    names = [_name(score) for score in scores]
    counts = [_count(score) for score in scores]
    if len(set(names)) < len(names):
        raise InvalidInput(
            "a name is given twice",
            why="it would have two counts, and two chances",
            fix="give each name once",
        )
    certain = sure(confidence)
    mechanism = PermuteAndFlip.of(
        sensitivity=1,
        epsilon=above_zero(epsilon, "--epsilon"),
        monotone=True,
        allow_large_epsilon=large_epsilon,
    )
    out = mechanism.release(Bounded.user_asserted(counts, mechanism.sensitivity, Unit("person")))
    say(bold(names[out.value]))
    say(f"its count lies at most {out.error(certain):.4g} below the best ({_percent(certain)})")
    say(f"{mechanism}; that each person adds at most 1 to each count is your word")


@app.command()
def toss(
    answer: Annotated[str, typer.Argument(help="Your true answer: true or false, yes or no.")],
    epsilon: Annotated[str, typer.Option(help="ε; without it the textbook's two coins, ε = ln 3.")] = "",
    large_epsilon: Large = False,
) -> None:
    """Answer a yes/no question with the coin toss: `hubbub toss true`. Your truth stays with you."""
    truth = _ANSWERS.get(answer.strip().lower())
    if truth is None:
        raise InvalidInput(
            "the answer is neither yes nor no",
            why="the coins stand for one of these two",
            fix="answer true or false, or yes or no",
        )
    mechanism = (
        RandomizedResponse.of(epsilon=above_zero(epsilon, "--epsilon"), allow_large_epsilon=large_epsilon)
        if epsilon
        else RandomizedResponse.coin()
    )
    report = mechanism.release([truth]).value[0]
    say(bold("yes" if report else "no"))
    say(f"{mechanism}")


def main() -> None:
    """Run the command line; an error of ours is one sentence, not a traceback."""
    try:
        app()
    except HubbubError as problem:
        what, why, fix = problem.render(_spell_in_shell)
        say(words(what, "red"), ": ", words(why), ".\nFix: ", words(fix), ".", aside=True)
        raise SystemExit(2) from None


def _people(population: str | None) -> int | None:
    return None if population is None else counted(population, "--population")


def _moved(sensitivity: str, *, real: bool) -> Sensitivity:
    typed = parse_nonnegative(number(sensitivity, "--sensitivity"), "--sensitivity")
    if not real and typed.denominator != 1:
        raise InvalidInput(
            "--sensitivity is not a whole number",
            why="integers move by whole numbers, so this looks like a real-valued answer",
            fix="add --real, or pass the sensitivity of the integer answer",
        )
    return Sensitivity.of(typed)


def _name(score: str) -> str:
    name = score.partition("=")[0].strip()
    if not name:
        raise InvalidInput(
            "a name is empty", why="it is what would be released", fix="pass NAME=COUNT, as fever=120"
        )
    return name


def _count(score: str) -> int:
    """A count of people: that nobody lowers one is why the noise of the choice may be halved."""
    typed = number(score.partition("=")[2], "a count")
    if typed.denominator != 1 or typed < 0:
        raise InvalidInput(
            "a count is below zero" if typed < 0 else "a count is not a whole number",
            why="people are counted, and the noise is only enough where each of them adds 0 or 1",
            fix="pass NAME=COUNT, as fever=120; for other scores use PermuteAndFlip in Python",
        )
    return int(typed)


def _with_epsilon(mechanism: Laplace | Gaussian, delta: Fraction) -> str:
    """The mechanism in words, and its ε at this δ where they do not say one."""
    spent = mechanism.loss()
    if spent.epsilon() < math.inf:
        return f"{mechanism}"
    return f"{mechanism}, that is ε = {round_up_text(spent.epsilon(delta), 6)} at δ = {round_up_text(delta)}"


def _spell_in_shell(name: str, value: str | None) -> str:
    """Spell a parameter of the library as an option: `{delta=1e-6}` is `--delta 1e-6`."""
    option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    if value is None or value == "True":
        return option
    return f"{option} {'row' if value == 'Unit.row()' else value.strip(_QUOTES)}"


def _percent(confidence: Fraction) -> str:
    return f"{float(100 * confidence):g} %"
