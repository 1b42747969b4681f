"""An audit of a training run by itself: canaries, coins, and a lower bound of ε beside the proven upper one.

Canaries are units whose gradient is one enormous number in a coordinate of their own. A fair coin decides of
each whether it takes part. The run treats those that do as any other unit: lots, clipping, noise. One then
guesses from every step's noisy gradient which coins fell heads. Who guesses better than ε allows has shown
that the run does not keep it. Other units' gradients are noise to the guesses: with few of them, more shows.

After Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (2023), white-box.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hubbub.errors import InvalidInput, Unsupported
from hubbub.noise import bernoulli
from hubbub.numbers import Number, parse_integer, parse_probability
from hubbub.training.batch_sampling import ShuffledSampling, _shuffled
from hubbub.training.examples import Examples, Microbatch
from hubbub.training.gradient_storage import Doubles, PerExampleGradient
from hubbub.training.per_example_gradients import Found, GradientMethod
from hubbub.training.trainer import Trainer

__all__ = ["Audit", "audit", "epsilon_lower_bound"]

_LOUD = 1e6
"""A canary's gradient, in units of the threshold: it is clipped, or else it shows."""
_LEAST_GUESSES = 20
_SHARES = (1, 4, 32)
"""Of how many canaries one guesses: all, or the most telling parts of them."""


@dataclass(frozen=True)
class Audit:
    """What an audit found. `lower` holds with this confidence, `upper` is proven.

    >>> Audit(lower=0.4, upper=1.0, delta=1e-5, confidence=0.95, canaries=100, told_by="the sum").caught
    False
    """

    lower: float
    upper: float
    delta: float
    confidence: float
    canaries: int
    told_by: str

    @property
    def caught(self) -> bool:
        """Whether the run was shown to cost more than it says."""
        return self.lower > self.upper

    def __str__(self) -> str:
        return (
            f"ε is at least {self.lower:.3g} ({self.confidence:.0%} sure, by {self.told_by}, "
            f"{self.canaries} canaries) and at most {self.upper:.4g} (proven), at δ = {self.delta:.1g}"
        )


def audit(
    trainer: Trainer, *, canaries: int = 1000, delta: Number = 1e-5, confidence: Number = 0.95
) -> Audit:
    """Run the trainer with canaries, and say how much of ε one could see.

    The weights that come out were trained with canaries: they are for the audit only. The run is charged.

    >>> from torch.nn.functional import mse_loss
    >>> from hubbub.training import make_private
    >>> model = nn.Linear(20, 20)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = make_private(model, optimizer, (torch.randn(40, 20), torch.randn(40, 20)), loss=mse_loss,
    ...                   clip=1.0, rate=0.5, steps=5, sigma=2.0, account=None)
    >>> audit(trainer, canaries=200).caught
    False

    Guarantee: on a run that keeps its proven ε, `caught` is True with probability at most 1 − confidence.
    Assumes: canaries are units as all others to the run.
    Proof: docs/proofs/audit.md
    """
    chance, wanted = (
        float(parse_probability(delta, "delta")),
        parse_integer(canaries, "canaries", minimum=_LEAST_GUESSES),
    )
    sure = float(parse_probability(confidence, "confidence"))
    if isinstance(trainer.schedule.lots, ShuffledSampling):
        raise Unsupported(
            "the run has shuffled lots of a public number of units",
            why="canaries are units that are added, and would change that number",
            fix="audit the same run with Poisson lots",
        )
    if trainer.step:
        raise InvalidInput(
            "the run has begun",
            why="canaries take part in all of it, or what they show is not about its ε",
            fix="audit a run that was made for it",
        )
    planted = _Planted(trainer, wanted)
    sums, jumps = planted.run()
    groups = planted.places()
    ways = [
        (f"{what}{where}", scores[chosen], planted.coins[chosen], share)
        for what, scores in (("the sum of gradients", sums), ("jumps between steps", jumps))
        for where, chosen in groups
        for share in _SHARES
        if chosen.size // share >= _LEAST_GUESSES
    ]
    # All ways were fixed beforehand; each may fail with its share of the doubt.
    doubt = (1 - sure) / len(ways)
    lower, told_by = max(
        (_shown(scores, coins, share, chance, doubt), name) for name, scores, coins, share in ways
    )
    return Audit(lower, trainer.epsilon(delta), chance, sure, wanted, told_by)


def epsilon_lower_bound(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """The largest ε that so many right guesses refute, with a chance of at most `doubt` to be wrong.

    >>> round(epsilon_lower_bound(1000, 1000, 1000, 0.0, 0.05), 2)
    5.81

    Guarantee: an (ε, δ)-private run gives so many right guesses with probability at most `doubt`, for every
        ε below what is returned.
    Assumes: each canary's coin is fair and independent; guesses look at the run's releases alone.
    Proof: docs/proofs/audit.md
    """
    if _chance_of(canaries, guesses, right, 0.0, delta) > doubt:
        return 0.0
    low, high = 0.0, 1.0
    while high < 60 and _chance_of(canaries, guesses, right, high, delta) <= doubt:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if _chance_of(canaries, guesses, right, middle, delta) <= doubt:
            low = middle
        else:
            high = middle
    return low


def _chance_of(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """A bound of the chance of at least `right` right guesses under (ε, δ)."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    counts = np.arange(guesses + 1)
    logs = np.array([math.lgamma(k + 1) for k in counts])
    with np.errstate(divide="ignore"):
        chances = np.exp(
            logs[-1]
            - logs
            - logs[::-1]
            + counts * math.log(accuracy)
            + counts[::-1] * -np.logaddexp(0.0, epsilon)
        )
    tail = float(chances[right:].sum())
    # The worst use of δ: to push as many outcomes as pay over the line.
    below = np.cumsum(chances[:right][::-1])
    worst = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * worst)


def _shown(scores: Doubles, coins: NDArray[np.bool_], share: int, delta: float, doubt: float) -> float:
    """Guess that the highest scores are in and the lowest out."""
    order, half = np.argsort(scores), scores.size // share // 2
    right = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    return epsilon_lower_bound(scores.size, 2 * half, right, delta, doubt)


class _Planted:
    """A trainer among whose units are canaries."""

    def __init__(self, trainer: Trainer, canaries: int) -> None:
        parameters = [p for group in trainer.schedule.groups for p in group.parameters]
        sizes = np.array([p.numel() for p in parameters])
        if canaries > sizes.sum():
            raise InvalidInput(
                "there are more canaries than parameters",
                why="each has a coordinate of its own",
                fix=f"pass at most {sizes.sum()} canaries",
            )
        self.trainer = trainer
        self.parameters = parameters
        chosen = np.sort(_shuffled(np.arange(sizes.sum()))[:canaries])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self.owner = np.searchsorted(starts, chosen, side="right") - 1
        self.place = chosen - starts[self.owner]
        self.coins: NDArray[np.bool_] = bernoulli(0.5, size=canaries)

    def places(self) -> list[tuple[str, NDArray[np.int64]]]:
        """All canaries; and those of each parameter, in case only one is unprotected."""
        names = {id(p): name for name, p in self.trainer.model.named_parameters()}
        each = [
            (f" of {names[id(p)]}", np.flatnonzero(self.owner == number))
            for number, p in enumerate(self.parameters)
        ]
        return [("", np.arange(self.coins.size)), *each]

    def run(self) -> tuple[Doubles, Doubles]:
        """Each canary's scores: its coordinate's sum over all steps, and its largest jump between two."""
        trainer = self.trainer
        real = trainer._examples, trainer._way  # noqa: SLF001 - an audit takes the trainer apart
        inside = np.flatnonzero(self.coins)
        trainer._examples = _Examples(real[0], inside)  # type: ignore[assignment] # noqa: SLF001
        trainer._way = _Way(real[1], self)  # noqa: SLF001
        try:
            seen = np.array([self._observed() for _ in trainer])
        finally:
            trainer._examples, trainer._way = real  # noqa: SLF001
        jumps = np.abs(np.diff(seen, axis=0)).max(axis=0, initial=0.0)
        # Gradients point down the loss, but a canary's is added as it is.
        return seen.sum(axis=0), jumps

    def _observed(self) -> Doubles:
        values = np.empty(self.coins.size)
        for number, parameter in enumerate(self.parameters):
            mine = self.owner == number
            assert parameter.grad is not None
            values[mine] = parameter.grad.numpy().reshape(-1)[self.place[mine]]
        return values


@dataclass(frozen=True, eq=False)
class _Examples:
    """The real units, and after them the canaries that take part."""

    real: Examples
    inside: NDArray[np.int64]

    @property
    def _units(self) -> int:
        return self.real._units + self.inside.size  # noqa: SLF001

    def chunks(self, lot: NDArray[np.int64], size: int, grain: int) -> Iterator[Microbatch]:
        """As those of the real units; a canary is blank but for its number, in a tensor of its own."""
        units = self.real._units  # noqa: SLF001
        for start in range(0, lot.size, size):
            part = lot[start : start + size]
            places = -(-part.size // grain) * grain
            chunk = self.real._chunk(np.where(part < units, part, -1), places)  # noqa: SLF001
            numbers = np.full((places, self.real.width), -1)
            numbers[: part.size, 0] = np.where(part < units, -1, self.inside[np.maximum(part - units, 0)])
            canary = torch.from_numpy(numbers)
            yield replace(
                chunk,
                batch=[*chunk.batch, canary],
                good=chunk.good | (canary[:, 0] >= 0),
                blank=[*chunk.blank, torch.tensor(-1)],
            )


class _Way(GradientMethod):
    """The way of the real units; a canary's gradient is what it is by definition."""

    def __init__(self, real: GradientMethod, planted: _Planted) -> None:
        super().__init__(real.objective, real.parameters, real.name)
        self._real = real
        self._planted = planted

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`; the last tensor of the batch has the canaries' numbers."""
        *examples, numbers = batch
        number = numbers[:, 0].numpy()
        found = self._real.gradients(examples, weights)
        slots = np.flatnonzero(number >= 0)
        canaries, planted = number[slots], self._planted
        is_canary = torch.from_numpy(number >= 0)
        changed: Found = {}
        for place, parameter in enumerate(planted.parameters):
            mine = planted.owner[canaries] == place
            piece = found.get(parameter) or _nothing(parameter, number.size)
            changed[parameter] = _Loud(
                piece.without(is_canary), slots[mine], planted.place[canaries[mine]], parameter.numel()
            )
        return changed


def _nothing(parameter: nn.Parameter, units: int) -> PerExampleGradient:
    from hubbub.training.gradient_storage import DenseGradient

    return DenseGradient(torch.zeros(units, *parameter.shape))


@dataclass(frozen=True, eq=False)
class _Loud:
    """A piece in which some units are canaries: one loud number each."""

    real: PerExampleGradient
    slots: NDArray[np.int64]
    places: NDArray[np.int64]
    size: int

    def chain(self, units: int) -> int:
        """No coordinate gets more than one canary."""
        return self.real.chain(units) + 1

    @cached_property
    def squares(self) -> Doubles:
        """The real ones' and the canaries'."""
        found = self.real.squares.copy()
        found[self.slots] = _LOUD**2 * (1 + 2.0**-20)
        return found

    @property
    def reach(self) -> Doubles:
        """Of canaries, the norm."""
        found = self.real.reach.copy()
        found[self.slots] = self.squares[self.slots]
        return found

    def add_up(self, weights: Tensor, out: Tensor) -> None:
        """The real ones' sum, and each canary in its place."""
        self.real.add_up(weights, out)
        loud = (weights[torch.from_numpy(self.slots)] * _LOUD).to(out.dtype)
        out.view(-1).index_add_(0, torch.from_numpy(self.places), loud)

    def without(self, bad: Tensor) -> PerExampleGradient:
        """Canaries are never bad."""
        return replace(self, real=self.real.without(bad))

    def dense(self) -> Tensor:
        """All of them, written out."""
        values = self.real.dense().clone()
        values.view(values.shape[0], -1)[torch.from_numpy(self.slots), torch.from_numpy(self.places)] = _LOUD
        return values
