"""One dense float32 matrix product a step: an orthogonal matrix times the state, which keeps its norm for ever.

The matrix is Hartley's, (cos + sin)(2π jk / n) / √n, with random signs on its columns: dense, and orthogonal by
construction. On a GPU it is 8192 × 8192, 1.1 TFLOP a step, in whatever precision float32 products have there.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIZE = {"cpu": 384, "gpu": 8192}


def orthogonal(rng: np.random.Generator, size: int) -> jax.Array:
    """A dense orthogonal matrix (size, size)."""
    places = np.arange(size, dtype=np.int64)
    wave = 2 * np.pi * places / size
    cas = ((np.cos(wave) + np.sin(wave)) / size**0.5).astype(np.float32)
    return jnp.asarray(cas[np.outer(places, places) % size] * rng.choice(np.float32([-1, 1]), size))


def step(x: jax.Array, w: jax.Array) -> jax.Array:
    return w @ x


def build(*, size: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in floating-point operations."""
    size = size or SIZE.get(jax.default_backend(), SIZE["cpu"])
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((size, size), np.float32))
    return {
        "step": jax.jit(step, donate_argnums=0),
        "args": (x, orthogonal(rng, size)),
        "carry": 1,
        "work": 2 * size**3,
    }


def main(steps: int = 50) -> None:
    made = build()
    run, (x, w) = made["step"], made["args"]
    x = jax.block_until_ready(run(x, w))
    start = time.perf_counter()
    for _ in range(steps):
        x = run(x, w)
    jax.block_until_ready(x)
    seconds = (time.perf_counter() - start) / steps
    print(f"matmul: {seconds * 1e3:.2f} ms a step, {made['work'] / seconds / 1e12:.3f} TFLOP/s")


if __name__ == "__main__":
    main()
