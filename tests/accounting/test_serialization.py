"""What is stored of a loss is read the same for ever."""

import json
from fractions import Fraction

import pytest

from hubbub.accounting import PrivacyLoss, parallel_composition
from hubbub.accounting.events import Pure
from hubbub.accounting.serialization import _PARTS, cost_from_json, loss_from_json, loss_to_json
from hubbub.errors import InvalidInput

LOSSES = {
    "pure": PrivacyLoss.pure(0.5) * 3,
    "approximate": PrivacyLoss.approximate(1, 1e-6),
    "gaussian": PrivacyLoss.gaussian(Fraction(1, 3)),
    "laplace": PrivacyLoss.laplace(0.5),
    "discrete laplace": PrivacyLoss.discrete_laplace(20, 10),
    "discrete gaussian": PrivacyLoss.discrete_gaussian(50, 2),
    "response": PrivacyLoss.randomized_response(0.75, 4),
    "range": PrivacyLoss.bounded_range(1),
    "finite": PrivacyLoss.from_distributions(
        [Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 4), Fraction(3, 4)]
    ),
    "sampled": PrivacyLoss.gaussian(1).poisson_subsampled(0.01) * 1000 + PrivacyLoss.pure(0.1),
    "fixed": PrivacyLoss.gaussian(1).subsampled_without_replacement(1000, 10),
    "group": (PrivacyLoss.gaussian(1).poisson_subsampled(0.01) * 10).for_group(2),
    "zcdp": PrivacyLoss.zcdp(0.1),
    "renyi": PrivacyLoss.from_renyi({2: 0.1, 8: 0.5}),
    "shuffled": PrivacyLoss.randomized_response(0.75).shuffled(10_000),
    "parallel": parallel_composition(PrivacyLoss.gaussian(1), PrivacyLoss.pure(2)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_it_goes_there_and_back(loss):
    text = loss_to_json(loss)
    again = loss_from_json(text)
    assert again == loss
    assert loss_to_json(again) == text
    assert again.cost() == loss.cost()


def test_every_part_has_a_name_that_is_used():
    used = {part for loss in LOSSES.values() for part in _PARTS if f'"{part}"' in loss_to_json(loss)}
    assert used == set(_PARTS)


def test_this_text_is_read_as_it_was_when_it_was_written():
    # Written by version 0.1; it must never change its meaning.
    text = (
        '{"kind": "loss/1", "ways": [[[1, {"delta": "0", "epsilon": "1/10", "part": "pure/1", '
        '"sharp": true}], [1000, {"base": {"mu_squared": "1", "part": "gaussian/1"}, "fixed": false, '
        '"part": "sampled/1", "rate": "1/100"}]]]}'
    )
    assert loss_from_json(text) == LOSSES["sampled"]


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(kind="loss/2"),
        lambda stored: stored.update(more=1),
        lambda stored: stored.update(ways=[]),
        lambda stored: stored.update(ways=7),
        lambda stored: stored["ways"][0][0].__setitem__(0, 0),
        lambda stored: stored["ways"][0][0].__setitem__(0, True),
        lambda stored: stored["ways"][0][0].__setitem__(0, 10**19),
        lambda stored: stored["ways"][0][0][1].update(part="pure/2"),
        lambda stored: stored["ways"][0][0][1].update(epsilon="1e9"),
        lambda stored: stored["ways"][0][0][1].update(epsilon="1/0"),
        lambda stored: stored["ways"][0][0][1].update(more="1"),
        lambda stored: stored["ways"][0][0][1].pop("delta"),
    ],
)
def test_anything_else_is_refused(change):
    stored = json.loads(loss_to_json(LOSSES["pure"]))
    change(stored)
    with pytest.raises(InvalidInput, match="stored loss"):
        loss_from_json(json.dumps(stored))


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "{}", "[" * 100_000])
def test_what_is_no_loss_is_refused(text):
    with pytest.raises(InvalidInput, match="stored loss"):
        loss_from_json(text)


@pytest.mark.parametrize("name", LOSSES)
def test_what_a_stored_loss_costs_is_what_the_loss_does(name):
    assert cost_from_json(loss_to_json(LOSSES[name])) == LOSSES[name].cost()


def test_a_class_of_somebody_else_s_is_refused():
    class Mine(PrivacyLoss):
        pass

    class Part(Pure):
        pass

    for loss in (
        Mine(PrivacyLoss.pure(1).alternatives),
        PrivacyLoss((((Part(Fraction(1)), 1),),)),
        object(),
        None,
    ):
        with pytest.raises(InvalidInput, match="does not know"):
            loss_to_json(loss)
