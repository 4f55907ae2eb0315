"""`tune profile`: settings from a file or a run, the document, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command_line import Tune
from handoff_samples import FASTER, keep_run, seal

from tuner.errors import SessionEnded
from tuner.pipeline import profiling
from tuner.pipeline.profiling import ProfileOptions, profile_workload
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Loaded
from tuner.report.profile import Profiling
from tuner.session import FakeMachine, FakeSession


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[ProfileOptions]:
    """What the command asks for; a made-up machine answers."""
    (folder / "w.py").write_text("def build(width=8):\n    ...\n")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    options: list[ProfileOptions] = []

    def answer(made: ProfileOptions, *, begins: Callable[[], None]) -> Profiling:
        options.append(made)
        return profile_workload(made, factory=FakeMachine().factory, begins=begins)

    monkeypatch.setattr(profiling, "profile_workload", answer)
    return options


def test_a_profile_is_shown_and_its_traces_kept_in_the_store(tune: Tune, asked: list[ProfileOptions]) -> None:
    got = tune("profile", "w.py", "--platform", "cpu", "--steps", "4", "--knob", "width=16", "--", "--mine")
    assert got.code == 0
    assert got.err == "tune: profiling w.py in a fresh process\n"
    assert "matrix multiply" in got.out
    made = asked[0]
    assert (made.steps, made.knobs, made.argv) == (4, {"width": 16}, ("--mine",))
    assert made.folder.parent == Path(".tuner/profiles").absolute()


def test_over_several_processes_or_by_a_launcher(tune: Tune, asked: list[ProfileOptions]) -> None:
    assert tune("profile", "w.py", "--platform", "cpu", "--processes", "2").code == 0
    assert tune("profile", "w.py", "--platform", "cpu", "--launch", "srun -N 2").code == 0
    assert [(made.processes, made.launcher) for made in asked] == [(2, ()), (1, ("srun", "-N", "2"))]


def test_one_document(tune: Tune, asked: list[ProfileOptions]) -> None:
    got = tune("profile", "w.py", "--json", "--quiet", "--platform", "cpu", "--out", "here")
    assert (got.code, got.err) == (0, "")
    assert json.loads(got.out)["folder"] == str(Path("here").absolute())


def test_settings_of_an_env_file(tune: Tune, folder: Path, asked: list[ProfileOptions]) -> None:
    (folder / "best.env").write_text("# found\nXLA_FLAGS=--xla_a=true --xla_b=1\nA=1\n")
    assert tune("profile", "w.py", "--env-file", "best.env", "--platform", "cpu").code == 0
    assert asked[0].env == {"XLA_FLAGS": "--xla_a=true --xla_b=1", "A": "1"}


def test_a_runs_settings_are_for_the_workload_that_it_tuned(
    tune: Tune, folder: Path, asked: list[ProfileOptions]
) -> None:
    run = keep_run(Path(".tuner"), Path("w.py"), "w-ab12cd")
    bundle = seal(run, msgspec.structs.replace(FASTER, workload="w.py"))
    got = tune("profile", "w.py", "--run", "w-ab12cd", "--platform", "cpu")
    assert (got.code, got.err) == (0, "tune: profiling w.py in a fresh process\n")
    assert asked[0].env["XLA_FLAGS"] == FASTER.env["XLA_FLAGS"]
    (folder / "w.py").write_text("def build(width=16):\n    ...\n")
    got = tune("profile", "w.py", "--run", "w-ab12cd", "--platform", "cpu")
    assert (got.code, got.err.splitlines()[0]) == (0, "tune: w.py is not as w-ab12cd tuned it")
    (folder / "other.py").write_text("def build(width=8):\n    ...\n")
    got = tune("profile", "other.py", "--run", "w-ab12cd", "--platform", "cpu")
    assert (got.code, len(asked)) == (2, 2)
    assert "no such file" in tune("profile", "gone.py", "--run", "w-ab12cd").err
    assert f"it tuned w.py, not other.py\n  where: --run w-ab12cd\n  next: --env-file {bundle.env_file}" in got.err


def test_a_profiler_that_is_missing_is_told_with_its_command(
    tune: Tune, asked: list[ProfileOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    got = tune("profile", "w.py", "--nsys", "--delay", "5s")
    assert (got.code, got.err) == (1, "")
    assert "not on PATH" in got.out
    assert "nsys profile" in got.out
    assert "--delay=5" in got.out


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        (FailureClass.WORKLOAD, 2, "error: no step\n  where: w.py\n  next: fix the workload; the whole log is in "),
        (FailureClass.CRASH, 1, "error: the step can't be profiled: no step\n  where: load\n  next: see "),
    ],
)
def test_a_worker_that_ends_is_told_with_where_its_log_is(
    tune: Tune, asked: list[ProfileOptions], monkeypatch: pytest.MonkeyPatch, kind: FailureClass, code: int, said: str
) -> None:
    def fails(session: FakeSession) -> Loaded:
        raise SessionEnded(Failure(kind=kind, phase="load", message="no step"))

    monkeypatch.setattr(FakeSession, "start", fails)
    got = tune("profile", "w.py", "--platform", "cpu", "--quiet", "--out", "here")
    assert got.code == code
    assert said + str(Path("here").absolute()) in got.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("w.py", "--delay", "5s"), "are for --nsys"),
        (("w.py", "--env-file", "a.env", "--run", "x"), "say two things"),
        (("w.py", "--processes", "2", "--launch", "srun -N 2"), "say two things"),
        (("w.py", "--launch", "srun -N 2", "--nsys"), "--nsys is for processes on this machine"),
        (("w.py", "--env-file", "nowhere.env"), "can't be read"),
        (("w.py", "--run", "nowhere"), "nowhere"),
        (("missing.py",), "no such file"),
        (("w.py", "--knob", "widht=3"), "did you mean width"),
        (("w.py", "more"), "one argument too many"),
        (("w.py", "--steps", "0"), "at least 1"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(
    tune: Tune, asked: list[ProfileOptions], arguments: tuple[str, ...], said: str
) -> None:
    got = tune("profile", *arguments)
    assert got.code == 2
    assert said in got.err
    assert "profiling" not in got.err
    assert got.out == ""
