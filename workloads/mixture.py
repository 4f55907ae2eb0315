"""Stepwise EM of a Gaussian mixture: soft assignment of a batch of points to spherical clusters, float32.

Each step takes the next batch, weighs every point against every centre and moves the running sufficient statistics
by a constant share, so the centres keep wandering with the batches once they have found the clusters.
Source: Cappé & Moulines 2009, "On-line expectation-maximization algorithm for latent data models".
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BATCHES = 8
RATE = 0.1
POINTS = {"cpu": 4096, "gpu": 262144}
CLUSTERS = {"cpu": 64, "gpu": 1024}
DIMENSIONS = 16


def step(
    share: jax.Array, centre: jax.Array, count: jax.Array, data: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Next `share` (clusters,) and `centre` (clusters, dimensions); the last output is the mean log-likelihood.

    `data` is (batches, points, dimensions); the clusters have unit variance.
    """
    x = data[count % data.shape[0]]
    distance = jnp.sum((x[:, None, :] - centre[None, :, :]) ** 2, axis=-1)
    score = jnp.log(share) - 0.5 * distance
    total = jax.nn.logsumexp(score, axis=1, keepdims=True)
    weight = jnp.exp(score - total)
    new_share = (1 - RATE) * share + RATE * jnp.mean(weight, axis=0)
    new_sum = (1 - RATE) * share[:, None] * centre + RATE * (weight.T @ x) / x.shape[0]
    return new_share, new_sum / new_share[:, None], count + 1, jnp.mean(total)


def build(*, points: int | None = None, clusters: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in points."""
    platform = jax.default_backend()
    points = points or POINTS.get(platform, POINTS["cpu"])
    clusters = clusters or CLUSTERS.get(platform, CLUSTERS["cpu"])
    rng = np.random.default_rng(0)
    true = 3.0 * rng.standard_normal((clusters, DIMENSIONS), np.float32)
    member = rng.integers(clusters, size=(BATCHES, points))
    data = true[member] + rng.standard_normal((BATCHES, points, DIMENSIONS), np.float32)
    start = true + rng.standard_normal(true.shape, np.float32)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2)),
        "args": (jnp.full(clusters, 1.0 / clusters, jnp.float32), jnp.asarray(start), jnp.int32(0), jnp.asarray(data)),
        "carry": 3,
        "work": points,
    }


def main(steps: int = 50) -> None:
    made = build()
    run, data = made["step"], made["args"][3]
    *state, likelihood = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, likelihood = run(*state, data)
    jax.block_until_ready((state, likelihood))
    print(
        f"mixture: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, log-likelihood {float(likelihood):.4f}"
    )


if __name__ == "__main__":
    main()
