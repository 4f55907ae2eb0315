"""Events to and from lines of JSON, numbers that aren't finite included."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import msgspec

from tuner.errors import StoreError
from tuner.store.events import VERSION, AnyEvent, RunStarted

__all__ = ["decode", "encode", "uid_of"]

# JSON has no infinity and no NaN, and msgspec would write null. An estimate that can't be computed is infinite by
# contract, so each such number is written as an object with this one name.
_MARK = "$float"

_DECODER = msgspec.json.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(_marked(msgspec.to_builtins(event))) + b"\n"


def decode(line: bytes) -> AnyEvent:
    """The event of one line. Raises StoreError if it is none, or was written by a newer version."""
    try:
        if _MARK.encode() in line:
            # Names in JSON are strings, though they stand for numbers, such as ranks.
            event: AnyEvent = msgspec.convert(_unmarked(msgspec.json.decode(line)), AnyEvent, str_keys=True)
        else:
            event = _DECODER.decode(line)
    except msgspec.MsgspecError as error:
        _refuse_newer(_version(line))
        raise StoreError(f"not an event: {error}") from error
    _refuse_newer(event.v)
    return event


class _Head(msgspec.Struct):
    v: int = 0


def _version(line: bytes) -> int:
    """The format of a line that is no event, 0 if it doesn't tell."""
    try:
        return msgspec.json.decode(line, type=_Head).v
    except msgspec.MsgspecError:
        return 0


def _refuse_newer(version: int) -> None:
    if version > VERSION:
        raise StoreError(
            f"this event has format {version}, and this version reads up to {VERSION}",
            next="upgrade: pip install -U xla-tuner",
        )


def uid_of(first: RunStarted) -> str:
    """16 hex digits that name a run among those of all machines."""
    return hashlib.sha256(encode(first)).hexdigest()[:16]


def _marked(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {_MARK: str(value)}
    if isinstance(value, dict):
        return {name: _marked(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(v) for v in value]
    return value


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_MARK}:
            return float(value[_MARK])
        return {name: _unmarked(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_unmarked(v) for v in value]
    return value
