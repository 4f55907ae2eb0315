"""The machine as it is, without JAX: devices, host, conditions while timing, the device lock, inherited variables."""

from __future__ import annotations

from tuner.machine.conditions import Conditions, Sampler, calm, disturbed, readings
from tuner.machine.devices import Device, DeviceReader, DeviceState, FakeDevices, open_devices
from tuner.machine.environment import Environment, environment_of, mismatches
from tuner.machine.host import Host, network_filesystem, read_host
from tuner.machine.inherited import inherited, relevant
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
