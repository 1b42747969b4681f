"""Adam for noisy gradients.

Adam divides by the root of the gradients' second moment. In private gradients that includes the variance of
the
noise, which is known and equal in every coordinate. Without a correction it dominates, and all coordinates
get
the same step size.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

__all__ = ["CorrectedAdam"]

_LEAST = 1e-16
"""Keeps the division defined if there is no noise."""


class CorrectedAdam(torch.optim.Optimizer):
    """Adam with the noise variance subtracted from the second moment (Tang et al., "DP-AdamBC").

    The trainer sets `noise` at every step. The corrected moment is at least `floor` times the noise variance:
    below that it cannot be distinguished from noise, and steps would be largest where there is least to
    learn.

    Args:
        params: parameters or groups of them, as for `torch.optim.Adam`.
        lr: the learning rate.
        betas: the decay rates of both moments.
        floor: the least corrected moment, in noise variances.

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
        """One step, with the corrected second moment."""
        if closure is not None:
            raise TypeError(
                "CorrectedAdam does not support closures: a private gradient is not computed again"
            )
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
                # The noise may change from step to step, so its share of the moment is averaged in the same
                # way.
                variance = self.noise.get(parameter, 0.0) ** 2
                state["noise"] = second * state["noise"] + (1 - second) * variance
                done = 1 - second ** state["step"]
                least = group["floor"] * state["noise"] / done + _LEAST
                square = (state["square"] - state["noise"]).div_(done).clamp_min_(least)
                mean = state["mean"] / (1 - first ** state["step"])
                parameter.addcdiv_(mean, square.sqrt_(), value=-group["lr"])
