"""Training step of a mixture of experts, one or more experts a device: tokens travel to their experts and back.

Every device routes its own tokens to the best of all experts, each of which takes so many tokens of each device and no
more; what it doesn't take passes unchanged. Two all-to-alls move them there and back, one more their gradients. On GPUs
a device has 2 experts of 2048 x 8192 and 8192 tokens. Plain gradient descent on a fixed target, so that the loss falls.
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

RATE = 1e-2
CAPACITY = 1.25  # of a device's tokens each expert takes so many times its fair share

# width, hidden, experts a device, tokens a device
SIZES = {"cpu": (32, 64, 2, 64), "gpu": (2048, 8192, 2, 8192)}

Params = dict[str, Any]


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


def routed(tokens: jax.Array, router: jax.Array, room: int) -> tuple[jax.Array, jax.Array]:
    """Which of a device's tokens (token, width) go where: dispatch and combine weights (token, expert, place)."""
    chances = jax.nn.softmax(jnp.dot(tokens, router, preferred_element_type=jnp.float32), axis=-1)
    best = jax.nn.one_hot(jnp.argmax(chances, axis=-1), chances.shape[-1], dtype=jnp.float32)
    place = (jnp.cumsum(best, axis=0) - 1) * best  # in the order of the tokens
    dispatch = best[..., None] * jax.nn.one_hot(place, room, dtype=jnp.float32)  # beyond the room: nowhere
    return dispatch, dispatch * jnp.sum(chances * best, axis=-1)[:, None, None]


def layer(params: Params, tokens: jax.Array, room: int) -> jax.Array:
    """What one device does: `tokens` (token, width) are its own, `params` its experts and the whole router."""
    dispatch, combine = routed(tokens, params["router"], room)
    low = tokens.astype(jnp.bfloat16)
    sent = jnp.einsum("tw,tep->epw", low, dispatch.astype(jnp.bfloat16))
    got = jax.lax.all_to_all(sent, "expert", 0, 1, tiled=True)  # this device's experts, everybody's tokens
    inner = jax.nn.gelu(jnp.einsum("epw,ewh->eph", got, params["up"].astype(jnp.bfloat16)))
    out = jnp.einsum("eph,ehw->epw", inner, params["down"].astype(jnp.bfloat16))
    back = jax.lax.all_to_all(out, "expert", 1, 0, tiled=True)
    return tokens + jnp.einsum("epw,tep->tw", back, combine.astype(jnp.bfloat16)).astype(tokens.dtype)


def build(*, tokens: int | None = None, experts: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments, placed on a mesh of all devices; work is counted in tokens.

    `tokens`, `experts`: a device's.
    """
    width, hidden, default_experts, default_tokens = SIZES.get(jax.default_backend(), SIZES["cpu"])
    experts, tokens = experts or default_experts, tokens or default_tokens
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("expert",))
    split, whole = NamedSharding(mesh, P("expert")), NamedSharding(mesh, P())
    count = experts * len(devices)
    room = max(1, int(CAPACITY * tokens / count))

    def initial() -> tuple[Params, tuple[jax.Array, jax.Array]]:
        """The parameters, and tokens with what they are to become: their neighbours' numbers, cut off at ±1."""
        params = {
            "router": 0.5 * 12**0.5 * scattered((width, count), 1),
            "up": (12 / width) ** 0.5 * scattered((count, width, hidden), 2),
            "down": (12 / hidden) ** 0.5 * scattered((count, hidden, width), 3),
        }
        x = 12**0.5 * scattered((tokens * len(devices), width), 4)
        return params, (x, jnp.clip(jnp.roll(x, 1, axis=1), -1, 1))

    places = {"router": whole, "up": split, "down": split}
    params, batch = jax.jit(initial, out_shardings=(places, split))()
    specs = {"router": P(), "up": P("expert"), "down": P("expert")}
    forward = jax.shard_map(
        lambda p, t: layer(p, t, room), mesh=mesh, in_specs=(specs, P("expert")), out_specs=P("expert")
    )

    def loss_of(params: Params, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.mean((forward(params, batch[0]) - batch[1]) ** 2)

    def train_step(params: Params, batch: tuple[jax.Array, jax.Array]) -> tuple[Params, jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(params, batch)
        return jax.tree.map(lambda p, g: p - RATE * g, params, slopes), loss

    return {
        "step": jax.jit(train_step, donate_argnums=0, out_shardings=(places, whole)),
        "args": (params, batch),
        "carry": 1,
        "work": tokens * len(devices),
        "others": {"eval_loss": (jax.jit(loss_of, out_shardings=whole), (params, batch))},
    }


def main(steps: int = 20) -> None:
    made = build()
    run, (params, batch) = made["step"], made["args"]
    params, loss = jax.block_until_ready(run(params, batch))
    start = time.perf_counter()
    for _ in range(steps):
        params, loss = run(params, batch)
    jax.block_until_ready((params, loss))
    print(f"moe: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
