"""The smallest change of an input that a program can feel: every floating value moved at random by a rounding error."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["nudged"]

_PART = 1 << 16  # elements that are moved by draws of their own
_PARTS = 8  # moved at a time: in loops that are too short threads would wait for the interpreter most of the time


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
    info = _moved_float(values.dtype)
    if info is None or values.size == 0:
        return values.copy()
    own = float(info.eps)
    grain = size * max(grain, own) if grain > own or size != 1 else 0.0
    flat = np.ascontiguousarray(values).reshape(-1)
    result = np.empty_like(flat)
    seeds = (seed,) if isinstance(seed, int) else tuple(seed)
    begins = range(0, flat.size, _PARTS * _PART)
    left = iter(begins)  # one for all threads: each takes the next parts when it is done with some

    def move(_: int) -> None:
        mover = _Mover(flat.dtype, info.max, min(flat.size, _PARTS * _PART))
        for begin in left:
            parts, into = (array[begin : begin + _PARTS * _PART] for array in (flat, result))
            indices = range(begin // _PART, -(-(begin + parts.size) // _PART))
            mover.move(parts, into, [np.random.default_rng((*seeds, index)) for index in indices], grain)

    threads = min(len(begins), os.cpu_count() or 1)
    if threads == 1:  # a small leaf is done before a thread has begun
        move(0)
    else:  # NumPy lets go of the interpreter's lock in its loops and its generators
        with ThreadPoolExecutor(threads, thread_name_prefix="tuner-nudge") as pool:
            list(pool.map(move, range(threads)))
    return result.reshape(values.shape)


def _moved_float(dtype: np.dtype[Any]) -> Any:
    """The finfo of a float that fills its bytes (the sub-byte ones don't) and has a mantissa; None for other dtypes."""
    try:
        info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return info if info.bits == 8 * dtype.itemsize and info.nmant > 0 else None


class _Mover:
    """One thread's, with room for what it computes on the way: to get memory at every part and give it back would take
    longer than the arithmetic, all the more with many threads.

    Of the values the bits are looked at: of one sign they are in the order of the values, from zero at 0 to the largest
    finite one, with infinity and NaN beyond. NumPy is quick with them whatever the dtype, with narrow floats it is not.
    """

    def __init__(self, dtype: np.dtype[Any], largest: Any, room: int) -> None:
        self._raw = np.dtype(f"u{dtype.itemsize}")
        self._wide = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
        self._sign = self._raw.type(1 << (8 * dtype.itemsize - 1))
        self._largest = np.array(largest, dtype).view(self._raw)[()]
        # Its exponent's bits are by themselves the largest power of two in a value: 0 in zeros and subnormals.
        self._exponent = np.array(np.inf, self._wide).view(f"u{self._wide.itemsize}")[()]
        self._bits = np.empty(room, self._raw)
        self._flags = np.empty(room, bool)
        self._draws = np.empty(room, np.float32)
        self._widened, self._power = np.empty((2, room), self._wide)

    def move(
        self,
        values: np.ndarray[Any, Any],
        moved: np.ndarray[Any, Any],
        rngs: Sequence[np.random.Generator],
        grain: float,
    ) -> None:
        """Write `values`, moved, into `moved`: by one ulp, or by a rounding to a mantissa of this `grain`, if any. Each
        part is moved by the draws of one of `rngs`."""
        raw, into = values.view(self._raw), moved.view(self._raw)
        if not raw.any():
            into[:] = 0  # an optimiser's state is often zeros at first
        elif grain:
            self._round_once_more(values, moved, rngs, grain)
            self._put_back(raw, into)
        else:
            self._one_ulp(raw, into, rngs)

    def _one_ulp(
        self, raw: np.ndarray[Any, Any], moved: np.ndarray[Any, Any], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Each value's neighbour above or below, by chance; below where there is none above, and above the smallest."""
        flag = self._flags[: raw.size]
        before = np.bitwise_and(raw, ~self._sign, out=self._bits[: raw.size])
        before -= 1  # zero is the largest of all now
        drawn = b"".join(rng.bytes(-(-min(_PART, raw.size - i * _PART) // 8)) for i, rng in enumerate(rngs))
        up = np.unpackbits(np.frombuffer(drawn, np.uint8), count=raw.size).view(bool)
        up |= np.equal(before, 0, out=flag)
        up &= np.not_equal(before, self._largest - 1, out=flag)
        step = up.view(np.int8)
        step += step
        step -= 1
        step *= np.less(before, self._largest, out=flag).view(np.int8)
        np.copyto(moved, step, casting="unsafe")  # -1 is all ones
        moved += raw

    def _round_once_more(
        self,
        values: np.ndarray[Any, Any],
        moved: np.ndarray[Any, Any],
        rngs: Sequence[np.random.Generator],
        grain: float,
    ) -> None:
        """Each value with the error of rounding it to a mantissa of this `grain`, evenly spread. Subnormals stay."""
        draws = self._draws[: values.size]
        for i, rng in enumerate(rngs):
            rng.random(out=draws[i * _PART : (i + 1) * _PART], dtype=np.float32)
        if values.itemsize < 4:
            wide, change = self._widened[: values.size], draws
            np.copyto(wide, values)
        else:
            wide, change = values, moved
            np.copyto(change, draws)
        power, exponent = self._power[: values.size], self._exponent
        np.bitwise_and(wide.view(exponent.dtype), exponent, out=power.view(exponent.dtype))
        with np.errstate(all="ignore"):  # what leaves the range is put back
            change -= 0.5
            change *= grain
            change *= power
            change += wide
            if change is draws:
                np.copyto(moved, change, casting="same_kind")

    def _put_back(self, raw: np.ndarray[Any, Any], moved: np.ndarray[Any, Any]) -> None:
        """What became zero, infinite or NaN, or was it before, and what changed its sign."""
        past = np.bitwise_and(raw, self._sign, out=self._bits[: raw.size])
        past ^= moved
        past -= 1
        np.copyto(moved, raw, where=np.greater_equal(past, self._largest, out=self._flags[: raw.size]))
