"""What tests of the command line hand around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Served:
    """What a command line came to."""

    code: int
    out: str
    err: str


Tune = Callable[..., Served]
"""Serves one command line, given word by word."""
