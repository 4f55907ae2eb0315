"""Runs one child in its own session: lines over private pipes, everything else that it prints into a log file."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from tuner.session.tree import adopt_orphans, is_alive, kill_tree, members

__all__ = ["MARK", "NONCE", "Channel", "Child", "Exit", "is_hello"]

NONCE = "TUNER_WORKER_NONCE"
"""The variable that carries the parent's nonce to the worker, which takes it away before any other code can see it."""

MARK = "TUNER_SESSION"
"""The variable that every process started by the worker inherits, however far it moves away from it."""

_CHUNK = 1 << 16
# How often a wait for a line looks whether the worker is still there: something else may hold its pipe open.
_LOOK_S = 0.25
# How long a killed child may take until it can be waited for.
_REAP_S = 2.0


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended. `code`: exit code, None if it died by `signal` (its number) or could not be waited for.

    `by_us`: it still ran when we killed it, so its signal says nothing.
    """

    code: int | None = None
    signal: int | None = None
    by_us: bool = False


class Channel(Protocol):
    """A worker as its connection sees it: a child of this process, or one that a launcher started elsewhere."""

    def watch(self, pid: int) -> None: ...

    def log_size(self) -> int: ...

    def send(self, line: bytes, *, timeout_s: float) -> None: ...

    def receive(self, *, timeout_s: float) -> bytes: ...

    def linger(self, timeout_s: float) -> bool: ...

    def kill(self, *, after_s: float = 0.0) -> Exit: ...

    def close(self, *, after_s: float = 0.0) -> Exit: ...


class Child:
    """One child process with all that it starts. Started by the constructor; `close` leaves nothing behind.

    Lines before a hello with our `nonce` (wrappers, start-up files) go to the log, as does the child's stderr. The
    child gets EOF on its stdin when this process ends, however it ends. One caller at a time.
    """

    def __init__(
        self, argv: Sequence[str], *, environ: Mapping[str, str], nonce: str, log: Path, wrapped: bool = False
    ) -> None:
        """Raises OSError if the program can't be started or the log can't be written.

        `wrapped`: `argv` is a wrapper around the worker, whose exit code may stand for a signal (128 + number).
        """
        adopt_orphans()
        self._nonce = nonce
        self._mark = (MARK, secrets.token_hex(8))
        self._wrapped = wrapped
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._greeted = False
        self._ended = False
        self._killed = False
        self._worker: psutil.Process | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab", buffering=0)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env={**environ, NONCE: nonce, MARK: self._mark[1]},
                bufsize=0,
                start_new_session=True,
            )
        except OSError:
            self._log.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        self._wake_read, self._wake_write = os.pipe()
        self._reader = threading.Thread(target=self._read, name=f"reader of {self._process.pid}", daemon=True)
        self._first = psutil.Process(self._process.pid)
        self._adopted: int | None = None
        self._exit: Exit | None = None
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, pid: int) -> None:
        """Treat the end of process `pid`, the worker behind any wrappers, as the end of the child.

        A number that is not one of the child's processes (a worker in a container) is not watched.
        """
        if pid == self.pid:
            self._worker = self._first
        else:
            self._worker = next((p for p in members(self.pid, self._mark) if p.pid == pid), None)

    def log_size(self) -> int:
        """Bytes in the log so far."""
        return os.fstat(self._log.fileno()).st_size

    def send(self, line: bytes, *, timeout_s: float) -> None:
        """Write `line` and a newline. Raises TimeoutError if the child doesn't take it, EOFError if it is gone."""
        deadline = time.monotonic() + timeout_s
        rest = memoryview(line + b"\n")
        poller = select.poll()
        poller.register(self._stdin.fileno(), select.POLLOUT)
        while rest:
            poller.poll(1000 * max(0.0, min(_LOOK_S, deadline - time.monotonic())))
            try:
                written = self._stdin.write(rest)
            except (BrokenPipeError, ConnectionResetError):
                raise EOFError from None
            rest = rest[written or 0 :]
            if rest and time.monotonic() > deadline:
                raise TimeoutError

    def receive(self, *, timeout_s: float) -> bytes:
        """The child's next line from its hello on. Raises TimeoutError without one, EOFError if it is gone."""
        deadline = time.monotonic() + timeout_s
        gone = False
        while not self._ended:
            wait = deadline - time.monotonic()
            try:
                line = self._lines.get(timeout=max(0.0, min(_LOOK_S, wait)))
            except queue.Empty:
                if gone:
                    break
                # One more look at the pipe after the worker was seen dead: its last words may be on their way.
                gone = self._worker is not None and not is_alive(self._worker)
                if wait <= 0 and not gone:
                    raise TimeoutError from None
                continue
            if line is None:
                break
            return line
        self._ended = True
        raise EOFError

    def linger(self, timeout_s: float) -> bool:
        """Wait until the child is gone by itself; False if it is still there after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self._is_there():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def kill(self, *, after_s: float = 0.0) -> Exit:
        """SIGKILL the child's whole tree, reap it and say how the child ended.

        The child may end by itself for `after_s` seconds first. May be called again, also after an interrupted call.
        """
        if self._exit is None:
            self.linger(after_s)
            self._killed = self._killed or self._is_there()
            self._adopted = self._adopted or self._adopted_status()
            if self._process.returncode is None:
                # Its number is ours until it is waited for, so the tree is looked up before that.
                kill_tree(self.pid, self._mark)
                with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel: nothing ends it
                    self._process.wait(timeout=_REAP_S)
            self._exit = self._decode(self._process.returncode if self._adopted is None else self._adopted)
        return self._exit

    def close(self, *, after_s: float = 0.0) -> Exit:
        """EOF for the child, `after_s` seconds to end by itself, then `kill`; the reader and all files are closed."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        ended = self.kill(after_s=after_s)
        if self._reader.is_alive():
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"x")
            self._reader.join()
        if not self._log.closed:
            self._stdout.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._log.close()
        return ended

    def _is_there(self) -> bool:
        return is_alive(self._first) or (self._worker is not None and is_alive(self._worker))

    def _adopted_status(self) -> int | None:
        """The worker's own status if its wrapper left it to us, as a negative signal or an exit code."""
        if self._worker is None or self._worker.pid == self.pid:
            return None
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self._worker.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        return None

    def _decode(self, code: int | None) -> Exit:
        number = None
        if code is not None and code < 0:
            number = -code
        elif code is not None and self._wrapped and code - 128 in signal.valid_signals():
            number = code - 128
        # One that was ending already when we struck keeps its own status.
        by_us = self._killed and (code is None or number == signal.SIGKILL)
        return Exit(code=code if number is None else None, signal=number, by_us=by_us)

    def _read(self) -> None:
        """The reader thread: owns the child's stdout, so that its end is seen whatever the main thread does."""
        try:
            for line in self._complete_lines():
                if self._greeted or is_hello(line, self._nonce):
                    self._greeted = True
                    self._lines.put(line)
                else:
                    self._note(line)
        finally:
            self._lines.put(None)

    def _complete_lines(self) -> Iterator[bytes]:
        """The child's lines until its pipe ends or `close` wakes us; a cut last one goes to the log."""
        poller = select.poll()
        for descriptor in (self._stdout.fileno(), self._wake_read):
            poller.register(descriptor, select.POLLIN)
        parts: list[bytes] = []
        while all(descriptor != self._wake_read for descriptor, _ in poller.poll()):
            chunk = os.read(self._stdout.fileno(), _CHUNK)
            if not chunk:
                break
            first, *others = chunk.split(b"\n")
            parts.append(first)
            if others:
                yield b"".join(parts)
                yield from others[:-1]
                parts = [others[-1]]
        if rest := b"".join(parts):
            self._note(rest)

    def _note(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the protocol
            self._log.write(line + b"\n")


def is_hello(line: bytes, nonce: str) -> bool:
    """True for a JSON object with our nonce: whoever else writes to the pipe first can't know it."""
    if nonce.encode() not in line:
        return False
    with contextlib.suppress(ValueError):
        value = json.loads(line)
        return isinstance(value, dict) and value.get("nonce") == nonce
    return False
