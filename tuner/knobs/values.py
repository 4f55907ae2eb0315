"""Value texts of a knob: which are well formed, and what they are as compile options."""

from __future__ import annotations

import math
import re
from typing import Any

from tuner.knobs.knob import UNSET, ValueType
from tuner.protocol.messages import OptionValue

__all__ = ["complaint", "guess_type", "text_of", "typed"]

_BOOLS = {"true": True, "false": False}
_INT = re.compile(r"-?(0|[1-9][0-9]*)")
_WORD = re.compile(r"[A-Za-z0-9_.+\-]+")


def complaint(kind: ValueType, text: str) -> str | None:
    """Why `text` is no value of this type, with the spelling that is; None if it is one. "unset" always is."""
    if text == UNSET:
        return None
    match kind:
        case "bool":
            if text not in _BOOLS:
                close = {"1": "true", "0": "false"}.get(text, text.lower())
                return "is no bool; write " + (f'"{close}"' if close in _BOOLS else '"true" or "false"')
        case "int":
            if not _INT.fullmatch(text) or text == "-0":
                return 'is no int; write decimal digits, e.g. "32"'
        case "float":
            try:
                if not math.isfinite(float(text)) or text.strip() != text:
                    return "is no finite number"
            except ValueError:
                return 'is no float; write e.g. "0.5"'
        case "enum":
            if not _WORD.fullmatch(text):
                return "is no enum value: one word, without blanks or commas"
        case "list":
            if text and not all(_WORD.fullmatch(item) for item in text.split(",")):
                return 'is no list: words separated by commas without blanks, or "" for the empty list'
        case "string":
            if "\n" in text or "\0" in text:
                return "has a line break or a zero byte, which no variable can hold"
    return None


def typed(kind: ValueType, text: str) -> OptionValue:
    """`text` (well formed, not "unset") as the compile option or argument that it stands for."""
    match kind:
        case "bool":
            return _BOOLS[text]
        case "int":
            return int(text)
        case "float":
            return float(text)
        case _:
            return text


def text_of(value: Any) -> str:
    """The text of a TOML or Python scalar: booleans in lower case, as XLA and JAX read them. Raises TypeError else."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value")


def guess_type(texts: list[str]) -> ValueType:
    """The narrowest type that all of `texts` belong to."""
    for kind in ("bool", "int", "float"):
        if all(complaint(kind, text) is None for text in texts):
            return kind
    return "string"
