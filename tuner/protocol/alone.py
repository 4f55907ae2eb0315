"""How a worker is told to run a workload's steps by itself, with no parent to speak to."""

from __future__ import annotations

__all__ = ["ALONE"]

ALONE = "--alone"
"""Its first argument then. What follows: the workload, a JSON object with ``platform`` and ``knobs``, and the
workload's own arguments."""
