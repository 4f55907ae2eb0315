"""Group by key: records get new keys, are sorted by them, and each key's values are added up; integers and float32.

Keys go through a hash that is a bijection of 32 bits, so they stay distinct and look random in each step. Sorting moves
keys and values; the sums are a segmented reduction over the sorted runs.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RECORDS = {"cpu": 1 << 13, "gpu": 1 << 24}
GROUP_BITS = {"cpu": 6, "gpu": 16}


def scramble(key: jax.Array) -> jax.Array:
    """Bijective mixing of uint32 by odd factors and shifts."""
    key = (key ^ (key >> 16)) * jnp.uint32(0x7FEB352D)
    key = (key ^ (key >> 15)) * jnp.uint32(0x846CA68B)
    return key ^ (key >> 16)


def group_by(key: jax.Array, value: jax.Array, bits: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Records (n,) in the order of their keys, and the sum of values (2**bits,) for each value of a key's top bits."""
    key, value = jax.lax.sort((key, value), num_keys=1)
    group = (key >> (32 - bits)).astype(jnp.int32)
    return key, value, jax.ops.segment_sum(value, group, 1 << bits, indices_are_sorted=True)


def build(*, records: int | None = None, group_bits: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in records."""
    platform = jax.default_backend()
    records = records or RECORDS.get(platform, RECORDS["cpu"])
    bits = group_bits or GROUP_BITS.get(platform, GROUP_BITS["cpu"])

    def step(key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return group_by(scramble(key), value, bits)

    rng = np.random.default_rng(0)
    key = jnp.asarray(np.arange(1, records + 1, dtype=np.uint32))
    value = jnp.asarray(rng.standard_normal(records, np.float32))
    return {"step": jax.jit(step, donate_argnums=(0, 1)), "args": (key, value), "carry": 2, "work": records}


def main(steps: int = 50) -> None:
    made = build()
    run = made["step"]
    *state, sums = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, sums = run(*state)
    jax.block_until_ready((state, sums))
    print(f"sort: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, {made['work']} records")


if __name__ == "__main__":
    main()
