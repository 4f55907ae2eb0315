"""Reproductions: read from what was stored, and judged with both measurements' errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import reproduce
from reproduce import Reproduction, stored, together
from studies import agree

from tuner.measure import Estimate

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def test_what_was_measured_on_the_card_is_read(tmp_path: Path) -> None:
    rows = [row for row in stored(RESULTS / "h100") if row.name == "gpt-jax0.11.2"]
    (row,) = rows
    assert row.printed is not None
    assert row.later is not None
    assert row.gap == pytest.approx(100 * abs(row.printed[0] - row.later[0]), abs=2e-3)
    remeasured = json.loads((RESULTS / "h100" / "gpt-jax0.11.2.remeasured.json").read_bytes())
    (ratios,) = remeasured["speedups"].values()
    assert min(ratios) <= row.later[0] <= max(ratios)
    assert f"{row.gap} points apart" in reproduce.line(row)


def test_a_later_measurement_has_an_error_of_its_own() -> None:
    def found(gain: float, reach: float) -> Estimate:
        return Estimate(gain=gain, se=reach / 2, low=gain - reach, high=gain + reach, n=8)

    assert agree(found(0.01, 0.001), found(0.0105, 0.002))
    assert agree(found(0.01, 0.003), found(0.0145, 0.004))  # outside of either interval, not of both together
    assert not agree(found(0.01, 0.003), found(0.0151, 0.004))
    assert not agree(found(0.01, 0.001), found(0.02, 0.001))


def test_runs_without_a_gain_are_told_and_have_no_gap() -> None:
    none = Reproduction(name="mlp", jax="", device="cpu", verdict="same")
    good = Reproduction(
        name="nbody",
        jax="",
        device="cpu",
        verdict="faster",
        settings={"x": "1"},
        printed=(1.1, 1.09, 1.11),
        later=(1.102, 1.09, 1.12),
        gap=0.2,
        predicted=True,
    )
    found = together([none, good, none], 60.0)
    assert (found.predicted.count, found.predicted.of, found.median_gap) == (1, 1, 0.2)
    assert reproduce.line(none) == "mlp: same"
    assert together([none], 60.0).median_gap is None
