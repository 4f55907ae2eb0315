"""One token of greedy generation with a key-value cache: a decoder-only transformer, batch 1, bfloat16.

What counts is latency: each step reads all weights and the cache once for a single token, and the next step needs its
result. The cache is a ring that is half full at first; when it is full the oldest token goes. Rotary places, gated
feed-forward layers, scan over layers; on a GPU 1.2 billion parameters and 4096 places.
Source: Su et al. 2021 (rotary places); Shazeer 2020 (gated layers).
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Params = dict[str, Any]


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    places: int


SIZES = {"cpu": Size(2, 128, 4, 256, 512, 128), "gpu": Size(24, 2048, 16, 5632, 32000, 4096)}


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


def initial(size: Size) -> tuple[Params, jax.Array]:
    """Parameters, and a cache (layers, 2, places, heads, head width) that is half full; all in bfloat16."""
    depth, width, hidden = size.layers, size.width, size.hidden
    seeds = itertools.count(1)

    def spread(*shape: int, std: float) -> jax.Array:
        return (std * 12**0.5 * scattered(shape, next(seeds))).astype(jnp.bfloat16)

    params = {
        "tokens": spread(size.vocabulary, width, std=1.0),
        "layers": {
            "qkv": spread(depth, width, 3 * width, std=width**-0.5),
            "out": spread(depth, width, width, std=width**-0.5),
            "gate_up": spread(depth, width, 2 * hidden, std=width**-0.5),
            "down": spread(depth, hidden, width, std=hidden**-0.5),
        },
        "logits": spread(width, size.vocabulary, std=width**-0.5),
    }
    kept = spread(depth, 2, size.places, size.heads, width // size.heads, std=1.0)
    return params, jnp.where(jnp.arange(size.places)[:, None, None] < size.places // 2, kept, 0)


def normalise(x: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis, computed in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6)).astype(x.dtype)


def rotate(x: jax.Array, place: jax.Array) -> jax.Array:
    """Rotary place of x (heads, head width)."""
    half = x.shape[-1] // 2
    angle = place / 10000 ** (jnp.arange(half) / half)
    one, other = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([one * cos - other * sin, one * sin + other * cos], axis=-1).astype(x.dtype)


def logits_of(cache: jax.Array, token: jax.Array, place: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """The cache (layers, 2, places, heads, head width) with the token in it, and the logits after it (vocabulary,)."""
    _, _, places, heads, head_width = cache.shape
    slot, seen = place % places, jnp.arange(places) <= place

    def layer(x: jax.Array, given: tuple[Params, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, kept = given
        q, k, v = (normalise(x) @ weights["qkv"]).reshape(3, heads, head_width)
        kept = kept.at[:, slot].set(jnp.stack([rotate(k, place), v]))
        scores = jnp.einsum("hd,phd->hp", rotate(q, place), kept[0], preferred_element_type=jnp.float32)
        share = jax.nn.softmax(jnp.where(seen, scores / head_width**0.5, -jnp.inf), axis=-1).astype(x.dtype)
        x = x + jnp.einsum("hp,phd->hd", share, kept[1]).reshape(-1) @ weights["out"]
        gate, up = jnp.split(normalise(x) @ weights["gate_up"], 2)
        return x + (jax.nn.silu(gate) * up) @ weights["down"], kept

    x, cache = jax.lax.scan(layer, params["tokens"][token], (params["layers"], cache))
    return cache, jnp.matmul(normalise(x), params["logits"], preferred_element_type=jnp.float32)


def step(
    cache: jax.Array, token: jax.Array, place: jax.Array, params: Params
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The cache, the next token and its place; the last output is that token's logit."""
    cache, logits = logits_of(cache, token, place, params)
    return cache, jnp.argmax(logits).astype(token.dtype), place + 1, jnp.max(logits)


def build(*, places: int | None = None, layers: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in tokens."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(places=places or size.places, layers=layers or size.layers)
    params, cache = jax.jit(initial, static_argnums=0)(size)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2)),
        "args": (cache, jnp.int32(1), jnp.int32(size.places // 2), params),
        "carry": 3,
        "work": 1,
    }


def main(steps: int = 100) -> None:
    made = build()
    run, params = made["step"], made["args"][3]
    *state, logit = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, logit = jax.block_until_ready(run(*state, params))
    print(f"decode: {(time.perf_counter() - start) / steps * 1e3:.3f} ms a token, logit {float(logit):.3f}")


if __name__ == "__main__":
    main()
