"""Objectives: what a block's value is, what it is the time of, and how a block is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tuner.measure import OBJECTIVES, BlockForm, Objective, log_ratios
from tuner.protocol.messages import Arm, Block

PLAIN = Block(id="a", steps=10, seconds=0.5, first_s=0.05)
TOLD = Block(id="a", steps=10, seconds=0.5, first_s=0.05, value_s=0.2)


def test_the_value_is_the_mean_or_what_the_block_tells_by_unit_of_work_for_throughput() -> None:
    for name in ("mean", "p50", "p99"):
        assert Objective(name=name).value_s(PLAIN, work=4.0) == 0.05
        assert Objective(name=name).value_s(TOLD, work=4.0) == 0.2
    assert Objective(name="throughput").value_s(PLAIN, work=4.0) == 0.0125


@pytest.mark.parametrize(
    ("objective", "per"),
    [
        (Objective(), "a step"),
        (Objective(name="p99"), "a step at p99"),
        (Objective(name="throughput"), "a unit of work"),
        (Objective(weights={"prefill": 1.0, "decode": 128.0}), "for 1 prefill + 128 decode"),
        (Objective(name="p50", weights={"train": 1.0, "eval": 0.1}), "for 1 train + 0.1 eval at p50"),
        (Objective(name="throughput", weights={"a": 1.0}), "a unit of work"),
    ],
)
def test_every_objective_says_what_its_value_is_the_time_of(objective: Objective, per: str) -> None:
    assert objective.per == per


def test_only_quantiles_ask_for_steps_one_by_one() -> None:
    assert [Objective(name=n).quantile for n in OBJECTIVES] == [None, 0.5, 0.99, None]  # type: ignore[arg-type]
    form = BlockForm(steps=300, warm_up=50, quantile=0.99)
    assert form.arm("a") == Arm(id="a", steps=300, warm_up=50, quantile=0.99)
    assert form.all_steps == 350


def test_a_gain_is_that_of_what_blocks_tell() -> None:
    def block(name: str, value_s: float) -> Block:
        return Block(id=name, steps=10, seconds=1.0, first_s=0.1, value_s=value_s)

    gains = log_ratios([block("control", 0.2), block("a", 0.1), block("control", 0.2)], "control")
    assert gains == {"a": pytest.approx(0.6931, abs=1e-4)}
    with pytest.raises(ValueError, match="no time"):
        log_ratios([block("control", 0.2), block("a", 0.0)], "control")


@pytest.mark.slow
def test_an_objective_costs_no_heavy_import() -> None:
    heavy = "not {'numpy', 'scipy'}.isdisjoint(sys.modules)"
    code = f"import sys; from tuner.measure import OBJECTIVES, Objective, tie_break; sys.exit({heavy})"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
