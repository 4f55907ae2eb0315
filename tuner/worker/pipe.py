"""The worker's end of the pipe: private copies of fds 0 and 1 that nothing the user's program does can reach."""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import Any

__all__ = ["Pipe"]


class Pipe:
    """Line-wise JSON over the inherited standard streams.

    Making one moves the streams away: fd 0 then reads nothing, and fd 1 is a second name of fd 2, so that whatever is
    printed from Python, from C or by a child process ends in the log. A thread owns the reading end. When the parent
    closes it, the process ends at once, whatever the other threads are doing: a step that hangs in C++ can't keep it.
    Only after a Close request, which EOF follows, it ends in its own time: what is being written still gets there.
    """

    def __init__(self, connection: int | None = None) -> None:
        """`connection`: a socket to the parent in place of fds 0 and 1."""
        # os.dup gives descriptors that child processes don't inherit.
        self._in = os.dup(0) if connection is None else connection
        self._out = os.dup(1) if connection is None else connection
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._sending = threading.Lock()

    def start(self) -> None:
        """Start the reading thread."""
        threading.Thread(target=self._read, name="tuner-pipe", daemon=True).start()

    def receive(self) -> dict[str, Any]:
        """The next request, waiting for it."""
        return self._requests.get()

    def send(self, message: dict[str, Any]) -> None:
        """Write one line, from any thread. If nobody reads any more, the process ends."""
        view = memoryview(json.dumps(message, ensure_ascii=True).encode() + b"\n")
        try:
            with self._sending:
                while view:
                    view = view[os.write(self._out, view) :]
        except OSError:
            os._exit(0)

    def _read(self) -> None:
        closing = False
        with open(self._in, "rb", closefd=False) as stream:
            for line in stream:
                if line.strip():
                    request = json.loads(line)
                    closing = request.get("op") == "close"
                    self._requests.put(request)
        if not closing:
            os._exit(0)
