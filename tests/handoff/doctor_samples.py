"""Facts of machines without faults, and what the doctor finds in others."""

from __future__ import annotations

import msgspec

from tuner.handoff.doctor import Facts, Finding, Level, diagnose
from tuner.handoff.doctor.checkup import Checkup
from tuner.handoff.doctor.facts import FolderFact
from tuner.machine import Device, DeviceState, Host

HOST = Host(cpu="Made Up 9000", cores=8, memory_bytes=1 << 34, kernel="Linux 6", load=0.1)
CPU = Checkup(
    python="3.12.1",
    packages={"jax": "0.12.0", "jaxlib": "0.12.0"},
    names=("XLA_PYTHON_CLIENT_MEM_FRACTION", "JAX_COMPILATION_CACHE_DIR"),
    config_names=("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_X64", "JAX_PLATFORMS"),
    jax="0.12.0",
    jaxlib="0.12.0",
    cache={"jax_enable_compilation_cache": "True", "jax_compilation_cache_dir": "None"},
    platform="cpu",
    devices=("cpu",),
    traced="",
)
PLUGINS = {"jax-cuda13-plugin": "0.12.0", "jax-cuda13-pjrt": "0.12.0"}
GPU = msgspec.structs.replace(CPU, packages={**CPU.packages, **PLUGINS}, platform="gpu", devices=("NVIDIA H100",) * 2)
CARD = Device(index=0, name="NVIDIA H100", memory_bytes=80 << 30, max_sm_clock_mhz=1980)
IDLE = DeviceState(
    index=0,
    utilisation=0.0,
    memory_free_bytes=79 << 30,
    sm_clock_mhz=345,
    throttle=("idle",),
    temperature_c=30,
    power_w=70,
)
DISK = FolderFact(purpose="store", path=".tuner", free_bytes=1 << 40)
FINE = Facts(env={}, python="/usr/bin/python", checkup=CPU, host=HOST, folders=(DISK,), clocksource="tsc")
ON_GPU = msgspec.structs.replace(FINE, checkup=GPU, devices=(CARD,), states=(IDLE,))


def with_(facts: Facts, **changes: object) -> Facts:
    return msgspec.structs.replace(facts, **changes)  # type: ignore[arg-type]


def report(facts: Facts, **changes: object) -> Facts:
    return with_(facts, checkup=msgspec.structs.replace(facts.checkup, **changes))  # type: ignore[arg-type]


def of(facts: Facts, check: str, level: Level) -> Finding:
    """The one finding of that check and level."""
    found = [f for f in diagnose(facts) if (f.check, f.level) == (check, level)]
    assert len(found) == 1, found
    return found[0]


def levels(facts: Facts) -> set[str]:
    return {finding.level for finding in diagnose(facts)}
