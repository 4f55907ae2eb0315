"""Asks the user's interpreter what a JAX program under it would find, with a deadline."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Mapping

import msgspec

from tuner.session.package import worker_zip

__all__ = ["Checkup", "ask"]

# Runs before anything of the package: the current folder's files must not stand in for the standard library's.
_START = """
import sys
sys.path = [sys.argv[1], *filter(None, sys.path)]
from tuner.worker.checkup import main
main(sys.argv[2])
"""
_LAST_LINES = 8


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What the interpreter told before it ended; "" and empty where it did not get that far.

    `names`, `config_names`: variables that this version reads. `cache`: jax's settings around the compilation cache,
    as texts. `platforms`: what jax was told to use. `backend_errors`: platforms that didn't start, and why. `traced`:
    "" if the profiler works, None if that wasn't reached. `ended`: how it failed, "" if it did not; `log`: its last
    lines.
    """

    python: str = ""
    packages: dict[str, str] = {}
    names: tuple[str, ...] = ()
    config_names: tuple[str, ...] = ()
    jax: str = ""
    jaxlib: str = ""
    cache: dict[str, str] = {}
    platforms: str = ""
    platform: str = ""
    devices: tuple[str, ...] = ()
    backend_errors: dict[str, str] = {}
    traced: str | None = None
    ended: str = ""
    log: tuple[str, ...] = ()


def ask(python: str, env: Mapping[str, str], *, timeout_s: float = 60.0) -> Checkup:
    """Start `python` in the environment `env`, and collect what it tells in `timeout_s` seconds at most."""
    mark = f"{secrets.token_hex(8)} "  # whatever else is printed can't be taken for an answer
    command = [python, "-c", _START, str(worker_zip()), mark]
    # Our check must not take the card's memory away from whatever runs there.
    changes = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    try:
        with subprocess.Popen(
            command,
            env={**env, **changes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
                ended = _ended(process.returncode)
            except subprocess.TimeoutExpired:
                ended = f"no answer within {timeout_s:g} s"
                _kill(process)
                out, err = process.communicate()
            except BaseException:
                _kill(process)
                raise
    except OSError as error:
        return Checkup(ended=f"can't be started: {error.strerror or error}")
    told: dict[str, object] = {}
    for line in out.decode(errors="replace").splitlines():
        if line.startswith(mark):
            told |= msgspec.json.decode(line.removeprefix(mark))
    log = tuple(line for line in err.decode(errors="replace").splitlines() if line.strip())[-_LAST_LINES:]
    return msgspec.convert({**told, "ended": ended, "log": log}, Checkup)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started: it leads a session of its own."""
    os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}" if code else ""
