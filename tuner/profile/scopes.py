"""Named scopes out of the path that jax gives an operation: ``jit(step)/jvp(block)/while/body/dot_general``."""

from __future__ import annotations

import re

__all__ = ["scope_path"]

_WRAPPED = re.compile(r"^(?:jvp|vmap|transpose|remat|checkpoint|pmap|shard_map|custom_jvp|custom_vjp)\((.*)\)$")
_PROGRAM = re.compile(r"^(?:jit|pjit|xla_call)\(.*\)$")
# What control flow and transformations add: no names of the user's.
_MACHINERY = frozenset(
    [
        "while",
        "body",
        "cond",
        "closed_call",
        "eval_jaxpr",
        "core_call",
        "checkpoint",
        "rematted_computation",
        "remat",
        "remat2",
        "shard_map",
        "jvp()",
        "transpose(jvp())",
        "pjit",
        "custom_jvp_call",
        "custom_vjp_call",
    ]
)


def scope_path(op_name: str) -> tuple[str, ...]:
    """The names around an operation, outermost first, without the program's and the primitive's own; () where there are
    none. What belongs to a backward pass begins with ``backward``, whatever it is nested in."""
    first = op_name.split(";")[0]  # what was fused out of several names them all
    parts = [part for part in _split(first)[:-1] if not _PROGRAM.match(part)]
    backward = any(part.startswith("transpose(") for part in parts)
    names = [name for part in parts if (name := _bare(part)) and name not in _MACHINERY]
    return ("backward", *names) if backward else tuple(names)


def _bare(part: str) -> str:
    while wrapped := _WRAPPED.match(part):
        part = wrapped.group(1)
    return "" if _PROGRAM.match(part) else part


def _split(path: str) -> list[str]:
    """At slashes outside parentheses."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(path):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth == 0:
            parts.append(path[begin:at])
            begin = at + 1
    return [*parts, path[begin:]]
