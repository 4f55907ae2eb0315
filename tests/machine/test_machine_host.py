from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tuner.machine.host import Host, network_filesystem, read_host

HOST = Host(cpu="Made Up 9000", cores=4, memory_bytes=1 << 33, kernel="Linux 6")


def test_this_host_is_read() -> None:
    host = read_host()
    assert host.cpu
    assert host.cores == len(os.sched_getaffinity(0))
    assert host.memory_bytes > 1 << 26
    assert host.kernel.startswith("Linux")
    assert host.load >= 0


@pytest.mark.slow
def test_affinity_limits_the_usable_cores() -> None:
    """As `taskset -c 0` does."""
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from tuner.machine.host import read_host; print(read_host().cores)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


def test_the_control_groups_limits_count(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Made  Up 9000\nflags\t: a b\n\nmodel name\t: second\n",
        "proc/meminfo": "MemTotal:       8388608 kB\n",
        "cgroup/cpu.max": "150000 100000\n",
        "cgroup/memory.max": "1073741824\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = read_host(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")
    assert (host.cpu, host.quota, host.memory_bytes) == ("Made Up 9000", 1.5, 1 << 30)
    (tmp_path / "cgroup/memory.max").write_text("max\n")
    assert read_host(proc=tmp_path / "proc", cgroups=tmp_path / "cgroup").memory_bytes == 8 << 30


def test_a_processor_without_a_name_is_told_by_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1024 kB\n")
    assert "implementer 0x41 part 0xd4f" in read_host(proc=tmp_path, cgroups=tmp_path).cpu


@pytest.mark.parametrize(("quota", "usable", "noticed"), [(None, 4.0, False), (1.5, 1.5, True), (8.0, 4.0, False)])
def test_a_quota_below_the_visible_cores_is_noticed(quota: float | None, usable: float, noticed: bool) -> None:
    host = msgspec.structs.replace(HOST, quota=quota)
    assert host.usable_cores == usable
    assert ("1.5 cores' worth" in host.notice) == noticed


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    def line(point: str, kind: str) -> str:
        return f"36 35 98:0 / {point} rw,noatime shared:1 - {kind} source rw\n"

    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        line("/", "ext4")
        + line("/home", "nfs4")
        + line("/home/me/local\\040disk", "xfs")
        + line("/data", "lustre")
        + line("/data", "tmpfs")
        + line("/mnt/s", "fuse.sshfs")
    )
    return tmp_path


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/project/.tuner", "nfs4"),
        ("/home", "nfs4"),
        ("/homework", ""),
        ("/home/me/local disk/x", ""),
        ("/data/x", ""),  # what was mounted last lies on top
        ("/mnt/s/x", "fuse.sshfs"),
        ("/tmp/x", ""),
    ],
)
def test_network_filesystems_are_told_by_the_innermost_mount(mounts: Path, path: str, kind: str) -> None:
    assert network_filesystem(Path(path), proc=mounts) == kind


def test_a_link_onto_a_network_filesystem_is_followed(mounts: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/home/me")
    assert network_filesystem(tmp_path / "link" / "new", proc=mounts) == "nfs4"


def test_without_a_mount_table_everything_is_local(tmp_path: Path) -> None:
    assert network_filesystem(tmp_path, proc=tmp_path) == ""
