"""The protobuf wire format: fields by number, read and written without a schema."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["bytes_field", "bytes_fields", "double_field", "doubles", "varint"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
    return ((number, content) for number, kind, content in _fields(message) if kind == _BYTES)


def doubles(message: bytes) -> Iterator[tuple[int, float]]:
    """(number, value) of each 64-bit field of `message`, read as a double, in order. Raises ValueError on malformed
    input."""
    return ((number, *struct.unpack("<d", content)) for number, kind, content in _fields(message) if kind == _FIXED64)


def bytes_field(number: int, content: bytes) -> bytes:
    """A length-delimited field as it is written."""
    return _varint_of(number << 3 | _BYTES) + _varint_of(len(content)) + content


def double_field(number: int, value: float) -> bytes:
    """A double as it is written."""
    return _varint_of(number << 3 | _FIXED64) + struct.pack("<d", value)


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire type, content); a varint's content is left out."""
    position = 0
    while position < len(message):
        tag, position = varint(message, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError(f"field number 0 before byte {position}")
        if kind == _VARINT:
            _, position = varint(message, position)
            yield number, kind, b""
            continue
        if kind == _BYTES:
            length, position = varint(message, position)
        elif kind in (_FIXED32, _FIXED64):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} before byte {position}")
        if position + length > len(message):
            raise ValueError(f"field {number} is longer than its message")
        yield number, kind, message[position : position + length]
        position += length


def _varint_of(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
