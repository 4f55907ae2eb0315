"""What a run inherits: an XLA_FLAGS text that must be sound, and variables that are pinned."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.errors import FlagsError
from tuner.protocol.xla_flags import problems

__all__ = ["PIN_PREFIXES", "check", "pins"]

PIN_PREFIXES = ("NCCL_", "NVSHMEM_", "TORCH_SYMM_MEM_")
"""Variables that someone set for this machine's network: no knob touches them unless the user says so by name."""


def check(text: str, *, where: str = "XLA_FLAGS") -> None:
    """Raises FlagsError if XLA would misread `text`, naming every token and the flags that would be lost."""
    found = problems(text)
    if not found:
        return
    lines = [f"{problem.token!r} {problem.message}" for problem in found]
    what = lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} places that XLA would misread:", *lines])
    raise FlagsError(what, where=where, next=f"correct {where} and start again")


def pins(inherited: Mapping[str, str]) -> frozenset[str]:
    """Names of the inherited variables that no knob may touch without being told to."""
    return frozenset(name for name in inherited if name.startswith(PIN_PREFIXES))
