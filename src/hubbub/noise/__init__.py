"""Exact noise: random bits, integer samplers, and the grid that reals are released on."""

from hubbub.noise.samplers import (
    MAX_SCALE,
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    geometric,
    rounded_gaussian,
    uniform,
)

__all__ = [
    "MAX_SCALE",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "rounded_gaussian",
    "uniform",
]
