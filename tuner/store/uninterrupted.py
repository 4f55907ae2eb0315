"""Ctrl-C waits while a database is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["uninterrupted"]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What asks the process to end waits until the block is left; the same signal a second time doesn't.

    SQLAlchemy logs a KeyboardInterrupt that meets it while it closes a connection, with its traceback, and one that
    meets the callback of a weak reference is printed and lost. Outside the main thread, where no signal arrives, this
    does nothing, nor to a signal that is ignored or kills.
    """
    came: list[int] = []
    left = False
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def restore() -> None:
        for number, handler in handlers.items():
            if signal.getsignal(number) is wait:
                signal.signal(number, handler)

    def wait(number: int, frame: FrameType | None) -> None:
        if left or number in came:
            came.clear()
            handlers[number](number, frame)
        else:
            came.append(number)

    try:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if callable(handler):
                    handlers[number] = handler
                    signal.signal(number, wait)
        yield
    finally:
        left = True  # what arrives while handlers are put back is not kept
        restore()
        if came:
            handlers[came[0]](came[0], None)
