"""Page: what wraps, what doesn't, and where columns go."""

from __future__ import annotations

import re

from tuner.report.layout import Page

LONG = "--xla_" + "very_long_flag_" * 8 + "=true"


def test_prose_wraps_and_what_can_be_copied_does_not() -> None:
    """Words move to the next line; a flag longer than the page stays whole."""
    page = Page(40)
    page.prose(f"some words before {LONG} and some after it, which need a second line")
    lines = page.text(color=False).splitlines()
    assert LONG in lines
    assert all(len(line) <= 40 for line in lines if line != LONG)


def test_a_last_column_without_room_goes_below() -> None:
    """Beside the first column where it fits, on a line of its own where it doesn't."""
    for width, expected in ((200, f"  {LONG}  1.4x\n"), (60, f"  {LONG}\n      1.4x\n")):
        page = Page(width)
        page.rows([(LONG, "1.4x")])
        assert expected == page.text(color=False)


def test_columns_align() -> None:
    """Numbers to the right, text to the left, continuation lines under their column."""
    page = Page(44)
    page.rows([("a", "1", "one two three four five six"), ("bcd", "100", "x")], align="<>")
    assert page.text(color=False) == "  a      1  one two three four five six\n  bcd  100  x\n"
    page = Page(42)
    page.rows([("ab", "one two three four five six seven eight nine")])
    assert page.text(color=False) == "  ab  one two three four five six seven\n      eight nine\n"


def test_wide_characters_count_twice() -> None:
    """A workload's own knob may be named in any script."""
    page = Page(80)
    page.rows([("層", "a"), ("xyz", "b")])
    assert page.text(color=False) == "  層   a\n  xyz  b\n"


def test_a_number_stays_with_its_unit() -> None:
    """A line never ends between 0.6 and %."""
    page = Page(30)
    page.prose("the smallest gain to see is 0.6 % here")
    assert page.text(color=False) == "the smallest gain to see is\n0.6 % here\n"


def test_colour_adds_nothing_but_codes() -> None:
    """Without colour there is no escape character; with it the text is the same."""
    page = Page(80)
    page.heading("title", "note")
    page.rows([("a", "b")], styles=("red", "green"))
    plain, coloured = page.text(color=False), page.text(color=True)
    assert "\x1b" not in plain
    assert plain == re.sub(r"\x1b\[[0-9;]*m", "", coloured) != coloured


def test_text_is_not_markup() -> None:
    """Brackets and :names: in foreign text are shown as they are."""
    page = Page(80)
    page.prose("[red]x[/red] :smile: [0].v")
    assert page.text(color=True) == "[red]x[/red] :smile: [0].v\n"
