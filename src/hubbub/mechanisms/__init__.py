"""Mechanisms: how a bounded value becomes a release."""

from hubbub.mechanisms.additive import Gaussian, Laplace, least_noise
from hubbub.mechanisms.choose import (
    Exponential,
    LaplaceMax,
    LaplaceMaxWithGap,
    PermuteAndFlip,
)
from hubbub.mechanisms.compound import TopK, measure_winner
from hubbub.mechanisms.histogram import StableHistogram
from hubbub.mechanisms.keys import GaussianKeys, GeometricKeys, select_keys
from hubbub.mechanisms.mechanism import Mechanism, from_json
from hubbub.mechanisms.respond import Estimate, RandomizedResponse, UnaryEncoding
from hubbub.mechanisms.threshold import AboveThreshold

__all__ = [
    "AboveThreshold",
    "Estimate",
    "Exponential",
    "Gaussian",
    "GaussianKeys",
    "GeometricKeys",
    "Laplace",
    "LaplaceMax",
    "LaplaceMaxWithGap",
    "Mechanism",
    "PermuteAndFlip",
    "RandomizedResponse",
    "StableHistogram",
    "TopK",
    "UnaryEncoding",
    "from_json",
    "least_noise",
    "measure_winner",
    "select_keys",
]
