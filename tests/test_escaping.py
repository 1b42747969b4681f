"""Texts that are not ours, as people may be shown them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import InvalidInput
from hubbub.escaping import escape, escape_json, escape_lines

TEXTS = st.text(st.characters(exclude_categories=()))


@given(TEXTS)
def test_invisible_characters_are_escaped(text):
    assert escape(text).isprintable()
    assert escape_lines(text).replace("\n", "").isprintable()
    assert escape_lines(text).count("\n") == text.count("\n")


@given(TEXTS)
def test_visible_characters_are_unchanged(text):
    seen = "".join(each for each in text if each.isprintable())
    assert escape(seen) == escape_lines(seen) == escape_json(seen) == seen


@pytest.mark.slow
@given(st.recursive(TEXTS, lambda inner: st.dictionaries(TEXTS, inner) | st.lists(inner)))
def test_escaped_json_has_the_same_value(value):
    for how in ({}, {"indent": 2}):
        text = escape_json(json.dumps(value, ensure_ascii=False, **how))
        assert text.replace("\n", "").isprintable()
        assert json.loads(text) == json.loads(json.dumps(value))


@given(TEXTS)
def test_error_is_one_line_without_control_characters(text):
    assert str(InvalidInput(text, why=text, fix=text)).isprintable()


@pytest.mark.parametrize(
    "letter", ["\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u200b", "\u202e", "\u2066", "\u2028", "\ufeff", "\n"]
)
def test_control_characters_become_escape_sequences(letter):
    assert escape(f"a{letter}b") == "a" + letter.encode("unicode_escape").decode() + "b"
