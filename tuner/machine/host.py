"""The host: CPU, usable cores, memory, kernel, and whether a path lies on another machine's disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from tuner.machine import cgroup

__all__ = ["Host", "network_filesystem", "read_host", "usable_cpus"]

_NETWORK_FILESYSTEMS = frozenset(
    {
        "acfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "smb3",
        "smbfs",
        "wekafs",
    }
)


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """`cores`: those this process may run on (affinity). `quota`: cores' worth of time the control group allows.

    `memory_bytes`: the machine's, or the control group's limit where that is smaller. `load`: one-minute average.
    """

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    quota: float | None = None
    load: float = 0.0

    @property
    def usable_cores(self) -> float:
        """Cores that a program can keep busy: the smaller of affinity and quota."""
        return float(self.cores) if self.quota is None else min(float(self.cores), self.quota)

    @property
    def notice(self) -> str:
        """What the user should know about core limits; "" if there is nothing."""
        if self.quota is None or self.quota >= self.cores:
            return ""
        return (
            f"the control group allows {self.quota:g} cores' worth of time, but {self.cores} cores are visible: "
            "thread pools will be too large and times will be cut by the quota; start with taskset to match it"
        )


def read_host(*, proc: Path = cgroup.PROC, cgroups: Path = cgroup.CGROUPS) -> Host:
    """Read everything about this host now."""
    limit = cgroup.memory_limit(proc=proc, root=cgroups)
    memory = _memory(proc)
    return Host(
        cpu=_cpu_model(proc),
        cores=len(usable_cpus()),
        quota=cgroup.cpu_quota(proc=proc, root=cgroups),
        memory_bytes=memory if limit is None else min(memory, limit),
        kernel=f"{os.uname().sysname} {os.uname().release}",
        load=os.getloadavg()[0],
    )


def network_filesystem(path: Path, *, proc: Path = cgroup.PROC) -> str:
    """The type of the network filesystem that `path` (or its nearest existing parent) lies on; "" if it is local.

    SQLite's locks aren't safe there.
    """
    try:
        mounts = (proc / "self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    here = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts:
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split()[4])  # a space is written \040
        inside = here == point or here.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # the last of equal ones lies on top
            best, kind = point, right.split()[0]
    return kind if kind in _NETWORK_FILESYSTEMS else ""


def usable_cpus() -> frozenset[int]:
    """Numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _cpu_model(proc: Path) -> str:
    """The model's name; on processors that have none (Arm) the implementer and part numbers."""
    try:
        first = (proc / "cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        first = ""
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    if "model name" in fields:
        return re.sub(r"\s+", " ", fields["model name"])
    if "CPU part" in fields:
        return f"{os.uname().machine} implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return os.uname().machine


def _memory(proc: Path) -> int:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import psutil

    return psutil.virtual_memory().total
