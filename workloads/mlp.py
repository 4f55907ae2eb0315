"""Training step of a deep, narrow MLP: 64 residual layers one after another, so the step is many small kernels.

A fixed random teacher gives the targets; batches follow one another from a small data set, so the loss falls and the
weights keep moving. Adam, float32, parameters and optimiser state donated.
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
RATE, DECAY_1, DECAY_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8

Params = dict[str, jax.Array]


def forward(layers: list[Params], x: jax.Array) -> jax.Array:
    """(batch, width) → (batch, width)."""
    for layer in layers:
        x = x + jnp.tanh(x @ layer["w"] + layer["b"]) / len(layers) ** 0.5
    return x


def loss_of(layers: list[Params], x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((forward(layers, x) - y) ** 2)


def adam(count: jax.Array, grad: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The update and the new moments of one array; `count` is 1 at the first step."""
    m = DECAY_1 * m + (1 - DECAY_1) * grad
    v = DECAY_2 * v + (1 - DECAY_2) * grad**2
    scale = RATE * jnp.sqrt(1 - DECAY_2**count) / (1 - DECAY_1**count)
    return -scale * m / (jnp.sqrt(v) + EPSILON), m, v


def step(
    params: Params, first: Params, second: Params, count: jax.Array, xs: jax.Array, ys: jax.Array
) -> tuple[Params, Params, Params, jax.Array, jax.Array]:
    """One Adam step on the next batch; the last output is its loss. `params` has all layers stacked along axis 0."""
    batch = count % xs.shape[0]
    layers = [jax.tree.map(lambda a, i=i: a[i], params) for i in range(params["b"].shape[0])]
    loss, by_layer = jax.value_and_grad(loss_of)(layers, xs[batch], ys[batch])
    grads = jax.tree.map(lambda *g: jnp.stack(g), *by_layer)
    count = count + 1
    moved = jax.tree.map(lambda g, m, v: adam(count, g, m, v), grads, first, second)
    change, first, second = jax.tree.transpose(jax.tree.structure(grads), jax.tree.structure((0, 0, 0)), moved)
    return jax.tree.map(jnp.add, params, change), first, second, count, loss


def build(*, width: int | None = None, batch: int | None = None, layers: int = LAYERS) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in samples."""
    platform = jax.default_backend()
    width = width or WIDTH.get(platform, WIDTH["cpu"])
    batch = batch or BATCH.get(platform, BATCH["cpu"])
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(layers, width, width)) / width**0.5, "b": np.zeros((layers, width))}
    zeros = jax.tree.map(np.zeros_like, params)
    xs = rng.normal(size=(BATCHES, batch, width))
    ys = np.sin(2.0 * xs @ rng.normal(size=(width, width)) / width**0.5)
    state = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), (params, zeros, zeros))
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2, 3)),
        "args": (*state, jnp.int32(0), jnp.asarray(xs, jnp.float32), jnp.asarray(ys, jnp.float32)),
        "carry": 4,
        "work": batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][4:]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, *data)
    jax.block_until_ready((state, loss))
    print(f"mlp: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
