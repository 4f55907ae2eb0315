"""A paper as Markdown (GitHub's dialect), for pull requests and notes: everything but the figures."""

from __future__ import annotations

import re

from tuner.report.blocks import QUOTED, Block, Cell, Code, Commands, Fold, Link, Paper, Prose, Section, Table

__all__ = ["render_markdown"]

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)")
_AT_START = re.compile(r"^(#{1,6}(?=\s|$)|[-+=](?=\s|$)|\d+[.)](?=\s|$))")


def render_markdown(paper: Paper) -> str:
    """Headings, paragraphs, tables and closed folds; nothing that a report holds is read as markup."""
    facts = " · ".join(f"{_escaped(name)} {_code(value)}" for name, value in paper.facts)
    parts = [f"# {_escaped(paper.title)}", f"**{_escaped(paper.verdict)}**", facts]
    for section in paper.sections:
        parts += _section(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    return [f"## {_escaped(section.title)}", *(_block(block) for block in section.blocks)]


def _block(block: Block) -> str:
    match block:
        case Prose():
            plain, *quoted = QUOTED.split(block.text)
            code = "".join(_escaped(part) if i % 2 else _code(part) for i, part in enumerate(quoted))
            text = f"{_paragraph(plain)}{code}"
            return f"**{text}**" if block.tone in ("warn", "bad") else text
        case Commands():
            longest = max((len(run) for line in block.lines for run in re.findall("`+", line)), default=0)
            fence = "`" * max(3, longest + 1)
            return "\n".join((f"{fence}sh", *block.lines, fence))
        case Table():
            return _table(block)
        case Fold():
            inner = "\n\n".join(filter(None, map(_block, block.blocks)))
            return f"<details><summary>{_escaped(block.summary)}</summary>\n\n{inner}\n\n</details>"
        case _:
            return ""  # a figure: its numbers stand in a table beside it


def _table(table: Table) -> str:
    align = [table.align[i : i + 1] for i in range(len(table.head))]
    lines = [
        _row([_escaped(name) for name in table.head]),
        _row(["--:" if side == ">" else "---" for side in align]),
        *(_row([_cell(cell) for cell in row]) for row in table.rows),
    ]
    return f"{_paragraph(table.caption)}:\n\n" + "\n".join(lines)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Code):
        return _code(cell.text).replace("|", "\\|")  # tables are cut at bars before anything else is read
    if isinstance(cell, Link):
        return f"[{_escaped(cell.text)}](<{cell.target.replace('<', '%3C').replace('>', '%3E').replace('|', '%7C')}>)"
    return " ".join(_escaped(cell).split())


def _code(text: str) -> str:
    if not text:
        return ""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * (longest + 1)
    air = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{air}{' '.join(text.splitlines())}{air}{ticks}"


def _paragraph(text: str) -> str:
    return _AT_START.sub(lambda m: f"\\{m[0]}" if not m[0][0].isdigit() else f"{m[0][:-1]}\\{m[0][-1]}", _escaped(text))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda m: {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(m[0], f"\\{m[0]}"), text)
