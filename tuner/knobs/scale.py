"""Values that are shares of the program's own bytes, made numbers once the program is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from tuner.knobs.knob import UNSET, Knob

__all__ = ["KINDS", "scaled", "share"]

KINDS = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
)
"""Collectives as HLO names them."""

_SHARE = re.compile(r"(0|[1-9]\d{0,5})(?:/([1-9]\d{0,5}))?")


def share(text: str) -> Fraction | None:
    """The share that "1/8", "1" or "4" stands for; None if it is none."""
    match = _SHARE.fullmatch(text)
    return Fraction(int(match[1]), int(match[2] or 1)) if match else None


def scaled(knob: Knob, program: Mapping[str, int]) -> Knob | None:
    """`knob` with numbers of bytes for its shares, rounded up, where it has shares. `program`: the bytes of its
    collectives by kind (see `Compiled.collective_bytes`); of several kinds that the knob names the largest counts.
    None if none of them is known. Shares that give the same number are one value.
    """
    if not knob.scale:
        return knob
    unit = max((program.get(kind, 0) for kind in knob.scale), default=0)
    if not unit:
        return None
    values = [UNSET]
    for text in knob.values:
        if text != UNSET and (part := share(text)) is not None:
            values.append(str(-(-unit * part.numerator // part.denominator)))
    return msgspec.structs.replace(knob, values=tuple(dict.fromkeys(values)), scale=())
