"""The plan of a run: clipping norms and noise multipliers by parameter group and step, and the sampler.

All groups of a step see one lot, so together they are one Gaussian with 1/σ² = Σ 1/σ_l², sampled once.

Proof: docs/proofs/dpsgd.md, "Layers share a lot"
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import nn

from hubbub.accounting import Budget, calibrate
from hubbub.accounting.filter_pricing import MARGIN
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, ceil_sqrt, parse_integer, parse_positive, parse_probability
from hubbub.training.batch_sampling import (
    MAX_STEPS,
    NumberSchedule,
    PoissonSampler,
    ShuffledSampler,
    ShuffledSampling,
    parse_schedule,
)
from hubbub.training.clipping import ParameterGroup

__all__ = ["AdaptiveClipping", "Schedule"]

StepFunction = Callable[[int], Fraction]


@dataclass(frozen=True)
class AdaptiveClipping:
    """A clipping norm that follows a quantile of the gradient norms (Andrew et al., 2021).

    At each step the share of gradients within the clipping norm is released with noise, and the norm moves
    towards the quantile. The count is charged with the rest of the step.

    Args:
        initial_norm: The clipping norm of the first step.
        target_quantile: The share of gradients that should be within the clipping norm.
        learning_rate: How fast the norm moves.
        count_noise_stddev: The standard deviation of the noise on the count; a twentieth of the lot size if
            omitted. The larger the lot, the less a precise count costs.

    >>> AdaptiveClipping(initial_norm=1.0, target_quantile=0.5)
    AdaptiveClipping(initial_norm=1.0, target_quantile=0.5, learning_rate=0.2, count_noise_stddev=None)

    Guarantee: the noisy counts are in the loss of the run.
    Assumes: what `make_private` assumes.
    Proof: docs/proofs/dpsgd.md
    """

    initial_norm: Number
    target_quantile: Number = 0.5
    learning_rate: Number = 0.2
    count_noise_stddev: Number | None = None

    def __post_init__(self) -> None:
        parse_positive(self.initial_norm, "initial_norm")
        parse_probability(self.target_quantile, "target_quantile")
        parse_positive(self.learning_rate, "learning_rate")
        if self.count_noise_stddev is not None:
            parse_positive(self.count_noise_stddev, "count_noise_stddev")

    def noise_stddev(self, lot_size: int) -> Fraction:
        """The standard deviation of the noise on the count."""
        if self.count_noise_stddev is not None:
            return parse_positive(self.count_noise_stddev, "count_noise_stddev")
        return max(Fraction(1), Fraction(lot_size, 20))


@dataclass(frozen=True, eq=False)
class Schedule:
    """Parameter groups, their clipping norms and noise multipliers at every step, and the sampler."""

    groups: tuple[ParameterGroup, ...]
    clipping_norms: tuple[StepFunction | AdaptiveClipping, ...]
    noise_multipliers: tuple[StepFunction, ...]
    sampler: PoissonSampler | ShuffledSampler
    lot_size: int
    varies: bool
    """True if clipping norms or noise were given as schedules, which may change from step to step."""

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, nn.Parameter],
        *,
        clipping_norm: Any,
        sampling_rate: "NumberSchedule | ShuffledSampling",
        steps: int,
        noise_multiplier: Any,
        budget: Budget | None,
        lot_size: int | None,
    ) -> "Schedule":
        """A schedule from the arguments of `make_private`."""
        count = parse_integer(steps, "steps")
        if callable(sampling_rate) and count <= MAX_STEPS:
            # Called once per step: what is accounted is what is drawn.
            sampling_rate = [sampling_rate(step) for step in range(count)]
        divisor = _public_lot_size(sampling_rate, lot_size, budget)
        groups = _group_parameters(parameters, clipping_norm, noise_multiplier)
        norms = tuple(
            norm if isinstance(norm, AdaptiveClipping) else parse_schedule(norm, count, "clipping_norm")
            for norm in _per_group(clipping_norm, groups)
        )
        relative_noise = _relative_noise(noise_multiplier, budget, groups, count)
        # A centred count moves by 1/2, so it adds (1/2)²/stddev².
        count_mu_squared = sum(
            (
                1 / (4 * norm.noise_stddev(divisor) ** 2)
                for norm in norms
                if isinstance(norm, AdaptiveClipping)
            ),
            Fraction(0),
        )

        def make_sampler(factor: Fraction) -> PoissonSampler | ShuffledSampler:
            def mu_squared(step: int) -> Fraction:
                return sum((1 / (factor * noise(step)) ** 2 for noise in relative_noise), count_mu_squared)

            if isinstance(sampling_rate, ShuffledSampling):
                return ShuffledSampler.of(
                    population=sampling_rate.population,
                    lot_size=sampling_rate.lot_size,
                    steps=count,
                    mu_squared=mu_squared,
                )
            return PoissonSampler.of(sampling_rate=sampling_rate, steps=count, mu_squared=mu_squared)

        factor = Fraction(1)
        make_sampler(factor)  # refuses invalid arguments before anything is computed
        if budget is not None:
            if budget.delta == 0:
                raise InvalidInput(
                    "the budget's delta is 0",
                    why="Gaussian noise has no finite ε at δ = 0",
                    fix="pass Budget(epsilon, delta)",
                )
            if count_mu_squared:
                counts_alone = make_sampler(Fraction(2) ** 40).privacy_loss
                if counts_alone.epsilon(budget.delta) > budget.epsilon:
                    raise InvalidInput(
                        "the counts of adaptive clipping alone exceed the budget",
                        why="they are charged like everything else",
                        fix="pass AdaptiveClipping a larger count_noise_stddev, or a fixed clipping_norm",
                    )
            factor = parse_positive(
                # A hair below δ, so that the run fits an account with just this budget, which keeps a margin.
                calibrate(lambda by: make_sampler(by).privacy_loss, budget.epsilon, budget.delta / MARGIN**2),
                "noise_multiplier",
            )
        # The default argument binds each group's own function, not the loop's last one.
        multipliers = tuple((lambda step, noise=noise: factor * noise(step)) for noise in relative_noise)
        varies = _is_schedule(clipping_norm) or _is_schedule(noise_multiplier)
        return cls(groups, norms, multipliers, make_sampler(factor), divisor, varies)

    def noise_multiplier(self, step: int) -> float:
        """σ of all groups together: (Σ σ_l⁻²)^−½."""
        return float(1 / ceil_sqrt(self.sampler.mu_squared(step)))


def _public_lot_size(sampling_rate: Any, lot_size: int | None, budget: Budget | None) -> int:
    """The expected batch size, which is public: sums are divided by it."""
    if isinstance(sampling_rate, ShuffledSampling):
        return sampling_rate.lot_size
    if lot_size is not None:
        return parse_integer(lot_size, "lot_size")
    first = sampling_rate
    if callable(sampling_rate):
        first = sampling_rate(0)
    elif isinstance(sampling_rate, Sequence) and sampling_rate:
        first = sampling_rate[0]
    rate = parse_positive(first, "sampling_rate")
    if rate > 1:
        raise InvalidInput(
            "sampling_rate is above 1", why="it is a probability", fix="pass a rate between 0 and 1"
        )
    if budget is not None and budget.population is not None:
        return max(1, round(rate * budget.population))
    # A lot of √N out of N has rate 1/√N: the size that goes with a rate if nothing else is public.
    return max(1, round(1 / rate))


def _group_parameters(
    parameters: Mapping[str, nn.Parameter], clipping_norm: Any, noise_multiplier: Any
) -> tuple[ParameterGroup, ...]:
    """Parameters by the layers named in the arguments; one group if none are named."""
    names = [
        tuple(by_layer) for by_layer in (clipping_norm, noise_multiplier) if isinstance(by_layer, Mapping)
    ]
    if not names:
        return (ParameterGroup("all", tuple(parameters.values())),)
    if any(set(other) != set(names[0]) for other in names):
        raise InvalidInput(
            "clipping_norm and noise_multiplier name different layers",
            why="each layer needs both",
            fix="name the same layers in both",
        )
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in names[0]}
    for name, parameter in parameters.items():
        matching = [layer for layer in groups if layer in ("", name) or name.startswith(f"{layer}.")]
        if not matching:
            raise InvalidInput(
                f"no clipping norm for {name}",
                why="every parameter's gradient must be clipped",
                fix="name its layer, or use the empty name for all layers that are not named",
            )
        groups[max(matching, key=len)].append(parameter)
    if any(not members for members in groups.values()):
        raise InvalidInput(
            "a named layer has no parameters to train",
            why="its noise would be charged and wasted",
            fix=f"name layers among {', '.join(parameters)}",
        )
    return tuple(ParameterGroup(name, tuple(members)) for name, members in groups.items())


def _is_schedule(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_schedule, value.values()))
    return callable(value) or (isinstance(value, Collection) and not isinstance(value, str))


def _per_group(value: Any, groups: tuple[ParameterGroup, ...]) -> list[Any]:
    return [value[group.name] if isinstance(value, Mapping) else value for group in groups]


def _relative_noise(
    noise_multiplier: Any, budget: Budget | None, groups: tuple[ParameterGroup, ...], steps: int
) -> tuple[StepFunction, ...]:
    """σ_l of each group, up to a factor if there is a budget. One number is shared equally by all groups."""
    if noise_multiplier is None and budget is None:
        raise InvalidInput(
            "neither budget nor noise_multiplier is given",
            why="the amount of noise must be known",
            fix="pass budget=Budget(epsilon, delta), or noise_multiplier=",
        )
    noise = 1 if noise_multiplier is None else noise_multiplier
    if isinstance(noise, Mapping):
        return tuple(parse_schedule(one, steps, "noise_multiplier") for one in _per_group(noise, groups))
    joint, root = parse_schedule(noise, steps, "noise_multiplier"), ceil_sqrt(Fraction(len(groups)))
    return tuple((lambda step: root * joint(step)) for _ in groups)
