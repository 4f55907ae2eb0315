"""Which settings of a winner go, where this noise can't settle it."""

from __future__ import annotations

import pytest
from made_up_knobs import knob, space

from tuner.knobs import Config
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import StageFinished
from tuner.store.records import ConfirmRecord, MinimiseRecord

BETTER, GOOD = ("xla_better", "true"), ("xla_good", "true")


@pytest.mark.slow
def test_a_likely_loss_is_not_bet_on(tune_on, tmp_path):
    """Dropping the lesser setting loses 0.9 %, of which a race of all subsets can't prove that it is more than 0.25 %.
    The budget has room for one finalist: those in question are timed once more, and the setting stays."""
    path = tmp_path / "space.toml"
    path.write_text(space(*(knob(f"xla_{name}") for name in ("good", "better", "junk1", "junk2"))))
    machine = FakeMachine(
        effects={BETTER: -0.02, GOOD: -0.009},
        noise=NoiseModel(block_sd=0.005, process_sd=0.001),
        step_ms=80,
        start_s=8,
        compile_s=3,
        seed=1,
    )
    outcome = tune_on(machine, spaces=(str(path),), budget_s=600.0)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    minimised, confirmed = records[MinimiseRecord], records[ConfirmRecord]
    assert len(confirmed.finalists) == 1
    assert minimised.reduced.config == confirmed.chosen == Config.of(dict([BETTER, GOOD]))


class _Moody(FakeMachine):
    """A machine on which what runs with `xla_better` is quick for seven seconds and slow for the next seven."""

    def log_ratio(self, settings, *, step=""):
        mood = 0.05 if int(self.now() / 7) % 2 else -0.05
        return super().log_ratio(settings, step=step) + (mood if "xla_better" in settings else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 8])
def test_the_mood_of_the_minute_is_no_ones_effect(tune_on, tmp_path, seed):
    """A setting of the environment is compared with its absence in another process, in turns: otherwise one of them
    gets the machine's good seconds."""
    path = tmp_path / "space.toml"
    lane = {"carrier": "env", "type": "string", "lane": "environment", "acts_on": "runtime"}
    path.write_text(
        space(
            knob("xla_better"), knob("xla_good"), knob("xla_junk"), knob("FAKE_VARIABLE", values=("unset", "1"), **lane)
        )
    )
    machine = _Moody(
        effects={BETTER: -0.3, GOOD: -0.1, ("FAKE_VARIABLE", "1"): -0.1},
        noise=NoiseModel(block_sd=0.003, process_sd=0.001),
        step_ms=80,
        start_s=2,
        compile_s=1,
        seed=seed,
    )
    outcome = tune_on(machine, spaces=(str(path),), budget_s=600.0)
    minimised = next(
        e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, MinimiseRecord)
    )
    found = {e.name: e.estimate for e in minimised.winner_effects or minimised.effects}
    assert found["FAKE_VARIABLE"].gain == pytest.approx(0.1, abs=0.025)
