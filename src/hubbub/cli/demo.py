"""`make demo`: the textbook's three examples on a population made up on the spot."""

from collections.abc import Iterator
from itertools import islice, product

from rich.console import Console
from rich.table import Table

from hubbub.bounded import Bounded, Sensitivity
from hubbub.counting import histogram
from hubbub.mechanisms import Laplace, PermuteAndFlip, RandomizedResponse
from hubbub.noise import bernoulli, geometric
from hubbub.unit import Unit

__all__ = ["demo"]

_NAMES = 10_000
_SHOWN = 8
_CONDITIONS = {
    "back pain": 0.29,
    "high blood pressure": 0.285,
    "hay fever": 0.21,
    "migraine": 0.14,
    "asthma": 0.08,
    "diabetes": 0.07,
}
_BAR = 32


def demo() -> None:
    """The textbook's examples with their error bars: names, conditions, the coin toss."""
    console = Console()
    _names(console)
    _conditions(console)
    _coins(console)


def _names(console: Console) -> None:
    """Example 3.3: a histogram of 10,000 first names; one person has one name, so it costs ε once."""
    names = list(islice(_made_up_names(), _NAMES))
    people = [name for rank, name in enumerate(names) for _ in range(geometric(12_000 // (rank + 8) + 1))]
    mechanism = Laplace.of(sensitivity=1, epsilon=1, cells=_NAMES)
    exact = histogram(people, names)
    release = mechanism.release(exact)
    each, every = mechanism.error(0.95), mechanism.error(0.95, cells=_NAMES)
    table = Table(title=f"The {_SHOWN} most common of {_NAMES:,} first names, ε = 1", title_justify="left")
    table.add_column("name")
    table.add_column("released", justify="right")
    table.add_column(f"± {each} each, ± {every} all at once (95 %)")
    most = int(release.value.max())
    for index in release.value.argsort()[::-1][:_SHOWN]:
        table.add_row(names[index], f"{release.value[index]:,}", bar(release.value[index], every, most))
    console.print(table)
    bound = mechanism.union_bound(0.95, cells=_NAMES)
    console.print(f"Theorem 3.8: with 95 % no count of {_NAMES:,} is off by more than {bound:.1f}.\n")


def _conditions(console: Console) -> None:
    """Example 3.4: the most common condition; one person may have them all, and still it costs ε once."""
    people = 20_000
    counts = [int(bernoulli(share, size=people).sum()) for share in _CONDITIONS.values()]
    scores = Bounded.derived(
        counts, Sensitivity(len(counts), linf=1), Unit("person"), "each person adds at most 1 to each count"
    )
    mechanism = PermuteAndFlip.of(sensitivity=1, epsilon=0.1, monotone=True)
    release = mechanism.release(scores)
    winner = list(_CONDITIONS)[release.value]
    console.print(
        f"Most common of {len(counts)} conditions, {people:,} people, ε = 0.1: [bold]{winner}[/bold]"
    )
    console.print(
        f"  its count is at most {release.error(0.95):.0f} below the best (95 %); no count is shown.\n"
    )


def _coins(console: Console) -> None:
    """The coin toss: each person answers for herself, nobody has to be trusted."""
    people = 20_000
    truth = bernoulli(0.3, size=people).astype(int)
    mechanism = RandomizedResponse.coin()
    reports = mechanism.release(truth)
    estimate = mechanism.estimate(reports.value)
    yes, low, high = (float(part[1]) / people for part in (estimate.counts, estimate.low, estimate.high))
    table = Table(
        title=f"“Did you break the rule last week?” {people:,} people toss coins", title_justify="left"
    )
    table.add_column("")
    table.add_column("share", justify="right")
    table.add_column("")
    table.add_row("said yes", f"{reports.value.mean():.1%}", "what the coins let through")
    table.add_row("estimate", f"{yes:.1%}", bar(yes, high - yes, 0.5))
    table.add_row("", "", f"between {low:.1%} and {high:.1%} (95 %)")
    console.print(table)
    console.print(f"{mechanism}: each answer stays deniable.")


def bar(value: float, error: float, most: float) -> str:
    """A bar whose end is as blurred as the answer.

    >>> bar(50, 10, 100)
    '█████████████▒▒▒▒▒▒'
    """
    cell = most / _BAR
    solid = max(0, round((value - error) / cell))
    blurred = max(1, round((value + error) / cell) - solid)
    return "█" * solid + "▒" * blurred


def _made_up_names() -> Iterator[str]:
    """Names that nobody has, without end: Balino, Balira, …"""
    starts = ["Ba", "Ce", "Di", "Fo", "Gu", "Ja", "Ke", "Li", "Mo", "Nu", "Pa", "Re", "Si", "To", "Vu", "Za"]
    ends = ["li", "ra", "no", "me", "ta", "sa", "vi", "du", "ko", "ne"]
    for length in (2, 3):
        for parts in product(starts, *[ends] * length):
            yield "".join(parts)
