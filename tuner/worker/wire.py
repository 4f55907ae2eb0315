"""Reads the protobuf wire format: fields by number, without a schema."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["bytes_fields", "varint"]


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The variable-length integer at `position`, and the position after it. Raises ValueError if there is none."""
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError(f"no varint at byte {position}")


def bytes_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, content) of each length-delimited field of `message`, in order. Raises ValueError on malformed input."""
    position = 0
    while position < len(message):
        tag, position = varint(message, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"field number 0 before byte {position}")
        if kind == 0:
            _, position = varint(message, position)
        elif kind == 1:
            position += 8
        elif kind == 5:
            position += 4
        elif kind == 2:
            length, position = varint(message, position)
            if position + length > len(message):
                raise ValueError(f"field {number} is longer than its message")
            yield number, message[position : position + length]
            position += length
        else:
            raise ValueError(f"wire type {kind} before byte {position}")
