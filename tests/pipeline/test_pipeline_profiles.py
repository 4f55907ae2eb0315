"""Profiles of a run: both sides, in the processes of a pair once they are timed, or in fresh ones at the end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tuner.errors import Interrupted, TunerError, UsageError
from tuner.knobs.config import DEFAULT, Config
from tuner.pipeline.profiling import ProfileOptions, profile_workload
from tuner.pipeline.run import Outcome
from tuner.profile import Ceiling, StepProfile
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import CeilingsReply, Loaded, Profile, ProfileReply, Recompiled
from tuner.report.blocks import Prose
from tuner.report.profile import render_profile
from tuner.report.view import RunView
from tuner.report.where import profile_blocks
from tuner.session import FakeMachine, NoiseModel
from tuner.session.fake import FakeSession
from tuner.store.ceilings import ceiling_of
from tuner.store.events import Notice, PairsPlanned, PairTimed, Profiled, RoundTimed, SessionStarted, TrialFinished

GOOD = ("xla_good", "true")


def machine(**kwargs: object) -> FakeMachine:
    return FakeMachine(effects={GOOD: -0.2}, **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def tune(tune_on: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """A run with room for profiles."""
    return lambda machine, budget_s=300.0: tune_on(machine, budget_s=budget_s)


def profiled(outcome: Outcome) -> dict[bool, Profiled]:
    """By whether it is the default's."""
    return {e.config == DEFAULT: e for e in outcome.events if isinstance(e, Profiled)}


@pytest.mark.slow
def test_default_and_winner_are_profiled_in_a_pair_where_nothing_is_timed_any_more(
    tune: Callable[..., Outcome],
) -> None:
    outcome = tune(machine())
    sides = profiled(outcome)
    assert sides.keys() == {True, False}
    for side in sides.values():
        assert side.profile is not None
        breakdown = side.profile.breakdown
        assert sum(breakdown.parts.values()) == pytest.approx(breakdown.step_ms)
        assert side.profile.roofline.flops == 2 * 512**3 + 512**2
    default, winner = (sides[side].profile for side in (True, False))
    assert default is not None
    assert winner is not None
    assert winner.breakdown.step_ms == pytest.approx(0.8 * default.breakdown.step_ms, rel=0.1)
    order = [e for e in outcome.events if isinstance(e, RoundTimed | Profiled)]
    for side in sides.values():
        after = order[order.index(side) :]
        assert not any(isinstance(e, RoundTimed) and e.session == side.session for e in after)
    roles = {e.session: e.role for e in outcome.events if isinstance(e, SessionStarted)}
    assert {roles[side.session] for side in sides.values()} == {"confirm"}
    assert {side.session.split("-")[2] for side in sides.values()} == {"5"}  # of the first pair that may be the last


@pytest.mark.slow
def test_a_finalist_that_is_not_chosen_is_no_side_of_the_result(tune: Callable[..., Outcome]) -> None:
    outcome = tune(FakeMachine(effects={GOOD: -0.004}, noise=NoiseModel(block_sd=0.003, process_sd=0.01)), 600.0)
    assert profiled(outcome).keys() == {True, False}
    view = RunView.of(outcome.events)
    assert view.confirm is not None
    assert view.confirm.chosen == DEFAULT
    assert [p.config for p in view.profiles] == [DEFAULT]


@pytest.fixture
def no_room_beside_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.pipeline.confirm.profile_living", lambda *_, **__: None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_room_beside_a_pair")
def test_at_the_end_the_winner_is_the_sealed_executable_and_nothing_is_added_to_its_cache(
    tune: Callable[..., Outcome],
) -> None:
    outcome = tune(machine())
    name = profiled(outcome)[False].session
    env = next(e.env for e in outcome.events if isinstance(e, SessionStarted) and e.session == name)
    assert str(env["JAX_COMPILATION_CACHE_DIR"]).endswith("jax_cache")
    assert float(env["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] or 0) > 1e5


@pytest.mark.slow
def test_where_nothing_is_confirmed_the_default_alone_is_profiled(tune: Callable[..., Outcome]) -> None:
    settings = [("xla_good", "true"), ("xla_bad", "true"), ("xla_breaks", "A"), ("xla_breaks", "B")]
    settings += [("FAKE_VARIABLE", "1"), ("FAKE_VARIABLE", "")]
    outcome = tune(FakeMachine(effects=dict.fromkeys(settings, 0.1)))
    assert not any(isinstance(e, PairTimed) for e in outcome.events)
    assert profiled(outcome).keys() == {True}


@pytest.mark.slow
def test_what_the_workload_compiles_ever_anew_is_told_at_the_start_and_beside_its_profile(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    anew = Recompiled(
        name="train", where="/home/me/t.py:3", compiles=6, seconds=2.0, calls=6, late=3, inside=6, shapes=6, step=True
    )
    real = FakeSession._loaded
    monkeypatch.setattr(FakeSession, "_loaded", lambda self: dataclasses.replace(real(self), recompiled=(anew,)))
    outcome = tune(FakeMachine())
    (told,) = {e.text for e in outcome.events if isinstance(e, Notice) and "again and again" in e.text}
    assert told.startswith("train is called with new shapes")
    assert told.endswith("(/home/me/t.py:3)")
    profile = profiled(outcome)[True].profile
    assert profile is not None
    assert profile.findings[0].kind == "shapes"


@pytest.mark.slow
def test_no_profile_where_no_time_is_left(tune: Callable[..., Outcome]) -> None:
    outcome = tune(machine(), budget_s=90.0)
    text = [getattr(e, "text", "") for e in outcome.events]
    assert not profiled(outcome)
    assert any("no time was left to profile" in t for t in text)


@pytest.mark.slow
@pytest.mark.parametrize("room", [False, True])
def test_where_no_time_is_left_for_it_there_is_no_second_trace(
    room: bool, tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    for_names: list[bool] = []
    real = FakeSession.profile

    def noted(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        for_names.append(request.python)
        return real(self, request)

    def needed(run: object, cost: object, *, attribute: bool = True) -> float:
        return 0.0 if room or not attribute else 1e9

    monkeypatch.setattr(FakeSession, "profile", noted)
    monkeypatch.setattr("tuner.pipeline.profiles.trace_seconds", needed)
    outcome = tune(machine())
    assert all(e.profile is not None for e in profiled(outcome).values())
    assert for_names == ([False, True] * 2 if room else [False] * 2)


@pytest.mark.slow
def test_a_profiler_that_fails_costs_the_profile_alone(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = Failure(kind=FailureClass.RUNTIME, phase="profile", message="another profiler is active")
    monkeypatch.setattr(FakeSession, "profile", lambda *_, **__: failure)
    outcome = tune(machine())
    assert outcome.exit_code == 0
    assert {e.failure for e in profiled(outcome).values()} == {failure}
    assert any("could not be profiled" in getattr(e, "text", "") for e in outcome.events)


@pytest.mark.slow
def test_an_interrupted_run_does_not_profile_a_side_again(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine()
    real = FakeSession.profile
    calls = []

    def once(self: FakeSession, *args: object, **kwargs: object) -> ProfileReply | Failure:
        calls.append(self.launch.name)
        if len(calls) == 2:  # the second side's trace
            raise KeyboardInterrupt
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(FakeSession, "profile", once)
    with pytest.raises(Exception, match="stopped in confirm"):
        tune(made)
    outcome = tune(made)
    sides = [e.config == DEFAULT for e in outcome.events if isinstance(e, Profiled)]
    assert sorted(sides) == [False, True]
    assert [name.split("-")[0] for name in calls] == ["confirm", "confirm", "profile", "profile"]


def many_sessions(path: Path) -> str:
    """A space of many knobs that take a process each, the good one last."""
    knob = (
        '[[knob]]\nname = "{0}"\ncarrier = "env"\ntype = "string"\nvalues = ["unset", "1"]\nlane = "environment"\n'
        'acts_on = "runtime"\ngroup = "{1}"\nwhy = "made up"\nsource = "test"\n'
    )
    names = [knob.format(f"FAKE_{n}", "many") for n in range(12)] + [knob.format("FAKE_GOOD", "launch")]
    path.write_text("version = 1\n" + "".join(names))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("first", [(), ("launch",)])
def test_a_group_that_a_profile_names_is_reached_where_the_budget_has_no_room_for_all(
    first: tuple[str, ...], tune_on: Callable[..., Outcome], tmp_path: Path
) -> None:
    made = FakeMachine(effects={("FAKE_GOOD", "1"): -0.2})
    outcome = tune_on(made, spaces=(many_sessions(tmp_path / "many.toml"),), first=first, budget_s=150.0)
    tried = [e.config for e in outcome.events if isinstance(e, TrialFinished) and e.stage == "screen"]
    good = Config.of({"FAKE_GOOD": "1"})
    assert (tried.index(good) if good in tried else None) == (0 if first else None)


def test_an_unknown_group_is_refused(tune_on: Callable[..., Outcome], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no knob is of the group 'lunch'"):
        tune_on(FakeMachine(), spaces=(many_sessions(tmp_path / "many.toml"),), first=("lunch",))
    tune_on(FakeMachine(), spaces=(many_sessions(tmp_path / "many.toml"),), first=("workload",))


def options(tmp_path: Path, **changes: object) -> ProfileOptions:
    workload = tmp_path / "w.py"
    workload.write_text("def build():\n    ...\n")
    made = ProfileOptions(workload=workload, folder=tmp_path / "out", root=tmp_path, platform="cpu")
    return msgspec.structs.replace(made, **changes)  # type: ignore[arg-type]


def profile_of(machine: FakeMachine, made: ProfileOptions) -> StepProfile:
    found = profile_workload(made, factory=machine.factory).profile
    assert found is not None
    return found


def test_a_profile_under_other_settings_and_ceilings_once_for_each_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = machine()
    plain = profile_of(made, options(tmp_path))
    kept = json.loads((tmp_path / "ceilings.json").read_text())
    (key,) = kept["ceilings"]
    assert ceiling_of(tmp_path, key) == plain.roofline.ceiling
    monkeypatch.setattr(FakeSession, "ceilings", lambda self: pytest.fail("measured twice"))
    faster = profile_of(made, options(tmp_path, env={"XLA_FLAGS": "--xla_good=true"}))
    assert faster.roofline.ceiling == plain.roofline.ceiling
    assert faster.breakdown.step_ms < 0.9 * plain.breakdown.step_ms
    for other in ({**kept, "way": kept["way"] - 1}, kept["ceilings"]):  # as an older version measured, or wrote them
        (tmp_path / "ceilings.json").write_text(json.dumps(other))
        assert ceiling_of(tmp_path, key) is None


def test_of_several_steps_each_ones_part_of_the_workloads_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    real_start, real_profile = FakeSession.start, FakeSession.profile

    def start(self: FakeSession) -> Loaded:
        return dataclasses.replace(real_start(self), weights={"prefill": 1.0, "decode": 60.0})

    def several(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        found = real_profile(self, request)
        assert isinstance(found, ProfileReply)
        return dataclasses.replace(found, each_s={"prefill": 0.004, "decode": 0.0001})

    monkeypatch.setattr(FakeSession, "start", start)
    monkeypatch.setattr(FakeSession, "profile", several)
    found = profile_workload(options(tmp_path), factory=machine().factory)
    assert found.profile is not None
    assert [(row.name, row.weight, row.share) for row in found.profile.parts] == [
        ("decode", 60.0, pytest.approx(0.6)),
        ("prefill", 1.0, pytest.approx(0.4)),
    ]
    assert "decode 60 % (60 of 0.1 ms), prefill 40 % (1 of 4 ms)" in " ".join(render_profile(found).split())
    sides = profile_blocks([("default", found.profile)])
    assert any(isinstance(b, Prose) and b.text.startswith("One run of each step is shown") for b in sides)


def test_what_the_compiler_complains_of_is_found_in_the_workers_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    real = FakeSession.profile

    def complaining(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        self.launch.log.write_text(
            "] The operation took 2.5s\nConstant folding an instruction is taking > 1s:\n\n  %r = f32[8]{0} reduce(%c)"
        )
        return real(self, request)

    monkeypatch.setattr(FakeSession, "profile", complaining)
    first = profile_of(machine(), options(tmp_path)).findings[0]
    assert (first.kind, "for 2.5 s of every compile (reduce to f32[8])" in first.text) == ("folding", True)


def test_on_a_gpu_the_second_trace_is_of_a_compile_without_command_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    traced: list[tuple[str, bool]] = []
    real = FakeSession.profile

    def noted(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        traced.append((request.id, request.python))
        return real(self, request)

    monkeypatch.setattr(FakeSession, "profile", noted)
    found = profile_workload(options(tmp_path, platform="gpu"), factory=FakeMachine(platform="gpu").factory)
    assert traced == [("control", False), ("attributed", True)]
    assert found.profile is not None
    assert found.profile.breakdown.ops[0].name == "dot.1"
    assert found.kernel[:3] == ("env", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "ncu")
    assert "--kernel-name=regex:^dot_1$" in found.kernel
    # The file defines build() and runs nothing by itself: the worker is what runs its step.
    assert found.kernel[-3:-1] == ("--alone", str(tmp_path / "w.py"))
    assert found.profile.compile_s > 0
    assert f"{found.profile.compile_s:.3g} s to compile it before" in render_profile(found)


def test_nsight_compute_gets_the_program_that_was_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its settings, with its parameters; a script as it is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = options(tmp_path, platform="gpu", env={"XLA_FLAGS": "--xla_good=true", "NCCL_ALGO": None}, argv=("a", "b"))
    made.workload.write_text("def build(batch=1):\n    ...\n")
    made = msgspec.structs.replace(made, knobs={"batch": 8})
    kernel = profile_workload(made, factory=FakeMachine(platform="gpu").factory).kernel
    assert kernel[:3] == ("env", "-u", "NCCL_ALGO")
    assert {"XLA_FLAGS=--xla_good=true", "ncu"} < set(kernel[3:6])
    assert kernel[-5:-3] == ("--alone", str(made.workload))
    assert json.loads(kernel[-3]) == {"platform": "gpu", "knobs": {"batch": 8}}
    assert kernel[-2:] == ("a", "b")
    made.workload.write_text("print('a script')\n")
    script = profile_workload(
        msgspec.structs.replace(made, knobs={}), factory=FakeMachine(platform="gpu").factory
    ).kernel
    assert script[-4:] == (made.python, str(made.workload), "a", "b")


def test_ceilings_that_repeats_did_not_agree_on_are_used_once_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = CeilingsReply(flops_per_s={"f32": 1e12}, bytes_per_s=1e10, unsteady=("f32",))
    monkeypatch.setattr(FakeSession, "ceilings", lambda self: reply)
    found = profile_workload(options(tmp_path), factory=machine().factory).profile
    assert found is not None
    assert found.roofline.ceiling == Ceiling(flops_per_s={"f32": 1e12}, bytes_per_s=1e10, unsteady=("f32",))
    assert not (tmp_path / "ceilings.json").exists()


def test_a_trace_that_the_clock_contradicts_is_taken_again_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[ProfileReply] = []
    real = FakeSession.profile
    wrong = [0.5, 0.0]  # by so much the clock is wrong at first

    def profiled(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        found = real(self, request)
        assert isinstance(found, ProfileReply)
        if request.block:
            slower = wrong[min(len(taken), len(wrong) - 1)]
            found = dataclasses.replace(found, plain_s=found.plain_s + slower)
            taken.append(found)
        return found

    monkeypatch.setattr(FakeSession, "profile", profiled)
    found = profile_workload(options(tmp_path), factory=machine().factory).profile
    assert found is not None
    assert (len(taken), found.breakdown.doubt, found.bound != "unknown") == (2, "", True)
    wrong[1] = 0.5
    taken.clear()
    found = profile_workload(options(tmp_path), factory=machine().factory).profile
    assert found is not None
    assert (len(taken), found.bound) == (3, "unknown")
    assert "something else ran" in found.breakdown.doubt


def test_the_device_is_under_load_for_as_long_before_either_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Profile] = []
    real = FakeSession.profile

    def profiled(self: FakeSession, request: Profile) -> ProfileReply | Failure:
        asked.append(request)
        return real(self, request)

    monkeypatch.setattr(FakeSession, "profile", profiled)
    for step_ms, block, warm_up in ((2.0, 100, 150), (90.0, 10, 3), (4000.0, 3, 1)):
        asked.clear()
        profile_workload(options(tmp_path), factory=machine(step_ms=step_ms).factory)
        assert asked[0].block == pytest.approx(block, rel=0.1)
        assert asked[0].warm_up == pytest.approx(warm_up, rel=0.1)


def test_where_nsight_systems_is_missing_its_command_and_the_reason_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = profile_workload(options(tmp_path, nsight=True))
    assert found.profile is None
    assert found.nsight[:2] == ("nsys", "profile")
    assert "--capture-range=cudaProfilerApi" in found.nsight
    assert "not on PATH" in found.notices[0]
    found = profile_workload(options(tmp_path, nsight=True, delay_s=10.0, duration_s=30.0))
    assert {"--delay=10", "--duration=30"} <= {*found.nsight}
    assert not any(word.startswith("--capture-range") for word in found.nsight)


def test_nsight_systems_report_is_looked_for_once_the_worker_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    made = options(tmp_path, nsight=True)
    with pytest.raises(TunerError, match="left no report"):
        profile_workload(made, factory=machine().factory)
    real = FakeSession.close

    def close(self: FakeSession) -> None:
        real(self)
        (made.folder / "nsys-123.nsys-rep").touch()

    monkeypatch.setattr(FakeSession, "close", close)
    found = profile_workload(made, factory=machine().factory)
    assert (found.profile, found.missing) == (None, False)
    assert found.reports == (str(tmp_path / "out" / "nsys-123.nsys-rep"),)
    assert found.reports[0] in render_profile(found)


def test_one_profiler_at_a_time(tmp_path: Path) -> None:
    own = options(tmp_path, nsight=True, env={"JAX_ENABLE_PGLE": "true"})
    with pytest.raises(UsageError, match="a process has one profiler"):
        profile_workload(own, factory=machine().factory)


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_a_trace_that_nobody_understands_costs_the_profile_alone(
    together: bool, tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def analysed(*_: object, **__: object) -> StepProfile:
        raise ValueError("an event without a name")

    monkeypatch.setattr("tuner.pipeline.tracing.analyse", analysed)
    monkeypatch.setattr("tuner.pipeline.context.Run.room_for", lambda *_: together)
    outcome = tune(machine())
    assert outcome.exit_code == 0
    assert {e.config for e in outcome.events if isinstance(e, PairTimed)} == {Config.of(dict([GOOD]))}
    failures = [e.failure for e in outcome.events if isinstance(e, Profiled)]
    assert {f.message for f in failures if f} == {"ValueError: an event without a name"}
    assert len(failures) == 4  # once more at the end, in processes that are alone


@pytest.mark.slow
def test_an_interruption_in_the_profile_loses_no_pair(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> ProfileReply:
        raise KeyboardInterrupt

    made = machine()
    with monkeypatch.context() as patch:
        patch.setattr(FakeSession, "profile", interrupted)
        with pytest.raises(Interrupted):
            tune(made)
    outcome = tune(made)
    pairs = [e.index for e in outcome.events if isinstance(e, PairTimed)]
    assert pairs == sorted(set(pairs))
    assert profiled(outcome).keys() == {True, False}  # at the end


@pytest.mark.slow
def test_what_a_profile_takes_is_no_cost_of_a_pair(
    tune: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned(slow_s: float) -> list[PairsPlanned]:
        made = machine(noise=NoiseModel(block_sd=0.02))

        def slow(self: FakeSession, request: Profile) -> ProfileReply | Failure:
            made.advance(slow_s)
            return real(self, request)

        real = FakeSession.profile
        with monkeypatch.context() as patch:
            patch.setattr(FakeSession, "profile", slow)
            events = tune(made, 900.0 + slow_s).events
        return [e for e in events if isinstance(e, PairsPlanned)]

    assert [p.turns for p in planned(0.0)] == [p.turns for p in planned(20.0)]
