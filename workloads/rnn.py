"""Training step of a gated recurrent unit over a long sequence: one scan forwards and one back, float32, momentum.

The task is to remember: the target is the input some places back. Each place is a small matrix product and a few
elementwise operations, so time goes into how the loop is run. Source: Cho et al. 2014 (the unit).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BATCHES = 4
RATE, MOMENTUM = 0.05, 0.9
LAG = 3

Params = dict[str, jax.Array]


class Size(NamedTuple):
    length: int
    batch: int
    inputs: int
    hidden: int


SIZES = {"cpu": Size(64, 8, 8, 32), "gpu": Size(1024, 128, 64, 1024)}


def initial(rng: np.random.Generator, size: Size) -> Params:
    def normal(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((rows, columns), np.float32) / rows**0.5)

    return {
        "from_input": normal(size.inputs, 3 * size.hidden),
        "from_gated": normal(size.hidden, 2 * size.hidden),
        "from_reset": normal(size.hidden, size.hidden),
        "out": normal(size.hidden, size.inputs),
    }


def run_over(params: Params, x: jax.Array) -> jax.Array:
    """Hidden states (length, batch, hidden) for inputs (length, batch, inputs), from a state of zeros."""
    hidden = params["from_reset"].shape[0]

    def cell(h: jax.Array, given: jax.Array) -> tuple[jax.Array, jax.Array]:
        gates = jax.nn.sigmoid(given[:, : 2 * hidden] + h @ params["from_gated"])
        update, reset = jnp.split(gates, 2, axis=1)
        new = jnp.tanh(given[:, 2 * hidden :] + (reset * h) @ params["from_reset"])
        h = update * h + (1 - update) * new
        return h, h

    return jax.lax.scan(cell, jnp.zeros((x.shape[1], hidden), x.dtype), x @ params["from_input"])[1]


def loss_of(params: Params, x: jax.Array) -> jax.Array:
    """Mean square error of the input `LAG` places back."""
    return jnp.mean((run_over(params, x)[LAG:] @ params["out"] - x[:-LAG]) ** 2)


def step(
    params: Params, speed: Params, count: jax.Array, data: jax.Array
) -> tuple[Params, Params, jax.Array, jax.Array]:
    """One step of gradient descent with momentum on the next batch; the last output is its loss."""
    loss, grads = jax.value_and_grad(loss_of)(params, data[count % data.shape[0]])
    speed = jax.tree.map(lambda s, g: MOMENTUM * s - RATE * g, speed, grads)
    return jax.tree.map(jnp.add, params, speed), speed, count + 1, loss


def build(*, length: int | None = None, batch: int | None = None, hidden: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in places times sequences."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(length=length or size.length, batch=batch or size.batch, hidden=hidden or size.hidden)
    rng = np.random.default_rng(0)
    params = initial(rng, size)
    speed = jax.tree.map(jnp.zeros_like, params)
    data = jnp.asarray(rng.standard_normal((BATCHES, size.length, size.batch, size.inputs), np.float32))
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2)),
        "args": (params, speed, jnp.int32(0), data),
        "carry": 3,
        "work": size.length * size.batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][3]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, data)
    jax.block_until_ready((state, loss))
    print(f"rnn: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
