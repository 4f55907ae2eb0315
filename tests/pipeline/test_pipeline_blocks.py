"""How long blocks are: short ones while candidates are looked for, where the machine is quiet enough."""

from __future__ import annotations

from statistics import fmean

import pytest
from made_up_knobs import knob, space

from tuner.pipeline import baseline
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import OffsetMeasured, PairTimed, RoundTimed, StageFinished, TrialFinished
from tuner.store.records import BaselineRecord, ConfirmRecord

pytestmark = pytest.mark.slow

GOOD = ("xla_good", "true")
EFFECTS = {GOOD: -0.05, ("xla_bad", "true"): 0.03}


def machine(block_sd: float) -> FakeMachine:
    return FakeMachine(
        effects=EFFECTS, noise=NoiseModel(block_sd=block_sd, block_s=0.05, process_sd=0.0005), step_ms=1, seed=3
    )


def steps_of(outcome, *stages: str) -> set[int]:
    rounds = [e for e in outcome.events if isinstance(e, RoundTimed) and e.stage in stages]
    return {block.steps for e in rounds for block in e.blocks}


def baseline_of(outcome) -> BaselineRecord:
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and e.stage == "baseline")


def test_a_quiet_machine_is_searched_in_short_blocks_and_the_winner_proven_in_long_ones(tune_on):
    outcome = tune_on(machine(0.0003), budget_s=600.0)
    found = baseline_of(outcome)
    assert found.steps_per_block == 50
    assert found.exploring_steps == 13
    assert found.noise < found.exploring_noise < 0.003
    assert steps_of(outcome, "screen") == {13}
    for stage in ("minimise", "confirm", "seal"):
        assert min(steps_of(outcome, stage)) == 50
    confirmed = next(e.record for e in outcome.events if isinstance(e, StageFinished) and e.stage == "confirm")
    assert isinstance(confirmed, ConfirmRecord)
    assert confirmed.chosen.as_dict() == dict([GOOD])


def test_a_noisy_machine_is_searched_in_blocks_of_one_length(tune_on):
    outcome = tune_on(machine(0.01))
    found = baseline_of(outcome)
    assert (found.exploring_steps, found.exploring_noise) == (found.steps_per_block, found.noise)
    assert steps_of(outcome, "screen") == {50}


def test_where_short_blocks_are_noisier_than_expected_they_stay_long(tune_on, monkeypatch):
    monkeypatch.setattr(baseline, "shorter", lambda *_: 1)
    outcome = tune_on(machine(0.0015))
    assert baseline_of(outcome).exploring_steps == 50
    assert steps_of(outcome, "screen") == {50}


class Neighbours:
    """Others keep three of sixteen cores busy; half as many in the first round, so that nothing is remarked there."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.samples_s: list[float] = []

    def sample(self) -> dict[str, float]:
        now = self.machine.now()
        self.samples_s.append(now)
        first_s = self.samples_s[:2][-1]
        return {"time_s": now, "busy_s": now + 1.5 * first_s + 3.0 * (now - first_s), "own_s": now, "cores": 16.0}


def test_what_is_usual_is_calm_though_short_rounds_are_too_short_to_tell(tune_on):
    quiet = machine(0.0003)
    outcome = tune_on(quiet, conditions=Neighbours(quiet), budget_s=40.0)
    assert baseline_of(outcome).exploring_steps == 13
    assert [e for e in outcome.events if isinstance(e, PairTimed)]
    assert not [e.disturbed for e in outcome.events if isinstance(e, (PairTimed, RoundTimed)) and e.disturbed]


@pytest.mark.parametrize(("change", "alternations"), [(0.2, 4), (0.0, 12)])
def test_a_session_that_is_certainly_slower_needs_no_closer_look(tune_on, tmp_path, change, alternations):
    """The setting that a session has for itself is told by the session's control alone."""
    path = tmp_path / "space.toml"
    lane = {"carrier": "env", "type": "string", "lane": "environment", "acts_on": "runtime"}
    path.write_text(space(knob("FAKE_VARIABLE", values=("unset", "1"), **lane)))
    slow = FakeMachine(
        effects={("FAKE_VARIABLE", "1"): change}, noise=NoiseModel(block_sd=0.02, process_sd=0.0005), step_ms=1, seed=5
    )
    outcome = tune_on(slow, spaces=(str(path),))
    offsets = [e for e in outcome.events if isinstance(e, OffsetMeasured)]
    assert [e.estimate.n for e in offsets[:1]] == [alternations]
    (trial,) = [e for e in outcome.events if isinstance(e, TrialFinished) and "FAKE_VARIABLE" in e.config.names]
    assert trial.estimate is not None
    assert trial.estimate.low < -change < trial.estimate.high


def equal_trials(outcome) -> list[float]:
    """Gains of settings that make other programs, as fast as the control."""
    return [
        e.estimate.gain
        for e in outcome.events
        if isinstance(e, TrialFinished) and e.stage == "screen" and e.estimate is not None and e.shared_with < 0
    ]


def test_a_card_at_its_power_limit_does_not_flatter_the_control_that_opens_a_round(tune_on, options, monkeypatch):
    """After a pause its first block is faster."""
    several = space(*(knob(f"xla_other_{i}") for i in range(8)))
    options.workload.with_name("made_up.toml").write_text(several)

    def card(rested: float) -> FakeMachine:
        return FakeMachine(platform="gpu", step_ms=2, rested=rested, noise=NoiseModel(block_sd=0.0005), seed=3)

    limited = tune_on(card(0.02), platform="gpu", fresh=True)
    found = baseline_of(limited)
    assert found.opening_steps * 2e-3 == pytest.approx(0.3, rel=0.05)
    assert found.noise < 0.002
    assert len(equal_trials(limited)) == 8
    assert abs(fmean(equal_trials(limited))) < 0.0006
    firsts = [e.blocks[0].first_s for e in limited.events if isinstance(e, RoundTimed) and e.stage == "screen"]
    assert firsts
    assert min(firsts) > 0.29
    assert found.round_s(3) - 3 * found.block_s == pytest.approx(0.3, rel=0.05)
    at_ease = tune_on(card(0.0), platform="gpu", fresh=True)
    assert baseline_of(at_ease).opening_steps == 0
    monkeypatch.setattr(baseline, "opens_apart", lambda *_: False)
    flattered = tune_on(card(0.02), platform="gpu", fresh=True)
    assert baseline_of(flattered).noise > 0.01
    assert fmean(equal_trials(flattered)) < -0.0012


@pytest.mark.parametrize(
    ("weights", "objective"), [({"prefill": 1.0, "decode": 128.0}, "mean"), ({}, "p50"), ({}, "p99")]
)
def test_rounds_of_several_steps_and_of_quantiles_open_alike(tune_on, weights, objective):
    machine = FakeMachine(
        platform="gpu", step_ms=2, weights=weights, rested=0.02, noise=NoiseModel(block_sd=0.0005), seed=3
    )
    found = tune_on(machine, platform="gpu", objective=objective)
    form = baseline_of(found).form
    usual_s = 2e-3 * form.warm_up * max(1, len(weights))
    firsts = [e.blocks[0].first_s for e in found.events if isinstance(e, RoundTimed) and e.stage == "screen"]
    assert firsts
    assert all(first_s - usual_s == pytest.approx(0.3, rel=0.1) for first_s in firsts)
    assert baseline_of(found).noise < 0.002
