"""`hubbub loss`: what mechanisms cost together, and the noise that keeps a promise; nothing is released."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from hubbub.accounting import PrivacyLoss, calibrate
from hubbub.cli.loss_output import Calibrated, LossQuestion, show_loss, stepping
from hubbub.cli.options import allowed, counted, nearest, number, round_down_text, round_up_text, share
from hubbub.errors import InvalidInput
from hubbub.numbers import parse_nonnegative, parse_positive, parse_probability
from hubbub.output_files import check_output_path

__all__ = ["Population", "loss"]

_USUAL_STEPS = 10
"""In so many steps the noise is found, as a rule."""
_ALPHAS = ("0.001", "0.01", "0.05", "0.1", "0.2", "0.3", "0.5", "0.7", "0.9")


class Form(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"


_FORMS = {".svg": Form.SVG, ".json": Form.JSON, ".txt": Form.TEXT, ".md": Form.TEXT}
_OTHER_PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".eps"}


class Drawn(StrEnum):
    """What a picture shows."""

    CURVE = "curve"
    DISTRIBUTION = "distribution"
    TRADEOFF = "tradeoff"


class Sought(StrEnum):
    """The mechanisms whose one number can be looked for."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    DISCRETE_GAUSSIAN = "discrete-gaussian"
    DISCRETE_LAPLACE = "discrete-laplace"
    PURE = "pure"
    ZCDP = "zcdp"


@dataclass(frozen=True)
class Kind:
    """A mechanism that one number describes."""

    name: str
    sign: str
    of: Callable[[Fraction], PrivacyLoss]
    is_noise: bool = True
    """Whether more of it costs less."""
    checked: Callable[[Fraction, str], Fraction] = parse_positive
    """Gives the number back if it can be one of these, else an error of this name."""

    def loss(self, text: str) -> PrivacyLoss:
        """Of the number that was typed."""
        name = f"--{self.name}"
        return self.of(self.checked(number(text, name), name))


def _keep(value: Fraction, name: str) -> Fraction:
    if value < Fraction(1, 2):
        raise InvalidInput(
            f"{name} is below 1/2",
            why="the truth would be told less often than a lie",
            fix="pass 1/2 or more",
        )
    return parse_probability(value, name)


_KINDS = {
    kind.name: kind
    for kind in (
        Kind("gaussian", "σ", lambda sigma: PrivacyLoss.gaussian_from_mu_squared(1 / sigma**2)),
        Kind("laplace", "scale", lambda scale: PrivacyLoss.laplace(1 / scale)),
        Kind("discrete-gaussian", "σ²", PrivacyLoss.discrete_gaussian),
        Kind("discrete-laplace", "scale", PrivacyLoss.discrete_laplace),
        Kind("response", "keep", PrivacyLoss.randomized_response, is_noise=False, checked=_keep),
        Kind("bounded-range", "ε", PrivacyLoss.bounded_range, is_noise=False, checked=parse_nonnegative),
        Kind("pure", "ε", PrivacyLoss.pure, is_noise=False, checked=parse_nonnegative),
        Kind("zcdp", "ρ", PrivacyLoss.zcdp, is_noise=False, checked=parse_nonnegative),
    )
}


Given = list[str] | None
Gaussian = Annotated[
    Given,
    typer.Option(
        "--gaussian",
        metavar="SIGMA",
        help="Gaussian noise of this σ, sensitivity 1. Python's Loss.gaussian takes μ = 1/σ.",
    ),
]
Laplace = Annotated[
    Given,
    typer.Option(
        "--laplace",
        metavar="SCALE",
        help="Laplace noise of this scale, sensitivity 1. Python's Loss.laplace takes ε = 1/scale.",
    ),
]
DiscreteGaussian = Annotated[
    Given,
    typer.Option("--discrete-gaussian", metavar="VARIANCE", help="Gaussian noise on integers, of this σ²."),
]
DiscreteLaplace = Annotated[
    Given,
    typer.Option("--discrete-laplace", metavar="SCALE", help="Laplace noise on integers, of this scale."),
]
Response = Annotated[
    Given, typer.Option("--response", metavar="KEEP", help="Randomized response: how often yes stays yes.")
]
BoundedRange = Annotated[
    Given, typer.Option("--bounded-range", metavar="EPSILON", help="An exponential mechanism of this ε.")
]
Pure = Annotated[Given, typer.Option("--pure", metavar="EPSILON", help="Anything of pure ε.")]
Approximate = Annotated[
    Given, typer.Option("--approximate", metavar="EPSILON,DELTA", help="Anything of (ε, δ), as 0.1,1e-8.")
]
Zcdp = Annotated[Given, typer.Option("--zcdp", metavar="RHO", help="Anything zero-concentrated, of this ρ.")]
Rate = Annotated[
    str | None,
    typer.Option(metavar="Q", help="Each mechanism sees a Poisson sample of its own, of this rate."),
]
Fixed = Annotated[
    bool,
    typer.Option(
        "--without-replacement",
        help="The samples have a fixed size; a neighbour is one person substituted, not added or removed.",
    ),
]
Steps = Annotated[str, typer.Option(metavar="T", help="All of it, so many times.")]
Shuffled = Annotated[
    str | None,
    typer.Option(metavar="N", help="They are local reports, and those of N people are shuffled."),
]
Group = Annotated[str, typer.Option(metavar="K", help="What K people pay together.")]
Delta = Annotated[str | None, typer.Option(metavar="D", help="Ask for ε at this δ.")]
Population = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="How many people there are, where that is public: --delta must be below 1/N."
    ),
]
Epsilon = Annotated[str | None, typer.Option(metavar="E", help="Ask for δ at this ε.")]
Find = Annotated[
    Sought | None,
    typer.Option(
        metavar="|".join(Sought),
        help="Ask for the least noise that keeps --epsilon and --delta; of pure and zcdp, the most.",
    ),
]
Tradeoff = Annotated[
    bool, typer.Option("--tradeoff", help="Show what an attacker must get wrong: misses β at false alarms α.")
]
Alpha = Annotated[Given, typer.Option("--alpha", metavar="A", help="With --tradeoff: at this α.")]
Format = Annotated[
    Form | None,
    typer.Option(
        "--format",
        metavar="|".join(Form),
        help="For people, for programs, or a picture; as --output ends, or else text.",
    ),
]
Draw = Annotated[
    Drawn | None,
    typer.Option(metavar="|".join(Drawn), help="Which picture; δ(ε) unless told otherwise."),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write there, not to the terminal; FILE.svg is a picture."),
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
    rate: Rate = None,
    without_replacement: Fixed = False,
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
    """What mechanisms cost one person together, between certified bounds; nothing is released.

    Mechanisms may be given several times, and are composed. Numbers are 0.5, 1/2 or 1e-6.

    \b
    hubbub loss --gaussian 1.1 --rate 256/60000 --steps 14063 --delta 1e-5
    hubbub loss --laplace 10 --pure 0.1 --steps 20 --epsilon 2
    hubbub loss --find gaussian --rate 1/100 --steps 1000 --epsilon 2 --delta 1e-5
    hubbub loss --pure 1 --shuffled 500 --delta 1e-6 --format json
    hubbub loss --gaussian 1 --tradeoff
    hubbub loss --gaussian 1 --delta 1e-5 --format svg --draw distribution
    """  # noqa: D301 - the mark that keeps lines is a real \b
    form = _form(form, draw, output)
    given = {
        "gaussian": gaussian,
        "laplace": laplace,
        "discrete-gaussian": discrete_gaussian,
        "discrete-laplace": discrete_laplace,
        "response": response,
        "bounded-range": bounded_range,
        "pure": pure,
        "zcdp": zcdp,
    }
    mechanisms = [_KINDS[name].loss(text) for name, texts in given.items() for text in texts or ()]
    mechanisms += [_approximate(text) for text in approximate or ()]
    if not mechanisms and find is None:
        raise InvalidInput(
            "no mechanism is given",
            why="the loss is that of mechanisms",
            fix="add one, such as --gaussian 1.1, or ask for one with --find gaussian",
        )
    treatment = _treatment(rate, shuffled, steps, group, fixed=without_replacement)
    if population is not None and delta is None:
        raise InvalidInput(
            "--population is given without --delta", why="it says how large that may be", fix="add --delta"
        )
    chance = None if delta is None else allowed(delta, population, promised=find is not None)
    most = None if epsilon is None else parse_nonnegative(number(epsilon, "--epsilon"), "--epsilon")
    found = None
    if find is not None:
        kind = _KINDS[find.value]
        found = _found(kind, lambda value: treatment([*mechanisms, kind.of(value)]), most, chance)
        mechanisms.append(kind.of(Fraction(found.shown)))
        chance = chance or Fraction(0)
    elif chance is not None and most is not None:
        raise InvalidInput(
            "both --delta and --epsilon are given",
            why="one of them is asked for, the other is the answer",
            fix="give one, or look for the noise that keeps both with --find",
        )
    if alpha and not tradeoff:
        raise InvalidInput(
            "--alpha is given without --tradeoff", why="it is a place on that curve", fix="add --tradeoff"
        )
    alphas = [share(text, "--alpha") for text in alpha or _ALPHAS] if tradeoff else []
    question = LossQuestion(treatment(mechanisms), chance, most, found, tuple(alphas))
    show_loss(question, form.value, draw.value if draw else "tradeoff" if tradeoff else "curve", output)


def _form(asked: Form | None, draw: Drawn | None, output: Path | None) -> Form:
    """The form that was asked for, or else the one that the file's ending names."""
    ending = "" if output is None else output.suffix.lower()
    form = asked or _FORMS.get(ending, Form.TEXT)
    if ending in _OTHER_PICTURES:
        raise InvalidInput(
            f"the output ends in {ending}", why="pictures are drawn as SVG", fix="pass --output FILE.svg"
        )
    if output is not None:
        check_output_path(output, ["", *_FORMS])
    if _FORMS.get(ending, form) is not form:
        raise InvalidInput(
            f"the output ends in {ending}, and --format is {form.value}",
            why="a program that opens it would not understand it",
            fix=f"leave --format out, or pass --output FILE.{'txt' if form is Form.TEXT else form.value}",
        )
    if form is not Form.SVG and draw is not None:
        raise InvalidInput(
            "--draw is given without --format svg", why="it names a picture", fix="add --format svg"
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
        parse_nonnegative(number(epsilon, first), first), parse_probability(number(delta, second), second)
    )


def _treatment(
    rate: str | None, shuffled: str | None, steps: str, group: str, *, fixed: bool
) -> Callable[[list[PrivacyLoss]], PrivacyLoss]:
    """What is done with the mechanisms: sampled or shuffled, repeated, and charged to a group."""
    if rate is not None and shuffled is not None:
        raise InvalidInput(
            "both --rate and --shuffled are given",
            why="a neighbour is one person more or less for the one, and one person's data for the other",
            fix="give one of them",
        )
    if fixed and rate is None:
        raise InvalidInput(
            "--without-replacement is given without --rate",
            why="it says how the sample of that rate is drawn",
            fix="add the rate, as 256/60000",
        )
    part = None if rate is None else share(rate, "--rate")
    people = None if shuffled is None else counted(shuffled, "--shuffled")
    times, size = counted(steps, "--steps"), counted(group, "--group")

    def treated(mechanisms: list[PrivacyLoss]) -> PrivacyLoss:
        if part is not None:
            mechanisms = [_sampled(each, part, fixed=fixed) for each in mechanisms]
        together = sum(mechanisms[1:], mechanisms[0])
        if people is not None:
            together = together.shuffled(people)
        return (together * times).for_group(size)

    return treated


def _sampled(each: PrivacyLoss, rate: Fraction, *, fixed: bool) -> PrivacyLoss:
    if not fixed:
        return each.poisson_subsampled(rate)
    return each.subsampled_without_replacement(rate.denominator, rate.numerator)


def _found(
    kind: Kind, family: Callable[[Fraction], PrivacyLoss], epsilon: Fraction | None, delta: Fraction | None
) -> Calibrated:
    """The least noise, or the most each may cost, in the digits that are shown; it is these that keep it."""
    if epsilon is None:
        raise InvalidInput(
            "--find is given without --epsilon",
            why="noise is looked for that keeps an ε, at a δ",
            fix="add --epsilon, and --delta if some is allowed",
        )
    chance = delta or Fraction(0)
    if not chance and kind.name in {"gaussian", "discrete-gaussian", "zcdp"}:
        raise InvalidInput(
            "--delta is missing",
            why=f"no {kind.sign} keeps any ε without some δ",
            fix="add --delta, such as 1e-6",
        )
    parse_positive(epsilon, "--epsilon")
    with stepping("looking for the noise", _USUAL_STEPS) as step:

        def cost(value: Fraction) -> PrivacyLoss:
            step()
            return family(value)

        less = cost if kind.is_noise else lambda noise: cost(1 / noise)
        noise = Fraction(calibrate(less, epsilon, chance))
        # It is the least to nine digits: the nearest such number reads better, if it will do.
        shown = nearest(noise if kind.is_noise else 1 / noise, 9)
        more = Fraction(1, 10**10)
        while cost(Fraction(shown)).epsilon(chance) > epsilon:
            shown = round_up_text(noise) if kind.is_noise else round_down_text(1 / noise)
            noise, more = noise * (1 + more), 2 * more
        return Calibrated(kind.name, kind.sign, shown, kind.is_noise)
