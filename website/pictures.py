"""The pictures of the textbook's chapters: `python website/pictures.py FOLDER` draws them anew."""

import math
import sys
from pathlib import Path

import hubbub as hb
from hubbub.report.charts import Axis, Frame, draw_loss_distribution

__all__ = ["draw_all"]


def draw_all() -> dict[str, str]:
    """All pictures, by their file names."""
    return {
        "laplace-sliding.svg": draw_sliding_laws(),
        "error-against-epsilon.svg": draw_errors(),
        "bounding.svg": draw_bounding(),
        "loss-distribution.svg": draw_loss_distribution(hb.PrivacyLoss.gaussian(1)),
        "privacy-curve.svg": draw_curves(),
    }


def draw_sliding_laws(epsilon: float = 0.5) -> str:
    """Two Laplace laws, one unit apart."""

    def density(z: float) -> float:
        return epsilon / 2 * math.exp(-epsilon * abs(z))

    grid = [step / 20 for step in range(-120, 161)]
    frame = Frame(
        "The sliding property",
        f"Laplace noise on a count of 0 and of 1, ε = {epsilon}: the ratio is never above e^ε",
        across=Axis("noisy count", -6, 8),
        up=Axis("density", 0, 0.3),
    )
    return frame.render(
        frame.line([(z, density(z)) for z in grid], "main"),
        frame.line([(z, density(z - 1)) for z in grid], "mark"),
        frame.text(-0.2, density(0), "count 0", dx=-6, dy=-6, anchor="end"),
        frame.text(1.2, density(0), "count 1", dx=6, dy=-6),
        frame.text(7.8, 0.16, f"e^ε = {math.exp(epsilon):.2f} on each side", anchor="end"),
    )


def draw_errors() -> str:
    """The error of a count against ε, exact and as the textbook has it."""
    epsilons = [step / 20 for step in range(2, 61)]
    frame = Frame(
        "What an error costs",
        "the error of a count that is not exceeded with 95 % confidence",
        across=Axis("ε", 0, 3),
        up=Axis("error", 0, 30),
    )
    exact = [(e, hb.Laplace.of(sensitivity=1, epsilon=e).error(0.95)) for e in epsilons]
    return frame.render(
        frame.line([(e, math.log(20) / e) for e in epsilons], "pale"),
        frame.line(exact, "main"),
        frame.text(1.75, 2, "exact, on integers", dx=4, dy=-16),
        frame.text(0.4, math.log(20) / 0.4, "ln(20)/ε, by Fact 3.7", dx=12, dy=-4),
    )


def draw_bounding() -> str:
    """The error of a sum against the upper bound of its values: bias falls, noise grows."""
    # 1,000 made-up incomes, lognormal by their quantiles, in thousands.
    incomes = [math.exp(3.4 + 0.6 * _normal_quantile((place + 0.5) / 1000)) for place in range(1000)]
    bounds = [5 * step for step in range(2, 61)]
    bias = [sum(max(income - bound, 0) for income in incomes) / 1000 for bound in bounds]
    noise = [bound / 0.02 / 1000 for bound in bounds]
    frame = Frame(
        "Bounds trade bias for noise",
        "error of a sum of 1,000 incomes at ε = 0.02, in millions",
        across=Axis("upper bound of an income, in thousands", 0, 300),
        up=Axis("error", 0, 20),
    )
    whole = [(bound, cut + spread) for bound, cut, spread in zip(bounds, bias, noise, strict=True)]
    best = min(whole, key=lambda point: point[1])
    return frame.render(
        frame.line(zip(bounds, bias, strict=True), "pale"),
        frame.line(zip(bounds, noise, strict=True), "mark"),
        frame.line(whole, "main"),
        frame.dot(*best),
        frame.text(*best, "best", dx=0, dy=-12, anchor="middle"),
        frame.text(120, 0.6, "cut off (bias)", dx=4, dy=-8),
        frame.text(30, noise[4], "noise", dx=-4, dy=-10, anchor="end"),
        frame.text(40, 9.2, "both", dx=14),
    )


def draw_curves() -> str:
    """δ against ε, for one and for ten Gaussian mechanisms."""
    epsilons = [step / 10 for step in range(101)]
    frame = Frame(
        "One mechanism has a curve, not a pair",
        "δ(ε) of a Gaussian mechanism with μ = ½, and of ten of them",
        across=Axis("ε", 0, 10),
        up=Axis("δ", -10, 0, logarithmic=True),
    )
    parts = []
    for times, kind in ((1, "main"), (10, "mark")):
        loss = hb.PrivacyLoss.gaussian(0.5) * times
        points = [(e, loss.delta(e)) for e in epsilons]
        parts.append(frame.line([(e, delta) for e, delta in points if delta >= 1e-10], kind))
    return frame.render(
        *parts, frame.text(2.3, 1e-7, "one", dx=-14, anchor="end"), frame.text(6, 1e-3, "ten", dx=16)
    )


def _normal_quantile(share: float) -> float:
    """By bisection; a picture needs no more."""
    low, high = -9.0, 9.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erfc(-middle / math.sqrt(2)) / 2 < share else (low, middle)
    return low


if __name__ == "__main__":
    for name, picture in draw_all().items():
        (Path(sys.argv[1]) / name).write_text(picture, encoding="utf-8")
