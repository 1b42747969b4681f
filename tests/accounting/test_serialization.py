"""What is stored of a loss is read the same for ever."""

import json
from fractions import Fraction

import pytest

from hubbub.accounting import PrivacyLoss, parallel_composition
from hubbub.accounting.events import EpsilonDelta
from hubbub.accounting.serialization import EVENT_KINDS, loss_from_json, loss_to_json, stored_loss
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


@pytest.mark.sweep(5)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_losses_survive_storage(loss):
    text = loss_to_json(loss)
    again = loss_from_json(text)
    assert again == loss
    assert loss_to_json(again) == text
    assert again.cost() == loss.cost()


def test_every_event_has_a_stored_kind():
    used = {kind for loss in LOSSES.values() for kind in EVENT_KINDS if f'"{kind}"' in loss_to_json(loss)}
    assert used == set(EVENT_KINDS)


def test_stored_text_keeps_its_meaning():
    # Written by version 0.1; it must never change its meaning.
    text = (
        '{"kind": "privacy-loss/1", "alternatives": [[{"count": 1, "event": {"kind": "epsilon-delta/1", '
        '"epsilon": "1/10", "delta": "0", "tight": true}}, {"count": 1000, "event": {"kind": "subsampled/1", '
        '"base": {"kind": "gaussian/1", "mu_squared": "1"}, "sampling_rate": "1/100", '
        '"without_replacement": false}}]]}'
    )
    assert loss_from_json(text) == LOSSES["sampled"]


@pytest.mark.parametrize(
    "change",
    [
        lambda stored: stored.update(kind="privacy-loss/2"),
        lambda stored: stored.update(more=1),
        lambda stored: stored.update(alternatives=[]),
        lambda stored: stored.update(alternatives=7),
        lambda stored: stored["alternatives"][0][0].update(count=0),
        lambda stored: stored["alternatives"][0][0].update(count=True),
        lambda stored: stored["alternatives"][0][0].update(count=10**19),
        lambda stored: stored["alternatives"][0][0]["event"].update(kind="epsilon-delta/2"),
        lambda stored: stored["alternatives"][0][0]["event"].update(epsilon="1e9"),
        lambda stored: stored["alternatives"][0][0]["event"].update(epsilon="1/0"),
        lambda stored: stored["alternatives"][0][0]["event"].update(more="1"),
        lambda stored: stored["alternatives"][0][0]["event"].pop("delta"),
    ],
)
def test_altered_text_is_refused(change):
    stored = json.loads(loss_to_json(LOSSES["pure"]))
    change(stored)
    with pytest.raises(InvalidInput, match="stored loss"):
        loss_from_json(json.dumps(stored))


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "{}", "[" * 100_000])
def test_invalid_losses_are_refused(text):
    with pytest.raises(InvalidInput, match="stored loss"):
        loss_from_json(text)


@pytest.mark.parametrize("name", LOSSES)
def test_stored_loss_costs_what_the_loss_costs(name):
    assert stored_loss(loss_to_json(LOSSES[name])).cost() == LOSSES[name].cost()


def test_foreign_classes_are_refused():
    class Mine(PrivacyLoss):
        pass

    class Part(EpsilonDelta):
        pass

    for loss in (
        Mine(PrivacyLoss.pure(1).alternatives),
        PrivacyLoss((((Part(Fraction(1)), 1),),)),
        object(),
        None,
    ):
        with pytest.raises(InvalidInput, match="does not know"):
            loss_to_json(loss)
