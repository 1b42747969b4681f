"""`hubbub loss`: the privacy loss of composed mechanisms, and calibrated noise; nothing is released."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hubbub.accounting import PrivacyLoss, calibrate
from hubbub.cli.loss_output import CalibratedNoise, LossQuestion, show_loss, stepping
from hubbub.cli.options import Population, parse_allowed_delta, parse_count, parse_number, parse_share
from hubbub.errors import InvalidInput
from hubbub.numbers import (
    format_down,
    format_nearest,
    format_up,
    parse_nonnegative,
    parse_positive,
    parse_probability,
)
from hubbub.output_files import check_output_path
from hubbub.report.text_tables import DIGITS

__all__ = ["loss"]

_TYPICAL_STEPS = 10
"""Calibration usually takes about this many steps: for the progress bar."""
_ALPHAS = ("0.001", "0.01", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "0.9")


class LossFormat(StrEnum):
    """The output format."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


_SUFFIXES = {
    ".svg": LossFormat.SVG,
    ".json": LossFormat.JSON,
    ".txt": LossFormat.TEXT,
    ".md": LossFormat.TEXT,
}
_OTHER_IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps"}


class Chart(StrEnum):
    """The chart that is drawn."""

    CURVE = "curve"
    DISTRIBUTION = "distribution"
    TRADEOFF = "tradeoff"


class CalibratedMechanism(StrEnum):
    """The mechanisms that can be calibrated."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    DISCRETE_GAUSSIAN = "discrete-gaussian"
    DISCRETE_LAPLACE = "discrete-laplace"
    PURE = "pure"
    ZCDP = "zcdp"


@dataclass(frozen=True)
class MechanismOption:
    """A mechanism that is described by one number."""

    name: str
    sign: str
    of: Callable[[Fraction], PrivacyLoss]
    is_noise: bool = True
    """True if a larger number costs less."""
    parse: Callable[[Fraction, str], Fraction] = parse_positive
    """Returns the number if it is valid, else raises an error with this name."""

    def loss(self, text: str) -> PrivacyLoss:
        """Return the privacy loss for the number that was typed."""
        name = f"--{self.name}"
        return self.of(self.parse(parse_number(text, name), name))


def _parse_keep(value: Fraction, name: str) -> Fraction:
    if value < Fraction(1, 2):
        raise InvalidInput(
            f"{name} is below 1/2",
            why="the truth would be reported less often than a lie",
            fix="pass 1/2 or more",
        )
    return parse_probability(value, name)


_MECHANISMS = {
    kind.name: kind
    for kind in (
        MechanismOption("gaussian", "σ", lambda sigma: PrivacyLoss.gaussian_from_mu_squared(1 / sigma**2)),
        MechanismOption("laplace", "scale", lambda scale: PrivacyLoss.laplace(1 / scale)),
        MechanismOption("discrete-gaussian", "σ²", PrivacyLoss.discrete_gaussian),
        MechanismOption("discrete-laplace", "scale", PrivacyLoss.discrete_laplace),
        MechanismOption(
            "response", "keep", PrivacyLoss.randomized_response, is_noise=False, parse=_parse_keep
        ),
        MechanismOption(
            "bounded-range", "ε", PrivacyLoss.bounded_range, is_noise=False, parse=parse_nonnegative
        ),
        MechanismOption("pure", "ε", PrivacyLoss.pure, is_noise=False, parse=parse_nonnegative),
        MechanismOption("zcdp", "ρ", PrivacyLoss.zcdp, is_noise=False, parse=parse_nonnegative),
    )
}


Texts = list[str] | None
Gaussian = Annotated[
    Texts,
    typer.Option(
        "--gaussian",
        metavar="SIGMA",
        help="Gaussian noise with this σ, sensitivity 1. Python's PrivacyLoss.gaussian takes μ = 1/σ.",
    ),
]
Laplace = Annotated[
    Texts,
    typer.Option(
        "--laplace",
        metavar="SCALE",
        help="Laplace noise with this scale, sensitivity 1. Python's PrivacyLoss.laplace takes ε = 1/scale.",
    ),
]
DiscreteGaussian = Annotated[
    Texts,
    typer.Option(
        "--discrete-gaussian", metavar="VARIANCE", help="Discrete Gaussian noise with this σ², sensitivity 1."
    ),
]
DiscreteLaplace = Annotated[
    Texts,
    typer.Option(
        "--discrete-laplace", metavar="SCALE", help="Discrete Laplace noise with this scale, sensitivity 1."
    ),
]
Response = Annotated[
    Texts,
    typer.Option(
        "--response", metavar="KEEP", help="Randomized response: the probability that yes stays yes."
    ),
]
BoundedRange = Annotated[
    Texts,
    typer.Option(
        "--bounded-range", metavar="EPSILON", help="An exponential mechanism (bounded range) with this ε."
    ),
]
Pure = Annotated[Texts, typer.Option("--pure", metavar="EPSILON", help="Any mechanism with pure ε.")]
Approximate = Annotated[
    Texts,
    typer.Option(
        "--approximate", metavar="EPSILON,DELTA", help="Any mechanism with (ε, δ), such as 0.1,1e-8."
    ),
]
Zcdp = Annotated[Texts, typer.Option("--zcdp", metavar="RHO", help="Any mechanism with ρ-zCDP.")]
SamplingRate = Annotated[
    str | None,
    typer.Option(metavar="Q", help="Sampling rate: each mechanism sees its own Poisson sample."),
]
WithoutReplacement = Annotated[
    bool,
    typer.Option(
        "--without-replacement",
        help="Samples have a fixed size; neighbours substitute one person instead of adding or removing one.",
    ),
]
Steps = Annotated[str, typer.Option(metavar="T", help="Compose all of it T times.")]
Shuffled = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="The mechanisms are local randomizers; the reports of N people are shuffled."
    ),
]
Group = Annotated[str, typer.Option(metavar="K", help="Group privacy: the loss of K people together.")]
Delta = Annotated[str | None, typer.Option(metavar="D", help="Show ε at this δ.")]
Epsilon = Annotated[str | None, typer.Option(metavar="E", help="Show δ at this ε.")]
Find = Annotated[
    CalibratedMechanism | None,
    typer.Option(
        metavar="|".join(CalibratedMechanism),
        help="Calibrate to --epsilon and --delta: the least noise, or the largest ε of pure or ρ of zcdp.",
    ),
]
Tradeoff = Annotated[
    bool,
    typer.Option(
        "--tradeoff", help="Show the trade-off function: the least type II error β at type I errors α."
    ),
]
Alpha = Annotated[Texts, typer.Option("--alpha", metavar="A", help="With --tradeoff: the type I errors α.")]
Format = Annotated[
    LossFormat | None,
    typer.Option(
        "--format",
        metavar="|".join(LossFormat),
        help="Output format; from the suffix of --output, or text.",
    ),
]
Draw = Annotated[
    Chart | None,
    typer.Option(metavar="|".join(Chart), help="Chart of --format svg; the privacy curve δ(ε) if omitted."),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write to a file instead of the terminal; FILE.svg is a chart."),
]


def loss(
    gaussian: Gaussian = None,
    laplace: Laplace = None,
    discrete_gaussian: DiscreteGaussian = None,
    discrete_laplace: DiscreteLaplace = None,
    response: Response = None,
    bounded_range: BoundedRange = None,
    pure: Pure = None,
    approximate: Approximate = None,
    zcdp: Zcdp = None,
    rate: SamplingRate = None,
    without_replacement: WithoutReplacement = False,
    steps: Steps = "1",
    shuffled: Shuffled = None,
    group: Group = "1",
    delta: Delta = None,
    population: Population = None,
    epsilon: Epsilon = None,
    find: Find = None,
    tradeoff: Tradeoff = False,
    alpha: Alpha = None,
    form: Format = None,
    draw: Draw = None,
    output: Output = None,
) -> None:
    """Show the privacy loss of composed mechanisms, with certified bounds; nothing is released.

    Mechanisms may be given several times, and are composed. Numbers are written as 0.5, 1/2 or 1e-6.

    \b
    hubbub loss --gaussian 1.1 --rate 256/60000 --steps 14063 --delta 1e-5
    hubbub loss --laplace 10 --pure 0.1 --steps 20 --epsilon 2
    hubbub loss --find gaussian --rate 1/100 --steps 1000 --epsilon 2 --delta 1e-5
    hubbub loss --pure 1 --shuffled 500 --delta 1e-6 --format json
    hubbub loss --gaussian 1 --tradeoff
    hubbub loss --gaussian 1 --delta 1e-5 --format svg --draw distribution
    """  # noqa: D301 - the mark that keeps lines is a real \b
    form = _choose_format(form, draw, output)
    options = {
        "gaussian": gaussian,
        "laplace": laplace,
        "discrete-gaussian": discrete_gaussian,
        "discrete-laplace": discrete_laplace,
        "response": response,
        "bounded-range": bounded_range,
        "pure": pure,
        "zcdp": zcdp,
    }
    mechanisms = [_MECHANISMS[name].loss(text) for name, texts in options.items() for text in texts or ()]
    mechanisms += [_approximate(text) for text in approximate or ()]
    if not mechanisms and find is None:
        raise InvalidInput(
            "no mechanism is given",
            why="the privacy loss is that of mechanisms",
            fix="add one, such as --gaussian 1.1, or calibrate one with --find gaussian",
        )
    compose = _make_composition(rate, shuffled, steps, group, fixed=without_replacement)
    if population is not None and delta is None:
        raise InvalidInput("--population is given without --delta", why="it limits δ", fix="add --delta")
    slack = None if delta is None else parse_allowed_delta(delta, population, promised=find is not None)
    target = None if epsilon is None else parse_nonnegative(parse_number(epsilon, "epsilon"), "epsilon")
    calibrated = None
    if find is not None:
        kind = _MECHANISMS[find.value]
        calibrated = _calibrate(kind, lambda value: compose([*mechanisms, kind.of(value)]), target, slack)
        mechanisms.append(kind.of(Fraction(calibrated.text)))
        slack = slack or Fraction(0)
    elif slack is not None and target is not None:
        raise InvalidInput(
            "both --delta and --epsilon are given",
            why="each determines the other",
            fix="give one, or calibrate noise that keeps both with --find",
        )
    if alpha and not tradeoff:
        raise InvalidInput(
            "--alpha is given without --tradeoff", why="it is a point of that curve", fix="add --tradeoff"
        )
    alphas = [parse_share(text, "alpha") for text in alpha or _ALPHAS] if tradeoff else []
    question = LossQuestion(compose(mechanisms), slack, target, calibrated, tuple(alphas))
    show_loss(question, form.value, draw.value if draw else "tradeoff" if tradeoff else "curve", output)


def _choose_format(choice: LossFormat | None, draw: Chart | None, output: Path | None) -> LossFormat:
    """Return the format that was asked for, or else the one that the file's suffix names."""
    ending = "" if output is None else output.suffix.lower()
    form = choice or _SUFFIXES.get(ending, LossFormat.TEXT)
    if ending in _OTHER_IMAGE_SUFFIXES:
        raise InvalidInput(
            f"the output ends in {ending}", why="charts are SVG only", fix="pass --output FILE.svg"
        )
    if output is not None:
        check_output_path(output, ["", *_SUFFIXES])
    if _SUFFIXES.get(ending, form) is not form:
        raise InvalidInput(
            f"the output ends in {ending}, and --format is {form.value}",
            why="programs choose how to read a file by its suffix",
            fix=f"leave --format out, or pass --output FILE.{form.value.replace('text', 'txt')}",
        )
    if form is not LossFormat.SVG and draw is not None:
        raise InvalidInput(
            "--draw is given without --format svg", why="it names a chart", fix="add --format svg"
        )
    return form


def _approximate(text: str) -> PrivacyLoss:
    epsilon, comma, delta = text.partition(",")
    if not comma:
        raise InvalidInput(
            "--approximate is not two numbers", why="it is an ε and a δ", fix="write it as 0.1,1e-8"
        )
    first, second = "the ε of --approximate", "the δ of --approximate"
    return PrivacyLoss.approximate(
        parse_nonnegative(parse_number(epsilon, first), first),
        parse_probability(parse_number(delta, second), second),
    )


def _make_composition(
    rate: str | None, shuffled: str | None, steps: str, group: str, *, fixed: bool
) -> Callable[[list[PrivacyLoss]], PrivacyLoss]:
    """Return a function that composes losses: sampled or shuffled, repeated, for a group."""
    if rate is not None and shuffled is not None:
        raise InvalidInput(
            "both --rate and --shuffled are given",
            why="sampling is for neighbours that add or remove a person, shuffling for substitution",
            fix="give one of them",
        )
    if fixed and rate is None:
        raise InvalidInput(
            "--without-replacement is given without --rate",
            why="it says how the sample is drawn",
            fix="add --rate 256/60000",
        )
    part = None if rate is None else parse_share(rate, "rate")
    people = None if shuffled is None else parse_count(shuffled, "shuffled")
    times, size = parse_count(steps, "steps"), parse_count(group, "group")

    def composed(mechanisms: list[PrivacyLoss]) -> PrivacyLoss:
        if part is not None:
            mechanisms = [_sample(each, part, fixed=fixed) for each in mechanisms]
        total = sum(mechanisms[1:], mechanisms[0])
        if people is not None:
            total = total.shuffled(people)
        return (total * times).for_group(size)

    return composed


def _sample(each: PrivacyLoss, rate: Fraction, *, fixed: bool) -> PrivacyLoss:
    if not fixed:
        return each.poisson_subsampled(rate)
    return each.subsampled_without_replacement(rate.denominator, rate.numerator)


def _calibrate(
    kind: MechanismOption,
    family: Callable[[Fraction], PrivacyLoss],
    epsilon: Fraction | None,
    delta: Fraction | None,
) -> CalibratedNoise:
    """Return the least noise, or the largest cost, in the digits that are shown: these keep the promise."""
    if epsilon is None:
        raise InvalidInput(
            "--find is given without --epsilon",
            why="noise is calibrated to an ε, at a δ",
            fix="add --epsilon, and --delta if a δ is allowed",
        )
    slack = delta or Fraction(0)
    if not slack and kind.name in {"gaussian", "discrete-gaussian", "zcdp"}:
        raise InvalidInput(
            "--delta is missing",
            why=f"no {kind.sign} has a finite ε at δ = 0",
            fix="add --delta, such as 1e-6",
        )
    parse_positive(epsilon, "epsilon")
    with stepping("calibrating", _TYPICAL_STEPS) as step:

        def cost(value: Fraction) -> PrivacyLoss:
            step()
            return family(value)

        less = cost if kind.is_noise else lambda noise: cost(1 / noise)
        noise = Fraction(calibrate(less, epsilon, slack))
        # It is the least to nine digits: the nearest such number reads better, if it will do.
        text = format_nearest(noise if kind.is_noise else 1 / noise, 9)
        more = Fraction(1, 10**10)
        while cost(Fraction(text)).epsilon(slack) > epsilon:
            text = format_up(noise, DIGITS) if kind.is_noise else format_down(1 / noise, DIGITS)
            noise, more = noise * (1 + more), 2 * more
        return CalibratedNoise(kind.name, kind.sign, text, kind.is_noise)
