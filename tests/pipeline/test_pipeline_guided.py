"""PGLE as a knob: taken under a config's own flags, judged, used, and confirmed in the form that is emitted."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.handoff import load_bundle
from tuner.handoff.verify import verify
from tuner.knobs import Config
from tuner.measure import Verdict
from tuner.pipeline.run import Outcome
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import PgleReply, Variant
from tuner.report.trial import render_trial, trial_document
from tuner.session import FakeMachine
from tuner.session.fake import FakeSession
from tuner.store.events import (
    CandidateCompiled,
    Notice,
    NumericsCompared,
    PairTimed,
    ProfileJudged,
    RoundTimed,
    SessionStarted,
    StageFinished,
    TrialFinished,
)
from tuner.store.records import ConfirmRecord, ProbeRecord, SealRecord

pytestmark = pytest.mark.slow

Tune = Callable[..., Outcome]

SPACE = """
version = 1

[[knob]]
name = "xla_good"
carrier = "xla_flag"
type = "bool"
values = ["unset", "true"]
lane = "option"
acts_on = "hlo"
why = "made up"
source = "test"

[[knob]]
name = "layout"
carrier = "layout"
type = "enum"
values = ["unset", "process-per-device"]
lane = "environment"
acts_on = "runtime"
why = "made up"
source = "test"

[[knob]]
name = "pgle"
carrier = "pgle"
type = "enum"
values = ["unset", "3x90"]
lane = "option"
acts_on = "hlo"
when = { platform = "gpu", min_devices = 2, collectives = [] }
why = "made up"
source = "test"
"""
ON = ("pgle", "on")
FASTER = -math.log(1.1)


@pytest.fixture
def guided(tmp_path: Path, tune_on: Tune) -> Callable[..., Outcome]:
    """A run on two made-up GPUs, whose step is 10 % faster with a profile."""
    space = tmp_path / "guided.toml"
    space.write_text(SPACE)

    def run(*, machine: dict[str, Any] | None = None, **changes: object) -> Outcome:
        options = {"effects": {ON: FASTER}, "collectives": {"all-reduce": 2}, "device_count": 2, **(machine or {})}
        made = FakeMachine(platform="gpu", **options)
        return tune_on(made, spaces=(str(space),), platform="gpu", **changes)

    return run


def record(outcome: Outcome, kind: type[Any]) -> Any:
    return next(e.record for e in outcome.events if isinstance(e, StageFinished) and isinstance(e.record, kind))


def judged(outcome: Outcome) -> list[ProfileJudged]:
    return [e for e in outcome.events if isinstance(e, ProfileJudged)]


def trial(outcome: Outcome, **settings: str) -> TrialFinished:
    return next(e for e in outcome.events if isinstance(e, TrialFinished) and e.config.as_dict() == settings)


def left(outcome: Outcome) -> dict[str, str]:
    return {s.name: s.reason for s in record(outcome, ProbeRecord).left}


def notices(outcome: Outcome) -> str:
    return "\n".join(e.text for e in outcome.events if isinstance(e, Notice))


def started(outcome: Outcome, role: str) -> list[SessionStarted]:
    """With settings; the default's are left out."""
    return [e for e in outcome.events if isinstance(e, SessionStarted) and e.role == role and e.config.settings]


def test_what_goes_without_a_profile_is_checked_before_one_is_taken(guided: Callable[..., Outcome]) -> None:
    """What was compiled before a trace and first runs after it takes longer to run that once."""
    events = guided(budget_s=400.0).events
    screened = [e for e in events if isinstance(e, NumericsCompared | ProfileJudged)]
    first = next(i for i, e in enumerate(screened) if isinstance(e, ProfileJudged))
    good = Config.of({"xla_good": "true"})
    assert good in [e.config for e in screened[:first]]
    assert [e.config for e in screened[first : first + 2]] == [Config.of({"pgle": "3x90"})] * 2
    shared = [e for e in events if isinstance(e, RoundTimed) and e.stage == "screen" and len(e.blocks) > 2]
    assert shared  # and both in the same rounds all the same


def test_a_gain_is_found_confirmed_in_the_warmed_cache_and_sealed_with_its_profile(
    guided: Callable[..., Outcome],
) -> None:
    outcome = guided(budget_s=400.0)
    confirmed = record(outcome, ConfirmRecord)
    assert (confirmed.verdict, confirmed.chosen.as_dict()) == (Verdict.FASTER, {"pgle": "3x90"})
    first = judged(outcome)[0]
    assert (first.runs, first.percentile, first.cause, first.said, first.changed) == (3, 90, "", True, True)
    assert first.facts is not None
    assert (first.facts.covered, first.facts.operations, first.facts.collectives_covered) == (3, 3, 1)
    sessions = started(outcome, "confirm")
    assert sessions
    for session in sessions:
        assert session.env["JAX_COMPILATION_CACHE_EXPECT_PGLE"] == "true"
        assert session.env["JAX_ENABLE_COMPILATION_CACHE"] == "true"
        assert session.env["JAX_ENABLE_PGLE"] is None
    number = trial(outcome, pgle="3x90").number
    shown = " ".join(render_trial(outcome.events, number).split())
    assert "times of 3 of 3 operations and 1 of 1 collective, from 3 runs that differ by 0 %" in shown
    assert "the compiler says that it uses it; another schedule than without" in shown
    assert trial_document(outcome.events, number)["profile"]["facts"]["covered"] == 3
    caches = {session.env["JAX_COMPILATION_CACHE_DIR"] for session in sessions}
    assert len(caches) == confirmed.pairs  # each pair's process loads another compile
    bundle = load_bundle(Path(record(outcome, SealRecord).bundle))
    assert bundle.manifest.pgle == "cache"
    assert bundle.manifest.env["JAX_COMPILATION_CACHE_EXPECT_PGLE"] == "true"
    assert bundle.profile is not None
    assert b"fusion.1" in bundle.profile.read_bytes()
    assert b"0f0f::" not in bundle.profile.read_bytes()  # by plain names, which hold in any process
    assert bundle.best.options is None
    assert "PGLE: what was compiled with the profile is in the sealed cache" in bundle.shell_file.read_text()
    seal = record(outcome, SealRecord)
    assert seal.cache_hits == seal.cache_requests > 0
    assert seal.sealed is not None
    assert seal.sealed.low > 0


def test_as_a_file_the_profile_lies_where_production_will_read_it(
    guided: Callable[..., Outcome], tmp_path: Path
) -> None:
    install = tmp_path / "opt" / "tuned here"
    outcome = guided(pgle="file", install_path=str(install))
    assert record(outcome, ConfirmRecord).chosen.as_dict() == {"pgle": "3x90"}
    (file,) = install.iterdir()
    for session in started(outcome, "confirm"):
        assert str(file) in str(session.env["XLA_FLAGS"])
        assert "JAX_COMPILATION_CACHE_EXPECT_PGLE" in session.env
        assert session.env["JAX_COMPILATION_CACHE_EXPECT_PGLE"] is None
    bundle = load_bundle(Path(record(outcome, SealRecord).bundle))
    assert bundle.profile is not None
    assert bundle.profile.read_bytes() == file.read_bytes()
    assert f"the profile must lie at {file}" in bundle.shell_file.read_text()
    assert "Inherited where it was measured" not in bundle.shell_file.read_text()
    # And whether it still does is part of verifying.
    machine = FakeMachine(platform="gpu", device_count=2, collectives={"all-reduce": 2}, effects={ON: FASTER})

    def found() -> dict[str, str]:
        workload = tmp_path / "workload.py"
        checks = verify(bundle, workload, python="", environ={}, factory=machine.factory, clock=machine.now)
        return {check.check: f"{check.level}: {check.what}" for check in checks}

    holds = found()
    assert holds["profile"] == f"ok: lies at {file}"
    assert holds["cache"].startswith("ok")
    assert holds["gain"].startswith("ok")
    file.write_bytes(b"another")
    assert found()["profile"] == f"fail: {file} is another profile than the bundle's"
    file.unlink()
    assert "can't be read (No such file or directory): the compiler goes on without" in found()["profile"]


def test_auto_settles_before_anything_is_timed(guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[tuple[str, int]] = []
    real = FakeSession.round

    def noting(self: FakeSession, arms: Any, **more: Any) -> Any:
        if self.launch.role == "confirm" and self.launch.config.settings:
            blocks.append((self.launch.name, arms[0].steps))
        return real(self, arms, **more)

    monkeypatch.setattr(FakeSession, "round", noting)
    outcome = guided(pgle="auto")
    assert record(outcome, ConfirmRecord).chosen.as_dict() == {"pgle": "3x90"}
    env = started(outcome, "confirm")[0].env
    assert (env["JAX_ENABLE_PGLE"], env["JAX_PGLE_PROFILING_RUNS"], env["JAX_PGLE_AGGREGATION_PERCENTILE"]) == (
        "true",
        "3",
        "90",
    )
    firsts = dict(reversed(blocks))  # of each process its first block
    assert set(firsts.values()) == {5}
    names = {session.session.split("-", 1)[1] for session in started(outcome, "confirm")}
    assert set(firsts) == names
    counted = [e for e in outcome.events if isinstance(e, RoundTimed) and e.stage == "confirm"]
    assert not any(block.steps == 5 for event in counted for block in event.blocks)
    bundle = load_bundle(Path(record(outcome, SealRecord).bundle))
    assert bundle.profile is None
    assert "JAX_ENABLE_PGLE" in bundle.shell_file.read_text()


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("empty", "the profile is empty"), ("foreign", "is of another module: none of its 3 entries")],
)
def test_a_profile_that_is_not_to_be_believed_is_a_failure_with_its_cause(
    guided: Callable[..., Outcome], kind: str, cause: str
) -> None:
    outcome = guided(machine={"pgle": kind})
    failure = trial(outcome, pgle="3x90").failure
    assert failure is not None
    assert failure.kind is FailureClass.PGLE_INACTIVE
    assert cause in failure.message
    assert judged(outcome)[0].cause == failure.message
    shown = render_trial(outcome.events, trial(outcome, pgle="3x90").number)
    assert f"not used: {failure.message}" in " ".join(shown.split())
    assert record(outcome, ConfirmRecord).chosen.settings == ()


def test_a_profile_that_the_compiler_neither_mentions_nor_uses_is_inactive(guided: Callable[..., Outcome]) -> None:
    outcome = guided(machine={"pgle": "silent", "inert": [ON]})
    failure = trial(outcome, pgle="3x90").failure
    assert failure is not None
    assert failure.kind is FailureClass.PGLE_INACTIVE
    assert "makes the same without it" in failure.message


def test_a_compiler_that_says_nothing_is_believed_by_what_it_makes(guided: Callable[..., Outcome]) -> None:
    outcome = guided(machine={"pgle": "silent"}, pgle="file")
    assert record(outcome, ConfirmRecord).chosen.as_dict() == {"pgle": "3x90"}
    assert not judged(outcome)[0].said


def test_a_profile_that_changes_nothing_is_inert(guided: Callable[..., Outcome]) -> None:
    outcome = guided(machine={"effects": {}, "inert": [ON]})
    assert judged(outcome)[0].said
    assert not judged(outcome)[0].changed
    assert trial(outcome, pgle="3x90").failure is None
    assert record(outcome, ConfirmRecord).chosen.settings == ()


def test_a_process_that_runs_without_the_profile_is_out(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file form, where the fresh process's compiler says nothing of a profile."""
    monkeypatch.setattr("tuner.pipeline.delivering.log_of", lambda session: "")
    outcome = guided(pgle="file")
    finalist = record(outcome, ConfirmRecord).finalists[0]
    assert finalist.failure is not None
    assert finalist.failure.kind is FailureClass.PGLE_INACTIVE
    assert "does not say that it uses a profile" in finalist.failure.message
    assert not [e for e in outcome.events if isinstance(e, PairTimed) and e.config == finalist.config]


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"collectives": {}}, "the program has no collectives"),
        ({"device_count": 1}, "needs 2 devices"),
        ({"weights": {"a": 1.0, "b": 2.0}}, "this workload has several steps"),
    ],
)
def test_where_a_profile_can_not_help_the_knob_is_not_offered(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, machine: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(FakeSession, "pgle", lambda *_, **__: pytest.fail("profiled all the same"))
    assert reason in left(guided(machine=machine))["pgle"]


def test_a_launcher_with_several_ranks_and_an_inherited_profile_leave_the_knob_out(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "rank 0's executable alone" in left(guided(launch="srun -N 2"))["pgle"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_pgle_profile_file_or_directory_path=/opt/profile.pb")
    assert "hand a profile to every compile already" in left(guided())["pgle"]


def test_over_several_processes_a_warmed_cache_delivers_nothing(guided: Callable[..., Outcome]) -> None:
    both = frozenset({("layout", "process-per-device"), ON})
    effects = {("layout", "process-per-device"): -0.2, both: FASTER}
    outcome = guided(machine={"effects": effects})
    failure = trial(outcome, layout="process-per-device", pgle="3x90").failure
    assert failure is not None
    assert failure.kind is FailureClass.PGLE_INACTIVE
    assert "wait for each other for ever" in failure.message
    together = guided(machine={"effects": effects}, pgle="file")
    assert record(together, ConfirmRecord).chosen.as_dict() == {"layout": "process-per-device", "pgle": "3x90"}


def test_each_profile_is_taken_under_its_own_flags_and_never_timed(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Variant] = []
    real = FakeSession.pgle

    def noting(self: FakeSession, variant: Variant, **more: Any) -> PgleReply | Any:
        taken.append(variant)
        return real(self, variant, **more)

    monkeypatch.setattr(FakeSession, "pgle", noting)
    outcome = guided(machine={"effects": {ON: FASTER, ("xla_good", "true"): -0.1}})
    assert record(outcome, ConfirmRecord).chosen.as_dict() == {"pgle": "3x90", "xla_good": "true"}
    assert {tuple(v.compiler_options) for v in taken} == {(), ("xla_good",)}
    assert not any(v.profile for v in taken)
    sent = [e for e in outcome.events if isinstance(e, CandidateCompiled) and "pgle" in e.config.names]
    assert {e.config for e in sent} >= {e.config for e in judged(outcome)}


def test_no_session_is_compared_with_a_home_that_was_traced(guided: Callable[..., Outcome]) -> None:
    outcome = guided(pgle="file", budget_s=400.0)
    homes = [e.session for e in outcome.events if isinstance(e, SessionStarted) and e.role == "home"]
    traced: set[str] = set()
    compared: set[str] = set()
    for event in outcome.events:
        if isinstance(event, ProfileJudged):
            traced.add(event.session)
        elif isinstance(event, RoundTimed) and event.stage == "offset":
            assert event.session not in traced
            compared.add(event.session)
    assert len(homes) > 1
    assert compared & {*homes}


def test_inherited_switches_are_off_in_every_session_and_told(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_ENABLE_PGLE", "true")
    outcome = guided(machine={"effects": {("xla_good", "true"): -0.1}})
    assert "JAX_ENABLE_PGLE is inherited, and off in every session" in notices(outcome)
    every = [e for e in outcome.events if isinstance(e, SessionStarted)]
    assert all(e.env["JAX_ENABLE_PGLE"] is None for e in every)
    bundle = load_bundle(Path(record(outcome, SealRecord).bundle))
    assert "JAX_ENABLE_PGLE" in bundle.manifest.unset


def test_the_compiler_is_asked_to_talk_only_where_profiles_are_tuned(
    guided: Callable[..., Outcome], tune_on: Tune
) -> None:
    home = next(e for e in guided().events if isinstance(e, SessionStarted))
    assert home.env["TF_CPP_MIN_LOG_LEVEL"] == "0"
    other = next(e for e in tune_on(FakeMachine(), budget_s=60.0).events if isinstance(e, SessionStarted))
    assert "TF_CPP_MIN_LOG_LEVEL" not in other.env


def test_without_its_cache_nothing_can_be_delivered(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FakeSession.compile

    def failing(self: FakeSession, variants: Any, **more: Any) -> Any:
        if self.launch.name == "seal":
            return real(self, [Variant(id="control", compiler_options={"xla_no_such": "1"})], **more)
        return real(self, variants, **more)

    monkeypatch.setattr(FakeSession, "compile", failing)
    outcome = guided()
    assert record(outcome, ConfirmRecord).verdict is Verdict.FASTER
    assert "can't be delivered without its cache" in notices(outcome)
    bundle = load_bundle(Path(record(outcome, SealRecord).bundle))
    assert bundle.manifest.settings == {}
    assert "JAX_COMPILATION_CACHE_EXPECT_PGLE" not in bundle.manifest.env


def test_other_functions_are_checked_under_what_the_profile_made(guided: Callable[..., Outcome]) -> None:
    outcome = guided(machine={"others": {"loss": FakeMachine(step_ms=2.0)}}, budget_s=400.0)
    (other,) = record(outcome, ConfirmRecord).finalists[0].others
    assert (other.name, other.passed) == ("loss", True)
    envs = [e.env for e in started(outcome, "confirm") if "others" in e.session]
    assert [env["JAX_COMPILATION_CACHE_EXPECT_PGLE"] for env in envs] == ["true"]
    assert str(envs[0]["JAX_COMPILATION_CACHE_DIR"]).endswith("guided-others")


@pytest.mark.parametrize("together", [True, False])
def test_where_nothing_can_be_made_ready_other_functions_stay_unchecked(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    gone = Failure(kind=FailureClass.PGLE_INACTIVE, phase="confirm", message="gone")
    from tuner.pipeline import others

    real = others.prepare
    monkeypatch.setattr(
        others, "prepare", lambda run, config, cache: gone if config.settings else real(run, config, cache)
    )
    monkeypatch.setattr("tuner.pipeline.context.Run.room_for", lambda self, sessions: together)
    outcome = guided(machine={"others": {"loss": FakeMachine(step_ms=2.0)}}, budget_s=400.0)
    (other,) = record(outcome, ConfirmRecord).finalists[0].others
    assert other.reason == "not checked: the process with the settings was gone"


def test_what_is_asked_wrongly_is_refused_at_once(guided: Callable[..., Outcome], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be held"):
        guided(hold={"pgle": "3x90"})
    with pytest.raises(UsageError, match="only a profile that is delivered as a file"):
        guided(install_path=str(tmp_path))
    with pytest.raises(UsageError, match="unknown delivery 'post'"):
        guided(pgle="post")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't be written"):
        guided(pgle="file", install_path=str(tmp_path / "file" / "inside"))


def test_a_profile_that_was_deleted_meanwhile_is_told(
    guided: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuner.pipeline import confirm

    real = confirm.prepare

    def without(run: Any, config: Any, cache: Path) -> Any:
        for file in run.folder.guides.glob("*.pb"):
            file.unlink()
        return real(run, config, cache)

    monkeypatch.setattr(confirm, "prepare", without)
    finalist = record(guided(), ConfirmRecord).finalists[0]
    assert finalist.failure is not None
    assert finalist.failure.message.startswith("the profile is gone: ")
