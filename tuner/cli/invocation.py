"""The command line being served, which every command can ask about."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Invocation"]


@dataclass
class Invocation:
    """`arguments`: without the program's name. `debug` turns on as it becomes known."""

    arguments: tuple[str, ...] = ()
    debug: bool = False
