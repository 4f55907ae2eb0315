"""The smallest change of an input: every floating value moved by one unit in the last place, up or down at random."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["nudged"]

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def nudged(values: np.ndarray[Any, Any], seed: int) -> np.ndarray[Any, Any]:
    """A copy of `values` (any dtype, ml_dtypes' narrow floats too) with each non-zero finite float moved by one ulp.

    Zeros, infinities, NaN stay (a padding or a mask must remain one), nothing crosses zero or overflows, and other
    dtypes are returned as they are. The directions depend on `seed` and the shape alone.
    """
    if values.dtype.kind == "c":
        parts = np.ascontiguousarray(values).view(values.real.dtype)
        moved: np.ndarray[Any, Any] = nudged(parts, seed).view(values.dtype).reshape(values.shape)
        return moved
    bits = _float_bits(values.dtype)
    if bits is None or values.size == 0:
        return values.copy()
    unsigned = _UNSIGNED[values.dtype.itemsize]
    raw = np.ascontiguousarray(values).view(unsigned).reshape(values.shape)
    sign = unsigned(1 << (bits - 1))
    magnitude = raw & ~sign
    up = np.random.default_rng(seed).integers(0, 2, size=values.shape, dtype=np.uint8).astype(bool)
    larger, smaller = magnitude + unsigned(1), magnitude - unsigned(1)
    larger_fits = np.isfinite(larger.view(values.dtype).reshape(values.shape))
    steps = np.where(larger_fits & (up | (smaller == 0)), larger, smaller)
    stays = (magnitude == 0) | ~np.isfinite(values)
    result: np.ndarray[Any, Any] = np.where(stays, raw, steps | (raw & sign)).view(values.dtype)
    return result


def _float_bits(dtype: np.dtype[Any]) -> int | None:
    """Width of a floating dtype that fills its bytes; None for others (also for the sub-byte floats)."""
    try:
        bits = int(ml_dtypes.finfo(dtype).bits)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return bits if bits == 8 * dtype.itemsize else None
