"""`hubbub release`, `error`, `choose` and `toss`: single mechanisms, for numbers that a person types."""

import math
from fractions import Fraction
from typing import Annotated, Any

import typer

from hubbub.cli.options import (
    LargeEpsilon,
    Population,
    parse_above_zero,
    parse_confidence,
    parse_count,
    parse_delta,
    parse_number,
)
from hubbub.cli.terminal import FormatOption, OutputFormat, bold, print_line, show_json
from hubbub.errors import InvalidInput
from hubbub.mechanisms import Gaussian, Laplace, PermuteAndFlip, RandomizedResponse, choose_additive_noise
from hubbub.numbers import format_percent, format_up, parse_nonnegative
from hubbub.report.text_tables import DIGITS
from hubbub.sensitivity import Bounded, Sensitivity
from hubbub.unit import Unit

__all__ = ["choose", "error", "release", "toss"]

_YES_NO = {
    **dict.fromkeys(("true", "yes", "on", "t", "y", "1"), 1),
    **dict.fromkeys(("false", "no", "off", "f", "n", "0"), 0),
}

Epsilon = Annotated[str, typer.Option(help="Privacy cost ε, such as 0.5 or 1/2.")]
Delta = Annotated[str, typer.Option(help="Additive slack δ; 0 for pure differential privacy.")]
SensitivityOption = Annotated[
    str, typer.Option("--sensitivity", help="The most that one person can change the answer.")
]
Confidence = Annotated[str, typer.Option(help="Confidence level of the interval.")]
Coordinates = Annotated[
    str,
    typer.Option(
        metavar="M",
        help="Number of counts that are released together. If they are not disjoint (each person in one of "
        "them), --sensitivity must be the L1 sensitivity of all of them.",
    ),
]
Real = Annotated[bool, typer.Option("--real", help="The answer is a real number, not an integer.")]


def release(
    value: Annotated[str, typer.Argument(help="The exact answer; it is not stored.")],
    epsilon: Epsilon,
    delta: Delta = "0",
    population: Population = None,
    sensitivity: SensitivityOption = "1",
    confidence: Confidence = "0.95",
    real: Real = False,
    allow_large_epsilon: LargeEpsilon = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Release one number with noise: `hubbub release 42 --epsilon 0.5`."""
    certain, slack, people = parse_confidence(confidence), parse_delta(delta), _parse_population(population)
    mechanism = choose_additive_noise(
        sensitivity=_parse_sensitivity(sensitivity, real=real),
        epsilon=parse_above_zero(epsilon, "epsilon"),
        delta=slack,
        real=real,
        confidence=certain,
        population=people,
        allow_large_epsilon=allow_large_epsilon,
    )
    exact = parse_number(value, "the value")
    if not real and exact.denominator != 1:
        raise InvalidInput(
            "the value is not an integer", why="the noise is made for integers", fix="add --real"
        )
    out = mechanism.release(exact if real else int(exact))
    if form is OutputFormat.JSON:
        figures = _describe_figures(mechanism, slack, certain)
        show_json({"value": out.value if isinstance(out.value, int) else float(out.value), **figures})
        return
    print_line(bold(out.value), f" ± {mechanism.error(certain)} ({format_percent(certain)})")
    print_line(f"{_describe_mechanism(mechanism, slack)}; user-asserted sensitivity")


def error(
    epsilon: Epsilon = "",
    within: Annotated[str, typer.Option(help="Target error: the least ε that keeps it is found.")] = "",
    delta: Delta = "0",
    population: Population = None,
    sensitivity: SensitivityOption = "1",
    confidence: Confidence = "0.95",
    coordinates: Coordinates = "1",
    real: Real = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Show the error of an ε, or the ε of an error; nothing is released.

    Give exactly one of --epsilon and --within.

    `hubbub error --epsilon 1 --coordinates 10000` or `hubbub error --within 50`.
    """
    if bool(epsilon) == bool(within):
        raise InvalidInput(
            "both --epsilon and --within are given" if epsilon else "neither --epsilon nor --within is given",
            why="each determines the other",
            fix="give exactly one of --epsilon and --within",
        )
    certain, slack, people = parse_confidence(confidence), parse_delta(delta), _parse_population(population)
    bound, count = _parse_sensitivity(sensitivity, real=real), parse_count(coordinates, "coordinates")
    mechanism: Laplace | Gaussian
    if epsilon:
        mechanism = choose_additive_noise(
            sensitivity=bound,
            epsilon=parse_above_zero(epsilon, "epsilon"),
            delta=slack,
            real=real,
            coordinates=count,
            confidence=certain,
            population=people,
            allow_large_epsilon=True,  # nothing is released
        )
    elif slack:
        mechanism = Gaussian.for_error(
            parse_above_zero(within, "within"),
            delta=slack,
            confidence=certain,
            sensitivity=bound,
            real=real,
            coordinates=count,
            population=people,
        )
    else:
        mechanism = Laplace.for_error(
            parse_above_zero(within, "within"),
            confidence=certain,
            sensitivity=bound,
            real=real,
            coordinates=count,
        )
    if form is OutputFormat.JSON:
        simultaneous = (
            {} if count == 1 else {"simultaneous error": float(mechanism.error(certain, coordinates=count))}
        )
        show_json({**_describe_figures(mechanism, slack, certain), **simultaneous})
        return
    print_line(f"each answer ± {mechanism.error(certain)} ({format_percent(certain)})")
    if count > 1:
        error_of_all = mechanism.error(certain, coordinates=count)
        print_line(f"all {count} simultaneously ± {error_of_all} ({format_percent(certain)})")
    print_line(f"{_describe_mechanism(mechanism, slack)}; nothing spent")


def choose(
    scores: Annotated[
        list[str], typer.Argument(help="Candidates with their exact counts: fever=120 cough=98 …")
    ],
    epsilon: Epsilon,
    confidence: Confidence = "0.95",
    allow_large_epsilon: LargeEpsilon = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Select the candidate with the largest count privately; only its name is released.

    One person may be in every count.

    `hubbub choose fever=120 cough=98 rash=7 --epsilon 1`.
    """
    names = [_parse_name(score) for score in scores]
    counts = [_parse_count(score) for score in scores]
    if len(set(names)) < len(names):
        raise InvalidInput(
            "a candidate is given twice",
            why="it would have two counts, and two chances to win",
            fix="give each candidate once",
        )
    certain = parse_confidence(confidence)
    mechanism = PermuteAndFlip.of(
        sensitivity=1,
        epsilon=parse_above_zero(epsilon, "epsilon"),
        monotone=True,
        allow_large_epsilon=allow_large_epsilon,
    )
    out = mechanism.release(Bounded.user_asserted(counts, mechanism.sensitivity, Unit("person")))
    if form is OutputFormat.JSON:
        below = float(out.error(certain))
        show_json(
            {"value": names[out.value], "at most below the largest": below, "confidence": float(certain)}
        )
        return
    print_line(bold(names[out.value]))
    print_line(f"its count is at most {out.error(certain):.4g} below the largest ({format_percent(certain)})")
    print_line(f"{mechanism}; user-asserted: each person adds at most 1 to each count")


def toss(
    answer: Annotated[str, typer.Argument(help="Your true answer: true or false, yes or no.")],
    epsilon: Annotated[
        str, typer.Option(help="Privacy cost ε; ln 3 if omitted, the textbook's two coins.")
    ] = "",
    allow_large_epsilon: LargeEpsilon = False,
    form: FormatOption = OutputFormat.TEXT,
) -> None:
    """Answer a yes/no question by randomized response: `hubbub toss true`."""
    truth = _YES_NO.get(answer.strip().lower())
    if truth is None:
        raise InvalidInput(
            "the answer is neither yes nor no",
            why="the coins decide between these two",
            fix="answer true or false, or yes or no",
        )
    mechanism = (
        RandomizedResponse.of(
            epsilon=parse_above_zero(epsilon, "epsilon"), allow_large_epsilon=allow_large_epsilon
        )
        if epsilon
        else RandomizedResponse.coin()
    )
    report = mechanism.release([truth]).value[0]
    if form is OutputFormat.JSON:
        show_json({"value": bool(report), "mechanism": str(mechanism)})
        return
    print_line(bold("yes" if report else "no"))
    print_line(f"{mechanism}")


def _parse_population(population: str | None) -> int | None:
    return None if population is None else parse_count(population, "population")


def _parse_sensitivity(sensitivity: str, *, real: bool) -> Sensitivity:
    typed = parse_nonnegative(parse_number(sensitivity, "sensitivity"), "sensitivity")
    if not real and typed.denominator != 1:
        raise InvalidInput(
            "--sensitivity is not an integer",
            why="integer answers change by integers, so this looks like a real-valued answer",
            fix="add --real, or pass the sensitivity of the integer answer",
        )
    return Sensitivity.of(typed)


def _parse_name(score: str) -> str:
    name = score.partition("=")[0].strip()
    if not name:
        raise InvalidInput(
            "a candidate has no name", why="the name is what is released", fix="pass NAME=COUNT, as fever=120"
        )
    return name


def _parse_count(score: str) -> int:
    """Parse a count; that nobody lowers one (monotonicity) is why half the noise is enough."""
    name, equals, text = score.partition("=")
    if not equals:
        raise InvalidInput(
            f"{name.strip()} has no count",
            why="the candidate with the largest one is selected",
            fix="pass NAME=COUNT, as fever=120",
        )
    typed = parse_number(text, f"the count of {name.strip()}")
    if typed.denominator != 1 or typed < 0:
        raise InvalidInput(
            "a count is below zero" if typed < 0 else "a count is not an integer",
            why="the noise is enough only if each person adds 0 or 1 to each count",
            fix="pass NAME=COUNT, as fever=120; for other scores use PermuteAndFlip in Python",
        )
    return int(typed)


def _describe_figures(mechanism: Laplace | Gaussian, delta: Fraction, confidence: Fraction) -> dict[str, Any]:
    """What a mechanism costs and how wrong it is, for programs."""
    loss = mechanism.loss()
    is_pure = loss.epsilon() < math.inf
    return {
        "error": float(mechanism.error(confidence)),
        "confidence": float(confidence),
        "mechanism": str(mechanism),
        "epsilon": format_up(loss.epsilon() if is_pure else loss.epsilon(delta), DIGITS),
        "delta": "0" if is_pure else format_up(delta, DIGITS),
    }


def _describe_mechanism(mechanism: Laplace | Gaussian, delta: Fraction) -> str:
    """Describe the mechanism, with its ε at this δ where it has no pure ε."""
    spent = mechanism.loss()
    if spent.epsilon() < math.inf:
        return f"{mechanism}"
    return f"{mechanism}, that is ε = {format_up(spent.epsilon(delta), 6)} at δ = {format_up(delta, DIGITS)}"
