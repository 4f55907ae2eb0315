"""A paper as one self-contained HTML file: no network, no script, light and dark, narrow and wide, for print too."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from tuner.report.blocks import Figure, Paper, Section

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render_fragment", "render_html"]


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
    environment.filters["url"] = lambda target: quote(target, safe="/.-_~:")
    return environment


@lru_cache(maxsize=1)
def _css() -> str:
    from importlib.resources import files

    return files("tuner.report").joinpath("templates/page.css").read_text()
