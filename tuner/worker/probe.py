"""The probe request: which option names the compiler knows and which values it takes, without compiling anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Probe, ProbeReply
from tuner.worker.failures import Refused, first_line
from tuner.worker.session import WorkerSession

__all__ = ["Compiler", "probe"]

# The first bad option ends a compilation before it starts. With an option that doesn't exist beside the one in question
# nothing ever compiles, and a complaint about the other one means that ours was taken, if ours came first.
_NOBODY = "zzz_no_such_option_"  # last, should anything sort them
_IMPOSSIBLE = "@"  # a value for no type but text
_TYPE = re.compile(r"While setting option \S+, .* is not a valid (\w+) value")
_TRIES = 16  # names tried where the order is one of chance: one answer in 65,000 is then wrong


def probe(_session: WorkerSession, request: Probe) -> ProbeReply:
    """Types of the names, and the compiler's complaints about the values."""
    compiler = Compiler(jax.jit(lambda x: x).lower(np.float32(0)))
    types = {name: compiler.option_type(name) for name in request.names}
    return ProbeReply(types=types, bad_values=compiler.complaints(request.values))


class Compiler:
    """Answers what the compiler says to an option. `lowered`: anything with ``compile(compiler_options=…)``."""

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered
        # The compiler inside jaxlib applies options in the order given; one in a plugin gets them as an unordered map
        # (seen on CUDA, jax 0.11.2), where only another name can bring ours to the front.
        self._tries = 1 if all(self._keeps_order(i) for i in range(_TRIES)) else _TRIES

    def complaints(self, wanted: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, str]]:
        """For each name the values (as text) that the compiler would not take, with the first line of what it says.

        One value of every name is asked about at once: most are taken, and to know that takes many tries.
        """
        found: dict[str, dict[str, str]] = {}
        for place in range(max(map(len, wanted.values()), default=0)):
            options = {name: values[place] for name, values in wanted.items() if place < len(values)}
            for name, line in self._refused(options).items():
                found.setdefault(name, {})[str(options[name])] = line
        return found

    def complaint(self, name: str, value: Any) -> str:
        """First line of what the compiler says against ``name=value``; empty if it would take it."""
        return self._against({name: value})

    def _refused(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What it says against each of `options` that it would not take."""
        left = dict(options)
        refused: dict[str, str] = {}
        while left and (line := self._against(left)):
            name = next((n for n in left if re.search(rf"\b{n}\b", line)), None)
            if name is None:  # it doesn't tell whose that is
                return refused | {n: said for n, value in left.items() if (said := self.complaint(n, value))}
            refused[name] = line
            del left[name]
        return refused

    def _against(self, options: Mapping[str, Any]) -> str:
        """First line of what it says against any of `options`; empty if it would take them all."""
        for i in range(self._tries):
            line = self._says(options, str(i))
            if _unknown(_NOBODY) not in line:
                return line
        return ""

    def option_type(self, name: str) -> str | None:
        """bool, int32, int64, float, enum, string or message; None if the compiler knows no such option."""
        line = self.complaint(name, _IMPOSSIBLE)
        if not line:
            return "string"
        if _unknown(name) in line:
            return None
        if match := _TYPE.search(line):
            return match[1]
        # Build options (the effort levels, the profile) are set through Python bindings, which don't name the type.
        for kind, value in (("float", 0.5), ("int32", 0)):
            if not self.complaint(name, value):
                return kind
        return "message"

    def _keeps_order(self, i: int) -> bool:
        first, second = ("a", "b") if i % 2 else ("b", "a")
        return _unknown(f"{_NOBODY}{first}{i}") in self._says({f"{_NOBODY}{first}{i}": "1"}, f"{second}{i}")

    def _says(self, options: Mapping[str, Any], nobody: str) -> str:
        try:
            self._lowered.compile(compiler_options={**options, _NOBODY + nobody: "1"})
        except Exception as error:
            return first_line(error)
        raise Refused(FailureClass.COMPILE, "this jax compiles with options it doesn't know: they can't be probed")


def _unknown(name: str) -> str:
    return f"No such compile option: '{name}"
