"""NVIDIA devices through NVML, where the nvidia-ml-py package and a driver are installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tuner.machine.devices import Device, DeviceState, throttle_names, visible

__all__ = ["NvmlDevices", "open_nvml"]


def open_nvml(cuda_visible_devices: str | None = None) -> NvmlDevices | None:
    """A reader of the visible devices, or None without the package, a driver or a device."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    reader = NvmlDevices(nvml, cuda_visible_devices)
    if not reader.found:
        reader.close()
        return None
    return reader


class NvmlDevices:
    """A `DeviceReader` over an initialised ``pynvml`` module; `close` shuts NVML down.

    `found` is False if the driver has no device at all (hidden ones count as found).
    """

    read_s = 0.001

    def __init__(self, nvml: Any, cuda_visible_devices: str | None = None) -> None:
        self._nvml = nvml
        self._open = True
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        all_devices = [self._device(index, handle) for index, handle in enumerate(handles)]
        self.found = bool(all_devices)
        self._devices = visible(all_devices, cuda_visible_devices)
        self._handles = [handles[d.index] for d in self._devices]

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def states(self) -> tuple[DeviceState, ...]:
        return tuple(self._state(d.index, h) for d, h in zip(self._devices, self._handles, strict=True))

    def close(self) -> None:
        if self._open:
            self._open = False
            self._nvml.nvmlShutdown()

    def _ask(self, function: str, *args: Any) -> Any:
        """What the NVML function answers; None if this driver or card has no answer."""
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        if call is None:
            return None
        try:
            return call(*args)
        except self._nvml.NVMLError:
            return None

    def _device(self, index: int, handle: Any) -> Device:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
        return Device(
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)),
            uuid=_text(self._ask("nvmlDeviceGetUUID", handle)),
            driver=_text(self._ask("nvmlSystemGetDriverVersion")),
            capability="" if capability is None else ".".join(map(str, capability)),
            memory_bytes=None if memory is None else int(memory.total),
            max_sm_clock_mhz=self._ask("nvmlDeviceGetMaxClockInfo", handle, self._nvml.NVML_CLOCK_SM),
        )

    def _state(self, index: int, handle: Any) -> DeviceState:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the function's name before driver 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        milliwatts = self._ask("nvmlDeviceGetPowerUsage", handle)
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        processes = [
            *(self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()),
            *(self._ask("nvmlDeviceGetGraphicsRunningProcesses", handle) or ()),
        ]
        return DeviceState(
            index=index,
            utilisation=None if busy is None else busy.gpu / 100,
            memory_free_bytes=None if memory is None else int(memory.free),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", handle, self._nvml.NVML_CLOCK_SM),
            throttle=throttle_names(reasons or 0),
            temperature_c=self._ask("nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU),
            power_w=None if milliwatts is None else milliwatts / 1000,
            pids=tuple(sorted({p.pid for p in processes})),
        )


def _text(value: Any) -> str:
    """Older versions of the package answer bytes."""
    return value.decode() if isinstance(value, bytes) else value or ""
