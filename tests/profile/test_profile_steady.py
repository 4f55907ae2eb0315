"""Traces of a machine that did other things too: what is left out of them, and when they say nothing."""

from __future__ import annotations

import msgspec
import pytest

from tuner.profile import analyse, doubt_of
from tuner.profile.steady import doubt, steadied
from tuner.profile.timeline import Event, Timeline
from tuner.protocol.messages import ProfileReply, TraceLabel, TraceLine

US = 1e3


def line(*work_us: float, step_us: float = 100.0) -> Timeline:
    """Steps of so much work each, one after another."""
    begins = [number * step_us * US for number in range(len(work_us))]
    events = tuple(Event(name="dot", start=b, end=b + w * US) for b, w in zip(begins, work_us, strict=True))
    return Timeline(
        platform="cpu", steps=tuple((b, b + step_us * US) for b in begins), devices={"cpu": events} if events else {}
    )


def reply(*work_us: float, step_us: float = 100.0, plain_us: float = 0.0) -> ProfileReply:
    labels = (TraceLabel(name="tune_step"), TraceLabel(name="dot.1", op="dot.1"))
    begins = tuple(round(number * step_us * US) for number in range(len(work_us)))
    own = TraceLine(
        plane="/host:CPU",
        name="python",
        labels=(0,) * len(begins),
        starts_ns=begins,
        durations_ns=(round(step_us * US),) * len(begins),
    )
    work = TraceLine(
        plane="/host:CPU",
        name="tf_XLAEigen/1",
        labels=(1,) * len(begins),
        starts_ns=begins,
        durations_ns=tuple(round(w * US) for w in work_us),
    )
    return ProfileReply(xplane="x", seconds=1e-6 * step_us, plain_s=1e-6 * plain_us, labels=labels, lines=(own, work))


def test_a_step_in_which_something_else_ran_is_left_out() -> None:
    found = steadied(line(4.0, 90.0, 3.9), 15e-6)
    assert [start for start, _ in found.steps] == [0.0, 200.0 * US]
    assert doubt(found, 15e-6) == ""


@pytest.mark.parametrize("step_s", [0.0, 60e-6, 40e-6])
def test_steps_that_fit_are_all_kept_though_they_differ(step_s: float) -> None:
    whole = line(20.0, 80.0, 20.0)
    assert steadied(whole, step_s) is whole


def test_work_that_is_longer_than_the_whole_step_is_doubted() -> None:
    assert "the work of a step takes 0.04 ms in the trace" in doubt(steadied(line(40.0, 40.0), 15e-6), 15e-6)
    assert doubt(line(17.0, 17.0), 15e-6) == ""  # as on cards


def test_a_step_that_takes_longer_without_the_tracer_is_doubted() -> None:
    assert "0.1 ms with it" in doubt(line(40.0, 40.0), 150e-6)
    assert doubt(line(40.0, 40.0), 105e-6) == ""


def test_nothing_is_doubted_where_nothing_is_known() -> None:
    empty = Timeline(platform="cpu", steps=((0.0, 1.0),), devices={})
    assert doubt(line(40.0), 0.0) == doubt(empty, 1.0) == doubt(msgspec.structs.replace(line(1.0), steps=()), 1.0) == ""


def test_a_doubted_trace_says_that_it_is_not_clear_and_not_that_the_host_is_slow() -> None:
    found = analyse(reply(40.0, 40.0, plain_us=300.0), [])
    assert doubt_of(reply(40.0, 40.0, plain_us=300.0)) == found.breakdown.doubt
    assert found.bound == "unknown"
    assert found.evidence.startswith(found.breakdown.doubt)
    assert "waiting for the host" in found.evidence
    assert not [f for f in found.findings if f.kind != "knobs"]
    assert sum(found.breakdown.parts.values()) == pytest.approx(0.3)
    assert analyse(reply(40.0, 40.0, plain_us=100.0), []).bound == "host"


def test_one_disturbed_step_of_three_does_not_hide_that_there_is_too_little_work() -> None:
    found = analyse(reply(4.0, 95.0, 4.0, plain_us=20.0), [])
    assert found.breakdown.steps == 2
    assert "tiny" in {f.kind for f in found.findings}
