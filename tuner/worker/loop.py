"""The request loop: one request after another, each answered by its result or by a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tuner.protocol.codec import OPS, ProtocolError, from_json, to_json
from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Close, Closed, Load, Loaded
from tuner.worker import load, script
from tuner.worker.failures import Refused, failure_of
from tuner.worker.gang import Member, together
from tuner.worker.join import join
from tuner.worker.pipe import Pipe

if TYPE_CHECKING:
    from tuner.worker.session import WorkerSession

__all__ = ["Loop"]


_ALONE = ("probe", "ceilings")
"""What the parent asks one rank alone: the others are like it."""


class Loop:
    """Answers requests until Close. A script's session runs the loop from *inside* the script's own step call."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._session: WorkerSession | None = None
        self._gang: Member | None = None

    def run(self) -> NoReturn:
        """Answer for ever; Close and the end of the pipe end the process."""
        while True:
            message = self._pipe.receive()
            number, op = message.get("id"), str(message.get("op"))
            if self._gang is not None:
                self._gang.reporter.begin(op)
            try:
                answer = {"ok": to_json(self._answer(number, op, message))}
            except BaseException as error:  # also SystemExit out of user code: a worker ends by Close only
                answer = {"failure": to_json(failure_of(error, op))}
            if self._gang is not None:
                self._gang.reporter.end()
            self._pipe.send({"id": number, **answer})
            if op == "close":
                _end()

    def _answer(self, number: Any, op: str, message: dict[str, Any]) -> Any:
        if op not in OPS:
            raise Refused(FailureClass.PROTOCOL, f"unknown op {op!r}")
        try:
            request = from_json(OPS[op][0], {k: v for k, v in message.items() if k not in ("id", "op")}, where=op)
        except ProtocolError as error:
            raise Refused(FailureClass.PROTOCOL, str(error)) from error
        if isinstance(request, Close):
            if self._session is not None:
                self._session.quiet()
            return Closed()
        if isinstance(request, Load):
            return self._load(number, request)
        if self._session is None:
            raise Refused(FailureClass.PROTOCOL, f"{op} before a workload was loaded")
        from tuner.worker.ops import OPERATIONS  # imports jax

        session = self._session

        def answer() -> Any:
            return OPERATIONS[op](session.function(getattr(request, "function", "")), request)

        return answer() if op in _ALONE else together(self._gang, op, answer)[0]

    def _load(self, number: Any, request: Load) -> Loaded:
        if self._session is not None:
            raise Refused(FailureClass.PROTOCOL, "a workload is loaded already; a worker takes one")

        if not load.has_build(request.workload):
            if request.gang is not None:
                message = "a script's step is chosen by its times, which differ between ranks: give it a build()"
                raise Refused(FailureClass.WORKLOAD, message)
            script.run(request, take_over=lambda opening: self._take_over(number, opening))
        if request.gang is not None:
            self._gang = join(request, request.gang, report=self._pipe.send)
        (self._session, loaded), _ = together(
            self._gang,
            "load",
            lambda: load.from_build(request),
            same=lambda opened: {
                "devices": [opened[1].platform, opened[1].device_kind, opened[1].device_count],
                "inputs": list(opened[1].inputs),
            },
        )
        self._session.gang = self._gang
        return loaded

    def _take_over(self, number: Any, opening: Callable[[], tuple[WorkerSession, Loaded]]) -> NoReturn:
        """Answer the Load request from inside the script's step call, and never go back to the script."""
        try:
            self._session, loaded = opening()
        except BaseException as error:
            self._pipe.send({"id": number, "failure": to_json(failure_of(error, "load"))})
        else:
            self._pipe.send({"id": number, "ok": to_json(loaded)})
        self.run()


def _end() -> NoReturn:
    """End without tearing jax down: threads of the user's program and of XLA may be anywhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
