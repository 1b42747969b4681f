"""All pictures of the pages: `python website/pictures.py` draws them anew, in docs/."""

import math
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from textbook_pictures import draw_textbook

import hubbub as hb
from hubbub.accounting import PrivacyFilter
from hubbub.report.charts import Axis, Frame, draw_burn_down, draw_tradeoff
from hubbub.report.result_charts import draw_result
from hubbub.sql.result import Result

__all__ = ["draw_all"]

_ROOT = Path(__file__).parents[1]


def draw_all() -> dict[str, str]:
    """All pictures, by their paths below docs/."""
    guides = {
        "belief.svg": draw_beliefs(),
        "tradeoff.svg": draw_tradeoff(hb.PrivacyLoss.pure(1)),
        "budget-sums.svg": draw_budget(hb.PrivacyLoss.approximate(0.1, 1e-7), 1),
        "budget-curve.svg": draw_budget(hb.PrivacyLoss.pure(0.01), 8),
        "ranges.svg": draw_ranges(),
        "synthetic.svg": draw_synthetic_rows(),
        **draw_released_tables(),
    }
    return {
        **{f"textbook/pictures/{name}": picture for name, picture in draw_textbook().items()},
        **{f"pictures/{name}": picture for name, picture in guides.items()},
    }


def draw_beliefs() -> str:
    """What somebody can come to believe about one person at most, against ε."""
    frame = Frame(
        "How far a belief can move",
        "the largest probability that anybody can come to, from what was believed before",
        across=Axis("ε", 0, 10),
        up=Axis("belief afterwards, at most", 0, 1),
    )
    epsilons = [step / 10 for step in range(101)]
    parts = []
    for prior, kind, place in ((0.5, "main", 8), (0.1, "mark", 22), (0.01, "pale", 46)):
        points = [(e, hb.PrivacyLoss.pure(e).posterior(prior).upper_bound if e else prior) for e in epsilons]
        parts += [frame.line(points, kind), frame.text(*points[place], f"before: {prior:.0%}", dx=10, dy=6)]
    return frame.render(*parts)


def draw_budget(loss: hb.PrivacyLoss, every: int) -> str:
    """The room for one more charge after each of the charges that fit, one a day."""
    budget = hb.Budget(1, Fraction(1, 10**6))
    state, moments, count = PrivacyFilter(budget), [], 0
    while state.allows(loss):
        state, count = state.charge(loss), count + 1
        if count % every == 0 or not state.allows(loss):
            day = f"{2026 + count // 336}-{1 + count % 336 // 28:02d}-{1 + count % 28:02d}T08:00"
            moments.append((day, count, float(state.remaining().epsilon)))
    return draw_burn_down(moments, "1")


def draw_ranges() -> str:
    """The standard deviation of the count of a range, from noisy cells and from a tree of noisy counts."""
    frame = Frame(
        "Ranges: cells or a tree",
        "standard deviation of the count of a range at ε = 1, in the worst case",
        across=Axis("cells in the range", 0, 6, logarithmic=True),
        up=Axis("standard deviation", 0, 4, logarithmic=True),
    )
    cell = hb.Laplace.of(sensitivity=1, epsilon=1).variance
    lengths = [2**power for power in range(20)]
    tree = hb.Laplace.of(sensitivity=21, epsilon=1).variance  # a row is in 21 nodes of a tree over 2^20 cells
    return frame.render(
        frame.line([(n, math.sqrt(n * cell)) for n in lengths], "mark"),
        frame.line([(n, math.sqrt(max(1, 2 * math.log2(n)) * tree)) for n in lengths], "main"),
        frame.text(3e4, math.sqrt(3e4 * cell), "noisy cells, added up", dx=-8, dy=-6, anchor="end"),
        frame.text(30, math.sqrt(10 * tree), "a tree of noisy counts", dy=-12, anchor="middle"),
    )


def draw_synthetic_rows() -> str:
    """Shares of reasons among synthetic rows, with the intervals of the synopsis they come from."""
    # Released once, by the commands of the tutorial: the interval of each count, and synthetic rows of 1,000.
    reasons = {
        "injury": (8867, 9011, 237),
        "fever": (7591, 7734, 204),
        "back pain": (6277, 6420, 169),
        "check-up": (5233, 5377, 141),
        "birth": (3253, 3396, 88),
        "heart": (2959, 3103, 81),
        "allergy": (1767, 1910, 49),
        "migraine": (1101, 1245, 31),
    }
    visits = 37_622  # of all reasons, as the synopsis says
    frame = Frame(
        "Synthetic rows reproduce what was measured",
        "bars: of 1,000 synthetic rows; dots: 95 % intervals of the synopsis",
        across=Axis("reasons, the most common first", 0.4, 8.6),
        up=Axis("percent", 0, 30),
    )
    parts = []
    for place, (reason, (low, high, rows)) in enumerate(reasons.items(), start=1):
        share = rows / 10
        parts += [
            frame.bar(place, 0.8, share),
            frame.line([(place - 0.45, 100 * low / visits), (place + 0.45, 100 * low / visits)], "mark"),
            frame.line([(place - 0.45, 100 * high / visits), (place + 0.45, 100 * high / visits)], "mark"),
            frame.text(place, share, reason, dy=-10, anchor="middle"),
        ]
    return frame.render(*parts)


def draw_released_tables() -> dict[str, str]:
    """Charts of a table that was released once; noise is never drawn twice for the same picture."""
    table = Result.from_json((_ROOT / "website" / "visits.json").read_text(encoding="utf-8"))
    return {"visits-by-region.svg": draw_result(table, "visits"), "visits-and-costs.svg": draw_result(table)}


if __name__ == "__main__":
    for name, picture in draw_all().items():
        path = _ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(picture, encoding="utf-8")
