"""Page: lines of styled text laid out for one width, as plain text or with colour."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

__all__ = ["UNIT", "Page"]

_NARROWEST = 30
_PROSE = 110  # longer lines of prose are hard to read, however wide the terminal
_GAP = 2
UNIT = re.compile(r"(\d) (%|(?:ms|s|min|h)\b)")  # a number stays with its unit
_ROOM = 28  # a last column narrower than this goes onto lines of its own


class Page:
    """Collects lines. Prose wraps between words; settings, paths and commands are never broken or cut, so that they
    can be copied: what doesn't fit the width gets a line of its own and runs past it."""

    def __init__(self, width: int) -> None:
        self.width = max(width, _NARROWEST)
        self._lines: list[Text] = []

    def blank(self) -> None:
        """An empty line, never two in a row nor one at the top."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def line(self, text: str, *, style: str = "", indent: int = 0) -> None:
        """One line, whatever its length."""
        self._lines.append(Text(" " * indent) + Text(text, style=style))

    def heading(self, text: str, note: str = "") -> None:
        """A section's title, after an empty line; `note` is prose that stands behind it where it fits."""
        self.blank()
        self.rows([(text, note)] if note else [(text,)], styles=("bold", "dim"), indent=0)

    def prose(self, text: str, *, style: str = "", indent: int = 0) -> None:
        """Wrapped between words."""
        for part in self._wrap(text, indent):
            self.line(part, style=style, indent=indent)

    def rows(
        self,
        rows: Sequence[Sequence[str]],
        *,
        indent: int = 2,
        align: str = "",
        styles: Sequence[str] = (),
        wrap: bool = True,
    ) -> None:
        """A table without lines. The last column wraps (unless `wrap` is False); where it has no room, each row's last
        cell goes below the others. `align`: one of ``<`` and ``>`` a column. `styles`: one a column."""
        if not rows:
            return
        columns = max(len(row) for row in rows)
        if columns == 1:
            for row in rows:
                self.line(row[0], style=styles[0] if styles else "", indent=indent)
            return
        widths = [max(cell_len(row[i]) for row in rows) for i in range(columns - 1)]
        left = indent + sum(widths) + _GAP * len(widths)
        longest = max(cell_len(row[-1]) for row in rows)
        beside = longest <= self.width - left or (wrap and self.width - left >= _ROOM)
        for row in rows:
            line = Text(" " * indent)
            for i, cell in enumerate(row[:-1]):
                pad = " " * (widths[i] - cell_len(cell)) if beside or i < columns - 2 else ""
                text = Text(cell, style=styles[i] if i < len(styles) else "")
                line += Text(pad) + text if align[i : i + 1] == ">" and beside else text + Text(pad)
                line += Text(" " * _GAP)
            style = styles[columns - 1] if len(styles) >= columns else ""
            hang = left if beside else indent + 4
            parts = self._wrap(row[-1], hang) if wrap else [row[-1]]
            if beside and parts:
                line += Text(parts[0], style=style)
                parts = parts[1:]
            line.rstrip()
            self._lines.append(line)
            for part in parts:
                if part:
                    self.line(part, style=style, indent=hang)

    def text(self, *, color: bool) -> str:
        """Everything as one string that ends in a newline; without `color` it holds no escape codes."""
        if not color:
            return "".join(f"{line.plain}\n" for line in self._lines)
        out = StringIO()
        console = Console(file=out, force_terminal=True, color_system="standard", width=self.width, highlight=False)
        console.print(Text("\n").join(self._lines), soft_wrap=True)
        return out.getvalue()

    def _wrap(self, text: str, indent: int) -> list[str]:
        room = max(min(self.width, _PROSE) - indent, 12)
        kept = UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text)
        parts = textwrap.wrap(kept, room, break_long_words=False, break_on_hyphens=False)
        return [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts]
