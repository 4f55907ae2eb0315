"""The devices of a command that starts processes without a run: nobody else tunes on them meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tuner.machine import Device, DeviceLock, device_names, open_devices

__all__ = ["held_devices"]


@contextmanager
def held_devices(platform: str | None, environ: Mapping[str, str], *, command: str) -> Iterator[tuple[Device, ...]]:
    """What `platform` (None: gpu where there is one) has here, none for the CPU; held for `command` while the block
    lasts. Raises DeviceBusy if another tuner has one of them."""
    reader = open_devices(environ)
    try:
        devices = () if platform == "cpu" else reader.devices()
        with DeviceLock(device_names(platform or ("gpu" if devices else "cpu"), devices), command=command):
            yield devices
    finally:
        reader.close()
