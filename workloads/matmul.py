"""One dense float32 matrix product a step: an orthogonal matrix times the state, which keeps its norm for ever.

The matrix is Hartley's, (cos + sin)(2π jk / n) / √n, with random signs on its columns: dense, and orthogonal by
construction. On a GPU it is 8192 × 8192, 1.1 TFLOP a step, in whatever precision float32 products have there.
"""

from __future__ import annotations

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIZE = {"cpu": 384, "gpu": 8192}


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


def initial(wave: jax.Array, signs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A state of unit size and a dense orthogonal matrix, (size, size) both, of one wave (size,) and of ±1 (size,)."""
    places = jnp.arange(wave.size, dtype=jnp.uint32)
    matrix = wave[places[:, None] * places % wave.size] * signs
    return 12**0.5 * scattered(matrix.shape, 1), matrix


def step(x: jax.Array, w: jax.Array) -> jax.Array:
    return w @ x


def build(*, size: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in floating-point operations."""
    size = size or SIZE.get(jax.default_backend(), SIZE["cpu"])
    angles = 2 * np.pi * np.arange(size) / size
    wave = ((np.cos(angles) + np.sin(angles)) / size**0.5).astype(np.float32)
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), size)
    return {
        "step": jax.jit(step, donate_argnums=0),
        "args": jax.jit(initial)(wave, signs),
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
