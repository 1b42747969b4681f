import dataclasses
import pickle

import pytest

from hubbub.errors import InvalidInput
from hubbub.unit import Neighbours, Unit


def test_unit_is_a_key_column_under_add_remove():
    assert Unit("patient") == Unit("patient", Neighbours.ADD_REMOVE)
    assert str(Unit("patient")) == "one patient, add/remove"


def test_row_unit_must_be_explicit():
    with pytest.raises(TypeError):
        Unit()

    assert Unit.row().key is None
    assert str(Unit.row(Neighbours.SUBSTITUTE)) == "one row, substitute"


def test_units_with_different_protection_are_not_equal():
    units = {
        Unit("patient"),
        Unit("visit"),
        Unit.row(),
        Unit.row(Neighbours.SUBSTITUTE),
        Unit("patient", Neighbours.SUBSTITUTE),
    }

    assert len(units) == 5


@pytest.mark.parametrize(
    "key", ["", "  ", "\t\n", 0, 7, True, b"patient", ["patient"], Neighbours.SUBSTITUTE]
)
def test_a_key_that_names_no_column_is_refused(key):
    with pytest.raises(InvalidInput) as caught:
        Unit(key)

    assert caught.value.what
    assert caught.value.why
    assert caught.value.fix


@pytest.mark.parametrize("neighbours", ["substitute", "add/remove", None, 1, True, Neighbours])
def test_neighbours_other_than_the_two_are_refused(neighbours):
    with pytest.raises(InvalidInput) as caught:
        Unit("patient", neighbours)
    with pytest.raises(InvalidInput):
        Unit.row(neighbours)

    assert "Neighbours.ADD_REMOVE" in caught.value.fix


def test_a_unit_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Unit.row().key = "patient"


@pytest.mark.parametrize("unit", [Unit("patient"), Unit.row(Neighbours.SUBSTITUTE)])
def test_a_unit_survives_pickling(unit):
    assert pickle.loads(pickle.dumps(unit)) == unit  # noqa: S301 - our own bytes


def test_one_row_moves_a_histogram_by_one_or_substituted_by_two():
    assert Neighbours.ADD_REMOVE.histogram_distance == 1
    assert Neighbours.SUBSTITUTE.histogram_distance == 2
