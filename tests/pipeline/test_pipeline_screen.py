"""The screen's order: a tier after the other, and what was never timed alone before combinations of what was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner.knobs import default_spaces, load_spaces
from tuner.machine import Host
from tuner.measure import Verdict
from tuner.pipeline.budget import Budget
from tuner.pipeline.screen import _in_order, _Screened
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import EffectHidden, StageFinished, TrialFinished
from tuner.store.records import BaselineRecord, ConfirmRecord, MinimiseRecord, ScreenRecord

pytestmark = pytest.mark.slow

LAST = "xla_made_up_23"


def knob(number: int, lane: str) -> str:
    carrier, kind, value = ("xla_flag", "bool", "true") if lane == "option" else ("env", "string", "1")
    return f"""
[[knob]]
name = "{"xla_made_up" if lane == "option" else "MADE_UP"}_{number}"
carrier = "{carrier}"
type = "{kind}"
values = ["unset", "{value}"]
lane = "{lane}"
acts_on = "{"hlo" if lane == "option" else "runtime"}"
why = "made up"
source = "test"
"""


def test_a_card_that_compiles_slowly_times_every_flip_and_finds_the_last_one(
    tune_on, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    host = Host(cpu="made up", cores=16, memory_bytes=1 << 36, kernel="made up")
    monkeypatch.setattr("tuner.pipeline.opening.read_host", lambda: host)
    space = tmp_path / "many.toml"
    space.write_text("version = 1\n" + "".join(knob(n, "option") for n in range(24)) + knob(0, "environment"))
    machine = FakeMachine(
        step_ms=97.0,
        effects={(LAST, "true"): -0.01},
        noise=NoiseModel(block_sd=0.001),
        start_s=9.0,
        starts_beside=4,
        compile_s=12.0,
        platform="gpu",
    )
    outcome = tune_on(machine, spaces=(str(space),), platform="gpu", budget_s=600.0)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    screened, confirmed = records[ScreenRecord], records[ConfirmRecord]
    assert not [s.name for s in screened.left if s.status == "skipped"]
    assert confirmed.chosen.as_dict() == {LAST: "true"}
    assert machine.now() < 660.0


@pytest.fixture
def tiered(tmp_path: Path) -> str:
    """A space with thirty knobs; those that are tried last stand first."""
    knobs = [
        f'[[knob]]\nname = "xla_{tier}_{index:02}"\ncarrier = "xla_flag"\ntype = "bool"\nvalues = ["true"]\n'
        f'lane = "option"\nacts_on = "hlo"\ntier = {tier}\nwhy = "made up."\nsource = "test"\n'
        for tier in (3, 2, 1)
        for index in range(10)
    ]
    path = tmp_path / "tiered.toml"
    path.write_text("version = 1\n" + "".join(knobs))
    return str(path)


def screened(outcome) -> tuple[list[str], ScreenRecord]:
    """The tiers of the flips in the order in which they ended, and the record."""
    flips = [e for e in outcome.events if isinstance(e, TrialFinished) and e.stage == "screen"]
    record = next(e.record for e in outcome.events if isinstance(e, StageFinished) and e.stage == "screen")
    return [next(iter(t.config.names)).split("_")[1] for t in flips], record


def test_tiers_are_tried_in_their_order(tune_on, tiered):
    tiers, record = screened(tune_on(FakeMachine(compile_s=0.1), spaces=(tiered,), budget_s=2000.0))
    assert tiers == sorted(tiers)
    assert len(tiers) == 30
    assert not [s for s in record.left if s.status == "skipped"]


def test_a_short_budget_tries_the_first_tier_and_names_what_it_skips(tune_on, tiered):
    machine = FakeMachine(effects={("xla_1_07", "true"): -0.1}, compile_s=6.0)
    outcome = tune_on(machine, spaces=(tiered,), budget_s=400.0)
    tiers, record = screened(outcome)
    assert tiers[:10] == ["1"] * 10
    skipped = [s for s in record.left if s.status == "skipped"]
    assert {s.name for s in skipped} >= {f"xla_3_{index:02}" for index in range(10)}
    assert not [s for s in skipped if s.name.startswith("xla_1")]
    assert "tier" in skipped[0].reason
    assert len(tiers) + len(skipped) == 30


@pytest.mark.parametrize(("effects", "tried"), [({}, 29), ({("xla_1_07", "true"): -0.1}, 20)])
def test_while_nothing_gains_what_was_postponed_gets_the_time(tune_on, tiered, effects, tried):
    """There is little to combine or to reduce then; six pairs' time is kept all the same."""
    machine = FakeMachine(effects=effects, compile_s=6.0)
    tiers, record = screened(tune_on(machine, spaces=(tiered,), budget_s=400.0))
    assert tiers == sorted(tiers)
    assert len(tiers) == pytest.approx(tried, abs=2)
    assert len(tiers) + sum(s.status == "skipped" for s in record.left) == 30
    assert machine.now() < 440.0


def test_a_gain_of_the_last_tier_is_found_in_time_that_nothing_else_wants(tune_on, tiered):
    machine = FakeMachine(effects={("xla_3_09", "true"): -0.1}, compile_s=6.0)
    outcome = tune_on(machine, spaces=(tiered,), budget_s=500.0)
    confirmed = next(e.record for e in outcome.events if isinstance(e, StageFinished) and e.stage == "confirm")
    assert isinstance(confirmed, ConfirmRecord)
    assert confirmed.chosen.as_dict() == {"xla_3_09": "true"}
    assert machine.now() < 570.0


@pytest.mark.parametrize("lane", ["option", "environment"])
def test_what_was_postponed_leaves_confirm_and_seal_their_time(tune_on, tmp_path, lane):
    """However much of it there is, and though the whole reserve, of twelve pairs here, is more than six need."""
    space = tmp_path / "many.toml"
    space.write_text("version = 1\n" + "".join(knob(n, lane) for n in range(120)).replace("why =", "tier = 3\nwhy ="))
    machine = FakeMachine(start_s=10.0, compile_s=20.0, noise=NoiseModel(block_sd=0.001))
    outcome = tune_on(machine, spaces=(str(space),), budget_s=2000.0)
    _, record = screened(outcome)
    assert [s for s in record.left if s.status == "skipped"]
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    took_s = {e.stage: e.seconds for e in outcome.events if isinstance(e, StageFinished)}
    assert records[BaselineRecord].reserve_s > 700.0
    six_pairs_s = 6 * records[BaselineRecord].pair_s
    assert 2000.0 - sum(took_s[s] for s in ("probe", "baseline", "presets", "screen")) > six_pairs_s


def test_the_pace_of_a_resumed_screen_is_that_of_what_it_tries_itself():
    """What was tried before the interruption is there at once, and would make everything look quick."""
    now = [0.0]
    run: Any = SimpleNamespace(budget=Budget(400.0, clock=lambda: now[0]), trials=dict.fromkeys("abcdefgh"))
    resumed = _Screened(run, None)
    resumed.trials = [None] * 8
    now[0] = 2.0
    assert resumed.pace_s == 0.0  # nothing that tells
    run.trials |= dict.fromkeys("ij")
    resumed.trials += [None] * 2
    now[0] = 30.0
    assert resumed.pace_s == 15.0


QUIET = """version = 1
[[knob]]
name = "MADE_UP_QUIET"
carrier = "env"
type = "string"
values = ["unset", "1"]
lane = "environment"
acts_on = "hlo"
why = "made up"
source = "test"
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_session_of_its_own_that_runs_the_controls_program_wins_nothing(tune_on, tmp_path, seed):
    """Its estimate is the noise of two processes: no time goes into minimising and confirming it."""
    space = tmp_path / "quiet.toml"
    space.write_text(QUIET)
    noise = NoiseModel(block_sd=0.02)
    outcome = tune_on(FakeMachine(inert=["MADE_UP_QUIET"], noise=noise, seed=seed), spaces=(str(space),))
    _, record = screened(outcome)
    assert [s.status for s in record.left if s.name == "MADE_UP_QUIET"] == ["inert"]
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    assert records[MinimiseRecord].winner is None


def test_what_such_a_session_does_beyond_its_code_is_seen_by_its_offset(tune_on, tmp_path):
    space = tmp_path / "quiet.toml"
    space.write_text(QUIET)
    machine = FakeMachine(inert=["MADE_UP_QUIET"], effects={("MADE_UP_QUIET", "1"): -0.1})
    outcome = tune_on(machine, spaces=(str(space),))
    assert any(isinstance(e, EffectHidden) for e in outcome.events)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    assert records[ConfirmRecord].chosen.as_dict() == {"MADE_UP_QUIET": "1"}


def test_a_budget_that_is_short_for_the_whole_confirmation_still_tries_a_setting_of_a_process(tune_on, tmp_path):
    """What twelve pairs would take is no reason to leave half of the time unused."""
    space = tmp_path / "one.toml"
    space.write_text(QUIET)
    machine = FakeMachine(
        effects={("MADE_UP_QUIET", "1"): -0.1}, start_s=5.0, compile_s=8.0, noise=NoiseModel(block_sd=0.02)
    )
    outcome = tune_on(machine, spaces=(str(space),), budget_s=275.0)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    assert records[BaselineRecord].skipped
    assert records[ConfirmRecord].chosen.as_dict() == {"MADE_UP_QUIET": "1"}


def test_where_the_time_reached_nothing_the_settings_are_not_called_the_same(tune_on, tmp_path):
    space = tmp_path / "one.toml"
    space.write_text(QUIET)
    outcome = tune_on(FakeMachine(start_s=20.0, compile_s=20.0), spaces=(str(space),), budget_s=60.0)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    assert not records[ScreenRecord].flips
    assert records[ConfirmRecord].verdict is Verdict.UNCLEAR


def test_within_a_tier_communication_and_the_rest_take_turns():
    knobs = {knob.name: knob for knob in load_spaces(default_spaces("gpu", devices=2)).knobs}
    tiers = _in_order(list(knobs.values()), first=(), likely=())
    talking = [knobs[k.name].when.collectives is not None for k in tiers[0] if k.lane == "option"]
    assert 0.4 <= sum(talking[:20]) / 20 <= 0.6
    assert sorted(k.name for tier in tiers for k in tier) == sorted(knobs)
    assert next(k.name for k in tiers[0] if k.when.collectives is not None) == "pgle"
    alone = [knob for knob in knobs.values() if knob.when.collectives is None and knob.tier == 1]
    assert _in_order(alone, first=(), likely=()) == [alone]
