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


def encode(event: AnyEvent) -> bytes:
    """One line, newline included."""
    return msgspec.json.encode(_marked(msgspec.to_builtins(event))) + b"\n"


def decode(line: bytes) -> AnyEvent:
    """The event of one line. Raises StoreError if it is none, or was written by a newer version."""
    try:
        raw = msgspec.json.decode(line)
        if isinstance(raw, dict) and isinstance(version := raw.get("v"), int) and version > VERSION:
            raise StoreError(
                f"this event has format {version}, and this version reads up to {VERSION}",
                next="upgrade: pip install -U xla-tuner",
            )
        if _MARK.encode() in line:
            raw = _unmarked(raw)
        event: AnyEvent = msgspec.convert(raw, AnyEvent)
    except msgspec.MsgspecError as error:
        raise StoreError(f"not an event: {error}") from error
    return event


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
