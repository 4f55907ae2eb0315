"""The probe request: which option names the compiler knows and which values it takes, without compiling anything."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Probe, ProbeReply
from tuner.worker.failures import Refused, first_line
from tuner.worker.session import WorkerSession

__all__ = ["complaint", "option_type", "probe"]

# Options are applied in order, and the first bad one ends the compilation before it starts. With an option that doesn't
# exist in last place nothing ever compiles, and a complaint about *it* means that everything before it was taken.
SENTINEL = "xla_no_such_option_exists"
_IMPOSSIBLE = "@"  # a value for no type but text
_TYPE = re.compile(r"While setting option \S+, .* is not a valid (\w+) value")


def probe(_session: WorkerSession, request: Probe) -> ProbeReply:
    """Types of the names, and the compiler's complaints about the values."""
    lowered = jax.jit(lambda x: x).lower(np.float32(0))
    types = {name: option_type(lowered, name) for name in request.names}
    bad: dict[str, dict[str, str]] = {}
    for name, values in request.values.items():
        complaints = {str(value): complaint(lowered, name, value) for value in values}
        if found := {value: line for value, line in complaints.items() if line}:
            bad[name] = found
    return ProbeReply(types=types, bad_values=bad)


def complaint(lowered: jax.stages.Lowered, name: str, value: Any) -> str:
    """First line of what the compiler says against ``name=value``; empty if it would take it."""
    try:
        lowered.compile(compiler_options={name: value, SENTINEL: "1"})
    except Exception as error:
        line = first_line(error)
        return "" if _unknown(SENTINEL) in line else line
    raise Refused(
        FailureClass.COMPILE, f"this jax compiled with the unknown option {SENTINEL}: its options can't be probed"
    )


def option_type(lowered: jax.stages.Lowered, name: str) -> str | None:
    """bool, int32, int64, float, enum, string or message; None if the compiler knows no such option."""
    line = complaint(lowered, name, _IMPOSSIBLE)
    if not line:
        return "string"
    if _unknown(name) in line:
        return None
    if match := _TYPE.search(line):
        return match[1]
    # Build options (the effort levels, the profile) are set through Python bindings, which don't name the type.
    for kind, value in (("float", 0.5), ("int32", 0)):
        if not complaint(lowered, name, value):
            return kind
    return "message"


def _unknown(name: str) -> str:
    return f"No such compile option: '{name}'"
