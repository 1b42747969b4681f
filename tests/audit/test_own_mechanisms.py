"""hubbub's own mechanisms and queries, audited on neighbours at the edges: nothing is refuted."""

import pytest

import hubbub as hb
from audit.zoo.noise import seeded
from hubbub.audit import Claim, InputPair, audit
from hubbub.audit.neighbours import RowDomain, make_random_pairs
from hubbub.audit.sql_subject import SqlSubject
from hubbub.audit.subjects import MechanismSubject
from hubbub.errors import HubbubError
from hubbub.unit import Neighbours

DOUBT = 1e-10
"""How likely a false alarm is."""
ROW = [InputPair([1], []), InputPair([1] * 5, [1] * 4)]
PURE = Claim.approximate(1.0)


def three(rows):
    """Three scores that one row moves in both directions."""
    return [len(rows), -len(rows), 2]


def one(rows):
    return [len(rows)]


MECHANISMS = [
    ("Laplace", hb.Laplace.of(sensitivity=1, epsilon=1), None, PURE, ROW),
    ("Laplace, real", hb.Laplace.of(sensitivity=1, epsilon=1, real=True), None, PURE, ROW),
    (
        "Gaussian",
        hb.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-3),
        None,
        Claim.approximate(1.0, 1e-3),
        ROW,
    ),
    ("Exponential", hb.Exponential.of(sensitivity=1, epsilon=1), three, PURE, ROW),
    ("PermuteAndFlip", hb.PermuteAndFlip.of(sensitivity=1, epsilon=1), three, PURE, ROW),
    ("ReportNoisyMax", hb.ReportNoisyMax.of(sensitivity=1, epsilon=1), three, PURE, ROW),
    ("ReportNoisyMaxWithGap", hb.ReportNoisyMaxWithGap.of(sensitivity=1, epsilon=1), three, PURE, ROW),
    ("RandomizedResponse", hb.RandomizedResponse.of(epsilon=1), list, PURE, [InputPair([1], [0])]),
    (
        "UnaryEncoding",
        hb.UnaryEncoding.of(epsilon=1, categories=3),
        list,
        PURE,
        [InputPair([2], [0])],
    ),
]


@pytest.mark.sweep(5)
@pytest.mark.parametrize("case", MECHANISMS, ids=lambda case: case[0])
def test_own_mechanisms_keep_their_claims(case):
    name, mechanism, query, claim, pairs = case
    with seeded(name):
        result = audit(
            MechanismSubject(mechanism, query), claim=claim, pairs=pairs, samples=1600, confidence=1 - DOUBT
        )
    assert not result.refuted, result


NUMBERS, LETTERS = RowDomain(), RowDomain(values=("a", "b", "c"))
BOUNDS = {"bounds": {"value": (0, 1)}}
BY_VALUE = "SELECT value, COUNT(*) AS n FROM data GROUP BY value"
PER_PERSON = "SELECT AVG(n) AS mean FROM (SELECT person, COUNT(*) AS n FROM data GROUP BY person)"
SIDES = "SELECT CASE WHEN value > 0.5 THEN 1 ELSE 0 END AS high, SUM(value) AS total FROM data GROUP BY high"
QUERIES = [
    ("SELECT COUNT(*) AS n FROM data", NUMBERS, {}),
    ("SELECT COUNT(DISTINCT person) AS n FROM data", NUMBERS, {}),
    ("SELECT SUM(value) AS total, AVG(value) AS mean FROM data", NUMBERS, BOUNDS),
    ("SELECT COUNT(*) AS n FROM data WHERE value > 0.5", NUMBERS, {}),
    ("SELECT MEDIAN(value) AS middle FROM data", NUMBERS, BOUNDS),
    ("SELECT STDDEV(value) AS spread FROM data", NUMBERS, BOUNDS),
    ("SELECT MAX(value) AS largest FROM data", NUMBERS, BOUNDS),
    ("SELECT COUNT(DISTINCT value) AS n FROM data", LETTERS, {}),
    (BY_VALUE, LETTERS, {"keys": {"value": ["a", "b", "c"]}}),
    (BY_VALUE, LETTERS, {"delta": 1e-6}),
    (SIDES, NUMBERS, {**BOUNDS, "keys": {"high": [0, 1]}}),
    (PER_PERSON, NUMBERS, {"bounds": {"n": (0, 3)}}),
]


def twice(rows):
    """A second row for every other person."""
    return [[row, row] if place % 2 else row for place, row in enumerate(rows)]


def audit_query(sql, domain, more, samples):
    """On random neighbours with one row a person, and with two rows for some of them."""
    subject = SqlSubject(sql, 1, more.get("delta", 0), options={"rows_per_unit": 1}, **without_delta(more))
    with seeded(sql):
        pairs = make_random_pairs(domain, Neighbours.ADD_REMOVE, 3)
        pairs[-1] = InputPair(twice(pairs[-1].x), twice(pairs[-1].x_prime), "with two rows")
        claim = Claim.approximate(1.0, float(more.get("delta", 0)))
        return audit(subject, claim=claim, pairs=pairs, samples=samples, confidence=1 - DOUBT)


def without_delta(more):
    return {name: value for name, value in more.items() if name != "delta"}


@pytest.mark.long
@pytest.mark.parametrize("case", QUERIES, ids=lambda case: case[0])
def test_query_shapes_keep_their_claims_on_random_neighbours(case):
    result = audit_query(*case, samples=300)
    assert not result.refuted, result
    assert result.pairs_tried == 3


@pytest.mark.slow
def test_private_keys_keep_their_claims_on_random_neighbours():
    result = audit_query(BY_VALUE, LETTERS, {"delta": 1e-6}, samples=192)
    assert not result.refuted, result


def test_query_is_drawn_as_often_as_asked():
    subject = SqlSubject(
        "SELECT SUM(value) AS total FROM data", 1, bounds={"value": (0, 1)}, options={"rows_per_unit": 1}
    )
    assert len(subject.draw([0.5, 1.0], 2)) == 2
    with pytest.raises(HubbubError):
        SqlSubject("SELECT value FROM data", 1).draw([1.0], 2)


def test_query_for_substituted_people_has_noise_for_two_rows():
    """Under substitution a person moves two counts: the same ε has twice the noise."""
    options = {"keys": {"value": ["a", "b"]}, "options": {"rows_per_unit": 1}}
    text = "SELECT value, COUNT(*) AS n FROM data GROUP BY value"
    spans = []
    for neighbours in (Neighbours.ADD_REMOVE, Neighbours.SUBSTITUTE):
        subject = SqlSubject(text, 1, neighbours=neighbours, **options)
        with seeded("substitution"):
            answers = subject.draw(["a"], 60)
        spans.append(sum(abs(record["[0][1]"] - 1) for record in answers.records))
    assert spans[1] > 1.3 * spans[0]


@pytest.mark.parametrize("neighbours", Neighbours)
@pytest.mark.parametrize("rows", ["0:1", "int:-2:3", "a,b,c"])
def test_random_pairs_differ_in_one_person(rows, neighbours):
    domain = RowDomain.parse(rows)
    pairs = make_random_pairs(domain, neighbours, 60)
    assert len({len(pair.x) for pair in pairs}) > 5
    for pair in pairs:
        if neighbours is Neighbours.ADD_REMOVE:
            assert pair.x[:-1] == pair.x_prime
        else:
            assert sum(a != b for a, b in zip(pair.x, pair.x_prime, strict=True)) <= 1
        for row in pair.x:
            assert row in domain.values or domain.low <= row <= domain.high
