"""Randomized response: the flip rate to the last bit, unbiased estimates, intervals that cover."""

import random
from fractions import Fraction
from itertools import pairwise, product
from math import comb, erfc, log

import mpmath
import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.errors import HubbubError, InvalidInput, Unsupported
from hubbub.mechanisms import Estimate, Laplace, RandomizedResponse, UnaryEncoding, from_json
from hubbub.mechanisms import randomized_response as module
from hubbub.sensitivity import Bounded
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from refusing import refused

mp = mpmath.mp.clone()
mp.dps = 60

COIN = RandomizedResponse.coin()
SECRET = 987654321


def real(x):
    return mp.mpf(x.numerator) / x.denominator


def seeded(seed=5):
    return inject_bits(random.Random(seed).randbytes)


class Bits:
    """The first coins as given, then zeros."""

    def __init__(self, *coins):
        self.coins = list(coins)

    def __call__(self, count):
        first = [self.coins.pop(0) for _ in range(min(len(self.coins), count // 8))]
        return b"".join(coin.to_bytes(8, "little") for coin in first).ljust(count, b"\0")


# Privacy


def test_textbook_coins_cost_ln_3():
    assert (COIN.keep, COIN.categories) == (Fraction(3, 4), 2)
    assert COIN.loss().epsilon() == pytest.approx(log(3), rel=1e-15)
    assert mp.log(3) <= mp.mpf(COIN.loss().epsilon())
    exact = COIN.loss().cost().epsilon
    assert 0 <= real(exact) - mp.log(3) <= mp.ldexp(1, -120)
    assert COIN.loss().cost().delta == 0


@pytest.mark.parametrize(("k", "keep"), [(2, "0.75"), (3, "0.5"), (5, "0.21"), (1000, "0.999")])
def test_randomized_response_costs_the_worst_ratio_of_its_law(k, keep):
    mechanism = RandomizedResponse(Fraction(keep), k)
    p, q = mechanism._report_probabilities

    assert p + (k - 1) * q == 1
    worst = max(max(p, q) / min(p, q), 1)
    assert 0 <= real(mechanism.loss().cost().epsilon) - mp.log(real(worst)) <= mp.ldexp(1, -120)


def test_unary_encoding_costs_the_worst_ratio_of_its_law():
    """Over all outputs and all pairs of truths, with three categories."""
    mechanism = UnaryEncoding(Fraction(1, 5), 3, Fraction(2, 3))
    p, q = mechanism._report_probabilities

    def chance(truth, report):
        return np.prod(
            [
                (p if i == truth else q) if bit else 1 - (p if i == truth else q)
                for i, bit in enumerate(report)
            ]
        )

    worst = max(
        chance(a, report) / chance(b, report)
        for report in product([0, 1], repeat=3)
        for a, b in product(range(3), repeat=2)
    )
    assert worst == p * (1 - q) / (q * (1 - p)) == 8
    assert 0 <= real(mechanism.loss().cost().epsilon) - mp.log(8) <= mp.ldexp(1, -120)


@pytest.mark.parametrize("epsilon", ["1e-9", "0.01", "0.5", "1", "3", "20", "44", "45", "1000", "1e300"])
@pytest.mark.parametrize("k", [2, 3, 1000, 2**24])
def test_calibration_spends_no_more_than_epsilon_and_hardly_less(epsilon, k):
    exact = Fraction(epsilon)
    for mechanism in (
        RandomizedResponse.of(epsilon=exact, categories=k, allow_large_epsilon=True),
        UnaryEncoding.of(epsilon=exact, categories=k, allow_large_epsilon=True),
    ):
        spent = mechanism.loss().cost().epsilon
        assert spent <= exact
        if exact <= 20:
            assert spent == pytest.approx(float(exact), rel=1e-2 if exact < Fraction(1, 10**6) else 1e-8)
        assert mechanism.categories == k
        assert all(
            (2**64 * rate).denominator == 1
            for rate in (getattr(mechanism, "keep", 0), getattr(mechanism, "q", 0))
        )


def test_probabilities_are_rounded_to_the_private_side_by_at_most_one_unit():
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(3)):
        growth = mp.exp(real(epsilon))
        for k in (2, 10):
            keep = RandomizedResponse.of(epsilon=epsilon, categories=k).keep
            assert 0 < growth / (growth + k - 1) - real(keep) <= mp.ldexp(1, -64) * (1 + mp.ldexp(1, -30))
        encoding = UnaryEncoding.of(epsilon=epsilon, categories=4)
        assert encoding.p == Fraction(1, 2)
        assert 0 < real(encoding.q) - 1 / (growth + 1) <= mp.ldexp(1, -64) * (1 + mp.ldexp(1, -30))


def test_epsilon_near_the_limit_of_64_bits_is_not_overspent():
    """Just above the ε of keep = m/2^64 or q = m/2^64: its own, rounded up, would be a hair more."""
    for m in (2**63 + 2**60, 2**63 + 12345, 3 * 2**62 + 1):
        with mpmath.workprec(600):
            exact = mpmath.log(mpmath.mpf(m) / (2**64 - m))
            epsilon = Fraction(int(mpmath.ceil(mpmath.ldexp(exact, 140))) + 1, 2**140)
        mechanism = RandomizedResponse.of(epsilon=epsilon)
        assert mechanism.keep == Fraction(m - 1, 2**64)
        assert mechanism.loss().cost().epsilon <= epsilon
        encoded = UnaryEncoding.of(epsilon=epsilon, categories=2)
        assert encoded.q == Fraction(2**64 - m + 1, 2**64)
        assert encoded.loss().cost().epsilon <= epsilon


def test_an_epsilon_too_small_for_the_bits_is_refused():
    for make in (RandomizedResponse.of, UnaryEncoding.of):
        for epsilon in (1e-25, 1e-30):  # the rate is rounded to 1/2, or beyond it
            with refused(Unsupported, match="too small"):
                make(epsilon=epsilon, categories=2)
        assert make(epsilon=1e-15, categories=2).loss().epsilon() > 0


def test_the_flip_rate_is_exact_to_the_last_bit():
    """A20: of 2^64 coins just keep·2^64 tell the truth."""
    for mechanism in (
        COIN,
        RandomizedResponse.of(epsilon=1),
        RandomizedResponse.of(epsilon=Fraction(1, 3), categories=2),
    ):
        edge = int(mechanism.keep * 2**64)
        for truth in (0, 1):
            for coin, report in [(0, truth), (edge - 1, truth), (edge, 1 - truth), (2**64 - 1, 1 - truth)]:
                with inject_bits(Bits(coin)):
                    assert mechanism.release(truth).value == report
                with inject_bits(Bits(coin, coin)):
                    assert mechanism.release([truth, truth]).value.tolist() == [report, report]


def test_other_categories_are_equally_likely():
    mechanism = RandomizedResponse(Fraction(1, 2), 5)
    for truth in range(5):
        others = []
        for other in range(4):
            with inject_bits(Bits(2**64 - 1, other)):
                others.append(mechanism.release(truth).value)
        assert others == [category for category in range(5) if category != truth]


def test_unary_bits_flip_at_their_exact_rates():
    mechanism = UnaryEncoding(Fraction(1, 4), 3, Fraction(5, 8))
    zero, one = 2**62, 5 * 2**61
    with inject_bits(Bits(zero - 1, 0, zero, one - 1)):
        assert mechanism.release(1).value.tolist() == [True, True, False]
    with inject_bits(Bits(zero, 0, zero - 1, one)):
        assert mechanism.release(1).value.tolist() == [False, False, True]
    with inject_bits(Bits(*[zero] * 6, one - 1, one)):
        assert mechanism.release([2, 0]).value.tolist() == [[False, False, True], [False, False, False]]


@pytest.mark.parametrize(
    "mechanism",
    [COIN, RandomizedResponse.of(epsilon=1, categories=7), UnaryEncoding.of(epsilon=1, categories=7)],
)
def test_the_work_does_not_depend_on_the_truth(mechanism):
    """The same bits are drawn, in the same order, whatever the respondents hold."""
    calls = []
    for truths in ([0] * 50, [1] * 50, [0, 1] * 25):
        generator, log_of = random.Random(1), []

        def source(count, generator=generator, log_of=log_of):
            log_of.append(count)
            return generator.randbytes(count)

        with inject_bits(source):
            mechanism.release(truths)
        calls.append(log_of)
    assert calls[0] == calls[1] == calls[2]


def test_each_report_depends_on_its_own_truth_alone():
    for mechanism in (
        RandomizedResponse.of(epsilon=1, categories=4),
        UnaryEncoding.of(epsilon=1, categories=4),
    ):
        truths = np.array([0, 1, 2, 3, 0, 1])
        with seeded():
            before = mechanism.release(truths).value
        truths[2] = 0
        with seeded():
            after = mechanism.release(truths).value
        same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
        assert all(same[:2] + same[3:])


@pytest.mark.parametrize(
    "mechanism", [RandomizedResponse.of(epsilon=1, categories=4), UnaryEncoding.of(epsilon=2, categories=4)]
)
def test_reports_follow_their_distribution(mechanism):
    """By how often each category is reported of each truth; 8 standard deviations at most, one seed."""
    n = 40_000
    p, q = map(float, mechanism._report_probabilities)
    with seeded():
        for truth in range(4):
            counts, size = mechanism._tally(mechanism.release(np.full(n, truth)).value)
            assert size == n
            for category, count in enumerate(counts):
                rate = p if category == truth else q
                assert abs(count - n * rate) < 8 * (n * rate * (1 - rate)) ** 0.5


# Releases


def test_a_release_is_local_and_protects_the_respondent():
    release = COIN.release([0, 1, 1])

    assert release.model == "local"
    assert release.unit == Unit("respondent", Neighbours.SUBSTITUTE)
    assert release.loss == COIN.loss()
    assert release.source == COIN
    assert not release.user_asserted
    assert release.coordinates == 3
    assert release.value.dtype == np.int64
    assert repr(release).endswith("of one respondent, substitute, local model)")
    with refused(InvalidInput, match="no error of its own"):
        release.error()


def test_one_respondent_may_report_alone():
    assert COIN.release(1).value in (0, 1)
    assert type(COIN.release(np.int64(1)).value) is int
    assert COIN.release(1).coordinates == 1
    assert COIN.release([1]).value.shape == (1,)
    encoded = UnaryEncoding.of(epsilon=1, categories=5)
    assert encoded.release(4).value.shape == (5,)
    assert encoded.release(4).coordinates == 1
    assert encoded.release([4]).value.shape == (1, 5)
    assert encoded.release([4]).value.dtype == np.bool_


def test_no_respondents_give_no_reports():
    nobody = np.zeros(0, dtype=np.int64)
    assert COIN.release(nobody).value.shape == (0,)
    assert COIN.release([]).coordinates == 1
    assert UnaryEncoding.of(epsilon=1, categories=5).release(nobody).value.shape == (0, 5)


def test_many_reports_are_made_in_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 12)
    mechanism = UnaryEncoding(Fraction(1, 2**60), 5, 1 - Fraction(1, 2**60))
    truths = np.arange(103) % 5

    with seeded():
        reports = mechanism.release(truths).value

    assert np.array_equal(reports, np.eye(5, dtype=bool)[truths])
    monkeypatch.setattr(module, "_CHUNK", 4)  # fewer than one report takes
    assert np.array_equal(mechanism.release(truths).value, np.eye(5, dtype=bool)[truths])
    assert COIN.release(np.zeros(3, dtype=np.uint8)).value.shape == (3,)


def test_more_bits_than_memory_holds_are_refused(monkeypatch):
    mechanism = UnaryEncoding.of(epsilon=1, categories=5)
    monkeypatch.setattr(module, "_MAX_BITS", 10)
    assert mechanism.release([0, 0]).value.shape == (2, 5)
    with refused(Unsupported, match="2\\^33 bits"):
        mechanism.release([0, 0, 0])


def test_two_to_the_33_bits_are_accepted(monkeypatch):
    class EnoughError(Exception):
        pass

    def empty(*_, **__):
        raise EnoughError

    mechanism = UnaryEncoding.of(epsilon=1, categories=2**24)
    monkeypatch.setattr(np, "empty", empty)  # nobody fills eight gigabytes here

    with pytest.raises(EnoughError):
        mechanism.release([0] * 512)
    with refused(Unsupported, match="2\\^33 bits"):
        mechanism.release([0] * 513)


def test_aggregate_is_refused_as_a_response():
    for mechanism in (COIN, UnaryEncoding.of(epsilon=1, categories=2)):
        with refused(InvalidInput, match="is a Bounded"):
            mechanism.release(Bounded.user_asserted(1, 1))


@pytest.mark.parametrize(
    "mechanism",
    [COIN, RandomizedResponse.of(epsilon=1, categories=5), UnaryEncoding.of(epsilon=1, categories=2)],
)
@pytest.mark.parametrize(
    "value",
    [
        -1,
        SECRET,
        [0, SECRET],
        [-1, 0],
        np.array([0, SECRET]),
        2**63,
        [2**63],
        10**400,
        0.0,
        1.0,
        0.5,
        [0.0],
        np.array([1.0]),
        float("nan"),
        float("inf"),
        True,
        [True],
        np.array([True]),
        "1",
        ["1"],
        None,
        [None],
        np.array(1),
        np.array([[1]]),
        [[1]],
        np.ma.masked_array([1], mask=[True]),
        Fraction(1),
        Bounded.user_asserted(1, 1),
    ],
    ids=repr,
)
def test_invalid_category_is_refused(mechanism, value, monkeypatch):
    def never(*_):
        raise AssertionError("a coin was tossed")

    monkeypatch.setattr(module, "bernoulli", never)
    monkeypatch.setattr(module, "uniform", never)

    with refused(InvalidInput) as caught:
        mechanism.release(value)
    assert str(SECRET) not in str(caught.value)
    assert caught.value.fix


def test_last_category_is_accepted_and_the_next_refused():
    mechanism = RandomizedResponse.of(epsilon=1, categories=5)
    assert mechanism.release(4).coordinates == 1
    with refused(InvalidInput, match="from 0 to 4"):
        mechanism.release(5)


# Estimates


def test_estimates_are_unbiased():
    """E over the exact law of three respondents, all truths: the mean estimate is the true count."""
    mechanism = RandomizedResponse(Fraction(1, 2), 3)
    p, q = mechanism._report_probabilities
    estimates = {reports: mechanism.estimate(list(reports)).counts for reports in product(range(3), repeat=3)}
    for truths in product(range(3), repeat=3):
        mean = np.zeros(3)
        for reports, counts in estimates.items():
            chance = np.prod([p if a == b else q for a, b in zip(truths, reports, strict=True)])
            mean += float(chance) * counts
        assert mean == pytest.approx([truths.count(c) for c in range(3)], abs=1e-12)


def test_estimates_subtract_the_expected_lies():
    counts = COIN.estimate([1] * 60 + [0] * 40).counts
    assert counts.tolist() == [30.0, 70.0]  # (60 − 100/4)/(1/2)
    assert COIN.estimate([1] * 100).counts.tolist() == [-50.0, 150.0]
    encoded = UnaryEncoding(Fraction(1, 4), 2)
    reports = np.zeros((100, 2), dtype=bool)
    reports[:30, 0] = True
    assert encoded.estimate(reports).counts.tolist() == [20.0, -100.0]  # (30 − 25)/(1/4)


def test_estimate_has_interval_and_confidence():
    estimate = COIN.estimate([1] * 600 + [0] * 400)

    assert isinstance(estimate, Estimate)
    assert estimate.confidence == Fraction(19, 20)
    assert COIN.estimate([1, 0], confidence=0.5).confidence == Fraction(1, 2)
    for part in (estimate.counts, estimate.low, estimate.high):
        assert part.shape == (2,)
        assert part.dtype == np.float64
    # About 1.96·√(0.24·1000)/(1/2) = 60.7 each way, and two for whole numbers.
    assert estimate.counts - estimate.low == pytest.approx([62.5, 62.5], abs=1.5)
    assert estimate.high - estimate.counts == pytest.approx([62.5, 62.5], abs=1.5)
    # Of two categories one is what the other leaves.
    assert estimate.low + estimate.high[::-1] == pytest.approx([1000, 1000], abs=1e-6)
    with pytest.raises(AttributeError):
        estimate.counts = 0


def law(successes, of, p, q):
    """The exact law of a category's count of reports."""
    some = [comb(successes, i) * p**i * (1 - p) ** (successes - i) for i in range(successes + 1)]
    rest = [
        comb(of - successes, i) * q**i * (1 - q) ** (of - successes - i) for i in range(of - successes + 1)
    ]
    return np.convolve(some, rest)


@pytest.mark.parametrize("n", [2, 3, 5, 12, 40, 150])
def test_inequalities_behind_the_intervals_hold(n):
    """Zubkov and Serov for the binomial law; Hoeffding for two kinds of bits against it."""
    for m in (0.001, 0.03, 0.2, 0.5, 0.77, 0.999):
        up_to = np.cumsum(law(n, n, m, m))
        for j in range(1, n):
            x = j / n
            entropy = x * log(x / m) + (1 - x) * log((1 - x) / (1 - m))
            reach = (1 if x > m else -1) * (2 * n * max(entropy, 0)) ** 0.5
            normal = erfc(-reach / 2**0.5) / 2
            assert up_to[j] >= normal - 1e-12
            assert up_to[j - 1] <= normal + 1e-12
    for successes, p, q in [(n // 2, 0.9, 0.1), (1, 0.75, 0.25), (n - 1, 0.5, 0.01)]:
        mixed = np.cumsum(law(successes, n, p, q))
        mean = successes * p + (n - successes) * q
        plain = np.cumsum(law(n, n, mean / n, mean / n))
        for c in range(n):
            if c >= mean:
                assert mixed[c] >= plain[c] - 1e-12
            if c <= mean - 1:
                assert mixed[c] <= plain[c] + 1e-12


MECHANISMS = [
    COIN,
    RandomizedResponse.of(epsilon=0.2),
    RandomizedResponse.of(epsilon=5),
    RandomizedResponse.of(epsilon=3, categories=5),
    RandomizedResponse.of(epsilon=1, categories=50),
    UnaryEncoding.of(epsilon=1, categories=3),
    UnaryEncoding.of(epsilon=4, categories=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
def test_intervals_and_a_priori_errors_cover_every_truth(mechanism, confidence):
    """Exactly, over all outcomes, for every number of holders among up to sixty respondents."""
    p, q = mechanism._report_probabilities
    reach = module._normal_quantile(Fraction(str(confidence)), 1)
    for n in (1, 2, 3, 7, 20, 60):
        counts = np.arange(n + 1)
        low = (module._lower_bound_of_mean(counts, n, reach) * n - float(n * q)) / float(p - q)
        high = ((1 - module._lower_bound_of_mean(n - counts, n, reach)) * n - float(n * q)) / float(p - q)
        wide = mechanism.estimate_error(n, confidence)
        for successes in range(n + 1):
            chances = law(successes, n, float(p), float(q))
            assert chances[(low <= successes) & (successes <= high)].sum() >= confidence
            near = np.abs((counts - float(n * q)) / float(p - q) - successes) <= wide
            assert chances[near].sum() >= confidence


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_intervals_are_nearly_tight(mechanism):
    """Against ±1.96 standard deviations, for ten thousand respondents of whom a third hold it."""
    p, q = map(float, mechanism._report_probabilities)
    n, successes = 10_000, 3_333
    count = round(successes * p + (n - successes) * q)
    reports = [0] * count + [1] * (n - count) if isinstance(mechanism, RandomizedResponse) else None
    if reports is None:
        reports = np.zeros((n, mechanism.categories), dtype=bool)
        reports[:count, 0] = True
    estimate = mechanism.estimate(reports)

    deviation = (count / n * (1 - count / n) * n) ** 0.5 / (p - q)
    expected = 1.96 * deviation + 1.5 / (p - q)
    for side in (estimate.counts - estimate.low, estimate.high - estimate.counts):
        if estimate.low[0] > 0 and estimate.high[0] < n:
            assert side[0] == pytest.approx(expected, rel=0.05)
    assert estimate.low[0] <= successes <= estimate.high[0]


def test_interval_matches_its_definition():
    """n·H((c − 1)/n, m) = z²/2 at the lower end, by mpmath; a hair further out, for safety."""
    n = 500
    reach = module._normal_quantile(Fraction(19, 20), 1)
    counts = np.array([0, 1, 2, 50, 250, 499, 500])
    means = module._lower_bound_of_mean(counts, n, reach)

    assert means[:2].tolist() == [0.0, 0.0]
    for count, mean in list(zip(counts, means, strict=True))[2:]:
        x, m = mp.mpf(int(count) - 1) / n, mp.mpf(float(mean))
        entropy = x * mp.log(x / m) + (1 - x) * mp.log((1 - x) / (1 - m))
        assert 0 < m < x
        assert 1 <= entropy * n / (real(reach) ** 2 / 2) <= 1 + mp.mpf("3e-6")


@pytest.mark.parametrize("nines", [15, 20, 60])
def test_interval_matches_its_definition_at_any_confidence(nines):
    """Down to ends that are 2^-64 of what was counted, below which they are 0; and no warning."""
    n = 12
    reach = module._normal_quantile(1 - Fraction(1, 10**nines), 1)
    counts = np.arange(n + 1)
    means = module._lower_bound_of_mean(counts, n, reach)

    for count, mean in list(zip(counts, means, strict=True))[2:]:
        x = mp.mpf(int(count) - 1) / n
        m = mp.mpf(float(mean)) or mp.ldexp(x, -64)
        entropy = x * mp.log(x / m) + (1 - x) * mp.log((1 - x) / (1 - m))
        needed = real(reach) ** 2 / 2
        assert (entropy * n < needed) if mean == 0 else (1 <= entropy * n / needed <= 1 + mp.mpf("3e-6"))
    assert (means[2] > 0) == (nines < 20)
    assert (COIN.estimate([1] * n, confidence=1 - Fraction(1, 10**nines)).high == n).any()


def test_upper_end_is_rounded_up_once():
    """It is n·(1 − m − q)/(p − q), with m a double and all else exact."""
    n = 1000
    mechanism = RandomizedResponse.of(epsilon=3)
    p, q = mechanism._report_probabilities
    for ones in range(150, 850, 50):
        rest = module._lower_bound_of_mean(
            np.array([n - ones]), n, module._normal_quantile(Fraction(19, 20), 1)
        )[0]
        high = mechanism.estimate([1] * ones + [0] * (n - ones)).high[1]
        assert high == module.round_up(n * (1 - Fraction(rest) - q) / (p - q)) < n


def test_normal_quantile_is_rounded_up():
    for confidence, ways in [("0.95", 1), ("0.5", 1), ("0.95", 1000), ("0.999999", 7)]:
        z = module._normal_quantile(Fraction(confidence), ways)
        failing = (1 - real(Fraction(confidence))) / ways
        assert mp.erfc(real(z) / mp.sqrt(2)) <= failing
        assert mp.erfc((real(z) - mp.mpf("2e-9")) / mp.sqrt(2)) > failing


def test_counts_lie_between_zero_and_all():
    nobody = COIN.estimate([0] * 1000)
    assert (nobody.low[1], nobody.high[1]) == (0.0, 0.0)
    assert (nobody.low[0], nobody.high[0]) == (1000.0, 1000.0)
    few = COIN.estimate([1])
    assert (few.low.tolist(), few.high.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    assert (few.low <= few.high).all()


def test_all_intervals_together_are_wider_except_of_two_categories():
    many = RandomizedResponse.of(epsilon=1, categories=4)
    reports = [0] * 400 + [1] * 300 + [2] * 200 + [3] * 100
    alone, together = many.estimate(reports), many.estimate(reports, simultaneous=True)
    assert (together.low <= alone.low).all()
    assert (together.high > alone.high).any()
    assert (together.counts == alone.counts).all()
    # As wide as one at the confidence 1 − 0.05/4.
    wider = many.estimate(reports, confidence=1 - Fraction(5, 400))
    assert together.low.tolist() == wider.low.tolist()

    two = COIN.estimate([0] * 600 + [1] * 400)
    both = COIN.estimate([0] * 600 + [1] * 400, simultaneous=True)
    assert two.low.tolist() == both.low.tolist()
    encoded = UnaryEncoding.of(epsilon=1, categories=2)
    bits = np.tile([True, False, False, True], 200).reshape(-1, 2)
    assert (encoded.estimate(bits, simultaneous=True).low < encoded.estimate(bits).low).any()


def test_error_defaults_to_95_percent_confidence():
    assert COIN.estimate_error(100) == COIN.estimate_error(100, 0.95)


def test_error_is_known_before_the_release():
    # 1.96·√(10000/4)·2 = 196, and 2 for whole numbers.
    assert COIN.estimate_error(10_000) == pytest.approx(198, abs=0.01)
    assert COIN.estimate_error(10_000, 0.95) == COIN.estimate_error(10_000, simultaneous=True)
    assert COIN.estimate_error(10_000, 0.99) == pytest.approx(257.58 + 2, abs=0.01)
    assert COIN.estimate_error(1) == pytest.approx(1.96 + 2, abs=0.01)
    encoded = UnaryEncoding(Fraction(1, 4), 10)
    assert encoded.estimate_error(10_000) == pytest.approx((98 + 1) * 4, abs=0.05)
    assert encoded.estimate_error(10_000, simultaneous=True) == pytest.approx((2.807 * 50 + 1) * 4, abs=0.05)
    # Where even the truth is rarely reported, so is everything: √(n·p) rather than √(n/4).
    rare = RandomizedResponse.of(epsilon=1, categories=1000)
    p, q = map(float, rare._report_probabilities)
    assert rare.estimate_error(10**6) == pytest.approx(
        (1.96 * (10**6 * p * (1 - p)) ** 0.5 + 1) / (p - q), rel=0.05
    )
    assert encoded.estimate_error(10**6) < rare.estimate_error(10**6)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("n", [1, 10, 30, 5_000])
def test_error_matches_its_definition(mechanism, n):
    """t ≥ 1 + z·√(n·s(1 − s)) at its own s = p + t/n, and hardly more; to the rounding of a double."""
    p, q = mechanism._report_probabilities
    z = real(module._normal_quantile(Fraction(9, 10), 1))
    off = mp.mpf(mechanism.estimate_error(n, 0.9)) * real(p - q)
    s = min(mp.mpf(1) / 2, real(p) + off / n)
    least = 1 + z * mp.sqrt(n * s * (1 - s))

    assert least * (1 - mp.mpf("1e-12")) <= off <= least * mp.mpf("1.001")


def test_estimates_need_a_release_of_the_same_mechanism():
    release = COIN.release([0, 1, 1, 0])
    assert COIN.estimate(release).counts.tolist() == COIN.estimate(release.value).counts.tolist()
    assert COIN.estimate(COIN.release(1)).counts.shape == (2,)
    encoded = UnaryEncoding.of(epsilon=1, categories=5)
    assert encoded.estimate(encoded.release([4, 4])).counts.shape == (5,)
    assert encoded.estimate(encoded.release(4)).counts.shape == (5,)
    for foreign in (
        release,
        encoded.release([1]).map(lambda bits: bits),
        UnaryEncoding.of(epsilon=2, categories=5).release([1]),
    ):
        with refused(InvalidInput, match="another mechanism's"):
            encoded.estimate(foreign)
    with refused(InvalidInput, match="post-processed"):
        COIN.estimate(release.map(lambda reports: reports))


@pytest.mark.parametrize(
    "reports",
    [
        [2],
        [-1],
        [0, 2],
        [-1, 0],
        [0.5],
        ["1"],
        [True],
        [[0]],
        np.zeros((1, 1, 1), dtype=int),
        None,
        "1",
        [None],
        7,
        [10**30],
    ],
    ids=repr,
)
def test_invalid_reports_are_refused(reports):
    with refused(InvalidInput, match="reports"):
        COIN.estimate(reports)
    with refused(InvalidInput, match="reports"):
        UnaryEncoding.of(epsilon=1, categories=5).estimate(reports)


def test_bits_of_another_number_of_categories_are_refused():
    encoded = UnaryEncoding.of(epsilon=1, categories=5)
    for reports in (
        np.zeros((3, 4), dtype=bool),
        np.zeros((3, 5), dtype=int),
        np.zeros((1, 3, 5), dtype=bool),
    ):
        with refused(InvalidInput, match="a row of 5 booleans"):
            encoded.estimate(reports)


def test_estimating_from_no_reports_is_refused():
    with refused(InvalidInput, match="no reports"):
        COIN.estimate(np.zeros(0, dtype=int))
    with refused(InvalidInput, match="no reports"):
        UnaryEncoding.of(epsilon=1, categories=5).estimate(np.zeros((0, 5), dtype=bool))


def test_a_report_has_no_error():
    assert COIN.error_kind == "none"
    with refused(InvalidInput, match="estimate_error"):
        COIN.error()
    with refused(InvalidInput, match="estimate_error"):
        UnaryEncoding.of(epsilon=1, categories=2).error(0.9, coordinates=3)


# Parameters


NUMBERS = [float("nan"), float("inf"), 0, -1, "1", True, None, [1], np.array(0.5), np.array([0.5])]


@pytest.mark.slow
@pytest.mark.parametrize("bad", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "ask",
    [
        lambda bad: RandomizedResponse.of(epsilon=bad),
        lambda bad: RandomizedResponse.of(epsilon=1, categories=bad),
        lambda bad: RandomizedResponse(bad, 2),
        lambda bad: RandomizedResponse(Fraction(3, 4), bad),
        lambda bad: UnaryEncoding.of(epsilon=bad, categories=3),
        lambda bad: UnaryEncoding.of(epsilon=1, categories=bad),
        lambda bad: UnaryEncoding(bad, 3),
        lambda bad: UnaryEncoding(Fraction(1, 4), bad),
        lambda bad: UnaryEncoding(Fraction(1, 4), 3, bad),
        COIN.estimate_error,
        lambda bad: COIN.estimate_error(10, bad),
        lambda bad: COIN.estimate([0], confidence=bad),
    ],
)
def test_unusable_numbers_are_refused_as_parameters(ask, bad):
    with refused(HubbubError) as caught:
        ask(bad)
    assert caught.value.fix


def test_there_are_two_categories_or_more():
    for count in (1, 2.5):
        with refused(InvalidInput, match="categories"):
            RandomizedResponse.of(epsilon=1, categories=count)
    with refused(Unsupported, match="2\\^24"):
        RandomizedResponse.of(epsilon=1, categories=2**24 + 1)


def test_report_must_be_informative_and_private():
    for keep in (Fraction(1, 3), Fraction(1, 4)):
        with refused(InvalidInput, match="not above 1/categories"):
            RandomizedResponse(keep, 3)
    assert RandomizedResponse(Fraction(1, 3) + Fraction(1, 10**9), 3).loss().epsilon() > 0
    for keep in (0, 1, 1.5):
        with refused(InvalidInput, match="keep"):
            RandomizedResponse(keep, 3)
    for q, p in [(Fraction(1, 2), Fraction(1, 2)), (Fraction(2, 3), Fraction(1, 2))]:
        with refused(InvalidInput, match="q is not below p"):
            UnaryEncoding(q, 3, p)
    assert UnaryEncoding(Fraction(1, 2) - Fraction(1, 10**9), 3).loss().epsilon() > 0


def test_fields_are_made_exact_and_stored():
    rough = RandomizedResponse(0.75, np.int64(2))
    assert rough == COIN
    assert (type(rough.keep), type(rough.categories)) == (Fraction, int)
    encoded = UnaryEncoding(0.25, 3.0, 0.5)
    assert encoded == UnaryEncoding(Fraction(1, 4), 3)
    assert (type(encoded.q), type(encoded.p), type(encoded.categories)) == (Fraction, Fraction, int)
    for mechanism in (rough, encoded, *MECHANISMS):
        assert from_json(mechanism.to_json()) == mechanism
    assert RandomizedResponse.of(epsilon=1) == RandomizedResponse.of(epsilon=1, categories=2)
    assert RandomizedResponse(Fraction(3, 4)) == COIN
    with pytest.raises(AttributeError):
        rough.keep = 1
    assert Laplace.of(sensitivity=1, epsilon=1) != COIN


def test_mechanism_describes_itself():
    assert (
        str(COIN) == "Randomized response, the truth with probability 0.75, else one of 1 other: ε = 1.09862"
    )
    assert str(RandomizedResponse(Fraction(1, 2), 3)) == (
        "Randomized response, the truth with probability 0.5, else one of 2 others: ε = 0.693148"
    )
    assert str(UnaryEncoding(Fraction(1, 4), 3)) == (
        "Unary encoding of 3 categories, Pr[1 → 1] = 0.5, Pr[0 → 1] = 0.25: ε = 1.09862"
    )


def test_losses_of_the_same_respondent_add():
    assert COIN.loss() + COIN.loss() == COIN.loss() * 2
    assert (COIN.loss() * 2).epsilon() == pytest.approx(2 * log(3), rel=1e-15)
    assert PrivacyLoss.pure(0) + COIN.loss() == COIN.loss()


def test_more_truthful_answers_cost_more():
    losses = [RandomizedResponse(Fraction(keep, 10), 3).loss().epsilon() for keep in range(4, 10)]
    assert all(a < b for a, b in pairwise(losses))
