from __future__ import annotations

from pathlib import Path

import pytest

from tuner.machine import cgroup


class Fake:
    """A made-up /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path, membership: str) -> None:
        self.where = {"proc": root / "proc", "root": root / "cgroup"}
        self.write("../proc/self/cgroup", membership)

    def write(self, name: str, text: str) -> None:
        path = self.where["root"] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def v2(tmp_path: Path) -> Fake:
    return Fake(tmp_path, "0::/user/job\n")


@pytest.fixture
def v1(tmp_path: Path) -> Fake:
    return Fake(tmp_path, "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/job\n")


def test_the_tightest_quota_on_the_way_up_counts(v2: Fake) -> None:
    v2.write("cpu.max", "max 100000\n")
    v2.write("user/cpu.max", "150000 100000\n")
    v2.write("user/job/cpu.max", "800000 100000\n")
    assert cgroup.cpu_quota(**v2.where) == 1.5


def test_no_limit_is_none(v2: Fake) -> None:
    v2.write("user/job/cpu.max", "max 100000\n")
    v2.write("user/job/memory.max", "max\n")
    assert cgroup.cpu_quota(**v2.where) is None
    assert cgroup.memory_limit(**v2.where) is None


def test_memory_oom_kills_and_throttling_are_read(v2: Fake) -> None:
    v2.write("user/memory.max", "1073741824\n")
    v2.write("user/job/memory.max", "4294967296\n")
    v2.write("user/job/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    v2.write("user/memory.events", "oom_kill 9\n")
    v2.write("user/job/cpu.stat", "usage_usec 5\nthrottled_usec 2500000\n")
    assert cgroup.memory_limit(**v2.where) == 1 << 30
    assert cgroup.oom_kills(**v2.where) == 2
    assert cgroup.throttled_s(**v2.where) == 2.5


def test_a_container_that_shows_the_hosts_path_is_read_at_its_root(tmp_path: Path) -> None:
    fake = Fake(tmp_path, "0::/system.slice/docker-123.scope\n")
    fake.write("cpu.max", "200000 100000\n")
    assert cgroup.cpu_quota(**fake.where) == 2.0


def test_version_1_is_read_by_controller(v1: Fake) -> None:
    v1.write("cpu/job/cpu.cfs_quota_us", "50000\n")
    v1.write("cpu/job/cpu.cfs_period_us", "100000\n")
    v1.write("cpu/cpu.cfs_quota_us", "-1\n")
    v1.write("cpu/cpu.cfs_period_us", "100000\n")
    v1.write("cpu/job/cpu.stat", "nr_periods 1\nthrottled_time 1500000000\n")
    v1.write("memory/job/memory.limit_in_bytes", "2147483648\n")
    v1.write("memory/memory.limit_in_bytes", "9223372036854771712\n")
    v1.write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    assert cgroup.cpu_quota(**v1.where) == 0.5
    assert cgroup.throttled_s(**v1.where) == 1.5
    assert cgroup.memory_limit(**v1.where) == 2 << 30
    assert cgroup.oom_kills(**v1.where) == 4


def test_version_1_without_a_limit_is_none(v1: Fake) -> None:
    v1.write("cpu/job/cpu.cfs_quota_us", "-1\n")
    v1.write("cpu/job/cpu.cfs_period_us", "100000\n")
    v1.write("memory/job/memory.limit_in_bytes", "9223372036854771712\n")
    assert cgroup.cpu_quota(**v1.where) is None
    assert cgroup.memory_limit(**v1.where) is None


def test_without_control_groups_nothing_is_known(tmp_path: Path) -> None:
    where = {"proc": tmp_path, "root": tmp_path}
    readers = (cgroup.cpu_quota, cgroup.memory_limit, cgroup.oom_kills, cgroup.throttled_s)
    assert [read(**where) for read in readers] == [None] * 4
