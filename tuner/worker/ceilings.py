"""The ceilings request: what the device can do at most, measured with large products and a large copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tuner.protocol.messages import Ceilings, CeilingsReply
from tuner.worker.session import WorkerSession
from tuner.worker.wait import wait

__all__ = ["ceilings"]

# Sides of the matrices and bytes of the copy: large enough that the device is busy, small enough for some 0.2 s each.
_SIDE = {"cpu": 1024, "gpu": 8192}
_COPY_BYTES = {"cpu": 1 << 28, "gpu": 1 << 30}
_LEAST_S = 0.2
_IN_A_ROW = {"cpu": 1, "gpu": 8}  # calls: a launch that the host waits for takes a tenth of the copy's time on a GPU
_CHAIN = 128  # multiply-adds on each element
_TYPES = ("float32", "bfloat16", "float16", "float64")
_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}


def ceilings(session: WorkerSession, request: Ceilings) -> CeilingsReply:
    """The best of some repeats: a ceiling is what can be reached, not what usually is. A product's default precision is
    the one that jax takes, TF32 for float32 on recent GPUs. The workload's state makes room."""
    session.state.lose()
    side = _SIDE.get(session.platform, _SIDE["gpu"])
    row = _IN_A_ROW.get(session.platform, _IN_A_ROW["gpu"])
    flops: dict[str, float] = {}
    for name in _TYPES:
        if name == "float64" and not jax.config.values["jax_enable_x64"]:
            continue
        try:
            matrix = jnp.full((side, side), 0.5, jnp.dtype(name))
            flops[_SHORT[name]] = 2.0 * side**3 / _best_s(jax.jit(jnp.matmul), matrix, matrix, row=row)
        except Exception:  # a type that this device can't multiply
            continue
    size = _COPY_BYTES.get(session.platform, _COPY_BYTES["gpu"]) // 4
    array = jnp.zeros((size,), jnp.float32)
    bytes_per_s = 8.0 * size / _best_s(jax.jit(lambda x: x + 1.0), array, row=row)
    few = array[: size // 16]
    flops["vector"] = 2.0 * _CHAIN * few.size / _best_s(jax.jit(_chained), few, row=row)
    return CeilingsReply(flops_per_s=flops, bytes_per_s=bytes_per_s)


def _chained(x: jax.Array) -> jax.Array:
    """Enough arithmetic on each element that moving it doesn't count."""
    for _ in range(_CHAIN):
        x = x * x + 0.25
    return x


def _best_s(function: Callable[..., Any], *args: jax.Array, row: int) -> float:
    """Seconds of a call, of `row` calls one after another that the host waits for once."""
    wait(function(*args))
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < _LEAST_S:
        start = time.perf_counter()
        for _ in range(row - 1):
            function(*args)
        wait(function(*args))
        best = min(best, (time.perf_counter() - start) / row)
    return best
