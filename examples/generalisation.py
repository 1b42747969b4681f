"""Privacy is a form of regularisation: what cannot memorise anybody cannot overfit to anybody.

    python examples/generalisation.py                  a small run, in seconds; writes generalisation.svg
    python examples/generalisation.py --full           the picture of docs/training.md, in a minute
    python examples/generalisation.py --output FILE    where the picture goes

One network learns the same examples twice: by plain SGD, and by private SGD with ε = 1. A fifth of the
labels is wrong. Plain SGD learns these by heart as well, and gets worse at examples that it has not seen;
private SGD does about as well on examples that it has not seen as on those that it learned from.

The examples are made up. Of real ones, how well they are learned is an answer that must be paid for.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hubbub as hb
from hubbub.report.charts import Axis, Frame

EPSILON, DELTA = 1, 1e-5
WRONG, FEATURES, RATE = 0.2, 20, 0.1

Labelled = tuple[Tensor, Tensor]
Curve = list[tuple[float, float]]


def made_up(count: int) -> Labelled:
    """Which side of a line a point lies on; a fifth of the labels is wrong."""
    x = torch.randn(count, FEATURES)
    return x, ((x[:, :4].sum(1) > 0) ^ (torch.rand(count) < WRONG)).long()


def network() -> nn.Module:
    """Large enough to learn every label by heart."""
    return nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 2))


def plain(model: nn.Module, data: Labelled, steps: int) -> Iterator[int]:
    """Ordinary SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        lot = torch.rand(len(data[0])) < RATE
        optimizer.zero_grad()
        F.cross_entropy(model(data[0][lot]), data[1][lot]).backward()
        optimizer.step()
        yield step + 1


def private(model: nn.Module, data: Labelled, steps: int) -> Iterator[int]:
    """The same within (ε, δ)."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    people = len(data[0])
    yield from hb.training.make_private(
        model,
        optimizer,
        data,
        loss=F.cross_entropy,
        clipping_norm=0.1,
        sampling_rate=RATE,
        steps=steps,
        budget=hb.Budget(EPSILON, DELTA),
        lot_size=round(RATE * people),
        account=None,
    )


@dataclass
class Course:
    """How well a run does on its own examples and on others, by epochs."""

    seen: Curve
    unseen: Curve

    @property
    def gap(self) -> float:
        """In percent, in the end."""
        return self.seen[-1][1] - self.unseen[-1][1]


def course(way: Iterator[int], model: nn.Module, data: Labelled, fresh: Labelled, steps: int) -> Course:
    result = Course([], [])
    for step in way:
        if step % max(1, steps // 40) == 0 or step == 1:
            result.seen.append((step * RATE, right(model, data)))
            result.unseen.append((step * RATE, right(model, fresh)))
    return result


def right(model: nn.Module, data: Labelled) -> float:
    with torch.no_grad():
        return 100 * (model(data[0]).argmax(1) == data[1]).float().mean().item()


def picture(alone: Course, crowd: Course) -> str:
    """Both courses, as SVG."""
    last, low = alone.seen[-1][0], min(y for c in (alone, crowd) for _, y in (*c.seen, *c.unseen))
    frame = Frame(
        "The same network, with and without privacy",
        f"labels guessed right, a fifth of them wrong; learned from or not; private: ε = {EPSILON}",
        across=Axis("epochs", 0, 1.3 * last),
        up=Axis("percent right", 5 * (low // 5), 100),
    )
    parts = []
    for name, result, kind in (("plain", alone, "mark"), ("private", crowd, "main")):
        parts += [frame.area([*result.seen, *reversed(result.unseen)])] if kind == "main" else []
        apart = abs(result.gap) > 4
        for words, curve, dy in (("learned from", result.seen, -4), ("others", result.unseen, 12)):
            parts.append(frame.line(curve, kind))
            parts.append(frame.text(*curve[-1], f"{name}: {words}", dx=6, dy=4 if apart else dy))
    return frame.render(*parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="The generalisation gap, with and without privacy.")
    parser.add_argument("--full", action="store_true", help="more examples, and longer")
    parser.add_argument("--output", type=Path, default=Path("generalisation.svg"))
    arguments = parser.parse_args()
    torch.manual_seed(0)  # of examples and first weights; nothing seeds the noise
    people, steps = (4000, 1600) if arguments.full else (2000, 300)
    data, fresh = made_up(people), made_up(5000)
    print(f"{people} made-up examples, a fifth of them with a wrong label; {steps} steps of SGD")
    results = []
    for name, way in (("plain", plain), ("private", private)):
        model = network()
        one = course(way(model, data, steps), model, data, fresh, steps)
        print(f"{name}: {one.seen[-1][1]:.1f} % right of its own, {one.unseen[-1][1]:.1f} % of others")
        results.append(one)
    alone, crowd = results
    print(f"The gap: {alone.gap:.1f} points without privacy, {crowd.gap:.1f} with ε = {EPSILON}")
    arguments.output.write_text(picture(alone, crowd), encoding="utf-8")
    print(f"The picture is in {arguments.output}.")


if __name__ == "__main__":
    main()
