"""NVIDIA devices through the nvidia-smi program, for machines with a driver and without nvidia-ml-py."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

from tuner.machine.devices import Device, DeviceState, throttle_names, visible

__all__ = ["SmiDevices", "open_nvidia_smi"]

Ask = Callable[[Sequence[str]], str]

_TIMEOUT_S = 20.0  # a driver without persistence mode takes seconds to wake up
_STATIC = ("index", "uuid", "name", "driver_version", "compute_cap", "memory.total", "clocks.max.sm")
_MOVING = (
    "index",
    "memory.free",
    "clocks.sm",
    "temperature.gpu",
    "power.draw",
    "clocks_throttle_reasons.active",
    "utilization.gpu",
)
_MIB = 1 << 20


def open_nvidia_smi(cuda_visible_devices: str | None = None) -> SmiDevices | None:
    """A reader of the visible devices, or None where the program is missing, fails or shows no device."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None

    def ask(arguments: Sequence[str]) -> str:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        return done.stdout

    try:
        reader = SmiDevices(ask, cuda_visible_devices)
    except (OSError, subprocess.SubprocessError):
        return None
    return reader if reader.found else None


class SmiDevices:
    """A `DeviceReader` over `ask`, which runs nvidia-smi with the given arguments and returns what it prints."""

    read_s = 0.05

    def __init__(self, ask: Ask, cuda_visible_devices: str | None = None) -> None:
        self._ask = ask
        all_devices = [
            Device(
                index=int(row["index"]),
                name=row["name"],
                uuid=row["uuid"],
                driver=row["driver_version"],
                capability=row["compute_cap"],
                memory_bytes=_bytes(row["memory.total"]),
                max_sm_clock_mhz=_number(row["clocks.max.sm"]),
            )
            for row in self._rows("gpu", _STATIC)
        ]
        self.found = bool(all_devices)
        self._devices = visible(all_devices, cuda_visible_devices)

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def states(self) -> tuple[DeviceState, ...]:
        """As in `DeviceReader`; a program that fails this time gives states that know nothing."""
        try:
            rows = {int(row["index"]): row for row in self._rows("gpu", _MOVING)}
            users = [(row["gpu_uuid"], int(row["pid"])) for row in self._rows("compute-apps", ("gpu_uuid", "pid"))]
        except (OSError, subprocess.SubprocessError):
            return tuple(DeviceState(index=d.index) for d in self._devices)
        return tuple(
            _state(d.index, rows.get(d.index, {}), sorted(pid for uuid, pid in users if uuid == d.uuid))
            for d in self._devices
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _rows(self, what: str, columns: Sequence[str]) -> list[dict[str, str]]:
        text = self._ask([f"--query-{what}={','.join(columns)}", "--format=csv,noheader,nounits"])
        rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
        return [dict(zip(columns, cells, strict=True)) for cells in rows if len(cells) == len(columns)]


def _state(index: int, row: dict[str, str], pids: Sequence[int]) -> DeviceState:
    reasons = row.get("clocks_throttle_reasons.active", "")
    percent = _number(row.get("utilization.gpu", ""))
    return DeviceState(
        index=index,
        utilisation=None if percent is None else percent / 100,
        memory_free_bytes=_bytes(row.get("memory.free", "")),
        sm_clock_mhz=_number(row.get("clocks.sm", "")),
        throttle=throttle_names(int(reasons, 16)) if reasons.startswith("0x") else (),
        temperature_c=_number(row.get("temperature.gpu", "")),
        power_w=_number(row.get("power.draw", "")),
        pids=tuple(pids),
    )


def _number(cell: str) -> float | None:
    """A cell's number; None for "[N/A]", "[Not Supported]" and the like."""
    try:
        return float(cell)
    except ValueError:
        return None


def _bytes(cell: str) -> int | None:
    number = _number(cell)
    return None if number is None else int(number * _MIB)
