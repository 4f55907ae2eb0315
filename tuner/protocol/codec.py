"""Protocol dataclasses to and from plain JSON values, for both sides of the pipe."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from tuner.protocol import messages

__all__ = ["OPS", "ProtocolError", "from_json", "op_of", "to_json"]

T = TypeVar("T")

# op → (request, reply). The only table that names them.
OPS: Mapping[str, tuple[type[Any], type[Any]]] = {
    "load": (messages.Load, messages.Loaded),
    "probe": (messages.Probe, messages.ProbeReply),
    "lower": (messages.Lower, messages.Lowered),
    "compile": (messages.Compile, messages.CompileReply),
    "round": (messages.Round, messages.RoundReply),
    "numerics": (messages.Numerics, messages.NumericsReply),
    "pgle": (messages.Pgle, messages.PgleReply),
    "profile": (messages.Profile, messages.ProfileReply),
    "ceilings": (messages.Ceilings, messages.CeilingsReply),
    "release": (messages.Release, messages.Released),
    "close": (messages.Close, messages.Closed),
}


class ProtocolError(ValueError):
    """A JSON value does not fit the message type; the text names the place."""


def op_of(request: object) -> str:
    """The op under which `request` is sent. Raises ProtocolError for anything that is not a request."""
    for op, (kind, _) in OPS.items():
        if type(request) is kind:
            return op
    raise ProtocolError(f"{type(request).__name__} is not a request")


def to_json(value: Any) -> Any:
    """`value` (dataclass, tuple, dict, enum, scalar) as plain JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_json_name(f): to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def from_json(kind: type[T], value: Any, *, where: str = "") -> T:
    """`value` as a `kind`, checked field by field. Raises ProtocolError naming the place; unknown fields are errors."""
    return typing.cast(T, _convert(kind, value, where or kind.__name__))


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            raise ProtocolError(f"{where}: {value!r} is none of {', '.join(map(repr, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise ProtocolError(f"{where}: expected a list, got {type(value).__name__}")
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise ProtocolError(f"{where}: expected an object, got {type(value).__name__}")
        return {k: _convert(args[1], v, f"{where}.{k}") for k, v in value.items()}
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise ProtocolError(f"{where}: {error}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is type(None):
        if value is None:
            return None
    elif type(value) is kind:
        return value
    raise ProtocolError(f"{where}: expected {getattr(kind, '__name__', kind)}, got {type(value).__name__}")


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ProtocolError(f"{where}: expected an object, got {type(value).__name__}")
    fields = {_json_name(f): f for f in dataclasses.fields(kind)}
    if unknown := value.keys() - fields.keys():
        raise ProtocolError(f"{where}: unknown field {', '.join(sorted(unknown))}")
    required = {
        n for n, f in fields.items() if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if missing := required - value.keys():
        raise ProtocolError(f"{where}: missing field {', '.join(sorted(missing))}")
    hints = _hints(kind)
    return kind(**{fields[n].name: _convert(hints[fields[n].name], v, f"{where}.{n}") for n, v in value.items()})


def _json_name(field: dataclasses.Field[Any]) -> str:
    """A request's own `id` has another name in JSON: the envelope's ``"id"`` stands beside it."""
    return str(field.metadata.get("json", field.name))


def _union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    errors = []
    for arg in args:
        try:
            return _convert(arg, value, where)
        except ProtocolError as error:
            errors.append(str(error))
    raise ProtocolError("; ".join(errors))
