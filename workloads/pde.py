"""Two-dimensional turbulence in a periodic box: stencils for the vorticity, FFTs for its stream function, float32.

∂ω/∂t = −u·∇ω + ν∇²ω with ∇²ψ = −ω, u = (∂ψ/∂y, −∂ψ/∂x): central differences of second order, midpoint rule in time.
The flow starts from random waves with unit speed and decays slowly.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CELLS = {"cpu": 128, "gpu": 4096}
COURANT = 0.2
MODES = 8


def shift(field: jax.Array, *, x: int = 0, y: int = 0) -> jax.Array:
    """The value at the cell that lies (x, y) further on."""
    return jnp.roll(field, (-x, -y), (0, 1))


def stream(vorticity: jax.Array) -> jax.Array:
    """ψ of zero mean with ∇²ψ = −ω, for the five-point Laplacian, on the box of side 2π."""
    cells = vorticity.shape[0]
    spacing = 2 * jnp.pi / cells
    eigenvalue = (2 * jnp.sin(jnp.arange(cells) * jnp.pi / cells) / spacing) ** 2
    square = eigenvalue[:, None] + eigenvalue[None, : cells // 2 + 1]
    inverse = jnp.where(square > 0, 1 / jnp.where(square > 0, square, 1), 0)
    return jnp.fft.irfft2(jnp.fft.rfft2(vorticity) * inverse, s=vorticity.shape)


def rate(vorticity: jax.Array, viscosity: jax.Array) -> jax.Array:
    """∂ω/∂t, shape (cells, cells)."""
    spacing = 2 * jnp.pi / vorticity.shape[0]
    psi = stream(vorticity)
    along_x, along_y = ((shift(f, x=1) - shift(f, x=-1), shift(f, y=1) - shift(f, y=-1)) for f in (psi, vorticity))
    advection = (along_x[1] * along_y[0] - along_x[0] * along_y[1]) / (4 * spacing**2)
    around = shift(vorticity, x=1) + shift(vorticity, x=-1) + shift(vorticity, y=1) + shift(vorticity, y=-1)
    return viscosity * (around - 4 * vorticity) / spacing**2 - advection


def step(vorticity: jax.Array, viscosity: jax.Array) -> jax.Array:
    """One step of the midpoint rule."""
    dt = COURANT * 2 * jnp.pi / vorticity.shape[0]
    middle = vorticity + dt / 2 * rate(vorticity, viscosity)
    return vorticity + dt * rate(middle, viscosity)


def waves(rng: np.random.Generator, cells: int) -> jax.Array:
    """Vorticity of random waves of up to `MODES` periods, root mean square speed 1."""
    spectrum = np.zeros((cells, cells // 2 + 1), complex)
    k = np.fft.fftfreq(cells, 1 / cells)[:, None] ** 2 + np.arange(cells // 2 + 1)[None, :] ** 2
    chosen = (k > 0) & (k <= MODES**2)
    spectrum[chosen] = rng.standard_normal(chosen.sum()) + 1j * rng.standard_normal(chosen.sum())
    speed = np.std(np.fft.irfft2(spectrum / np.sqrt(np.where(k > 0, k, 1)), s=(cells, cells)))
    return jnp.asarray(np.fft.irfft2(spectrum, s=(cells, cells)) / speed, jnp.float32)


def build(*, cells: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in cells."""
    cells = cells or CELLS.get(jax.default_backend(), CELLS["cpu"])
    vorticity = waves(np.random.default_rng(0), cells)
    viscosity = jnp.float32(1.0 / (8 * cells))
    return {"step": jax.jit(step, donate_argnums=0), "args": (vorticity, viscosity), "carry": 1, "work": cells**2}


def main(steps: int = 50) -> None:
    made = build()
    run, (vorticity, viscosity) = made["step"], made["args"]
    vorticity = jax.block_until_ready(run(vorticity, viscosity))
    start = time.perf_counter()
    for _ in range(steps):
        vorticity = run(vorticity, viscosity)
    jax.block_until_ready(vorticity)
    print(f"pde: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, {made['work']} cells")


if __name__ == "__main__":
    main()
