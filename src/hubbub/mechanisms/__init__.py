"""Mechanisms: how a bounded value becomes a release."""

from hubbub.mechanisms.additive import Gaussian, Laplace, least_noise
from hubbub.mechanisms.mechanism import Mechanism, from_json
from hubbub.mechanisms.partition_selection import (
    GaussianPartitionSelection,
    StabilityHistogram,
    TruncatedGeometricSelection,
    select_partitions,
)
from hubbub.mechanisms.randomized_response import Estimate, RandomizedResponse, UnaryEncoding
from hubbub.mechanisms.selection import (
    Exponential,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
    measure_winner,
)
from hubbub.mechanisms.sparse_vector import AboveThreshold

__all__ = [
    "AboveThreshold",
    "Estimate",
    "Exponential",
    "Gaussian",
    "GaussianPartitionSelection",
    "Laplace",
    "Mechanism",
    "PermuteAndFlip",
    "RandomizedResponse",
    "ReportNoisyMax",
    "ReportNoisyMaxWithGap",
    "StabilityHistogram",
    "TopK",
    "TruncatedGeometricSelection",
    "UnaryEncoding",
    "from_json",
    "least_noise",
    "measure_winner",
    "select_partitions",
]
