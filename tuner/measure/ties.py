"""Ties: which of several equally fast configs is chosen, wherever one is."""

from __future__ import annotations

import math

__all__ = ["tie_break"]


def tie_break(settings: int, peak_bytes: int | None = None) -> tuple[int, float]:
    """Sort key among configs that tie in speed: the smallest is chosen.

    The default (no settings) comes first, then fewer settings, then less memory: `peak_bytes` in two significant
    digits, since what is below that is the compiler's mood; unknown counts as most.
    """
    return settings, math.inf if peak_bytes is None else float(f"{peak_bytes:.1e}")
