"""Workers that come over the network: a listening socket that lets in who shows the token, and each one's channel."""

from __future__ import annotations

import contextlib
import json
import queue
import select
import socket
import threading
import time
from pathlib import Path

from tuner.protocol.codec import ProtocolError, from_json
from tuner.protocol.messages import Hello
from tuner.session.process import Exit, is_hello

__all__ = ["Guest", "Hall"]

_CHUNK = 1 << 16
_HELLO_BYTES = 1 << 14
_HELLO_S = 10.0


class Guest:
    """One connected worker, from its hello on; a `Channel`. Its process is the launcher's to end: closing the
    connection makes it end itself."""

    def __init__(self, connection: socket.socket, line: bytes, rest: bytes, *, log: Path) -> None:
        self.hello = from_json(Hello, json.loads(line))
        self._connection = connection
        self._log = log
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lines.put(line)
        self._gone = False
        self._closed = False
        self._reader = threading.Thread(target=self._read, args=(rest,), daemon=True, name="tuner-guest")
        self._reader.start()

    def watch(self, pid: int) -> None:
        """Its process is on another host, perhaps; its end closes the connection."""

    def log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def send(self, line: bytes, *, timeout_s: float) -> None:
        try:
            self._connection.settimeout(timeout_s)
            self._connection.sendall(line + b"\n")
        except TimeoutError:
            raise
        except OSError:
            raise EOFError from None

    def receive(self, *, timeout_s: float) -> bytes:
        if self._gone:
            raise EOFError
        try:
            line = self._lines.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            self._gone = True
            raise EOFError
        return line

    def linger(self, timeout_s: float) -> bool:
        self._reader.join(timeout_s)
        return not self._reader.is_alive()

    def kill(self, *, after_s: float = 0.0) -> Exit:
        """How its process ended only the launcher knows."""
        alive = not self.linger(min(after_s, _HELLO_S))
        return self._end(by_us=alive)

    def close(self, *, after_s: float = 0.0) -> Exit:
        alive = not self.linger(after_s)
        return self._end(by_us=alive)

    def _end(self, *, by_us: bool) -> Exit:
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            self._reader.join()
            self._connection.close()
        return Exit(by_us=by_us)

    def _read(self, rest: bytes) -> None:
        parts = rest
        try:
            while True:
                *lines, parts = parts.split(b"\n")
                for line in lines:
                    self._lines.put(line)
                select.select([self._connection], [], [])
                chunk = self._connection.recv(_CHUNK)
                if not chunk:
                    return
                parts += chunk
        except OSError:
            return
        finally:
            self._lines.put(None)


class Hall:
    """Listens on a port of this host. Who doesn't open with a hello and our token is sent away."""

    def __init__(self, token: str, *, log: Path) -> None:
        self._token = token
        self._log = log
        self._server = socket.create_server(("", 0), backlog=1024)
        self.port = int(self._server.getsockname()[1])
        self._guests: queue.SimpleQueue[Guest] = queue.SimpleQueue()
        self._open = True
        self._thread = threading.Thread(target=self._run, daemon=True, name="tuner-hall")
        self._thread.start()

    def next(self, *, timeout_s: float) -> Guest | None:
        """The next worker; None if none comes."""
        with contextlib.suppress(queue.Empty):
            return self._guests.get(timeout=timeout_s)
        return None

    def close(self) -> None:
        """Let nobody in any more; those that nobody asked for are sent away."""
        self._open = False
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        while (guest := self.next(timeout_s=0.0)) is not None:
            guest.close()

    def _run(self) -> None:
        while self._open:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            # One that says nothing must not keep the others out.
            threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()

    def _welcome(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + _HELLO_S
        data = b""
        try:
            while b"\n" not in data and len(data) < _HELLO_BYTES:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = connection.recv(_CHUNK)
                if not chunk:
                    break
                data += chunk
            line, _, rest = data.partition(b"\n")
            if not is_hello(line, self._token):
                raise ProtocolError("no token")
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._guests.put(Guest(connection, line, rest, log=self._log))
        except (OSError, ProtocolError):
            connection.close()
