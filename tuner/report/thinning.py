"""Thinning: fewer points for a plot, such that what is left out can't have said anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["thinned"]

T = TypeVar("T")


def thinned(points: Sequence[T], limit: int, *, value: Callable[[T], float]) -> list[T]:
    """At most `limit` of `points`, in their order: of equal stretches of the sequence the lowest, the middle and the
    highest by `value`, so that envelope and typical level stay. All of them if they are that few."""
    if len(points) <= limit:
        return list(points)
    stretches = max(1, limit // 3)
    kept: list[T] = []
    for i in range(stretches):
        start, end = i * len(points) // stretches, (i + 1) * len(points) // stretches
        ranked = sorted(range(start, end), key=lambda n: value(points[n]))
        chosen = sorted({ranked[0], ranked[len(ranked) // 2], ranked[-1]})
        kept += [points[n] for n in chosen]
    return kept
