"""The result as text: every width, with and without colour, every end of a run."""

from __future__ import annotations

import re

import msgspec
import pytest
from synthetic_run import FILES, MATH, SCENARIOS, all_failed, failing, faster, interrupted, same

from tuner.protocol.failure import FailureClass
from tuner.report.headline import headline
from tuner.report.terminal import render_result
from tuner.report.view import STAGES, RunView
from tuner.store.events import AnyEvent, PairTimed, SessionClosed, TrialFinished

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def rendered(events: list[AnyEvent], *, width: int = 100) -> str:
    return render_result(RunView.of(events), width=width)


def section(text: str, title: str) -> str:
    """The lines under a title, up to the next empty one, in one line."""
    found = re.search(rf"^{title}\b.*?(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found.group().split()) if found else ""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_verdict_comes_first_and_no_stage_is_hidden(scenario: str) -> None:
    """In every run, at every width."""
    view = RunView.of(SCENARIOS[scenario]())
    for width in (40, 60, 100, 200):
        text = render_result(view, width=width)
        assert " ".join(text.split()).startswith(headline(view))
        assert [line.split()[0] for line in section_lines(text, "time") if line[2:3] != " "] == list(STAGES)


def section_lines(text: str, title: str) -> list[str]:
    """The indented lines under a title."""
    lines = iter(text.splitlines())
    before = ""
    for line in lines:
        if not before and line.split()[:1] == [title]:  # a title stands after an empty line
            break
        before = line
    found = []
    for line in lines:
        if not line:
            break
        found.append(line)
    return [line for line in found if line.startswith("  ") and not line.startswith("      ")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_words_fit_the_width(scenario: str) -> None:
    """Only a line with a setting, a path or another long word may run past the page."""
    for width in (60, 80, 120):
        for line in rendered(SCENARIOS[scenario](), width=width).splitlines():
            assert len(line) <= width or max(map(len, line.split())) > width // 2, line


def test_settings_come_with_their_own_effect() -> None:
    """Each of the settings that will be emitted, as it is written, with ratio and interval."""
    kept = section(rendered(faster()), "settings")
    assert "MALLOC_ARENA_MAX=1 1.012x (1.006–1.018)" in kept
    assert f"--{MATH}=false 1.41x (1.38–1.44)" in kept
    dropped = section(rendered(faster()), "dropped")
    assert "--xla_cpu_parallel_codegen_split_count=8 without it the program compiles to the same code" in dropped
    assert f"XLA_FLAGS=--{MATH}=false MALLOC_ARENA_MAX=1" in section(rendered(faster()), "environment")


@pytest.mark.parametrize("scenario", ["same", "unclear", "interrupted", "all_failed"])
def test_no_settings_are_offered_without_a_gain(scenario: str) -> None:
    """Only `faster` has something to set."""
    text = rendered(SCENARIOS[scenario]())
    assert not section(text, "settings")
    assert not section(text, "environment")


def test_a_finalist_that_was_not_proven_is_shown() -> None:
    """With its verdict; the one finalist of a gain is the headline already."""
    assert f"--{MATH}=false same 1.001x (0.998–1.004)" in section(rendered(same()), "finalists")
    assert not section(rendered(faster()), "finalists")


def test_failures_are_told_by_class_with_reasons() -> None:
    """What many share is counted; what one candidate says names it; where there is no message, how it ended."""
    failed = section(rendered(all_failed()), "failed")
    assert "5 candidates" in failed
    assert "fatal 2 2 times: F0000 00:00:00 hlo_pass_pipeline.cc:88] Unknown pass fusion" in failed
    assert "split_count=1: RESOURCE_EXHAUSTED: out of memory allocating 17179869184 bytes" in failed
    assert "crash 1 MALLOC_ARENA_MAX=1: SIGSEGV, exit code -11 in start" in failed


def test_many_reasons_are_cut_with_their_number() -> None:
    """The top few, and how many more."""
    events = all_failed()
    trial = next(e for e in events if isinstance(e, TrialFinished) and e.failure)
    more = [
        msgspec.structs.replace(trial, number=100 + i, failure=failing(FailureClass.COMPILE, f"reason {i}"))
        for i in range(5)
    ]
    failed = section(rendered([*events, *more]), "failed")
    assert "compile 5" in failed
    assert "reason 2" in failed
    assert "reason 3" not in failed
    assert "and 2 more reasons" in failed


def test_infrastructure_is_not_blamed_on_the_settings() -> None:
    """A protocol error says nothing about a candidate; a session that ended by itself is told."""
    trial = next(e for e in all_failed() if isinstance(e, TrialFinished) and e.failure)
    broken = msgspec.structs.replace(trial, failure=failing(FailureClass.PROTOCOL, "pipe closed"))
    lost = SessionClosed(session="e7", failure=failing(FailureClass.TIMEOUT, "no answer in 60 s"))
    failed = section(rendered([broken, lost]), "failed")
    assert "protocol (no fault of the settings) 1" in failed
    assert "sessions that ended 1 e7, timeout: no answer in 60 s" in failed
    alone = section(rendered([lost]), "failed")
    assert alone.startswith("failed no candidate, but sessions ended by themselves sessions that ended 1 e7")


def test_knobs_that_left_are_counted_by_class_with_reasons() -> None:
    """One entry a class with names and reason; live knobs that lost values or go by another name follow."""
    knobs = section(rendered(faster()), "knobs")
    assert "12 offered, 3 live" in knobs
    assert "and 1 more: needs platform gpu, this is cpu" in knobs
    assert "unsupported 2 xla_cpu_enable_xnnpack, xla_cpu_use_thunk_runtime: no such option in jaxlib" in knobs
    assert "inert xla_cpu_parallel_codegen_split_count loses 1: compiles to the control's program" in knobs


def test_time_by_stage() -> None:
    """What ended has its seconds; the one that was interrupted says so, and the others were not run."""
    time = section(rendered(interrupted()), "time")
    assert "time 18 s: compiling 4.5 s, timed steps 5.1 s, checking numbers 1.4 s, starting and ending" in time
    assert "5.5 s, other 1.6 s (9%)" in time
    assert "search 3.1 s interrupted after 1 trial minimise – not run" in time
    assert "search 1.6 s under way after 1 trial" in section(rendered(interrupted()[:-2]), "time")
    assert "baseline 0.0 s under way presets – not run" in section(rendered(faster()[:3]), "time")
    pair = [i for i, e in enumerate(faster()) if isinstance(e, PairTimed)][2]
    assert "under way after 3 pairs seal – not run" in section(rendered(faster()[: pair + 1]), "time")


def test_files_and_the_next_command_are_whole() -> None:
    """At any width a path is one word on one line; only files that are there are told."""
    path = "/a/very/long/path/" + "with/many/parts/" * 12 + "best.sh"
    for width in (40, 60, 200):
        text = render_result(RunView.of(faster()), width=width, files={"shell": path})
        assert [line for line in text.splitlines() if line.endswith(path)][-1] == f"  . {path}"
        assert path in section(text, "files").split()
        assert FILES["env"] not in section(text, "files").split()


def test_next_without_a_command_is_a_sentence() -> None:
    """What there is to do where the defaults hold."""
    assert section(rendered(same()), "next").startswith("next nothing: the defaults are as fast")


def test_plain_text_holds_no_escape_codes() -> None:
    """Not even those of a program's log; colour adds codes and changes no word."""
    for scenario in SCENARIOS.values():
        view = RunView.of(scenario())
        plain, coloured = render_result(view, width=80), render_result(view, width=80, color=True)
        assert "\x1b" not in plain
        assert plain == ESCAPES.sub("", coloured) != coloured


def test_no_color_is_honoured_by_the_renderer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says about colour of other programs changes nothing in plain text."""
    plain = rendered(faster())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    assert rendered(faster()) == plain


def test_notices_are_cleaned() -> None:
    """They may quote a program."""
    assert "– the step holds no collectives: knobs that act on them are left out" in section(
        rendered(faster()), "notices"
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_any_part_of_a_run_can_be_shown(scenario: str) -> None:
    """A log may end after any event."""
    events = SCENARIOS[scenario]()
    for end in range(0, len(events), 8):
        assert rendered(events[:end], width=60).endswith("\n")
