"""hubbub's own mechanisms and queries, audited on neighbours at the edges: nothing is refuted."""

import pytest

import hubbub as hb
from audit.zoo.noise import seeded
from hubbub.audit import Claim, InputPair, audit
from hubbub.audit.sql_subject import SqlSubject
from hubbub.audit.subjects import MechanismSubject
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


@pytest.mark.parametrize("case", MECHANISMS, ids=lambda case: case[0])
def test_own_mechanisms_keep_their_claims(case):
    name, mechanism, query, claim, pairs = case
    with seeded(name):
        result = audit(
            MechanismSubject(mechanism, query), claim=claim, pairs=pairs, samples=1600, confidence=1 - DOUBT
        )
    assert not result.refuted, result


QUERIES = [
    ("SELECT COUNT(*) AS n FROM data", {}),
    ("SELECT SUM(value) AS total, AVG(value) AS mean FROM data", {}),
    ("SELECT COUNT(*) AS n FROM data WHERE value > 0.5", {}),
    ("SELECT MEDIAN(value) AS middle FROM data", {}),
]


@pytest.mark.long
@pytest.mark.parametrize("case", QUERIES, ids=lambda case: case[0])
def test_query_shapes_keep_their_claims(case):
    sql, options = case
    subject = SqlSubject(
        sql, 1, bounds={"value": (0, 1)} if "value)" in sql else {}, options={"rows_per_unit": 1, **options}
    )
    pairs = [InputPair([0.0, 1.0, 0.25], [0.0, 1.0])]
    with seeded(sql):
        result = audit(subject, claim=PURE, pairs=pairs, samples=140, confidence=1 - DOUBT)
    assert not result.refuted, result


def test_query_is_drawn_as_often_as_asked():
    subject = SqlSubject(
        "SELECT SUM(value) AS total FROM data", 1, bounds={"value": (0, 1)}, options={"rows_per_unit": 1}
    )
    assert len(subject.draw([0.5, 1.0], 2)) == 2
    refused = SqlSubject("SELECT value FROM data", 1).draw([1.0], 2)
    assert "error" in str(refused.records[0][""])


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
