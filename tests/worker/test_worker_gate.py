"""The numerics gate on real steps: planted faults are refused, harmless changes pass; so does the second chance."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.jax

HARMLESS = {"float32": "blocked", "bfloat16": "excess precision off"}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """By the dtype that the step computes in; a process of its own, for its settings and its warnings."""
    env = {n: v for n, v in os.environ.items() if not n.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}
    env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # what is planted shows at every level; this one is quick
    here = Path(__file__).parent
    command = [sys.executable, "-W", "error", str(here / "gate_step.py"), "0", "1"]
    env["PYTHONPATH"] = str(here.parents[1])
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return {entry["dtype"]: entry for entry in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_planted_fault_is_refused_and_the_right_step_passes(found: dict[str, Any], dtype: str) -> None:
    passed = found[dtype]["passed"]
    assert len(passed) == 16
    assert [name for name, it_did in passed.items() if it_did] == ["none"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_harmless_change_passes(found: dict[str, Any], dtype: str) -> None:
    assert found[dtype]["reasons"][HARMLESS[dtype]] == ""


@pytest.mark.parametrize(("dtype", "variant"), [("float32", "blocked"), ("bfloat16", "exact")])
def test_what_is_no_farther_from_a_float64_reference_has_a_second_chance(
    found: dict[str, Any], dtype: str, variant: str
) -> None:
    """Another order of the same sums; and float32 where the default computes in bfloat16."""
    assert found[dtype]["precision"] == "float64"
    text = "different from the default's results, but no farther from a float64 reference"
    assert found[dtype]["chances"][variant] == [True, text]


def test_bfloat16_sums_in_place_of_float32_ones_fail_both(found: dict[str, Any]) -> None:
    assert found["float32"]["reasons"]["rough"].startswith("wrong result")
    passed, text = found["float32"]["chances"]["rough"]
    assert not passed
    assert "distance from a float64 reference" in text
