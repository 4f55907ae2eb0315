"""Leaves compared in groups of one kind: on an accelerator where they are, if they are many or large, else on the host.

A call, on either side, takes longer than the sums of a small leaf; and on an accelerator each kind costs programs.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tuner.worker import on_device, shards
from tuner.worker.on_host import Room, compared
from tuner.worker.saved import seen
from tuner.worker.stats import Difference, Start

__all__ = ["Pair", "differences"]

# Elements of one kind from which an accelerator's leaves are compared where they are. For so many the host takes a
# tenth of a second, after one step and after several; the two programs take two seconds to make, and each session two
# tenths to load.
_ON_DEVICE = 1 << 23

# Elements of a group: of float32 a stack of 16 MiB on each of the four sides, which a card has room for whenever it has
# it for a step's outputs and the leaf of a reference. A larger leaf is a group by itself, and is not copied.
_GROUP = 1 << 22

_LEAVES = 64  # of a group: XLA makes several kernels of more than 128 operands

# Elements that an accelerator is sent before what it was sent first is done, so that one group is sent while another is
# compared. A leaf of gigabytes is there alone: a card with room for one's reference needn't have it for several'.
_AHEAD = 1 << 25

_THREADS = 4  # more of them wait for the interpreter
_THREADED = 1 << 20  # elements from which several threads are quicker than one


@dataclass(frozen=True)
class Pair:
    """One leaf. `reference`: this process's part, where `candidate` is spread over several. `candidate`: an array that
    programs can read (no PRNG keys: their words). `near`: it is compared on the host in any case."""

    reference: np.ndarray[Any, Any]
    candidate: jax.Array
    start: Start | None
    near: bool = False

    def here(self) -> jax.Array | None:
        """This process's part of the candidate as one array, None if it lies on several devices."""
        return shards.only_shard(self.candidate) if shards.is_spread(self.candidate) else self.candidate


def differences(pairs: Sequence[Pair], *, accelerator: bool, threads: int, run: Callable[..., Any]) -> list[Difference]:
    """Each pair's. `accelerator`: whether the candidates live on one; ``run(f, *args)`` calls a jitted function there.
    On the host at most so many threads compare."""
    there: list[list[int]] = []  # groups, by the pairs' indices
    here: list[list[int]] = []
    for kind in _kinds(pairs):
        one = pairs[kind[0]]
        far = accelerator and not one.near and one.reference.size * len(kind) >= _ON_DEVICE and one.here() is not None
        groups = _cut(kind, one.reference.size)
        if far:  # groups of one length have one program: the last has its first leaf again in place of what it lacks
            groups[-1] += groups[-1][:1] * (len(groups[0]) - len(groups[-1]))
        (there if far else here).extend(groups)
    if accelerator:
        for i in itertools.chain(*here):
            if pairs[i].candidate.is_fully_addressable:
                pairs[i].candidate.copy_to_host_async()  # all at once: each by itself is mostly a wait
    found: dict[int, Difference] = {}
    begun: deque[tuple[list[int], Callable[[], list[Difference]]]] = deque()
    for group in there:
        while begun and sum(pairs[i].reference.size for one in (group, *(g for g, _ in begun)) for i in one) > _AHEAD:
            _end(*begun.popleft(), found)
        begun.append((group, _begin([pairs[i] for i in group], run)))
    _on_host(pairs, here, found, threads=min(threads, _THREADS))
    for group, end in begun:
        _end(group, end, found)
    return [found[i] for i in range(len(pairs))]


def _kinds(pairs: Sequence[Pair]) -> list[list[int]]:
    """Which can be compared together."""
    kinds: dict[Any, list[int]] = {}
    for i, pair in enumerate(pairs):
        arrays: list[Any] = [pair.reference, pair.candidate]
        if pair.start is not None:
            arrays += [pair.start.reference, pair.start.candidate]
        key = (pair.near, pair.candidate.sharding, *((array.shape, array.dtype) for array in arrays))
        kinds.setdefault(key, []).append(i)
    return list(kinds.values())


def _cut(kind: list[int], size: int) -> list[list[int]]:
    """Groups of about equally many leaves of `size` elements, the last the smallest."""
    most = max(1, min(_LEAVES, _GROUP // max(1, size)))
    count = -(-len(kind) // -(-len(kind) // most))
    return [kind[begin : begin + count] for begin in range(0, len(kind), count)]


def _begin(group: Sequence[Pair], run: Callable[..., Any]) -> Callable[[], list[Difference]]:
    parts = [part for pair in group if (part := pair.here()) is not None]
    return on_device.begun([pair.reference for pair in group], parts, _starts(group), run=run)


def _end(group: Sequence[int], end: Callable[[], list[Difference]], found: dict[int, Difference]) -> None:
    found.update(zip(group, end(), strict=True))


def _on_host(
    pairs: Sequence[Pair], groups: Sequence[Sequence[int]], found: dict[int, Difference], *, threads: int
) -> None:
    room = Room()
    with ThreadPoolExecutor(threads, thread_name_prefix="tuner-compare") as pool:
        for indices in groups:
            group = [pairs[i] for i in indices]
            references = [pair.reference for pair in group]
            many = threads > 1 and sum(reference.size for reference in references) >= _THREADED
            values = [seen(pair.candidate) for pair in group]
            each = pool.map if many else map
            found.update(zip(indices, compared(references, values, _starts(group), room=room, each=each), strict=True))


def _starts(group: Sequence[Pair]) -> list[Start]:
    """All have one, or none."""
    return [pair.start for pair in group if pair.start is not None]
