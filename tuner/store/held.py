"""Knobs that a run held, and the form in which it took its workload, as texts of its options, and back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

__all__ = ["form_of", "form_text", "forms_told", "held_of", "held_text"]

_ARGUMENTS = "--"  # no knob: those have a value


def held_text(held: Mapping[str, str]) -> str:
    """``NAME=VALUE`` a knob, by name, quoted as for a shell where a value has blanks."""
    return shlex.join(f"{name}={value}" for name, value in sorted(held.items()))


def held_of(text: str) -> dict[str, str]:
    """The knobs in such a text; words that are none, as a text from elsewhere may hold, are left out."""
    pairs = (word.partition("=") for word in _words(text) if "=" in word)
    return {name: value for name, _, value in pairs}


def form_text(knobs: str, argv: str) -> str:
    """What makes of a workload's file the program that a run tuned: parameters of build() as `held_text` has them, then
    the workload's arguments. "" where it was built as it stands."""
    return " ".join([*filter(None, [knobs]), *([_ARGUMENTS, argv] if argv else [])])


def form_of(text: str) -> tuple[str, str]:
    """The parameters and the arguments in a form's text."""
    words = _words(text)
    end = words.index(_ARGUMENTS) if _ARGUMENTS in words else len(words)
    return shlex.join(words[:end]), shlex.join(words[end + 1 :])


def forms_told(forms: Iterable[str]) -> str:
    """Forms for a message: ``as it stands, with width=8``."""
    return ", ".join(f"with {form}" if form else "as it stands" for form in forms)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote: a value that was written without quoting it
        return text.split()
