"""Knobs that a run held, as the one text in its options, and back."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

__all__ = ["held_of", "held_text"]


def held_text(held: Mapping[str, str]) -> str:
    """``NAME=VALUE`` a knob, by name, quoted as for a shell where a value has blanks."""
    return shlex.join(f"{name}={value}" for name, value in sorted(held.items()))


def held_of(text: str) -> dict[str, str]:
    """The knobs in such a text; words that are none, as a text from elsewhere may hold, are left out."""
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote: a value that was written without quoting it
        words = text.split()
    pairs = (word.partition("=") for word in words if "=" in word)
    return {name: value for name, _, value in pairs}
