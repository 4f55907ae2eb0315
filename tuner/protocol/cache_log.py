"""What jax's debug messages tell of its persistent compilation cache: what was looked for, and whether it was there.

jax's events say that there was a hit, not of what. The messages read alike in jax 0.10.2, 0.11.2 and 0.12.0.1.
"""

from __future__ import annotations

import re

from tuner.protocol.messages import CacheModule

__all__ = ["LOGGERS", "LookUps"]

LOGGERS = ("jax._src.cache_key", "jax._src.compiler")
"""The loggers that speak of it, at level DEBUG."""

_FIELD = re.compile(r"get_cache_key hash of serialized (.+): ([0-9a-f]{16})[0-9a-f]*$")
_FOUND = "Persistent compilation cache hit for "
_MISSED = "PERSISTENT COMPILATION CACHE MISS for "
_LOOKED_UP = re.compile(f"({_FOUND}|{_MISSED})'(.*)' with key '(.*)'")


class LookUps:
    """Reads the messages of one thread, or the lines of one log, in their order."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def read(self, message: str) -> CacheModule | None:
        """The look-up that `message` tells of, with the parts of its key that were told since the one before."""
        if part := _FIELD.search(message):
            self._fields[part[1]] = part[2]
        elif found := _LOOKED_UP.search(message):
            fields, self._fields = self._fields, {}
            return CacheModule(module=found[2], key=found[3], hit=found[1] == _FOUND, fields=fields)
        return None
