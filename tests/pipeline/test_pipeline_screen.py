"""The screen's order: a tier after the other, as far as its share of the budget goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.session import FakeMachine
from tuner.store.events import StageFinished, TrialFinished
from tuner.store.records import ScreenRecord

pytestmark = pytest.mark.slow


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
