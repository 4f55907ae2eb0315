"""`tune pgle`: what is shown, and the way from there to Nsight Systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Tune

from tuner.errors import SessionEnded
from tuner.pipeline import guide, profiling
from tuner.pipeline.guide import GuideOptions, guide_workload
from tuner.pipeline.profiling import ProfileOptions, profile_workload
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Loaded
from tuner.report.guide import Guide
from tuner.report.profile import Profiling
from tuner.session import FakeMachine, FakeSession


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[GuideOptions]:
    """What the command asks for; two made-up GPUs answer."""
    (folder / "w.py").write_text("def build(width=8):\n    ...\n")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    options: list[GuideOptions] = []
    machine = FakeMachine(platform="gpu", device_count=2, collectives={"all-gather": 4})

    def answer(made: GuideOptions, *, begins: Callable[[], None]) -> Guide:
        options.append(made)
        return guide_workload(made, factory=machine.factory, begins=begins)

    monkeypatch.setattr(guide, "guide_workload", answer)
    return options


def test_a_profile_and_then_nsight_systems_up_to_where_it_is_missing(
    tune: Tune, folder: Path, asked: list[GuideOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    got = tune("pgle", "w.py", "--platform", "gpu", "--runs", "2", "--percentile", "50", "--knob", "width=16")
    assert (got.code, got.err) == (0, "tune: taking a profile of w.py in a fresh process\n")
    assert (asked[0].recipe.runs, asked[0].recipe.percentile, asked[0].knobs) == (2, 50, {"width": 16})
    assert asked[0].folder.parent == Path(".tuner/pgle").absolute()
    line = next(line for line in got.out.splitlines() if "--nsys" in line)
    profiled: list[ProfileOptions] = []

    def answer(made: ProfileOptions, *, begins: Callable[[], None]) -> Profiling:
        profiled.append(made)
        return profile_workload(made, begins=begins)

    monkeypatch.setattr(profiling, "profile_workload", answer)
    monkeypatch.setattr("shutil.which", lambda name: None)
    program, *words = line.split()
    assert program == "tune"
    then = tune(*words)
    assert (then.code, then.err) == (1, "")
    assert "not on PATH" in then.out
    assert "nsys profile" in then.out
    assert profiled[0].env["JAX_COMPILATION_CACHE_EXPECT_PGLE"] == "true"
    assert profiled[0].env["JAX_ENABLE_COMPILATION_CACHE"] == "true"
    assert Path(str(profiled[0].env["JAX_COMPILATION_CACHE_DIR"])).is_dir()


def test_one_document_and_exit_1_where_it_is_of_no_use(
    tune: Tune, asked: list[GuideOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    got = tune("pgle", "w.py", "--json", "--quiet", "--platform", "gpu")
    assert (got.code, got.err) == (0, "")
    assert json.loads(got.out)["active"] is True
    monkeypatch.setattr("tuner.session.fake.fake_profile", lambda *_, **__: guide_empty())
    got = tune("pgle", "w.py", "--quiet", "--platform", "gpu")
    assert got.code == 1
    assert got.out.startswith("no profile: the profile is empty")


def guide_empty() -> object:
    from tuner.session.fake_profile import fake_profile

    return fake_profile("empty", runs=1, step_s=1.0)


def test_a_workload_that_fails_is_told_with_where_its_log_is(
    tune: Tune, asked: list[GuideOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(session: FakeSession) -> Loaded:
        raise SessionEnded(Failure(kind=FailureClass.WORKLOAD, phase="load", message="no step"))

    monkeypatch.setattr(FakeSession, "start", fails)
    got = tune("pgle", "w.py", "--platform", "gpu", "--quiet", "--out", "here")
    assert got.code == 2
    whole = f"the whole log is in {Path('here').absolute()}"
    assert got.err == f"tune: error: no step\n  where: w.py\n  next: fix the workload; {whole}\n"


def test_settings_of_an_env_file(tune: Tune, folder: Path, asked: list[GuideOptions]) -> None:
    (folder / "best.env").write_text("XLA_FLAGS=--xla_a=true\n")
    assert tune("pgle", "w.py", "--env-file", "best.env", "--platform", "gpu").code == 0
    assert asked[0].env == {"XLA_FLAGS": "--xla_a=true"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("w.py", "--env-file", "a.env", "--run", "x"), "say two things"),
        (("w.py", "--run", "nowhere"), "nowhere"),
        (("w.py", "--runs", "0"), "at least 1"),
        (("w.py", "--percentile", "101"), "101"),
        (("missing.py",), "no such file"),
        (("w.py", "--knob", "widht=3"), "did you mean width"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    tune: Tune, asked: list[GuideOptions], arguments: tuple[str, ...], said: str
) -> None:
    got = tune("pgle", *arguments)
    assert got.code == 2
    assert said in got.err
