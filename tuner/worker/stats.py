"""How far one array is from another: relative L2 and the regression slope of every slice along every axis."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["MAX_RATIO", "Difference", "compared", "compared_on_device"]

MAX_RATIO = 1e300
"""Stands for "any difference from a reference that is zero": JSON has no infinity."""

_CHUNK = 1 << 22  # elements that are widened to 64 bits at once on the host


@dataclass(frozen=True)
class Difference:
    """See `tuner.protocol.messages.LeafStats`."""

    l2: float
    slope: float
    masks_equal: bool


_SAME = Difference(0.0, 0.0, True)


def compared(reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any]) -> Difference:
    """`candidate` against `reference`, two host arrays of one shape. Sums run in float64; equal arrays give exactly 0.

    Host arithmetic on purpose: the settings under test act on everything that XLA compiles in this process.
    """
    if reference.size == 0:
        return _SAME
    if not (_is_float(reference.dtype) and _is_float(candidate.dtype)):
        return Difference(float(np.mean(reference != candidate)), 0.0, True)
    reference, candidate = _real(np, reference), _real(np, candidate)
    with np.errstate(all="ignore"):  # infinities and NaN are data here
        scale = _scale(max(float(_largest(np, r, c)) for r, c in _chunks(reference, candidate)))
        dots = [np.zeros(n) for n in reference.shape]
        norms = [np.zeros(n) for n in reference.shape]
        total, masks = 0.0, True
        row = 0
        for r, c in _chunks(reference, candidate):
            sums = _sums(np, r, c, scale)
            total += float(sums[0])
            masks = masks and bool(sums[1])
            for axis, (dot, norm) in enumerate(zip(sums[2], sums[3], strict=True)):
                place = slice(row, row + len(r)) if axis == 0 else slice(None)
                dots[axis][place] += dot
                norms[axis][place] += norm
            row += len(r)
    return _finished(total, masks, dots, norms)


def compared_on_device(reference: Any, candidate: jax.Array) -> Difference:
    """The same for arrays that live on an accelerator, where moving them costs more than the sums."""
    if not (_is_float(reference.dtype) and _is_float(candidate.dtype)):
        return Difference(float(jnp.mean(reference != candidate)), 0.0, True)
    with jax.enable_x64(True):
        scale = _scale(float(_largest_on_device(reference, candidate)))
        total, masks, dots, norms = jax.device_get(_sums_on_device(reference, candidate, scale))
    return _finished(float(total), bool(masks), dots, norms)


def _sums(xp: Any, reference: Any, candidate: Any, scale: float) -> tuple[Any, Any, list[Any], list[Any]]:
    """‖c − r‖², whether the masks agree, and for each axis ⟨c − r, r⟩ and ‖r‖² of its slices, r and c over `scale`."""
    r, c = reference.astype(xp.float64), candidate.astype(xp.float64)
    masks = xp.all(
        (xp.isnan(r) == xp.isnan(c)) & (xp.isposinf(r) == xp.isposinf(c)) & (xp.isneginf(r) == xp.isneginf(c))
    )
    finite = xp.isfinite(r) & xp.isfinite(c)
    d = xp.where(finite, c / scale - r / scale, 0.0)
    r = xp.where(finite, r / scale, 0.0)
    axes = [tuple(a for a in range(r.ndim) if a != axis) for axis in range(r.ndim)]
    return xp.sum(d * d), masks, [xp.sum(d * r, axis=a) for a in axes], [xp.sum(r * r, axis=a) for a in axes]


def _largest(xp: Any, reference: Any, candidate: Any) -> Any:
    """Largest finite magnitude in either; squares of values over it can't overflow."""
    r, c = xp.abs(reference.astype(xp.float64)), xp.abs(candidate.astype(xp.float64))
    return xp.maximum(xp.max(xp.where(xp.isfinite(r), r, 0.0)), xp.max(xp.where(xp.isfinite(c), c, 0.0)))


def _scale(largest: float) -> float:
    """A power of two near `largest`: dividing by it is exact."""
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1000)) if largest > 0 else 1.0


def _finished(total: float, masks: bool, dots: Any, norms: Any) -> Difference:
    squared = float(np.sum(norms[0]))
    l2 = _ratio(math.sqrt(total), math.sqrt(squared))
    slopes = [0.0]
    for dot, norm in zip(dots, norms, strict=True):
        floor = np.maximum(norm, np.mean(norm))
        if (weight := float(np.max(floor))) > 0:
            slopes.append(float(np.max(np.abs(dot) / np.where(floor > 0, floor, weight))))
    return Difference(l2, max(slopes), masks)


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return min(part / whole, MAX_RATIO) if whole > 0 else MAX_RATIO


def _real(xp: Any, array: Any) -> Any:
    """`array` with real entries (a complex one gets an axis for its parts) and at least one axis."""
    if array.dtype.kind == "c":
        array = xp.stack([array.real, array.imag], axis=-1)
    return array.reshape(1) if array.ndim == 0 else array


def _is_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def _chunks(*arrays: np.ndarray[Any, Any]) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    rows = max(1, _CHUNK * len(arrays[0]) // arrays[0].size)
    for start in range(0, len(arrays[0]), rows):
        yield tuple(array[start : start + rows] for array in arrays)


@jax.jit
def _largest_on_device(reference: Any, candidate: Any) -> Any:
    return _largest(jnp, _real(jnp, reference), _real(jnp, candidate))


@jax.jit
def _sums_on_device(reference: Any, candidate: Any, scale: Any) -> Any:
    return _sums(jnp, _real(jnp, reference), _real(jnp, candidate), scale)
