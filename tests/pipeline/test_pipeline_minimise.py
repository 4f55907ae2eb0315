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
