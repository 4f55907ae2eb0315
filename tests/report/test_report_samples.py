"""Raw samples told apart: which block belongs to which process of which pair."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_run import MALLOC, MATH, faster, interrupted

from tuner.knobs.config import Config
from tuner.measure.objective import Objective
from tuner.report.samples import control_levels, pair_samples, readings_over_time
from tuner.store.events import AnyEvent, PairTimed, RoundTimed

KEPT = Config.of({MATH: "false", MALLOC: "1"})


def test_every_pair_has_its_own_blocks() -> None:
    pairs = pair_samples(faster(), KEPT, Objective())
    assert [pair.index for pair in pairs] == list(range(6))
    assert all(pair.control_ms == pytest.approx([16.2]) for pair in pairs)
    assert all(pair.finalist_ms == pytest.approx([16.2 / 1.43]) for pair in pairs)
    assert pair_samples(faster(), Config.of({MATH: "true"}), Objective()) == []


def test_of_a_pair_timed_again_the_last_counts() -> None:
    events = faster()
    last = next(e for e in reversed(events) if isinstance(e, PairTimed))
    again = msgspec.structs.replace(last, control_ms=99.0, disturbed="")
    at = events.index(last)
    events[at] = msgspec.structs.replace(last, disturbed="somebody")
    events.insert(at + 1, again)
    pairs = pair_samples(events, KEPT, Objective())
    assert (len(pairs), pairs[-1].control_level, pairs[-1].disturbed) == (6, 99.0, "")


def test_a_log_without_blocks_still_tells_the_levels() -> None:
    events: list[AnyEvent] = [e for e in faster() if not isinstance(e, RoundTimed)]
    pair = pair_samples(events, KEPT, Objective())[0]
    assert (pair.control_ms, pair.finalist_ms) == ((), ())
    assert pair.control_level == pytest.approx(16.2)


def test_the_controls_level_comes_from_default_environments_alone() -> None:
    """A session with another environment has a control that is no default."""
    levels = control_levels(faster(), Objective())
    assert {level.session for level in levels if level.home} == {"home"}
    assert "e-malloc" not in {level.session for level in levels}
    assert sum(not level.home for level in levels) == 6
    assert all(level.ms == pytest.approx(16.2) for level in levels)


def test_other_functions_rounds_are_not_the_steps() -> None:
    events = [msgspec.structs.replace(e, function="eval") if isinstance(e, RoundTimed) else e for e in interrupted()]
    assert control_levels(events, Objective()) == []


def test_of_several_cards_the_lowest_reading_counts() -> None:
    first = next(e for e in faster() if isinstance(e, RoundTimed))
    hot = {"gpu0_clock_mhz": 1900.0, "gpu1_clock_mhz": 1700.0, "other_cores": 0.5}
    events: list[AnyEvent] = [msgspec.structs.replace(first, conditions=hot, time=7.0), first]
    assert readings_over_time(events, "clock_mhz") == [(7.0, 1700.0)]
    assert readings_over_time(events, "other_cores") == [(7.0, 0.5)]
