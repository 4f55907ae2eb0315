"""What a program under this interpreter would find: versions, devices, settings; for `tune doctor`.

Told in parts, each as soon as it is known, as marked lines of JSON on standard output: XLA may end the process at any
moment, and what was found before must not be lost with it. Everything else that is printed goes to standard error.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["main"]

_PACKAGES = re.compile(
    r"(jax|jaxlib|numpy|filelock|zstandard|libtpu|jax-(cuda|rocm)\d+-(plugin|pjrt)|nvidia-nccl-cu\d+)"
)
_VARIABLE = re.compile(rb"\b(?:JAX|XLA|LIBTPU|TPU|CUDA)_[A-Z0-9_]*[A-Z0-9]\b")
_NCCL = re.compile(rb"\bNCCL_[A-Z0-9_]*[A-Z0-9]\b")
_CACHE = "compilation_cache", "persistent_cache"


def main(mark: str) -> None:
    """Find out everything, in the order in which it may fail. Each line that counts begins with `mark`."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(part: str, value: Any) -> None:
        out.write(f"{mark}{json.dumps({part: value})}\n")
        out.flush()

    tell("python", platform.python_version())
    tell("packages", dict(_packages()))
    tell("names", sorted({*_names_in_python(), *_names_in_nccl()}))

    import jax

    tell("jax", jax.__version__)
    values = jax.config.values
    tell("cache", {name: str(value) for name, value in values.items() if any(word in name for word in _CACHE)})
    tell("config_names", sorted(name.upper() for name in values))

    import jaxlib.version

    tell("jaxlib", jaxlib.version.__version__)
    tell("platforms", str(values["jax_platforms"] or ""))
    devices = jax.devices()
    tell("platform", jax.default_backend())
    tell("devices", [device.device_kind for device in devices])

    from tuner.worker import internals

    tell("backend_errors", internals.backend_errors())
    tell("traced", _traced())


def _packages() -> Iterator[tuple[str, str]]:
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if _PACKAGES.fullmatch(name):
            yield name, distribution.version


def _names_in_python() -> Iterator[str]:
    """Variables that jax, jaxlib and the plugins mention: what isn't among them, this version doesn't read."""
    for package in ("jax", "jaxlib", "jax_plugins"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for file in Path(folder).rglob("*.py"):
                yield from (name.decode() for name in _VARIABLE.findall(file.read_bytes()))


def _names_in_nccl() -> Iterator[str]:
    """Variables that the installed NCCL knows; its library holds their names as they are."""
    for entry in sys.path:
        for file in Path(entry or ".").glob("nvidia/nccl/lib/libnccl.so*"):
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
                yield from {name.decode() for name in _NCCL.findall(text)}


def _traced() -> str:
    """ "" if the profiler sees what the device does, else what it says."""
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.ones((64, 64))
    step(x).block_until_ready()
    with tempfile.TemporaryDirectory() as folder:
        try:
            with jax.profiler.trace(folder):
                step(x).block_until_ready()
        except Exception as error:
            return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        for file in Path(folder).rglob("*.xplane.pb"):
            data = jax.profiler.ProfileData.from_file(str(file))
            wanted = "/host:" if jax.default_backend() == "cpu" else "/device:"
            if any(next(iter(line.events), None) for p in data.planes if p.name.startswith(wanted) for line in p.lines):
                return ""
    return "the trace holds nothing of the device"
