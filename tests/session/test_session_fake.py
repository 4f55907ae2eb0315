"""FakeMachine: the simulated truth can be measured through sessions, in every lane, phase and kind of failure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median, pstdev

import pytest

from tuner.errors import SessionEnded
from tuner.knobs.config import Config
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Compiled, LeafStats, NumericsReply, OptionValue, Variant
from tuner.session.base import Launch
from tuner.session.fake import FakeSession
from tuner.session.fake_machine import FakeMachine, Fault
from tuner.session.noise import NoiseModel

QUIET = NoiseModel()


def launch(env: Mapping[str, str | None] | None = None, *, name: str = "s", config: Config | None = None) -> Launch:
    return Launch(
        name=name,
        role="search",
        workload=Path("workload.py"),
        log=Path("s.log"),
        python="python",
        env=env or {},
        config=config or Config(),
    )


def started(machine: FakeMachine, env: Mapping[str, str | None] | None = None, *, name: str = "s") -> FakeSession:
    session = machine.factory(launch(env, name=name))
    session.start()
    return session


def compiled(session: FakeSession, handle: str, **options: OptionValue) -> Compiled:
    result = session.compile([Variant(id=handle, compiler_options=options)]).results[0]
    assert isinstance(result, Compiled)
    return result


def failed(session: FakeSession, **options: OptionValue) -> Failure:
    result = session.compile([Variant(id="x", compiler_options=options)]).results[0]
    assert isinstance(result, Failure)
    return result


def step_ms(session: FakeSession, *handles: str) -> list[float]:
    blocks = session.round([Arm(id=h, steps=10) for h in handles])
    return [1e3 * b.seconds / b.steps for b in blocks if isinstance(b, Block)]


# -- time ------------------------------------------------------------------------------------------------------------


def test_effects_add_and_interactions_need_all_their_settings() -> None:
    both = frozenset({("xla_a", "true"), ("xla_b", "2")})
    machine = FakeMachine(step_ms=10, effects={("xla_a", "true"): -0.1, ("xla_b", "2"): 0.2, both: 0.05}, noise=QUIET)
    session = started(machine)
    for handle, options in {
        "0": {},
        "a": {"xla_a": True},
        "b": {"xla_b": 2},
        "ab": {"xla_a": "True", "xla_b": "2"},
    }.items():
        compiled(session, handle, **options)
    logs = [math.log(t / 10) for t in step_ms(session, "0", "a", "b", "ab")]
    assert logs == pytest.approx([0.0, -0.1, 0.2, 0.15])


def test_a_setting_does_the_same_in_every_form() -> None:
    machine = FakeMachine(
        effects={("xla_a", "true"): 0.3, ("jax_default_matmul_precision", "highest"): 0.5, ("NCCL_ALGO", "Ring"): 0.1},
        noise=QUIET,
    )
    home = started(machine)
    variant = Variant(id="v", compiler_options={"xla_a": True}, jax_config={"jax_default_matmul_precision": "highest"})
    home.compile([variant])
    emitted = started(
        machine, {"XLA_FLAGS": "--xla_a=true", "JAX_DEFAULT_MATMUL_PRECISION": "highest", "NCCL_ALGO": "Ring"}
    )
    compiled(emitted, "control")
    assert math.log(step_ms(home, "v")[0] / 10) == pytest.approx(0.8)
    assert math.log(step_ms(emitted, "control")[0] / 10) == pytest.approx(0.9)


def test_a_variant_wins_over_the_environment() -> None:
    machine = FakeMachine(effects={("xla_a", "true"): 0.3, ("xla_a", "false"): 0.1}, noise=QUIET)
    session = started(machine, {"XLA_FLAGS": "--xla_a=true"})
    compiled(session, "v", xla_a=False)
    assert math.log(step_ms(session, "v")[0] / 10) == pytest.approx(0.1)


def test_knobs_of_the_workload_act_too() -> None:
    machine = FakeMachine(effects={("remat", "true"): 0.2}, noise=QUIET)
    session = machine.factory(
        Launch(
            name="s",
            role="home",
            workload=Path("w"),
            log=Path("l"),
            python="p",
            env={},
            knobs={"remat": True},
        )
    )
    session.start()
    program = compiled(session, "v").program
    assert math.log(step_ms(session, "v")[0] / 10) == pytest.approx(0.2)
    assert program != compiled(started(machine), "v").program


def test_the_clock_advances_by_what_was_simulated() -> None:
    machine = FakeMachine(step_ms=10, start_s=3, compile_s=2, noise=QUIET)
    session = started(machine)
    assert machine.now() == 3
    session.compile([Variant(id=str(n)) for n in range(4)], threads=2)
    assert machine.now() == 7
    session.round([Arm(id="0", steps=100)])
    assert machine.now() == pytest.approx(7 + 1.0 + 0.015)


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


# -- code ------------------------------------------------------------------------------------------------------------


def test_settings_show_in_the_code_unless_they_are_inert() -> None:
    machine = FakeMachine(inert={"xla_i", ("xla_v", "1")}, effects={("xla_i", "1"): -0.2}, noise=QUIET)
    session = started(machine, {"LD_PRELOAD": "/malloc.so"})
    control = compiled(session, "control").code
    assert compiled(session, "i", xla_i=1).code == control
    assert compiled(session, "v1", xla_v=1).code == control
    assert compiled(session, "v2", xla_v=2).code != control
    assert compiled(started(machine), "control").code == control
    fast, slow = step_ms(session, "i", "control")
    assert math.log(fast / slow) == pytest.approx(-0.2)


def test_lanes_can_lie() -> None:
    machine = FakeMachine(
        effects={("xla_o", "1"): 0.1, ("xla_e", "1"): 0.1},
        option_ignored={"xla_o"},
        environment_ignored={"xla_e"},
        noise=QUIET,
    )
    home, emitted = started(machine), started(machine, {"XLA_FLAGS": "--xla_o=1 --xla_e=1"})
    default, only_environment = compiled(home, "0"), compiled(emitted, "0")
    assert compiled(home, "o", xla_o=1).code == default.code
    assert compiled(home, "e", xla_e=1).code != default.code
    assert only_environment.code != default.code
    assert [round(math.log(t / 10), 6) for t in (*step_ms(home, "o", "e"), *step_ms(emitted, "0"))] == [0, 0.1, 0.1]


def test_names_exist_in_both_forms_in_one_or_in_none() -> None:
    machine = FakeMachine(
        unsupported={"xla_u"}, option_only={"xla_o"}, flag_only={"xla_f"}, option_types={"xla_b": "bool"}
    )
    session = started(machine)
    names = ["xla_u", "xla_o", "xla_f", "xla_b", "xla_other", "xla_made_up_no_such_flag"]
    assert session.probe(names).types == {
        "xla_u": None,
        "xla_o": "string",
        "xla_f": None,
        "xla_b": "bool",
        "xla_other": "string",
        "xla_made_up_no_such_flag": None,
    }
    assert failed(session, xla_u=1).kind is FailureClass.UNSUPPORTED
    child = machine.factory(launch({"XLA_FLAGS": " ".join(f"--{n}=1" for n in names)}))
    with pytest.raises(SessionEnded) as caught:
        child.start()
    failure = caught.value.failure
    assert (failure.kind, failure.exit_code) == (FailureClass.UNSUPPORTED, 1)
    assert failure.message.endswith("Unknown flags in XLA_FLAGS: --xla_u=1 --xla_o=1 --xla_made_up_no_such_flag=1")


def test_values_are_checked_as_strictly_as_the_compiler_does() -> None:
    machine = FakeMachine(option_types={"xla_b": "bool", "xla_n": "int64", "xla_f": "float"})
    session = started(machine)
    bad = session.probe([], {"xla_b": [True, "True", "true", 1], "xla_n": [1, "2", "x", True], "xla_f": [0.5, "a"]})
    assert {name: set(values) for name, values in bad.bad_values.items()} == {
        "xla_b": {"true", "1"},
        "xla_n": {"x", "True"},
        "xla_f": {"a"},
    }
    assert failed(session, xla_b="true").kind is FailureClass.BAD_VALUE
    with pytest.raises(SessionEnded) as caught:
        started(machine, {"XLA_FLAGS": "--xla_b=maybe"})
    assert caught.value.failure.kind is FailureClass.BAD_VALUE
    assert compiled(started(machine, {"XLA_FLAGS": "--xla_b=true"}), "control").id == "control"


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_that_ends_no_process_is_data() -> None:
    out_of_memory = Fault(kind=FailureClass.OUT_OF_MEMORY, at="round", message="RESOURCE_EXHAUSTED")
    machine = FakeMachine(failures={("xla_a", "1"): FailureClass.COMPILE, ("xla_b", "1"): out_of_memory})
    session = started(machine)
    assert failed(session, xla_a=1).kind is FailureClass.COMPILE
    compiled(session, "control")
    compiled(session, "b", xla_b=1)
    good, bad = session.round([Arm(id="control", steps=1), Arm(id="b", steps=1)])
    assert isinstance(good, Block)
    assert bad == Failure(kind=FailureClass.OUT_OF_MEMORY, phase="round", message="RESOURCE_EXHAUSTED")
    assert session.ended is None


@pytest.mark.parametrize(
    ("kind", "signal"),
    [
        (FailureClass.CRASH, "SIGABRT"),
        (FailureClass.ILLEGAL_INSTRUCTION, "SIGILL"),
        (FailureClass.HOST_OUT_OF_MEMORY, "SIGKILL"),
        (FailureClass.FATAL, None),
    ],
)
def test_a_deadly_failure_ends_the_session(kind: FailureClass, signal: str | None) -> None:
    machine = FakeMachine(failures={("xla_a", "1"): kind})
    session = started(machine)
    with pytest.raises(SessionEnded):
        session.compile([Variant(id="a", compiler_options={"xla_a": 1})])
    assert session.ended is not None
    assert (session.ended.kind, session.ended.signal, session.ended.phase) == (kind, signal, "compile")
    assert machine.living == []


def test_a_hang_takes_its_time_and_ends_the_session() -> None:
    machine = FakeMachine(failures={("xla_a", "1"): FailureClass.TIMEOUT}, hang_s=500, start_s=0, compile_s=0)
    session = started(machine)
    with pytest.raises(SessionEnded) as caught:
        compiled(session, "a", xla_a=1)
    assert caught.value.failure.kind is FailureClass.TIMEOUT
    assert machine.now() == 500


def test_a_process_may_not_even_start() -> None:
    fault = Fault(kind=FailureClass.CRASH, at="load")
    machine = FakeMachine(failures={frozenset({("LD_PRELOAD", "x"), ("xla_a", "1")}): fault})
    started(machine, {"LD_PRELOAD": "x"})
    with pytest.raises(SessionEnded) as caught:
        started(machine, {"LD_PRELOAD": "x", "XLA_FLAGS": "--xla_a=1"})
    assert caught.value.failure.phase == "load"


def test_a_full_device_takes_no_other_session() -> None:
    machine = FakeMachine(max_sessions=1)
    first = started(machine)
    with pytest.raises(SessionEnded) as caught:
        started(machine)
    assert caught.value.failure.kind is FailureClass.OUT_OF_MEMORY
    first.close()
    second = started(machine)
    assert machine.living == [second]


# -- results ---------------------------------------------------------------------------------------------------------


def leaves(reply: NumericsReply | Failure) -> tuple[LeafStats, ...]:
    assert isinstance(reply, NumericsReply)
    return reply.leaves


def test_results_are_as_wrong_as_was_asked_for(tmp_path: Path) -> None:
    machine = FakeMachine(wrong={("xla_w", "1"): 1e-3, ("xla_n", "1"): math.nan}, inert={"xla_i"})
    session = started(machine)
    reference = tmp_path / "reference"
    for handle, options in {
        "0": {},
        "i": {"xla_i": 1},
        "ok": {"xla_a": 1},
        "w": {"xla_w": 1},
        "n": {"xla_n": 1},
    }.items():
        compiled(session, handle, **options)
    assert isinstance(session.numerics("0", steps=5, reference=reference), Failure)
    assert leaves(session.numerics("0", steps=5, reference=reference, save=True)) == ()

    def worst(handle: str, *, nudge: int = 0) -> float:
        return max(leaf.l2 for leaf in leaves(session.numerics(handle, steps=5, reference=reference, nudge=nudge)))

    assert worst("0") == worst("i") == 0.0
    assert 0 < worst("0", nudge=1) < 1e-5
    assert 0 < worst("ok") < 1e-5
    assert worst("w") == pytest.approx(1e-3, rel=0.01)
    assert not any(leaf.masks_equal for leaf in leaves(session.numerics("n", steps=5, reference=reference)))
    assert {leaf.steps for leaf in leaves(session.numerics("0", steps=5, reference=reference))} == {1, 5}


def test_the_reference_is_compared_with_not_assumed_right(tmp_path: Path) -> None:
    machine = FakeMachine(wrong={("xla_w", "1"): 1e-3})
    session = started(machine)
    compiled(session, "0")
    compiled(session, "w", xla_w=1)
    session.numerics("w", steps=1, reference=tmp_path / "r", save=True)
    assert median(
        leaf.slope for leaf in leaves(session.numerics("0", steps=1, reference=tmp_path / "r"))
    ) == pytest.approx(1e-3, rel=0.01)


def test_a_profile_is_taken_and_acts(tmp_path: Path) -> None:
    machine = FakeMachine(effects={("pgle", "on"): -0.1}, noise=QUIET)
    session = started(machine)
    reply = session.pgle(Variant(id="p"))
    assert not isinstance(reply, Failure)
    assert reply.instructions > 0
    assert isinstance(session.round([Arm(id="p", steps=1)])[0], Failure)
    session.compile([Variant(id="p", profile=reply.profile)])
    assert math.log(step_ms(session, "p")[0] / 10) == pytest.approx(-0.1)
    trace = session.profile("p", steps=3, folder=tmp_path)
    assert not isinstance(trace, Failure)
    assert Path(trace.xplane).exists()
    assert sum(len(line.labels) for line in trace.lines) == 3 * 4
    ceilings = session.ceilings()
    assert not isinstance(ceilings, Failure)
    assert ceilings.bytes_per_s > 0
