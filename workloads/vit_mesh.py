"""Training step of a vision transformer on a two-dimensional mesh: images along one axis, neurons along the other.

The shape of the mesh, the batch, what is computed anew backward and the precision are knobs: with more devices along
"model" the sum of the gradients becomes smaller, and two sums of activations a layer come in. On GPUs it has the size
of ViT-B/16 (12 layers, 768 wide, 196 patches). Momentum descent on labels that a fixed random map of the image gives,
so that the loss falls.
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

RATE, MOMENTUM = 0.02, 0.9
KNOBS = {"model": [1, 2, 4], "batch": [16, 32, 64], "remat": ["none", "dots", "all"], "dtype": ["bfloat16", "float32"]}

Params = dict[str, Any]


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    image: int
    patch: int
    classes: int
    batch: int  # images a device


SIZES = {"cpu": Size(2, 32, 4, 16, 4, 8, 2), "gpu": Size(12, 768, 12, 224, 16, 1000, 32)}

# How each array is split, by its name; the layers' are stacked along axis 0.
SPECS = {
    "qkv": P(None, None, None, "model"),
    "out": P(None, "model"),
    "up": P(None, None, "model"),
    "down": P(None, "model"),
}


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
    depth, width, patches = size.layers, size.width, (size.image // size.patch) ** 2
    seeds = itertools.count(1)

    def spread(*shape: int, fan_in: int) -> jax.Array:
        return (12 / fan_in) ** 0.5 * scattered(shape, next(seeds))

    return {
        "embed": spread(3 * size.patch**2, width, fan_in=3 * size.patch**2),
        "places": spread(patches, width, fan_in=width),
        "head": spread(width, size.classes, fan_in=width),
        "layers": {
            "norm_1": jnp.ones((depth, width)),
            "qkv": spread(depth, width, 3, width, fan_in=width),
            "out": spread(depth, width, width, fan_in=width * depth),
            "norm_2": jnp.ones((depth, width)),
            "up": spread(depth, width, 4 * width, fan_in=width),
            "down": spread(depth, 4 * width, width, fan_in=4 * width * depth),
        },
    }


def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Root-mean-square norm over the last axis, computed in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def patches_of(images: jax.Array, patch: int) -> jax.Array:
    """(batch, height, width, 3) → (batch, patches, numbers of a patch)."""
    batch, height, width, colours = images.shape
    x = images.reshape(batch, height // patch, patch, width // patch, patch, colours)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, patch * patch * colours)


def rematerialised(block: Any, remat: str) -> Any:
    """`block`, of which everything ("all") or everything but its products ("dots") is computed anew backward."""
    if remat == "none":
        return block
    return jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable if remat == "dots" else None)


def loss_of(
    params: Params, images: jax.Array, labels: jax.Array, size: Size, *, remat: str = "none", dtype: str = "bfloat16"
) -> jax.Array:
    """Mean cross-entropy of the labels, computed in `dtype`."""
    low = jax.tree.map(lambda p: p.astype(dtype), params)

    def block(x: jax.Array, layer: Params) -> tuple[jax.Array, None]:
        y = normalise(x, layer["norm_1"])
        q, k, v = jnp.moveaxis(jnp.einsum("blw,wtv->bltv", y, layer["qkv"]), 2, 0)
        q, k, v = (t.reshape(*t.shape[:2], size.heads, -1) for t in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / q.shape[-1] ** 0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1).astype(x.dtype), v)
        x = x + mixed.reshape(x.shape) @ layer["out"]
        return x + jax.nn.gelu(normalise(x, layer["norm_2"]) @ layer["up"]) @ layer["down"], None

    x = patches_of(images, size.patch).astype(dtype) @ low["embed"] + low["places"]
    x, _ = jax.lax.scan(rematerialised(block, remat), x, low["layers"])
    logits = (jnp.mean(x, axis=1) @ low["head"]).astype(jnp.float32)
    wanted = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - wanted)


def build(*, model: int = 1, batch: int | None = None, remat: str = "none", dtype: str = "bfloat16") -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in images.

    `model`: devices along the axis of heads and neurons, the others split the batch. `batch`: images a device. `remat`:
    what each layer computes anew backward: "none", "dots" (all but its products) or "all". `dtype`: of the layers.
    """
    if remat not in KNOBS["remat"] or dtype not in KNOBS["dtype"]:
        raise ValueError(f"remat is {remat!r}, dtype {dtype!r}: there are {KNOBS['remat']} and {KNOBS['dtype']}")
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    devices = jax.devices()
    if len(devices) % model or size.heads % model:
        raise ValueError(f"{len(devices)} devices and {size.heads} heads can't be divided by {model}")
    size = size._replace(batch=(batch or size.batch) * len(devices))
    mesh = Mesh(np.array(devices).reshape(-1, model), ("data", "model"))
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(functools.partial(initial, size))
    places = jax.tree.map_with_path(lambda path, _: NamedSharding(mesh, SPECS.get(path[-1].key, P())), shapes)
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = jax.jit(initial, static_argnums=0, out_shardings=places)(size)
    speeds = jax.jit(lambda: jax.tree.map(jnp.zeros_like, shapes), out_shardings=places)()
    images = rng.standard_normal((size.batch, size.image, size.image, 3), np.float32)
    secret = rng.standard_normal((3, size.classes), np.float32)
    labels = np.argmax(images.mean(axis=(1, 2)) @ secret, axis=-1).astype(np.int32)
    images, labels = jax.device_put((images, labels), split)

    def train_step(
        params: Params, speeds: Params, images: jax.Array, labels: jax.Array
    ) -> tuple[Params, Params, jax.Array]:
        loss, slopes = jax.value_and_grad(loss_of)(params, images, labels, size, remat=remat, dtype=dtype)
        speeds = jax.tree.map(lambda v, g: MOMENTUM * v + g, speeds, slopes)
        return jax.tree.map(lambda p, v: p - RATE * v, params, speeds), speeds, loss

    return {
        "step": jax.jit(train_step, donate_argnums=(0, 1), out_shardings=(places, places, whole)),
        "args": (params, speeds, images, labels),
        "carry": 2,
        "work": size.batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, (params, speeds, *data) = made["step"], made["args"]
    params, speeds, loss = jax.block_until_ready(run(params, speeds, *data))
    start = time.perf_counter()
    for _ in range(steps):
        params, speeds, loss = run(params, speeds, *data)
    jax.block_until_ready((params, speeds, loss))
    print(f"vit_mesh: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
