"""How far arrays are from others: relative L2 and the regression slope of every slice along every axis.

For a leaf that takes an input's place the same against what the step *did* to it: a parameter moves by a thousandth in
a step, so that a wrong gradient, or none, hardly shows in its value. Leaves of one shape and dtype are compared
together: of small ones each call would take longer than the sums.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["MAX_RATIO", "Difference", "Room", "Start", "begun_on_device", "compared"]

MAX_RATIO = 1e300
"""Stands for "any difference from a reference that is zero": JSON has no infinity."""

# Elements that are widened to 64 bits at once on the host: of fewer NumPy's loops are so short that threads wait for
# the interpreter most of the time, and of more the four arrays leave the caches.
_BLOCK = 1 << 18


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


class Room(threading.local):
    """For what is computed on the way, in each thread that uses it: to get fresh memory at every block and give it back
    would take longer than the sums."""

    def __init__(self) -> None:
        self.wide = np.empty((4, _BLOCK))
        self.flags = np.empty(_BLOCK, bool)


_Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


def compared(
    references: Sequence[np.ndarray[Any, Any]],
    candidates: Sequence[np.ndarray[Any, Any]],
    starts: Sequence[Start] = (),
    *,
    room: Room | None = None,
    each: _Each = map,
) -> list[Difference]:
    """Each of `candidates` against its reference: host arrays, all of one shape and of one dtype on each side; `starts`
    are all leaves' or none's. Sums run in float64; equal arrays give exactly 0. ``each(f, parts)`` does as `map` does,
    perhaps in several threads.

    Host arithmetic on purpose: the settings under test act on everything that XLA compiles in this process.
    """
    if references[0].size == 0:
        return [_SAME] * len(references)
    sides = _sides(references, candidates, starts)
    if not (_is_float(references[0].dtype) and _is_float(candidates[0].dtype)):
        return [_counted(*arrays) for arrays in zip(*sides, strict=True)]
    sides = [[_real(np, array) for array in side] for side in sides]
    room, count = room or Room(), _BLOCK // sides[0][0].size
    if count == 0:
        return [one for leaf in zip(*sides, strict=True) for one in _finished(_of_large(leaf, room, each))]
    batches = [[side[i : i + count] for side in sides] for i in range(0, len(references), count)]
    return [one for sums in each(lambda batch: _of_block(batch, room), batches) for one in _finished(sums)]


def begun_on_device(
    references: Sequence[np.ndarray[Any, Any]],
    candidates: Sequence[jax.Array],
    starts: Sequence[Start] = (),
    *,
    run: Callable[..., Any],
) -> Callable[[], list[Difference]]:
    """The same for arrays that live on an accelerator, where moving them costs more than the sums, all of one sharding:
    one call for all of them. It is only begun here; what is returned waits for it. ``run(f, *args)`` calls a jitted
    function (see `tuner.worker.programs`)."""
    sides = _sides(references, candidates, starts)
    with jax.enable_x64(True):
        # One call sends all, and each once: but for a nudge both start alike.
        sent = {id(array): array for side in (sides[0], *sides[2:]) for array in side}
        there = dict(zip(sent, jax.device_put(list(sent.values()), candidates[0].sharding), strict=True))
        sides = [list(side) if i == 1 else [there[id(array)] for array in side] for i, side in enumerate(sides)]
        if not (_is_float(references[0].dtype) and _is_float(candidates[0].dtype)):
            counts = run(_counted_on_device, sides)
            return lambda: [Difference(n, 0.0, True, still=bool(still)) for n, still in np.asarray(counts).T.tolist()]
        scale = None
        if _needs_scale(references[0], candidates[0]):
            scale = np.array([_scale(largest) for largest in np.asarray(run(_largest_on_device, sides[:2])).tolist()])
        # One small array: each that is fetched costs a wait, and a long vector's slices are as many as its elements.
        totals = run(_totals_on_device, scale, sides)
        return lambda: [_differ(*numbers) for numbers in np.asarray(totals).T.tolist()]


def _sides(references: Sequence[Any], candidates: Sequence[Any], starts: Sequence[Start]) -> list[Sequence[Any]]:
    """What is compared: with `starts` the references' and the candidates' too."""
    if not starts:
        return [references, candidates]
    return [references, candidates, [start.reference for start in starts], [start.candidate for start in starts]]


def _counted(reference: Any, candidate: Any, *starts: Any) -> Difference:
    still = bool(starts) and bool(np.array_equal(candidate, starts[1]) and not np.array_equal(reference, starts[0]))
    return Difference(np.count_nonzero(reference != candidate) / reference.size, 0.0, True, still=still)


@dataclass
class _Sums:
    """Of several leaves, along the first axis of each field. `total`: ‖d‖² of the difference. `masks`: NaN and
    infinities sit at the same places. For each axis' slices: `dots` ⟨d, r⟩ and `norms` ‖r‖² with the reference,
    `moved_dots` and `moved_norms` with its movement, if there is one. `still`: the candidate has not moved; `rested`:
    nor has the reference."""

    total: Any
    masks: Any
    dots: list[Any]
    norms: list[Any]
    moved_dots: list[Any]
    moved_norms: list[Any]
    still: Any
    rested: Any

    @classmethod
    def empty(cls, shape: Sequence[int], *, moved: bool) -> _Sums:
        """Of one leaf of `shape`, to be added up."""

        def zeros(*, wanted: bool = True) -> list[Any]:
            return [np.zeros((1, n)) for n in shape] if wanted else []

        truths = (np.ones(1, bool) for _ in range(3))
        moves = zeros(wanted=moved), zeros(wanted=moved)
        return cls(np.zeros(1), next(truths), zeros(), zeros(), *moves, *truths)

    def add(self, part: _Sums, place: tuple[slice, ...]) -> None:
        """Add those of the block at `place`, a slice of each axis."""
        self.total += part.total
        self.masks &= part.masks
        self.still &= part.still
        self.rested &= part.rested
        for mine, other in (
            (self.dots, part.dots),
            (self.norms, part.norms),
            (self.moved_dots, part.moved_dots),
            (self.moved_norms, part.moved_norms),
        ):
            for into, values, here in zip(mine, other, place, strict=False):
                into[:, here] += values


def _of_large(arrays: Sequence[Any], room: Room, each: _Each) -> _Sums:
    """The sums of one leaf that is more than a block."""
    shape = arrays[0].shape
    scale = _scales([[array] for array in arrays])
    places = list(_blocks(shape))
    parts = each(lambda place: _of_block([[array[place]] for array in arrays], room, scale), places)
    sums = _Sums.empty(shape, moved=len(arrays) > 2)
    for place, part in zip(places, parts, strict=True):  # in one order, however many threads there are
        sums.add(part, place)
    return sums


def _scales(sides: Sequence[Sequence[Any]]) -> Any:
    """Each leaf's, None where none needs one."""
    if not _needs_scale(*(side[0] for side in sides[:2])):
        return None
    with np.errstate(all="ignore"):
        return np.array([_scale(max(map(_largest, pair))) for pair in zip(*sides[:2], strict=True)])


@np.errstate(all="ignore")  # infinities and NaN are data here
def _of_block(sides: Sequence[Sequence[Any]], room: Room, scale: Any = None) -> _Sums:
    """Of small leaves, or of one block of a large one with that leaf's `scale`. Where the sum of squares is a number,
    everything is; only else is it looked for what is none."""
    count, shape = len(sides[0]), sides[0][0].shape
    size = math.prod(shape)
    scale = _scales(sides) if scale is None else scale
    wide = [into[: count * size].reshape(count, size) for into in room.wide[: len(sides)]]
    flags = room.flags[: count * size].reshape(count, size)
    (r, d), starts = wide[:2], wide[2:]
    masks, still, rested = np.ones(count, bool), np.zeros(count, bool), np.zeros(count, bool)
    for numbers_alone in (False, True):
        for side, into in zip(sides, wide, strict=True):
            for array, row in zip(side, into.reshape(count, *shape), strict=True):
                np.copyto(row, array)
        if numbers_alone:
            masks = _without_others(*wide)
        elif starts:
            still, rested = _equal(d, starts[1], flags), _equal(r, starts[0], flags)
        if scale is not None:
            for values in wide:
                values /= scale[:, None]
        if starts:
            d -= starts[1]
            d -= np.subtract(r, starts[0], out=starts[0])  # the reference's movement from now on
        else:
            d -= r
        total = np.einsum("lk,lk->l", d, d)
        if np.isfinite(total).all():
            break
    by_move: tuple[list[Any], list[Any]] = ([], [])
    if starts:
        by_move = _by_slice(shape, d, starts[0]), _by_slice(shape, starts[0], starts[0])
    return _Sums(total, masks, _by_slice(shape, d, r), _by_slice(shape, r, r), *by_move, still, rested)


def _without_others(r: Any, c: Any, *starts: Any) -> Any:
    """Zeros in place of what is no number: of an entry all, or what it began as, which has not moved by a number then:
    its whole value counts. Says of each row whether NaN and infinities sit at the same places."""
    other = ~(np.isfinite(r) & np.isfinite(c))
    masks = (~other | (r == c) | (np.isnan(r) & np.isnan(c))).all(axis=1)
    for values in (r, c, *starts):
        np.copyto(values, 0.0, where=other)
    if starts:
        other = ~(np.isfinite(starts[0]) & np.isfinite(starts[1]))
        for values in starts:
            np.copyto(values, 0.0, where=other)
    return masks


def _equal(ones: Any, others: Any, flags: Any) -> Any:
    """Of each row whether the two are equal."""
    head = slice(64)  # of what differs mostly all does
    if not (ones[:, head] == others[:, head]).all(axis=1).any():
        return np.zeros(len(ones), bool)
    return np.equal(ones, others, out=flags).all(axis=1)


def _by_slice(shape: tuple[int, ...], ones: Any, others: Any) -> list[Any]:
    """⟨one, other⟩ of every slice along every axis of `shape`, each row's. They are looked at twice, whatever the axes:
    as a matrix, of which the rows are summed and the columns are; the rest is sums of these."""
    cut = min(range(len(shape)), key=lambda axis: math.prod(shape[:axis]) + math.prod(shape[axis:]))
    matrix = len(ones), math.prod(shape[:cut]), math.prod(shape[cut:])
    ones, others = ones.reshape(matrix), others.reshape(matrix)
    found: list[Any] = []
    for kept, part in (("i", shape[:cut]), ("j", shape[cut:])):
        if part:
            sums = np.einsum(f"lij,lij->l{kept}", ones, others).reshape(len(ones), *part)
            found += _along(np, sums)
    return found


def _along(xp: Any, values: Any) -> list[Any]:
    """The sums over all axes but the first, which tells leaves apart, and one other."""
    axes = range(1, values.ndim)
    if len(axes) == 1:
        return [values]
    return [xp.sum(values, axis=tuple(a for a in axes if a != axis)) for axis in axes]


def _sums(scale: Any, reference: Any, candidate: Any, *starts: Any) -> _Sums:
    """Of stacked leaves on a device, each divided by its `scale`, if any, before it is squared. With `starts` (the
    references', the candidates') the difference is that of the two movements."""
    r, c = reference.astype(jnp.float64), candidate.astype(jnp.float64)
    rest = tuple(range(1, r.ndim))
    finite = jnp.isfinite(r) & jnp.isfinite(c)
    masks = jnp.all(finite | (r == c) | (jnp.isnan(r) & jnp.isnan(c)), axis=rest)

    def scaled(values: Any) -> Any:
        return values if scale is None else values / jnp.reshape(scale, (-1, *(1 for _ in rest)))

    still = rested = jnp.zeros(len(r), bool)
    by_move: tuple[list[Any], list[Any]] = ([], [])
    if starts:
        s, t = (start.astype(jnp.float64) for start in starts)
        still, rested = jnp.all(c == t, axis=rest), jnp.all(r == s, axis=rest)
        # What began as NaN or infinity has not moved by a number: its whole value counts.
        begun = jnp.isfinite(s) & jnp.isfinite(t)
        s, t = jnp.where(begun, s, 0.0), jnp.where(begun, t, 0.0)
        moved = jnp.where(finite, scaled(r) - scaled(s), 0.0)
        d = jnp.where(finite, (scaled(c) - scaled(t)) - moved, 0.0)
        by_move = _along(jnp, d * moved), _along(jnp, moved * moved)
    else:
        d = jnp.where(finite, scaled(c) - scaled(r), 0.0)
    r = jnp.where(finite, scaled(r), 0.0)
    return _Sums(jnp.sum(d * d, axis=rest), masks, _along(jnp, d * r), _along(jnp, r * r), *by_move, still, rested)


def _needs_scale(*arrays: Any) -> bool:
    """Whether squares could leave the range of 64 bits: those of narrower floats can't."""
    return any(array.dtype.itemsize > (8 if array.dtype.kind == "c" else 4) for array in arrays)


def _largest(array: np.ndarray[Any, Any]) -> float:
    """Largest finite magnitude; squares of values over it can't overflow."""
    largest = 0.0
    for place in _blocks(array.shape):
        wide = array[place].astype(np.float64)
        ends = float(np.max(wide)), -float(np.min(wide))
        if not all(map(math.isfinite, ends)):
            ends = float(np.max(np.abs(wide[np.isfinite(wide)]), initial=0.0)), 0.0
        largest = max(largest, *ends)
    return largest


def _scale(largest: float) -> float:
    """A power of two near `largest`: dividing by it is exact."""
    return math.ldexp(1.0, min(math.frexp(largest)[1], 1000)) if largest > 0 else 1.0


def _totals(xp: Any, sums: _Sums) -> list[Any]:
    """What `_differ` takes, each a number or a truth of every leaf."""
    totals = [sums.masks, sums.total, xp.sum(sums.norms[0], axis=1), _largest_slope(xp, sums.dots, sums.norms)]
    if sums.moved_norms:
        totals += [
            xp.sum(sums.moved_norms[0], axis=1),
            _largest_slope(xp, sums.moved_dots, sums.moved_norms),
            sums.still,
            sums.rested,
        ]
    return [xp.asarray(total, xp.float64) for total in totals]


def _finished(sums: _Sums) -> list[Difference]:
    with np.errstate(all="ignore"):
        return [_differ(*numbers) for numbers in np.stack(_totals(np, sums)).T.tolist()]


def _differ(
    masks: float,
    error2: float,
    size2: float,
    slope: float,
    movement2: float | None = None,
    moved_slope: float = 0.0,
    still: float = False,
    rested: float = False,
) -> Difference:
    """From squared norms of the difference, the reference and its movement, the largest slopes, and truths."""
    error, size = math.sqrt(error2), math.sqrt(size2)
    if movement2 is None:
        return Difference(_ratio(error, size), slope, bool(masks))
    movement = math.sqrt(movement2)
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


def _largest_slope(xp: Any, dots: list[Any], norms: list[Any]) -> Any:
    """Each leaf's largest |⟨d, r⟩| / ‖r‖² of all slices, small ones counted as of their axis' mean size; 0 where all
    are 0."""
    slopes = []
    for dot, norm in zip(dots, norms, strict=True):
        usual = xp.mean(norm, axis=1, keepdims=True)
        floor = xp.maximum(norm, xp.where(usual > 0, usual, 1.0))
        slopes.append(xp.max(xp.abs(dot) / floor, axis=1))  # ⟨d, r⟩ is 0 where r is
    return xp.max(xp.stack(slopes), axis=0)


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
    """Cuts an array of `shape` into blocks of at most `_BLOCK` elements, each in one stretch of memory: one slice of
    the first axes, some of the next, all of the others."""
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= _BLOCK)
    rows = max(1, _BLOCK // math.prod(shape[axis + 1 :]))
    for before in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], rows):
            ends = slice(begin, min(begin + rows, shape[axis]))
            yield (*(slice(i, i + 1) for i in before), ends, *(slice(0, n) for n in shape[axis + 1 :]))


def _stack(arrays: Sequence[Any]) -> Any:
    """One array of several leaves, made before it is used: within each sum it would be read leaf by leaf."""
    stack = jax.lax.optimization_barrier(jnp.stack(arrays))  # type: ignore[no-untyped-call]
    return _real(jnp, stack.reshape(-1, 1) if stack.ndim == 1 else stack)


@jax.jit
def _largest_on_device(sides: Sequence[Sequence[Any]]) -> Any:
    """Each leaf's largest finite magnitude on any side."""
    wide = [jnp.abs(_stack(side).astype(jnp.float64)) for side in sides]
    largest = [jnp.max(jnp.where(jnp.isfinite(w), w, 0.0), axis=tuple(range(1, w.ndim))) for w in wide]
    return jnp.max(jnp.stack(largest), axis=0)


@jax.jit
def _counted_on_device(sides: Sequence[Sequence[Any]]) -> Any:
    """Of each leaf the share of entries that differ, and whether the candidate alone stood still."""
    reference, candidate, *starts = map(_stack, sides)
    rest = tuple(range(1, reference.ndim))
    share = jnp.mean(reference != candidate, axis=rest)
    still = jnp.zeros(len(reference), bool)
    if starts:
        still = jnp.all(candidate == starts[1], axis=rest) & ~jnp.all(reference == starts[0], axis=rest)
    return jnp.stack([share, still.astype(share.dtype)])


@jax.jit
def _totals_on_device(scale: Any, sides: Sequence[Sequence[Any]]) -> Any:
    return jnp.stack(_totals(jnp, _sums(scale, *map(_stack, sides))))
