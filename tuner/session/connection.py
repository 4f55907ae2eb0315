"""Connection: requests to one worker and its answers, each with a deadline; its end becomes a `Failure`."""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import SessionEnded
from tuner.protocol.codec import ProtocolError, from_json, op_of, to_json
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import PROTOCOL, Close, Hello, Progress
from tuner.session.failures import LogExcerpt, death, nonsense, read_log, timeout, with_log
from tuner.session.lifecycle import Lifecycle
from tuner.session.process import NONCE, Channel, Child, Exit
from tuner.session.repeat import Transcript, shell_command

__all__ = ["Connection"]

R = TypeVar("R")

# What a worker may take to leave by itself when it is told to close; it is killed after that.
_CLOSE_S = 3.0
# A wrapper may have something to write once the worker has ended: a profiler writes its report.
_WRAPPER_S = 300.0
# How long a worker that closed its pipe may take to be gone by itself, and so show why: a device is slow to let go.
_DEATH_S = 10.0
# The same for one that says what is no answer: it may be a wrapper's last words.
_NONSENSE_S = 1.0


class Connection:
    """One worker. Every method but `close` raises SessionEnded, through `life`, once the worker is gone.

    `env`: the changes to the inherited environment that `environ` already holds; only quoted in commands to repeat.
    `alone`: the worker can be run by itself; of a rank of a gang there is no command to repeat.
    """

    def __init__(
        self,
        argv: Sequence[str],
        life: Lifecycle,
        *,
        environ: Mapping[str, str],
        env: Mapping[str, str | None],
        log: Path,
        alone: bool = True,
    ) -> None:
        self._alone = alone
        self._argv = tuple(argv)
        self._life = life
        self._environ = environ
        self._env = env
        self._log = log
        self._nonce = secrets.token_hex(16)
        self._child: Channel | None = None
        # A descriptor that two threads close is another one's the second time. One thread may close within its close.
        self._closing = threading.RLock()
        self._transcript = Transcript()
        self._last_id = 0
        self._close_s = _CLOSE_S
        self._waiting = False  # for a hello or an answer
        self._log_start = 0
        self._log_since = 0
        self._posted = ("", 0.0, 0.0)  # what is waited for: phase, limit in seconds, deadline
        self.progress: Progress | None = None
        self.heard = 0.0

    def open(self, *, limit_s: float, wrapped: bool = False) -> None:
        """Start the process and wait for its hello. `wrapped`: the first word of `argv` is not the interpreter."""
        self.begin(wrapped=wrapped)
        self.greet(limit_s=limit_s)

    def begin(self, *, wrapped: bool = False) -> None:
        """Start the process; `greet` waits for its hello."""
        self._close_s = _WRAPPER_S if wrapped else _CLOSE_S
        with contextlib.suppress(OSError):
            self._log_start = self._log_since = self._log.stat().st_size
        self._waiting = True
        try:
            self._child = Child(self._argv, environ=self._environ, nonce=self._nonce, log=self._log, wrapped=wrapped)
        except OSError as error:
            message = f"the worker can't be started: {error}"
            raise self._life.end(Failure(kind=FailureClass.PLATFORM, phase="start", message=message)) from error

    def adopt(self, channel: Channel) -> None:
        """Speak to a worker that somebody else started, from its hello on."""
        self._waiting = True
        self._child = channel

    def greet(self, *, limit_s: float) -> Hello:
        """The worker's hello."""
        assert self._child is not None
        value = self._next("start", limit_s=limit_s, deadline=time.monotonic() + limit_s)
        try:
            hello = from_json(Hello, value)
        except ProtocolError as error:
            raise self._nonsense(f"the worker's hello does not fit: {error}", "start") from error
        if hello.protocol != PROTOCOL:
            raise self._nonsense(f"the worker speaks protocol {hello.protocol}, not {PROTOCOL}", "start")
        self._child.watch(hello.pid)
        self._waiting = False
        return hello

    def ask(self, kind: type[R], request: object, *, limit_s: float) -> R | Failure:
        """Send `request` and wait for its answer: a `kind`, or the failure that the worker reports."""
        self.post(request, limit_s=limit_s)
        while (answer := self.take(kind, wait_s=limit_s)) is None:
            pass
        return answer

    def post(self, request: object, *, limit_s: float) -> None:
        """Send `request`; `take` fetches the answer, for which the worker has `limit_s` seconds."""
        self._life.require()
        assert self._child is not None
        phase = op_of(request)
        self._posted = (phase, limit_s, time.monotonic() + limit_s)
        self.heard = time.monotonic()
        line = self._line(request)
        self._transcript.note(request, line)
        self._log_since = self._child.log_size()
        self._waiting = True
        try:
            self._child.send(line, timeout_s=limit_s)
        except TimeoutError:
            raise self._timeout(limit_s, phase) from None
        except EOFError:
            raise self._death(phase) from None

    def take(self, kind: type[R], *, wait_s: float) -> R | Failure | None:
        """The answer to what was posted; None if it isn't there within `wait_s` seconds."""
        phase, limit_s, deadline = self._posted
        until = time.monotonic() + wait_s
        while True:
            answer = self._next(phase, limit_s=limit_s, deadline=deadline, until=until)
            if answer is None:
                return None
            self.heard = time.monotonic()
            if "progress" in answer:
                self.progress = from_json(Progress, answer["progress"])
                continue
            number = answer.get("id")
            if type(number) is int and number < self._last_id:
                continue  # the answer to a request whose wait was interrupted
            self._waiting = False
            if number != self._last_id or ("ok" in answer) == ("failure" in answer):
                raise self._nonsense(f"expected the answer to request {self._last_id}, got {_short(answer)}", phase)
            try:
                if "failure" in answer:
                    return from_json(Failure, answer["failure"])
                return from_json(kind, answer["ok"])
            except ProtocolError as error:
                raise self._nonsense(f"the answer does not fit: {error}", phase) from error

    def glance(self) -> Failure | None:
        """How the worker ended, if it is seen to have by now. What else it says is lost: for a gang that ends."""
        phase, limit_s, _ = self._posted
        with contextlib.suppress(SessionEnded):
            while (said := self._next(phase, limit_s=limit_s, deadline=math.inf, until=0.0)) is not None:
                self.heard = time.monotonic()
                if "progress" in said:
                    self.progress = from_json(Progress, said["progress"])
        return self._life.ended

    def with_log(self, failure: Failure) -> Failure:
        """`failure` with the lines of this worker's log, if it quotes none."""
        return failure if failure.log_tail else with_log(failure, self._excerpt(), command=failure.command)

    def expect(self, kind: type[R], request: object, *, limit_s: float) -> R:
        """As `ask`, for requests that a living worker always fulfils: a failure ends it."""
        reply = self.ask(kind, request, limit_s=limit_s)
        if isinstance(reply, Failure):
            raise self._end(with_log(reply, self._excerpt(), command=self._command()))
        return reply

    def refuse(self, what: str, *, phase: str) -> SessionEnded:
        """End the worker: its answer, though well-formed, is none to what was asked. Returns the error to raise."""
        return self._nonsense(what, phase)

    def close(self, *, at_once: bool = False) -> None:
        """End the worker and all that it started; also in the middle of a call, twice, and from two threads at once.
        `at_once`: by force."""
        with self._closing:
            child = self._child
            if child is None:
                return
            # In the middle of a request the worker would not read a Close before it is done.
            polite = self._life.ended is None and not self._waiting and not at_once
            if polite:
                # Only the worker's end is waited for: EOF follows at once, and either of them ends it.
                with contextlib.suppress(TimeoutError, EOFError):
                    child.send(self._line(Close()), timeout_s=_CLOSE_S)
            child.close(after_s=self._close_s if polite else 0.0)
            self._child = None

    def _line(self, request: object) -> bytes:
        self._last_id += 1
        return json.dumps({"id": self._last_id, "op": op_of(request), **to_json(request)}).encode()

    def _next(self, phase: str, *, limit_s: float, deadline: float, until: float = math.inf) -> Any:
        """The worker's next line, a JSON object; None if it doesn't come by `until`. `limit_s`: the whole limit, for
        the message."""
        assert self._child is not None
        try:
            line = self._child.receive(timeout_s=min(deadline, until) - time.monotonic())
        except TimeoutError:
            if time.monotonic() < deadline:
                return None
            raise self._timeout(limit_s, phase) from None
        except EOFError:
            raise self._death(phase) from None
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
        if self._child.linger(_NONSENSE_S):
            raise self._death(phase)  # these were a wrapper's last words
        raise self._nonsense(f"expected a JSON object, got {_short(line.decode('utf-8', 'replace'))}", phase)

    def _timeout(self, limit_s: float, phase: str) -> SessionEnded:
        self._kill(after_s=0.0)
        return self._end(timeout(limit_s, self._excerpt(), phase=phase, command=self._command()))

    def _death(self, phase: str) -> SessionEnded:
        ended = self._kill(after_s=_DEATH_S)
        greeted = phase != "start"
        return self._end(death(ended, self._excerpt(), phase=phase, greeted=greeted, command=self._command()))

    def _nonsense(self, what: str, phase: str) -> SessionEnded:
        self._kill(after_s=0.0)
        return self._end(nonsense(what, self._excerpt(), phase=phase, command=self._command()))

    def _kill(self, *, after_s: float) -> Exit:
        assert self._child is not None
        return self._child.kill(after_s=after_s)

    def _end(self, failure: Failure) -> SessionEnded:
        """The worker's end by `failure`, with nothing of it left behind; returns the error to raise."""
        error = self._life.end(failure)
        self.close()
        return error

    def _excerpt(self) -> LogExcerpt:
        return read_log(self._log, start=self._log_start, since=self._log_since)

    def _command(self) -> str:
        """The command that repeats the request under way; its requests are written to a file beside the log."""
        if not self._alone:
            return ""
        file = self._log.with_suffix(".repeat.jsonl")
        env = {**self._env, NONCE: self._nonce}
        try:
            return shell_command(self._argv, self._transcript.lines(), env=env, file=file)
        except OSError:
            return ""  # a full disk must not hide the failure itself


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
