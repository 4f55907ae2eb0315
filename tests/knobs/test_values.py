"""Value texts: which are well formed and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.knobs.knob import UNSET, ValueType
from tuner.knobs.values import complaint, guess_type, text_of, typed


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("bool", ["true", "false"], ["True", "1", "", "yes"]),
        ("int", ["0", "32", "-1"], ["007", "-0", "1.0", "", " 1", "1e3", "0x10"]),
        ("float", ["0.5", "1e-3", "2"], ["nan", "inf", "x", "", " 1"]),
        ("enum", ["FAST", "O1", "a-b"], ["", "A,B", "a b"]),
        ("list", ["", "A", "A,B", "+A,-B"], ["A, B", "A,", ",", "a b"]),
        ("string", ["", "a b", "=x"], ["a\nb"]),
    ],
)
def test_well_formed_texts(kind: ValueType, good: list[str], bad: list[str]) -> None:
    assert [complaint(kind, text) for text in [*good, UNSET]] == [None] * (len(good) + 1)
    assert all(complaint(kind, text) for text in bad)


def test_texts_as_compile_options_want_them() -> None:
    assert typed("bool", "true") is True
    assert typed("bool", "false") is False
    assert typed("int", "32") == 32
    assert typed("float", "0.5") == 0.5
    assert typed("list", "") == ""
    assert typed("enum", "O1") == "O1"


@given(st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_toml_scalars_text_stands_for_it(value: bool | int | float) -> None:
    kind: ValueType = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
    assert complaint(kind, text_of(value)) is None
    assert typed(kind, text_of(value)) == value


@pytest.mark.parametrize(
    ("texts", "kind"),
    [(["true", "false"], "bool"), (["1", "2"], "int"), (["1", "0.5"], "float"), (["1", "x"], "string")],
)
def test_the_narrowest_type_is_guessed(texts: list[str], kind: ValueType) -> None:
    assert guess_type(texts) == kind
