"""Checks of the machine: who uses the devices, clocks, CPU limits, clock source, disks."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.handoff.doctor.facts import Facts
from tuner.handoff.doctor.finding import Finding, fail, ok, warn

__all__ = ["clocks", "disks", "host", "use"]

_BUSY = 0.05
_FREE_SHARE = 0.9
_SLOW_CLOCK = 0.5
# Reasons that mean trouble whatever runs; a power cap is everyday life at full load.
_HARMFUL = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
# Reading the time takes a system call or worse under these.
_SLOW_SOURCES = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})
_LEAST_BYTES, _SCARCE_BYTES = 32 << 20, 2 << 30
_LEAST_SHM = 1 << 30  # NCCL keeps its buffers there; docker gives 64 MiB


def use(facts: Facts) -> Iterator[Finding]:
    """What else runs on the devices, as it was before anything of ours did."""
    for holder in facts.holders:
        yield warn("in use", f"another tuner holds a device: {holder}", f"wait until it ends, or: kill {holder.pid}")
    for device, state in zip(facts.devices, facts.states, strict=True):
        name = f"{device.name} {device.index}"
        users = [f"{pid} ({command})" for pid in state.pids if (command := facts.processes.get(pid))]
        unseen = len(state.pids) - len(users)
        who = ", ".join([*users, *([f"{unseen} that can't be seen from here"] if unseen else [])])
        busy = state.utilisation is not None and state.utilisation > _BUSY
        share = None if state.utilisation is None else f"{state.utilisation:.0%} busy"
        free = None
        if state.memory_free_bytes is not None and device.memory_bytes:
            free = f"{state.memory_free_bytes / 2**30:.1f} of {device.memory_bytes / 2**30:.1f} GiB free"
        text = ", ".join(filter(None, (share, free, f"processes {who}" if who else "")))
        full = free is not None and (state.memory_free_bytes or 0) < _FREE_SHARE * (device.memory_bytes or 0)
        if busy or full or state.pids:
            yield warn(
                "in use", f"{name}: {text}", "end the other programs, or choose another card: CUDA_VISIBLE_DEVICES"
            )
        else:
            yield ok("in use", f"{name}: {text or 'nothing is known'}")


def clocks(facts: Facts) -> Iterator[Finding]:
    """Clocks and what holds them down; idle cards rest at low clocks."""
    for device, state in zip(facts.devices, facts.states, strict=True):
        name = f"{device.name} {device.index}"
        harmful = [reason for reason in state.throttle if reason in _HARMFUL]
        reading = ", ".join(
            [
                *([f"{state.sm_clock_mhz:.0f} MHz"] if state.sm_clock_mhz is not None else []),
                *([f"of {device.max_sm_clock_mhz:.0f}"] if device.max_sm_clock_mhz is not None else []),
                *([f"{state.temperature_c:.0f} °C"] if state.temperature_c is not None else []),
                *([f"{state.power_w:.0f} W"] if state.power_w is not None else []),
            ]
        ).replace("MHz, of", "MHz of")
        held = "application_clocks" in state.throttle
        slow = (
            bool(state.sm_clock_mhz and device.max_sm_clock_mhz)
            and (state.sm_clock_mhz or 0) < _SLOW_CLOCK * (device.max_sm_clock_mhz or 0)
            and (state.utilisation or 0) > _SLOW_CLOCK
        )
        if harmful:
            yield warn(
                "clocks", f"{name} is throttled ({', '.join(harmful)}): {reading}", "look at cooling and power supply"
            )
        elif slow:
            yield warn(
                "clocks", f"{name} is busy and slow: {reading}", "nvidia-smi -q -d PERFORMANCE says what holds it down"
            )
        elif held:
            yield ok("clocks", f"{name}: {reading}, held by application clocks")
        else:
            yield ok("clocks", f"{name}: {reading or 'nothing is known'}")
    if facts.governor in ("powersave", "conservative", "ondemand"):
        yield warn(
            "clocks",
            f"the CPU's frequency governor is {facts.governor}",
            "sudo cpupower frequency-set -g performance, while tuning",
        )


def host(facts: Facts) -> Iterator[Finding]:
    """Cores that are really there, who else uses them, and the clock."""
    machine = facts.host
    cores = f"{machine.cores} cores of {machine.cpu}"
    if machine.notice:
        yield warn("cpu", machine.notice, f"taskset -c 0-{max(int(machine.usable_cores) - 1, 0)} tune …")
    elif facts.throttled_s > 1:
        yield warn(
            "cpu", f"{cores}; its quota has stopped this group for {facts.throttled_s:.0f} s", "raise the CPU quota"
        )
    else:
        yield ok("cpu", f"{cores}, no quota" if machine.quota is None else f"{cores}, quota {machine.quota:g}")
    if machine.load > 0.5 * machine.usable_cores:
        yield warn("load", f"{machine.load:.1f} in the last minute", "wait until other programs have ended: top")
    else:
        yield ok("load", f"{machine.load:.1f} in the last minute")
    if facts.clocksource in _SLOW_SOURCES:
        yield warn(
            "clock",
            f"the kernel's clock source is {facts.clocksource}: reading the time is slow",
            "boot with clocksource=tsc, if the machine's tsc is stable",
        )
    elif facts.clocksource:
        yield ok("clock", facts.clocksource)


def disks(facts: Facts) -> Iterator[Finding]:
    """Folders that are written to."""
    for folder in facts.folders:
        size = f"{folder.free_bytes / 2**30:.1f} GiB free"
        where = f"{folder.purpose} {folder.path}"
        store = folder.purpose == "store"
        fix = "give another folder: --store DIR" if store else "set TMPDIR to another folder"
        if folder.purpose == "cache":
            fix = "set JAX_COMPILATION_CACHE_DIR to another folder"
        if folder.trouble:
            make = warn if folder.purpose == "cache" else fail
            yield make("disk", f"{where} can't be written: {folder.trouble}", fix)
        elif folder.free_bytes < _LEAST_BYTES:
            yield fail("disk", f"{where}: {size}, too little for a run", fix)
        elif folder.free_bytes < _SCARCE_BYTES:
            yield warn("disk", f"{where}: {size}; compiled steps and traces take gigabytes", fix)
        elif folder.network and store:
            yield warn(
                "disk",
                f"{where} lies on a network filesystem ({folder.network}), where SQLite's locks don't hold",
                "use a local folder, or --store postgresql://…",
            )
        else:
            yield ok("disk", f"{where}: {size}")
    if len(facts.devices) > 1 and facts.shm_bytes is not None and facts.shm_bytes < _LEAST_SHM:
        yield warn("disk", f"/dev/shm has {facts.shm_bytes >> 20} MiB, too little for NCCL", "docker run --shm-size=8g")
