"""The machine and software a result holds for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tuner.machine.devices import Device
    from tuner.machine.host import Host
    from tuner.protocol.messages import Loaded

__all__ = ["Environment", "environment_of", "mismatches"]

# What may differ between two machines that a result is carried over to; every other version is identity.
_CONTEXT_VERSIONS = frozenset({"python", "numpy", "zstandard"})


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`identity`: a result doesn't carry over if any of these differ (platform, device kind and count, process count,
    jax, jaxlib, plugin versions, NCCL). `context`: it may, with a notice (driver, host CPU, cores, memory, kernel,
    python, zstandard, clocks)."""

    identity: dict[str, str]
    context: dict[str, str]

    @property
    def key(self) -> str:
        """16 hex digits that name the identity part."""
        return hashlib.sha256(msgspec.json.encode(sorted(self.identity.items()))).hexdigest()[:16]


def environment_of(loaded: Loaded, devices: Sequence[Device], host: Host) -> Environment:
    """What a session found, split into identity and context.

    `devices`: the accelerators as the driver shows them, none on a CPU platform. There the host's processor *is* the
    device, so its model and usable cores are identity; elsewhere they are context.
    """
    identity = {
        "platform": loaded.platform,
        "device_kind": loaded.device_kind,
        "device_count": str(loaded.device_count),
        "process_count": str(loaded.process_count),
        **{name: v for name, v in loaded.versions.items() if name not in _CONTEXT_VERSIONS},
    }
    context = {
        **{name: v for name, v in loaded.versions.items() if name in _CONTEXT_VERSIONS},
        "kernel": host.kernel,
        "memory_gib": f"{host.memory_bytes / 2**30:.0f}",
    }
    processor = {"cpu": host.cpu, "cores": f"{host.usable_cores:g}"}
    if loaded.platform == "cpu":
        return Environment(identity=identity | processor, context=context)
    facts = {
        "driver": {d.driver for d in devices},
        "capability": {d.capability for d in devices},
        "max_clock_mhz": {f"{d.max_sm_clock_mhz:g}" for d in devices if d.max_sm_clock_mhz is not None},
    }
    known = {name: ", ".join(sorted(filter(None, values))) for name, values in facts.items()}
    return Environment(identity=identity, context=context | processor | {n: v for n, v in known.items() if v})


def mismatches(environment: Environment, seen: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The parts of a result's identity that are `seen` to be others here: name → (there, here)."""
    on_cpu = environment.identity.get("platform") == "cpu"
    return {
        name: (value, seen[name])
        for name, value in environment.identity.items()
        if name in seen and seen[name] != value and not (on_cpu and name == "device_kind")
    }
