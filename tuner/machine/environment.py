"""The machine and software a result holds for."""

from __future__ import annotations

import hashlib

import msgspec

__all__ = ["Environment"]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`identity`: a result doesn't carry over if any of these differ (platform, device kind and count, process count,
    jax, jaxlib, plugin versions, NCCL). `context`: it may, with a notice (driver, host CPU, cores, memory, kernel,
    python, zstandard, clocks)."""

    identity: dict[str, str]
    context: dict[str, str]

    @property
    def key(self) -> str:
        """16 hex digits that name the identity part."""
        return hashlib.sha256(msgspec.json.encode(sorted(self.identity.items()))).hexdigest()[:16]
