"""Production's own command, run once or twice under a compilation cache, and what jax said of that cache meanwhile."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from tuner.errors import UsageError
from tuner.protocol.cache_log import LOGGERS, LookUps
from tuner.protocol.messages import CacheModule
from tuner.session.tree import adopt_orphans, is_alive, kill_tree

__all__ = ["CommandRun", "look_ups", "run_command"]

_MARK = "TUNER_OWN_COMMAND"
# jax shows debug messages of single modules only where its own logger has a level, which by default it hasn't. Then it
# shows each twice.
_DEBUG, _LEVEL = "JAX_DEBUG_LOG_MODULES", "JAX_LOGGING_LEVEL"
_LOOK_S = 0.05


class CommandRun(msgspec.Struct, frozen=True, kw_only=True):
    """`code`: the exit status, negative for a signal; None: it still ran when its time was over, and was ended.
    `modules`: everything that it, and the processes that it started, looked for in the cache, in order."""

    code: int | None
    seconds: float
    modules: tuple[CacheModule, ...]


def run_command(
    words: Sequence[str], changes: Mapping[str, str | None], *, environ: Mapping[str, str], log: Path, limit_s: float
) -> CommandRun:
    """Run the command in this folder under `environ` with `changes` (None removes a variable) for at most `limit_s`
    seconds; then it and all that it started are killed. What it prints, jax's debug messages among it, goes to `log`.

    The messages are jax's own, asked for by variables: nothing is put into the program. Raises UsageError if it can't
    be started.
    """
    mark = (_MARK, secrets.token_hex(8))
    told = ",".join(dict.fromkeys([*filter(None, environ.get(_DEBUG, "").split(",")), *LOGGERS]))
    level = environ.get(_LEVEL, "NOTSET")
    merged: dict[str, str | None] = {**environ, **changes, _DEBUG: told, mark[0]: mark[1]}
    merged[_LEVEL] = "WARNING" if level == "NOTSET" else level
    adopt_orphans()
    began = time.monotonic()
    with log.open("wb") as output:
        try:
            child = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in merged.items() if value is not None},
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(
                f"can't be started: {error.strerror}", where=words[0], next="name it as in a shell, with its arguments"
            ) from error
        process = psutil.Process(child.pid)  # not waited for until its tree is gone: its number stays its own
        try:
            while (running := is_alive(process)) and time.monotonic() - began < limit_s:
                time.sleep(_LOOK_S)
        finally:
            took_s = time.monotonic() - began
            kill_tree(child.pid, mark)
            code = child.wait()
    return CommandRun(code=None if running else code, seconds=took_s, modules=look_ups(log))


def look_ups(log: Path) -> tuple[CacheModule, ...]:
    """What the programs that wrote `log` looked for in the cache. A repeated line, time and all, counts once."""
    reader = LookUps()
    lines = dict.fromkeys(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return tuple(module for line in lines if (module := reader.read(line)) is not None)
