"""A training step in NumPy with harmless and harmful variants, and its outputs compared as a worker compares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tuner.protocol.messages import LeafStats, NumericsReply

Array = NDArray[Any]
Outputs = dict[str, Array]

BATCH, WIDTH, HIDDEN, CLASSES = 64, 48, 96, 10
RATE = 0.05


def initial(seed: int = 0) -> Outputs:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((BATCH, WIDTH)).astype(np.float32),
        "w1": (rng.standard_normal((WIDTH, HIDDEN)) / 7).astype(np.float32),
        "b1": (0.1 * rng.standard_normal(HIDDEN)).astype(np.float32),
        "w2": (rng.standard_normal((HIDDEN, CLASSES)) / 10).astype(np.float32),
    }


def nudged(inputs: Outputs, seed: int) -> Outputs:
    """Every value moved by one unit in the last place, up or down."""
    rng = np.random.default_rng(seed)
    return {
        k: np.nextafter(v, np.where(rng.random(v.shape) < 0.5, np.inf, -np.inf).astype(v.dtype))
        for k, v in inputs.items()
    }


def matmul(a: Array, b: Array, order: int) -> Array:
    """float32; `order` > 0 adds the products up one by one in another order, as another kernel would."""
    if order == 0:
        return a @ b
    terms = np.random.default_rng(order).permutation(a.shape[1])
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in terms:
        total += a[:, i : i + 1] * b[i : i + 1]
    return total


def train(
    inputs: Outputs,
    steps: int,
    *,
    order: int = 0,
    rounded: Callable[[Array], Array] = lambda a: a,
    stored: Callable[[Array], Array] = lambda a: a,
    gradient: Callable[[Outputs], Outputs] = lambda g: g,
) -> Outputs:
    """Loss, parameters and predicted classes after `steps` steps.

    `rounded` is applied to every matmul's operands, `stored` to every intermediate result: a fused kernel keeps those
    in registers, an unfused one rounds them to memory.
    """
    x, params = inputs["x"], {k: inputs[k] for k in ("w1", "b1", "w2")}
    target = x[:, :CLASSES]
    loss = np.float32(0)
    for _ in range(steps):
        h = np.tanh(stored(stored(matmul(rounded(x), rounded(params["w1"]), order)) + params["b1"]))
        error = stored(stored(matmul(rounded(h), rounded(params["w2"]), order)) - target)
        loss = np.float32(np.mean(error**2))
        back = stored(stored(matmul(rounded(error), rounded(params["w2"].T), order)) * (1 - h**2))
        gradients = gradient(
            {
                "w1": matmul(rounded(x.T), rounded(back), order) / BATCH,
                "b1": back.mean(axis=0),
                "w2": matmul(rounded(h.T), rounded(error), order) / BATCH,
            }
        )
        params = {k: (v - np.float32(RATE) * gradients[k]).astype(np.float32) for k, v in params.items()}
    out = {"loss": np.asarray(loss), **params, **{f"d{k}": g for k, g in gradients.items()}}
    return {**out, "classes": np.argmax(error + target, axis=1).astype(np.int32)}


def compared(reference: Outputs, candidate: Outputs, *, steps: int = 1) -> tuple[LeafStats, ...]:
    return tuple(leaf_stats(f"out[{k!r}]", r, candidate[k], steps=steps) for k, r in reference.items())


def reply(*parts: tuple[LeafStats, ...]) -> NumericsReply:
    return NumericsReply(leaves=tuple(leaf for part in parts for leaf in part))


def leaf(
    l2: float, slope: float = 0.0, *, dtype: str = "float32", steps: int = 1, shape: tuple[int, ...] = (100,)
) -> LeafStats:
    """What was found of one output."""
    return LeafStats(
        path="out", dtype=dtype, size=math.prod(shape), shape=shape, steps=steps, l2=l2, slope=slope, masks_equal=True
    )


def leaf_stats(path: str, reference: Array, candidate: Array, *, steps: int = 1) -> LeafStats:
    """The formulas of LeafStats."""
    fields: Mapping[str, Any] = {
        "path": path,
        "dtype": str(reference.dtype),
        "size": reference.size,
        "shape": reference.shape,
        "steps": steps,
    }
    if reference.dtype.kind in "iub":
        return LeafStats(**fields, l2=float(np.mean(reference != candidate)), slope=0.0, masks_equal=True)
    r, c = np.atleast_1d(reference).astype(np.float64), np.atleast_1d(candidate).astype(np.float64)
    masks = [(np.isnan(a), np.isposinf(a), np.isneginf(a)) for a in (r, c)]
    finite = np.isfinite(r) & np.isfinite(c)
    d, r = np.where(finite, c - np.where(finite, r, 0), 0), np.where(finite, r, 0)
    slopes = []
    for axis in range(r.ndim):
        others = tuple(a for a in range(r.ndim) if a != axis)
        norms = (r**2).sum(axis=others)
        slopes.append(float(np.max(np.abs((d * r).sum(axis=others)) / np.maximum(norms, norms.mean()))))
    return LeafStats(
        **fields,
        l2=float(math.sqrt((d**2).sum() / (r**2).sum())),
        slope=max(slopes),
        masks_equal=all(np.array_equal(a, b) for a, b in zip(*masks, strict=True)),
    )


def to_bfloat16(a: Array) -> Array:
    return a.astype(ml_dtypes.bfloat16)


def as_tf32(a: Array) -> Array:
    """Operands with 10 bits of mantissa, as a tensor core takes float32 unless told otherwise."""
    bits = np.ascontiguousarray(a, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
