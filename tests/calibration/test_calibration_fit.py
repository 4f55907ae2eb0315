"""Fitted models look like the half of their recording that they have not seen; and what doesn't, is told."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from fit import MODELS, RECORDINGS, check, halves, inside, load, process_part
from recorded import Pair, Process, Recording, read, write
from spread import NAMES, pair_log_ratios, simulated, statistics

from tuner.session.noise import NoiseModel

pytestmark = pytest.mark.slow

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "h100"
NAMED = sorted(p.stem for p in MODELS.glob("*.json"))


def design(*, pairs: int, turns: int, program: str = "") -> Recording:
    """A recording's form, without noise in it."""
    return Recording(
        workload="made up",
        jax="0",
        device="cpu",
        machine="made up",
        cores=1,
        steps=1,
        pairs=tuple(
            Pair(
                processes=(Process(compile_s=1.0), Process(compile_s=1.0, program=program)),
                turns=tuple((20.0 * i + 0.2 * t + 0.1 * p, p, 0.05, 0.05) for t in range(turns) for p in range(2)),
            )
            for i in range(pairs)
        ),
    )


def test_there_are_models_of_the_cpu_and_of_a_gpu() -> None:
    assert {load(name).platform for name in NAMED} == {"cpu", "gpu"}


@pytest.mark.parametrize("name", NAMED)
def test_the_held_out_half_lies_where_the_model_puts_it(name: str) -> None:
    model = load(name)
    recording = read(RECORDINGS / model.recording)
    assert (model.jax, model.device) == (recording.jax, recording.device)
    half, other = halves(recording)
    found = check(model.noise, half, other, runs=100)
    assert sum(c.low is not None for c in found.values()) >= 10
    outside = {n: c for n, c in found.items() if not inside(c)}
    assert len(outside) <= 1, outside
    assert found["pair_spread"].held_out == model.check["pair_spread"].held_out  # the table that is stored is of this


def test_a_run_of_another_day_looks_as_the_model_says() -> None:
    model = load("gpt-jax0.11.2")
    half, _ = halves(read(RECORDINGS / model.recording))
    found = check(model.noise, half, read(RECORDINGS / "gpt-later-jax0.11.2.json.gz"), runs=200)
    assert sum(c.low is not None for c in found.values()) >= 10
    assert [n for n, c in found.items() if not inside(c)] == ["ratio_tail"]  # one block of 130, 12 % longer


def test_a_wrong_model_is_told() -> None:
    model = load("gpt-jax0.11.2")
    half, other = halves(read(RECORDINGS / model.recording))
    for wrong in ({"block_sd": 3 * model.noise.block_sd}, {"process_sd": 0.01}, {"machine_sd": 0.01, "machine_s": 0.5}):
        found = check(msgspec.structs.replace(model.noise, **wrong), half, other, runs=100)
        assert not all(map(inside, found.values())), wrong


@pytest.mark.parametrize(("modes", "sd"), [(0.0, 0.01), (0.04, 0.002)])
def test_what_distinguishes_processes_is_found_again(modes: float, sd: float) -> None:
    truth = NoiseModel(block_sd=0.003, process_sd=sd, process_modes=modes)
    found = process_part(simulated(design(pairs=80, turns=12), truth, random.Random(3)))
    assert found.process_modes == pytest.approx(modes, rel=0.1)
    assert np.hypot(found.process_sd, found.compile_sd) == pytest.approx(sd, rel=0.25)


def test_noise_of_blocks_is_not_taken_for_processes() -> None:
    quiet = simulated(design(pairs=80, turns=12), NoiseModel(block_sd=0.02), random.Random(4))
    found = process_part(quiet)
    assert found.process_modes == 0.0
    assert np.hypot(found.process_sd, found.compile_sd) < 0.003  # a pair's median has an error of 0.01


def test_a_difference_between_programs_is_no_noise() -> None:
    made = simulated(design(pairs=10, turns=8, program="b"), NoiseModel(block_sd=0.001), random.Random(5))
    slower = [
        msgspec.structs.replace(
            p,
            turns=tuple((start, who, seconds * (1.3 if who else 1.0), first) for start, who, seconds, first in p.turns),
        )
        for p in made.pairs
    ]
    other = msgspec.structs.replace(made, pairs=tuple(slower))
    assert np.abs(pair_log_ratios(other)).max() < 0.003
    assert statistics(other)["level_between"] == pytest.approx(statistics(made)["level_between"], rel=0.01)


@pytest.mark.parametrize("program", ["", "b"])
def test_few_pairs_of_different_programs_look_as_spread_as_those_of_equal_ones(program: str) -> None:
    truth = NoiseModel(process_sd=0.002)
    form = design(pairs=3, turns=5, program=program)
    rows = [pair_log_ratios(simulated(form, truth, random.Random(f"few/{i}"))) for i in range(400)]
    assert np.sqrt(np.mean(np.square(rows))) == pytest.approx(0.002 * 2**0.5, rel=0.08)
    assert len(pair_log_ratios(simulated(design(pairs=1, turns=5, program="b"), truth, random.Random(7)))) == 0


def test_statistics_tell_noise_apart() -> None:
    def of(**noise: float) -> dict[str, float]:
        return statistics(simulated(design(pairs=40, turns=30), NoiseModel(**noise), random.Random(6)))

    own = of(block_sd=0.01)
    assert own.keys() == NAMES.keys()
    assert own["ratio_spread"] == pytest.approx(0.01 * 2**0.5, rel=0.1)
    assert own["ratio_tail"] == pytest.approx(3.82, rel=0.1)
    assert abs(own["ratio_lag1"]) < 0.1
    assert of(block_sd=0.01, block_tail=0.4)["ratio_tail"] > 1.4 * own["ratio_tail"]
    assert of(block_sd=0.01, unrest=0.6)["unrest"] > 2 * own["unrest"]
    assert of(block_sd=0.01, block_memory=0.5)["ratio_lag1"] == pytest.approx(0.5, abs=0.1)
    machine = of(block_sd=0.001, machine_sd=0.02, machine_s=10.0)
    assert machine["level_spread"] > 1.5 * machine["ratio_spread"]
    assert machine["level_lag1"] > 0.6
    assert of(block_sd=0.001, process_sd=0.02)["pair_spread"] == pytest.approx(0.02 * 2**0.5, rel=0.25)
    assert of(block_sd=0.001, drift_sd=0.02)["level_minute"] == pytest.approx(0.02, rel=0.35)
    assert of(block_sd=0.001, stalls=60.0, stall_s=0.1, stall_size=1.0)["skew"] > 0.5


def test_a_runs_confirmation_is_a_recording_too(tmp_path: Path) -> None:
    log = RESULTS / "gpt-jax0.11.2.events.jsonl.gz"
    made = read(log)
    assert (made.workload, made.device, made.jax) == ("gpt.py", "NVIDIA H100 80GB HBM3", "0.11.2")
    assert len(made.pairs) == 6
    programs = [[process.program for process in pair.processes] for pair in made.pairs]
    assert all(len(set(row)) == len(row) for row in programs)  # the default and its finalists
    assert len(set.intersection(*map(set, programs))) == len(programs[0])
    for pair in made.pairs:
        assert len({len(pair.row(who)) for who in range(len(pair.processes))}) == 1
    assert made.step_s == pytest.approx(0.096, rel=0.02)
    starts = [t[0] for p in made.pairs for t in p.turns]
    assert starts == sorted(starts)
    assert 5 < made.starting_s < 15
    write(made, tmp_path / "gpt.json.gz")
    assert read(tmp_path / "gpt.json.gz") == made


def test_a_start_is_told_by_the_gaps_between_pairs() -> None:
    assert design(pairs=3, turns=10).starting_s == pytest.approx((20.0 - 2.0) / 2 - 1.0, abs=0.1)
