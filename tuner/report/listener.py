"""How a run tells whoever watches: every event as it is appended, and a status line in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tuner.store.events import AnyEvent

__all__ = ["Listener", "Silent", "Status"]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stage stands. `done` of `total` units (0: unknown); `elapsed_s` and `budget_s` are of the whole run."""

    stage: str
    text: str
    done: int = 0
    total: int = 0
    elapsed_s: float = 0.0
    budget_s: float = 0.0


class Listener(Protocol):
    """Called from the run's thread; must return quickly and must not raise.

    `on_resumed` comes first, and only where an earlier run is gone on with or shown again: its log so far. None of
    these events comes through `on_event` again.
    """

    def on_resumed(self, events: Sequence[AnyEvent]) -> None: ...

    def on_event(self, event: AnyEvent) -> None: ...

    def on_status(self, status: Status) -> None: ...


class Silent:
    """A listener that shows nothing."""

    def on_resumed(self, events: Sequence[AnyEvent]) -> None:
        pass

    def on_event(self, event: AnyEvent) -> None:
        pass

    def on_status(self, status: Status) -> None:
        pass
