"""Mechanisms: how a bounded value becomes a release."""

from hubbub.mechanisms.additive import Gaussian, Laplace, least_noise
from hubbub.mechanisms.mechanism import Mechanism, from_json

__all__ = ["Gaussian", "Laplace", "Mechanism", "from_json", "least_noise"]
