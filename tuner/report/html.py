"""A paper as one self-contained HTML file: no network, no script, light and dark, narrow and wide, for print too."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import cycle
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from tuner.report.blocks import QUOTED, Figure, Paper, Section
from tuner.report.layout import UNIT

if TYPE_CHECKING:
    from jinja2 import Environment
__all__ = ["render_fragment", "render_html"]

_DASHES = re.compile(r"\W*--\w{1,3}")
_PIECE = re.compile(r"[^_=,/.:]{1,12}[_=,/.:]*|[_=,/.:]+")
_LONG = 16


def render_html(paper: Paper) -> str:
    """The whole page. It is well-formed XML too."""
    return _templates().get_template("page.html.jinja").render(paper=paper, css=_css()).rstrip() + "\n"


def render_fragment(paper: Paper, *, sections: tuple[str, ...]) -> str:
    """Verdict and some sections, by name, without figures or looks of their own: for notebooks."""
    shown = tuple(_without_figures(section) for section in paper.sections if section.name in sections)
    short = msgspec.structs.replace(paper, sections=shown)
    return _templates().get_template("fragment.html.jinja").render(paper=short)


def _without_figures(section: Section) -> Section:
    blocks = tuple(block for block in section.blocks if not isinstance(block, Figure))
    return msgspec.structs.replace(section, blocks=blocks)


@lru_cache(maxsize=1)
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("tuner.report", "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["breaking"] = _breaking
    environment.filters["url"] = lambda target: quote(target, safe="/.-_~:")
    return environment


def _breaking(text: str) -> Markup:
    """`text` for a page of any width. Its long words (settings, paths, hashes) may be broken behind what joins their
    parts, or every twelve characters, but not behind an option's dashes; a number stays with its unit. What stands
    between backquotes is code."""
    parts = (
        Markup("<code>{}</code>").format(_words(part)) if quoted else _words(UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", part))
        for part, quoted in zip(QUOTED.split(text), cycle((False, True)))
    )
    return Markup().join(parts)


def _words(text: str) -> Markup:
    return Markup().join(_word(word) for word in re.split(r"(\s+)", text))


def _word(word: str) -> Markup:
    dashes = _DASHES.match(word)
    start = dashes[0] if dashes else ""
    whole = Markup('<span class="whole">{}</span>').format(start) if start else Markup()
    rest = word[len(start) :]
    return whole + (Markup("<wbr/>").join(_PIECE.findall(rest)) if len(word) > _LONG else escape(rest))


@lru_cache(maxsize=1)
def _css() -> str:
    from importlib.resources import files

    return files("tuner.report").joinpath("templates/page.css").read_text()
