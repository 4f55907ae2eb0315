"""Training step of one causal attention layer over a long sequence: bfloat16 compute, float32 weights.

`form="library"` attends through `jax.nn.dot_product_attention` (cuDNN's fused kernels on a GPU), `form="xla"` writes
the products and the softmax out, so that the scores of all pairs exist in memory. The layer learns to copy the token
before, by gradient descent.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

BATCHES = 4
RATE = 0.1

Params = dict[str, jax.Array]


class Size(NamedTuple):
    batch: int
    length: int
    heads: int
    head_width: int


SIZES = {"cpu": Size(1, 256, 2, 16), "gpu": Size(1, 8192, 16, 128)}


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
    """Float32 parameters, and sequences (BATCHES, batch, length, width) in bfloat16."""
    width = size.heads * size.head_width
    params = {
        "qkv": (12 / width) ** 0.5 * scattered((width, 3 * width), 1),
        "out": (12 / width) ** 0.5 * scattered((width, width), 2),
    }
    return params, (12**0.5 * scattered((BATCHES, size.batch, size.length, width), 3)).astype(jnp.bfloat16)


def library(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal attention of (batch, length, heads, head width), as the library does it fastest."""
    fused = "cudnn" if jax.default_backend() == "gpu" else None
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=fused)


def written_out(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The same in two products and a softmax, which is computed in float32."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[2:], bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


FORMS = {"library": library, "xla": written_out}


def loss_of(params: Params, x: jax.Array, heads: int, form: str) -> jax.Array:
    """Mean square error of the token before; `x` is (batch, length, width) in bfloat16."""
    low = {name: p.astype(jnp.bfloat16) for name, p in params.items()}
    q, k, v = (t.reshape(*x.shape[:2], heads, -1) for t in jnp.split(x @ low["qkv"], 3, axis=-1))
    y = FORMS[form](q, k, v).reshape(x.shape) @ low["out"]
    return jnp.mean((y[:, 1:].astype(jnp.float32) - x[:, :-1]) ** 2)


def build(*, length: int | None = None, batch: int | None = None, form: str = "library") -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in tokens."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(length=length or size.length, batch=batch or size.batch)

    def step(params: Params, count: jax.Array, data: jax.Array) -> tuple[Params, jax.Array, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params, data[count % BATCHES], size.heads, form)
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), count + 1, loss

    params, data = jax.jit(initial, static_argnums=0)(size)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1)),
        "args": (params, jnp.int32(0), data),
        "carry": 2,
        "work": size.batch * size.length,
    }


def main(steps: int = 20) -> None:
    for form in FORMS:
        made = build(form=form)
        run, data = made["step"], made["args"][2]
        *state, loss = jax.block_until_ready(run(*made["args"]))
        start = time.perf_counter()
        for _ in range(steps):
            *state, loss = run(*state, data)
        jax.block_until_ready((state, loss))
        print(f"attention, {form}: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
