"""Ranks of a gang that are slower than the others."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from tuner.protocol.messages import Block

__all__ = ["stragglers"]


def stragglers(blocks: Iterable[Block], *, share: float = 0.05) -> dict[int, float]:
    """Ranks whose steps take longer than the median rank's by more than `share`, with the ratio: the median over blocks
    of each rank's time relative to its block's median rank.

    A collective makes everybody wait for the last, so a rank shows here by what it does beyond them; one that only
    keeps the others waiting shows in everybody's time.
    """
    ratios: dict[int, list[float]] = {}
    for block in blocks:
        if len(block.ranks_s) > 1:
            usual = median(block.ranks_s)
            for rank, seconds in enumerate(block.ranks_s):
                ratios.setdefault(rank, []).append(seconds / usual)
    typical = {rank: median(row) for rank, row in ratios.items()}
    return {rank: ratio for rank, ratio in typical.items() if ratio > 1 + share}
