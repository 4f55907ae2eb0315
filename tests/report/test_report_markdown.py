"""The report in Markdown, read back by a CommonMark parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from synthetic_run import FOLDER, SCENARIOS, faster

from tuner.report.blocks import Code, Commands, Fold, Link, Paper, Prose, Section, Table
from tuner.report.markdown import render_markdown
from tuner.report.paper import run_paper

READER = MarkdownIt("commonmark").enable("table")
AWKWARD = "a|b `c` *d* _e_ <f> [g] # h ~~i~~ & \\"


def cells(html: str) -> list[str]:
    found = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html, re.DOTALL)
    plain = [re.sub("<[^>]+>", "", cell) for cell in found]
    return [
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&") for text in plain
    ]


def paper(*blocks: Prose | Commands | Table | Fold) -> Paper:
    section = Section(name="s", title="S", blocks=blocks)
    return Paper.of("title", "verdict", tone="plain", facts=[], sections=[section])


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_table_of_any_run_is_read_as_one(name: str) -> None:
    made = run_paper(SCENARIOS[name](), beside=Path(FOLDER))
    text = render_markdown(made)
    html = READER.render(text)
    tables = sum(count_tables(block) for section in made.sections for block in section.blocks)
    assert html.count("<table>") == tables > 0
    assert html.count("<h2>") == len(made.sections)
    assert "\x1b" not in text


def count_tables(block: object) -> int:
    if isinstance(block, Fold):
        return sum(map(count_tables, block.blocks))
    return int(isinstance(block, Table))


def test_whatever_a_cell_holds_arrives() -> None:
    table = Table(
        caption="c", head=("x", "y"), rows=((AWKWARD, Code("--a=b|c")), ("", Code("x`y")), ("z", Code("_k_")))
    )
    assert cells(READER.render(render_markdown(paper(table))))[2:] == [AWKWARD, "--a=b|c", "", "x`y", "z", "_k_"]


def test_a_paragraph_is_only_text() -> None:
    for text in (AWKWARD.replace("`c`", "`c"), "# no heading", "1. no list", "- no item", "xla_gpu_a and 2*3*4"):
        html = READER.render(render_markdown(paper(Prose(text=text))))
        assert re.search(r"<p>[^<]*</p>\s*$", html), html
        assert cells(f"<td>{html.rpartition('<p>')[2].partition('</p>')[0]}</td>") == [text]


def test_what_a_paragraph_quotes_is_code() -> None:
    html = READER.render(render_markdown(paper(Prose(text="- `tune profile a_b.py <x>` does it_, not ` this"))))
    assert "<p>- <code>tune profile a_b.py &lt;x&gt;</code> does it_, not ` this</p>" in html


def test_commands_and_links_survive() -> None:
    block = Commands(lines=("echo '```'", ". best.sh"))
    table = Table(caption="c", head=("f",), rows=((Link("a b|c", "a b|c"),),))
    html = READER.render(render_markdown(paper(block, table)))
    assert "echo '```'\n. best.sh\n</code>" in html
    assert 'href="a%20b%7Cc"' in html


def test_the_answer_comes_first() -> None:
    lines = render_markdown(run_paper(faster())).splitlines()
    assert lines[2].startswith("**faster: 1.43x")
    assert lines.index("## What to do") < 8
