import copy
import math
import os
import pickle
import threading
import warnings
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forking import forking
from hubbub.accounting import PrivacyLoss, Receipt
from hubbub.errors import Halted, InvalidInput, Refused, Unsupported
from hubbub.mechanisms import AboveThreshold, from_json, sparse_vector
from hubbub.mechanisms import mechanism as mechanism_module
from hubbub.mechanisms.sparse_vector import Session
from hubbub.sensitivity import MAX_MAGNITUDE, Bounded, Sensitivity
from hubbub.unit import Neighbours, Unit
from internals import inject_bits
from mechanisms.reference import above, above_threshold, fits, mass, stream, worst_ratio
from refusing import refusal

FAR = 10**12
"""So far from any threshold that noise does not matter."""


def _one(**parameters):
    settings = {"sensitivity": 1, "epsilon": 1, "threshold": 0, "allow_large_epsilon": True}
    return AboveThreshold.of(**{**settings, **parameters})


class Book:
    """An account that writes down what it is asked, and says no where it was told to."""

    def __init__(self, refuses=False):
        self.refuses = refuses
        self.charged = []

    def charge(self, what, loss, *, unit=None):
        if self.refuses:
            raise Refused("the budget is spent", why="it is", fix="wait")
        self.charged.append((what, loss))
        return Receipt(what, loss)


# Privacy: ratios of the exact laws, with e^−ε rational


def _ratios(queries, delta, z, *, monotone):
    """The worst ratio of each pair of neighbours; the noise has z^|k| on queries."""
    law = cache(lambda values: above_threshold(values, 0, z, 1 if monotone else 2, 1))
    moves = range(0 if monotone else -delta, delta + 1)
    for values in product(range(-2, 3), repeat=queries):
        for move in product(moves, repeat=queries):
            moved = tuple(value + step for value, step in zip(values, move, strict=True))
            yield worst_ratio(law(values), law(moved))
            yield worst_ratio(law(moved), law(values))


@pytest.mark.parametrize(("queries", "delta"), [(1, 1), (2, 1), (2, 2)])
def test_answer_sequences_are_epsilon_private(queries, delta):
    # Query noise z^|k| with z = e^(−ε/4Δ), threshold noise of half its scale; so e^ε = z^(−4Δ).
    z = Fraction(2, 3)

    assert max(_ratios(queries, delta, z, monotone=False)) <= z ** (-4 * delta)


@pytest.mark.parametrize(("queries", "delta"), [(1, 1), (2, 1), (2, 2)])
def test_monotone_queries_need_half_the_noise(queries, delta):
    # Both with z = e^(−ε/2Δ); so e^ε = z^(−2Δ).
    z = Fraction(2, 3)

    assert max(_ratios(queries, delta, z, monotone=True)) <= z ** (-2 * delta)


def test_non_monotone_queries_need_the_full_noise():
    # Many queries go up while the next goes down: with the noise of monotone ones that tells too much.
    z = Fraction(1, 10)
    one, two = (*[0] * 4, 0), (*[1] * 4, -1)
    law = [above_threshold(values, 0, z, 1, 1) for values in (one, two)]

    assert law[0][4] / law[1][4] > z**-2
    law = [above_threshold(values, 0, z, 2, 1) for values in (one, two)]
    assert law[0][4] / law[1][4] <= z**-4


def test_enumerated_outcomes_have_total_probability_one():
    assert sum(above_threshold((1, -2, 3), 1, Fraction(1, 2), 2, 1)) == 1


# What is shipped follows these laws


@pytest.mark.slow
@pytest.mark.parametrize("monotone", [False, True])
def test_release_follows_the_reference_law(monotone):
    # χ² at a false alarm of 1e-9; and the bits are the same in every run.
    mechanism = _one(sensitivity=2, epsilon=4, threshold=3, monotone=monotone)
    values = (2, 5, 0)
    z = mpmath.exp(-mpmath.mpf(4) / (4 if monotone else 8))
    law = above_threshold(values, 3, z, 1 if monotone else 2, 1)
    bounded = Bounded.user_asserted(list(values), 2)
    counts = [0] * 4

    with inject_bits(stream(f"released/{monotone}")):
        for _ in range(3000):
            answer = mechanism.release(bounded).value
            counts[3 if answer is None else answer] += 1

    assert fits(counts, law)


@pytest.mark.slow
@pytest.mark.parametrize("monotone", [False, True])
def test_session_answers_follow_the_reference_law(monotone):
    mechanism = _one(sensitivity=2, epsilon=4, threshold=3, monotone=monotone)
    values = (2, 5, 0)
    z = mpmath.exp(-mpmath.mpf(4) / (4 if monotone else 8))
    law = above_threshold(values, 3, z, 1 if monotone else 2, 1)
    counts = [0] * 4

    with inject_bits(stream(f"session/{monotone}")):
        for _ in range(2000):
            session = mechanism.open()
            counts[next((i for i, value in enumerate(values) if session.ask(value)), 3)] += 1

    assert fits(counts, law)


def _scripted_noise(monkeypatch, draws):
    """Let these be the noise of a session; what scales it asked for is written down."""
    left, scales = list(draws), []

    def draw(scale):
        scales.append(scale)
        return left.pop(0)

    monkeypatch.setattr(sparse_vector, "discrete_laplace", draw)
    return scales


def test_answer_is_above_if_noisy_query_reaches_noisy_threshold(monkeypatch):
    mechanism = _one(threshold=10, sensitivity=3, epsilon=Fraction(1, 2))
    for bar, noise, value in product(range(-2, 3), range(-2, 3), range(8, 13)):
        scales = _scripted_noise(monkeypatch, [bar, noise, 99])
        assert mechanism.open().ask(value) is (value + noise >= 10 + bar)
        assert scales == [12, 24, 12]


def test_noisy_threshold_is_redrawn_after_each_answer_above(monkeypatch):
    scales = _scripted_noise(monkeypatch, [5, 0, 77, 0, -7, 0, 88, 0, 99])
    session = _one(answers=2).open()

    assert [session.ask(4), session.ask(5)] == [False, True]  # against 5 both times
    assert [session.ask(-8), session.ask(-7)] == [False, True]  # against −7, drawn with the first "above"
    assert scales == [4, 8, 4, 8, 4, 8, 4, 8, 4]
    refusal(Halted, session.ask, FAR)
    assert len(scales) == 9


@pytest.mark.parametrize(
    ("parameters", "of_threshold", "of_query"),
    [
        ({}, 2, 4),
        ({"monotone": True}, 2, 2),
        ({"sensitivity": 3, "epsilon": Fraction(1, 2)}, 12, 24),
        ({"sensitivity": 3, "epsilon": Fraction(1, 2), "monotone": True}, 12, 12),
        ({"answers": 5}, 10, 20),
        ({"answers": 5, "monotone": True}, 10, 10),
        ({"sensitivity": Sensitivity(50, linf=2)}, 4, 8),
    ],
)
def test_scales_match_the_proof(monkeypatch, parameters, of_threshold, of_query):
    mechanism = _one(**parameters)
    requests = _scripted_noise(monkeypatch, [0, 0, 0])
    mechanism.open().ask(1)

    assert (mechanism.threshold_scale, mechanism.query_scale) == (of_threshold, of_query)
    assert requests == [of_threshold, of_query, of_threshold]
    assert mechanism.loss() == PrivacyLoss.pure(mechanism.epsilon)


def test_each_query_of_a_list_has_its_own_noise(monkeypatch):
    mechanism = _one(threshold=10, sensitivity=2, answers=3)
    of_queries = []

    def draw(scale, size):
        of_queries.append((scale, size))
        return np.array([0, 3, 0, -1, 0, 0])

    for bars, expected in (
        ([0, 0, 0], [1, 2, 4]),
        ([4, 0], []),
        ([3, 4], [1]),
        ([3, 0, 2], [1, 2]),
        ([0, 0, 1], [1, 2, 5]),
        ([1, 0, 0], [1, 2, 4]),
    ):
        monkeypatch.setattr(mechanism_module, "discrete_laplace", draw)
        scales = _scripted_noise(monkeypatch, bars)
        assert mechanism.release([9, 10, 10, 10, 10, 11]).value == expected
        assert set(scales) == {12}
    assert set(of_queries) == {(24, 6)}


def test_single_answer_is_an_index_or_none():
    mechanism = _one(threshold=0)

    assert mechanism.release([-FAR, -FAR, FAR, FAR]).value == 2
    assert type(mechanism.release([FAR]).value) is int
    assert mechanism.release([FAR]).value == 0
    assert mechanism.release([-FAR]).value is None
    assert _one(answers=2).release([-FAR, FAR, -FAR]).value == [1]
    assert _one(answers=2).release([FAR, -FAR, FAR, FAR]).value == [0, 2]
    assert _one(answers=2).release([-FAR]).value == []


def test_large_query_values_are_compared_exactly(monkeypatch):
    _scripted_noise(monkeypatch, [0, -(10**30), 10**30])
    assert _one(threshold=-(10**30)).release([MAX_MAGNITUDE, 0]).value == 0
    assert _one(threshold=0).release([-MAX_MAGNITUDE, 0]).value == 0
    assert _one(threshold=0).release([MAX_MAGNITUDE, 0]).value is None


# Halting


def test_session_halts_after_its_last_answer():
    session = _one(answers=3).open()

    assert session.answers_left == 3
    assert [session.ask(v) for v in (-FAR, FAR, -FAR, FAR)] == [False, True, False, True]
    assert session.answers_left == 1
    assert session.ask(FAR)
    assert session.answers_left == 0
    for value in (FAR, -FAR, 0):
        assert "last answer" in refusal(Halted, session.ask, value).what
    assert session.answers_left == 0


def test_answers_below_cost_nothing():
    session = _one().open()

    assert not any(session.ask(-FAR) for _ in range(200))
    assert session.answers_left == 1


def test_a_session_cannot_be_copied():
    session = _one().open()
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        assert "copied" in refusal(Refused, copier, session).what
    assert session.ask(FAR)


def test_session_has_no_dict():
    session = _one().open()
    assert not hasattr(session, "__dict__")


def _in_a_fork(ask):
    """What a forked child says: an answer, or the error instead of one."""
    ours, theirs = os.pipe()
    with forking(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads are the point here
        child = os.fork()
    if child == 0:
        message = b"nothing"
        try:
            message = repr(ask()).encode()
        except BaseException as error:
            message = f"{type(error).__name__}: {error}".encode()
        finally:
            os.write(theirs, message)
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        message = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return message


@pytest.mark.slow
def test_a_forked_session_gives_no_answers():
    session = _one(answers=2).open()
    assert session.ask(FAR)

    for value in (FAR, -FAR):
        message = _in_a_fork(lambda value=value: session.ask(value))
        assert message.startswith("Refused: the session was opened in another process: ")
        assert "open a session in this process" in message
    # Whatever the child does, there is one answer left here, and the child may open its own.
    assert _in_a_fork(lambda: _one().open().ask(FAR)) == "True"
    assert session.answers_left == 1
    assert session.ask(FAR)


def test_session_is_bound_to_its_process(monkeypatch):
    session = _one().open()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sparse_vector.os, "getpid", lambda: -1)
        assert "another process" in refusal(Refused, session.ask, FAR).what
        assert _one().open().ask(FAR)
    assert session.ask(FAR)


@pytest.mark.slow
def test_forked_session_is_refused_without_waiting_for_a_lock():
    session = _one().open()
    with session._lock:  # as a thread that is asking holds it, and which the child does not have
        assert _in_a_fork(lambda: session.ask(FAR)).startswith("Refused: ")
    assert session.ask(FAR)


def test_two_threads_do_not_both_get_the_last_answer(monkeypatch):
    # Were two threads inside at once, they would meet here; alone, one waits in vain and goes on.
    meeting = threading.Barrier(2)
    met = []

    def draw(scale):
        try:
            meeting.wait(timeout=0.2)
            met.append(scale)
        except threading.BrokenBarrierError:
            meeting.reset()
        return 0

    session = _one().open()
    monkeypatch.setattr(sparse_vector, "discrete_laplace", draw)
    answers = []

    def ask():
        try:
            answers.append(session.ask(FAR))
        except Halted:
            answers.append("halted")

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert met == []
    assert sorted(answers, key=str) == [True, "halted"]


def test_entropy_failure_changes_no_state(monkeypatch):
    session = _one(answers=2).open()
    before = session._state
    for fails_at in (0, 1):
        for value in (FAR, -FAR):
            draws = []

            def draw(scale, fails_at=fails_at, draws=draws):
                draws.append(scale)
                if len(draws) > fails_at:
                    raise Refused("no bits", why="none", fix="wait")
                return 0

            with monkeypatch.context() as failing:
                failing.setattr(sparse_vector, "discrete_laplace", draw)
                refusal(Refused, session.ask, value)
            assert len(draws) == fails_at + 1
            assert session._state == before
    assert session.ask(FAR)


# Charging


def test_session_is_charged_before_any_draw(monkeypatch):
    order = []
    book = Book()
    plain = book.charge
    monkeypatch.setattr(book, "charge", lambda *a, **options: order.append("charged") or plain(*a, **options))
    monkeypatch.setattr(sparse_vector, "discrete_laplace", lambda scale: order.append("drawn") or 0)
    mechanism = _one(epsilon=Fraction(1, 2), answers=4)

    session = mechanism.open(book)
    assert order == ["charged", "drawn"]
    assert book.charged == [(mechanism.to_json(), PrivacyLoss.pure(Fraction(1, 2)))]
    assert session.receipt == Receipt(mechanism.to_json(), PrivacyLoss.pure(Fraction(1, 2)))
    session.ask(-FAR)
    session.ask(FAR)
    assert len(book.charged) == 1

    mechanism.open(book)
    assert len(book.charged) == 2


def test_refused_charge_gives_no_session(monkeypatch):
    monkeypatch.setattr(sparse_vector, "discrete_laplace", None)  # nothing is drawn

    assert refusal(Refused, _one().open, Book(refuses=True)).what == "the budget is spent"


def test_session_without_account_has_no_receipt():
    session = _one().open()

    assert session.receipt is None
    assert session.unit == Unit.row()
    assert session.mechanism == _one()
    assert type(session) is Session


@pytest.mark.parametrize("unit", ["patient", 1, Neighbours.ADD_REMOVE])
def test_invalid_unit_is_refused_before_the_charge(unit):
    book = Book()

    assert type(unit).__name__ in refusal(InvalidInput, _one().open, book, unit=unit).what
    assert book.charged == []


def test_monotone_is_refused_under_substitution():
    book = Book()
    unit = Unit.row(Neighbours.SUBSTITUTE)
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), unit, "histogram")

    assert "substitution" in refusal(Refused, _one(monotone=True).open, book, unit=unit).what
    assert book.charged == []
    assert "substitution" in refusal(Refused, _one(monotone=True).release, bounded).what
    assert _one().open(book, unit=unit).unit == unit
    assert _one().release(bounded).unit == unit
    assert _one(monotone=True).open(book, unit=Unit("patient")).unit == Unit("patient")


# What goes in


def test_query_must_have_the_unit_and_sensitivity_of_the_session():
    unit = Unit("patient")
    session = _one(sensitivity=2).open(unit=unit)

    assert session.ask(Bounded(FAR, Sensitivity(2), unit, "count"))
    session = _one(sensitivity=2).open(unit=unit)
    error = refusal(Refused, session.ask, Bounded.user_asserted(FAR, 1))
    assert str(unit) in error.what
    assert str(Unit.row()) in error.what
    assert "sensitivity" in refusal(Refused, session.ask, Bounded.user_asserted(FAR, 3, unit)).what
    assert session.answers_left == 1
    assert session.ask(FAR)


@pytest.mark.parametrize(
    "bad",
    [
        1.0,
        math.nan,
        math.inf,
        Fraction(1, 2),
        [1],
        np.array([1]),
        "1",
        None,
        True,
        2**62,
        Bounded.user_asserted([1], 1),
        Bounded.user_asserted(0.5, 1),
    ],
    ids=str,
)
def test_non_integer_query_is_refused_without_drawing(monkeypatch, bad):
    session = _one().open()
    with monkeypatch.context() as still:
        still.setattr(sparse_vector, "discrete_laplace", None)
        refusal(InvalidInput, session.ask, bad)
    assert session.ask(FAR)


def test_refusal_of_a_vector_names_it():
    session = _one().open()

    assert "one integer" in refusal(InvalidInput, session.ask, [1, 2]).what
    assert "one integer" in refusal(InvalidInput, session.ask, 1.0).what


@pytest.mark.parametrize(
    "bad", [[], 5, [1.5], [math.nan], [[1]], np.ones((2, 2), dtype=np.int64), None, "12"]
)
def test_non_integer_lists_are_refused(bad):
    refusal(InvalidInput, _one().release, bad)


def test_the_sensitivity_of_a_list_is_its_largest_move():
    assert _one(sensitivity=2).release(Bounded.user_asserted([-FAR], Sensitivity(9, linf=2))).value is None
    refusal(Refused, _one(sensitivity=2).release, Bounded.user_asserted([-FAR], Sensitivity(3)))


@pytest.mark.parametrize(
    ("parameters", "at"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"sensitivity": 0}, "the ℓ∞ sensitivity"),
        ({"sensitivity": 0.5}, "the ℓ∞ sensitivity"),
        ({"sensitivity": math.inf}, "sensitivity"),
        ({"threshold": 0.5}, "the threshold is not a whole number"),
        ({"threshold": math.nan}, "threshold"),
        ({"threshold": None}, "threshold"),
        ({"threshold": True}, "threshold"),
        ({"monotone": 1}, "monotone"),
        ({"monotone": None}, "monotone"),
        ({"answers": 0}, "answers"),
        ({"answers": -1}, "answers"),
        ({"answers": 1.5}, "answers"),
        ({"answers": None}, "answers"),
    ],
)
def test_invalid_parameters_are_refused(parameters, at):
    assert refusal(InvalidInput, _one, **parameters).what.startswith(at)


def test_plain_constructor_checks_parameters():
    assert AboveThreshold(Sensitivity(1), 0.1, 5.0, answers=2.0) == _one(epsilon=0.1, threshold=5, answers=2)
    mechanism = AboveThreshold(Sensitivity(1), 1, Fraction(5))
    assert (mechanism.answers, mechanism.monotone) == (1, False)
    assert (type(mechanism.epsilon), type(mechanism.threshold), type(mechanism.answers)) == (
        Fraction,
        int,
        int,
    )
    assert "int" in refusal(InvalidInput, AboveThreshold, 1, Fraction(1), 5).what


def test_noise_too_wide_for_exact_sampling_is_refused():
    assert _one(epsilon=Fraction(1, 2**46)).query_scale == 2**48
    assert _one(epsilon=Fraction(1, 2**47), monotone=True).query_scale == 2**48
    assert "2^48" in refusal(Unsupported, _one, epsilon=Fraction(1, 2**46 + 1)).what
    assert "2^48" in refusal(Unsupported, _one, epsilon=Fraction(1, 2**46), answers=2).what


# Error


def _off(z, m_threshold, distance):
    """Pr[query noise − threshold noise ≥ distance]."""
    return (mass(z, m_threshold) * above(z, 1, distance - 1)).total()


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize(
    ("confidence", "coordinates"), [(Fraction(1, 10), 1), (Fraction(19, 20), 1), (Fraction(99, 100), 50)]
)
def test_the_error_is_the_least_that_the_union_over_queries_gives(monotone, answers, confidence, coordinates):
    mechanism = _one(sensitivity=2, epsilon=2, monotone=monotone, answers=answers)
    z = mpmath.exp(-1 / (mpmath.mpf(2 if monotone else 4) * answers))
    m = mechanism.error(confidence, coordinates=coordinates)
    allowed = 1 - mpmath.mpf(confidence.numerator) / confidence.denominator

    def missed(m):
        return 2 * answers * coordinates * _off(z, 1 if monotone else 2, m + 1)

    assert type(m) is int
    assert missed(m) <= allowed
    assert missed(m - 1 if monotone else m - 2) > allowed


def test_error_matches_the_proved_formula():
    for epsilon, answers, coordinates, confidence in (
        (1, 1, 1, 0.5),
        (0.1, 3, 77, 0.99),
        (20, 2, 10, 0.9),
        (40, 1, 5, 0.5),
    ):
        scale = 4 * answers / epsilon
        q = math.exp(-1 / scale)
        odds = 2 * answers * coordinates * (1 + q) / (1 + q + q * q) / (1 - confidence)
        mechanism = _one(epsilon=epsilon, answers=answers)
        assert mechanism.error(confidence, coordinates=coordinates) == math.ceil(scale * math.log(odds)) - 1


@pytest.mark.parametrize("k", [3, 5, 8])
@pytest.mark.parametrize("allowed", [Fraction(1, 4), Fraction(1, 10), Fraction(1, 20)])
def test_the_error_is_rounded_up_however_close_the_next_whole_number_is(allowed, k):
    # Just below the rate at which the bound would be k − 1: by 2^-320 of it, and so it is k.
    with mpmath.workprec(900):

        def beyond(rate):
            q = mpmath.exp(-rate)
            return mpmath.log(2 * (1 + q) / (1 + q + q * q) * allowed.denominator) - k * rate

        near = int(mpmath.floor(mpmath.ldexp(mpmath.findroot(beyond, 0.5), 320)))

    assert allowed.numerator == 1
    assert _one(epsilon=Fraction(near, 2**318)).error(1 - allowed) == k
    assert _one(epsilon=Fraction(near + 2**150, 2**318)).error(1 - allowed) == k - 1


def test_errors_match_the_table():
    assert _one(epsilon=0.1).error() == _one(epsilon=0.1).error(0.95, coordinates=1) == 131
    for monotone, least in ((False, 3490), (True, 1750)):
        # However sure, and however many: about the scale times ln coordinates/β.
        far = _one(monotone=monotone).error(1 - Fraction(1, 10**300), coordinates=10**80)
        assert least < far < least + 30
    assert _one(epsilon=0.1).error(coordinates=1000) == 408
    assert _one(epsilon=0.1, monotone=True).error(0.95, coordinates=1000) == 237
    assert _one(epsilon=0.1, answers=10).error(0.95, coordinates=1000) == 4998
    assert _one(epsilon=1000).error() == 0
    for bad in (0, 1, math.nan):
        assert refusal(InvalidInput, _one().error, bad).what.startswith("confidence")
    for bad in (0, 1.5):
        assert refusal(InvalidInput, _one().error, 0.95, coordinates=bad).what.startswith("coordinates")


def test_the_error_is_below_the_textbooks():
    for coordinates, confidence, epsilon in ((10, 0.9, 1), (1000, 0.95, 0.1), (10**6, 0.999, 5)):
        textbook = 8 * (math.log(coordinates) + math.log(2 / (1 - confidence))) / epsilon
        assert _one(epsilon=epsilon).error(confidence, coordinates=coordinates) < textbook
        assert _one(epsilon=epsilon, monotone=True).error(confidence, coordinates=coordinates) < textbook


def test_release_states_its_error():
    release = _one().release([1, 2, 3])

    assert release.coordinates == 3
    assert release.error(0.9) == _one().error(0.9, coordinates=3)
    refusal(InvalidInput, release.interval)


# What is shown and stored


def test_neither_noise_nor_values_are_shown(monkeypatch):
    _scripted_noise(monkeypatch, [987654321, 11, 12, 987654999])
    session = _one(answers=2).open()
    session.ask(987000000)

    assert repr(session) == f"Session(2 of 2 answers left; {session.mechanism})"
    assert "987" not in repr(session) + str(session)
    release = _one(threshold=0).release([-987654321, -987654322])
    assert "98765" not in repr(release) + release.source.to_json()


@pytest.mark.parametrize(
    "mechanism",
    [
        _one(),
        _one(monotone=True, answers=7, threshold=-(10**20), epsilon=0.1, sensitivity=Sensitivity(5, linf=2)),
    ],
)
def test_mechanism_survives_storage(mechanism):
    assert from_json(mechanism.to_json()) == mechanism
    assert hash(from_json(mechanism.to_json())) == hash(mechanism)
    assert mechanism.error_kind == "regret"


def test_stored_form_is_stable():
    assert _one(threshold=-3).to_json() == (
        '{"answers":1,"epsilon":"1","kind":"above-threshold/1","monotone":false,'
        '"sensitivity":{"l1":"1","l2_squared":"1","linf":"1"},"threshold":-3}'
    )


def test_mechanism_describes_itself():
    assert str(_one(threshold=7, epsilon=0.5)) == (
        "Above threshold 7, until 1 query is; Laplace noise of scale 4 on the threshold and 8 on each "
        "integer query that one unit moves by at most 1: ε = 0.5"
    )
    assert str(_one(threshold=-7, monotone=True, answers=3, sensitivity=2)) == (
        "Above threshold -7, until 3 queries are; Laplace noise of scale 12 on the threshold and 12 on each "
        "integer query that one unit raises by at most 2: ε = 1"
    )


def test_user_asserted_sensitivity_is_stated():
    bounded = Bounded([1, 2], Sensitivity(2, linf=1), Unit("patient"), "counts")

    assert not _one().release(bounded).user_asserted
    assert _one(monotone=True).release(bounded).user_asserted
    assert _one().release([1, 2]).user_asserted
    assert _one().release(bounded).loss == PrivacyLoss.pure(1)


@given(
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=40),
    st.integers(-(10**15), 10**15),
    st.fractions(Fraction(1, 10**6), 10**6),
    st.integers(1, 5),
)
def test_answers_above_never_exceed_the_limit(values, bar, epsilon, answers):
    result = _one(threshold=bar, epsilon=epsilon, answers=answers).release(values).value

    if answers == 1:
        assert result is None or result in range(len(values))
    else:
        assert len(result) <= answers
        assert result == sorted(set(result))
        assert all(index in range(len(values)) for index in result)


def test_session_states_user_asserted_sensitivity():
    mechanism = AboveThreshold.of(sensitivity=1, epsilon=1, threshold=10**9)
    derived = Bounded(0, Sensitivity(1), Unit.row(), "a rule")
    session = mechanism.open()
    session.ask(derived)
    assert not session.user_asserted
    session.ask(0)
    assert session.user_asserted
    assert AboveThreshold.of(sensitivity=1, epsilon=1, threshold=10**9, monotone=True).open().user_asserted
