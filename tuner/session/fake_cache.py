"""FakeCache: JAX's persistent compilation cache, as far as made-up compiles need one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.protocol.messages import CacheModule

__all__ = ["FakeCache"]


class FakeCache:
    """JAX's persistent compilation cache, as a process with these variables has it: what one compile drew is found by
    the next process that reads the same folder."""

    def __init__(self, env: Mapping[str, str | None]) -> None:
        named = env.get("JAX_COMPILATION_CACHE_DIR")
        on = named and env.get("JAX_ENABLE_COMPILATION_CACHE") != "false"
        self.folder = Path(named) if named and on else None
        self.modules: list[CacheModule] = []
        self.expects_guided = env.get("JAX_COMPILATION_CACHE_EXPECT_PGLE") == "true"
        self._writes = float(env.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS") or 1.0) <= 1.0
        self.requests = self.hits = 0

    def has(self, code: str) -> bool:
        """Whether the folder holds what `code` stands for."""
        return self.folder is not None and (self.folder / code).exists()

    def kept(self, code: str, drawn: float) -> float:
        """The draw that the folder has for `code`; else `drawn`, which is kept."""
        if self.folder is None:
            return drawn
        self.requests += 1
        entry = self.folder / code
        self.modules.append(CacheModule(module="jit_step", key=f"jit_step-{code}", hit=entry.exists()))
        if entry.exists():
            self.hits += 1
            return float(entry.read_text())
        if self._writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            entry.write_text(repr(drawn))
        return drawn
