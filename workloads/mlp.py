"""Training step of a deep, narrow MLP: 64 residual layers one after another, so the step is many small kernels.

A fixed random teacher gives the targets; batches follow one another from a small data set, so the loss falls and the
weights keep moving. Plain gradient descent, float32, weights donated. (An optimiser with more state would make the step
a test of how fast Python hands over some hundred arrays.)
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LAYERS = 64
BATCHES = 8
WIDTH = {"cpu": 64, "gpu": 256}
BATCH = {"cpu": 32, "gpu": 512}
RATE = 0.3

Weights = list[jax.Array]


def forward(weights: Weights, x: jax.Array) -> jax.Array:
    """(batch, width) → (batch, width)."""
    for w in weights:
        x = x + jnp.tanh(x @ w) / len(weights) ** 0.5
    return x


def loss_of(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((forward(weights, x) - y) ** 2)


def step(weights: Weights, count: jax.Array, xs: jax.Array, ys: jax.Array) -> tuple[Weights, jax.Array, jax.Array]:
    """One step of gradient descent on the next batch; the last output is its loss."""
    batch = count % xs.shape[0]
    loss, grads = jax.value_and_grad(loss_of)(weights, xs[batch], ys[batch])
    return [w - RATE * g for w, g in zip(weights, grads, strict=True)], count + 1, loss


def build(*, width: int | None = None, batch: int | None = None, layers: int = LAYERS) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in samples."""
    platform = jax.default_backend()
    width = width or WIDTH.get(platform, WIDTH["cpu"])
    batch = batch or BATCH.get(platform, BATCH["cpu"])
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=(width, width)) / width**0.5, jnp.float32) for _ in range(layers)]
    xs = rng.normal(size=(BATCHES, batch, width))
    ys = np.sin(2.0 * xs @ rng.normal(size=(width, width)) / width**0.5)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1)),
        "args": (weights, jnp.int32(0), jnp.asarray(xs, jnp.float32), jnp.asarray(ys, jnp.float32)),
        "carry": 2,
        "work": batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][2:]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, *data)
    jax.block_until_ready((state, loss))
    print(f"mlp: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
