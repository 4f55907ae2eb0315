"""The command that repeats a failure by hand: the same worker, environment and requests."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tuner.protocol.messages import Compile, Load, Numerics, Profile, Release, Round

__all__ = ["Transcript", "shell_command"]


class Transcript:
    """The requests that the latest one needs before it: the load, and the compiles of the handles that it names."""

    def __init__(self) -> None:
        self._load: list[bytes] = []
        self._compiles: dict[tuple[str, str], bytes] = {}
        self._latest: list[bytes] = []

    def note(self, request: object, line: bytes) -> None:
        """`line` sends `request` now."""
        if isinstance(request, Load):
            self._load, self._latest = [line], []
            return
        needed = dict.fromkeys(self._compiles[h] for h in _handles(request) if h in self._compiles)
        self._latest = [*needed, line]
        if isinstance(request, Compile):
            self._compiles.update(dict.fromkeys(((request.function, v.id) for v in request.variants), line))
        elif isinstance(request, Release):
            for handle in request.ids:
                self._compiles.pop(("", handle), None)

    def lines(self) -> list[bytes]:
        return [*self._load, *self._latest]


def _handles(request: object) -> tuple[tuple[str, str], ...]:
    """The functions and handles that `request` names."""
    if isinstance(request, Round):
        return tuple((request.function, arm.id) for arm in request.arms)
    if isinstance(request, Numerics):
        return ((request.function, request.id),)
    if isinstance(request, Profile):
        return (("", request.id),)
    return ()


def shell_command(argv: Sequence[str], requests: Sequence[bytes], *, env: Mapping[str, str | None], file: Path) -> str:
    """Write `requests` to `file`, one a line, and return a shell command that sends them to a worker like this one.

    `env`: changes to the inherited environment. The ``-`` after the file keeps the pipe open: a worker ends at EOF.
    """
    file.write_bytes(b"".join(line + b"\n" for line in requests))
    removed = [word for name, value in env.items() if value is None for word in ("-u", name)]
    given = [f"{name}={value}" for name, value in env.items() if value is not None]
    return f"cat {shlex.quote(str(file))} - | {shlex.join(['env', *removed, *given, *argv])}"
