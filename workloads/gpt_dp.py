"""Training step of a decoder-only transformer, data parallel over all devices: parameters everywhere, the batch split.

The gradients of all parameters are summed over the devices once a step. On GPUs it has the size of GPT-2 small with 2
sequences of 1024 tokens a device, where that sum is a good part of the step. The arithmetic is that of gpt.py.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

BATCHES = 4
RATE, DECAY_1, DECAY_2, EPSILON = 3e-4, 0.9, 0.95, 1e-8

Params = dict[str, Any]


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int  # sequences a device
    length: int


SIZES = {"cpu": Size(2, 64, 4, 256, 1, 32), "gpu": Size(12, 768, 12, 50304, 2, 1024)}


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


def initial(size: Size) -> Params:
    """Float32 parameters; those of the layers are stacked along axis 0."""
    depth, width = size.layers, size.width
    seeds = itertools.count(1)

    def spread(*shape: int, std: float = 0.02) -> jax.Array:
        return std * 12**0.5 * scattered(shape, next(seeds))

    residual = 0.02 / (2 * depth) ** 0.5  # keeps the residual stream's variance independent of depth
    return {
        "tokens": spread(size.vocabulary, width),
        "places": spread(size.length, width),
        "norm": jnp.ones(width),
        "layers": {
            "norm_1": jnp.ones((depth, width)),
            "qkv": spread(depth, width, 3, width),
            "out": spread(depth, width, width, std=residual),
            "norm_2": jnp.ones((depth, width)),
            "up": spread(depth, width, 4 * width),
            "down": spread(depth, 4 * width, width, std=residual),
        },
    }


def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis, computed in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def attention(x: jax.Array, layer: Params, heads: int) -> jax.Array:
    """Causal self-attention of x (batch, length, width)."""
    batch, length, width = x.shape
    q, k, v = jnp.moveaxis(jnp.einsum("blw,wtv->bltv", x, layer["qkv"]), 2, 0)
    q, k, v = (t.reshape(batch, length, heads, width // heads) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / (width // heads) ** 0.5
    seen = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1).astype(x.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width) @ layer["out"]


def loss_of(params: Params, tokens: jax.Array, heads: int) -> jax.Array:
    """Mean cross-entropy of the next token; `tokens` is (batch, length + 1)."""
    low = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)

    @jax.checkpoint
    def block(x: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        x = x + attention(normalise(x, layer["norm_1"]), layer, heads)
        return x + jax.nn.gelu(normalise(x, layer["norm_2"]) @ layer["up"]) @ layer["down"], None

    x = low["tokens"][tokens[:, :-1]] + low["places"]
    x, _ = jax.lax.scan(block, x, low["layers"])
    logits = jnp.einsum("bld,vd->blv", normalise(x, low["norm"]), low["tokens"], preferred_element_type=jnp.float32)
    wanted = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - wanted)


def adam(count: jax.Array, grad: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The update and the new moments of one array; `count` is 1 at the first step."""
    m = DECAY_1 * m + (1 - DECAY_1) * grad
    v = DECAY_2 * v + (1 - DECAY_2) * grad**2
    scale = RATE * jnp.sqrt(1 - DECAY_2**count) / (1 - DECAY_1**count)
    return -scale * m / (jnp.sqrt(v) + EPSILON), m, v


def step(
    params: Params, first: Params, second: Params, count: jax.Array, data: jax.Array, *, heads: int
) -> tuple[Params, Params, Params, jax.Array, jax.Array]:
    """One Adam step on the next batch; the last output is its loss."""
    loss, grads = jax.value_and_grad(loss_of)(params, data[count % data.shape[0]], heads)
    count = count + 1
    moved = jax.tree.map(lambda g, m, v: adam(count, g, m, v), grads, first, second)
    change, first, second = jax.tree.transpose(jax.tree.structure(grads), jax.tree.structure((0, 0, 0)), moved)
    return jax.tree.map(jnp.add, params, change), first, second, count, loss


def sequences(rng: np.random.Generator, size: Size) -> np.ndarray:
    """Tokens (BATCHES, batch, length + 1): each is the last one plus its sequence's stride, one in eight is noise."""
    shape = (BATCHES, size.batch, size.length + 1)
    start = rng.integers(size.vocabulary, size=(*shape[:2], 1))
    stride = rng.integers(1, 8, size=(*shape[:2], 1))
    regular = (start + stride * np.arange(shape[2])) % size.vocabulary
    noise = rng.integers(size.vocabulary, size=shape)
    return np.where(rng.random(shape) < 1 / 8, noise, regular).astype(np.int32)


def build(*, layers: int | None = None, batch: int | None = None, length: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments, placed on a mesh of all devices; work is counted in tokens."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(layers=layers or size.layers, batch=batch or size.batch, length=length or size.length)
    devices = jax.devices()
    size = size._replace(batch=size.batch * len(devices))
    mesh = Mesh(np.array(devices), ("data",))
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(functools.partial(initial, size))
    places = jax.tree.map_with_path(lambda path, p: NamedSharding(mesh, P()), shapes)
    whole = NamedSharding(mesh, P())
    data_place = NamedSharding(mesh, P(None, "data"))
    params = jax.jit(initial, static_argnums=0, out_shardings=places)(size)
    zeros = jax.jit(lambda: jax.tree.map(jnp.zeros_like, shapes), out_shardings=places)
    first, second = zeros(), zeros()
    data = jax.device_put(sequences(rng, size), data_place)
    held_out = jax.device_put(sequences(rng, size)[0], NamedSharding(mesh, P("data")))

    def train_step(
        params: Params, first: Params, second: Params, count: jax.Array, data: jax.Array
    ) -> tuple[Params, Params, Params, jax.Array, jax.Array]:
        return step(params, first, second, count, data, heads=size.heads)

    def eval_loss(params: Params, tokens: jax.Array) -> jax.Array:
        return loss_of(params, tokens, size.heads)

    return {
        "step": jax.jit(train_step, donate_argnums=(0, 1, 2, 3), out_shardings=(places, places, places, whole, whole)),
        "args": (params, first, second, jax.device_put(np.int32(0), whole), data),
        "carry": 4,
        "work": size.batch * size.length,
        "others": {"eval_loss": (jax.jit(eval_loss, out_shardings=whole), (params, held_out))},
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][4]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, data)
    jax.block_until_ready((state, loss))
    print(f"gpt_dp: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
