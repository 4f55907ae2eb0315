"""The confirmation on made-up machines that are quiet, noisy, throttled or jumping; and the two claims."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tuner.errors import Interrupted
from tuner.knobs import Config
from tuner.measure import ASSUMED_PROCESS_SD, LOOKS, Verdict
from tuner.pipeline.costs import pair_cost, process_cost
from tuner.report.document import document
from tuner.report.terminal import render_result
from tuner.report.view import RunView
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import Notice, PairsPlanned, PairTimed, RoundTimed, SessionStarted, StageFinished
from tuner.store.records import BaselineRecord, ConfirmRecord, SealRecord

pytestmark = pytest.mark.slow

GOOD = ("xla_good", "true")
BEST = Config.of({"xla_good": "true"})


class Card:
    """Samples a machine whose card runs at 1400 MHz, and at 1150 while `slow(session's name)` holds for any session."""

    def __init__(self, machine: FakeMachine, slow: Callable[[str], bool]) -> None:
        self.machine = machine
        self.slow = slow

    def sample(self) -> dict[str, float]:
        names = [s.launch.log.stem for s in self.machine.living]
        clock = 1150.0 if any(map(self.slow, names)) else 1400.0
        return {"time_s": self.machine.now(), "cores": 8.0, "gpu0_clock_mhz": clock}


def record(outcome, kind):
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def pairs(outcome) -> list[PairTimed]:
    return [e for e in outcome.events if isinstance(e, PairTimed)]


def notices(outcome) -> str:
    return "\n".join(e.text for e in outcome.events if isinstance(e, Notice))


def first_try(machine: FakeMachine, *numbers: int) -> Callable[[str], bool]:
    """True for sessions of these pairs, the first time they are made."""

    def slow(name: str) -> bool:
        for number in numbers:
            made = [s.launch.log.stem for s in machine.sessions if f"-confirm-{number}-" in s.launch.log.stem]
            if name in made[:2]:
                return True
        return False

    return slow


@pytest.mark.parametrize("gain", [0.05, 0.3])
def test_a_disturbed_pair_is_timed_again_whatever_it_said(tune_on, gain):
    machine = FakeMachine(effects={GOOD: -gain})
    outcome = tune_on(machine, conditions=Card(machine, first_try(machine, 1, 4)), budget_s=600.0)
    confirmed = record(outcome, ConfirmRecord)
    assert (confirmed.redone, confirmed.disturbed) == (2, 0)
    twice = [e for e in pairs(outcome) if e.index in (1, 4)]
    assert [bool(e.disturbed) for e in twice] == [True, False, True, False]
    assert "gpu0 ran at 1150 MHz instead of 1400" in twice[0].disturbed
    assert confirmed.finalists[0].log_ratios[1] == twice[1].log_ratio  # the first try is kept, and doesn't count
    assert confirmed.verdict is Verdict.FASTER
    assert confirmed.unstable == ""


def test_a_card_that_throttles_through_the_confirmation_gets_no_verdict(tune_on):
    machine = FakeMachine(effects={GOOD: -0.025})
    throttled = Card(machine, lambda name: "-confirm-" in name)
    outcome = tune_on(machine, conditions=throttled, require_gain=True, budget_s=600.0)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.verdict is Verdict.UNSTABLE
    assert confirmed.chosen == Config()
    assert confirmed.redone == 3  # and no more, however long it lasts
    assert confirmed.disturbed == confirmed.pairs == len(confirmed.finalists[0].log_ratios)
    assert len(pairs(outcome)) == confirmed.pairs + 3
    assert outcome.exit_code == 4
    view = RunView.of(outcome.events)
    text = render_result(view)
    assert text.startswith("unstable: keep the defaults (6 of 6 pairs stayed disturbed, for instance: ")
    assert "gpu0 ran at 1150 MHz instead of 1400" in " ".join(text.split())
    assert "Verdict unstable" in Path(outcome.files["shell"]).read_text()
    assert document(view)["verdict"] == "unstable"
    assert document(view)["noise"]["pairs_disturbed"] == confirmed.disturbed


def test_without_time_a_disturbed_pair_counts_and_the_budget_is_kept(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, start_s=10.0, compile_s=5.0)
    outcome = tune_on(machine, conditions=Card(machine, first_try(machine, 0, 1, 2)), budget_s=300.0)
    confirmed = record(outcome, ConfirmRecord)
    assert (confirmed.redone, confirmed.disturbed) == (0, 3)
    assert machine.now() < 300.0


def test_a_clock_that_was_always_so_is_calm(tune_on):
    machine = FakeMachine(effects={GOOD: -0.025})
    outcome = tune_on(machine, conditions=Card(machine, lambda name: True))
    assert record(outcome, ConfirmRecord).verdict is Verdict.FASTER
    assert not any(e.disturbed for e in outcome.events if isinstance(e, (PairTimed, RoundTimed)))


def jumping(machine: FakeMachine, factor: float) -> None:
    """From the fourth pair on, everything takes `factor` of its time."""
    plain, calm_ms = machine.factory, machine.step_ms

    def factory(launch):
        late = launch.name.startswith("confirm-") and int(launch.name.split("-")[1]) >= 3
        machine.step_ms = calm_ms * (factor if late else 1.0)
        return plain(launch)

    machine.factory = factory


@pytest.mark.parametrize(("gain", "verdict"), [(0.03, Verdict.UNSTABLE), (0.4, Verdict.FASTER)])
def test_a_control_that_jumps_between_pairs_allows_large_claims_alone(tune_on, gain, verdict):
    machine = FakeMachine(effects={GOOD: -gain})
    jumping(machine, 1.4)
    outcome = tune_on(machine)
    confirmed = record(outcome, ConfirmRecord)
    assert confirmed.verdict is verdict
    assert "the default's own time went from" in confirmed.unstable
    assert ("The gain is larger" in notices(outcome)) == (verdict is Verdict.FASTER)
    assert outcome.exit_code == 0


def test_a_step_that_never_settles_is_looked_at_twice_and_then_trusted_little(tune_on):
    machine = FakeMachine(effects={GOOD: -0.02}, noise=NoiseModel(block_sd=0.001))
    plain, calls = machine.factory, 0

    def warming(launch):
        """The home session's first 40 blocks become slower and slower."""
        session = plain(launch)
        whole = session.round

        def round_(arms, *, reset=True):
            nonlocal calls
            calls += 1
            machine.step_ms = 10.0 * math.exp(0.02 * calls) if calls <= 40 else 10.0
            return whole(arms, reset=reset)

        session.round = round_
        return session

    machine.factory = warming
    outcome = tune_on(machine)
    baseline, confirmed = record(outcome, BaselineRecord), record(outcome, ConfirmRecord)
    assert not baseline.settled
    assert baseline.steps_discarded == 2 * 16 * 5  # two tries of 16 blocks
    assert "did not settle" in notices(outcome)
    assert confirmed.verdict is Verdict.UNSTABLE
    assert "never settled" in confirmed.unstable


def test_the_state_is_put_back_in_the_same_turns_on_both_sides(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05})
    plain = machine.factory
    resets: dict[str, list[bool]] = {}

    def watched(launch):
        session = plain(launch)
        whole = session.round

        def round_(arms, *, reset=True):
            resets.setdefault(launch.log.stem, []).append(reset)
            return whole(arms, reset=reset)

        session.round = round_
        return session

    machine.factory = watched
    outcome = tune_on(machine, budget_s=600.0)
    confirming = {name: flags for name, flags in resets.items() if "-confirm-" in name}
    assert len(confirming) == 2 * record(outcome, ConfirmRecord).pairs
    for flags in confirming.values():
        assert flags[:9] == [True, False, False, False, True, False, False, False, True]


def test_a_pair_is_planned_with_the_time_that_putting_the_state_back_takes(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05})
    outcome = tune_on(machine, budget_s=600.0)
    baseline = record(outcome, BaselineRecord)
    assert baseline.reset_s == pytest.approx(0.0, abs=1e-6)  # a made-up machine's state is put back in no time
    there = SimpleNamespace(host=SimpleNamespace(usable_cores=8))
    slow = msgspec.structs.replace(baseline, reset_s=2.0)
    without, with_it = (pair_cost(there, 2, process_cost(b)).seconds(10) for b in (baseline, slow))
    assert with_it - without == pytest.approx(2 * (10 + 2) * 2.0 / 4)  # sides, turns and those to warm up, every fourth


@pytest.mark.parametrize(
    ("noise", "more"),
    [(NoiseModel(block_sd=0.03), True), (NoiseModel(block_sd=0.001, process_sd=0.02), False)],
    ids=["rounds", "processes"],
)
def test_turns_go_where_the_spread_is_and_looks_stay(tune_on, noise, more):
    machine = FakeMachine(effects={GOOD: -0.03}, noise=noise, seed=1)
    outcome = tune_on(machine, budget_s=900.0)
    planned = [e for e in outcome.events if isinstance(e, PairsPlanned)]
    assert len({e.looks for e in planned}) == 1
    last = pairs(outcome)[-1].turns
    assert last == planned[-1].turns
    assert (last > 10) == more
    levels = record(outcome, ConfirmRecord).noise
    assert (levels.round > levels.process) == more
    assert machine.now() < 950.0


def test_the_looks_of_an_interrupted_confirmation_stay_as_planned(tune_on):
    machine = FakeMachine(effects={GOOD: -0.01}, noise=NoiseModel(block_sd=0.01))
    plain = machine.factory

    def stopping(launch):
        if launch.name.startswith("confirm-4-"):
            machine.factory = plain
            raise KeyboardInterrupt
        return plain(launch)

    machine.factory = stopping
    with pytest.raises(Interrupted):
        tune_on(machine)
    machine.advance(1000.0)  # with what is left of the budget now, another plan would be made
    machine.factory = plain
    outcome = tune_on(machine)
    planned = [e for e in outcome.events if isinstance(e, PairsPlanned)]
    assert len({e.looks for e in planned}) == 1
    assert [e.index for e in pairs(outcome)] == list(range(record(outcome, ConfirmRecord).pairs))


def test_what_is_resolved_is_told_before_and_checked_after(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, noise=NoiseModel(block_sd=0.002, process_sd=0.02), seed=2)
    outcome = tune_on(machine)
    baseline, confirmed = record(outcome, BaselineRecord), record(outcome, ConfirmRecord)
    assert (baseline.process_noise, baseline.process_pairs) == (ASSUMED_PROCESS_SD, 0)
    assert "(assumed: none were compared yet)" in notices(outcome)
    assert confirmed.resolution > baseline.resolution
    text = " ".join(render_result(RunView.of(outcome.events)).split())
    assert "processes differ by" in text
    again = tune_on(machine, fresh=True)
    planned = record(again, BaselineRecord)
    assert planned.process_pairs >= LOOKS[0]
    assert 0.005 < planned.process_noise < 0.06
    assert planned.resolution > 3 * baseline.resolution
    assert f"(as in {planned.process_pairs} pairs of earlier runs)" in notices(again)


def test_noise_is_told_level_by_level(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, noise=NoiseModel(block_sd=0.004, process_sd=0.01), step_ms=2.0)
    outcome = tune_on(machine)
    found = document(RunView.of(outcome.events))["noise"]
    assert found["step"] == pytest.approx(0.004, rel=0.7)
    assert found["round"] == pytest.approx(0.004 * math.sqrt(1.5), rel=0.6)
    assert found["turn"] == pytest.approx(0.004 * math.sqrt(2), rel=0.5)
    assert found["process"] == pytest.approx(0.01 * math.sqrt(2), rel=0.8)


def test_the_sealed_executable_is_measured_by_itself(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, seed=1)
    outcome = tune_on(machine)
    sealed = record(outcome, SealRecord)
    assert sealed.sealed_pairs >= 3
    assert sealed.sealed.low < sealed.sealed.gain < sealed.sealed.high  # which may well miss, once in twenty
    assert sealed.sealed.gain == pytest.approx(0.05, abs=0.003)
    assert sealed.cache_hits == sealed.cache_requests == 1
    assert "The sealed executable by itself: 1.05" in Path(outcome.files["shell"]).read_text()
    view = RunView.of(outcome.events)
    assert document(view)["sealed"]["pairs"] == sealed.sealed_pairs
    assert "the settings, in a fresh compile" in render_result(view)
    assert "the sealed executable" in render_result(view)
    manifest = json.loads((Path(sealed.bundle) / "manifest.json").read_text())
    assert manifest["sealed"]["n"] == sealed.sealed_pairs


def test_without_time_the_sealed_executable_is_not_measured_and_that_is_said(tune_on):
    machine = FakeMachine(effects={GOOD: -0.05}, start_s=10.0, compile_s=10.0)
    outcome = tune_on(machine, budget_s=60.0)
    sealed = record(outcome, SealRecord)
    assert sealed.sealed is None
    assert "the budget had" in sealed.sealed_note
    assert "was not measured by itself" in Path(outcome.files["shell"]).read_text()


def test_compiles_that_differ_are_told_and_the_best_of_several_is_sealed(tune_on, space):
    space.write_text(space.read_text().partition('[[knob]]\nname = "xla_bad"')[0])  # nothing else can be lucky
    noise = NoiseModel(block_sd=0.001, compile_sd=0.02)
    machine = FakeMachine(effects={GOOD: -0.15}, noise=noise, platform="gpu", seed=3)
    outcome = tune_on(machine, platform="gpu", budget_s=600.0)
    confirmed, sealed = record(outcome, ConfirmRecord), record(outcome, SealRecord)
    assert confirmed.chosen == BEST
    by_config = {d.config: d for d in confirmed.draws}
    assert by_config[Config()].programs == by_config[BEST].programs == confirmed.pairs
    assert by_config[BEST].spread == pytest.approx(0.02, rel=0.8)
    assert len(sealed.draws_ms) == 3
    seals = [e.session for e in outcome.events if isinstance(e, SessionStarted) and e.session.endswith("-seal")]
    assert len(seals) == 3
    # All pairs load one executable: what differs is the default alone.
    assert sealed.sealed_ms == pytest.approx(min(sealed.draws_ms), rel=0.005)


def test_an_unlucky_executable_is_pointed_out(tune_on):
    machine = FakeMachine(effects={GOOD: -0.1}, noise=NoiseModel(block_sd=0.001))
    plain = machine.factory

    def factory(launch):
        session = plain(launch)
        if launch.name == "seal":
            whole = session.compile

            def compile_(variants, *, threads=1):
                reply = whole(variants, threads=threads)
                for entry in Path(launch.env["JAX_COMPILATION_CACHE_DIR"]).iterdir():
                    entry.write_text("0.06")  # what it drew
                return reply

            session.compile = compile_
        return session

    machine.factory = factory
    outcome = tune_on(machine)
    sealed = record(outcome, SealRecord)
    assert sealed.sealed.gain == pytest.approx(0.04, abs=0.005)
    assert "an unlucky compile" in notices(outcome)


def test_a_much_faster_finalist_is_timed_in_blocks_as_long_as_the_defaults(tune_on):
    outcome = tune_on(FakeMachine(step_ms=30.0, effects={GOOD: -1.6}))
    last = [e for e in outcome.events if isinstance(e, RoundTimed) and e.stage == "confirm"][-2:]
    configs = {e.session: e.config for e in outcome.events if isinstance(e, SessionStarted)}
    blocks = {configs[e.session]: e.blocks[0] for e in last}
    default, faster = blocks[Config()], blocks[Config.of(dict([GOOD]))]
    assert faster.steps == pytest.approx(default.steps * 5, abs=default.steps)
    assert faster.seconds == pytest.approx(default.seconds, rel=0.35)
