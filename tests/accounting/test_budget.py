from fractions import Fraction

import numpy as np
import pytest

from hubbub.accounting import Account, Budget, PrivacyLoss, Receipt, refuse_large_delta
from hubbub.errors import HubbubError, InvalidInput, Refused
from refusing import refused


def test_a_budget_holds_exact_numbers():
    budget = Budget(0.1, 1e-6, population=np.int64(1000))

    assert (budget.epsilon, budget.delta) == (Fraction(1, 10), Fraction(1, 10**6))
    assert (budget.population, type(budget.population)) == (1000, int)
    assert budget == Budget(Fraction(1, 10), Fraction(1, 10**6), population=1000.0)


def test_a_budget_may_have_no_delta_and_no_population():
    assert (Budget(1).delta, Budget(1).population) == (0, None)
    assert Budget(1, population=5).delta == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1, "1", True, None, np.array(1.0), [1]])
def test_invalid_epsilon_delta_or_population_is_refused(bad):
    for make in (
        lambda: Budget(bad),
        lambda: Budget(1, bad) if bad is not None else Budget(bad),
        lambda: Budget(1, population=bad) if bad is not None else Budget(bad),
    ):
        with refused(InvalidInput):
            make()


def test_budget_of_epsilon_zero_allows_no_charge():
    with refused(InvalidInput, match="epsilon"):
        Budget(0)


@pytest.mark.parametrize("population", [0, -3, 2.5])
def test_a_population_is_a_whole_number_of_people(population):
    with refused(InvalidInput, match="population"):
        Budget(1, 0, population=population)
    with refused(InvalidInput, match="population"):
        refuse_large_delta(Fraction(0), population)


@pytest.mark.parametrize("delta", [1, 2, 10**30])
def test_a_delta_of_one_allows_everything_and_is_refused(delta):
    with refused(Refused, match="whole table") as caught:
        Budget(1, delta)
    assert caught.value.fix
    with refused(Refused, match="1 or more"):
        refuse_large_delta(Fraction(delta), None)


def test_a_delta_above_a_thousandth_needs_the_population():
    assert Budget(1, Fraction(1, 1000)).delta == Fraction(1, 1000)
    for delta in (Fraction(1001, 10**6), Fraction(999, 1000)):
        with refused(Refused, match="above 1/1000, and population is not given") as caught:
            Budget(1, delta)
        assert "population" in caught.value.fix
    assert Budget(1, Fraction(1, 11), population=10).delta == Fraction(1, 11)


def test_an_epsilon_above_twenty_must_be_confirmed():
    assert Budget(20).epsilon == 20
    for epsilon in (20 + Fraction(1, 10**9), 10**6):
        with refused(Refused, match="epsilon is above 20") as caught:
            Budget(epsilon)
        assert "allow_large_epsilon=True" in caught.value.fix
        assert Budget(epsilon, allow_large_epsilon=True) == Budget(epsilon, allow_large_epsilon=True)
    for odd in (1, "yes", None):
        with refused(InvalidInput, match="allow_large_epsilon"):
            Budget(1, allow_large_epsilon=odd)


def test_delta_of_one_over_the_population_is_refused():
    with refused(Refused, match="1/population") as caught:
        Budget(1, Fraction(1, 1000), population=1000)
    assert isinstance(caught.value, HubbubError)
    assert "at random" in caught.value.why
    assert "hundredth" in caught.value.fix
    with refused(Refused):
        refuse_large_delta(Fraction(1, 999), 1000)
    assert refuse_large_delta(Fraction(1, 1001), 1000) is None
    assert Budget(1, Fraction(1, 1001), population=1000).population == 1000


def test_a_charge_returns_a_receipt():
    class Purse:
        def charge(self, what, loss, *, unit=None):
            return Receipt(what, loss)

    purse: Account = Purse()
    receipt = purse.charge("a count", PrivacyLoss.pure(1))

    assert (receipt.what, receipt.loss) == ("a count", PrivacyLoss.pure(1))
    assert receipt == Receipt("a count", PrivacyLoss.pure(1))


@pytest.mark.parametrize(
    ("thing", "name"), [(Budget(1), "epsilon"), (Receipt("a count", PrivacyLoss.pure(1)), "what")]
)
def test_a_budget_is_immutable(thing, name):
    with pytest.raises(AttributeError):
        setattr(thing, name, 0)
