"""How far one array is from another: relative L2 and the regression slope of every slice along every axis.

For a leaf that takes an input's place the same against what the step *did* to it: a parameter moves by a thousandth in
a step, so that a wrong gradient, or none, hardly shows in its value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["MAX_RATIO", "Difference", "Start", "compared", "compared_on_device"]

MAX_RATIO = 1e300
"""Stands for "any difference from a reference that is zero": JSON has no infinity."""

# Elements that are widened to 64 bits at once on the host: what is made of them stays in its caches, and in the hands
# of the allocator. Of twice as many it gives the memory back to the system, and gets it anew at every block.
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Difference:
    """See `tuner.protocol.messages.LeafStats`."""

    l2: float
    slope: float
    masks_equal: bool
    travel: float | None = None
    moved_l2: float | None = None
    moved_slope: float | None = None
    still: bool = False


@dataclass(frozen=True)
class Start:
    """What a carried leaf was at first, in the reference's run and in the candidate's: a nudge is between them."""

    reference: np.ndarray[Any, Any]
    candidate: np.ndarray[Any, Any]


_SAME = Difference(0.0, 0.0, True)


def compared(
    reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any], start: Start | None = None
) -> Difference:
    """`candidate` against `reference`, two host arrays of one shape. Sums run in float64; equal arrays give exactly 0.

    Host arithmetic on purpose: the settings under test act on everything that XLA compiles in this process.
    """
    if reference.size == 0:
        return _SAME
    if not (_is_float(reference.dtype) and _is_float(candidate.dtype)):
        still = start is not None and _still(np, reference, candidate, start.reference, start.candidate)
        return Difference(float(np.mean(reference != candidate)), 0.0, True, still=bool(still))
    given = (reference, candidate) if start is None else (reference, candidate, start.reference, start.candidate)
    arrays = [_real(np, array) for array in given]
    with np.errstate(all="ignore"):  # infinities and NaN are data here
        shape = arrays[0].shape
        scale = None
        if _needs_scale(*arrays[:2]):
            scale = _scale(max(_largest(array[place]) for place in _blocks(shape) for array in arrays[:2]))
        sums = _Sums.empty(shape, moved=start is not None)
        for place in _blocks(shape):
            sums.add(_sums(np, scale, *(array[place] for array in arrays)), place)
        return _finished(*map(float, _totals(np, sums)))


def compared_on_device(
    reference: Any, candidate: jax.Array, start: Start | None = None, *, run: Callable[..., Any]
) -> Difference:
    """The same for arrays that live on an accelerator, where moving them costs more than the sums. ``run(f, *args)``
    calls a jitted function (see `tuner.worker.programs`)."""
    starts = []
    if start is not None:
        begun = jax.device_put(start.reference, candidate.sharding)
        same = start.candidate is start.reference  # but for a nudge, and then it needn't be sent twice
        starts = [begun, begun if same else jax.device_put(start.candidate, candidate.sharding)]
    if not (_is_float(reference.dtype) and _is_float(candidate.dtype)):
        share, still = np.asarray(run(_counted_on_device, reference, candidate, *starts)).tolist()
        return Difference(share, 0.0, True, still=bool(still))
    with jax.enable_x64(True):
        scale = None
        if _needs_scale(reference, candidate):
            scale = _scale(float(run(_largest_on_device, reference, candidate)))
        # One small array: each that is fetched costs a wait, and a long vector's slices are as many as its elements.
        return _finished(*np.asarray(run(_totals_on_device, scale, reference, candidate, *starts)).tolist())


@dataclass
class _Sums:
    """`total`: ‖d‖² of the difference. `masks`: NaN and infinities sit at the same places. For each axis' slices:
    `dots` ⟨d, r⟩ and `norms` ‖r‖² with the reference, `moved_dots` and `moved_norms` with its movement, if there is
    one. `still`: the candidate has not moved; `rested`: nor has the reference."""

    total: float
    masks: bool
    dots: list[Any]
    norms: list[Any]
    moved_dots: list[Any]
    moved_norms: list[Any]
    still: bool
    rested: bool

    @classmethod
    def empty(cls, shape: tuple[int, ...], *, moved: bool) -> _Sums:
        def zeros(*, wanted: bool = True) -> list[Any]:
            return [np.zeros(n) for n in shape] if wanted else []

        return cls(0.0, True, zeros(), zeros(), zeros(wanted=moved), zeros(wanted=moved), moved, moved)

    def add(self, sums: tuple[Any, ...], place: tuple[slice, ...]) -> None:
        """Add those of the block at `place`, a slice of each axis."""
        part = _Sums(*sums)
        self.total += float(part.total)
        self.masks = self.masks and bool(part.masks)
        self.still = self.still and bool(part.still)
        self.rested = self.rested and bool(part.rested)
        for mine, other in (
            (self.dots, part.dots),
            (self.norms, part.norms),
            (self.moved_dots, part.moved_dots),
            (self.moved_norms, part.moved_norms),
        ):
            for into, values, here in zip(mine, other, place, strict=False):
                into[here] += values


def _sums(xp: Any, scale: float | None, reference: Any, candidate: Any, *starts: Any) -> tuple[Any, ...]:
    """The fields of `_Sums`. Everything is divided by `scale`, if any, before it is squared. With `starts` (the
    reference's, the candidate's) the difference is that of the two movements."""
    r, c = reference.astype(xp.float64), candidate.astype(xp.float64)
    finite = xp.isfinite(r) & xp.isfinite(c)
    masks = xp.all(finite | (r == c) | (xp.isnan(r) & xp.isnan(c)))

    def scaled(values: Any) -> Any:
        return values if scale is None else values / scale

    moved: Any = None
    still = rested = False
    if starts:
        s, t = (start.astype(xp.float64) for start in starts)
        still, rested = xp.all(c == t), xp.all(r == s)
        # What began as NaN or infinity has not moved by a number: its whole value counts.
        begun = xp.isfinite(s) & xp.isfinite(t)
        s, t = _only(xp, begun, s), _only(xp, begun, t)
        moved = _only(xp, finite, scaled(r) - scaled(s))
        d = _only(xp, finite, (scaled(c) - scaled(t)) - moved)
    else:
        d = _only(xp, finite, scaled(c) - scaled(r))
    r = _only(xp, finite, scaled(r))
    axes = [tuple(a for a in range(r.ndim) if a != axis) for axis in range(r.ndim)]
    by_slice = [[xp.sum(product, axis=a) for a in axes] for product in (d * r, r * r)]
    by_move = (
        [[xp.sum(product, axis=a) for a in axes] for product in (d * moved, moved * moved)] if starts else [[], []]
    )
    return (xp.sum(d * d), masks, *by_slice, *by_move, still, rested)


def _only(xp: Any, wanted: Any, values: Any) -> Any:
    """`values` where they are `wanted`, zeros elsewhere."""
    return values if xp is np and wanted.all() else xp.where(wanted, values, 0.0)


def _still(xp: Any, reference: Any, candidate: Any, start: Any, moved_start: Any) -> Any:
    return xp.all(candidate == moved_start) & ~xp.all(reference == start)


def _needs_scale(*arrays: Any) -> bool:
    """Whether squares could leave the range of 64 bits: those of narrower floats can't."""
    return any(array.dtype.itemsize > (8 if array.dtype.kind == "c" else 4) for array in arrays)


def _largest(array: np.ndarray[Any, Any]) -> float:
    """Largest finite magnitude; squares of values over it can't overflow."""
    wide = array.astype(np.float32) if array.itemsize < 4 else array
    ends = float(np.max(wide)), -float(np.min(wide))
    if all(map(math.isfinite, ends)):
        return max(0.0, *ends)
    return float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0))


def _scale(largest: float) -> float:
    """A power of two near `largest`: dividing by it is exact."""
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1000)) if largest > 0 else 1.0


def _totals(xp: Any, sums: _Sums) -> tuple[Any, ...]:
    """What `_finished` takes, each a number or a truth."""
    moves = bool(sums.moved_norms)
    return (
        sums.masks,
        sums.total,
        xp.sum(sums.norms[0]),
        _largest_slope(xp, sums.dots, sums.norms),
        moves,
        xp.sum(sums.moved_norms[0]) if moves else 0.0,
        _largest_slope(xp, sums.moved_dots, sums.moved_norms) if moves else 0.0,
        sums.still,
        sums.rested,
    )


def _finished(
    masks: float,
    error2: float,
    size2: float,
    slope: float,
    moves: float,
    movement2: float,
    moved_slope: float,
    still: float,
    rested: float,
) -> Difference:
    """From squared norms of the difference, the reference and its movement, the largest slopes, and truths."""
    error, size, movement = math.sqrt(error2), math.sqrt(size2), math.sqrt(movement2)
    if not moves:
        return Difference(_ratio(error, size), slope, bool(masks))
    return Difference(
        _ratio(error, size),
        slope,
        bool(masks),
        travel=_ratio(movement, size),
        # Of a reference that has not moved nothing can be said but by the value.
        moved_l2=_ratio(error, movement) if movement > 0 else 0.0,
        moved_slope=moved_slope if movement > 0 else 0.0,
        still=bool(still) and not rested,
    )


def _largest_slope(xp: Any, dots: Any, norms: Any) -> Any:
    """The largest |⟨d, r⟩| / ‖r‖² of all slices, small ones counted as of their axis' mean size; 0 where all are 0."""
    slopes = []
    for dot, norm in zip(dots, norms, strict=True):
        floor = xp.maximum(norm, xp.mean(norm))
        slopes.append(xp.max(xp.abs(dot) / xp.where(floor > 0, floor, 1.0)))  # ⟨d, r⟩ is 0 where r is
    return xp.max(xp.stack(slopes))


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


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Cuts an array of `shape` into blocks of at most `_CHUNK` elements, each in one stretch of memory: one slice of
    the first axes, some of the next, all of the others."""
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= _CHUNK)
    rows = max(1, _CHUNK // math.prod(shape[axis + 1 :]))
    for before in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], rows):
            ends = slice(begin, min(begin + rows, shape[axis]))
            yield (*(slice(i, i + 1) for i in before), ends, *(slice(0, n) for n in shape[axis + 1 :]))


@jax.jit
def _largest_on_device(*arrays: Any) -> Any:
    wide = [jnp.abs(_real(jnp, array).astype(jnp.float64)) for array in arrays]
    return jnp.max(jnp.stack([jnp.max(jnp.where(jnp.isfinite(w), w, 0.0)) for w in wide]))


@jax.jit
def _counted_on_device(reference: Any, candidate: Any, *starts: Any) -> Any:
    """The share of entries that differ, and whether the candidate alone stood still."""
    still = _still(jnp, reference, candidate, *starts) if starts else jnp.bool_(False)
    share = jnp.mean(reference != candidate)
    return jnp.stack([share, still.astype(share.dtype)])


@jax.jit
def _totals_on_device(scale: Any, *arrays: Any) -> Any:
    totals = _totals(jnp, _Sums(*_sums(jnp, scale, *(_real(jnp, array) for array in arrays))))
    return jnp.stack([jnp.asarray(total, jnp.float64) for total in totals])
