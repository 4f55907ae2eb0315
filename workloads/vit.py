"""Training step of a vision transformer: patches, layers in a row without a loop, bfloat16 compute, Adam.

On a GPU it has the size of ViT-B/16 (12 layers, 768 wide, 86 million parameters, 128 images of 224 × 224 in 196
patches). The classes are told apart by the direction of a wave in the image. Source: Dosovitskiy et al. 2021; mean over
patches in place of a class token.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BATCHES = 2
RATE, DECAY_1, DECAY_2, EPSILON = 1e-3, 0.9, 0.99, 1e-8

Params = dict[str, Any]


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    image: int
    patch: int
    classes: int
    batch: int


SIZES = {"cpu": Size(2, 32, 2, 16, 4, 8, 8), "gpu": Size(12, 768, 12, 224, 16, 1000, 128)}


def initial(rng: np.random.Generator, size: Size) -> Params:
    def normal(rows: int, columns: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((rows, columns), np.float32) / rows**0.5)

    width = size.width
    layers = [
        {
            "qkv": normal(width, 3 * width),
            "out": normal(width, width),
            "up": normal(width, 4 * width),
            "down": normal(4 * width, width),
        }
        for _ in range(size.layers)
    ]
    places = jnp.asarray(0.02 * rng.standard_normal(((size.image // size.patch) ** 2, width), np.float32))
    return {
        "patches": normal(3 * size.patch**2, width),
        "places": places,
        "layers": layers,
        "classes": normal(width, size.classes),
    }


def normalise(x: jax.Array) -> jax.Array:
    """Layer norm without parameters, computed in float32."""
    return jax.nn.standardize(x.astype(jnp.float32), axis=-1).astype(x.dtype)


def attention(x: jax.Array, layer: Params, heads: int) -> jax.Array:
    """Attention of all patches to all, x (batch, patches, width)."""
    q, k, v = (t.reshape(*x.shape[:2], heads, -1) for t in jnp.split(x @ layer["qkv"], 3, axis=-1))
    return jax.nn.dot_product_attention(q, k, v).reshape(x.shape) @ layer["out"]


def logits_of(params: Params, images: jax.Array, size: Size) -> jax.Array:
    """(batch, image, image, 3) → (batch, classes)."""
    low = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    side, patch = size.image // size.patch, size.patch
    cut = images.reshape(-1, side, patch, side, patch, 3).swapaxes(2, 3).reshape(-1, side**2, 3 * patch**2)
    x = cut @ low["patches"] + low["places"]
    for layer in low["layers"]:
        x = x + attention(normalise(x), layer, size.heads)
        x = x + jax.nn.gelu(normalise(x) @ layer["up"]) @ layer["down"]
    return (normalise(x).mean(axis=1) @ low["classes"]).astype(jnp.float32)


def loss_of(params: Params, images: jax.Array, labels: jax.Array, size: Size) -> jax.Array:
    """Mean cross-entropy."""
    chances = jax.nn.log_softmax(logits_of(params, images, size))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


def adam(count: jax.Array, grad: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Change of a parameter and its new first and second moment."""
    m = DECAY_1 * m + (1 - DECAY_1) * grad
    v = DECAY_2 * v + (1 - DECAY_2) * grad**2
    scale = RATE * jnp.sqrt(1 - DECAY_2**count) / (1 - DECAY_1**count)
    return -scale * m / (jnp.sqrt(v) + EPSILON), m, v


def waves(rng: np.random.Generator, size: Size) -> tuple[jax.Array, jax.Array]:
    """Images (batches, batch, image, image, 3) in bfloat16 of noisy waves, and the classes of their directions."""
    labels = rng.integers(size.classes, size=(BATCHES, size.batch))
    angle = (np.pi * labels / size.classes)[..., None, None]
    x, y = np.meshgrid(*2 * [np.linspace(0, 6 * np.pi, size.image)])
    wave = np.sin(np.cos(angle) * x + np.sin(angle) * y).astype(np.float32)
    noise = rng.standard_normal((*wave.shape, 3), np.float32)
    return jnp.asarray(wave[..., None] + noise, jnp.bfloat16), jnp.asarray(labels, jnp.int32)


def build(*, layers: int | None = None, batch: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in images."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(layers=layers or size.layers, batch=batch or size.batch)

    def step(
        params: Params, first: Params, second: Params, count: jax.Array, images: jax.Array, labels: jax.Array
    ) -> tuple[Params, Params, Params, jax.Array, jax.Array]:
        at = count % BATCHES
        loss, grads = jax.value_and_grad(loss_of)(params, images[at], labels[at], size)
        moved = jax.tree.map(lambda g, m, v: adam(count + 1, g, m, v), grads, first, second)
        change, first, second = jax.tree.transpose(jax.tree.structure(grads), jax.tree.structure((0, 0, 0)), moved)
        return jax.tree.map(jnp.add, params, change), first, second, count + 1, loss

    rng = np.random.default_rng(0)
    params = initial(rng, size)
    first, second = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2, 3)),
        "args": (params, first, second, jnp.int32(0), *waves(rng, size)),
        "carry": 4,
        "work": size.batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][4:]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, *data)
    jax.block_until_ready((state, loss))
    print(f"vit: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
