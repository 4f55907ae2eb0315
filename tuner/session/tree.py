"""Finds and kills every process that a child started, however it hid: session id, descent, or the inherited mark."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache

import psutil

__all__ = ["adopt_orphans", "is_alive", "kill_tree", "members"]

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE_S = 0.01


@cache
def adopt_orphans() -> bool:
    """Make this process inherit orphaned descendants (Linux), so that they can be found by descent and reaped.

    It holds for the whole process from then on. False where the system can't do it.
    """
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def is_alive(process: psutil.Process) -> bool:
    """True while `process` runs; False once it is gone or waits to be reaped."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def members(root: int, mark: tuple[str, str]) -> list[psutil.Process]:
    """The child `root` and all that belongs to it, zombies included.

    A process belongs to it if it is in one of the tree's sessions, descends from one of the tree, or carries `mark`,
    an environment variable (name, value) that only this child was given: the last finds what left its session and
    lost its parent. `root` must not have been reaped yet, or its number could be another process's by now.
    """
    everyone = {p.pid: p for p in _processes() if p.pid != os.getpid()}
    parents = {pid: ppid for pid, p in everyone.items() if (ppid := _ppid(p)) is not None}
    sessions = {pid: sid for pid in parents if (sid := _sid(pid)) is not None}
    foreign = os.getsid(0)
    found = {root} & everyone.keys()
    found |= {pid for pid, process in everyone.items() if _carries(process, mark)}
    while True:
        inside = {root} | {sessions[pid] for pid in found if pid in sessions and sessions[pid] != foreign}
        grown = found | {
            pid for pid, ppid in parents.items() if ppid in found or (pid in sessions and sessions[pid] in inside)
        }
        if grown == found:
            return [everyone[pid] for pid in found]
        found = grown


def kill_tree(root: int, mark: tuple[str, str], *, timeout_s: float = 10.0) -> bool:
    """SIGKILL `root`'s whole tree and reap all but `root`, which is left to its owner to be waited for.

    True once nothing of it is left; False if something outlived `timeout_s` (stuck in the kernel).
    """
    deadline = time.monotonic() + timeout_s
    seen: dict[int, psutil.Process] = {}
    while True:
        # Looked up anew each time: what was killed may have forked between the look and the blow. What was seen is
        # kept: a zombie in a session of its own, left to us, no longer shows where it came from.
        seen |= {p.pid: p for p in members(root, mark)}
        left = [p for pid, p in seen.items() if (is_alive(p) if pid == root else p.is_running())]
        if not left:
            return True
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    process.kill()
        _reap(process.pid for process in left if process.pid != root)
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)


def _processes() -> Iterator[psutil.Process]:
    # Not psutil.process_iter: it keeps its objects, and a number may have been given to another process meanwhile.
    # Session 0 means a kernel thread, of which large machines have thousands, or a session outside this container.
    for pid in filter(_sid, psutil.pids()):
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(pid)


def _reap(pids: Iterable[int]) -> None:
    """Wait for those that are our children, adopted ones; the others are their own parents' to reap."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _ppid(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _sid(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _carries(process: psutil.Process, mark: tuple[str, str]) -> bool:
    name, value = mark
    try:
        return process.environ().get(name) == value
    except (psutil.Error, OSError):
        return False
