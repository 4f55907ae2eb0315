"""Counts of jax's own compile and persistent-cache events, by the thread in which they happen."""

from __future__ import annotations

import threading
from collections import Counter

import jax

__all__ = ["CompileEvents"]

_REQUEST = "/jax/compilation_cache/compile_requests_use_cache"
_HIT = "/jax/compilation_cache/cache_hits"


class CompileEvents:
    """Listens from its making to the end of the process (jax has no public way to stop listening)."""

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._hits: Counter[int] = Counter()
        jax.monitoring.register_event_listener(self._event)

    def here(self) -> tuple[int, int]:
        """Requests to and hits in the persistent cache so far, in this thread. jax counts requests without a cache
        folder too; here they are no requests."""
        if not jax.config.values["jax_compilation_cache_dir"]:
            return 0, 0
        thread = threading.get_ident()
        return self._requests[thread], self._hits[thread]

    def _event(self, event: str, **_details: str | int) -> None:
        if event == _REQUEST:
            self._requests[threading.get_ident()] += 1
        elif event == _HIT:
            self._hits[threading.get_ident()] += 1
