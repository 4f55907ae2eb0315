"""The processes of a gang: started here, one a rank, or by the user's launcher on whichever hosts it takes."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tuner.errors import SessionEnded
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Hello
from tuner.session.base import Launch
from tuner.session.connection import Connection
from tuner.session.failures import death, read_log
from tuner.session.lifecycle import Lifecycle
from tuner.session.package import worker_zip
from tuner.session.process import Child
from tuner.session.sockets import Hall

__all__ = ["RANK", "Launched", "Local", "Ranks"]

RANK = "TUNER_WORKER_RANK"
"""The variable that tells a worker started here its rank: "1/4"."""

# A launcher that ended leaves its last words within this.
_LAST_WORDS_S = 1.0
_LOOK_S = 0.1


class Ranks(Protocol):
    """A gang's processes. `connections`: by rank, once `open` has returned."""

    connections: list[Connection]

    def open(self, *, limit_s: float) -> list[Hello]:
        """Start all and wait for their hellos; by rank. Raises SessionEnded."""
        ...

    def close(self, *, at_once: bool) -> None:
        """End all, `at_once` by force. Twice is fine."""
        ...


class Local:
    """One process a rank on this machine, each with a log of its own: `launch.log` is rank 0's. `wrapper`: words put
    before each rank's command."""

    def __init__(self, launch: Launch, environ: Mapping[str, str], *, wrapper: Sequence[str] = ()) -> None:
        self._wrapped = bool(wrapper)
        merged = {**environ, **launch.env}
        given = {name: value for name, value in merged.items() if value is not None}
        argv = (*wrapper, launch.python, str(worker_zip()))
        self.connections = [
            Connection(
                argv,
                _life(launch, rank),
                environ={**given, RANK: f"{rank}/{launch.processes}"},
                env=launch.env,
                log=launch.log if rank == 0 else launch.log.with_suffix(f".rank{rank}.log"),
                alone=False,
            )
            for rank in range(launch.processes)
        ]

    def open(self, *, limit_s: float) -> list[Hello]:
        for connection in self.connections:
            connection.begin(wrapped=self._wrapped)
        hellos = []
        for rank, connection in enumerate(self.connections):
            try:
                hellos.append(connection.greet(limit_s=limit_s))
            except SessionEnded as ended:
                raise SessionEnded(dataclasses.replace(ended.failure, rank=rank)) from None
        return hellos

    def close(self, *, at_once: bool) -> None:
        # Rank 0 last: the coordination service is in it, and the others die noisily without.
        for connection in reversed(self.connections):
            connection.close(at_once=at_once)


class Launched:
    """What a launcher starts: it gets the worker as one file, and each process connects back and shows a token.

    Token and worker lie beside the log, which every host has to see. How many ranks there are, and which is which, the
    launcher's own variables say. What all of them print goes where the launcher puts it, its own output into the log.
    """

    def __init__(self, launch: Launch, environ: Mapping[str, str]) -> None:
        self._launch = launch
        merged = {**environ, **launch.env}
        self._environ = {name: value for name, value in merged.items() if value is not None}
        self._child: Child | None = None
        self._hall: Hall | None = None
        self._token_file: Path | None = None
        self.connections: list[Connection] = []

    def open(self, *, limit_s: float) -> list[Hello]:
        launch, token = self._launch, secrets.token_hex(16)
        folder = launch.log.parent.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._token_file = folder / f".{launch.log.stem}.token"
        self._token_file.touch(mode=0o600)
        self._token_file.write_text(token)
        self._hall = Hall(token, log=launch.log)
        where = f"{_own_name()}:{self._hall.port}"
        argv = (*launch.launcher, launch.python, str(worker_zip(folder)), where, str(self._token_file))
        try:
            self._child = Child(argv, environ=self._environ, nonce=token, log=launch.log, wrapped=True)
        except OSError as error:
            raise _ended(FailureClass.PLATFORM, f"the launcher can't be started: {error}") from error
        self._gather(time.monotonic() + limit_s, limit_s)
        hellos = [connection.greet(limit_s=limit_s) for connection in self.connections]
        ranks = [hello.rank for hello in hellos]
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        if sorted(ranks) != list(range(len(ranks))):
            raise _ended(FailureClass.PLATFORM, f"the launcher's processes say they are ranks {sorted(ranks)}")
        self.connections = [self.connections[i] for i in order]
        return [hellos[i] for i in order]

    def close(self, *, at_once: bool) -> None:
        for connection in reversed(self.connections):
            connection.close(at_once=at_once)
        if self._child is not None:
            self._child.close(after_s=0.0 if at_once else _LAST_WORDS_S)
            self._child = None
        if self._hall is not None:
            self._hall.close()
            self._hall = None
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)

    def _gather(self, deadline: float, limit_s: float) -> None:
        """Wait until as many processes have come as the first one says there are."""
        assert self._hall is not None
        assert self._child is not None
        size = 1
        while len(self.connections) < size:
            guest = self._hall.next(timeout_s=_LOOK_S)
            if guest is not None:
                size = guest.hello.size
                connection = Connection(
                    self._launch.launcher,
                    _life(self._launch, guest.hello.rank),
                    environ={},
                    env={},
                    log=self._launch.log,
                    alone=False,
                )
                connection.adopt(guest)
                self.connections.append(connection)
            elif self._child.linger(0.0):
                ended = self._child.kill(after_s=_LAST_WORDS_S)
                raise SessionEnded(death(ended, read_log(self._launch.log), phase="start", greeted=False))
            elif time.monotonic() > deadline:
                came = f"{len(self.connections)} of {size}" if self.connections else "none"
                message = f"of the launcher's processes {came} connected within {limit_s:.0f} s"
                raise _ended(FailureClass.TIMEOUT, message)


def _life(launch: Launch, rank: int) -> Lifecycle:
    """Of one rank; the gang's own says whether it was started."""
    life = Lifecycle(f"{launch.name}, rank {rank}")
    life.begin()
    return life


def _own_name() -> str:
    """A name of this host under which others can reach it, as far as that can be told from here."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        socket.getaddrinfo(name, None)
        return name
    return "127.0.0.1"


def _ended(kind: FailureClass, message: str) -> SessionEnded:
    return SessionEnded(Failure(kind=kind, phase="start", message=message))
