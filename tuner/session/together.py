"""What several ranks say of one thing, as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tuner.protocol.failure import Failure
from tuner.protocol.messages import Block, LeafStats, NumericsReply, ProfileReply

__all__ = ["slowest", "together", "worst"]


def slowest(entries: Iterable[Block | Failure]) -> Block | Failure:
    """The block of the rank that took longest: a gang is as fast as its last. A failure, if there is one."""
    blocks: list[Block] = []
    for entry in entries:
        if isinstance(entry, Failure):
            return entry
        blocks.append(entry)
    return max(blocks, key=lambda block: block.step_s)


def together(replies: Sequence[ProfileReply]) -> ProfileReply:
    """Rank 0's profile, which the others' belong to."""
    return dataclasses.replace(replies[0], ranks=tuple(replies[1:]))


def worst(replies: Sequence[NumericsReply]) -> NumericsReply:
    """Each leaf as the rank sees it whose part of it is farthest from the reference; a check holds if it does on all.

    The null set's limits are made the same way, so that they mean the same.
    """
    checks = [reply.check for reply in replies]
    failed = next((reply for reply in replies if reply.check is False), replies[0])
    return NumericsReply(
        leaves=tuple(_worst_leaf(leaves) for leaves in zip(*(reply.leaves for reply in replies), strict=True)),
        check=None if None in checks else all(checks),
        check_message=failed.check_message,
        precision=replies[0].precision,
        other_inputs=tuple(dict.fromkeys(path for reply in replies for path in reply.other_inputs)),
    )


def _worst_leaf(leaves: Sequence[LeafStats]) -> LeafStats:
    return dataclasses.replace(
        leaves[0],
        l2=max(leaf.l2 for leaf in leaves),
        slope=max(leaf.slope for leaf in leaves),
        masks_equal=all(leaf.masks_equal for leaf in leaves),
        travel=_most(leaf.travel for leaf in leaves),
        moved_l2=_most(leaf.moved_l2 for leaf in leaves),
        moved_slope=_most(leaf.moved_slope for leaf in leaves),
        still=any(leaf.still for leaf in leaves),
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
