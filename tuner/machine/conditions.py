"""What went on around a measurement: other processes, stolen time, clocks, throttling; and whether that spoils it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

from tuner.machine import cgroup
from tuner.machine.devices import DeviceReader, DeviceState, FakeDevices
from tuner.machine.host import usable_cpus

__all__ = ["Conditions", "Sampler", "calm", "disturbed", "readings"]

_CORE = re.compile(r"cpu\d+")
# The kernel counts CPU time in ticks of 10 ms: over less than this a share of it means nothing.
_SHORTEST_S = 0.1
# The readings that are left out then.
_SHARES = ("other_cores", "steal", "throttled")
# A reader that takes longer than this (the nvidia-smi program) is asked every `_SLOW_EVERY_S` only.
_QUICK_S = 0.01
_SLOW_EVERY_S = 30.0
# Beyond the calm reading, other processes may take this share of the machine, and at least this many cores.
_OTHER_SHARE, _OTHER_CORES = 0.1, 0.5
# Share of time that the hypervisor or the CPU quota may take beyond the calm reading.
_TAKEN_SHARE = 0.05
# … and at least so many seconds of it: steal is counted in ticks, and one of them is 5 % of a short round.
_TAKEN_S = 0.03
# A clock this far below the calm one changes step times by more than most settings do.
_CLOCK_DROP = 0.05
# Everyday life at full load. A card that the step itself keeps at its power limit has no steady clock: what is timed
# while that is low is no further off than the rest (six workloads on an H200).
_POWER_CAP = "throttle_sw_power_cap"
# Reasons that mean trouble.
_HARMFUL = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")


class Sampler(Protocol):
    """Whatever samples the machine; `Conditions` is the one that looks at this machine."""

    def sample(self) -> dict[str, float]:
        """Readings of this moment, by the names that `Conditions.sample` explains; what can't be read is left out."""
        ...


class Conditions:
    """Samples the host and its accelerators in a few milliseconds.

    Everything that descends from this process counts as our own; the rest is "other". Of the host's cores only `cpus`
    count, by default those that this process may run on: what others do on theirs is no disturbance to a job that a
    scheduler bound to its own. One caller at a time.
    """

    def __init__(
        self,
        devices: DeviceReader | None = None,
        *,
        proc: Path = cgroup.PROC,
        cgroups: Path = cgroup.CGROUPS,
        clock: Callable[[], float] = time.monotonic,
        pid: int | None = None,
        cpus: frozenset[int] | None = None,
    ) -> None:
        self._devices = FakeDevices() if devices is None else devices
        self._proc = proc
        self._cgroups = cgroups
        self._clock = clock
        self._cpus = usable_cpus() if cpus is None else cpus
        self._family = _Family(proc, os.getpid() if pid is None else pid)
        self._states: tuple[DeviceState, ...] = ()
        self._states_at = float("-inf")

    def sample(self) -> dict[str, float]:
        """Readings of this moment; what can't be read here is left out.

        Times are in seconds: `time_s` (monotonic), `busy_s`, `steal_s` (of these cores, since boot), `own_s` (our
        processes), `throttled_s` (by the CPU quota). `cores`, `load_1m`, `oom_kills`; for each accelerator *i*
        `gpu<i>_clock_mhz`, `_temperature_c`, `_power_w`, `_free_bytes`, `_foreign` (processes that aren't ours) and
        `_throttle_<reason>` = 1.
        """
        sample = {"time_s": self._clock(), "load_1m": os.getloadavg()[0]}
        sample.update(self._cpu())
        for name, value in (
            ("throttled_s", cgroup.throttled_s(proc=self._proc, root=self._cgroups)),
            ("oom_kills", cgroup.oom_kills(proc=self._proc, root=self._cgroups)),
        ):
            if value is not None:
                sample[name] = float(value)
        for state in self._device_states(sample["time_s"]):
            sample.update(self._device(state))
        return sample

    def _cpu(self) -> dict[str, float]:
        try:
            lines = (self._proc / "stat").read_text().splitlines()
            own = self._family.cpu_s()
        except OSError:
            return {}
        cores = {name: [int(n) for n in ticks] for name, *ticks in map(str.split, lines) if _CORE.fullmatch(name)}
        # Some containers number their cores from 0 on and show no others; then all that are shown are ours.
        ours = [cores[name] for cpu in self._cpus if (name := f"cpu{cpu}") in cores]
        ours = ours if len(ours) == len(self._cpus) else list(cores.values())
        user, nice, system, _idle, _wait, irq, softirq, steal = (sum(core[i] for core in ours) for i in range(8))
        return {
            "busy_s": (user + nice + system + irq + softirq) / _TICKS_PER_S,
            "steal_s": steal / _TICKS_PER_S,
            "own_s": own,
            "cores": float(len(ours)),
        }

    def _device_states(self, now: float) -> tuple[DeviceState, ...]:
        if self._devices.read_s <= _QUICK_S or now - self._states_at >= _SLOW_EVERY_S:
            self._states = self._devices.states()
            self._states_at = now
        return self._states

    def _device(self, state: DeviceState) -> dict[str, float]:
        prefix = f"gpu{state.index}"
        values = {
            "clock_mhz": state.sm_clock_mhz,
            "temperature_c": state.temperature_c,
            "power_w": state.power_w,
            "free_bytes": state.memory_free_bytes,
            "foreign": self._family.strangers(state.pids),
            **{f"throttle_{reason}": 1.0 for reason in state.throttle},
        }
        return {f"{prefix}_{name}": float(value) for name, value in values.items() if value is not None}


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Family:
    """The processes that descend from `root`, remembered so that each new one is looked up only once."""

    def __init__(self, proc: Path, root: int) -> None:
        self._proc = proc
        self._ours = {root: True}
        self._root = root

    def cpu_s(self) -> float:
        """CPU seconds that the family has used so far, ended and awaited children included."""
        here = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}
        self._ours = {pid: ours for pid, ours in self._ours.items() if pid in here or pid == self._root}
        for pid in here - self._ours.keys():
            self._belongs(pid)
        return sum(self._used(pid) for pid, ours in self._ours.items() if ours)

    def strangers(self, pids: tuple[int, ...]) -> int:
        """How many of `pids` live here and aren't of the family.

        Numbers that don't exist here are no evidence: inside a container the driver names our own processes by the
        host's numbers.
        """
        return sum(self._stat(pid) is not None and not self._belongs(pid) for pid in pids)

    def _belongs(self, pid: int) -> bool:
        line: list[int] = []
        while pid > 0 and pid not in self._ours:
            line.append(pid)
            stat = self._stat(pid)
            pid = int(stat[1]) if stat else 0
        ours = self._ours.get(pid, False)
        self._ours.update(dict.fromkeys(line, ours))
        return ours

    def _used(self, pid: int) -> float:
        stat = self._stat(pid)
        return sum(int(t) for t in stat[11:15]) / _TICKS_PER_S if stat else 0.0

    def _stat(self, pid: int) -> list[str] | None:
        """Fields of /proc/<pid>/stat from the third (state) on; the second may hold spaces and parentheses."""
        try:
            return (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None


def readings(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What two samples say about the time between them: rates, and the accelerators' state at its end.

    `other_cores`: cores kept busy by other processes. `steal`, `throttled`: share of the time that the hypervisor, or
    the CPU quota, took (of all cores). Left out where the samples lie too close together.
    """
    out = {name: value for name, value in after.items() if name.startswith("gpu") or name in ("load_1m", "cores")}
    seconds = after["time_s"] - before["time_s"]
    if seconds < _SHORTEST_S:
        return out

    def rate(name: str) -> float | None:
        return (after[name] - before[name]) / seconds if name in before and name in after else None

    busy, own, steal, throttled = (rate(n) for n in ("busy_s", "own_s", "steal_s", "throttled_s"))
    cores = after.get("cores", 1.0)
    if busy is not None and own is not None:
        out["other_cores"] = max(0.0, busy - own)
    if steal is not None:
        out["steal"] = steal / cores
    if throttled is not None:
        out["throttled"] = throttled / cores
    return out


def calm(stretches: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The `readings` of a typical one of several stretches: of each reading that most of them have, the median.

    A throttle reason that was met in the lesser part of them is not typical, and neither is a stranger. Shares of CPU
    time are those of the stretches that were long enough to tell them, however few.
    """
    names = dict.fromkeys(name for stretch in stretches for name in stretch)
    kept = {name: [s[name] for s in stretches if name in s] for name in names}
    return {n: median(values) for n, values in kept.items() if n in _SHARES or 2 * len(values) > len(stretches)}


def disturbed(before: Mapping[str, float], after: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Why what was measured between two samples shouldn't be trusted; "" if nothing speaks against it.

    `baseline`: the `readings` of a calm stretch under the same load, {} for none: then only absolute limits hold. A
    machine that is always so (a clock far from its maximum) is calm by that standard; at its power limit, whatever its
    clock then is.
    """
    now = readings(before, after)

    def excess(name: str) -> float:
        return now.get(name, 0.0) - baseline.get(name, 0.0)

    cores = now.get("cores", 1.0)
    if excess("other_cores") > max(_OTHER_CORES, _OTHER_SHARE * cores):
        return f"other processes kept {now['other_cores']:.1f} of {cores:.0f} cores busy"
    stolen_s = after.get("steal_s", 0.0) - before.get("steal_s", 0.0)
    if excess("steal") > _TAKEN_SHARE and stolen_s > _TAKEN_S:
        return f"the hypervisor took {now['steal']:.0%} of the CPU time"
    if excess("throttled") > _TAKEN_SHARE:
        return f"the control group's CPU quota took {now['throttled']:.0%} of the time"
    for name in sorted(n for n in now if n.startswith("gpu")):
        gpu, _, reading = name.partition("_")
        if reading == "foreign" and excess(name) > 0:
            return f"{excess(name):.0f} other process(es) used {gpu}"
        if reading.removeprefix("throttle_") in _HARMFUL and name not in baseline:
            return f"{gpu} throttled: {reading.removeprefix('throttle_')}"
        cap = f"{gpu}_{_POWER_CAP}"
        usual = cap in baseline and cap in now
        if reading == "clock_mhz" and not usual and now[name] < (1 - _CLOCK_DROP) * baseline.get(name, 0.0):
            return f"{gpu} ran at {now[name]:.0f} MHz instead of {baseline[name]:.0f}"
    return ""
