"""The protobuf wire format, written and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.protocol.wire import bytes_field, bytes_fields, double_field, doubles, varint

NUMBERS = st.integers(1, 2000)


@given(st.lists(st.tuples(NUMBERS, st.binary(max_size=300) | st.floats(allow_nan=False))))
def test_fields_read_back_as_they_were_written(fields: list[tuple[int, bytes | float]]) -> None:
    message = b"".join(
        bytes_field(number, value) if isinstance(value, bytes) else double_field(number, value)
        for number, value in fields
    )
    assert list(bytes_fields(message)) == [f for f in fields if isinstance(f[1], bytes)]
    assert list(doubles(message)) == [f for f in fields if isinstance(f[1], float)]


def test_other_kinds_are_passed_over() -> None:
    message = b"\x08\x96\x01" + b"\x15\x00\x00\x00\x00" + bytes_field(3, b"kept")
    assert list(bytes_fields(message)) == [(3, b"kept")]
    assert varint(message, 1) == (150, 3)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x0a\x05abc", "longer than its message"),
        (b"\x09abc", "longer than its message"),
        (b"\x00\x00", "field number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x80", "no varint"),
    ],
)
def test_what_is_no_message_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(bytes_fields(message))
