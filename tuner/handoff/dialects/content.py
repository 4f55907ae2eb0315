"""What every dialect is given to write, and what a dialect is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tuner.handoff.cache import CACHE_DIR
from tuner.handoff.contents import Best

__all__ = ["Content", "Dialect"]


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """`about`: comment lines for the head of the file. `env`: what to set, byte for byte; None: must not be set.

    `name`: what an object that needs a name is called after. `best`: the same settings in every form. `cache`: the
    folder of the sealed compilation cache where it was written, None if there is none or `env` says where it is.
    `bound`: variables of `env` that make a program slower where that cache isn't found. `merged`: XLA_FLAGS holds the
    flags of the place where it will be loaded.
    """

    about: tuple[str, ...]
    env: dict[str, str | None]
    name: str
    best: Best
    cache: Path | None = None
    bound: tuple[str, ...] = ()
    merged: bool = False

    @property
    def set(self) -> dict[str, str]:
        """The variables that have a value, by name; those `bound` to the cache come with the place of it."""
        place = {CACHE_DIR: str(self.cache)} if self.bound and self.cache is not None else {}
        return {name: value for name, value in sorted({**self.env, **place}.items()) if value is not None}

    @property
    def unset(self) -> tuple[str, ...]:
        """The variables that must not be set."""
        return tuple(name for name, value in sorted(self.env.items()) if value is None)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One consumer's language. `write` makes the whole text of a file called like its second argument.

    `write` raises UsageError, naming the variable and another way, for what the dialect can't carry. `unsets`: it can
    say that a variable must not be set. `comments`: it can say what it holds; else the head must be shown elsewhere,
    with the `note` that says how to load it.
    """

    name: str
    consumer: str
    file: str
    write: Callable[[Content, str], str]
    unsets: bool = False
    comments: bool = True
    note: str = ""
