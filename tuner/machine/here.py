"""What kind of place this is, as far as that shows without starting jax."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tuner.machine.host import read_host

__all__ = ["visible"]

_NVIDIA = Path("/proc/driver/nvidia/gpus")
# What decides about the compiler and its flags; a distribution's folder is called <name>-<version>.dist-info.
_PACKAGE = re.compile(
    r"(jax|jaxlib|libtpu|jax[-_](?:cuda|rocm)\d*[-_](?:plugin|pjrt)|nvidia[-_]nccl[-_]cu\d+)-([^-]+)\.dist-info"
)


def visible(command: str = "", *, path: str | None = None, nvidia: Path = _NVIDIA) -> dict[str, str]:
    """What can be read of this machine in milliseconds, under the names that an `Environment` uses.

    The processor and its usable cores, kernel, memory; the kind of NVIDIA device, where there is one kind; and, if
    `command` (looked for in `path`) is a program of a Python installation, the versions of jax and its plugins there.
    """
    host = read_host()
    seen = {
        "cpu": host.cpu,
        "cores": f"{host.usable_cores:g}",
        "kernel": host.kernel,
        "memory_gib": f"{host.memory_bytes / 2**30:.0f}",
        **_packages(command, path),
    }
    kinds = {_model(file) for file in nvidia.glob("*/information")} - {""}
    return seen | ({"device_kind": kinds.pop()} if len(kinds) == 1 else {})


def _packages(command: str, path: str | None) -> dict[str, str]:
    program = shutil.which(command, path=path) if command else None
    if program is None:
        return {}
    prefix = Path(program).absolute().parent.parent  # links are kept: a virtual environment's python is one
    found: dict[str, set[str]] = {}
    for folder in prefix.glob("lib*/python3*/site-packages"):
        for entry in folder.glob("*.dist-info"):
            if match := _PACKAGE.fullmatch(entry.name):
                found.setdefault(match[1].replace("_", "-"), set()).add(match[2])
    return {name: versions.pop() for name, versions in found.items() if len(versions) == 1}


def _model(file: Path) -> str:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "")
