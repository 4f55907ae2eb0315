"""A circular pipeline: every device holds the weights of its stages, micro-batches travel round the ring of devices.

In each turn every stage works on what its left neighbour handed it in the turn before, so that sending and computing
can overlap; from the last device results go round to the first again until they have been through all stages. Device d
of n holds stages d, n + d, 2n + d, …, and one turn is one iteration of a scan. On GPUs a stage is four products with
matrices of 4096 x 4096, a micro-batch 4096 x 4096 bfloat16 numbers. The step is a forward pass, whose outputs are the
next step's inputs.
"""

from __future__ import annotations

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

# width, rows of a micro-batch, products a stage, rounds through the ring
SIZES = {"cpu": (32, 16, 2, 2), "gpu": (4096, 4096, 4, 2)}


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


def stage(weights: jax.Array, x: jax.Array) -> jax.Array:
    """`weights` (products, width, width), `x` (rows, width); keeps x near unit size."""
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def pipeline(weights: jax.Array, batches: jax.Array, *, devices: int, rounds: int) -> jax.Array:
    """What one device does. `weights` (round, product, width, width) are its own; `batches` (batch, rows, width) are in
    full on every device, but only the first device's are fed in. Returns the results (batch, rows, width), on all."""
    index = jax.lax.axis_index("stage")
    count = batches.shape[0]
    ring = [(d, (d + 1) % devices) for d in range(devices)]

    def turn(carry: tuple[jax.Array, jax.Array], time: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        """`arrived`: from the left. `waiting`: on the first device, what came round and waits for its next round."""
        arrived, waiting = carry
        # The batch that comes round now was sent in by the first device `devices` turns ago.
        back = jnp.mod(time - devices, count)
        waiting = jnp.where((index == 0) & (time >= devices), waiting.at[back].set(arrived), waiting)
        x = jnp.where(index == 0, waiting[jnp.mod(time, count)], arrived)
        which = jnp.clip((time - index) // count, 0, rounds - 1)
        made = stage(weights[which], x)
        return (jax.lax.ppermute(made, "stage", ring), waiting), None

    # Of one kind with what the turns make of them: different on each device.
    start = jax.lax.pcast((jnp.zeros_like(batches[0]), batches), "stage", to="varying")
    turns = rounds * count + devices
    (_, waiting), _ = jax.lax.scan(turn, start, jnp.arange(turns))
    return jax.lax.psum(jnp.where(index == 0, waiting, jnp.zeros_like(waiting)), "stage")


def build(*, batches: int | None = None, rounds: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments, placed on a ring of all devices; work is counted in micro-batches.

    `batches`: at least as many as there are devices.
    """
    width, rows, products, default_rounds = SIZES.get(jax.default_backend(), SIZES["cpu"])
    devices, rounds = jax.devices(), rounds or default_rounds
    batches = batches or len(devices) + 1
    if batches < len(devices):
        raise ValueError(f"{batches} micro-batches can't keep {len(devices)} stages busy")
    mesh = Mesh(np.array(devices), ("stage",))
    split, whole = NamedSharding(mesh, P("stage")), NamedSharding(mesh, P())

    def initial() -> tuple[jax.Array, jax.Array]:
        """The first batches and the weights: of unit size, and of such that a stage keeps that."""
        x = 12**0.5 * scattered((batches, rows, width), 1)
        weights = 1.5 * (12 / width) ** 0.5 * scattered((len(devices), rounds, products, width, width), 2)
        return x.astype(jnp.bfloat16), weights.astype(jnp.bfloat16)

    x, weights = jax.jit(initial, out_shardings=(whole, split))()
    run = jax.shard_map(
        lambda w, b: pipeline(w[0], b, devices=len(devices), rounds=rounds),
        mesh=mesh,
        in_specs=(P("stage"), P()),
        out_specs=P(),
    )

    def forward(batches: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = run(weights, batches)
        return out, jnp.sqrt(jnp.mean(out.astype(jnp.float32) ** 2))

    return {
        "step": jax.jit(forward, donate_argnums=0, out_shardings=(whole, whole)),
        "args": (x, weights),
        "carry": 1,
        "work": batches,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, (x, weights) = made["step"], made["args"]
    x, size = jax.block_until_ready(run(x, weights))
    start = time.perf_counter()
    for _ in range(steps):
        x, size = run(x, weights)
    jax.block_until_ready((x, size))
    print(f"pipeline: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, outputs of size {float(size):.4f}")


if __name__ == "__main__":
    main()
