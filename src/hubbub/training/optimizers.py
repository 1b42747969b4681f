"""Adam for noisy gradients.

Adam divides by the root of the gradients' second moment. Private gradients have the noise's variance in it,
which is known and the same in every coordinate: without it taken off, all coordinates are divided alike.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["CorrectedAdam"]

_LEAST = 1e-16
"""Where there is no noise: so that nothing is divided by zero."""


class CorrectedAdam(torch.optim.Optimizer):
    """Adam with the noise's variance taken off the second moment (Tang et al., "DP-AdamBC").

    `private` tells it, at every step, how much noise each parameter's gradient has. What is left of the
    moment is at least `floor` times the noise's variance: below that it cannot be told from noise, and steps
    would be largest where there is the least to learn.

    >>> layer = nn.Linear(2, 2)
    >>> optimizer = CorrectedAdam(layer.parameters(), lr=0.01)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float = 1.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "floor": floor})
        self.noise: dict[nn.Parameter, float] = {}
        """The standard deviation of the noise in each parameter's gradient."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step; the second moment, less the noise's, is at least `floor` times the noise's."""
        if closure is not None:
            raise TypeError("a private gradient is given, not computed again")
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(
                        step=0,
                        mean=torch.zeros_like(parameter),
                        square=torch.zeros_like(parameter),
                        noise=0.0,
                    )
                state["step"] += 1
                state["mean"].lerp_(parameter.grad, 1 - first)
                state["square"].mul_(second).addcmul_(parameter.grad, parameter.grad, value=1 - second)
                # The noise may change from step to step: its share of the moment is kept alike.
                variance = self.noise.get(parameter, 0.0) ** 2
                state["noise"] = second * state["noise"] + (1 - second) * variance
                done = 1 - second ** state["step"]
                least = group["floor"] * state["noise"] / done + _LEAST
                square = (state["square"] - state["noise"]).div_(done).clamp_min_(least)
                mean = state["mean"] / (1 - first ** state["step"])
                parameter.addcdiv_(mean, square.sqrt_(), value=-group["lr"])
