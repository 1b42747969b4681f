"""Planted bugs. Each is a function (database, count) → answers that claims an ε which it does not keep."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from audit.zoo.noise import STEP, gaussian, integers, laplace, uniform
from hubbub.accounting import PrivacyLoss
from hubbub.audit import Claim, InputPair

SUM = [InputPair([1.0], [])]


@dataclass(frozen=True)
class Specimen:
    name: str
    draw: Callable[[Any, int], Any]
    claim: Claim = field(default_factory=lambda: Claim.approximate(1.0))
    rows: str = "0:1"
    pairs: Any = None
    samples: int = 60_000
    more: dict = field(default_factory=dict)


ZOO: list[Specimen] = []


def specimen(name, **more):
    def add(draw):
        ZOO.append(Specimen(name, draw, **more))
        return draw

    return add


def total(database):
    return float(sum(database))


# Scales and samplers


@specimen("scale 5 % too small", pairs=SUM, samples=600_000)
def scale_5(database, count):
    return total(database) + laplace(0.95, count)


@specimen("scale 20 % too small")
def scale_20(database, count):
    return total(database) + laplace(0.8, count)


@specimen("scale 50 % too small")
def scale_50(database, count):
    return total(database) + laplace(0.5, count)


@specimen("Laplace noise in floating point")
def float_laplace(database, count):
    u = uniform(count) - 0.5
    return total(database) - np.sign(u) * np.log1p(-2 * np.abs(u))


@specimen("Gaussian noise in floating point", claim=Claim.approximate(1.0, 1e-3))
def float_gaussian(database, count):
    radius = np.sqrt(-2 * np.log1p(-uniform(count)))
    return total(database) + 4 * radius * np.cos(2 * np.pi * uniform(count))


@specimen("geometric noise with both signs of zero", rows="int:0:1")
def double_zero(database, count):
    size = np.floor(np.log(1 - uniform(count)) / -1.0).astype(np.int64)
    return int(total(database)) + np.where(uniform(count) < 0.5, -size, size)


@specimen("a seed out of 16")
def seed_of_4_bits(database, count):
    table = 4 * np.sin(np.arange(16) ** 2)
    return total(database) + np.round(table[integers(count, 16)] / STEP) * STEP


@specimen("a seed of 16 bits", samples=400_000)
def seed_of_16_bits(database, count):
    u = (np.modf(np.sin(integers(count, 2**16) * 12.9898) * 43758.5453)[0]) / 2.000001
    noise = -np.sign(u) * np.log1p(-2 * np.abs(u))
    return total(database) + np.round(noise * 2.0**30) * 2.0**-30


@specimen("the database is the seed")
def seeded_by_data(database, count):
    return np.full(count, total(database) + math.sin(1000 * len(database) + total(database)))


@specimen("a deterministic tail: noise stops at ±3")
def truncated(database, count):
    return total(database) + np.clip(laplace(1, count), -3, 3)


@specimen("the true answer with probability 1/1000", pairs=SUM, samples=400_000)
def rarely_exact(database, count):
    return np.where(uniform(count) < 0.001, total(database), total(database) + laplace(1, count))


@specimen("Gaussian noise that claims pure ε", samples=400_000)
def gaussian_claims_pure(database, count):
    return total(database) + gaussian(1, count)


@specimen("uniform noise")
def uniform_noise(database, count):
    return total(database) + np.round(6 * (uniform(count) - 0.5) / STEP) * STEP


@specimen("noise proportional to the answer")
def relative_noise(database, count):
    return total(database) * (1 + laplace(1, count))


@specimen("no noise on zero")
def exact_zero(database, count):
    exact = total(database)
    return exact + laplace(1, count) if exact else np.zeros(count)


# Sparse vector: the broken variants that Lyu, Su and Li (2017) and Chen and Machanavajjhala (2015) list.
# The queries are ten counts; each row moves every one of them by one, up or down.


def scores(database):
    sign = np.array([1, -1, 1, -1, 1, -1, 1, -1, 1, -1])
    return sum(database) * sign


SVT_PAIRS = [InputPair([1.0], []), InputPair([], [1.0])]


def sparse_vector(database, count, *, query_noise, cutoff, threshold_noise=2.0, value=False, signs=None):
    exact = scores(database) if signs is None else sum(database) * np.array(signs)
    out = []
    thresholds = laplace(threshold_noise, count) if threshold_noise else np.zeros(count)
    noise = (
        laplace(query_noise, count * exact.size).reshape(count, -1)
        if query_noise
        else np.zeros((count, exact.size))
    )
    for row in range(count):
        answers: list[Any] = []
        left = cutoff
        for query in range(exact.size):
            noisy = exact[query] + noise[row, query]
            if noisy >= thresholds[row]:
                answers.append(noisy if value else True)
                left -= 1
                if left == 0:
                    break
            else:
                answers.append(False)
        out.append(answers)
    return out


@specimen("sparse vector that releases the noisy value", pairs=SVT_PAIRS[:1], samples=100_000)
def svt_value(database, count):
    # Four queries that a row raises and one that it lowers: Lyu, Su and Li's example (2017), made short.
    return sparse_vector(database, count, query_noise=2.0, cutoff=1, value=True, signs=(1, 1, 1, 1, -1))


@specimen("sparse vector with the noise of one answer for many", pairs=SVT_PAIRS, samples=20_000)
def svt_one_for_many(database, count):
    return sparse_vector(database, count, query_noise=1.0, cutoff=10)


@specimen("sparse vector without noise on queries", pairs=SVT_PAIRS, samples=20_000)
def svt_no_query_noise(database, count):
    return sparse_vector(database, count, query_noise=0, cutoff=10, threshold_noise=1.0)


@specimen("sparse vector without cutoff", pairs=SVT_PAIRS, samples=20_000)
def svt_no_cutoff(database, count):
    return sparse_vector(database, count, query_noise=2.0, cutoff=100)


@specimen("generalized threshold testing", pairs=SVT_PAIRS, samples=20_000)
def svt_generalized(database, count):
    return sparse_vector(database, count, query_noise=4 / 3, cutoff=100, threshold_noise=4.0)


@specimen("sparse vector without noise on the threshold", pairs=SVT_PAIRS, samples=20_000)
def svt_no_threshold_noise(database, count):
    return sparse_vector(database, count, query_noise=2.0, cutoff=10, threshold_noise=0)


# Selection


def halves(database):
    return np.array([sum(1 for row in database if row >= 0.5), sum(1 for row in database if row < 0.5)])


@specimen("noisy max that returns the value", samples=40_000)
def noisy_max_value(database, count):
    # One row is in all four counts: the winner's name costs ε = 1, its value much more.
    noisy = len(database) + laplace(1, 4 * count).reshape(count, 4)
    return np.stack([noisy.argmax(axis=1), noisy.max(axis=1)], axis=1)


@specimen("exponential mechanism without the factor of two", pairs=[InputPair([1.0], [])])
def exponential_without_two(database, count):
    score = sum(database) * np.array([1.0, -1.0])
    weight = np.exp(score) / np.exp(score).sum()
    return (uniform(count) >= weight[0]).astype(np.int64)


@specimen("randomized response with e^ε for e^ε/(1 + e^ε)", pairs=[InputPair([1.0], [0.0])])
def wrong_response(database, count):
    keep = 0.85
    return np.where(uniform(count) < keep, int(database[0]), 1 - int(database[0]))


# Sensitivity and bounding


@specimen("clipping the answer instead of the rows", rows="0:10")
def clip_after_noise(database, count):
    return np.clip(total(database) + laplace(1, count), 0, 100)


@specimen("a mean with the noise of a public size", samples=200_000)
def mean_as_sum(database, count):
    size = max(1, len(database))
    return np.round((total(database) / size + laplace(1, count) / size) / STEP) * STEP


@specimen("unbounded contribution", pairs=[InputPair([[1.0] * 4, [1.0]], [[1.0]])])
def unbounded_contribution(database, count):
    return float(sum(sum(rows) for rows in database)) + laplace(1, count)


@specimen("bounds taken from the data", rows="0:1")
def data_dependent_bounds(database, count):
    width = (max(database) - min(database)) if database else 0
    return total(database) + laplace(width, count) if width else np.full(count, total(database))


@specimen("a key counted twice")
def counted_twice(database, count):
    return 2.0 * len(database) + laplace(1, count)


@specimen("substitution with the noise of adding", pairs=[InputPair([1.0], [-1.0])])
def substitution(database, count):
    return total(database) + laplace(1, count)


@specimen(
    "the local sensitivity of a median",
    pairs=[InputPair([0.0, 0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 1.0])],
)
def local_median(database, count):
    ordered = sorted(database)
    middle = len(ordered) // 2
    local = max(ordered[middle] - ordered[middle - 1], ordered[middle + 1] - ordered[middle])
    return ordered[middle] + (laplace(local, count) if local else np.zeros(count))


@specimen("not-a-number passes through", more={"beyond_bounds": True})
def nan_passes(database, count):
    clipped = [min(1.0, max(0.0, row)) if not math.isnan(row) else row for row in database]
    return float(sum(clipped)) + laplace(1, count)


@specimen("a sum that wraps around", rows="int:0:200", pairs=[InputPair([100] * 2 + [56], [100] * 2)])
def wraps(database, count):
    wrapped = int(np.array(database, dtype=np.uint8).sum(dtype=np.uint8)) if database else 0
    return wrapped + np.round(laplace(56, count))


# Group keys and shapes


def noisy_bins(database, count):
    """A histogram of two bins, each with its own noise."""
    return halves(database) + laplace(1, 2 * count).reshape(count, 2)


@specimen("empty groups are left out")
def empty_groups(database, count):
    exact = halves(database)
    return [
        {str(i): v for i, v in enumerate(row) if exact[i]} for row in noisy_bins(database, count).tolist()
    ]


@specimen(
    "groups in the order of their exact counts",
    pairs=[InputPair([1.0, 0.0, 0.0], [1.0, 0.0])],
)
def exact_order(database, count):
    order = np.argsort(-halves(database), kind="stable")
    return [[(int(i), row[i]) for i in order] for row in noisy_bins(database, count).tolist()]


@specimen("a threshold with > for ≥", claim=Claim.delta_at(1.0, 0.01), rows="int:0:1", samples=40_000)
def threshold_off_by_one(database, count):
    # A key of one person must appear with probability δ: noise above T − 1; here it is T − 2.
    noisy = len(database) + np.round(laplace(1, count))
    threshold = 1 + math.log(1 / (2 * 0.01)) - 1
    return [{"key": float(v)} if len(database) and v > threshold else {} for v in noisy.tolist()]


@specimen("an error on an empty database")
def fails_when_empty(database, count):
    if not database:
        return ["division by zero"] * count
    return list(laplace(1, count) + len(database))


# Composition and sampling


@specimen("noise reused for two answers", samples=20_000)
def noise_reused(database, count):
    noise = laplace(2, count)
    return np.stack([total(database) + noise, noise - total(database)], axis=1)


@specimen("composition forgotten")
def composition_forgotten(database, count):
    return total(database) + laplace(1, 3 * count).reshape(count, 3)


@specimen("parallel composition of overlapping groups")
def overlapping_groups(database, count):
    return np.stack([total(database) + laplace(1, count), len(database) + laplace(1, count)], axis=1)


@specimen("shuffled lots accounted as Poisson samples", claim=Claim.of_loss(
    PrivacyLoss.gaussian(2.5).poisson_subsampled(0.25) * 4, (0.0, 0.25, 0.5, 1, 2)), pairs=SUM)  # fmt: skip
def shuffled_lots(database, count):
    lots = gaussian(0.4, 4 * count).reshape(count, 4)
    if database:
        lots[np.arange(count), integers(count, 4)] += total(database)
    return lots


@specimen("lots in the order of the file accounted as Poisson samples", claim=Claim.of_loss(
    PrivacyLoss.gaussian(1).poisson_subsampled(0.1) * 10, (0.0, 0.25, 0.5, 1.0, 2.0)), pairs=SUM)  # fmt: skip
def lots_in_order(database, count):
    lots = gaussian(1, 10 * count).reshape(count, 10)
    lots[:, 0] += total(database)
    return lots


@specimen("σ per layer for the norm of one layer", claim=Claim.gaussian(1.0), pairs=SUM)
def per_layer_sigma(database, count):
    # Four layers, each clipped to 1, with noise as if the whole gradient had norm 1.
    return total(database) + gaussian(1, 4 * count).reshape(count, 4)


@specimen("a gradient that is averaged before it is clipped", claim=Claim.gaussian(1.0),
          pairs=[InputPair([8.0], [])])  # fmt: skip
def clip_of_mean(database, count):
    return min(4.0, total(database)) + gaussian(1, count)


@specimen("zCDP with σ² for σ", claim=Claim.zcdp(0.02), pairs=SUM, samples=200_000)
def variance_for_deviation(database, count):
    # ρ = 1/(2σ²) asks for σ = 5; here √5.
    return total(database) + gaussian(math.sqrt(5), count)


# What keeps its claim


HERD: list[Specimen] = [
    Specimen("Laplace", lambda database, count: total(database) + laplace(1, count)),
    Specimen("geometric", lambda database, count: len(database) + np.round(laplace(1.001, count))),
    Specimen("Gaussian", lambda database, count: total(database) + gaussian(1, count), Claim.gaussian(1.0)),
    Specimen(
        "sparse vector",
        lambda database, count: sparse_vector(database, count, query_noise=4.0, cutoff=1),
        pairs=SVT_PAIRS,
        samples=6000,
    ),
    Specimen(
        "noisy max",
        lambda database, count: (halves(database) + laplace(1, 2 * count).reshape(count, 2)).argmax(axis=1),
    ),
    Specimen("histogram", lambda database, count: halves(database) + laplace(1, 2 * count).reshape(count, 2)),
    Specimen(
        "randomized response",
        lambda database, count: np.where(uniform(count) < 0.731, int(database[0]), 1 - int(database[0])),
        pairs=[InputPair([1.0], [0.0])],
    ),
    Specimen(
        "Poisson samples",
        lambda database, count: (
            gaussian(1, 10 * count).reshape(count, 10)
            + total(database) * (uniform(10 * count).reshape(count, 10) < 0.1)
        ),
        Claim.of_loss(PrivacyLoss.gaussian(1).poisson_subsampled(0.1) * 10, (0.0, 0.25, 0.5, 1.0, 2.0)),
        pairs=SUM,
    ),
]
