"""Arithmetic of intervals of time: unions, intersections, gaps, and whose each moment is. Ends are exclusive."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

__all__ = ["Interval", "clipped", "gaps", "intersection", "length", "shares", "union"]

Interval = tuple[float, float]

K = TypeVar("K", bound=Hashable)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments that are in any of them: disjoint, in order, none empty; those that touch are one."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """How long their union is."""
    return sum(end - start for start, end in union(intervals))


def intersection(one: Iterable[Interval], other: Iterable[Interval]) -> list[Interval]:
    """The moments that are in both unions."""
    left, right = union(one), union(other)
    both: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            both.append((start, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return both


def gaps(within: Interval, busy: Iterable[Interval]) -> list[Interval]:
    """The moments of `within` that are in none of `busy`."""
    free: list[Interval] = []
    at, end = within
    for start, stop in clipped(union(busy), within):
        if start > at:
            free.append((at, start))
        at = max(at, stop)
    return [*free, (at, end)] if at < end else free


def clipped(intervals: Iterable[Interval], within: Interval) -> list[Interval]:
    """What of each lies in `within`; those outside are left out."""
    cut = ((max(start, within[0]), min(end, within[1])) for start, end in intervals)
    return [(start, end) for start, end in cut if start < end]


def shares(owned: Sequence[tuple[Interval, K]], *, rank: Mapping[K, int] | None = None) -> dict[K, float]:
    """Whose each moment is: it belongs to the owners active then, in equal parts; of several ranks only the lowest
    counts. The shares sum to the length of the union.

    An owner that is active twice at once counts once. Owners without a rank have rank 0.
    """
    ranks = rank or {}
    edges: list[tuple[float, int, K]] = []
    for (start, end), owner in owned:
        if end > start:
            edges += [(start, 1, owner), (end, -1, owner)]
    edges.sort(key=lambda edge: edge[0])
    result: dict[K, float] = {}
    active: dict[K, int] = {}
    before = 0.0
    for at, change, owner in edges:
        if active and at > before:
            first = min(ranks.get(who, 0) for who in active)
            holders = [who for who in active if ranks.get(who, 0) == first]
            for who in holders:
                result[who] = result.get(who, 0.0) + (at - before) / len(holders)
        before = at
        count = active.get(owner, 0) + change
        if count:
            active[owner] = count
        else:
            del active[owner]
    return result
