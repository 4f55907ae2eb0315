"""What each workload of the suite must compute, checked in a child: python workload_checks.py NAME.

FLOPs are counted by hand and on the step's jaxpr, results against NumPy or against what is known exactly.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from workload_flops import equations, flops


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "workloads" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(one: Any, other: Any, *, tolerance: float) -> None:
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    assert one.shape == other.shape, (one.shape, other.shape)
    error = np.linalg.norm(one - other) / np.linalg.norm(other)
    assert error < tolerance, error


def falls(made: dict[str, Any], steps: int, *, by: float) -> None:
    """Training lowers the loss, the last output, by this factor at least."""
    state, rest = made["args"][: made["carry"]], made["args"][made["carry"] :]
    losses = []
    for _ in range(steps):
        *state, loss = made["step"](*state, *rest)
        losses.append(float(loss))
    assert np.mean(losses[-4:]) * by < np.mean(losses[:2]), losses


def check_matmul(module: ModuleType) -> None:
    made = module.build(size=96)
    x, w = made["args"]
    assert flops(module.step, x, w) == made["work"] == 2 * 96**3
    cost = made["step"].lower(x, w).cost_analysis()
    assert cost["flops"] == 2 * 96**3
    close(w @ w.T, np.eye(96), tolerance=1e-5)
    norm = float(jnp.linalg.norm(x))
    expected = np.asarray(w, np.float64) @ np.asarray(x, np.float64)
    out = made["step"](x, w)
    close(out, expected, tolerance=1e-5)
    assert abs(float(jnp.linalg.norm(out)) / norm - 1) < 1e-5, "an orthogonal matrix keeps the norm"


def check_pde(module: ModuleType) -> None:
    """A Taylor–Green vortex has no advection: it decays by exp(−2νt), and its stream function is ω/2."""
    cells, viscosity = 64, 0.5 / 64
    x = np.arange(cells) * 2 * np.pi / cells
    vortex = (2 * np.cos(x)[:, None] * np.cos(x)[None, :]).astype(np.float32)
    close(module.stream(jnp.asarray(vortex)), vortex / 2, tolerance=2e-3)
    now, steps = jnp.asarray(vortex), 200
    step = jax.jit(module.step)
    for _ in range(steps):
        now = step(now, viscosity)
    time = steps * module.COURANT * 2 * np.pi / cells
    close(now, vortex * np.exp(-2 * viscosity * time), tolerance=2e-3)
    assert np.exp(-2 * viscosity * time) < 0.95, "there was decay to see"
    made = module.build(cells=32)
    start = np.asarray(made["args"][0])
    u = np.gradient(np.asarray(module.stream(made["args"][0])), 2 * np.pi / 32)
    assert 0.5 < np.sqrt(u[0] ** 2 + u[1] ** 2).mean() < 1.5, "speeds are about 1"
    kinds = [e.params["fft_type"].name for e in equations(made["step"], *made["args"]) if e.primitive.name == "fft"]
    assert kinds == ["RFFT", "IRFFT"] * 2, "there and back, twice a step"
    assert abs(np.asarray(made["step"](*made["args"])).mean() - start.mean()) < 1e-5, "circulation stays"


def check_sort(module: ModuleType) -> None:
    made = module.build(records=1000, group_bits=4)
    key, value = (np.asarray(a) for a in made["args"])
    new = np.asarray(module.scramble(jnp.asarray(key)))
    assert len(np.unique(new)) == 1000, "a bijection keeps keys apart"
    order = np.argsort(new, kind="stable")
    out = made["step"](jnp.asarray(key), jnp.asarray(value))
    assert np.array_equal(out[0], new[order])
    assert np.array_equal(out[1], value[order])
    close(out[2], np.bincount(new >> 28, weights=value, minlength=16), tolerance=1e-5)
    assert np.bincount(new >> 28).max() < 2 * 1000 / 16, "keys are spread evenly"


def check_scatter(module: ModuleType) -> None:
    made = module.build(nodes=100, edges=400, channels=3)
    now, before, source, target = (np.asarray(a) for a in made["args"])
    assert made["work"] == source.size == target.size == 800
    adjacency = np.zeros((100, 100))
    np.add.at(adjacency, (target, source), 1)
    assert np.array_equal(adjacency, adjacency.T), "edges run both ways"
    degree = adjacency.sum(axis=1)
    assert degree.min() >= 1
    assert degree.max() > 3 * np.median(degree), "degrees are skewed"
    laplacian = np.eye(100) - adjacency / degree[:, None]
    out = jax.jit(module.step)(now, before, source, target)
    close(out[0], 2 * now - before - module.SPEED_2 * laplacian @ now, tolerance=1e-5)
    assert np.array_equal(out[1], now)
    flat = np.ones((100, 3), np.float32)
    close(jax.jit(module.step)(flat, flat, source, target)[0], flat, tolerance=1e-6)
    assert module.SPEED_2 * np.abs(np.linalg.eigvals(laplacian)).max() < 4, "the waves stay bounded"


def check_rnn(module: ModuleType) -> None:
    length, batch, inputs, hidden = 12, 4, 8, 16
    made = module.build(length=length, batch=batch, hidden=hidden)
    params, _, _, data = made["args"]
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    h, expected = np.zeros((batch, hidden)), []
    for x in np.asarray(data[0], np.float64):
        given = x @ p["from_input"]
        z, r = np.split(1 / (1 + np.exp(-(given[:, : 2 * hidden] + h @ p["from_gated"]))), 2, axis=1)
        h = z * h + (1 - z) * np.tanh(given[:, 2 * hidden :] + (r * h) @ p["from_reset"])
        expected.append(h)
    close(jax.jit(module.run_over)(params, data[0]), expected, tolerance=1e-5)
    # From and to the hidden state: forwards, and twice that backwards; no gradient is asked of the inputs.
    rows = length * batch
    by_hand = 3 * 2 * rows * hidden * 3 * hidden + 2 * 2 * rows * inputs * 3 * hidden
    by_hand += 3 * 2 * (length - module.LAG) * batch * hidden * inputs
    assert flops(module.step, *made["args"]) == by_hand
    loops = [e.params["length"] for e in equations(module.step, *made["args"]) if e.primitive.name == "scan"]
    assert loops == [length, length], "one loop there, one back"
    falls(made, 60, by=1.05)


def check_attention(module: ModuleType) -> None:
    made = {form: module.build(length=64, form=form) for form in module.FORMS}
    batch, length, width = made["xla"]["args"][2].shape[1:]
    heads = module.SIZES["cpu"].heads
    q, k, v = np.random.default_rng(1).standard_normal((3, batch, length, heads, width // heads)).astype(np.float32)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
    weights = np.exp(np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf))
    expected = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)
    for attend in module.FORMS.values():
        close(jax.jit(attend)(q, k, v), expected, tolerance=1e-5)
    # Projections forwards and, of the weights alone, backwards for the first; scores and sums three times each.
    projections = 2 * batch * length * width * (2 * 3 * width + 3 * width)
    pairs = 3 * 2 * 2 * batch * length**2 * width
    assert flops(made["xla"]["step"], *made["xla"]["args"]) == projections + pairs
    losses = [float(m["step"](*m["args"])[-1]) for m in made.values()]
    assert abs(losses[0] / losses[1] - 1) < 1e-2, losses
    falls(module.build(length=64), 40, by=1.02)


def check_decode(module: ModuleType) -> None:
    """A cache filled token by token gives what attention over the whole sequence gives."""
    made = module.build(places=16)
    params = made["args"][3]
    logits_of = jax.jit(module.logits_of)
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    for layer in wide["layers"].values():  # each product keeps the size of what it is given
        assert abs(float(layer.mean()) * layer.size**0.5) < 4 * float(layer.std())
        assert abs(float(layer.std()) * layer.shape[1] ** 0.5 - 1) < 0.02
    cache, sequence = jnp.zeros(made["args"][0].shape, jnp.float32), [1, 5, 2, 300, 7, 7]
    for place, token in enumerate(sequence):
        cache, logits = logits_of(cache, jnp.int32(token), jnp.int32(place), wide)
    close(logits, whole(jax.device_get(wide), np.array(sequence), module.SIZES["cpu"].heads), tolerance=1e-4)
    size = module.SIZES["cpu"]
    width, heads = size.width, size.heads
    layer = width * 3 * width + width * width + 3 * width * size.hidden + 2 * 16 * width
    assert flops(module.step, *made["args"]) == 2 * (size.layers * layer + width * size.vocabulary)
    cache, _, place, _ = made["step"](*made["args"])
    assert (int(place), cache.shape) == (9, (size.layers, 2, 16, heads, width // heads))
    assert np.asarray(cache, np.float32)[:, :, 8].any(), "the token's own key and value are kept"
    assert not np.asarray(cache, np.float32)[:, :, 9:].any(), "what lies ahead is empty"
    assert made["work"] == 1


def whole(params: dict[str, Any], tokens: np.ndarray, heads: int) -> np.ndarray:
    """Logits after the last token, by attention over all tokens at once, in NumPy."""

    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)

    def turn(x: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        wave = np.exp(1j * np.arange(len(x))[:, None] / 10000 ** (np.arange(half) / half))[:, None]
        turned = (x[..., :half] + 1j * x[..., half:]) * wave
        return np.concatenate([turned.real, turned.imag], axis=-1)

    x = params["tokens"][tokens].astype(np.float64)
    layers = params["layers"]
    for i in range(len(layers["qkv"])):
        q, k, v = ((norm(x) @ w).reshape(len(x), heads, -1) for w in np.split(layers["qkv"][i], 3, axis=1))
        scores = np.einsum("qhd,khd->hqk", turn(q), turn(k)) / q.shape[-1] ** 0.5
        scores = np.exp(np.where(np.tri(len(x), dtype=bool), scores, -np.inf))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v)
        x = x + mixed.reshape(x.shape) @ layers["out"][i]
        gate, up = np.split(norm(x) @ layers["gate_up"][i], 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layers["down"][i]
    return (norm(x) @ params["logits"])[-1]


def check_vit(module: ModuleType) -> None:
    made = module.build()
    size = module.SIZES["cpu"]
    patches, width = (size.image // size.patch) ** 2, size.width
    rows = size.batch * patches
    layer = 2 * rows * 12 * width**2 + 2 * 2 * size.batch * patches**2 * width
    first, last = 2 * rows * 3 * size.patch**2 * width, 2 * size.batch * width * size.classes
    assert flops(made["step"], *made["args"]) == 3 * (size.layers * layer + last) + 2 * first
    params, images = made["args"][0], made["args"][4][0]
    logits_of = jax.jit(lambda images: module.logits_of(params, images, size))
    assert logits_of(images).shape == (size.batch, size.classes)
    swapped = images.at[0].set(images[1]).at[1].set(images[0])
    one, other = (np.asarray(logits_of(i)) for i in (images, swapped))
    close(one[[1, 0]], other[:2], tolerance=1e-2)
    big = module.SIZES["gpu"]
    shapes = jax.eval_shape(lambda: module.initial(np.random.default_rng(0), big._replace(layers=1)))
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes)) + 11 * 12 * big.width**2
    assert 80e6 < count < 90e6, "the size of ViT-B/16"
    falls(made, 60, by=2.0)


def check_conv(module: ModuleType) -> None:
    made = module.build()
    size = module.SIZES["cpu"]
    params, images = made["args"][0], made["args"][3][0]
    by_hand, stem = forward_flops(size, params)
    assert flops(module.logits_of, params, images) == by_hand
    # Backwards twice that, but for the stem, whose input needs no gradient. Transposed convolutions with strides count
    # the zeros between their inputs, so the jaxpr has more.
    trained = flops(made["step"], *made["args"])
    assert 3 * by_hand - stem <= trained <= 5 * by_hand, (trained, by_hand)
    x = np.random.default_rng(1).standard_normal((2, 5, 5, 3)).astype(np.float32)
    layer = {"kernel": np.zeros((3, 3, 3, 4), np.float32), "scale": np.float32(2), "shift": np.float32(1)}
    layer["kernel"][1, 1, 1] = 1.0  # every output is input channel 1, where it is
    y = np.asarray(jax.jit(module.convolve)(x, layer))
    close(y[..., 0], 2 * (x[..., 1] - x[..., 1].mean()) / x[..., 1].std() + 1, tolerance=1e-4)
    big = module.SIZES["gpu"]
    shapes = jax.eval_shape(lambda: module.initial(np.random.default_rng(0), big))
    assert 25e6 < sum(leaf.size for leaf in jax.tree.leaves(shapes)) < 26e6, "the size of ResNet-50"
    assert 4.0e9 < forward_flops(big._replace(batch=1), shapes)[0] / 2 < 4.2e9, "4.1 billion multiply-adds an image"
    falls(made, 30, by=3.0)


def forward_flops(size: Any, params: dict[str, Any]) -> tuple[int, int]:
    """Operations of a pass forwards, of the layers' shapes alone, and those of the stem."""

    def conv(layer: dict[str, Any], side: int) -> int:
        return int(2 * size.batch * side**2 * np.prod(layer["kernel"].shape))

    side = size.image // 2
    stem = total = conv(params["stem"], side)
    side //= 2
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            before, side = side, side // 2 if stage and not index else side
            total += conv(block["in"], before) + sum(conv(block[n], side) for n in block if n != "in")
    return total + 2 * size.batch * int(np.prod(params["head"].shape)), stem


if __name__ == "__main__":
    globals()[f"check_{sys.argv[1]}"](load(sys.argv[1]))
    print("fine")
