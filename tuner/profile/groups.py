"""Which ranks take part in a collective together, by what its HLO says of devices."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from tuner.profile.hlo import Instruction

__all__ = ["rank_groups"]

_LISTED = re.compile(r"\breplica_groups=\{(\{[\d,{}]*\})\}")
_GROUP = re.compile(r"\{([\d,]+)\}")
_IOTA = re.compile(r"\breplica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


def rank_groups(instruction: Instruction | None, ranks: int) -> list[tuple[int, ...]]:
    """Ranks that wait for each other in `instruction`; () for a permutation, in which each waits for its neighbour
    alone. All of them where nothing is known of it or its devices don't divide evenly.

    Devices are taken to be numbered rank by rank, as jax does unless a mesh orders them otherwise.
    """
    everyone = [tuple(range(ranks))]
    if instruction is None:
        return everyone
    if instruction.opcode.startswith("collective-permute"):
        return []
    groups = _listed(instruction.text) or _iota(instruction.text)
    devices = sum(map(len, groups))
    if not groups or devices % ranks or {*itertools.chain(*groups)} != {*range(devices)}:
        return everyone
    share = devices // ranks
    found = dict.fromkeys(tuple(sorted({device // share for device in group})) for group in groups)
    return [group for group in found if len(group) > 1]


def _listed(text: str) -> list[list[int]]:
    found = _LISTED.search(text)
    return [[int(n) for n in group.split(",")] for group in _GROUP.findall(found.group(1))] if found else []


def _iota(text: str) -> list[list[int]]:
    """All devices in order, as an array of some shape, its axes in another order, cut into groups."""
    found = _IOTA.search(text)
    if found is None:
        return []
    count, size = int(found.group(1)), int(found.group(2))
    shape = [int(n) for n in found.group(3).split(",")]
    order = [int(n) for n in found.group(4).split(",")] if found.group(4) else [*range(len(shape))]
    if math.prod(shape) != count * size or sorted(order) != [*range(len(shape))]:
        return []
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    places = itertools.product(*(range(shape[axis]) for axis in order))
    flat = [_offset(place, [strides[axis] for axis in order]) for place in places]
    return [flat[number * size : (number + 1) * size] for number in range(count)]


def _offset(place: Sequence[int], strides: Sequence[int]) -> int:
    return sum(index * stride for index, stride in zip(place, strides, strict=True))
