from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.machine.conditions import Conditions, calm, disturbed, readings
from tuner.machine.devices import Device, DeviceState, FakeDevices

CARD = Device(index=0, name="Card")
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Machine:
    """A made-up /proc with three cores, in which process 100 is the tuner and may run on the first two."""

    def __init__(self, root: Path) -> None:
        self.proc = root
        self.now = 0.0
        (root / "self").mkdir()
        (root / "self/cgroup").write_text("0::/\n")
        self.cpu(0, 0)

    def cpu(self, busy: int, steal: int, others: int = 0) -> None:
        """Ticks since boot: half of `busy` and of `steal` on each of the first two cores, `others` on the third."""
        rows = [(busy // 2, steal // 2), (busy - busy // 2, steal - steal // 2), (others, 0)]
        rows = [(busy + others, steal), *rows]
        names = ["cpu ", "cpu0", "cpu1", "cpu2"]
        lines = [f"{name} {used} 0 0 5000 0 0 0 {taken} 0 0" for name, (used, taken) in zip(names, rows, strict=True)]
        (self.proc / "stat").write_text("\n".join([*lines, "intr 1", ""]))

    def process(self, pid: int, parent: int, ticks: int = 0) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        stat = f"{pid} (a (b) c) S {parent} {' '.join(['0'] * 9)} {ticks} 0 0 0 20 0 1"
        (self.proc / str(pid) / "stat").write_text(stat)

    def conditions(self, devices: FakeDevices | None = None, cpus: frozenset[int] = frozenset({0, 1})) -> Conditions:
        return Conditions(devices, proc=self.proc, cgroups=self.proc, clock=lambda: self.now, pid=100, cpus=cpus)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.process(1, 0)
    machine.process(100, 1)
    machine.process(101, 100)
    return machine


def test_this_machine_is_sampled() -> None:
    conditions = Conditions()
    sample = conditions.sample()
    assert {"time_s", "load_1m", "busy_s", "own_s", "steal_s", "cores"} <= sample.keys()
    assert 0 < sample["own_s"] < sample["busy_s"]


def test_what_our_processes_use_is_not_other(machine: Machine) -> None:
    conditions = machine.conditions()
    before = conditions.sample()
    machine.now = 10.0
    machine.process(101, 100, ticks=900)
    machine.process(50, 101, ticks=100)  # a grandchild with a lower number, started since
    machine.process(60, 1, ticks=500)
    machine.cpu(busy=1500, steal=20)
    found = readings(before, conditions.sample())
    assert found["other_cores"] == pytest.approx(500 * TICK / 10)
    assert found["steal"] == pytest.approx(20 * TICK / 10 / 2)
    assert found["cores"] == 2


def test_what_others_do_on_their_own_cores_is_no_disturbance(machine: Machine) -> None:
    """A scheduler binds each job of a host to cores of its own."""
    conditions = machine.conditions()
    before = conditions.sample()
    machine.now = 10.0
    machine.cpu(busy=0, steal=0, others=1000)
    found = readings(before, conditions.sample())
    assert (found["other_cores"], found["cores"]) == (0.0, 2.0)


def test_cores_that_a_container_numbers_anew_are_all_ours(machine: Machine) -> None:
    conditions = machine.conditions(cpus=frozenset({17, 18, 19}))
    before = conditions.sample()
    machine.now = 10.0
    machine.cpu(busy=500, steal=0, others=500)
    found = readings(before, conditions.sample())
    assert found["other_cores"] == pytest.approx(1000 * TICK / 10)
    assert found["cores"] == 3.0


def test_a_child_stays_ours_when_its_parent_ends(machine: Machine) -> None:
    conditions = machine.conditions()
    machine.process(102, 101, ticks=50)
    first = conditions.sample()["own_s"]
    (machine.proc / "101" / "stat").unlink()
    (machine.proc / "101").rmdir()
    machine.process(102, 1, ticks=70)
    assert conditions.sample()["own_s"] - first == pytest.approx(20 * TICK)


@pytest.mark.slow
def test_a_real_busy_child_is_ours() -> None:
    conditions = Conditions()
    before = conditions.sample()
    code = "import time\nwhile time.process_time() < 0.15: pass\nprint(flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        after = conditions.sample()
        child.communicate(b"\n")
    assert after["own_s"] - before["own_s"] >= 0.1  # of 0.15, in ticks of 10 ms


def test_samples_too_close_together_give_no_rates(machine: Machine) -> None:
    conditions = machine.conditions()
    before = conditions.sample()
    machine.now = 0.05
    assert "other_cores" not in readings(before, conditions.sample())


def test_without_proc_the_rest_is_still_there(tmp_path: Path) -> None:
    sample = Conditions(proc=tmp_path / "none", cgroups=tmp_path).sample()
    assert sample.keys() == {"time_s", "load_1m"}
    assert disturbed(sample, sample | {"time_s": sample["time_s"] + 1}, {}) == ""


def test_quota_and_oom_counters_are_sampled(machine: Machine) -> None:
    (machine.proc / "cpu.stat").write_text("throttled_usec 1000000\n")
    (machine.proc / "memory.events").write_text("oom_kill 3\n")
    conditions = machine.conditions()
    before = conditions.sample()
    assert before["oom_kills"] == 3.0
    machine.now = 2.0
    (machine.proc / "cpu.stat").write_text("throttled_usec 3000000\n")
    after = conditions.sample()
    assert readings(before, after)["throttled"] == pytest.approx(0.5)
    assert "CPU quota took 50%" in disturbed(before, after, {})


def test_devices_are_sampled_under_their_numbers(machine: Machine) -> None:
    state = DeviceState(
        index=3,
        memory_free_bytes=100,
        sm_clock_mhz=1755.0,
        throttle=("sw_thermal",),
        temperature_c=50.0,
        power_w=300.0,
        pids=(101, 1, 4_000_000),
    )
    sample = machine.conditions(FakeDevices([CARD], [[state]])).sample()
    assert {n: v for n, v in sample.items() if n.startswith("gpu")} == {
        "gpu3_clock_mhz": 1755.0,
        "gpu3_temperature_c": 50.0,
        "gpu3_power_w": 300.0,
        "gpu3_free_bytes": 100.0,
        # 101 is ours, 1 isn't; a number that doesn't exist here may be our own process under the host's number
        "gpu3_foreign": 1.0,
        "gpu3_throttle_sw_thermal": 1.0,
    }


def test_a_slow_reader_is_asked_now_and_then_only(machine: Machine) -> None:
    slow, quick = FakeDevices([CARD], read_s=0.5), FakeDevices([CARD], read_s=0.001)
    for reader, reads in ((slow, 2), (quick, 4)):
        conditions = machine.conditions(reader)
        for machine.now in (0.0, 1.0, 29.0, 31.0):
            conditions.sample()
        assert reader.reads == reads


CAPPED = {"gpu0_throttle_sw_power_cap": 1.0}
CALM = {"time_s": 0.0, "busy_s": 0.0, "own_s": 0.0, "steal_s": 0.0, "cores": 16.0}


def later(**changes: float) -> dict[str, float]:
    return CALM | {"time_s": 10.0} | changes


def test_one_tick_of_stolen_time_in_a_short_round_is_nothing() -> None:
    before = CALM | {"cores": 2.0}
    short = before | {"time_s": 0.1, "steal_s": 0.01}
    assert disturbed(before, short, {}) == ""
    assert "hypervisor took 20%" in disturbed(before, short | {"steal_s": 0.04}, {})


def test_calm_is_what_most_stretches_had() -> None:
    usual = {"gpu0_clock_mhz": 1400.0, "other_cores": 0.2}
    stretches = [usual, usual | {"gpu0_throttle_sw_thermal": 1.0, "gpu0_foreign": 1.0}, usual | {"other_cores": 3.0}]
    assert calm(stretches) == usual
    assert calm([{"gpu0_throttle_sw_thermal": 1.0}, {}]) == {}  # half of them is not most
    assert calm([{"other_cores": 0.1}, {}, {}]) == {"other_cores": 0.1}  # the others were too short to tell
    assert calm([]) == {}


@pytest.mark.parametrize(
    ("after", "baseline", "reason"),
    [
        ({"busy_s": 60.0, "own_s": 50.0}, {}, ""),  # one of sixteen cores: that many may be lost
        ({"busy_s": 80.0, "own_s": 50.0}, {}, "other processes kept 3.0 of 16 cores busy"),
        ({"busy_s": 80.0, "own_s": 50.0}, {"other_cores": 2.5}, ""),
        ({"busy_s": 10.0, "cores": 2.0}, {}, "other processes kept 1.0 of 2 cores busy"),
        ({"steal_s": 16.0}, {}, "the hypervisor took 10% of the CPU time"),
        ({"steal_s": 16.0}, {"steal": 0.08}, ""),
        ({"gpu0_clock_mhz": 1150.0}, {"gpu0_clock_mhz": 1400.0}, "gpu0 ran at 1150 MHz instead of 1400"),
        ({"gpu0_clock_mhz": 1370.0}, {"gpu0_clock_mhz": 1400.0}, ""),
        ({"gpu0_clock_mhz": 1150.0}, {}, ""),
        ({"gpu0_throttle_sw_thermal": 1.0}, {}, "gpu0 throttled: sw_thermal"),
        ({"gpu0_throttle_sw_thermal": 1.0}, {"gpu0_throttle_sw_thermal": 1.0}, ""),
        ({"gpu0_throttle_sw_power_cap": 1.0}, {}, ""),
        ({"gpu0_clock_mhz": 1150.0} | CAPPED, {"gpu0_clock_mhz": 1400.0} | CAPPED, ""),
        ({"gpu0_clock_mhz": 1150.0}, {"gpu0_clock_mhz": 1400.0} | CAPPED, "gpu0 ran at 1150 MHz instead of 1400"),
        ({"gpu0_clock_mhz": 1150.0} | CAPPED, {"gpu0_clock_mhz": 1400.0}, "gpu0 ran at 1150 MHz instead of 1400"),
        (
            {"gpu1_clock_mhz": 1150.0} | CAPPED,
            {"gpu1_clock_mhz": 1400.0} | CAPPED,
            "gpu1 ran at 1150 MHz instead of 1400",
        ),
        ({"gpu1_foreign": 2.0}, {"gpu1_foreign": 1.0}, "1 other process(es) used gpu1"),
        ({"gpu1_foreign": 1.0}, {"gpu1_foreign": 1.0}, ""),
    ],
)
def test_disturbances_are_told_from_what_is_always_so(
    after: dict[str, float], baseline: dict[str, float], reason: str
) -> None:
    assert disturbed(CALM, later(**after), baseline) == reason


def test_a_clock_that_falls_is_noticed_and_one_that_is_always_low_is_not(machine: Machine) -> None:
    """As a card does that gets too warm under back-to-back load, and one that never reaches its maximum."""
    falling = FakeDevices([CARD], [[DeviceState(index=0, sm_clock_mhz=mhz)] for mhz in (1400.0, 1400.0, 1150.0)])
    conditions = machine.conditions(falling)
    first, second, third = (conditions.sample() for _ in range(3))
    calm = readings(first, second)
    assert disturbed(first, second, calm) == ""
    assert disturbed(second, third, calm) == "gpu0 ran at 1150 MHz instead of 1400"
    assert disturbed(second, third, readings(second, third)) == ""
