"""The score of an answer depends on that answer alone, never on others of its batch."""

import math
import random

import numpy as np
import pytest

from hubbub.audit import audit
from hubbub.audit.outcomes import Outcomes
from hubbub.audit.scores import known_paths, learn_categories, learn_score, make_number_score

DOUBT = 1e-10
ONE = [([1.0], [])]
_SECRET = random.SystemRandom()


def ragged(draws, seed):
    """Answers of many shapes: numbers, texts, NaN, lists and dicts with other keys each time."""
    source = random.Random(seed)
    shapes = (
        source.random,
        lambda: math.nan,
        lambda: source.randrange(3),
        lambda: source.choice(["red", "green", None, True]),
        lambda: [source.randrange(4) for _ in range(source.randrange(5))],
        lambda: {source.choice("abcdefgh"): source.randrange(3), "z": source.random()},
        lambda: {f"k{place:02d}": float(place) for place in range(source.randrange(60))},
    )
    return [source.choice(shapes)() for _ in range(draws)]


def scores_of(x, y):
    for name in dict.fromkeys([*x.numeric_names(), *y.numeric_names()]):
        yield make_number_score(name, x, y)
    names = dict.fromkeys([*x.category_names(), *y.category_names(), "order", "equal", "text "])
    categories = [learn_categories(name, x, y) for name in names]
    yield from (score for score in categories if score is not None)
    yield learn_score(x, y, tuple(score for score in categories if score is not None)[:6])


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "batch",
    [
        ragged(60, 3),
        [1.0, math.nan, -0.0, 2.5],
        [1, 2, 3],
        [(1.0, 2.0), (2.0, 1.0), (0.5, 0.5)],
        [{"a": 1.0, "c": 2.0}, {"b": 1.0, "c": 2.0}, {"b": 0.0, "c": 5.0}],
    ],
    ids=["ragged", "floats", "integers", "pairs", "keys"],
)
def test_a_score_depends_on_one_answer_alone(batch):
    past = Outcomes.of(ragged(150, 1) + batch), Outcomes.of(ragged(150, 2))
    whole = Outcomes.of(batch)
    attempts = set()
    for score in scores_of(*past):
        together = score(whole)
        alone = [score(Outcomes.of([answer]))[0] for answer in batch]
        one_by_one = [score(whole.take(slice(place, place + 1)))[0] for place in range(len(batch))]
        exact = score.name != "learned"  # a product of matrices is rounded by its size
        for each in (alone, one_by_one):
            np.testing.assert_allclose(each, together, rtol=0 if exact else 1e-9, atol=0 if exact else 1e-9)
        attempts.add(score.name.partition(" ")[0])
    assert {"value", "sum", "max", "min", "difference", "order", "equal", "shape", "learned"} <= attempts


def test_paths_are_those_of_past_answers():
    past = Outcomes.of([{"a": 1.0, "b": 2.0}]), Outcomes.of([{"c": 3.0}])
    score = make_number_score("sum", *past)
    assert score.paths == known_paths(*past) == ("['a']", "['b']", "['c']")
    assert score(Outcomes.of([{"a": 1.0, "d": 50.0}, {"c": 4.0}])).tolist() == [1.0, 4.0]


def test_keys_with_spaces_are_not_confused():
    assert len(Outcomes.of([{"a b": 1.0, "a_b": 2.0}]).paths) == 2


def _randomized_response(database):
    truthful = math.e / (1 + math.e)
    return _SECRET.random() < (truthful if database else 1 - truthful)


def _one_key_of_many(database):
    """Exactly ε = 1: which of two keys comes last."""
    answer = {f"k{place:02d}": 0.0 for place in range(47)}
    return answer | ({"za": 1.0} if _randomized_response(database) else {"zb": 0.0})


def _selected_key(database):
    """Exactly ε = 1: which key is selected; the numbers do not depend on rows."""
    key = "a" if _randomized_response(database) else "b"
    return {key: _SECRET.random(), "c": _SECRET.random() + 0.3}


@pytest.mark.parametrize(
    ("subject", "samples"),
    [(_one_key_of_many, 1500), pytest.param(_selected_key, 6000, marks=pytest.mark.long)],
)
def test_keys_that_vary_do_not_refute_an_exact_claim(subject, samples):
    finding = audit(subject, epsilon=1, pairs=ONE, samples=samples, confidence=1 - DOUBT)
    assert not finding.refuted
    assert finding.lower <= 1
