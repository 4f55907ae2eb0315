"""The smallest change of an input that a program can feel: every floating value moved at random by a rounding error."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["nudged"]

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PART = 1 << 18  # elements moved at a time: they stay in a core's cache, and all cores are at work on a large array


def nudged(
    values: np.ndarray[Any, Any], seed: int | Sequence[int], *, grain: float = 0.0, size: float = 1.0
) -> np.ndarray[Any, Any]:
    """A copy of `values` (any dtype, ml_dtypes' narrow floats too) with each non-zero finite float moved.

    By one ulp up or down; where `grain`, the eps of the dtype that the program computes in, is coarser than the values'
    own, by up to half an ulp of that: one more rounding of an operand, which one ulp of the stored value would not
    cause. A `size` other than 1 moves them by up to so many half ulps. Zeros, infinities, NaN stay (a padding or a mask
    must remain one), nothing crosses zero or overflows, and other dtypes are returned as they are. The moves depend on
    `seed` and the shape alone.
    """
    if values.dtype.kind == "c":
        parts = np.ascontiguousarray(values).view(values.real.dtype)
        moved: np.ndarray[Any, Any] = (
            nudged(parts, seed, grain=grain, size=size).view(values.dtype).reshape(values.shape)
        )
        return moved
    bits = _float_bits(values.dtype)
    if bits is None or values.size == 0:
        return values.copy()
    own = float(ml_dtypes.finfo(values.dtype).eps)  # type: ignore[no-untyped-call]
    flat = np.ascontiguousarray(values).reshape(-1)
    result = np.empty_like(flat)
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)

    def move(index: int) -> None:
        here = slice(index * _PART, (index + 1) * _PART)
        rng = np.random.default_rng((*seeds, index))
        if grain > own or size != 1:
            result[here] = _rounded_once_more(flat[here], rng, size * max(grain, own))
        else:
            result[here] = _one_ulp(flat[here], rng, bits)

    indices = range(-(-flat.size // _PART))
    # NumPy lets go of the interpreter's lock in its loops and its generators.
    with ThreadPoolExecutor(min(len(indices), os.cpu_count() or 1), thread_name_prefix="tuner-nudge") as pool:
        list(pool.map(move, indices))
    return result.reshape(values.shape)


def _one_ulp(values: np.ndarray[Any, Any], rng: np.random.Generator, bits: int) -> np.ndarray[Any, Any]:
    """Each value's neighbour above or below, by chance; below where there is none above, and above the smallest."""
    unsigned = _UNSIGNED[values.dtype.itemsize]
    raw = values.view(unsigned)
    sign = unsigned(1 << (bits - 1))
    magnitude = raw & ~sign
    up = rng.integers(0, 2, size=values.shape, dtype=np.uint8).astype(bool)
    larger, smaller = magnitude + unsigned(1), magnitude - unsigned(1)
    larger_fits = np.isfinite(larger.view(values.dtype))
    steps = np.where(larger_fits & (up | (smaller == 0)), larger, smaller)
    stays = (magnitude == 0) | ~np.isfinite(values)
    result: np.ndarray[Any, Any] = np.where(stays, raw, steps | (raw & sign)).view(values.dtype)
    return result


def _rounded_once_more(values: np.ndarray[Any, Any], rng: np.random.Generator, grain: float) -> np.ndarray[Any, Any]:
    """Each value with the error of rounding it to a mantissa of this `grain`, evenly spread."""
    wide = values.astype(np.float32) if values.dtype.itemsize < 4 else values
    with np.errstate(all="ignore"):  # infinities, NaN and values at the end of the range stay what they are
        _, exponents = np.frexp(wide)
        ulp = np.ldexp(np.asarray(grain, wide.dtype), exponents - 1)
        shift = (rng.random(wide.shape, np.float32) - np.float32(0.5)) * ulp
        moved = (wide + shift).astype(values.dtype)
        fits = np.isfinite(moved) & (moved != 0) & (values != 0) & (np.signbit(moved) == np.signbit(values))
    result: np.ndarray[Any, Any] = np.where(fits, moved, values)
    return result


def _float_bits(dtype: np.dtype[Any]) -> int | None:
    """Width of a floating dtype that fills its bytes; None for others (also for the sub-byte floats)."""
    try:
        bits = int(ml_dtypes.finfo(dtype).bits)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return bits if bits == 8 * dtype.itemsize else None
