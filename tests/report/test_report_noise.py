"""The noise of a run level by level, the resolution that was kept, compiles that differ, and the two claims."""

from __future__ import annotations

import msgspec
import pytest
from synthetic_run import MALLOC, MATH, faster, interrupted, same, unstable

from tuner.report.headline import next_step
from tuner.report.noise import claims, disturbances, draws, levels, noise, resolved
from tuner.report.terminal import render_result
from tuner.report.view import RunView
from tuner.store.events import AnyEvent, RoundTimed


def test_each_level_stands_by_itself() -> None:
    view = RunView.of(faster())
    assert levels(view) == {"step": 0.031, "round": 0.011, "turn": 0.013, "process": 0.009}
    assert [(name, sd) for name, sd, _ in noise(view)] == [
        ("step", "3.1 %"),
        ("round", "1.1 %"),
        ("turn", "1.3 %"),
        ("process", "0.9 %"),
    ]
    assert [name for name, _, _ in noise(RunView.of(interrupted()))] == ["step", "round"]
    assert noise(RunView.of([])) == []


def test_disturbed_rounds_and_pairs_are_counted() -> None:
    events: list[AnyEvent] = [
        msgspec.structs.replace(e, disturbed="gpu0 throttled: hw_thermal")
        if isinstance(e, RoundTimed) and e.stage == "baseline"
        else e
        for e in faster()
    ]
    rows = {name: text for name, _, text in noise(RunView.of(events))}
    assert "1 of 29 rounds disturbed, most often: gpu0 throttled: hw_thermal" in rows["round"]
    assert "1 pair timed again, 0 counted nevertheless" in rows["turn"]


def test_reasons_that_differ_in_numbers_alone_are_one() -> None:
    """Each with the range of its numbers; digits within a name are no numbers."""
    view = msgspec.structs.replace(
        RunView.of(faster()),
        disturbed={
            "gpu0 throttled: hw_thermal": 2,
            "other processes kept 9.5 of 64 cores busy": 1,
            "gpu1 throttled: hw_thermal": 1,
            "other processes kept 10.2 of 64 cores busy": 3,
        },
    )
    assert disturbances(view) == [
        (4, "other processes kept 9.5 to 10.2 of 64 cores busy"),
        (2, "gpu0 throttled: hw_thermal"),
        (1, "gpu1 throttled: hw_thermal"),
    ]


def test_a_resolution_that_was_not_kept_says_why() -> None:
    assert resolved(RunView.of(faster())) == (
        "resolved 1.1 %, planned 0.6 %: processes differ by 0.9 %, planned for 0.1 %"
    )
    view = RunView.of(faster())
    assert view.confirm is not None
    kept = msgspec.structs.replace(view, confirm=msgspec.structs.replace(view.confirm, resolution=0.005))
    assert resolved(kept) == "resolved 0.5 %, planned 0.6 %"
    assert resolved(RunView.of(interrupted())) == ""


def test_the_compile_lottery_is_told_of_both_sides() -> None:
    (default, ours), (name, theirs) = draws(RunView.of(faster()))
    assert (default, ours) == ("default", "6 compiles: 16.2 ms to 16.2 ms, spread 0 %")
    assert name == f"{MALLOC}=1 --{MATH}=false"
    assert theirs == "6 compiles, 2 different programs: 11.3 ms to 11.4 ms, spread 0.3 %"


def test_two_claims_stand_apart() -> None:
    settings, sealed = claims(RunView.of(faster()))
    assert settings == ("the settings, in a fresh compile", "1.43x (1.40–1.46) in 6 pairs")
    assert sealed == ("the sealed executable", "1.42x (1.40–1.44) in 4 pairs, the best of 3 compiles")
    assert claims(RunView.of(same())) == []


def test_a_sealed_executable_that_was_not_measured_says_why() -> None:
    view = RunView.of(faster())
    assert view.seal is not None
    record = msgspec.structs.replace(view.seal, sealed=None, sealed_note="it takes about 30 s")
    _, sealed = claims(msgspec.structs.replace(view, seal=record))
    assert sealed == ("the sealed executable", "not measured by itself: it takes about 30 s")


@pytest.mark.parametrize(
    ("requests", "why"), [(1, "the run that sealed it did not time it"), (0, "nothing was sealed")]
)
def test_a_log_without_a_reason_tells_a_missing_cache_from_one_that_was_not_timed(requests: int, why: str) -> None:
    view = RunView.of(faster())
    assert view.seal is not None
    record = msgspec.structs.replace(view.seal, sealed=None, cache_requests=requests)
    _, (_, said) = claims(msgspec.structs.replace(view, seal=record))
    assert said == f"not measured by itself: {why}"


@pytest.mark.parametrize(("platform", "helps"), [("cpu", "quota"), ("gpu", "locked clocks")])
def test_what_is_unstable_has_a_way_out(platform: str, helps: str) -> None:
    """Other processes on the host disturb a card's steps too: nothing blames the card alone."""
    view = RunView.of(unstable())
    assert view.probe is not None
    identity = {**view.probe.environment.identity, "platform": platform}
    environment = msgspec.structs.replace(view.probe.environment, identity=identity)
    view = msgspec.structs.replace(view, probe=msgspec.structs.replace(view.probe, environment=environment))
    assert "card is unstable" not in render_result(view)
    step = next_step(view, {})
    assert step.command.startswith("tune workloads/nbody.py")
    assert "--fresh" in step.command.split()  # without it the same command shows the same result again
    assert step.purpose.startswith("measures anew, once nothing else runs here; or on another machine")
    assert helps in step.purpose
