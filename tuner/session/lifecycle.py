"""The order of a session's calls, the same for every implementation: start once, nothing after its end but close."""

from __future__ import annotations

from tuner.errors import SessionEnded, TunerError
from tuner.protocol.failure import Failure, FailureClass

__all__ = ["Lifecycle"]

_CLOSED = Failure(kind=FailureClass.INTERRUPTED, phase="close", message="the session was closed")


class Lifecycle:
    """Where a session stands: new, started, ended by a failure, closed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = False
        self._closed = False
        self.ended: Failure | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    def begin(self) -> None:
        """The session starts now. Raises TunerError the second time, SessionEnded after its end."""
        self._require_open()
        if self._started:
            raise TunerError("the session was started already", where=self._name, next="make a new session")
        self._started = True

    def require(self) -> None:
        """Raises SessionEnded after the session's end, TunerError before its start."""
        self._require_open()
        if not self._started:
            raise TunerError("the session was not started", where=self._name, next="call start() first")

    def end(self, failure: Failure) -> SessionEnded:
        """The session ends by `failure`; returns the error to raise. The first failure stays."""
        self.ended = self.ended or failure
        return SessionEnded(self.ended)

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self.ended is not None:
            raise SessionEnded(self.ended)
        if self._closed:
            raise SessionEnded(_CLOSED)
