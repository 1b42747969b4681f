"""A23, A27, A29: parameters that break the promise, and errors that tell."""

import inspect
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from mpmath import mp, mpf

from attacks import mutants
from attacks.evidence import outcome
from attacks.rows import Row, both_tests
from hubbub import (
    Bounded,
    Budget,
    Gaussian,
    HubbubError,
    Laplace,
    Mechanism,
    PrivacyLoss,
    Sensitivity,
    choose_additive_noise,
    noise,
)
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    GaussianPartitionSelection,
    PermuteAndFlip,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    StabilityHistogram,
    TopK,
    TruncatedGeometricSelection,
    VectorStabilityHistogram,
    choose_partition_selection,
)
from hubbub.mechanisms.randomized_response import RandomizedResponse, UnaryEncoding
from hubbub.mechanisms.selection import SelectAndMeasure
from hubbub.textbook import count, counts, fraction, histogram, linear

# A23: tiny δ

TINY = [
    (epsilon, delta)
    for epsilon in (0.01, 0.5, 1.0, 5.0, 40.0)
    for delta in (1e-6, 1e-12, 1e-17, 1e-30, 1e-100, 1e-300)
]


def attack_A23(target):
    """σ for (ε, δ) at sensitivity 1 must spend no more than δ, computed to 60 digits beyond what cancels."""
    return any(
        _spent(target(epsilon, delta), epsilon) > mpf(delta) * (1 + mpf(10) ** -12) for epsilon, delta in TINY
    )


def _spent(sigma, epsilon):
    with mp.workdps(400):
        sigma = mpf(sigma.numerator) / sigma.denominator
        first, second = (mp.ncdf(sign / (2 * sigma) - epsilon * sigma) for sign in (1, -1))
        return first - mp.exp(epsilon) * second


def _by_the_curve(epsilon, delta):
    """The least double σ with a loss that claims δ at ε: as calibrating by the reported curve gives."""
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = math.sqrt(low * high)
        claimed = PrivacyLoss.gaussian_from_mu_squared(1 / Fraction(middle) ** 2).delta(epsilon)
        low, high = (low, middle) if claimed <= delta else (middle, high)
    return Fraction(high)


# A27: parameters that are no parameters

NO_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    np.float64("nan"),
    np.float32("inf"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    Decimal("1e999999999"),
    10**5000,
    Fraction(1, 10**5000),
    True,
    "1",
    1j,
    [1],
    np.array([1.0]),
    np.longdouble(1),
    np.timedelta64("NaT"),
]


BELOW_ZERO = [-1, -1e-300, Fraction(-1, 3)]


class Door(NamedTuple):
    """A way in, with parameters that it takes, and which others it must refuse."""

    call: Callable[..., Any]
    good: Mapping[str, Any]
    positive: tuple[str, ...] = ()
    """Parameters that must not be 0 either."""
    also: tuple[tuple[str, Any], ...] = ()
    """More that must be refused."""
    signed: tuple[str, ...] = ()
    """Parameters that may be below zero."""
    optional: tuple[str, ...] = ()
    """Parameters that may be None."""


def attack_A27(target):
    """Whether anything that is no number, or the wrong one, is taken; a refusal must be one of ours."""
    target.call(**target.good)  # or nothing would be shown by its refusing
    tries = [
        *((name, bad) for name in target.good for bad in NO_NUMBERS),
        *((name, bad) for name in target.good if name not in target.signed for bad in BELOW_ZERO),
        *((name, None) for name in target.good if name not in target.optional),
        *((name, zero) for name in target.positive for zero in (0, -0.0, Decimal(0))),
        *target.also,
    ]
    return any(not _is_refused(target, name, bad) for name, bad in tries)


def _is_refused(door, name, bad):
    try:
        door.call(**{**door.good, name: bad})
    except HubbubError:
        return True
    except Exception:
        return False
    return False


HUGE, TINIEST = Fraction(2) ** 1000, Fraction(1, 2**1000)
OVERFLOWS = (("epsilon", TINIEST), ("sensitivity", HUGE))
NOISE = {"sensitivity": 1, "epsilon": 1}
CHOICES = (PermuteAndFlip, Exponential, ReportNoisyMax, ReportNoisyMaxWithGap)


def _make(kind):
    """The constructor itself: the exact fields, as they are read from a ledger."""
    return lambda scale, l1, grid, coordinates: kind(scale, Sensitivity(l1), grid, coordinates)


DOORS = {
    "Laplace.of": Door(Laplace.of, NOISE, ("sensitivity", "epsilon"), OVERFLOWS),
    "Laplace.of, real": Door(
        lambda **options: Laplace.of(**options, real=True),
        {**NOISE, "coordinates": 1},
        ("sensitivity", "epsilon", "coordinates"),
        (("coordinates", 1.5), ("epsilon", TINIEST)),
    ),
    "Laplace.for_error": Door(
        Laplace.for_error,
        {"error": 5, "confidence": 0.9, "sensitivity": 1},
        ("error", "confidence", "sensitivity"),
        (("confidence", 1), ("confidence", 2)),
    ),
    "Laplace": Door(
        _make(Laplace),
        {"scale": Fraction(1), "l1": 1, "grid": Fraction(1, 2), "coordinates": 1},
        ("scale", "l1", "grid", "coordinates"),
        (("scale", HUGE), ("grid", Fraction(1, 3)), ("grid", TINIEST), ("coordinates", 0.5)),
        optional=("grid",),
    ),
    "Laplace, its sensitivity": Door(
        lambda sensitivity: Laplace(Fraction(1), sensitivity),
        {"sensitivity": Sensitivity(1)},
        ("sensitivity",),
    ),
    "Laplace, error and tail": Door(
        lambda confidence, coordinates, t: (
            Laplace.of(**NOISE).error(confidence, coordinates=coordinates),
            Laplace.of(**NOISE).tail(t),
            Laplace.of(**NOISE).union_bound(confidence, coordinates=coordinates),
        ),
        {"confidence": 0.9, "coordinates": 2, "t": 1},
        ("confidence", "coordinates"),
        (("confidence", 1), ("coordinates", 1.5)),
    ),
    "Gaussian.of": Door(
        Gaussian.of,
        {**NOISE, "delta": 1e-6},
        ("sensitivity", "epsilon", "delta"),
        (("sensitivity", HUGE), ("delta", 1), ("delta", 1.5)),
    ),
    "Gaussian.of, with a population": Door(
        Gaussian.of,
        {**NOISE, "delta": 1e-6, "population": 100},
        ("population",),
        (("population", 10**6), ("population", 1.5)),
        optional=("population",),
    ),
    "Gaussian.for_error": Door(
        Gaussian.for_error,
        {"error": 20, "delta": 1e-6, "confidence": 0.9, "sensitivity": 1},
        ("error", "delta", "confidence", "sensitivity"),
    ),
    "Gaussian": Door(
        _make(Gaussian),
        {"scale": Fraction(1), "l1": 1, "grid": Fraction(1, 2), "coordinates": 1},
        ("scale", "l1", "grid", "coordinates"),
        (("scale", HUGE),),
        optional=("grid",),
    ),
    "choose_additive_noise": Door(
        choose_additive_noise, {**NOISE, "delta": 1e-6}, ("sensitivity", "epsilon"), (("delta", 1),)
    ),
    "Sensitivity": Door(Sensitivity, {"l1": 1, "l2": 1, "linf": 1}, optional=("l2", "linf")),
    "Bounded": Door(lambda sensitivity: Bounded.user_asserted(1, sensitivity), {"sensitivity": 1}),
    "Loss.pure": Door(PrivacyLoss.pure, {"epsilon": 1}),
    "Loss.approximate": Door(
        PrivacyLoss.approximate, {"epsilon": 1, "delta": 0.1}, ("delta",), (("delta", 1),)
    ),
    "Loss.gaussian": Door(PrivacyLoss.gaussian, {"mu": 1}),
    "Loss.gaussian_from_mu_squared": Door(PrivacyLoss.gaussian_from_mu_squared, {"mu_squared": 1}),
    "Loss.delta": Door(PrivacyLoss.gaussian(1).delta, {"epsilon": 1}),
    "Loss.epsilon": Door(PrivacyLoss.gaussian(1).epsilon, {"delta": 0.1}, (), (("delta", 1),)),
    "Loss.for_group": Door(PrivacyLoss.pure(1).for_group, {"size": 2}, ("size",), (("size", 1.5),)),
    "Loss, times": Door(lambda times: PrivacyLoss.pure(1) * times, {"times": 2}, (), (("times", 1.5),)),
    "Budget": Door(
        Budget,
        {"epsilon": 1, "delta": 1e-6, "population": 100},
        ("epsilon", "population"),
        (("delta", 1),),
        optional=("population",),
    ),
    **{
        f"{kind.__name__}.of": Door(kind.of, NOISE, ("sensitivity", "epsilon"), (("sensitivity", 0.5),))
        for kind in CHOICES
    },
    **{
        kind.__name__: Door(
            lambda l1, epsilon, kind=kind: kind(Sensitivity(l1), epsilon),
            {"l1": 1, "epsilon": 1},
            ("l1", "epsilon"),
        )
        for kind in CHOICES
    },
    **{
        f"{kind.__name__}, error": Door(
            lambda confidence, coordinates, kind=kind: kind.of(**NOISE).error(
                confidence, coordinates=coordinates
            ),
            {"confidence": 0.9, "coordinates": 2},
            ("confidence", "coordinates"),
            (("confidence", 1), ("coordinates", 1.5)),
        )
        for kind in CHOICES
    },
    "ReportNoisyMax.of, products": Door(ReportNoisyMax.of, NOISE, (), OVERFLOWS),
    "TopK": Door(lambda k: TopK(PermuteAndFlip.of(**NOISE), k), {"k": 2}, ("k",), (("k", 1.5),)),
    "AboveThreshold.of": Door(
        AboveThreshold.of,
        {**NOISE, "threshold": 10, "answers": 2},
        ("sensitivity", "epsilon", "answers"),
        (*OVERFLOWS, ("threshold", 0.5), ("answers", 1.5)),
        signed=("threshold",),
    ),
    "AboveThreshold": Door(
        lambda l1, epsilon, threshold, answers: AboveThreshold(
            Sensitivity(l1), epsilon, threshold, answers=answers
        ),
        {"l1": 1, "epsilon": 1, "threshold": 10, "answers": 2},
        ("l1", "epsilon", "answers"),
        (("l1", 0.5), ("threshold", 0.5), ("answers", 1.5)),
        signed=("threshold",),
    ),
    **{
        make.__qualname__: Door(
            make,
            {"max_groups": 2, "epsilon": 1, "delta": 1e-6, "population": 100},
            ("max_groups", "epsilon", "delta", "population"),
            (
                ("max_groups", HUGE),
                ("max_groups", 1.5),
                ("delta", 1),
                ("delta", TINIEST**2),
                ("population", 10**6),
            ),
            optional=("population",),
        )
        for make in (
            TruncatedGeometricSelection.of,
            GaussianPartitionSelection.of,
            choose_partition_selection,
        )
    },
    "GaussianPartitionSelection.of, its share": Door(
        lambda share: GaussianPartitionSelection.of(max_groups=2, epsilon=1, delta=1e-6, share=share),
        {"share": 0.5},
        ("share",),
        (("share", 1),),
    ),
    "TruncatedGeometricSelection": Door(
        TruncatedGeometricSelection,
        {"epsilon": 1, "truncation": 3, "max_groups": 2},
        ("epsilon", "truncation", "max_groups"),
        (("epsilon", TINIEST), ("truncation", HUGE), ("truncation", 1.5), ("max_groups", HUGE)),
    ),
    "GaussianPartitionSelection": Door(
        GaussianPartitionSelection,
        {"sigma": 1, "threshold": 3, "max_groups": 2},
        ("sigma", "threshold", "max_groups"),
        (("sigma", HUGE), ("threshold", 1), ("threshold", HUGE), ("max_groups", HUGE)),
    ),
    "StabilityHistogram": Door(
        lambda threshold, max_groups: StabilityHistogram(Laplace(2, 1), threshold, max_groups),
        {"threshold": 3, "max_groups": 2},
        ("threshold", "max_groups"),
        (("threshold", 1), ("threshold", HUGE), ("max_groups", HUGE)),
    ),
    "StabilityHistogram.of": Door(
        lambda max_groups, delta: StabilityHistogram.of(
            noise=Laplace(2, 1), max_groups=max_groups, delta=delta
        ),
        {"max_groups": 2, "delta": 1e-6},
        ("max_groups", "delta"),
        (("delta", 1), ("max_groups", HUGE)),
    ),
    "StabilityHistogram, chances": Door(
        lambda confidence: (
            StabilityHistogram(Laplace(2, 1), 9, 1).min_count(confidence),
            StabilityHistogram(Laplace(2, 1), 9, 1).interval([12], confidence),
        ),
        {"confidence": 0.9},
        ("confidence",),
        (("confidence", 1),),
    ),
    "VectorStabilityHistogram": Door(
        lambda threshold, max_groups, parts, key_total: VectorStabilityHistogram(
            Laplace(2, 1), threshold, max_groups, parts, key_total
        ),
        {"threshold": 3, "max_groups": 2, "parts": 2, "key_total": 1},
        ("threshold", "max_groups", "parts", "key_total"),
        (("threshold", 1), ("threshold", HUGE), ("max_groups", HUGE), ("parts", HUGE), ("key_total", HUGE)),
    ),
    "VectorStabilityHistogram.of": Door(
        lambda max_groups, parts, key_total, delta: VectorStabilityHistogram.of(
            noise=Laplace(2, 1), max_groups=max_groups, parts=parts, key_total=key_total, delta=delta
        ),
        {"max_groups": 2, "parts": 2, "key_total": 1, "delta": 1e-6},
        ("max_groups", "parts", "key_total", "delta"),
        (("delta", 1), ("max_groups", HUGE), ("parts", HUGE)),
    ),
    "VectorStabilityHistogram, chances": Door(
        lambda confidence: (
            VectorStabilityHistogram(Laplace(2, 1), 9, 1, 2, 1).min_count(confidence),
            VectorStabilityHistogram(Laplace(2, 1), 9, 1, 2, 1).levels(np.array([[9, 9]]), confidence),
        ),
        {"confidence": 0.9},
        ("confidence",),
        (("confidence", 1),),
    ),
    "TruncatedGeometricSelection, chances": Door(
        lambda units, confidence: (
            TruncatedGeometricSelection(1, 3, 2).keep_probability(units),
            TruncatedGeometricSelection(1, 3, 2).min_units(confidence),
        ),
        {"units": 2, "confidence": 0.9},
        ("confidence",),
        (("units", 1.5), ("confidence", 1)),
    ),
    "RandomizedResponse.of": Door(
        RandomizedResponse.of,
        {"epsilon": 1, "categories": 3},
        ("epsilon", "categories"),
        (("epsilon", TINIEST), ("categories", 1), ("categories", 2.5), ("categories", HUGE)),
    ),
    "RandomizedResponse": Door(
        RandomizedResponse,
        {"keep": 0.75, "categories": 3},
        ("keep", "categories"),
        (("keep", 1), ("keep", Fraction(1, 3)), ("keep", 2), ("categories", 1)),
    ),
    "UnaryEncoding.of": Door(
        UnaryEncoding.of,
        {"epsilon": 1, "categories": 3},
        ("epsilon", "categories"),
        (("epsilon", TINIEST), ("categories", 1), ("categories", HUGE)),
    ),
    "UnaryEncoding": Door(
        UnaryEncoding,
        {"q": 0.25, "categories": 3, "p": 0.5},
        ("q", "p", "categories"),
        (("q", 0.5), ("q", 1), ("p", 1), ("p", 0.25), ("categories", 1)),
    ),
    **{
        f"{mechanism.kind}, estimates": Door(
            mechanism.estimate_error,
            {"respondents": 10, "confidence": 0.9},
            ("respondents", "confidence"),
            (("confidence", 1), ("respondents", 1.5)),
        )
        for mechanism in (RandomizedResponse.coin(), UnaryEncoding.of(epsilon=1, categories=3))
    },
    "SelectAndMeasure": Door(
        lambda epsilon, measured: SelectAndMeasure(
            PermuteAndFlip.of(sensitivity=1, epsilon=epsilon), Laplace.of(sensitivity=1, epsilon=measured)
        ),
        {"epsilon": 1, "measured": 1},
        ("epsilon", "measured"),
    ),
    **{
        sampler.__name__: Door(
            lambda value, size, sampler=sampler: sampler(value, size=size),
            {"value": 10, "size": 2},
            ("value",),
            (("value", HUGE), ("size", 1.5)),
            optional=("size",),
        )
        for sampler in (
            noise.geometric,
            noise.discrete_laplace,
            noise.rounded_gaussian,
            noise.discrete_gaussian,
        )
    },
    **{
        f"{sampler.__name__}, one and a list": Door(
            lambda value, sampler=sampler: (sampler(value), sampler([1, value])), {"value": 10}, ("value",)
        )
        for sampler in (
            noise.geometric,
            noise.discrete_laplace,
            noise.rounded_gaussian,
            noise.discrete_gaussian,
        )
    },
    "uniform": Door(
        lambda bound, size: (noise.uniform(bound), noise.uniform(bound, size)),
        {"bound": 6, "size": 2},
        ("bound",),
        (("bound", 2.5), ("size", 1.5)),
        optional=("size",),
    ),
    "bernoulli": Door(
        lambda p, size: (noise.bernoulli(p), noise.bernoulli(p, size)),
        {"p": 0.5, "size": 2},
        (),
        (("p", 1.5),),
        optional=("size",),
    ),
    "bernoulli_exp": Door(
        lambda x, size: (noise.bernoulli_exp(x), noise.bernoulli_exp(x, size)),
        {"x": 1, "size": 2},
        optional=("size",),
    ),
    "bernoulli_exp_each": Door(lambda x: noise.bernoulli_exp_each(x, np.array([1, 2])), {"x": 1}),
    "bernoulli_exp_each, times": Door(
        partial(noise.bernoulli_exp_each, 1),
        {"times": np.array([0, 1])},
        (),
        (("times", np.array([1, -1])), ("times", np.array([math.nan])), ("times", np.array([[1]]))),
    ),
    "linear": Door(
        lambda low, high: linear([1], float, low, high),
        {"low": 0, "high": 5},
        ("high",),
        (("low", 6), ("low", HUGE), ("high", HUGE), ("high", TINIEST**5)),
        signed=("low",),
    ),
}

# A29: errors that tell

SECRET = 987654321


def _raises_on_the_secret(row):
    if row == SECRET:
        raise ValueError(row)
    return row


def attack_A29(target):
    """Neighbouring databases must fail alike or not at all, and no error may show a row."""
    rows = [1, 2, 3]
    neighbours = [
        [*rows, odd] for odd in (SECRET, "x", None, math.nan, math.inf, 10**400, [1], {}, Fraction(1, 3), 0)
    ]
    outcomes = [outcome(lambda value=value: target(value)) for value in (rows, *neighbours)]
    return len(set(outcomes)) > 1 or any(str(SECRET) in text for seen in outcomes if seen for text in seen)


def _released(rule):
    """A rule and the mechanism made for it, both of which may fail."""

    def run(rows):
        bounded = rule(rows)
        return Laplace.of(
            sensitivity=bounded.sensitivity, epsilon=1, real=True, coordinates=bounded.coordinates
        ).release(bounded)

    return run


def attack_A29_values(target):
    """What is refused is refused without being shown, whatever its size or kind."""
    values = [
        SECRET + 0.5,
        float(SECRET) * 1e300,
        10**30 + SECRET,
        [SECRET, 0.5],
        [[SECRET]],
        str(SECRET),
        -SECRET - 0.5,
    ]
    outcomes = [outcome(lambda value=value: target(value)) for value in values]
    return any(str(SECRET) in text for seen in outcomes if seen for text in seen)


ROWS = [
    Row(
        "A23",
        attack_A23,
        {
            "Gaussian.of": lambda epsilon, delta: (
                Gaussian.of(sensitivity=1, epsilon=epsilon, delta=delta, allow_large_epsilon=True).sigma
            ),
            "the curve": _by_the_curve,
        },
        mutants.naive_calibration,
    ),
    Row("A27", attack_A27, DOORS, Door(mutants.unchecked_laplace, NOISE, ("epsilon",))),
    Row(
        "A29",
        attack_A29,
        {
            "count": _released(lambda rows: count(rows, _raises_on_the_secret)),
            "counts": _released(lambda rows: counts(rows, [_raises_on_the_secret, lambda row: row > 2])),
            "histogram": _released(lambda rows: histogram(rows, [1, 2])),
            "fraction": lambda rows: fraction(rows, _raises_on_the_secret),
            "fraction, added or removed": lambda rows: fraction(rows, bool, unit=count([]).unit),
            "linear": _released(lambda rows: linear(rows, _raises_on_the_secret, 0, 5)),
            "bounds": lambda rows: linear(rows, _raises_on_the_secret, 5, 0),
        },
        mutants.failing_count,
    ),
    Row(
        "A29-values",
        attack_A29_values,
        {
            "laplace": Laplace.of(**NOISE).release,
            "laplace on a grid": Laplace.of(**NOISE, real=True).release,
            "gaussian": Gaussian.of(**NOISE, delta=1e-6).release,
            "permute-and-flip": PermuteAndFlip.of(**NOISE).release,
            "threshold": AboveThreshold.of(**NOISE, threshold=0).release,
            "keys": TruncatedGeometricSelection(1, 3, 2).release,
            "histogram": StabilityHistogram(Laplace(2, 1), 9, 2).release,
            "histogram of parts": VectorStabilityHistogram(Laplace(2, 1), 9, 2, 1, 1).release,
            "response": RandomizedResponse.coin().release,
            "unary encoding": UnaryEncoding.of(epsilon=1, categories=3).release,
            "session": lambda value: AboveThreshold.of(**NOISE, threshold=0).open().ask(value),
            "bounded": lambda value: Bounded.user_asserted(value, 1),
        },
        mutants.shows_what_it_refuses,
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)


def test_every_mechanism_and_every_sampler_is_tried():
    kinds = [kind for kind in _concrete(Mechanism) if kind.__module__.startswith("hubbub.")]
    by_name = {kind.__name__ for kind in kinds} | set(noise.__all__) - {"MAX_SCALE"}

    assert len(kinds) >= 10
    assert by_name <= set(DOORS)
    assert {f"{kind.__name__}.of" for kind in kinds if hasattr(kind, "of")} <= set(DOORS)


def _concrete(kind):
    below = [result for sub in kind.__subclasses__() for result in _concrete(sub)]
    return below if inspect.isabstract(kind) or below else [kind]
