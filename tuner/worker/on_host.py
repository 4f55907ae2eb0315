"""Host arrays held against references, by NumPy: what is set in the process acts on all that XLA compiles in it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tuner.worker.stats import (
    Difference,
    Start,
    Sums,
    along,
    difference_of,
    is_float,
    needs_scale,
    real,
    scale_of,
    sides_of,
    totals_of,
)

__all__ = ["Room", "compared"]

# Elements that are widened to 64 bits at once on the host: of fewer NumPy's loops are so short that threads wait for
# the interpreter most of the time, and of more the four arrays leave the caches.
_BLOCK = 1 << 18


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
    """
    if references[0].size == 0:
        return [Difference(0.0, 0.0, True)] * len(references)
    sides = sides_of(references, candidates, starts)
    if not (is_float(references[0].dtype) and is_float(candidates[0].dtype)):
        return [_counted(*arrays) for arrays in zip(*sides, strict=True)]
    sides = [[real(np, array) for array in side] for side in sides]
    room, count = room or Room(), _BLOCK // sides[0][0].size
    if count == 0:
        return [one for leaf in zip(*sides, strict=True) for one in _finished(_of_large(leaf, room, each))]
    batches = [[side[i : i + count] for side in sides] for i in range(0, len(references), count)]
    return [one for sums in each(lambda batch: _of_block(batch, room), batches) for one in _finished(sums)]


def _counted(reference: Any, candidate: Any, *starts: Any) -> Difference:
    still = bool(starts) and bool(np.array_equal(candidate, starts[1]) and not np.array_equal(reference, starts[0]))
    return Difference(np.count_nonzero(reference != candidate) / reference.size, 0.0, True, still=still)


def _of_large(arrays: Sequence[Any], room: Room, each: _Each) -> Sums:
    """The sums of one leaf that is more than a block."""
    shape = arrays[0].shape
    scale = _scales([[array] for array in arrays])
    places = list(_blocks(shape))
    parts = each(lambda place: _of_block([[array[place]] for array in arrays], room, scale), places)
    sums = Sums.empty(shape, moved=len(arrays) > 2)
    for place, part in zip(places, parts, strict=True):  # in one order, however many threads there are
        sums.add(part, place)
    return sums


def _scales(sides: Sequence[Sequence[Any]]) -> Any:
    """Each leaf's, None where none needs one."""
    if not needs_scale(*(side[0] for side in sides[:2])):
        return None
    with np.errstate(all="ignore"):
        return np.array([scale_of(max(map(_largest, pair))) for pair in zip(*sides[:2], strict=True)])


@np.errstate(all="ignore")  # infinities and NaN are data here
def _of_block(sides: Sequence[Sequence[Any]], room: Room, scale: Any = None) -> Sums:
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
    return Sums(total, masks, _by_slice(shape, d, r), _by_slice(shape, r, r), *by_move, still, rested)


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
            found += along(np, sums)
    return found


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


def _finished(sums: Sums) -> list[Difference]:
    with np.errstate(all="ignore"):
        return [difference_of(*numbers) for numbers in np.stack(totals_of(np, sums)).T.tolist()]


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Cuts an array of `shape` into blocks of at most `_BLOCK` elements, each in one stretch of memory: one slice of
    the first axes, some of the next, all of the others."""
    axis = next(a for a in range(len(shape)) if math.prod(shape[a + 1 :]) <= _BLOCK)
    rows = max(1, _BLOCK // math.prod(shape[axis + 1 :]))
    for before in np.ndindex(shape[:axis]):
        for begin in range(0, shape[axis], rows):
            ends = slice(begin, min(begin + rows, shape[axis]))
            yield (*(slice(i, i + 1) for i in before), ends, *(slice(0, n) for n in shape[axis + 1 :]))
