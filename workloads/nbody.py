"""Gravitational N-body step: softened direct sum over all pairs, velocity Verlet, float32.

The bodies start as a Plummer sphere close to equilibrium (total mass 1, scale radius 1, G = 1), so the cloud keeps its
size and speeds within some percent for hundreds of steps. Reference: Aarseth, Hénon & Wielen 1974 (sampling).
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BODIES = {"cpu": 1024, "gpu": 32768}
SOFTENING = 0.05
TIME_STEP = 1.0 / 256


def plummer(rng: np.random.Generator, bodies: int) -> tuple[jax.Array, jax.Array]:
    """Positions and velocities of shape (bodies, 3) in the frame of the centre of mass."""
    enclosed = rng.uniform(0.01, 0.95, (bodies, 1))
    radius = 1.0 / np.sqrt(enclosed ** (-2.0 / 3.0) - 1.0)
    direction = rng.normal(size=(bodies, 3))
    pos = radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)
    spread = np.sqrt(1.0 / (6.0 * np.sqrt(1.0 + radius**2)))  # one-dimensional velocity dispersion at this radius
    vel = spread * rng.normal(size=(bodies, 3))
    return jnp.asarray(pos - pos.mean(0), jnp.float32), jnp.asarray(vel - vel.mean(0), jnp.float32)


def acceleration(pos: jax.Array, mass: jax.Array) -> jax.Array:
    """Pull of all bodies on each, shape (bodies, 3)."""
    offset = pos[None, :, :] - pos[:, None, :]
    inverse = jax.lax.rsqrt(jnp.sum(offset * offset, axis=-1) + SOFTENING**2)
    return jnp.sum(offset * (mass[None, :] * inverse**3)[:, :, None], axis=1)


def step(pos: jax.Array, vel: jax.Array, acc: jax.Array, mass: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Half a kick, a drift, half a kick."""
    vel = vel + 0.5 * TIME_STEP * acc
    pos = pos + TIME_STEP * vel
    acc = acceleration(pos, mass)
    return pos, vel + 0.5 * TIME_STEP * acc, acc


def build(*, bodies: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in pair interactions."""
    n = bodies or BODIES.get(jax.default_backend(), BODIES["cpu"])
    pos, vel = plummer(np.random.default_rng(0), n)
    mass = jnp.full(n, 1.0 / n, jnp.float32)
    acc = jax.jit(acceleration)(pos, mass)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2)),
        "args": (pos, vel, acc, mass),
        "carry": 3,
        "work": n * n,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, mass = made["step"], made["args"][3]
    state = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        state = run(*state, mass)
    jax.block_until_ready(state)
    print(f"nbody: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, {mass.size} bodies")


if __name__ == "__main__":
    main()
