"""Plan: how many rounds a budget pays for."""

from __future__ import annotations

from tuner.measure.ratios import controls_for

__all__ = ["affordable_rounds", "blocks_in_round"]


def blocks_in_round(arms: int) -> int:
    """Blocks in one scheduled round of `arms` arms, the control's included; 0 for no arms."""
    return arms + controls_for(arms) if arms else 0


def affordable_rounds(seconds: float, arms: int, *, block_s: float) -> int:
    """Whole rounds of `arms` arms that fit into `seconds`, where a block (its discarded step included) takes `block_s`.

    Raises ValueError for a block that takes no time or for no arms.
    """
    if not block_s > 0 or arms < 1:
        raise ValueError(f"a round of {arms} arms with blocks of {block_s!r} s takes no time")
    return max(0, int(seconds / (blocks_in_round(arms) * block_s)))
