"""Numbers, settings and foreign text as people read them."""

from __future__ import annotations

import math
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import estimate, failing

from tuner.knobs.config import DEFAULT, Config
from tuner.measure.types import Estimate
from tuner.protocol.failure import FailureClass
from tuner.report import wording

UNKNOWN = Estimate(gain=0.0, se=math.inf, low=-math.inf, high=math.inf, n=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (estimate(1.43, 0.03), "1.43x (1.40–1.46)"),
        (estimate(1.012, 0.006), "1.012x (1.006–1.018)"),
        (UNKNOWN, "1.00x (no interval)"),
        (Estimate(gain=math.nan, se=math.inf, low=math.nan, high=math.nan, n=0), "not computable"),
        (Estimate(gain=1e4, se=1.0, low=0.0, high=2e4, n=3), "not computable"),
    ],
)
def test_a_ratio_shows_its_interval(value: Estimate, text: str) -> None:
    """Two decimals, three for narrow intervals, and words where there is no number."""
    assert wording.ratio(value) == text


def test_an_interval_that_excludes_one_never_looks_as_if_it_touched_it() -> None:
    """1.003 as a lower bound isn't rounded to 1.00."""
    assert "(1.003–" in wording.ratio(
        Estimate(gain=math.log(1.03), se=0.01, low=math.log(1.003), high=math.log(1.058), n=6)
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(16.2, 11.33, "16.2 → 11.3 ms"), (90.41, 90.44, "90.41 → 90.44 ms"), (987.4, 90.4, "987 → 90.4 ms")],
)
def test_a_change_has_the_digits_that_tell_it_apart(before: float, after: float, text: str) -> None:
    """Three significant digits, more where both sides would read the same."""
    assert wording.change_ms(before, after) == text


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (0.04, "0.0 s", "0:00"),
        (2.14, "2.1 s", "0:02"),
        (83, "83 s", "1:23"),
        (725, "12 min 5 s", "12:05"),
        (7500, "2 h 5 min", "2:05:00"),
        (9.96, "10 s", "0:09"),
        (-1, "0.0 s", "0:00"),
    ],
)
def test_durations(seconds: float, long: str, short: str) -> None:
    """Two units at most, and a clock for the live display."""
    assert (wording.duration(seconds), wording.clock(seconds)) == (long, short)


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.006, "0.6 %"), (0.95, "95 %"), (0.1234, "12.3 %"), (math.inf, "unknown"), (0.0, "0 %")]
)
def test_percent(fraction: float, text: str) -> None:
    """No trailing zeros; what isn't finite is unknown."""
    assert wording.percent(fraction) == text


def test_an_empty_value_is_said_to_be_one() -> None:
    """`--flag=` is a setting of its own, told apart from an unset flag."""
    config = Config.of({"xla_disable_hlo_passes": "", "MALLOC_ARENA_MAX": "1"})
    assert wording.settings(config) == "MALLOC_ARENA_MAX=1 --xla_disable_hlo_passes= (empty)"
    assert wording.settings(DEFAULT) == "default"


def test_a_sentence_keeps_the_capitals_inside() -> None:
    assert wording.sentence("the GPU runs at 1400 MHz") == "The GPU runs at 1400 MHz"
    assert wording.sentence("") == ""


def test_shell_lines_hold_the_exact_texts() -> None:
    """All flags stand in one XLA_FLAGS, quoted so that a shell reads back what was given."""
    config = Config.of({"xla_b": "x y", "xla_a": "", "NCCL_ALGO": "Ring;Tree"})
    xla, nccl = wording.flags(config)
    assert shlex.split(xla) == ["XLA_FLAGS=--xla_a= --xla_b=x y"]
    assert shlex.split(nccl) == ["NCCL_ALGO=Ring;Tree"]
    assert wording.flags(DEFAULT) == ()


def test_foreign_text_loses_its_escape_codes() -> None:
    """Colours, titles and carriage returns of a program's log don't reach the reader's terminal."""
    assert wording.clean("\x1b]0;title\x07\x1b[1;31mbad\x1b[0m\r\tend\x00") == "bad end"


@given(st.text())
def test_clean_text_is_printable(text: str) -> None:
    """Whatever a worker prints, no control character but a newline is left."""
    assert not [c for c in wording.clean(text) if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]


def test_a_reason_falls_back_to_how_the_process_ended() -> None:
    """A crash often leaves no message."""
    crash = failing(FailureClass.CRASH, "", phase="round", signal="SIGSEGV", exit_code=-11, rank=1)
    assert wording.reason(crash) == "SIGSEGV, exit code -11, rank 1 in round"
    assert wording.reason(failing(FailureClass.COMPILE, "no\x1b[0mpe")) == "nope"


def test_some_names_and_the_rest() -> None:
    """A list that is cut says by how much."""
    assert wording.some("abc", 2) == "a, b, and 1 more"
    assert wording.some("ab", 2) == "a, b"


def test_sizes() -> None:
    """Binary units."""
    assert [wording.bytes_text(n) for n in (512, 1_610_612_736)] == ["512 bytes", "1.5 GiB"]
