"""Bets have a mean of at most 1 under the claim: by linear programs and by enumeration."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.audit.betting import Constraints, choose_bet, payoff_bound
from hubbub.audit.black_box import audit
from hubbub.audit.claims import Claim, renyi_delta
from hubbub.audit.outcomes import Outcomes, lowest_bits
from hubbub.audit.tradeoff import lower_hull, probability_bounds


def private_pairs(epsilon, delta, cells, generator, count=400):
    """Random pairs of laws on the edge of (ε, δ)."""
    c = math.exp(epsilon)
    for _ in range(count):
        p = generator.dirichlet(np.full(cells, 0.5))
        q = generator.dirichlet(np.full(cells, 0.5))
        # Mix q with p until the pair satisfies the claim.
        for share in np.linspace(0, 1, 200):
            mixed_p, mixed_q = (1 - share / 2) * p + share / 2 * q, (1 - share / 2) * q + share / 2 * p
            if (
                np.maximum(mixed_p - c * mixed_q, 0).sum() <= delta
                and np.maximum(mixed_q - c * mixed_p, 0).sum() <= delta
            ):
                yield mixed_p, mixed_q
                break
    # The extreme ones: randomized response, with δ on cells of their own.
    keep = c / (1 + c)
    p, q = np.zeros(cells), np.zeros(cells)
    p[0], p[1], q[0], q[1] = (
        (1 - delta) * keep,
        (1 - delta) * (1 - keep),
        (1 - delta) * (1 - keep),
        (1 - delta) * keep,
    )
    p[2] += delta
    q[3] += delta
    for order in itertools.permutations(range(cells)):
        yield p[list(order)], q[list(order)]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.05, 0.5])
def test_no_private_pair_wins_more_than_the_bound(epsilon, delta):
    generator = np.random.default_rng(5)
    pairs = list(private_pairs(epsilon, delta, 4, generator, 60))
    for _ in range(20):
        f, g = generator.exponential(1, 4), generator.exponential(1, 4)
        bound = payoff_bound(f, g, epsilon, delta)
        assert max(float(p @ f + q @ g) for p, q in pairs) <= bound * (1 + 1e-12)


def test_payoff_bound_is_met_by_randomized_response():
    c = math.e
    f, g = np.array([2.0, 0.1]), np.array([0.2, 1.5])
    p, q = np.array([c, 1]) / (1 + c), np.array([1, c]) / (1 + c)
    assert payoff_bound(f, g, 1.0, 0.0) == pytest.approx(float(p @ f + q @ g))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.2, 0.0), (1.0, 0.0), (1.0, 0.01), (0.0, 0.2), (3.0, 1e-5)])
def test_bets_pay_at_most_their_bound(epsilon, delta):
    """What the audit bets, whatever it was chosen on."""
    generator = np.random.default_rng(7)
    constraints = Constraints(np.array([[epsilon]]), np.array([[delta]]))
    for shift in (0.0, 0.5, 2.0, 6.0):
        x, y = generator.normal(shift, 1, 300), generator.normal(0, 1, 300)
        log_f, log_g = choose_bet(x, y, constraints).payoffs()
        assert payoff_bound(np.exp(log_f[0]), np.exp(log_g[0]), epsilon, delta) <= 2 * (1 + 1e-12)


class Scripted:
    """A subject that answers from a list: every sequence of answers is enumerated."""

    name = "scripted"

    def __init__(self, x, y):
        self.answers = {"x": list(x), "y": list(y)}

    def draw(self, database, count):
        mine = self.answers[database]
        batch, self.answers[database] = mine[:count], mine[count:]
        return Outcomes.of(np.array(batch, dtype=np.float64))


def test_capital_has_mean_at_most_one_by_enumeration():
    """A first batch that suggests any bet, then all sequences of two draws on each side."""
    epsilon = 1.0
    keep = math.e / (1 + math.e)
    constraints = Constraints(np.array([[epsilon]]), np.array([[0.0]]))
    for first_x in range(0, 41, 4):
        for first_y in range(0, 41, 4):
            past = [np.repeat([1.0, 0.0], [ones, 40 - ones]) for ones in (first_x, first_y)]
            bet = choose_bet(*past, constraints)
            mean = 0.0
            for x in itertools.product([0.0, 1.0], repeat=2):
                for y in itertools.product([0.0, 1.0], repeat=2):
                    chance = math.prod(keep if v else 1 - keep for v in x)
                    chance *= math.prod(1 - keep if v else keep for v in y)
                    mean += chance * math.exp(bet.log_gain(np.array(x), np.array(y))[0])
            assert mean <= 1 + 1e-12
            if first_x - first_y > 35:
                assert mean > 0.5  # it does bet


def test_capital_grows_where_the_claim_is_broken():
    constraints = Constraints(np.array([[1.0]]), np.array([[0.0]]))
    x, y = np.repeat([1.0, 0.0], [190, 10]), np.repeat([1.0, 0.0], [10, 190])
    assert choose_bet(x, y, constraints).log_gain(x, y)[0] > 20
    same = choose_bet(x, x, constraints)
    assert same.is_neutral
    assert same.log_gain(x, y)[0] == 0


def test_audit_reads_answers_in_order_and_never_twice():
    x, y = np.arange(500.0), -np.arange(500.0)
    finding = audit(Scripted(x, y), epsilon=1, pairs=[("x", "y")], samples=400)
    assert finding.refuted
    assert finding.samples <= 400


@pytest.mark.parametrize("p", [0.02, 0.5])
def test_probability_bounds_hold_at_all_times_by_enumeration(p):
    """The exact chance that the bounds are ever wrong in 60 draws, by dynamic programming."""
    failure, alive, wrong = 0.1, {0: 1.0}, 0.0
    for draws in range(1, 61):
        following = {}
        for successes, chance in alive.items():
            for more, weight in ((1, p), (0, 1 - p)):
                following[successes + more] = following.get(successes + more, 0.0) + chance * weight
        counts = np.array(sorted(following))
        low, high = probability_bounds(counts, draws, failure)
        alive = {}
        for successes, bottom, top in zip(counts.tolist(), low, high, strict=True):
            if bottom <= p <= top:
                alive[successes] = following[successes]
            else:
                wrong += following[successes]
    assert 0 < wrong <= failure


def test_renyi_delta_is_above_the_exact_one():
    """Gaussian noise of μ = 1 has a Rényi divergence of α/2: its δ is below that of the conversion."""
    for epsilon in (0.5, 1.0, 3.0):
        exact = PrivacyLoss.gaussian(1).delta(epsilon)
        for order in (1.5, 2.0, 4.0, 16.0):
            assert renyi_delta(epsilon, order, order / 2) >= exact


def test_claims_of_a_kind_weaken_with_their_number():
    for claim in (
        Claim.approximate(1),
        Claim.delta_at(1, 0.01),
        Claim.zcdp(0.5),
        Claim.gaussian(1),
        Claim.renyi(2, 1),
    ):
        grid = claim.grid()
        assert claim.value in grid
        assert (np.diff(grid) > 0).all()
        assert (grid <= claim.limit).all()
    claims = Claim.of_loss(PrivacyLoss.gaussian(1))
    assert claims.value == 1
    assert claims.constraints(np.array([1.0, 2.0])).epsilon.shape[0] == 2


def test_lower_hull_is_convex_and_below_guessing():
    hull = lower_hull([(0.2, 0.3), (0.9, 0.02), (0.5, 0.5), (0.2, 0.9)])
    assert hull == [(0.0, 1.0), (0.2, 0.3), (0.9, 0.02), (1.0, 0.0)]


def test_lowest_bits_of_doubles():
    assert lowest_bits(np.array([1.0, 6.0, 0.75, 2.0**-1074])).tolist() == [0, 1, -2, -1074]
    assert lowest_bits(np.array([0.0]))[0] < -1074
    assert np.isnan(lowest_bits(np.array([np.nan, np.inf]))).all()


def test_bounds_of_an_event_are_bounds_of_each_claim():
    low, high = [0.3, 0.1], [0.31, 0.11]
    assert Claim.approximate(1.0, 0.01).lower_bound(low, high) == pytest.approx(math.log(0.29 / 0.11))
    assert Claim.approximate(1.0, 0.01).lower_bound(low[::-1], high[::-1]) == pytest.approx(
        math.log(0.29 / 0.11)
    )
    assert Claim.delta_at(0.5, 0.0).lower_bound(low, high) == pytest.approx(0.3 - math.exp(0.5) * 0.11)
    assert Claim.approximate(1.0, 0.5).lower_bound(low, high) == 0
    plain = [0.8, 0.05], [0.82, 0.06]
    for claim in (Claim.gaussian(1.0), Claim.zcdp(0.5), Claim.renyi(2.0, 0.1)):
        bound = claim.lower_bound(*plain)
        assert claim.is_broken_by(*plain, bound)
        assert not claim.is_broken_by(*plain, 1.01 * bound)
    # The exact μ of two half-lines of these probabilities; pairs (ε, δ) see a little less.
    exact = NormalDist().inv_cdf(0.3) - NormalDist().inv_cdf(0.11)
    assert 0.97 * exact < Claim.gaussian(1.0).lower_bound(low, high) <= exact


@pytest.mark.parametrize(
    "claim",
    [
        Claim.approximate(1.0, 1e-3),
        Claim.delta_at(2.0, 0.1),
        Claim.gaussian(0.7),
        Claim.zcdp(0.1),
        Claim.renyi(3.0, 1.0),
    ],
)
def test_a_stored_claim_is_the_same_claim(claim):
    again = Claim.restore(claim.kind, claim.value, claim.fixed)
    assert (again.symbol, again.value, again.at) == (claim.symbol, claim.value, claim.at)
    assert again.pairs_of(1.5) == claim.pairs_of(1.5)
    assert Claim.restore(claim.kind, math.nan, 0.0) is None
    assert Claim.restore("nothing", 1.0, 0.0) is None
