"""The ceilings request: what the device can do at most, measured with large products and a large copy."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tuner.protocol.messages import Ceilings, CeilingsReply
from tuner.worker.session import WorkerSession
from tuner.worker.wait import wait

__all__ = ["agreed", "ceilings", "operand"]

# Sides of the matrices and bytes of the copy: large enough that the device is busy, small enough for some 0.2 s in all.
_SIDE = {"cpu": 1024, "gpu": 8192}
_COPY_BYTES = {"cpu": 1 << 28, "gpu": 1 << 30}
_LEAST_S = 0.05
_TURNS, _MOST_TURNS = 4, 12
_AGREE = 1.1
_IN_A_ROW = {"cpu": 1, "gpu": 8}  # calls: a launch that the host waits for takes a tenth of the copy's time on a GPU
_CHAIN = 128  # multiply-adds on each element
_TYPES = ("float32", "bfloat16", "float16", "float64")
_MEMORY, _VECTOR = "memory", "vector"
_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "float64": "f64"}


def ceilings(session: WorkerSession, request: Ceilings) -> CeilingsReply:
    """The best of some repeats: a ceiling is what can be reached, not what usually is. All are measured in turns, so
    that what else runs meanwhile strikes all alike, and again while the best two turns of one disagree, within a bound.
    A product's default precision is the one that jax takes, TF32 for float32 on recent GPUs. The workload's state makes
    room."""
    session.state.lose()
    side = _SIDE.get(session.platform, _SIDE["gpu"])
    row = _IN_A_ROW.get(session.platform, _IN_A_ROW["gpu"])
    runs: dict[str, Callable[[], Any]] = {}
    amounts: dict[str, float] = {}
    for name in _TYPES:
        if name == "float64" and not jax.config.values["jax_enable_x64"]:
            continue
        try:
            matrix = operand(side, name)
            product = functools.partial(jax.jit(jnp.matmul), matrix, matrix)
            wait(product())
        except Exception:  # a type that this device can't multiply
            continue
        runs[_SHORT[name]], amounts[_SHORT[name]] = product, 2.0 * side**3
    size = _COPY_BYTES.get(session.platform, _COPY_BYTES["gpu"]) // 4
    array = jnp.zeros((size,), jnp.float32)
    few = array[: size // 16]
    runs[_MEMORY], amounts[_MEMORY] = _passes(lambda x: x + 1.0, array, session.platform), 8.0 * size
    runs[_VECTOR], amounts[_VECTOR] = _passes(_chained, few, session.platform), 2.0 * _CHAIN * few.size
    for name in (_MEMORY, _VECTOR):
        wait(runs[name]())
    turns: dict[str, list[float]] = {name: [] for name in runs}
    while unsteady := [name for name, found in turns.items() if not agreed(found)]:
        if len(turns[unsteady[0]]) >= _MOST_TURNS:
            break
        for name in unsteady:
            turns[name].append(_best_s(runs[name], row=row))
    rates = {name: amounts[name] / min(found) for name, found in turns.items()}
    memory = rates.pop(_MEMORY)
    return CeilingsReply(flops_per_s=rates, bytes_per_s=memory, unsteady=tuple(unsteady))


def operand(side: int, dtype: str) -> jax.Array:
    """A square matrix of normal numbers: equal ones draw so little power that clocks are higher than real data lets
    them be."""
    return jax.random.normal(jax.random.key(0), (side, side), jnp.float32).astype(dtype)


def _passes(function: Callable[[jax.Array], jax.Array], array: jax.Array, platform: str) -> Callable[[], jax.Array]:
    """Calls of `function` on an array, on a CPU in place: there each output would be memory that the system first has
    to find, which takes ten times as long as writing it (2.7 GB/s against 29.8 on two cores of an EPYC)."""
    if platform != "cpu":
        return functools.partial(jax.jit(function), array)
    jitted, state = jax.jit(function, donate_argnums=0), [array]

    def run() -> jax.Array:
        state[0] = jitted(state[0])
        return state[0]

    return run


def agreed(turns: Sequence[float]) -> bool:
    """Whether the best of some turns, in seconds, was no chance: there are enough of them, and the next is like it."""
    best = sorted(turns)[:2]
    return len(turns) >= _TURNS and best[1] <= _AGREE * best[0]


def _chained(x: jax.Array) -> jax.Array:
    """Enough arithmetic on each element that moving it doesn't count."""
    for _ in range(_CHAIN):
        x = x * x + 0.25
    return x


def _best_s(run: Callable[[], Any], *, row: int) -> float:
    """Seconds of a call, of `row` calls one after another that the host waits for once: the least in a short while."""
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < _LEAST_S:
        start = time.perf_counter()
        for _ in range(row - 1):
            run()
        wait(run())
        best = min(best, (time.perf_counter() - start) / row)
    return best
