"""The answer of `hubbub loss`, as text, JSON or a picture."""

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
from hubbub.cli.options import round_down_text, round_up_text
from hubbub.cli.terminal import bold, for_programs, put, screen
from hubbub.errors import InvalidInput
from hubbub.escaping import escape_lines
from hubbub.output_files import write_output

__all__ = ["Calibrated", "LossQuestion", "show_loss", "stepping"]

_T = TypeVar("_T")
_BAR = 24
_PAPER = 110


@dataclass(frozen=True)
class Calibrated:
    """The number that was looked for, in the digits that are shown."""

    kind: str
    sign: str
    shown: str
    is_noise: bool


@dataclass(frozen=True)
class LossQuestion:
    """A loss, and what is asked of it: ε at δ, or else δ at ε, and the trade-off curve at some α."""

    loss: PrivacyLoss
    delta: Fraction | None
    epsilon: Fraction | None
    found: Calibrated | None = None
    alphas: tuple[Fraction, ...] = ()


@dataclass(frozen=True)
class LossAnswer:
    """What was found."""

    asked: LossQuestion
    bounds: Bounds | None
    advantage: float
    tradeoff: list[tuple[Fraction, float]]
    meaning: str


def show_loss(question: LossQuestion, form: str, picture: str, output: Path | None) -> None:
    """Find it and write it, to the terminal or to a file."""
    if form == "svg":
        _write(_picture(question, picture), output)
        return
    found = _answered(question)
    if form == "json":
        _write(for_programs(_for_programs(found), indent=2, allow_nan=False) + "\n", output)
    elif output is None:
        _print(found, screen())
    else:
        paper = io.StringIO()
        _print(found, screen(file=paper, width=_PAPER))
        _write(paper.getvalue(), output)


@contextmanager
def stepping(what: str, about: int) -> Iterator[Callable[[], None]]:
    """Shows on a terminal a bar that each call moves on: call it as each of about so many steps begins."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        begun, task = 0, progress.add_task(what, total=about)

        def step() -> None:
            nonlocal begun
            begun += 1
            # One step is left as long as it lasts, also where there are more of them than one thought.
            progress.update(task, completed=begun - 1, total=max(about, begun))

        yield step


def _watched(items: Sequence[_T], what: str) -> Iterable[_T]:
    """Shows on a terminal how many of them are done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        return items
    from rich.progress import track

    return track(items, description=what, console=console, transient=True)


def _answered(question: LossQuestion) -> LossAnswer:
    with stepping("bounding the loss", 3) as step:
        step()
        question = _with_a_delta(question)
        loss, bounds = question.loss, None
        if question.delta is not None:
            bounds = loss.epsilon_bounds(question.delta)
        elif question.epsilon is not None:
            bounds = loss.delta_bounds(question.epsilon)
        step()
        advantage = loss.advantage()
        step()
        meaning = loss.explain(_told_with(question, bounds))
    curve = [(alpha, loss.tradeoff(alpha)) for alpha in _watched(question.alphas, "the trade-off curve")]
    return LossAnswer(question, bounds, advantage, curve, meaning)


def _with_a_delta(question: LossQuestion) -> LossQuestion:
    """δ = 0 where nothing is said and some ε holds with it."""
    if question.delta is not None or question.epsilon is not None:
        return question
    if question.loss.epsilon() < math.inf:
        return LossQuestion(question.loss, Fraction(0), None, question.found, question.alphas)
    if question.alphas:
        return question
    raise InvalidInput(
        "neither --delta nor --epsilon is given",
        why="no ε holds with δ = 0 here",
        fix="add --delta, such as 1e-6, or --epsilon",
    )


def _told_with(question: LossQuestion, bounds: Bounds | None) -> Fraction | None:
    """The δ with which the loss is put into words."""
    if question.delta is not None:
        return question.delta or None
    return Fraction(bounds.upper) if bounds is not None and 0 < bounds.upper < 1 else None


def _for_programs(found: LossAnswer) -> dict[str, Any]:
    asked, bounds = found.asked, found.bounds
    out: dict[str, Any] = {"loss": str(asked.loss), "asked": {}}
    if asked.delta is not None:
        out["asked"]["delta"] = float(asked.delta)
    if asked.epsilon is not None:
        out["asked"]["epsilon"] = float(asked.epsilon)
    if asked.found:
        out["found"] = {asked.found.kind: float(asked.found.shown)}
    if bounds is not None:
        out["epsilon" if asked.delta is not None else "delta"] = {
            "lower": _finite(bounds.lower),
            "upper": _finite(bounds.upper),
            "how": bounds.method,
            "loose": bounds.method == RENYI,
        }
    out["advantage"] = found.advantage
    if found.tradeoff:
        out["tradeoff"] = [{"alpha": float(alpha), "beta": beta} for alpha, beta in found.tradeoff]
    out["meaning"] = found.meaning.splitlines()
    return out


def _finite(value: float) -> float | None:
    """JSON has no infinity: null is where no bound holds."""
    return value if math.isfinite(value) else None


def _print(found: LossAnswer, console: Console) -> None:
    asked, bounds = found.asked, found.bounds
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    if asked.found:
        which = "the least that keeps it" if asked.found.is_noise else "the most that keeps it, each"
        table.add_row(
            asked.found.sign, Text.assemble(bold(asked.found.shown), f"  ({asked.found.kind}: {which})")
        )
    if bounds is not None:
        is_epsilon = asked.delta is not None
        table.add_row("ε" if is_epsilon else "δ", Text.assemble(bold(_upper(asked, bounds)), "  at most"))
        table.add_row("", f"{round_down_text(bounds.lower)}  at least")
        given = asked.delta if is_epsilon else asked.epsilon
        table.add_row("at δ" if is_epsilon else "at ε", round_up_text(given or Fraction(0)))
        table.add_row("found by", _engine(bounds))
    table.add_row(
        "advantage", f"{round_up_text(found.advantage)}  at most  (0: nobody can tell who is in, 1: anybody)"
    )
    console.print(table, soft_wrap=True)
    if bounds is not None and math.isinf(bounds.upper):
        console.print("\nNo ε can be promised with so small a δ.", soft_wrap=True)
    if found.tradeoff:
        console.print()
        console.print(_curve(found.tradeoff), soft_wrap=True)
    console.print("\n", bold("What it means"), sep="")
    console.print(escape_lines(found.meaning), soft_wrap=True)


def _upper(asked: LossQuestion, bounds: Bounds) -> str:
    """As it is shown; of pure losses the exact sum, so that 0.1 and 0.2 are 0.3."""
    is_pure = asked.delta == 0 and bounds.upper < math.inf
    exact = asked.loss.cost(orders=(2,)).epsilon if is_pure else None
    return round_up_text(bounds.upper if exact is None else exact)


def _engine(bounds: Bounds) -> str:
    if bounds.method == RENYI:
        return f"{bounds.method}: it holds, but it is looser; the truth may be far below"
    return f"{bounds.method}, certified from both sides"


def _curve(points: list[tuple[Fraction, float]]) -> Table:
    table = Table(title="What a test “is this person in?” must get wrong", title_justify="left")
    table.add_column("false alarms α", justify="right")
    table.add_column("misses β, at least", justify="right")
    table.add_column("of 1 − α, by guessing")
    for alpha, beta in points:
        guessing = float(1 - alpha)
        solid = math.floor(_BAR * beta)
        table.add_row(
            round_up_text(alpha, 6),
            round_down_text(beta, 6),
            "█" * solid + "░" * max(0, math.floor(_BAR * guessing) - solid),
        )
    return table


def _picture(question: LossQuestion, which: str) -> str:
    from hubbub.report import charts

    def track(items: Sequence[float]) -> Iterable[float]:
        return _watched(items, "drawing")

    loss, delta = question.loss, question.delta
    if which == "tradeoff":
        return charts.tradeoff_picture(loss, track=track)
    if delta is None and question.epsilon is not None:
        found = loss.delta(question.epsilon)
        delta = Fraction(found) if 0 < found < 1 else None
    if which == "distribution":
        return charts.distribution_picture(loss, Fraction(1, 10**6) if delta is None else delta, track=track)
    return charts.curve_picture(loss, delta, track=track)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        put(text)
    else:
        write_output(output, text)
