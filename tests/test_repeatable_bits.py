"""Tests replay their random bits: a run that failed can be repeated, and one that passed passes again."""

import pytest

from hubbub.noise.entropy import random_bytes
from internals import bits_are_injected


@pytest.fixture(scope="module")
def first_bits():
    return random_bytes(8)


def test_tests_and_fixtures_draw_the_same_bits_in_every_run(request, first_bits):
    if request.config.getoption("--bits") == "0":
        assert first_bits.hex() == "4fce53c55f4af156"
        assert random_bytes(8).hex() == "e12044466b1eb50c"


@pytest.mark.fresh_bits
def test_tests_of_fresh_bits_replay_none():
    assert not bits_are_injected()
