"""Waves on a sparse random graph: neighbours' values are gathered along edges and scattered back as sums, float32.

u(t+1) = 2 u(t) − u(t−1) − c² L u(t) with L = 1 − D⁻¹A, the random walk's Laplacian. Its eigenvalues lie in [0, 2], so
c² < 2 keeps the waves bounded, and a constant is left alone. Degrees are skewed: some nodes have hundreds of edges.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SPEED_2 = 0.5


class Size(NamedTuple):
    nodes: int
    edges: int  # undirected
    channels: int


SIZES = {"cpu": Size(2048, 8192, 16), "gpu": Size(1 << 20, 1 << 23, 32)}


def scattered(shape: tuple[int, ...], seed: int) -> jax.Array:
    """Numbers spread evenly in ±1/2, each made of its place alone by scrambling its bits: every device makes its own
    part, and no setting of the compiler changes them."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    places = [jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(n) for axis, n in enumerate(strides)]
    bits = sum(places, jnp.uint32(seed * 0x9E3779B9 % 2**32))
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = (bits ^ (bits >> shift)) * jnp.uint32(factor)
    whole = ((bits ^ (bits >> 16)) >> 8).astype(jnp.int32) - 2**23  # floats' sum could be taken apart
    return whole.astype(jnp.float32) * 2.0**-24


def initial(nodes: int, channels: int) -> tuple[jax.Array, jax.Array]:
    """`now` and `before`, of unit size."""
    now, before = (12**0.5 * scattered((nodes, channels), seed) for seed in (1, 2))
    return now, before


def step(now: jax.Array, before: jax.Array, source: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The next `now` and `before`, (nodes, channels); edges run from `source` to `target`, (edges,) both."""
    degree = jnp.zeros(now.shape[0], now.dtype).at[target].add(1)
    total = jnp.zeros_like(now).at[target].add(now[source])
    laplacian = now - total / degree[:, None]
    return 2 * now - before - SPEED_2 * laplacian, now


def graph(rng: np.random.Generator, nodes: int, edges: int) -> tuple[jax.Array, jax.Array]:
    """Sources and targets of all edges in both directions, each node linked to the next one at least."""
    one = np.concatenate([np.arange(nodes), (nodes * rng.random(edges - nodes) ** 2).astype(np.int64)])
    other = np.concatenate([np.arange(1, nodes + 1) % nodes, rng.integers(nodes, size=edges - nodes)])
    return jnp.asarray(np.concatenate([one, other]), jnp.int32), jnp.asarray(np.concatenate([other, one]), jnp.int32)


def build(*, nodes: int | None = None, edges: int | None = None, channels: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in directed edges."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = Size(nodes or size.nodes, edges or size.edges, channels or size.channels)
    source, target = graph(np.random.default_rng(0), size.nodes, size.edges)
    now, before = jax.jit(initial, static_argnums=(0, 1))(size.nodes, size.channels)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1)),
        "args": (now, before, source, target),
        "carry": 2,
        "work": 2 * size.edges,
    }


def main(steps: int = 50) -> None:
    made = build()
    run, edges = made["step"], made["args"][2:]
    state = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        state = run(*state, *edges)
    jax.block_until_ready(state)
    print(f"scatter: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, {made['work']} edges")


if __name__ == "__main__":
    main()
