"""The screen where compiling is dear: what was never timed alone comes before combinations of what was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.machine import Host
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import StageFinished
from tuner.store.records import ConfirmRecord, ScreenRecord

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
