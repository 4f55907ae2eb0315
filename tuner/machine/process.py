"""Processes as something that can be named and recognised later: pid, start time, host and command."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import msgspec

__all__ = ["Stamp", "alive", "read_stamp", "start_of", "this_process"]

_PROC = Path("/proc")


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """One process. `start` tells it from a later one with the same pid; `since` is seconds since the epoch."""

    host: str
    pid: int
    start: str
    command: str
    since: float

    def __str__(self) -> str:
        """Who and since when, for a message."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        what = f" ({self.command})" if self.command else ""
        return f"process {self.pid}{where}{what}, since {since}"


def this_process(command: str = "") -> Stamp:
    """The stamp of the calling process; `command` is what a user would recognise it by."""
    pid = os.getpid()
    return Stamp(host=socket.gethostname(), pid=pid, start=start_of(pid), command=command, since=time.time())


def read_stamp(text: bytes) -> Stamp | None:
    """The stamp that a holder wrote, or None for anything else (an empty or half-written file)."""
    try:
        return msgspec.json.decode(text, type=Stamp)
    except msgspec.MsgspecError:
        return None


def start_of(pid: int, *, proc: Path = _PROC) -> str:
    """When process `pid` started, as an opaque text; "" if there is no such process.

    On Linux boot id and clock ticks, which no change of the wall clock moves; elsewhere psutil's creation time.
    """
    if proc.is_dir():
        try:
            stat = (proc / str(pid) / "stat").read_text()
        except OSError:
            return ""
        # The command name (field 2) may hold spaces and parentheses: count from its last one. Field 22 is the start.
        ticks = stat.rpartition(")")[2].split()[19]
        try:
            boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot = ""
        return f"{boot}:{ticks}"
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.0f}"
    except psutil.Error:
        return ""


def alive(stamp: Stamp) -> bool:
    """True unless the stamped process is known to be gone; a process of another host can't be known."""
    if stamp.host != socket.gethostname():
        return True
    return start_of(stamp.pid) == stamp.start != ""
