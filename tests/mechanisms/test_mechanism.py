"""What is stored never changes its meaning: the text of each kind is pinned, letter by letter."""

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.accounting import PrivacyLoss
from hubbub.errors import HubbubError, InvalidInput, Refused
from hubbub.mechanisms import (
    AboveThreshold,
    Exponential,
    Gaussian,
    GaussianPartitionSelection,
    Laplace,
    Mechanism,
    PermuteAndFlip,
    RandomizedResponse,
    ReportNoisyMax,
    ReportNoisyMaxWithGap,
    StabilityHistogram,
    TopK,
    TruncatedGeometricSelection,
    UnaryEncoding,
    VectorStabilityHistogram,
    from_json,
)
from hubbub.mechanisms import mechanism as module
from hubbub.mechanisms.mechanism import check_positive_sensitivity, check_sensitivity
from hubbub.mechanisms.selection import SelectAndMeasure
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Unit
from refusing import refused

ONE = Sensitivity(1)
HALF = Fraction(1, 2)
ONE_TEXT = '"sensitivity":{"l1":"1","l2_squared":"1","linf":"1"}'
FLIP = PermuteAndFlip(ONE, HALF, monotone=True)
FLIP_TEXT = f'{{"epsilon":"1/2","kind":"permute-and-flip/1","monotone":true,{ONE_TEXT}}}'
LAPLACE_TEXT = f'{{"coordinates":1,"grid":null,"kind":"laplace/1","scale":"2",{ONE_TEXT}}}'

STORED = [
    (Laplace(Fraction(2), ONE), LAPLACE_TEXT),
    (
        Laplace(Fraction(4294967299, 6442450944), Sensitivity(Fraction(1, 3)), Fraction(1, 2**33), 2),
        (
            '{"coordinates":2,"grid":"1/8589934592","kind":"laplace/1",'
            '"scale":"4294967299/6442450944",'
            '"sensitivity":{"l1":"1/3","l2_squared":"1/9","linf":"1/3"}}'
        ),
    ),
    (
        Gaussian(Fraction(6726799536487853, 1125899906842624), Sensitivity(2, linf=1)),
        (
            '{"coordinates":1,"grid":null,"kind":"gaussian/1",'
            '"scale":"6726799536487853/1125899906842624",'
            '"sensitivity":{"l1":"2","l2_squared":"2","linf":"1"}}'
        ),
    ),
    (
        RandomizedResponse(Fraction(3, 4), 2),
        '{"categories":2,"keep":"3/4","kind":"randomized-response/1"}',
    ),
    (
        UnaryEncoding(Fraction(1, 4), 3),
        '{"categories":3,"kind":"unary-encoding/1","p":"1/2","q":"1/4"}',
    ),
    (FLIP, FLIP_TEXT),
    (Exponential(ONE, HALF), f'{{"epsilon":"1/2","kind":"exponential/1","monotone":false,{ONE_TEXT}}}'),
    (
        ReportNoisyMax(ONE, HALF),
        f'{{"epsilon":"1/2","kind":"report-noisy-max/1","monotone":false,{ONE_TEXT}}}',
    ),
    (
        ReportNoisyMaxWithGap(ONE, HALF),
        f'{{"epsilon":"1/2","kind":"report-noisy-max-with-gap/1","monotone":false,{ONE_TEXT}}}',
    ),
    (TopK(FLIP, 3), f'{{"k":3,"kind":"top-k/1","mechanism":{FLIP_TEXT}}}'),
    (
        SelectAndMeasure(FLIP, Laplace(Fraction(2), ONE)),
        f'{{"kind":"select-and-measure/1","measure":{LAPLACE_TEXT},"select":{FLIP_TEXT}}}',
    ),
    (
        AboveThreshold(ONE, HALF, -7),
        (
            '{"answers":1,"epsilon":"1/2","kind":"above-threshold/1","monotone":false,'
            f'{ONE_TEXT},"threshold":-7}}'
        ),
    ),
    (
        TruncatedGeometricSelection(HALF, 9, 2),
        '{"epsilon":"1/2","kind":"truncated-geometric-selection/1","max_groups":2,"truncation":9}',
    ),
    (
        GaussianPartitionSelection(Fraction(5, 2), 12, 2),
        '{"kind":"gaussian-partition-selection/1","max_groups":2,"sigma":"5/2","threshold":12}',
    ),
    (
        StabilityHistogram(Laplace(Fraction(2), ONE), 30, 1),
        f'{{"kind":"stability-histogram/1","max_groups":1,"noise":{LAPLACE_TEXT},"threshold":30}}',
    ),
    (
        VectorStabilityHistogram(Laplace(Fraction(2), ONE), 30, 1, 2, 3),
        (
            f'{{"key_total":3,"kind":"vector-stability-histogram/1","max_groups":1,"noise":{LAPLACE_TEXT},'
            '"parts":2,"threshold":30}'
        ),
    ),
]


@pytest.mark.parametrize(("mechanism", "text"), STORED, ids=lambda part: getattr(part, "kind", ""))
def test_stored_mechanisms_keep_their_text_and_meaning(mechanism, text):
    assert mechanism.to_json() == text
    assert from_json(text) == mechanism
    assert type(from_json(text)) is type(mechanism)
    assert from_json(text).to_json() == text
    assert from_json(text).loss() == mechanism.loss()


def test_every_stored_kind_is_pinned():
    ours = {
        kind
        for kind, kind_class in module._CODEC.classes.items()
        if kind_class.__module__.startswith("hubbub.")
    }

    assert ours == {mechanism.kind for mechanism, _ in STORED}
    assert all(kind.rpartition("/")[2].isdigit() for kind in ours)


POSITIVE = st.fractions(Fraction(1, 10**6), 10**6)


@given(
    POSITIVE, st.tuples(POSITIVE, POSITIVE, POSITIVE), st.none() | st.integers(-20, 20), st.integers(1, 10**9)
)
def test_mechanisms_survive_storage(scale, norms, power, coordinates):
    grid = None if power is None else Fraction(2) ** power
    sensitivity = Sensitivity(norms[0], l2_squared=norms[1], linf=norms[2])
    for kind in (Laplace, Gaussian):
        mechanism = kind(scale, sensitivity, grid, coordinates)
        assert from_json(mechanism.to_json()) == mechanism


def without(text, name):
    stored = json.loads(text)
    del stored[name]
    return json.dumps(stored)


def changed(**fields):
    return json.dumps(json.loads(LAPLACE_TEXT) | fields)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "7",
        '"laplace/1"',
        "[]",
        "{}",
        "[" * 100_000,
        '{"kind":' * 500 + "1" + "}" * 500,
        None,
        7,
        b"\xff",
        '{"kind": "laplace/2"}',
        '{"kind": "laplace"}',
        '{"kind": null}',
        '{"kind": ["laplace/1"]}',
        '{"l1": "1", "l2_squared": "1", "linf": "1"}',
        changed(kind="laplace/2"),
        changed(more=1),
        *(without(LAPLACE_TEXT, name) for name in ("kind", "coordinates", "grid", "scale", "sensitivity")),
        changed(scale="two"),
        changed(scale="1/0"),
        changed(scale="0/1"),
        changed(scale="-2"),
        changed(scale=" 2"),
        changed(scale="2.5"),
        changed(scale="1e999999999"),
        changed(scale="1" * 5000),
        changed(scale="1/" + "1" * 5000),
        changed(scale=None),
        changed(scale=float("nan")),
        changed(scale=True),
        changed(scale=[2]),
        changed(scale={"l1": "1"}),
        changed(grid="1/3"),
        changed(coordinates="x"),
        changed(coordinates=0),
        changed(coordinates=1.5),
        changed(sensitivity=None),
        changed(sensitivity={"l1": "1", "l2_squared": "1"}),
        changed(sensitivity={"l1": "1", "l2_squared": "1", "linf": 0.5}),
        changed(sensitivity={"l1": "1", "l2_squared": "1", "linf": None}),
        changed(sensitivity={"l1": "0", "l2_squared": "0", "linf": "0"}),
        changed(sensitivity=json.loads(LAPLACE_TEXT)),
    ],
    ids=lambda text: str(text)[:60],
)
def test_foreign_text_is_refused(text):
    with refused(InvalidInput) as caught:
        from_json(text)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "not a record"),
        (changed(kind="laplace/9"), "does not know its kind"),
        (changed(more=1), "fields do not match"),
        (changed(scale="1e5"), "not an exact rational"),
        (changed(scale="1/0"), "not an exact rational"),
    ],
)
def test_refusal_of_stored_text_names_the_reason(text, why):
    with refused(InvalidInput, match=why) as caught:
        from_json(text)
    assert caught.value.what == "the stored mechanism cannot be read"
    assert "to_json()" in caught.value.fix


def test_a_stored_mechanism_that_would_be_refused_today_is_refused():
    with refused(HubbubError, match="2\\^48"):
        from_json(changed(scale=str(2**49)))


def test_numbers_in_other_spellings_are_read_exactly():
    assert from_json(changed(scale="4/2")) == Laplace(Fraction(2), ONE)
    assert from_json(changed(scale="002")) == Laplace(Fraction(2), ONE)
    assert from_json(changed(scale=2)) == Laplace(Fraction(2), ONE)


def test_class_with_a_kind_can_be_stored():
    @dataclass(frozen=True)
    class Abstract(Mechanism):
        def loss(self):
            return PrivacyLoss.pure(0)

        def error(self, confidence=0.95, *, coordinates=1):
            return 0.0

        def release(self, value):
            raise NotImplementedError

    @dataclass(frozen=True)
    class Constant(Abstract):
        answer: int
        kind: ClassVar[str] = "constant-of-a-test/1"
        error_kind: ClassVar[str] = "none"

    assert Abstract not in module._CODEC.classes.values()
    text = '{"answer":42,"kind":"constant-of-a-test/1"}'
    assert Constant(42).to_json() == text
    assert from_json(text) == Constant(42)
    del module._CODEC.classes["constant-of-a-test/1"]
    with refused(InvalidInput, match="does not know its kind"):
        from_json(text)


def test_a_mechanism_is_abstract():
    with pytest.raises(TypeError):
        Mechanism()


def test_bare_value_gets_the_declared_sensitivity():
    bounded = check_sensitivity(5, Sensitivity(3), "l1")

    assert unwrap(bounded) == 5
    assert bounded.sensitivity == Sensitivity(3)
    assert bounded.is_user_asserted


def test_bounded_value_is_checked_in_the_norm_of_the_mechanism():
    value = Bounded([1, 2], Sensitivity(4, linf=1), Unit("patient"), "counts")

    assert check_sensitivity(value, Sensitivity(4), "l1") is value
    assert check_sensitivity(value, Sensitivity(3, l2=2), "l2_squared") is value
    for declared, norm in [(Sensitivity(3), "l1"), (Sensitivity(4, l2=1.9), "l2_squared")]:
        with refused(Refused, match="would not hide one unit") as caught:
            check_sensitivity(value, declared, norm)
        assert str(declared) in caught.value.what


def test_only_sensitivity_zero_is_refused():
    with refused(InvalidInput, match="no noise is needed"):
        check_positive_sensitivity(Sensitivity(0))
    assert check_positive_sensitivity(Sensitivity(Fraction(1, 10**9))) is None


def test_two_classes_cannot_share_a_kind():
    with pytest.raises(InvalidInput, match="laplace/1"):
        type("Other", (Mechanism,), {"kind": "laplace/1"})
