"""The output of `hubbub loss`, as text, JSON or a chart."""

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from hubbub.accounting import Bounds, PrivacyLoss
from hubbub.accounting.composition import RENYI
from hubbub.cli.terminal import bold, make_console, to_json, write_stdout
from hubbub.errors import InvalidInput
from hubbub.escaping import escape_lines
from hubbub.numbers import format_down, format_up
from hubbub.output_files import write_output
from hubbub.report.text_tables import DIGITS

__all__ = ["CalibratedNoise", "LossQuestion", "show_loss", "stepping"]

_T = TypeVar("_T")
_BAR_WIDTH = 24
_FILE_WIDTH = 110


@dataclass(frozen=True)
class CalibratedNoise:
    """The calibrated number, in the digits that are shown."""

    kind: str
    sign: str
    text: str
    is_noise: bool


@dataclass(frozen=True)
class LossQuestion:
    """A privacy loss, and what is asked of it: ε at δ, or δ at ε; the trade-off function at some α."""

    loss: PrivacyLoss
    delta: Fraction | None
    epsilon: Fraction | None
    calibration: CalibratedNoise | None = None
    alphas: tuple[Fraction, ...] = ()


@dataclass(frozen=True)
class LossFigures:
    """The computed figures."""

    question: LossQuestion
    bounds: Bounds | None
    advantage: float
    tradeoff: list[tuple[Fraction, float]]
    meaning: str


def show_loss(question: LossQuestion, form: str, picture: str, output: Path | None) -> None:
    """Compute the figures and write them, to the terminal or to a file."""
    if form == "svg":
        _write(_draw(question, picture), output)
        return
    figures = _compute(question)
    if form == "json":
        _write(to_json(_to_dict(figures), indent=2, allow_nan=False) + "\n", output)
    elif output is None:
        _print(figures, make_console())
    else:
        paper = io.StringIO()
        _print(figures, make_console(file=paper, width=_FILE_WIDTH))
        _write(paper.getvalue(), output)


@contextmanager
def stepping(what: str, about: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal; call what is yielded as each of about `about` steps begins."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        steps, task = 0, progress.add_task(what, total=about)

        def step() -> None:
            nonlocal steps
            steps += 1
            # The last step stays open while it lasts, also if there are more steps than expected.
            progress.update(task, completed=steps - 1, total=max(about, steps))

        yield step


def _track_progress(items: Sequence[_T], what: str) -> Iterable[_T]:
    """Show a progress bar on a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return items
    from rich.progress import track

    return track(items, description=what, console=console, transient=True)


def _compute(question: LossQuestion) -> LossFigures:
    with stepping("bounding the loss", 3) as step:
        step()
        question = _default_delta(question)
        loss, bounds = question.loss, None
        if question.delta is not None:
            bounds = loss.epsilon_bounds(question.delta)
        elif question.epsilon is not None:
            bounds = loss.delta_bounds(question.epsilon)
        step()
        advantage = loss.advantage()
        step()
        meaning = loss.explain(_delta_in_words(question, bounds))
    curve = [
        (alpha, loss.tradeoff(alpha)) for alpha in _track_progress(question.alphas, "trade-off function")
    ]
    return LossFigures(question, bounds, advantage, curve, meaning)


def _default_delta(question: LossQuestion) -> LossQuestion:
    """Ask for ε at δ = 0 if nothing is asked and a pure ε exists."""
    if question.delta is not None or question.epsilon is not None:
        return question
    if question.loss.epsilon() < math.inf:
        return LossQuestion(question.loss, Fraction(0), None, question.calibration, question.alphas)
    if question.alphas:
        return question
    raise InvalidInput(
        "neither --delta nor --epsilon is given",
        why="no ε holds with δ = 0 for this loss",
        fix="add --delta, such as 1e-6, or --epsilon",
    )


def _delta_in_words(question: LossQuestion, bounds: Bounds | None) -> Fraction | None:
    """Return the δ at which the loss is explained in words."""
    if question.delta is not None:
        return question.delta or None
    return Fraction(bounds.upper) if bounds is not None and 0 < bounds.upper < 1 else None


def _to_dict(figures: LossFigures) -> dict[str, Any]:
    question, bounds = figures.question, figures.bounds
    out: dict[str, Any] = {"loss": str(question.loss), "target": {}}
    if question.delta is not None:
        out["target"]["delta"] = float(question.delta)
    if question.epsilon is not None:
        out["target"]["epsilon"] = float(question.epsilon)
    if question.calibration:
        out["calibration"] = {question.calibration.kind: float(question.calibration.text)}
    if bounds is not None:
        out["epsilon" if question.delta is not None else "delta"] = {
            "lower": _finite_or_none(bounds.lower),
            "upper": _finite_or_none(bounds.upper),
            "how": bounds.method,
            "loose": bounds.method == RENYI,
        }
    out["advantage"] = figures.advantage
    if figures.tradeoff:
        out["tradeoff"] = [{"alpha": float(alpha), "beta": beta} for alpha, beta in figures.tradeoff]
    out["meaning"] = figures.meaning.splitlines()
    return out


def _finite_or_none(value: float) -> float | None:
    """JSON has no infinity: None where no bound holds."""
    return value if math.isfinite(value) else None


def _print(figures: LossFigures, console: Console) -> None:
    question, bounds = figures.question, figures.bounds
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    if question.calibration:
        which = "least noise" if question.calibration.is_noise else "largest"
        table.add_row(
            question.calibration.sign,
            Text.assemble(bold(question.calibration.text), f"  ({question.calibration.kind}: {which})"),
        )
    if bounds is not None:
        is_epsilon = question.delta is not None
        table.add_row(
            "ε" if is_epsilon else "δ", Text.assemble(bold(_format_upper(question, bounds)), "  at most")
        )
        table.add_row("", f"{format_down(bounds.lower, DIGITS)}  at least")
        fixed = question.delta if is_epsilon else question.epsilon
        table.add_row("at δ" if is_epsilon else "at ε", format_up(fixed or Fraction(0), DIGITS))
        table.add_row("method", _describe_method(bounds))
    table.add_row(
        "advantage",
        f"{format_up(figures.advantage, DIGITS)}  at most  (0: membership cannot be inferred, 1: always)",
    )
    console.print(table, soft_wrap=True)
    if bounds is not None and math.isinf(bounds.upper):
        console.print("\nNo ε holds at a δ this small.", soft_wrap=True)
    if figures.tradeoff:
        console.print()
        console.print(_tradeoff_table(figures.tradeoff), soft_wrap=True)
    console.print("\n", bold("What it means"), sep="")
    console.print(escape_lines(figures.meaning), soft_wrap=True)


def _format_upper(question: LossQuestion, bounds: Bounds) -> str:
    """Format the upper bound; of pure losses the exact sum, so that 0.1 + 0.2 is 0.3."""
    is_pure = question.delta == 0 and bounds.upper < math.inf
    exact = question.loss.cost(orders=(2,)).epsilon if is_pure else None
    return format_up(bounds.upper if exact is None else exact, DIGITS)


def _describe_method(bounds: Bounds) -> str:
    if bounds.method == RENYI:
        return f"{bounds.method}: it holds, but it is looser; the truth may be far below"
    return f"{bounds.method}, certified from both sides"


def _tradeoff_table(points: list[tuple[Fraction, float]]) -> Table:
    table = Table(title="Errors of any membership test", title_justify="left")
    table.add_column("type I error α", justify="right")
    table.add_column("type II error β, at least", justify="right")
    table.add_column("of 1 − α (guessing)")
    for alpha, beta in points:
        guessing = float(1 - alpha)
        solid = math.floor(_BAR_WIDTH * beta)
        table.add_row(
            format_up(alpha, 6),
            format_down(beta, 6),
            "█" * solid + "░" * max(0, math.floor(_BAR_WIDTH * guessing) - solid),
        )
    return table


def _draw(question: LossQuestion, which: str) -> str:
    from hubbub.report import charts

    def track(items: Sequence[float]) -> Iterable[float]:
        return _track_progress(items, "drawing")

    loss, delta = question.loss, question.delta
    if which == "tradeoff":
        return charts.draw_tradeoff(loss, track=track)
    if delta is None and question.epsilon is not None:
        delta_at = loss.delta(question.epsilon)
        delta = Fraction(delta_at) if 0 < delta_at < 1 else None
    if which == "distribution":
        at = Fraction(1, 10**6) if delta is None else delta
        return charts.draw_loss_distribution(loss, at, track=track)
    return charts.draw_privacy_curve(loss, delta, track=track)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        write_stdout(text)
    else:
        write_output(output, text)
