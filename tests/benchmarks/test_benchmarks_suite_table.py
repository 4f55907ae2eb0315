"""The suite's table, of kept runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from suite_table import beyond, presets_of, table

from tuner.api import load_run
from tuner.measure import Verdict
from tuner.report.view import RunView

RESULTS = Path(__file__).parent / "results"


def view(name: str) -> RunView:
    return RunView.of(load_run(RESULTS / f"{name}-jax0.11.2.events.jsonl.gz").events)


def test_a_preset_is_held_against_ours_of_the_same_session() -> None:
    """In this run's session the default was a slow compile: one preset is our winner's very program, and ran 7 % faster
    than it, while fresh processes gained 3 %."""
    run = view("h200/pipeline")
    assert run.confirm is not None
    gains = presets_of(run)
    assert gains["toolbox-image"].low > run.confirm.estimate.high  # type: ignore[union-attr]
    assert beyond(run, gains) == []


def test_a_preset_that_was_missed_is_told() -> None:
    """Had the run kept its defaults, every preset that is surely faster would lie beyond them."""
    run = view("h200/pipeline")
    assert run.confirm is not None
    nothing = msgspec.structs.replace(run, confirm=msgspec.structs.replace(run.confirm, verdict=Verdict.SAME))
    assert beyond(nothing, presets_of(run)) == ["toolbox-image", "maxtext-a3", "O1"]


def test_nulls_count_as_one_in_the_mean() -> None:
    text = table({"attention": view("h200/attention")})
    assert "defaults (same)" in text
    assert "1 workloads: 1.000x" in text


@pytest.mark.parametrize("part", ["compile", "checks", "processes", "profiles", "other"])
def test_it_says_where_the_time_went(part: str) -> None:
    assert f"| {part} |" in table({"gpt": view("h200/gpt")})
