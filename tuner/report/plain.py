"""A paper as text for a terminal: everything but the figures, folds open."""

from __future__ import annotations

from tuner.report.blocks import Block, Cell, Commands, Fold, Paper, Prose, Table, Tone
from tuner.report.layout import Page

__all__ = ["render_plain"]

_STYLES: dict[Tone, str] = {"good": "green", "plain": "", "warn": "yellow", "bad": "red"}


def render_plain(paper: Paper, *, width: int = 100, color: bool = False) -> str:
    """Without `color` the text holds no escape codes. What is to be copied is never cut or broken."""
    page = Page(width)
    page.prose(paper.verdict, style=f"bold {_STYLES[paper.tone]}".strip())
    page.blank()
    page.rows(list(paper.facts), indent=0, styles=("dim",))
    for section in paper.sections:
        page.heading(section.title)
        for block in section.blocks:
            _block(page, block)
    return page.text(color=color)


def _block(page: Page, block: Block) -> None:
    match block:
        case Prose():
            page.prose(block.text, style=_STYLES[block.tone], indent=2)
        case Commands():
            for line in block.lines:
                page.line(line, indent=2, style="cyan")
        case Table():
            rows = [block.head, *(tuple(map(_text, row)) for row in block.rows)]
            page.rows(rows, align=block.align, styles=("bold",))
        case Fold():
            page.prose(f"{block.summary}:", indent=2, style="dim")
            for inner in block.blocks:
                _block(page, inner)
        case _:
            pass  # a figure: its numbers stand in a table beside it


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell.text
