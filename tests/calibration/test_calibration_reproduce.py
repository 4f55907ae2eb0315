"""Reproductions: read from what was stored, and judged with both measurements' errors."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import reproduce
from reproduce import Reproduction, Reproductions, prediction, stored, together
from studies import agree

from tuner.measure import Estimate

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def test_what_was_measured_on_the_card_is_read(tmp_path: Path) -> None:
    (found,) = (each for each in stored(RESULTS / "h100") if each.name == "gpt-jax0.11.2")
    assert found.printed is not None
    assert found.later is not None
    assert found.gap == pytest.approx(100 * abs(found.printed[0] - found.later[0]), abs=2e-3)
    assert found.printed[0] == pytest.approx(np.exp(np.mean(np.log(found.pairs))), abs=2e-5)
    remeasured = json.loads((RESULTS / "h100" / "gpt-jax0.11.2.remeasured.json").read_bytes())
    (ratios,) = remeasured["speedups"].values()
    assert min(ratios) <= found.later[0] <= max(ratios)
    assert f"in {len(ratios)} rounds, {found.gap} points apart" in reproduce.line(found)


def test_a_later_measurement_has_an_error_of_its_own() -> None:
    def found(gain: float, reach: float) -> Estimate:
        return Estimate(gain=gain, se=reach / 2, low=gain - reach, high=gain + reach, n=8)

    assert agree(found(0.01, 0.001), found(0.0105, 0.002))
    assert agree(found(0.01, 0.003), found(0.0145, 0.004))  # outside of either interval, not of both together
    assert not agree(found(0.01, 0.003), found(0.0151, 0.004))
    assert not agree(found(0.01, 0.001), found(0.02, 0.001))


@pytest.mark.parametrize(("rounds", "spread", "least"), [(2, 1, 0.938), (8, 1, 0.945), (8, 3, 0.945)])
def test_a_runs_pairs_tell_where_later_rounds_lie(rounds: int, spread: float, least: float) -> None:
    """Also where rounds spread more than pairs, from four of them on."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        pairs, later = rng.normal(0.01, 0.001, 6), rng.normal(0.01, spread * 0.001, rounds)
        low, high = prediction(list(pairs), list(later))
        inside += low <= later.mean() <= high
    assert least < inside / 2000 < 0.985


def test_runs_that_were_made_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []

    def fake(workload: Path, number: int, budget_s: float) -> Reproduction:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append((workload.stem, number))
        return row(workload.stem)

    monkeypatch.setattr(reproduce, "made", fake)
    out = tmp_path / "new" / "reproduced.json"
    monkeypatch.setattr("sys.argv", ["reproduce.py", "a.py", "b.py", "--runs", "2", "--out", str(out)])
    with pytest.raises(KeyboardInterrupt):
        reproduce.main()
    stopped, made = made, []
    reproduce.main()
    assert (stopped, made) == ([("a", 0), ("b", 0), ("a", 1)], [("b", 1)])
    assert len(msgspec.json.decode(out.read_bytes(), type=Reproductions).rows) == 4


def row(name: str) -> Reproduction:
    return Reproduction(name=name, jax="", device="cpu", verdict="same")


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
        inside=True,
    )
    found = together([none, good, none], 60.0)
    assert (found.predicted.count, found.predicted.of, found.median_gap) == (1, 1, 0.2)
    assert (found.inside.count, found.inside.of) == (1, 1)
    assert reproduce.line(none) == "mlp: same"
    assert together([none], 60.0).median_gap is None
