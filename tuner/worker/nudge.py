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
# The bits of a value's exponent, by themselves the largest power of two in it: 0 in zeros and subnormals.
_EXPONENT = {4: np.uint32(0x7F800000), 8: np.uint64(0x7FF0000000000000)}
_PART = 1 << 16  # elements moved at a time: they stay in a core's cache, and all cores are at work on a large array


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
        part, rng = flat[here], np.random.default_rng((*seeds, index))
        if not part.view(_UNSIGNED[part.itemsize]).any():
            result[here] = part  # an optimiser's state is often zeros at first
        elif grain > own or size != 1:
            result[here] = _rounded_once_more(part, rng, size * max(grain, own))
        else:
            result[here] = _one_ulp(part, rng, bits)

    indices = range(-(-flat.size // _PART))
    # NumPy lets go of the interpreter's lock in its loops and its generators.
    with ThreadPoolExecutor(min(len(indices), os.cpu_count() or 1), thread_name_prefix="tuner-nudge") as pool:
        list(pool.map(move, indices))
    return result.reshape(values.shape)


def _one_ulp(values: np.ndarray[Any, Any], rng: np.random.Generator, bits: int) -> np.ndarray[Any, Any]:
    """Each value's neighbour above or below, by chance; below where there is none above, and above the smallest."""
    unsigned = _UNSIGNED[values.itemsize]
    raw, sign = values.view(unsigned), unsigned(1 << (bits - 1))
    magnitude = raw & ~sign
    up = np.unpackbits(np.frombuffer(rng.bytes(-(-values.size // 8)), np.uint8), count=values.size).astype(unsigned)
    moved: np.ndarray[Any, Any] = magnitude - unsigned(1) + up + up
    with np.errstate(all="ignore"):  # narrow floats warn of NaN
        np.copyto(moved, magnitude - unsigned(1), where=~np.isfinite(moved.view(values.dtype)))
        np.copyto(moved, unsigned(2), where=moved == 0)
        moved |= raw & sign
        np.copyto(moved, raw, where=(magnitude == 0) | ~np.isfinite(values))
    return moved.view(values.dtype)


def _rounded_once_more(values: np.ndarray[Any, Any], rng: np.random.Generator, grain: float) -> np.ndarray[Any, Any]:
    """Each value with the error of rounding it to a mantissa of this `grain`, evenly spread. Subnormals stay."""
    wide = values.astype(np.float32) if values.itemsize < 4 else values
    unsigned = _UNSIGNED[wide.itemsize]
    with np.errstate(all="ignore"):  # infinities, NaN and values at the end of the range stay what they are
        power = (wide.view(unsigned) & _EXPONENT[wide.itemsize]).view(wide.dtype)
        moved = rng.random(wide.shape, np.float32).astype(wide.dtype, copy=False)
        moved -= wide.dtype.type(0.5)
        moved *= wide.dtype.type(grain)
        moved *= power
        moved += wide
        result: np.ndarray[Any, Any] = moved.astype(values.dtype, copy=False)
        crossed = np.signbit(moved) != np.signbit(wide)
        np.copyto(result, values, where=crossed | (result == 0) | (wide == 0) | ~np.isfinite(result))
    return result


def _float_bits(dtype: np.dtype[Any]) -> int | None:
    """Width of a floating dtype that fills its bytes; None for others (also for the sub-byte floats)."""
    try:
        bits = int(ml_dtypes.finfo(dtype).bits)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return bits if bits == 8 * dtype.itemsize else None
