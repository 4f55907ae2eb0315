"""Which combinations single settings promise something for."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_knobs import knob, space

from tuner.knobs import DEFAULT, Config
from tuner.pipeline.combine import combinations
from tuner.session import FakeMachine, NoiseModel
from tuner.store.events import Notice, StageFinished, TrialFinished
from tuner.store.records import ConfirmRecord, MinimiseRecord, SearchRecord

A, B, C = (Config.of({name: "1"}) for name in "abc")
WITH_B = Config.of({"d": "1", "b": "1"})  # d means nothing without b
AGAINST = Config.of({"e": "1", "a": "2"})


def test_the_best_first_and_all_without_each() -> None:
    assert combinations([A, B, C]) == [A.join(B), A.join(B).join(C), B.join(C), A.join(C)]
    assert combinations([A]) == combinations([]) == []


def test_a_setting_brings_what_it_means_nothing_without() -> None:
    assert combinations([A, WITH_B]) == [A.join(WITH_B)]
    assert combinations([A, B, WITH_B]) == [A.join(B), A.join(WITH_B)]  # without d: the first again; b alone is known
    assert all(c.get("b") == "1" for c in combinations([A, WITH_B, C]) if c.get("d") == "1")


def test_what_contradicts_a_better_one_is_left_out() -> None:
    assert combinations([A, AGAINST, B]) == [A.join(B)]
    assert DEFAULT not in combinations([A, A])


@pytest.mark.slow
def test_a_setting_that_needs_another_is_combined_in_a_budget_that_screening_uses_up(tune_on, tmp_path: Path) -> None:
    """What gained alone is combined before a later tier gets the search's time. With no time left to reduce a winner of
    many settings the shortest one is taken that does as well."""
    needy = knob("xla_needy").replace("lane =", 'requires = { xla_base = "true" }\nlane =')
    later = [knob(f"xla_later_{n}").replace("lane =", "tier = 2\nlane =") for n in range(30)]
    path = tmp_path / "space.toml"
    path.write_text(
        space(knob("xla_good"), knob("xla_base"), needy, *(knob(f"xla_junk_{n}") for n in range(6)), *later)
    )
    machine = FakeMachine(
        effects={("xla_good", "true"): -0.1, ("xla_base", "true"): 0.01, ("xla_needy", "true"): -0.03},
        noise=NoiseModel(block_sd=0.0005),
        step_ms=90,
        start_s=4,
        compile_s=3,
        platform="gpu",
    )
    outcome = tune_on(machine, spaces=(str(path),), platform="gpu", budget_s=250.0)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    flips = [e for e in outcome.events if isinstance(e, TrialFinished) and e.stage == "screen"]
    assert len(flips) == 9
    assert records[SearchRecord].trials > 8
    assert len(records[MinimiseRecord].winner.config) == 3
    assert records[ConfirmRecord].chosen.as_dict() == dict.fromkeys(("xla_good", "xla_base", "xla_needy"), "true")
    assert machine.now() < 275.0


@pytest.mark.slow
@pytest.mark.parametrize(("budget_s", "shorter"), [(750.0, True), (600.0, False)])
def test_a_winner_that_takes_too_long_to_compile_without_each_setting_is_not_reduced(
    tune_on, tmp_path: Path, budget_s: float, shorter: bool
) -> None:
    """Rounds of a quick step take no time, compiling dozens of configs does. If nothing shorter is as good, all of it
    is confirmed, and the run says so."""
    path = tmp_path / "space.toml"
    path.write_text(space(knob("xla_good"), *(knob(f"xla_{n}") for n in range(4))))
    effects = {("xla_good", "true"): -0.1, **{(f"xla_{n}", "true"): -0.0008 for n in range(4)}}
    machine = FakeMachine(effects=effects, noise=NoiseModel(block_sd=0.0001), step_ms=5, start_s=4, compile_s=20)
    outcome = tune_on(machine, spaces=(str(path),), budget_s=budget_s)
    records = {type(e.record): e.record for e in outcome.events if isinstance(e, StageFinished)}
    assert len(records[SearchRecord].best[0].config) == 5
    assert (len(records[MinimiseRecord].winner.config) < 5) == shorter  # as good, but for what reducing may lose
    assert (records[ConfirmRecord].chosen == Config.of({"xla_good": "true"})) == shorter
    said = [e for e in outcome.events if isinstance(e, Notice) and "which of the winner's 5 settings matter" in e.text]
    assert bool(said) != shorter
    assert machine.now() < budget_s + 100.0
