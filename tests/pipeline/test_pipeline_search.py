"""How the search spends its trials and its patience."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_knobs import knob, space

from tuner.knobs import Config
from tuner.pipeline import search
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import TrialFinished

pytestmark = pytest.mark.slow

QUIET = NoiseModel(block_sd=0.0001)


def searched(outcome) -> list[Config]:
    return [e.config for e in outcome.events if isinstance(e, TrialFinished) and e.stage == "search"]


def test_parts_of_a_batch_use_up_no_more_patience_than_the_whole(tune_on, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "space.toml"
    path.write_text(space(*(knob(f"xla_{name}") for name in "abc")))
    machine = FakeMachine(effects={("xla_a", "true"): -0.05, ("xla_b", "true"): 0.01}, noise=QUIET)
    monkeypatch.setattr(search, "_screened_pace_s", lambda run: 1e9)  # one at a time
    assert len(searched(tune_on(machine, spaces=(str(path),), budget_s=400.0))) == 4  # all pairs, and all three


def test_what_is_never_tried_takes_no_trial_of_those_that_were_asked_for(tune_on, tmp_path: Path) -> None:
    """A space that is enumerated has combinations without what one of their settings means nothing without."""
    needy = knob("xla_needy").replace("lane =", 'requires = { xla_base = "true" }\nlane =')
    path = tmp_path / "space.toml"
    path.write_text(space(knob("xla_good"), knob("xla_base"), needy))
    effects = {("xla_good", "true"): -0.1, ("xla_base", "true"): 0.01, ("xla_needy", "true"): -0.03}
    outcome = tune_on(FakeMachine(effects=effects, noise=QUIET), spaces=(str(path),), budget_s=400.0, trials=2)
    assert searched(outcome) == [
        Config.of(dict.fromkeys(("xla_good", "xla_base", "xla_needy"), "true")),
        Config.of(dict.fromkeys(("xla_good", "xla_base"), "true")),
    ]
