"""jax's own compile and persistent-cache events: counts by the thread in which they happen, and every module's key."""

from __future__ import annotations

import threading
from collections import Counter

import jax

from tuner.protocol.messages import CacheModule
from tuner.worker.internals import watch_cache_keys
from tuner.worker.places import Places

__all__ = ["CompileEvents"]

_REQUEST = "/jax/compilation_cache/compile_requests_use_cache"
_HIT = "/jax/compilation_cache/cache_hits"


class CompileEvents:
    """Listens from its making to the end of the process (jax has no public way to stop listening). `places`: where the
    workload compiles.

    Keys are only watched where a cache folder is set when it is made: telling them makes jax hash each module twice.
    """

    def __init__(self) -> None:
        self._requests: Counter[int] = Counter()
        self._hits: Counter[int] = Counter()
        self._modules: list[CacheModule] = []
        self._mutex = threading.Lock()
        self.places = Places()
        jax.monitoring.register_event_listener(self._event)
        if _cache_folder():
            watch_cache_keys(self._module)

    def here(self) -> tuple[int, int]:
        """Requests to and hits in the persistent cache so far, in this thread. jax counts requests without a cache
        folder too; here they are no requests."""
        if not _cache_folder():
            return 0, 0
        thread = threading.get_ident()
        return self._requests[thread], self._hits[thread]

    def modules(self) -> tuple[CacheModule, ...]:
        """What was looked for in the persistent cache since the last call, by all threads."""
        with self._mutex:
            told, self._modules = tuple(self._modules), []
        return told

    def _event(self, event: str, **_details: str | int) -> None:
        if event == _REQUEST:
            self._requests[threading.get_ident()] += 1
        elif event == _HIT:
            self._hits[threading.get_ident()] += 1

    def _module(self, module: CacheModule) -> None:
        with self._mutex:
            self._modules.append(module)


def _cache_folder() -> str:
    return str(jax.config.values["jax_compilation_cache_dir"] or "")
