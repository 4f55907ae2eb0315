"""Drawings: numbers on axes, text that can't be markup, lines that fit."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.report.svg import Canvas, Scale, number, percent_ticks, ratio_ticks, round_ticks, wrapped


@pytest.mark.parametrize(
    ("low", "high", "about", "expected"),
    [(0, 10, 5, [0, 2, 4, 6, 8, 10]), (95.4, 97.2, 4, [95.5, 96, 96.5, 97]), (0, 0, 3, [0]), (-1, 1, 2, [-1, 0, 1])],
)
def test_ticks_are_round_and_inside(low: float, high: float, about: int, expected: list[float]) -> None:
    assert round_ticks(low, high, about=about) == pytest.approx(expected)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_there_are_about_as_many_ticks_as_asked_for(low: float, span: float, about: int) -> None:
    ticks = round_ticks(low, low + span, about=about)
    assert len(ticks) <= about + 2
    slack = 1e-6 * span + 4 * math.ulp(abs(low) + span)  # no tick can be nearer than its own rounding
    assert all(low - slack <= tick <= low + span + slack for tick in ticks)


def test_small_effects_get_even_ratios_and_large_ones_a_log_scale() -> None:
    small = ratio_ticks(math.log(0.998), math.log(1.013), about=5)
    assert [text for _, text in small] == ["1.000x", "1.005x", "1.010x"]
    large = [text for _, text in ratio_ticks(math.log(0.9), math.log(6), about=3)]
    assert large == ["1x", "2x", "3x", "5x"]
    assert [text for _, text in percent_ticks(-0.012, 0.011, about=3)] == ["-1 %", "0 %", "+1 %"]


def test_a_scale_keeps_outliers_on_its_edge() -> None:
    scale = Scale(low=0, high=10, start=100, end=0)
    assert (scale(5), scale(99), scale(-99)) == (50, 0, 100)
    assert Scale(low=1, high=1, start=0, end=10)(1) == 5


def test_text_is_escaped_and_the_drawing_has_name_and_description() -> None:
    canvas = Canvas(100, 50)
    canvas.text(0, 10, '<script>&"')
    canvas.mark(5, 5, "dot", "best", tip="a < b")
    root = ET.fromstring(canvas.drawing("what", "how & why", look="wide"))
    assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
    assert [child.text for child in root][:2] == ["what", "how & why"]
    assert root.attrib["role"] == "img"
    assert '<script>&"' in [child.text for child in root]


@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=120), st.floats(60, 400))
def test_wrapped_text_fits_and_loses_nothing_but_blanks(text: str, room: float) -> None:
    lines = wrapped(text, room, char=6.0)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(len(line) <= max(8, int(room / 6.0)) for line in lines)


def test_long_flags_break_behind_signs() -> None:
    assert wrapped("--xla_gpu_a=ONE_TWO_THREE --b=1", 100, char=6.0) == ["--xla_gpu_a=ONE_", "TWO_THREE --b=1"]
    assert number(12.04) == "12"
