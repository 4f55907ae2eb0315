"""The content of a report as data (paragraphs, tables, figures, folds), to be rendered as HTML, Markdown or text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "QUOTED",
    "Block",
    "Cell",
    "Code",
    "Commands",
    "Figure",
    "Fold",
    "Link",
    "Paper",
    "Prose",
    "Section",
    "Table",
    "Tone",
]

QUOTED = re.compile(r"`([^`]+)`")
"""What a paragraph gives as code."""

Tone: TypeAlias = Literal["good", "plain", "warn", "bad"]
"""What a statement means for the reader; never told by colour alone."""


class Code(msgspec.Struct, frozen=True):
    """Text to be copied as it stands: a setting, a path, a command."""

    text: str


class Link(msgspec.Struct, frozen=True):
    """A file's path, and how to reach it from where the report lies."""

    text: str
    target: str


Cell: TypeAlias = str | Code | Link


class Prose(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Commands(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Lines to be copied as they stand."""

    lines: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rows under named columns; the first cell of a row names it. `align`: one of ``<`` and ``>`` a column."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    align: str = ""


class Figure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A chart, drawn for a wide and for a narrow page as SVG elements; only HTML shows it.

    `title`: what is plotted, axes included. `caption`: how to read it, with what was left out.
    """

    title: str
    caption: str
    wide: str
    narrow: str


class Fold(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Details that stay closed until somebody wants them."""

    summary: str
    blocks: tuple[Block, ...]


Block: TypeAlias = Prose | Commands | Table | Figure | Fold


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is a word for links within the page."""

    name: str
    title: str
    blocks: tuple[Block, ...]


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report. `verdict`: its one sentence; `facts`: name → value, what it is about."""

    title: str
    verdict: str
    tone: Tone
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

    @classmethod
    def of(
        cls,
        title: str,
        verdict: str,
        *,
        tone: Tone,
        facts: Sequence[tuple[str, str]],
        sections: Sequence[Section],
    ) -> Paper:
        """Sections without content and facts without a value are left out."""
        return cls(
            title=title,
            verdict=verdict,
            tone=tone,
            facts=tuple(fact for fact in facts if fact[1]),
            sections=tuple(section for section in sections if section.blocks),
        )
