"""One worker's connection, over a channel that is made up."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from tuner.session.connection import Connection
from tuner.session.lifecycle import Lifecycle
from tuner.session.process import Channel, Exit


class Slow:
    """A channel that takes a moment to close."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.closed: list[float] = []

    def close(self, *, after_s: float = 0.0) -> Exit:
        self.began.set()
        time.sleep(0.2)
        self.closed.append(time.monotonic())
        return Exit(code=0)


def test_of_two_threads_one_closes_and_the_other_waits_for_it(tmp_path: Path) -> None:
    """Whoever stops a session from outside meets its owner, who closes it for the exception that comes of that."""
    connection = Connection(("worker",), Lifecycle("home"), environ={}, env={}, log=tmp_path / "log")
    channel = Slow()
    connection.adopt(cast(Channel, channel))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(connection.close)
        channel.began.wait()
        connection.close()
        returned = time.monotonic()
        first.result()
    assert len(channel.closed) == 1
    assert returned >= channel.closed[0]
