"""Finds in one sequence the places of another that says almost the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

__all__ = ["Pairs", "matched"]

Pairs = list[tuple[int, int]]
"""Positions in both sequences."""

_AHEAD = 200  # how far a difference may reach
_AGREE = 3  # names that agree end it


def matched(
    ours: Sequence[str], theirs: Sequence[str], *, between: Callable[[Sequence[int], Sequence[int]], Pairs]
) -> list[Pairs]:
    """Equal names in order, in stretches without a difference; `between` says of what differs which belong together.
    Then names that were passed over equally often in both, wherever they are.

    After a difference both go on at the nearest place where some names agree: a step repeats itself, so that the
    longest stretch that agrees may well be another layer's.
    """
    stretches: list[Pairs] = [[]]
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            stretches[-1].append((i, j))
            i, j = i + 1, j + 1
            continue
        here, there = ours[i : i + _AHEAD], theirs[j : j + _AHEAD]
        over = _passed_over(here, there)
        more, other = over or (len(here), len(there))
        at_the_end = i + more == len(ours) and j + other == len(theirs)
        if over or at_the_end:
            stretches.append(between(range(i, i + more), range(j, j + other)))
        stretches.append([])
        i, j = i + more, j + other
    return [found for found in [*stretches, *_elsewhere(ours, theirs, stretches)] if found]


def _passed_over(ours: Sequence[str], theirs: Sequence[str]) -> tuple[int, int] | None:
    """How many names to pass over so that the next ones agree: as few as can be, and as equally many of both."""
    for both in range(1, len(ours) + len(theirs) - 1):
        few, most = max(0, both - len(theirs)), min(both, len(ours))
        for more in sorted(range(few, most + 1), key=lambda k: abs(2 * k - both)):
            here, there = ours[more : more + _AGREE], theirs[both - more : both - more + _AGREE]
            if here and here == there:
                return more, both - more
    return None


def _elsewhere(ours: Sequence[str], theirs: Sequence[str], stretches: Sequence[Pairs]) -> list[Pairs]:
    """Names of which equally many are left in both, in order: a stretch each."""
    left, right = (
        _left(ours, {i for of in stretches for i, _ in of}),
        _left(theirs, {j for of in stretches for _, j in of}),
    )
    return [
        list(zip(left[name], right[name], strict=True)) for name in left if len(left[name]) == len(right.get(name, ()))
    ]


def _left(names: Sequence[str], used: set[int]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if place not in used:
            places.setdefault(name, []).append(place)
    return places
