"""What is fixed before a run: for every layer and step the threshold, the noise, and the lots they meet.

All layers of a step see one lot, so together they are one Gaussian with 1/σ² = Σ 1/σ_l², sampled once.

Proof: docs/proofs/dpsgd.md, "Layers share a lot"
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import nn

from hubbub.accounting import Budget, calibrate
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, ceil_sqrt, parse_integer, parse_positive, parse_probability
from hubbub.training.batch_sampling import (
    MOST_STEPS,
    FixedSizeSampling,
    PoissonSampling,
    Scheduled,
    ShuffledSampling,
    scheduled,
)
from hubbub.training.clipping import ParameterGroup

__all__ = ["AdaptiveClipping", "Schedule"]

Exactly = Callable[[int], Fraction]


@dataclass(frozen=True)
class AdaptiveClipping:
    """A threshold that follows a quantile of the norms, which is measured privately and charged.

    At each step the share of gradients within C is released with noise, and C moves towards the quantile.
    `sigma` is the noise of that count; the larger the lot, the less it costs to have it small.

    >>> AdaptiveClipping(start=1.0, quantile=0.5)
    AdaptiveClipping(start=1.0, quantile=0.5, pace=0.2, sigma=None)
    """

    start: Number
    quantile: Number = 0.5
    pace: Number = 0.2
    sigma: Number | None = None
    """Of the count; a twentieth of the lot if it is not given."""

    def __post_init__(self) -> None:
        parse_positive(self.start, "start")
        parse_probability(self.quantile, "quantile")
        parse_positive(self.pace, "pace")
        if self.sigma is not None:
            parse_positive(self.sigma, "sigma")

    def noise(self, lot: int) -> Fraction:
        """The noise of the count."""
        return (
            parse_positive(self.sigma, "sigma")
            if self.sigma is not None
            else max(Fraction(1), Fraction(lot, 20))
        )


@dataclass(frozen=True, eq=False)
class Schedule:
    """Groups of parameters, their thresholds and noise at every step, and the lots."""

    groups: tuple[ParameterGroup, ...]
    clips: tuple[Exactly | AdaptiveClipping, ...]
    sigmas: tuple[Exactly, ...]
    lots: PoissonSampling | ShuffledSampling
    lot: int
    varies: bool
    """Whether thresholds or noise change from step to step, as was given."""

    @classmethod
    def of(
        cls,
        named: Mapping[str, nn.Parameter],
        *,
        clip: Any,
        rate: "Scheduled | FixedSizeSampling",
        steps: int,
        sigma: Any,
        target: Budget | None,
        lot: int | None,
    ) -> "Schedule":
        """From what a person gave: numbers, tables, functions of the step, or any of them by layer."""
        count = parse_integer(steps, "steps")
        if callable(rate) and count <= MOST_STEPS:
            rate = [rate(step) for step in range(count)]  # once: what is accounted is what is drawn
        divisor = _lot(rate, lot, target)
        groups = _groups(named, clip, sigma)
        clips = tuple(
            given if isinstance(given, AdaptiveClipping) else scheduled(given, count, "clip")
            for given in _for_each(clip, groups)
        )
        shares = _shares(sigma, target, groups, count)
        counts = sum(
            (1 / (4 * c.noise(divisor) ** 2) for c in clips if isinstance(c, AdaptiveClipping)), Fraction(0)
        )

        def lots(factor: Fraction) -> PoissonSampling | ShuffledSampling:
            def mu_squared(step: int) -> Fraction:
                return sum((1 / (factor * share(step)) ** 2 for share in shares), counts)

            if isinstance(rate, FixedSizeSampling):
                return ShuffledSampling.of(
                    population=rate.population, size=rate.size, steps=count, mu_squared=mu_squared
                )
            return PoissonSampling.of(rate=rate, steps=count, mu_squared=mu_squared)

        factor = Fraction(1)
        lots(factor)  # what cannot be, is said before anything is computed
        if target is not None:
            if target.delta == 0:
                raise InvalidInput(
                    "the target's delta is 0",
                    why="Gaussian noise needs some δ",
                    fix="pass Budget(epsilon, delta)",
                )
            if counts and lots(Fraction(2) ** 40).loss.epsilon(target.delta) > target.epsilon:
                raise InvalidInput(
                    "the counts of adaptive clipping alone exceed the target",
                    why="they are charged as everything else",
                    fix="pass Adaptive a larger sigma, or a fixed clip",
                )
            factor = parse_positive(
                calibrate(lambda by: lots(by).loss, target.epsilon, target.delta), "sigma"
            )
        # The default says what each step does, not which variable it closes over.
        sigmas = tuple((lambda step, share=share: factor * share(step)) for share in shares)
        return cls(groups, clips, sigmas, lots(factor), divisor, _varies(clip) or _varies(sigma))

    def sigma(self, step: int) -> float:
        """σ of all layers together: (Σ σ_l⁻²)^−½."""
        return float(1 / ceil_sqrt(self.lots.mu_squared(step)))


def _lot(rate: Any, lot: int | None, target: Budget | None) -> int:
    """The public expected size of a lot, by which sums are divided."""
    if isinstance(rate, FixedSizeSampling):
        return rate.size
    if lot is not None:
        return parse_integer(lot, "lot")
    first = rate(0) if callable(rate) else rate[0] if isinstance(rate, Sequence) and rate else rate
    chance = parse_positive(first, "rate")
    if chance > 1:
        raise InvalidInput("rate is above 1", why="it is a probability", fix="pass a rate within 0 and 1")
    if target is not None and target.population is not None:
        return max(1, round(chance * target.population))
    # A lot of √N out of N has rate 1/√N: the size that goes with a rate if nothing else is public.
    return max(1, round(1 / chance))


def _groups(named: Mapping[str, nn.Parameter], clip: Any, sigma: Any) -> tuple[ParameterGroup, ...]:
    """Parameters by the layers that were named; all together if none were."""
    names = [tuple(given) for given in (clip, sigma) if isinstance(given, Mapping)]
    if not names:
        return (ParameterGroup("all", tuple(named.values())),)
    if any(set(other) != set(names[0]) for other in names):
        raise InvalidInput(
            "clip and sigma name different layers",
            why="a layer is clipped and gets noise by the same name",
            fix="name the same layers in both",
        )
    found: dict[str, list[nn.Parameter]] = {name: [] for name in names[0]}
    for name, parameter in named.items():
        fitting = [layer for layer in found if layer in ("", name) or name.startswith(f"{layer}.")]
        if not fitting:
            raise InvalidInput(
                f"no threshold for {name}",
                why="every parameter must be clipped",
                fix="name its layer, or the empty name for all that is not named",
            )
        found[max(fitting, key=len)].append(parameter)
    if any(not parameters for parameters in found.values()):
        raise InvalidInput(
            "a layer that is named has no parameters to train",
            why="noise for it would be charged and lost",
            fix=f"name layers among {', '.join(named)}",
        )
    return tuple(ParameterGroup(name, tuple(parameters)) for name, parameters in found.items())


def _varies(given: Any) -> bool:
    if isinstance(given, Mapping):
        return any(map(_varies, given.values()))
    return callable(given) or (isinstance(given, Collection) and not isinstance(given, str))


def _for_each(given: Any, groups: tuple[ParameterGroup, ...]) -> list[Any]:
    return [given[group.name] if isinstance(given, Mapping) else given for group in groups]


def _shares(
    sigma: Any, target: Budget | None, groups: tuple[ParameterGroup, ...], steps: int
) -> tuple[Exactly, ...]:
    """σ_l of each group: as given; one number for all is σ of all together, in equal shares."""
    if sigma is None and target is None:
        raise InvalidInput(
            "neither target nor sigma is given",
            why="the noise must be known",
            fix="pass target=Budget(epsilon, delta), or sigma=",
        )
    given = 1 if sigma is None else sigma
    if isinstance(given, Mapping):
        return tuple(scheduled(one, steps, "sigma") for one in _for_each(given, groups))
    whole_noise, root = scheduled(given, steps, "sigma"), ceil_sqrt(Fraction(len(groups)))
    return tuple((lambda step: root * whole_noise(step)) for _ in groups)
