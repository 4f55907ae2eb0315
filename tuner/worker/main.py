"""Entry point of the worker process: private pipe, hello, then requests one after another."""

from __future__ import annotations

import faulthandler
import os
import platform
import signal

from tuner.protocol.codec import to_json
from tuner.protocol.messages import Hello
from tuner.worker.loop import Loop
from tuner.worker.pipe import Pipe

__all__ = ["NONCE", "main"]

NONCE = "TUNER_WORKER_NONCE"
"""Environment variable in which the parent hands over the word that its worker must open with."""


def main() -> None:
    """Run the worker. Ends by `os._exit`: after a Close, or when the parent closes the pipe."""
    pipe = Pipe()
    faulthandler.enable(file=2)
    # Ctrl-C reaches every process of the terminal; the parent decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send(to_json(Hello(nonce=os.environ.pop(NONCE, ""), pid=os.getpid(), python=platform.python_version())))
    pipe.start()
    Loop(pipe).run()
