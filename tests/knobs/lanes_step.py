"""A step whose compiled code shows most CPU settings: a recurrence, attention, rounding and a cumulative sum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def step(x: Any, w: Any, q: Any) -> Any:
    def recur(h: Any, xi: Any) -> Any:
        h = jnp.tanh(h @ w + xi)
        return h, jnp.sum(jnp.exp(h))

    h, sums = jax.lax.scan(recur, x[0], x)
    attended = jax.nn.softmax(q @ q.T / 7.0, axis=-1) @ q
    rounded = (q.astype(jnp.bfloat16) * jnp.bfloat16(1.1)).astype(jnp.float32).sum(0)
    divided = jnp.sin(q) / (1.0 + q * q) / jnp.sqrt(jnp.var(q, axis=1, keepdims=True) + 1e-5)
    return h, sums, attended, rounded, divided.sum(), jnp.cumsum(q, 1)


def build() -> Any:
    rng = np.random.default_rng(0)
    return jax.jit(step), tuple(
        rng.standard_normal(shape, dtype=np.float32) for shape in ((8, 4, 32), (32, 32), (64, 48))
    )
