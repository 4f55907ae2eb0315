"""Entry point of the worker process: private pipe, hello, then requests one after another."""

from __future__ import annotations

import faulthandler
import os
import platform
import signal
import socket
import sys
from pathlib import Path

from tuner.protocol.alone import ALONE
from tuner.protocol.codec import to_json
from tuner.protocol.messages import Hello
from tuner.worker.alone import alone
from tuner.worker.join import RANK, address, place_of
from tuner.worker.loop import Loop
from tuner.worker.pipe import Pipe

__all__ = ["NONCE", "main"]

NONCE = "TUNER_WORKER_NONCE"
"""Environment variable in which the parent hands over the word that its worker must open with."""

_CONNECT_S = 60


def main() -> None:
    """Run the worker. Ends by `os._exit`: after a Close, or when the parent closes the pipe.

    A worker that a launcher started is told in its arguments where its parent listens (host:port), and the file of the
    word that it must open with: launchers don't hand every variable on, and a command line is no place for secrets.
    With `ALONE` first there is no parent, and a workload's steps are all that it runs.
    """
    if sys.argv[1:2] == [ALONE]:
        alone(sys.argv[2:])
        return
    launched = len(sys.argv) == 3
    if launched:
        os.environ[NONCE] = Path(sys.argv[2]).read_text()
        os.environ[RANK] = "launched"
    pipe = Pipe(_connected(sys.argv[1]) if launched else None)
    faulthandler.enable(file=2)
    # Ctrl-C reaches every process of the terminal; the parent decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    told = os.environ.pop(RANK, "")
    rank, size = place_of(told, os.environ) if told else (0, 1)
    hello = Hello(
        nonce=os.environ.pop(NONCE, ""),
        pid=os.getpid(),
        python=platform.python_version(),
        rank=rank,
        size=size,
        host=socket.gethostname() if told else "",
        address=address(remote=launched) if told and rank == 0 else "",
    )
    pipe.send(to_json(hello))
    pipe.start()
    Loop(pipe).run()


def _connected(parent: str) -> int:
    host, _, port = parent.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
    connection.setblocking(True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection.detach()
