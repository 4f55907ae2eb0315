"""How the search spends its trials and its patience."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up_knobs import knob, space

from tuner.knobs import Config
from tuner.pipeline import search
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import StageFinished, TrialFinished
from tuner.store.records import ProbeRecord

pytestmark = pytest.mark.slow

NEEDY = knob("xla_needy").replace("lane =", 'requires = { xla_base = "true" }\nlane =')
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
    path = tmp_path / "space.toml"
    path.write_text(space(knob("xla_good"), knob("xla_base"), NEEDY))
    effects = {("xla_good", "true"): -0.1, ("xla_base", "true"): 0.01, ("xla_needy", "true"): -0.03}
    outcome = tune_on(FakeMachine(effects=effects, noise=QUIET), spaces=(str(path),), budget_s=400.0, trials=2)
    assert searched(outcome) == [
        Config.of(dict.fromkeys(("xla_good", "xla_base", "xla_needy"), "true")),
        Config.of(dict.fromkeys(("xla_good", "xla_base"), "true")),
    ]


def test_what_does_nothing_alone_is_set_for_what_needs_it(tune_on, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(space(knob("xla_good"), knob("xla_base"), NEEDY))
    effects = {("xla_good", "true"): -0.1, ("xla_needy", "true"): -0.03}
    machine = FakeMachine(effects=effects, inert=["xla_base"], noise=QUIET)
    outcome = tune_on(machine, spaces=(str(path),), budget_s=400.0)
    assert searched(outcome) == [Config.of(dict.fromkeys(("xla_good", "xla_base", "xla_needy"), "true"))]


def test_what_is_held_is_not_changed_for_what_needs_it_otherwise(tune_on, tmp_path: Path) -> None:
    path = tmp_path / "space.toml"
    path.write_text(space(knob("xla_good"), knob("xla_base"), NEEDY))
    outcome = tune_on(FakeMachine(noise=QUIET), spaces=(str(path),), hold={"xla_base": "false"})
    assert not any("xla_base" in e.config.names for e in outcome.events if isinstance(e, TrialFinished))
    (probed,) = [e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, ProbeRecord)]
    (left,) = [status for status in probed.left if status.name == "xla_needy"]
    assert left.reason == "means nothing without xla_base=true, and --knob holds that at 'false'"


def test_environments_that_contradict_are_joined_by_the_better_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs another value of a better setting would else undo that one, in a session of its own."""
    better, needy, other = (Config.of(s) for s in ({"A": "1"}, {"A": "2", "B": "1"}, {"C": "1"}))
    monkeypatch.setattr(search, "best_flips", lambda run, knobs, least: [better, needy, other])
    monkeypatch.setattr(search, "_additive", lambda run, config: float(len(config)))
    found = search._environments(SimpleNamespace(live={}, margin=0.005))
    assert better.join(other) in found
    assert needy.join(other) not in found
