"""Audit a training run: canaries, coin flips, and a lower bound of ε beside the proven upper bound.

A canary is a unit with a gradient of one enormous number in a coordinate of its own. A fair coin decides
whether it takes part in the run, which treats it like any other unit: sampling, clipping, noise. The audit
then guesses all coins from the noisy gradients of every step. If it guesses better than ε allows, the run
does not keep its ε. Other units' gradients act as noise on the guesses, so the fewer there are, the more is
seen.

After Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (2023), white-box.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hubbub.errors import InvalidInput, Unsupported
from hubbub.noise import bernoulli
from hubbub.numbers import Number, format_down, format_percent, format_up, parse_integer, parse_probability
from hubbub.training.batch_sampling import ShuffledSampler, shuffle
from hubbub.training.examples import Examples, Microbatch
from hubbub.training.gradient_storage import DenseGradient, FloatArray, PerExampleGradient
from hubbub.training.per_example_gradients import GradientMethod, Gradients
from hubbub.training.trainer import Trainer

__all__ = ["TrainingAudit", "audit_training", "epsilon_lower_bound", "white_box"]

_CANARY_NORM = 1e6
"""A canary's gradient in units of the clipping norm: if it is not clipped, it shows."""
_MIN_GUESSES = 20
_GUESS_FRACTIONS = (1, 4, 32)
"""Guess the coins of all canaries, or only of the quarter or 1/32 with the most extreme scores."""


@dataclass(frozen=True)
class TrainingAudit:
    """The result of an audit.

    >>> result = TrainingAudit(0.4, 1.0, delta=1e-5, confidence=0.95, canaries=100, statistic="the sum")
    >>> result.violates_bound
    False
    >>> result
    TrainingAudit(0.4 ≤ ε ≤ 1 at δ = 1e-5, 95 % confidence, 100 canaries)
    """

    epsilon_lower: float
    """A lower bound of ε that holds with this confidence."""
    epsilon_upper: float
    """The proven upper bound of ε."""
    delta: float
    confidence: float
    canaries: int
    statistic: str
    """The statistic of the gradients that gave the lower bound."""

    @property
    def violates_bound(self) -> bool:
        """True if the audit refutes the proven bound."""
        return self.epsilon_lower > self.epsilon_upper

    def __repr__(self) -> str:
        low, high, delta, confidence = self._figures()
        return (
            f"TrainingAudit({low} ≤ ε ≤ {high} at δ = {delta}, {confidence} confidence, "
            f"{self.canaries} canaries)"
        )

    def _figures(self) -> tuple[str, str, str, str]:
        """Return both bounds of ε, rounded outward, δ and the confidence."""
        bounds = format_down(self.epsilon_lower, 3), format_up(self.epsilon_upper, 4)
        return *bounds, format_up(self.delta), format_percent(self.confidence)

    def __str__(self) -> str:
        low, high, delta, confidence = self._figures()
        return (
            f"ε is at least {low} ({confidence} confidence, by {self.statistic}, {self.canaries} canaries) "
            f"and at most {high} (proven), at δ = {delta}"
        )

    def _repr_html_(self) -> str:
        verdict = "refutes" if self.violates_bound else "is consistent with"
        low, high, delta, confidence = self._figures()
        return (
            f"<table><tr><th>lower bound of ε</th><td>{low} "
            f"({confidence} confidence, {self.canaries} canaries)</td></tr>"
            f"<tr><th>proven upper bound</th><td>{high} at δ = {delta}</td></tr>"
            f"<tr><td colspan='2'>The audit {verdict} the proven bound.</td></tr></table>"
        )


def audit_training(
    trainer: Trainer, *, canaries: int = 1000, delta: Number = 1e-5, confidence: Number = 0.95
) -> TrainingAudit:
    """Run a trainer with canaries, and bound its ε from below.

    The trained weights have seen canaries: they are for the audit only. The run is charged.

    Args:
        trainer: A trainer with Poisson sampling that has not started.
        canaries: The number of canaries, at most the number of parameters.
        delta: The δ at which ε is bounded.
        confidence: The probability with which the lower bound holds.

    >>> from torch.nn.functional import mse_loss
    >>> from hubbub.training import make_private
    >>> model = nn.Linear(20, 20)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = make_private(model, optimizer, (torch.randn(40, 20), torch.randn(40, 20)), loss=mse_loss,
    ...                        clipping_norm=1.0, sampling_rate=0.5, steps=5, noise_multiplier=2.0,
    ...                        account=None)
    >>> audit_training(trainer, canaries=200).violates_bound
    False

    Guarantee: for a run that keeps its proven ε, `violates_bound` is true with probability at most
        1 − confidence.
    Assumes: the run treats canaries like all other units.
    Proof: docs/proofs/audit.md
    """
    count = parse_integer(canaries, "canaries", minimum=_MIN_GUESSES)
    slack, level = (
        float(parse_probability(delta, "delta")),
        float(parse_probability(confidence, "confidence")),
    )
    if isinstance(trainer.schedule.sampler, ShuffledSampler):
        raise Unsupported(
            "the run uses shuffled lots of a public number of units",
            why="canaries are added units, and would change that number",
            fix="audit the same run with Poisson sampling",
        )
    if trainer.step:
        raise InvalidInput(
            "the run has begun",
            why="canaries must take part in all of it, or they do not measure its ε",
            fix="audit a new trainer",
        )
    experiment = _CanaryExperiment(trainer, count)
    sums, jumps = experiment.run()
    groups = experiment.canary_groups()
    tests = [
        (f"{statistic}{where}", scores[members], experiment.coins[members], fraction)
        for statistic, scores in (("the sum of gradients", sums), ("jumps between steps", jumps))
        for where, members in groups
        for fraction in _GUESS_FRACTIONS
        if members.size // fraction >= _MIN_GUESSES
    ]
    # All tests were fixed beforehand; each may fail with its share of the error probability (Bonferroni).
    failure = (1 - level) / len(tests)
    lower, statistic = max(
        (_lower_bound(scores, coins, fraction, slack, failure), name)
        for name, scores, coins, fraction in tests
    )
    return TrainingAudit(lower, trainer.epsilon(delta), slack, level, count, statistic)


def white_box(make_trainer: Callable[[], Trainer]) -> Callable[[NDArray[np.bool_]], FloatArray]:
    """Return a run for `audit_runs`: canaries with enormous gradients, scored by the noisy gradients.

    Args:
        make_trainer: Makes a new trainer for each run; it is charged like any other.
    """

    def run(coins: NDArray[np.bool_]) -> FloatArray:
        experiment = _CanaryExperiment(make_trainer(), coins.size)
        experiment.coins = coins
        return experiment.run()[0]

    return run


def epsilon_lower_bound(canaries: int, guesses: int, correct: int, delta: float, failure: float) -> float:
    """The largest ε that this number of correct guesses refutes.

    Args:
        canaries: The number of canaries.
        guesses: The number of coins that were guessed.
        correct: The number of correct guesses.
        delta: The δ at which ε is bounded.
        failure: The probability with which the bound may be wrong.

    >>> round(epsilon_lower_bound(1000, 1000, 1000, 0.0, 0.05), 2)
    5.81

    Guarantee: for every ε below the returned one, an (ε, δ)-private run yields at least `correct` correct
        guesses with probability at most `failure`.
    Assumes: the coins are fair and independent; guesses depend on the run's releases alone.
    Proof: docs/proofs/audit.md
    """
    if _tail_bound(canaries, guesses, correct, 0.0, delta) > failure:
        return 0.0
    low, high = 0.0, 1.0
    while high < 60 and _tail_bound(canaries, guesses, correct, high, delta) <= failure:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if _tail_bound(canaries, guesses, correct, middle, delta) <= failure:
            low = middle
        else:
            high = middle
    return low


def _tail_bound(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """An upper bound on the probability of at least `correct` correct guesses under (ε, δ)."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    counts = np.arange(guesses + 1)
    log_factorials = np.array([math.lgamma(k + 1) for k in counts])
    with np.errstate(divide="ignore"):
        binomial = np.exp(
            log_factorials[-1]
            - log_factorials
            - log_factorials[::-1]
            + counts * math.log(accuracy)
            + counts[::-1] * -np.logaddexp(0.0, epsilon)
        )
    tail = float(binomial[correct:].sum())
    # The worst use of δ: it lifts as many outcomes as possible above the line.
    below = np.cumsum(binomial[:correct][::-1])
    worst = float((below / np.arange(1, correct + 1)).max()) if correct else 0.0
    return min(1.0, tail + 2 * canaries * delta * worst)


def _lower_bound(
    scores: FloatArray, coins: NDArray[np.bool_], fraction: int, delta: float, failure: float
) -> float:
    """Guess that the highest scores took part and the lowest did not."""
    order, half = np.argsort(scores), scores.size // fraction // 2
    correct = int(coins[order[-half:]].sum() + (~coins[order[:half]]).sum())
    return epsilon_lower_bound(scores.size, 2 * half, correct, delta, failure)


class _CanaryExperiment:
    """A trainer with canaries among its units: each has one coordinate of one parameter, and a coin."""

    def __init__(self, trainer: Trainer, canaries: int) -> None:
        parameters = [p for group in trainer.schedule.groups for p in group.parameters]
        sizes = np.array([p.numel() for p in parameters])
        if canaries > sizes.sum():
            raise InvalidInput(
                "there are more canaries than parameters",
                why="each canary needs a coordinate of its own",
                fix=f"pass at most {sizes.sum()} canaries",
            )
        self.trainer = trainer
        self.parameters = parameters
        chosen = np.sort(shuffle(np.arange(sizes.sum()))[:canaries])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self.parameter_of = np.searchsorted(starts, chosen, side="right") - 1
        self.coordinate = chosen - starts[self.parameter_of]
        self.coins: NDArray[np.bool_] = bernoulli(0.5, size=canaries)

    def canary_groups(self) -> list[tuple[str, NDArray[np.int64]]]:
        """All canaries; and those of each parameter, in case only one parameter is unprotected."""
        names = {id(p): name for name, p in self.trainer.model.named_parameters()}
        per_parameter = [
            (f" of {names[id(p)]}", np.flatnonzero(self.parameter_of == number))
            for number, p in enumerate(self.parameters)
        ]
        return [("", np.arange(self.coins.size)), *per_parameter]

    def run(self) -> tuple[FloatArray, FloatArray]:
        """Each canary's two scores: the sum of its coordinate over all steps, and its largest jump."""
        trainer = self.trainer
        original = trainer._examples, trainer._method  # noqa: SLF001 - an audit takes the trainer apart
        members = np.flatnonzero(self.coins)
        trainer._examples = _ExamplesWithCanaries(original[0], members)  # type: ignore[assignment] # noqa: SLF001
        trainer._method = _MethodWithCanaries(original[1], self)  # noqa: SLF001
        try:
            observed = np.array([self._observe() for _ in trainer])
        finally:
            trainer._examples, trainer._method = original  # noqa: SLF001
        jumps = np.abs(np.diff(observed, axis=0)).max(axis=0, initial=0.0)
        return observed.sum(axis=0), jumps

    def _observe(self) -> FloatArray:
        """The noisy gradient at each canary's coordinate."""
        values = np.empty(self.coins.size)
        for number, parameter in enumerate(self.parameters):
            mine = self.parameter_of == number
            assert parameter.grad is not None
            values[mine] = parameter.grad.numpy().reshape(-1)[self.coordinate[mine]]
        return values


@dataclass(frozen=True, eq=False)
class _ExamplesWithCanaries:
    """The real units, followed by the canaries that take part."""

    real: Examples
    members: NDArray[np.int64]

    @property
    def _unit_count(self) -> int:
        return self.real._unit_count + self.members.size  # noqa: SLF001

    @property
    def is_user_code(self) -> bool:
        return self.real.is_user_code

    def microbatches(self, lot: NDArray[np.int64], size: int, multiple: int) -> Iterator[Microbatch]:
        """See `Examples`. A canary is padding, with its number in an additional tensor."""
        units = self.real._unit_count  # noqa: SLF001
        for start in range(0, lot.size, size):
            part = lot[start : start + size]
            places = -(-part.size // multiple) * multiple
            microbatch = self.real._microbatch(np.where(part < units, part, -1), places)  # noqa: SLF001
            numbers = np.full((places, self.real.width), -1)
            numbers[: part.size, 0] = np.where(part < units, -1, self.members[np.maximum(part - units, 0)])
            canary = torch.from_numpy(numbers)
            yield replace(
                microbatch,
                batch=[*microbatch.batch, canary],
                is_present=microbatch.is_present | (canary[:, 0] >= 0),
                padding=[*microbatch.padding, torch.tensor(-1)],
            )


class _MethodWithCanaries(GradientMethod):
    """The gradient method of the real units; a canary's gradient is given by definition."""

    def __init__(self, real: GradientMethod, experiment: _CanaryExperiment) -> None:
        super().__init__(real.objective, real.parameters, real.name)
        self._real = real
        self._experiment = experiment

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Gradients:
        """See `GradientMethod`; the last tensor of the batch holds the canaries' numbers."""
        *examples, numbers = batch
        number = numbers[:, 0].numpy()
        real = self._real.gradients(examples, weights)
        slots = np.flatnonzero(number >= 0)
        canaries, experiment = number[slots], self._experiment
        is_canary = torch.from_numpy(number >= 0)
        combined: Gradients = {}
        for place, parameter in enumerate(experiment.parameters):
            mine = experiment.parameter_of[canaries] == place
            gradient = real.get(parameter) or _zero_gradient(parameter, number.size)
            combined[parameter] = _GradientWithCanaries(
                gradient.mask_out(is_canary),
                slots[mine],
                experiment.coordinate[canaries[mine]],
                parameter.numel(),
            )
        return combined


def _zero_gradient(parameter: nn.Parameter, units: int) -> PerExampleGradient:
    return DenseGradient(torch.zeros(units, *parameter.shape))


@dataclass(frozen=True, eq=False)
class _GradientWithCanaries:
    """Per-example gradients in which some units are canaries: one enormous number each."""

    real: PerExampleGradient
    slots: NDArray[np.int64]
    coordinates: NDArray[np.int64]
    size: int

    def rounding_depth(self, units: int) -> int:
        """See `PerExampleGradient`: no coordinate has more than one canary."""
        return self.real.rounding_depth(units) + 1

    @cached_property
    def squared_norms(self) -> FloatArray:
        """See `PerExampleGradient`."""
        squared = self.real.squared_norms.copy()
        squared[self.slots] = _CANARY_NORM**2 * (1 + 2.0**-20)
        return squared

    @property
    def squared_magnitudes(self) -> FloatArray:
        """See `PerExampleGradient`: for a canary, its squared gradient norm."""
        squared = self.real.squared_magnitudes.copy()
        squared[self.slots] = self.squared_norms[self.slots]
        return squared

    def write_weighted_sum(self, weights: Tensor, out: Tensor) -> None:
        """See `PerExampleGradient`."""
        self.real.write_weighted_sum(weights, out)
        canaries = (weights[torch.from_numpy(self.slots)] * _CANARY_NORM).to(out.dtype)
        out.view(-1).index_add_(0, torch.from_numpy(self.coordinates), canaries)

    def mask_out(self, is_invalid: Tensor) -> PerExampleGradient:
        """See `PerExampleGradient`: canaries are always valid."""
        return replace(self, real=self.real.mask_out(is_invalid))

    def dense(self) -> Tensor:
        """See `PerExampleGradient`."""
        values = self.real.dense().clone()
        flat = values.view(values.shape[0], -1)
        flat[torch.from_numpy(self.slots), torch.from_numpy(self.coordinates)] = _CANARY_NORM
        return values
