"""FakeMachine's clock and its noise: of blocks, of processes and compiles, and of the machine that all share."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from fake_sessions import QUIET, compiled, launch, started, step_ms

from tuner.protocol.messages import Variant
from tuner.session.fake_machine import FakeMachine
from tuner.session.noise import NoiseModel

pytestmark = pytest.mark.slow  # statistics of many draws


@pytest.mark.parametrize(("beside", "seconds"), [(1, 9), (2, 6), (3, 3), (8, 3)])
def test_processes_made_at_one_moment_start_side_by_side(beside: int, seconds: float) -> None:
    machine = FakeMachine(start_s=3, starts_beside=beside, noise=QUIET)
    for session in [machine.factory(launch(name=str(n))) for n in range(3)]:
        session.start()
    assert machine.now() == seconds
    started(machine)
    assert machine.now() == seconds + 3


def test_equal_seeds_repeat_and_others_do_not() -> None:
    def times(seed: int) -> list[float]:
        machine = FakeMachine(noise=NoiseModel(process_sd=0.01, block_sd=0.003), seed=seed)
        session = started(machine)
        compiled(session, "a")
        return step_ms(session, "a", "a", "a")

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_what_the_machine_does_cancels_in_ratios_of_sessions_alive_together() -> None:
    machine = FakeMachine(noise=NoiseModel(block_sd=0.001, machine_sd=0.05, machine_s=2.0))
    both = [started(machine), started(machine)]
    for session in both:
        compiled(session, "a")
    rows = [[step_ms(session, "a")[0] for session in both] for _ in range(2000)]
    ratios = [math.log(a / b) for a, b in rows]
    apart_s = 0.115
    left = 0.05 * math.sqrt(2 * (1 - math.exp(-apart_s / 2.0)))  # how far the level moves from one block to the next
    assert pstdev(ratios) == pytest.approx(math.hypot(0.001 * math.sqrt(2), left), rel=0.1)
    assert pstdev(math.log(a) for a, _ in rows) == pytest.approx(0.05, rel=0.3)


def test_restless_spells_scale_a_blocks_own_noise() -> None:
    def spread_of(unrest: float) -> float:
        machine = FakeMachine(noise=NoiseModel(block_sd=0.001, unrest=unrest), seed=5)
        session = started(machine)
        compiled(session, "a")
        logs = []
        for _ in range(3000):
            machine.advance(30.0)
            logs.append(math.log(step_ms(session, "a")[0] / 10))
        return pstdev(logs)

    assert spread_of(0.0) == pytest.approx(0.001, rel=0.1)
    assert spread_of(0.8) == pytest.approx(0.001 * math.exp(0.8**2), rel=0.15)  # a lognormal's root mean square


def test_each_process_has_its_own_speed() -> None:
    machine = FakeMachine(noise=NoiseModel(process_sd=0.02))
    logs = []
    for _ in range(200):
        session = started(machine)
        compiled(session, "a")
        compiled(session, "b", xla_a=1)
        a, b = step_ms(session, "a", "b")
        assert a == b
        logs.append(math.log(a / 10))
    assert pstdev(logs) == pytest.approx(0.02, rel=0.2)
    assert fmean(logs) == pytest.approx(0, abs=0.005)


def test_each_compile_of_a_process_draws_its_own_luck_but_equal_code_has_one() -> None:
    machine = FakeMachine(noise=NoiseModel(compile_sd=0.02), inert={"xla_i"})
    session = started(machine)
    compiled(session, "a")
    compiled(session, "twin", xla_i=1)
    compiled(session, "b", xla_b=1)
    a, twin, b = step_ms(session, "a", "twin", "b")
    assert a == twin
    assert a != b


def test_a_compile_that_was_sealed_is_loaded_with_its_luck(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    machine = FakeMachine(noise=NoiseModel(compile_sd=0.1))
    sealing = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    reading = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000"}
    off = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    found = []
    for env in (reading, sealing, reading, off):
        session = started(machine, env)
        before = machine.now()
        reply = session.compile([Variant(id="c")])
        found.append((reply.cache_requests, reply.cache_hits, machine.now() - before, step_ms(session, "c")[0]))
    assert [(asked, hit) for asked, hit, _, _ in found] == [(1, 0), (1, 0), (1, 1), (0, 0)]
    assert [took > 0 for _, _, took, _ in found] == [True, True, False, True]
    times = [ms for _, _, _, ms in found]
    assert times[2] == pytest.approx(times[1])
    assert len({round(ms, 6) for ms in times}) == 3


def test_a_gpus_program_shows_what_a_compile_drew() -> None:
    for platform, programs in (("cpu", 1), ("gpu", 3)):
        machine = FakeMachine(noise=NoiseModel(compile_sd=0.01), platform=platform)
        assert len({compiled(started(machine), "c").code for _ in range(3)}) == programs


def test_a_trend_is_log_time_a_minute() -> None:
    machine = FakeMachine(noise=NoiseModel(trend=0.01), start_s=0, compile_s=0)
    session = started(machine)
    compiled(session, "a")
    first = step_ms(session, "a")[0]
    machine.advance(600)
    assert math.log(step_ms(session, "a")[0] / first) == pytest.approx(0.1, abs=0.001)
