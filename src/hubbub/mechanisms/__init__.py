"""Mechanisms: they turn a bounded value into a release."""

from hubbub.mechanisms.laplace_gaussian import Gaussian, Laplace, choose_additive_noise
from hubbub.mechanisms.mechanism import Mechanism, from_json
from hubbub.mechanisms.partition_selection import (
    GaussianPartitionSelection,
    StabilityHistogram,
    TruncatedGeometricSelection,
    choose_partition_selection,
)
from hubbub.mechanisms.randomized_response import Estimate, RandomizedResponse, UnaryEncoding
from hubbub.mechanisms.selection import (
    Exponential,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    TopK,
    select_and_measure,
)
from hubbub.mechanisms.sparse_vector import AboveThreshold
from hubbub.mechanisms.vector_stability_histogram import VectorStabilityHistogram

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
    "VectorStabilityHistogram",
    "choose_additive_noise",
    "choose_partition_selection",
    "from_json",
    "select_and_measure",
]
