"""The process layout: one process for all devices of a host, or one for each."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner.knobs.config import Config

__all__ = ["LAYOUT", "PER_DEVICE", "forced_cpu_devices", "processes"]

LAYOUT = "layout"
"""The knob's name. No variable carries it: who starts the program starts it that often."""

PER_DEVICE = "process-per-device"

_FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def processes(config: Config, devices: int) -> int:
    """Over how many processes `config` divides the `devices` of a host."""
    return max(1, devices) if config.get(LAYOUT) == PER_DEVICE else 1


def forced_cpu_devices(inherited: Mapping[str, str]) -> int:
    """How many devices XLA is told to make of the CPU by what is inherited; 1 if it isn't told."""
    if found := _FORCED.findall(inherited.get("XLA_FLAGS", "")):
        return int(found[-1])
    count = inherited.get("JAX_NUM_CPU_DEVICES", "")
    return int(count) if count.isdecimal() and int(count) > 0 else 1
