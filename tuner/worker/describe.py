"""The reply to Load: what the session found."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
import re
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jaxlib.version
import numpy as np

from tuner.protocol.messages import Loaded, Recompiled
from tuner.worker.internals import BackendStart
from tuner.worker.open import Opened, OpenedStep
from tuner.worker.workload import ONLY

__all__ = ["loaded", "versions"]

# Packages that decide what the compiler and the collectives are: PJRT plugins and the libraries they load.
_PLUGINS = re.compile(r"(jax-(cuda|rocm)\d*-(plugin|pjrt)|libtpu|nvidia-(nccl|cudnn|cublas)(-cu\d+)?)")


def loaded(
    opened: Opened,
    *,
    source: Literal["build", "script"],
    backend: BackendStart,
    environ_changed: Mapping[str, str | None],
    knobs_declared: Mapping[str, tuple[str, ...]],
    import_s: float,
    build_s: float,
    recompiled: tuple[Recompiled, ...],
) -> Loaded:
    """Everything about the session that the parent can't see. `build_s` includes starting the devices."""
    devices = jax.devices()
    steps = opened.steps.items()
    leaves = [leaf for _, step in steps for leaf in step.leaves]
    return Loaded(
        source=source,
        step_name=" + ".join(step.step.name for _, step in steps),
        platform=jax.default_backend(),
        device_kind=devices[0].device_kind,
        device_count=len(devices),
        process_count=jax.process_count(),
        versions=versions(),
        devices=tuple(device.device_kind for device in devices),
        xla_flags=backend.xla_flags or "",
        xla_flags_after=os.environ.get("XLA_FLAGS", ""),
        environ_changed=dict(environ_changed),
        knobs_declared=dict(knobs_declared),
        carried=tuple(
            f"{_of(name)}{one.step.inputs.paths[i]} <- {one.out_paths[j]}"
            for name, one in steps
            for i, j in one.carry.pairs
        ),
        inputs=tuple(
            f"{_of(name)}{path}: {_text(leaf)}"
            for name, one in steps
            for path, leaf in zip(one.step.inputs.paths, one.leaves, strict=True)
        ),
        input_bytes=sum(_device_bytes(leaf) for leaf in leaves),
        device_memory_bytes=_memory(jax.local_devices()[0]),
        has_check=opened.workload.check is not None,
        work=opened.workload.work,
        import_s=import_s,
        init_s=backend.seconds,
        build_s=max(0.0, build_s - backend.seconds),
        notices=(*opened.notices, *(f"{_of(name)}{text}" for name, one in steps for text in _notices(one))),
        others=tuple(opened.session.others),
        recompiled=recompiled,
        weights={part.name: part.weight for part in opened.session.parts if part.name != ONLY},
    )


def versions() -> dict[str, str]:
    """Versions of python, jax, jaxlib, numpy and of every installed PJRT plugin package and its libraries; whether
    zstandard is there ("yes"/"no": jax's cache keys depend on it)."""
    found = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.version.__version__,
        "numpy": np.__version__,
        "zstandard": "yes" if importlib.util.find_spec("zstandard") else "no",
    }
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if _PLUGINS.fullmatch(name):
            found[name] = distribution.version
    return found


def _of(name: str) -> str:
    """Before what is said of one step of several."""
    return "" if name == ONLY else f"{name}: "


def _notices(one: OpenedStep) -> tuple[str, ...]:
    step = one.step
    carried = {i for i, _ in one.carry.pairs}
    notices = []
    if not carried:
        notices.append(
            "no output looks like an input: every step gets the same inputs; if it should go on from what it returns, "
            "return that first, in the order of the arguments that it replaces"
        )
    if lost := sorted(step.donated - carried):
        names = ", ".join(step.inputs.paths[i] for i in lost)
        notices.append(
            f"donated, but given back by no output: {names}; a copy is made before every step and timed with it"
        )
    if hosted := [i for i, leaf in enumerate(one.leaves) if isinstance(leaf, np.ndarray) and i not in carried]:
        names = ", ".join(step.inputs.paths[i] for i in hosted)
        notices.append(f"NumPy inputs are transferred to the device at every step: {names}")
    return tuple(notices)


def _text(leaf: Any) -> str:
    aval = jax.typeof(leaf)
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _device_bytes(leaf: Any) -> int:
    """What `leaf` takes of one device's memory."""
    if isinstance(leaf, jax.Array):
        shape = leaf.sharding.shard_shape(leaf.shape)
        return int(leaf.nbytes) * math.prod(shape) // max(1, math.prod(leaf.shape))
    return int(leaf.nbytes) if isinstance(leaf, np.ndarray) else 0


def _memory(device: Any) -> int | None:
    stats = device.memory_stats()
    limit = stats.get("bytes_limit") if stats else None
    return int(limit) if limit else None
