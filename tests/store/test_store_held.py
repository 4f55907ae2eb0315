"""What was held is read back as it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.store.held import form_of, form_text, held_of, held_text

NAMES = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="_"), min_size=1)


@given(st.dictionaries(NAMES, st.text()))
def test_whatever_is_held_comes_back(held: dict[str, str]) -> None:
    assert held_of(held_text(held)) == held


def test_plain_values_stand_as_they_are() -> None:
    assert held_text({"width": "512", "XLA_X": "a,b=1"}) == "XLA_X=a,b=1 width=512"


@pytest.mark.parametrize(
    ("text", "held"), [("", {}), ("a=it's b=1", {"a": "it's", "b": "1"}), ("word a=1", {"a": "1"})]
)
def test_texts_that_were_not_quoted_are_read_as_far_as_they_can_be(text: str, held: dict[str, str]) -> None:
    assert held_of(text) == held


@pytest.mark.parametrize(
    ("knobs", "argv", "text"),
    [
        ("", "", ""),
        ("form=xla", "", "form=xla"),
        ("", "--layers 4", "-- --layers 4"),
        ("a=1 b=2", "-- x", "a=1 b=2 -- -- x"),
        ("'a=1 -- 2'", "'b c'", "'a=1 -- 2' -- 'b c'"),
    ],
)
def test_a_form_is_one_text_and_comes_back(knobs: str, argv: str, text: str) -> None:
    assert form_text(knobs, argv) == text
    assert form_of(text) == (knobs, argv)
