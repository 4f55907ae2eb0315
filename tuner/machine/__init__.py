"""The machine as it is, without JAX: devices, host, conditions while timing, the device lock, inherited variables.

Names are imported when they are first used: looking up a result must not wait for all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not later: the module `inherited` would stand where the function of that name is expected.
from tuner.machine.inherited import inherited, relevant

if TYPE_CHECKING:
    from tuner.machine.conditions import Conditions, Sampler, calm, disturbed, readings
    from tuner.machine.devices import Device, DeviceReader, DeviceState, FakeDevices, open_devices
    from tuner.machine.environment import Environment, environment_of, mismatches
    from tuner.machine.host import Host, network_filesystem, read_host
    from tuner.machine.interpreter import Interpreter, read_interpreter
    from tuner.machine.lock import DeviceLock, device_names
    from tuner.machine.nccl import NcclRun, read_nccl, requested_and_ran

__all__ = [
    "Conditions",
    "Device",
    "DeviceLock",
    "DeviceReader",
    "DeviceState",
    "Environment",
    "FakeDevices",
    "Host",
    "Interpreter",
    "NcclRun",
    "Sampler",
    "calm",
    "device_names",
    "disturbed",
    "environment_of",
    "inherited",
    "mismatches",
    "network_filesystem",
    "open_devices",
    "read_host",
    "read_interpreter",
    "read_nccl",
    "readings",
    "relevant",
    "requested_and_ran",
]

_HOMES = {
    "Conditions": "conditions",
    "Device": "devices",
    "DeviceLock": "lock",
    "DeviceReader": "devices",
    "DeviceState": "devices",
    "Environment": "environment",
    "FakeDevices": "devices",
    "Host": "host",
    "Interpreter": "interpreter",
    "NcclRun": "nccl",
    "Sampler": "conditions",
    "calm": "conditions",
    "device_names": "lock",
    "disturbed": "conditions",
    "environment_of": "environment",
    "mismatches": "environment",
    "network_filesystem": "host",
    "open_devices": "devices",
    "read_host": "host",
    "read_interpreter": "interpreter",
    "read_nccl": "nccl",
    "readings": "conditions",
    "requested_and_ran": "nccl",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
