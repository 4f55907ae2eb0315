"""A real worker process, spoken to by hand."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tuner.protocol.codec import OPS, from_json, op_of, to_json
from tuner.protocol.failure import Failure
from tuner.protocol.messages import (
    Arm,
    Close,
    Compile,
    CompileReply,
    Hello,
    Load,
    Loaded,
    Numerics,
    NumericsReply,
    Release,
    Round,
    RoundReply,
    Variant,
)

NONCE = "a-word"


class Worker:
    """One process. Every method that asks raises AssertionError if the answer is a failure; `ask` returns it."""

    def __init__(self, archive: Path, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.log = folder / "worker.log"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_"))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(archive)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=inherited | {"JAX_PLATFORMS": "cpu", "TUNER_WORKER_NONCE": NONCE} | env,
                cwd=folder,
                start_new_session=True,
            )
        self._count = 0
        self._buffer = b""
        self.hello = from_json(Hello, self.line())

    def line(self, timeout_s: float = 90) -> Any:
        """The next line on the pipe, which must be JSON."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            assert ready, f"no answer in {timeout_s} s; log: {self.text()[-2000:]}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, f"the worker ended; log: {self.text()[-2000:]}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def post(self, message: dict[str, Any]) -> None:
        """Write one request line without waiting for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, request: Any) -> Any:
        """The typed reply to `request`, or the Failure."""
        self._count += 1
        self.post({"id": self._count, "op": op_of(request), **to_json(request)})
        reply = self.line()
        assert reply["id"] == self._count
        if "failure" in reply:
            return from_json(Failure, reply["failure"])
        return from_json(OPS[op_of(request)][1], reply["ok"])

    def load(self, source: str, *, name: str = "workload.py", **fields: Any) -> Any:
        """Loaded or Failure for a workload with this text."""
        path = self.folder / name
        path.write_text(source)
        return self.ask(Load(workload=str(path), **fields))

    def loaded(self, source: str, *, name: str = "workload.py", **fields: Any) -> Loaded:
        reply = self.load(source, name=name, **fields)
        assert isinstance(reply, Loaded), reply
        return reply

    def compile(self, *variants: Variant, threads: int = 1) -> CompileReply:
        reply = self.ask(Compile(variants=variants, threads=threads))
        assert isinstance(reply, CompileReply), reply
        return reply

    def round(self, *handles: str, steps: int = 3, reset: bool = True) -> RoundReply:
        reply = self.ask(Round(arms=tuple(Arm(id=h, steps=steps) for h in handles), reset=reset))
        assert isinstance(reply, RoundReply), reply
        return reply

    def numerics(self, handle: str, *, steps: int = 3, save: bool = False, nudge: int = 0) -> NumericsReply:
        reference = str(self.folder / "reference.bin")
        reply = self.ask(Numerics(id=handle, steps=steps, reference=reference, save=save, nudge=nudge))
        assert isinstance(reply, NumericsReply), reply
        return reply

    def release(self, *handles: str) -> int:
        reply = self.ask(Release(ids=handles))
        return int(reply.live_executables)

    def close(self) -> int:
        """Exit code after Close."""
        self.ask(Close())
        return self.process.wait(timeout=10)

    def text(self) -> str:
        """The log so far."""
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        """Kill what is left."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
