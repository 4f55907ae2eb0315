"""Accelerators as the driver shows them, without JAX: what they are, and what they do at this moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

__all__ = ["Device", "DeviceReader", "DeviceState", "FakeDevices", "open_devices", "throttle_names", "visible"]

# Bits of NVML's "clocks event reasons" (formerly throttle reasons), nvml.h.
_THROTTLE_BITS: Mapping[int, str] = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What doesn't change. `index` is the driver's number; `capability` e.g. "9.0"; "" and None: not known."""

    index: int
    name: str
    uuid: str = ""
    driver: str = ""
    capability: str = ""
    memory_bytes: int | None = None
    max_sm_clock_mhz: float | None = None


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """A moment. `utilisation`: share of the last second or so in which a kernel ran, 0 to 1; `throttle`: names of the
    active reasons; `pids`: processes that use the device, as the driver sees them (inside a container they may be
    unknown numbers, or none)."""

    index: int
    utilisation: float | None = None
    memory_free_bytes: int | None = None
    sm_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None
    pids: tuple[int, ...] = ()


class DeviceReader(Protocol):
    """Reads the accelerators that a program started from here would see.

    `devices` and `states` have the same order and length; no call raises for a value that the driver doesn't give.
    One caller at a time; `close` may be called twice.
    """

    @property
    def read_s(self) -> float:
        """About how long `states` takes, in seconds."""
        ...

    def devices(self) -> tuple[Device, ...]: ...

    def states(self) -> tuple[DeviceState, ...]: ...

    def close(self) -> None: ...


class FakeDevices:
    """A reader that shows what it is given. The last of `states` repeats for ever; without any, nothing is known."""

    def __init__(
        self, devices: Iterable[Device] = (), states: Iterable[Sequence[DeviceState]] = (), *, read_s: float = 0.0
    ) -> None:
        self._devices = tuple(devices)
        self._states = [tuple(s) for s in states] or [tuple(DeviceState(index=d.index) for d in self._devices)]
        self._read_s = read_s
        self.reads = 0
        self.closed = False

    @property
    def read_s(self) -> float:
        return self._read_s

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def states(self) -> tuple[DeviceState, ...]:
        states = self._states[min(self.reads, len(self._states) - 1)]
        self.reads += 1
        return states

    def close(self) -> None:
        self.closed = True


def open_devices(env: Mapping[str, str]) -> DeviceReader:
    """The best reader there is: NVML (extra ``gpu``), else the ``nvidia-smi`` program, else one that sees no device.

    `env` is the environment that programs will be started with: CUDA_VISIBLE_DEVICES in it hides devices.
    """
    from tuner.machine.nvidia_smi import open_nvidia_smi
    from tuner.machine.nvml import open_nvml

    hidden = env.get("CUDA_VISIBLE_DEVICES")
    return open_nvml(hidden) or open_nvidia_smi(hidden) or FakeDevices()


def visible(devices: Sequence[Device], cuda_visible_devices: str | None) -> tuple[Device, ...]:
    """The devices that CUDA_VISIBLE_DEVICES leaves, in its order; None leaves all.

    Entries are indices or beginnings of UUIDs; as in CUDA, the first entry that fits no device ends the list. MIG
    entries fit none: the driver tells too little about a slice of a card.
    """
    if cuda_visible_devices is None:
        return tuple(devices)
    found: list[Device] = []
    for entry in (e.strip() for e in cuda_visible_devices.split(",")):
        if entry.isdecimal():
            fitting = [d for d in devices if d.index == int(entry)]
        else:
            fitting = [d for d in devices if entry and d.uuid.startswith(entry)]
        if len(fitting) != 1 or fitting[0] in found:
            break
        found.append(fitting[0])
    return tuple(found)


def throttle_names(bits: int) -> tuple[str, ...]:
    """The names of the reasons in NVML's bit mask; unknown bits as hexadecimal numbers."""
    known = [name for bit, name in _THROTTLE_BITS.items() if bits & bit]
    rest = bits & ~sum(_THROTTLE_BITS)
    return (*known, hex(rest)) if rest else tuple(known)
