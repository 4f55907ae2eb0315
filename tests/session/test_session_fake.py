"""FakeMachine: the simulated truth can be measured through sessions, in every lane, phase and kind of failure."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median

import pytest
from fake_sessions import QUIET, compiled, failed, launch, started, step_ms

from tuner.errors import SessionEnded
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, LeafStats, NumericsReply, Profile, Variant
from tuner.session.base import Launch
from tuner.session.fake_machine import FakeMachine, Fault

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
    trace = session.profile(Profile(id="p", steps=3, folder=str(tmp_path)))
    assert not isinstance(trace, Failure)
    assert Path(trace.xplane).exists()
    assert sum(len(line.labels) for line in trace.lines) == 3 * 4
    ceilings = session.ceilings()
    assert not isinstance(ceilings, Failure)
    assert ceilings.bytes_per_s > 0
