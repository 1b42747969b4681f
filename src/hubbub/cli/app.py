"""The commands: each one thing that mechanisms can do, with its cost and its error said first."""

from typing import Annotated

import typer
from rich.console import Console

from hubbub.bounded import Bounded, Sensitivity
from hubbub.cli.demo import demo
from hubbub.cli.loss import loss
from hubbub.cli.typed import number
from hubbub.errors import HubbubError, InvalidInput
from hubbub.mechanisms import Gaussian, Laplace, PermuteAndFlip, RandomizedResponse, least_noise
from hubbub.unit import Unit

__all__ = ["app", "main"]

app = typer.Typer(
    help="Publish true things about the crowd; let no single person be made out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(loss)

Epsilon = Annotated[str, typer.Option(help="How much one person may be exposed: ε, as 0.5 or 1/2.")]
Delta = Annotated[str, typer.Option(help="Chance that ε does not hold; 0 for pure ε.")]
HowFar = Annotated[str, typer.Option("--sensitivity", help="How far one person can move the answer.")]
Confidence = Annotated[str, typer.Option(help="Of the interval, as 0.95.")]
Cells = Annotated[int, typer.Option(help="How many counts are released together.")]
Real = Annotated[bool, typer.Option("--real", help="The answer is not a whole number.")]


@app.command(context_settings={"ignore_unknown_options": True})  # so that −5 is an answer, not an option
def release(
    value: Annotated[str, typer.Argument(help="The exact answer; it is not stored.")],
    epsilon: Epsilon,
    delta: Delta = "0",
    sensitivity: HowFar = "1",
    confidence: Confidence = "0.95",
    real: Real = False,
) -> None:
    """Release one number with noise: `hubbub release 42 --epsilon 0.5`."""
    mechanism = least_noise(
        sensitivity=number(sensitivity, "sensitivity"),
        epsilon=number(epsilon, "epsilon"),
        delta=number(delta, "delta"),
        real=real,
        confidence=number(confidence, "confidence"),
    )
    exact = number(value, "the value")
    if not real and exact.denominator != 1:
        raise InvalidInput(
            "the value is not a whole number", why="integer noise is for integers", fix="add --real"
        )
    out = mechanism.release(exact if real else int(exact))
    width = mechanism.error(number(confidence, "confidence"))
    _say(f"[bold]{out.value}[/bold] ± {width} ({_percent(confidence)})")
    _say(f"{mechanism}; the sensitivity is your word")


@app.command()
def error(
    epsilon: Epsilon = "",
    within: Annotated[str, typer.Option(help="Ask the other way: the ε for this error.")] = "",
    delta: Delta = "0",
    sensitivity: HowFar = "1",
    confidence: Confidence = "0.95",
    cells: Cells = 1,
    real: Real = False,
) -> None:
    """Say how far answers will be off, or what ε an error takes; nothing is released.

    `hubbub error --epsilon 1 --cells 10000` or `hubbub error --within 50`.
    """
    if bool(epsilon) == bool(within):
        raise InvalidInput(
            "neither or both of --epsilon and --within are given",
            why="one of them is asked for, the other is the answer",
            fix="give exactly one",
        )
    sure = number(confidence, "confidence")
    bound = Sensitivity.of(number(sensitivity, "sensitivity"))
    chance = number(delta, "delta")
    mechanism: Laplace | Gaussian
    if epsilon:
        mechanism = least_noise(
            sensitivity=bound,
            epsilon=number(epsilon, "epsilon"),
            delta=chance,
            real=real,
            cells=cells,
            confidence=sure,
        )
    elif chance:
        mechanism = Gaussian.for_error(
            number(within, "within"),
            delta=chance,
            confidence=sure,
            sensitivity=bound,
            real=real,
            cells=cells,
        )
    else:
        mechanism = Laplace.for_error(
            number(within, "within"), confidence=sure, sensitivity=bound, real=real, cells=cells
        )
    _say(f"each answer ± {mechanism.error(sure)} ({_percent(confidence)})")
    if cells > 1:
        _say(f"all {cells} at once ± {mechanism.error(sure, cells=cells)} ({_percent(confidence)})")
    _say(f"{mechanism}; nothing spent")


@app.command()
def choose(
    scores: Annotated[
        list[str], typer.Argument(help="Candidates and their exact counts: fever=120 cough=98 …")
    ],
    epsilon: Epsilon,
    confidence: Confidence = "0.95",
) -> None:
    """Name the most common candidate; one person may be in every count. Only the name leaves."""
    names = [score.partition("=")[0] for score in scores]
    counts = [number(score.partition("=")[2], "a count") for score in scores]
    if any(count.denominator != 1 for count in counts):
        raise InvalidInput("a count is not a whole number", why="counts are whole", fix="pass NAME=COUNT")
    mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=number(epsilon, "epsilon"), monotone=True)
    bounded = Bounded.asserted([int(count) for count in counts], mechanism.sensitivity, Unit("person"))
    out = mechanism.release(bounded)
    _say(f"[bold]{names[out.value]}[/bold]")
    regret = out.error(number(confidence, "confidence"))
    _say(f"its count lies at most {regret:.4g} below the best ({_percent(confidence)})")
    _say(f"{mechanism}; that each person adds at most 1 to each count is your word")


@app.command()
def toss(
    answer: Annotated[bool, typer.Argument(help="Your true answer: true or false.")],
    epsilon: Annotated[str, typer.Option(help="ε; without it the textbook's two coins, ε = ln 3.")] = "",
) -> None:
    """Answer a yes/no question with the coin toss: `hubbub toss true`. Your truth stays with you."""
    mechanism = (
        RandomizedResponse.of(epsilon=number(epsilon, "epsilon")) if epsilon else RandomizedResponse.coin()
    )
    report = mechanism.release([int(answer)]).value[0]
    _say("[bold]yes[/bold]" if report else "[bold]no[/bold]")
    _say(f"{mechanism}")


def main() -> None:
    """Run the command line; an error of ours is one sentence, not a traceback."""
    try:
        app()
    except HubbubError as problem:
        Console(stderr=True).print(f"[red]{problem.what}[/red]: {problem.why}.\nTo mend it: {problem.fix}.")
        raise SystemExit(2) from None


def _percent(confidence: str) -> str:
    return f"{float(100 * number(confidence, 'confidence')):g} %"


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False).print(text)
