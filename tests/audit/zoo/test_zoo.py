"""Every planted bug is caught, and what keeps its claim is not accused. Seeded: the same each time."""

import pytest

from audit.zoo.noise import seeded
from audit.zoo.specimens import HERD, ZOO
from hubbub.audit import audit

CHEAP = {
    "scale 50 % too small",
    "a seed out of 16",
    "the database is the seed",
    "geometric noise with both signs of zero",
    "sparse vector without noise on queries",
    "empty groups are left out",
    "composition forgotten",
    "noise reused for two answers",
}
"""In every run; all others take longer."""


def examine(case, confidence=0.99):
    with seeded(case.name):
        return audit(
            case.draw,
            batch=True,
            claim=case.claim,
            rows=case.rows,
            pairs=case.pairs,
            samples=case.samples,
            confidence=confidence,
            **case.more,
        )


def test_zoo_has_at_least_thirty_bugs():
    names = [case.name for case in [*ZOO, *HERD]]
    assert len(set(names)) == len(names)
    assert len(ZOO) >= 30
    assert set(names) >= CHEAP


@pytest.mark.parametrize("case", [case for case in ZOO if case.name in CHEAP], ids=lambda case: case.name)
def test_planted_bugs_are_caught(case):
    finding = examine(case)
    assert finding.refuted, finding
    assert finding.witness is not None


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in ZOO if case.name not in CHEAP], ids=lambda case: case.name)
def test_all_planted_bugs_are_caught(case):
    assert examine(case).refuted


@pytest.mark.long
@pytest.mark.parametrize("case", HERD, ids=lambda case: case.name)
def test_correct_mechanisms_pass(case):
    assert not examine(case).refuted
