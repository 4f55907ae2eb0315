"""What profiles of the shipped workloads were on cards: one H100, or one or two H200s, jax 0.11.2."""

from __future__ import annotations

import functools
import lzma
from pathlib import Path

import msgspec

from tuner.profile import Ceiling
from tuner.protocol.messages import ProfileReply

ASSETS = Path(__file__).parent / "assets"


class Card(msgspec.Struct, frozen=True):
    """Some steps of both traces (`as_run`, and `named` without command buffers), the HLO, and the card's ceilings."""

    as_run: ProfileReply
    named: ProfileReply
    texts: list[str]
    ceiling: Ceiling


@functools.cache
def card(name: str) -> Card:
    """A file that `cut_trace.py` made."""
    return msgspec.json.decode(lzma.decompress((ASSETS / f"{name}.json.xz").read_bytes()), type=Card)
