"""Limits and counters of this process's control group, versions 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["cpu_quota", "memory_limit", "oom_kills", "throttled_s"]

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def cpu_quota(*, proc: Path = PROC, root: Path = CGROUPS) -> float | None:
    """How many cores' worth of time the group and all above it may use; None: no limit."""
    quotas = []
    for text in _texts("cpu", "cpu.max", proc, root):  # "max 100000" or "150000 100000"
        limit, _, period = text.partition(" ")
        if limit != "max" and period:
            quotas.append(int(limit) / int(period))
    limits = _texts("cpu", "cpu.cfs_quota_us", proc, root)
    periods = _texts("cpu", "cpu.cfs_period_us", proc, root)
    quotas += [int(limit) / int(period) for limit, period in zip(limits, periods, strict=False) if int(limit) > 0]
    return min(quotas, default=None)


def memory_limit(*, proc: Path = PROC, root: Path = CGROUPS) -> int | None:
    """Smallest memory limit on the group and all above it, in bytes; None: no limit."""
    limits = [int(t) for t in _texts("memory", "memory.max", proc, root) if t != "max"]
    # Version 1 has no word for "no limit": it shows the largest multiple of the page size.
    limits += [int(t) for t in _texts("memory", "memory.limit_in_bytes", proc, root) if int(t) < 1 << 60]
    return min(limits, default=None)


def oom_kills(*, proc: Path = PROC, root: Path = CGROUPS) -> int | None:
    """How often the kernel killed a process of this group for memory; None where it isn't counted.

    A rise during a trial tells an out-of-memory kill from another SIGKILL.
    """
    for name in ("memory.events", "memory.oom_control"):
        for text in _texts("memory", name, proc, root):
            if (count := _field(text, "oom_kill")) is not None:
                return count
    return None


def throttled_s(*, proc: Path = PROC, root: Path = CGROUPS) -> float | None:
    """Seconds for which the CPU quota has stopped this group so far; None where it isn't counted."""
    for text in _texts("cpu", "cpu.stat", proc, root):
        for name, unit in (("throttled_usec", 1e-6), ("throttled_time", 1e-9)):
            if (count := _field(text, name)) is not None:
                return count * unit
    return None


def _texts(controller: str, name: str, proc: Path, root: Path) -> Iterator[str]:
    """Contents of the file `name` in this process's group and those above it, innermost first.

    Inside a container the path in /proc/self/cgroup may be the host's, which isn't mounted; the walk upwards then ends
    at the mount's root, which is the container's own group.
    """
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        group = base / path.strip("/")
        for folder in (group, *group.parents):
            if (text := _text(folder / name)) is not None:
                yield text
            if folder == base:
                break


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _field(text: str, name: str) -> int | None:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
