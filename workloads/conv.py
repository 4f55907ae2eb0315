"""Training step of a residual convolutional network: bottleneck blocks, batch norm, bfloat16 compute, momentum.

On a GPU it has the layers of ResNet-50 (25 million parameters, 128 images of 224 × 224); channels come last. The
classes are told apart by the direction of a wave in the image. Source: He et al. 2015; norms without running averages,
since the step only trains.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BATCHES = 2
RATE, MOMENTUM = 0.05, 0.9
WIDER = 4  # a block's output over its inner width

Params = dict[str, Any]


class Size(NamedTuple):
    blocks: tuple[int, ...]  # a stage
    width: int  # inner width of the first stage; it doubles with each
    image: int
    classes: int
    batch: int


SIZES = {"cpu": Size((1, 1), 8, 32, 8, 4), "gpu": Size((3, 4, 6, 3), 64, 224, 1000, 128)}


def initial(rng: np.random.Generator, size: Size) -> Params:
    """Kernels (height, width, in, out) and the scale and shift of the norm behind each."""

    def conv(side: int, inputs: int, outputs: int) -> Params:
        kernel = rng.standard_normal((side, side, inputs, outputs), np.float32) * (2 / (side**2 * inputs)) ** 0.5
        return {"kernel": jnp.asarray(kernel), "scale": jnp.ones(outputs), "shift": jnp.zeros(outputs)}

    stages, inputs = [], size.width
    for stage, count in enumerate(size.blocks):
        inner = size.width << stage
        blocks = []
        for index in range(count):
            block = {"in": conv(1, inputs, inner), "mid": conv(3, inner, inner), "out": conv(1, inner, WIDER * inner)}
            if index == 0:
                block["across"] = conv(1, inputs, WIDER * inner)
            inputs = WIDER * inner
            blocks.append(block)
        stages.append(blocks)
    head = jnp.asarray(rng.standard_normal((inputs, size.classes), np.float32) / inputs**0.5)
    return {"stem": conv(7, 3, size.width), "stages": stages, "head": head}


def convolve(x: jax.Array, layer: Params, stride: int = 1) -> jax.Array:
    """Convolution and batch norm of x (batch, height, width, channels); the norm is computed in float32."""
    y = jax.lax.conv_general_dilated(
        x, layer["kernel"].astype(x.dtype), (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    y = jax.nn.standardize(y.astype(jnp.float32), axis=(0, 1, 2))
    return (y * layer["scale"] + layer["shift"]).astype(x.dtype)


def bottleneck(x: jax.Array, block: Params, stride: int) -> jax.Array:
    y = jax.nn.relu(convolve(x, block["in"]))
    y = jax.nn.relu(convolve(y, block["mid"], stride))
    across = convolve(x, block["across"], stride) if "across" in block else x
    return jax.nn.relu(across + convolve(y, block["out"]))


def logits_of(params: Params, images: jax.Array) -> jax.Array:
    """(batch, image, image, 3) → (batch, classes)."""
    x = jax.nn.relu(convolve(images, params["stem"], 2))
    x = jax.lax.reduce_window(x, np.array(-np.inf, x.dtype), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            x = bottleneck(x, block, stride=2 if stage and not index else 1)
    return x.astype(jnp.float32).mean(axis=(1, 2)) @ params["head"]


def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    chances = jax.nn.log_softmax(logits_of(params, images))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


def step(
    params: Params, speed: Params, count: jax.Array, images: jax.Array, labels: jax.Array
) -> tuple[Params, Params, jax.Array, jax.Array]:
    """One step of gradient descent with momentum on the next batch; the last output is its loss."""
    at = count % images.shape[0]
    loss, grads = jax.value_and_grad(loss_of)(params, images[at], labels[at])
    speed = jax.tree.map(lambda s, g: MOMENTUM * s - RATE * g, speed, grads)
    return jax.tree.map(jnp.add, params, speed), speed, count + 1, loss


def waves(rng: np.random.Generator, size: Size) -> tuple[jax.Array, jax.Array]:
    """Images (batches, batch, image, image, 3) in bfloat16 of noisy waves, and the classes of their directions."""
    labels = rng.integers(size.classes, size=(BATCHES, size.batch))
    angle = (np.pi * labels / size.classes)[..., None, None]
    x, y = np.meshgrid(*2 * [np.linspace(0, 6 * np.pi, size.image)])
    wave = np.sin(np.cos(angle) * x + np.sin(angle) * y).astype(np.float32)
    noise = rng.standard_normal((*wave.shape, 3), np.float32)
    return jnp.asarray(wave[..., None] + noise, jnp.bfloat16), jnp.asarray(labels, jnp.int32)


def build(*, batch: int | None = None, image: int | None = None) -> dict[str, Any]:
    """The jitted step with its first arguments; work is counted in images."""
    size = SIZES.get(jax.default_backend(), SIZES["cpu"])
    size = size._replace(batch=batch or size.batch, image=image or size.image)
    rng = np.random.default_rng(0)
    params = initial(rng, size)
    speed = jax.tree.map(jnp.zeros_like, params)
    return {
        "step": jax.jit(step, donate_argnums=(0, 1, 2)),
        "args": (params, speed, jnp.int32(0), *waves(rng, size)),
        "carry": 3,
        "work": size.batch,
    }


def main(steps: int = 20) -> None:
    made = build()
    run, data = made["step"], made["args"][3:]
    *state, loss = jax.block_until_ready(run(*made["args"]))
    start = time.perf_counter()
    for _ in range(steps):
        *state, loss = run(*state, *data)
    jax.block_until_ready((state, loss))
    print(f"conv: {(time.perf_counter() - start) / steps * 1e3:.2f} ms a step, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
