"""`tune run`: what is asked of the pipeline, what is printed, and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from command_line import Tune

from tuner.errors import DeviceBusy, Interrupted, WorkloadError
from tuner.pipeline.options import RunOptions
from tuner.report.listener import Listener, Status
from tuner.store.events import AnyEvent, RunFinished, RunStarted

Pipeline = Callable[[RunOptions], SimpleNamespace]


class Recorder:
    """Stands in for the pipeline: remembers what it was asked and answers as told."""

    def __init__(self) -> None:
        self.asked: list[RunOptions] = []
        self.error: BaseException | None = None
        self.exit_code = 0

    def tune(self, options: RunOptions, *, listener: Listener) -> SimpleNamespace:
        self.asked.append(options)
        started = RunStarted(
            run="r1",
            workload=str(options.workload),
            command=options.command,
            identity={},
            options={},
            inherited={},
            tuner="0",
        )
        events: list[AnyEvent] = [started, RunFinished(exit_code=self.exit_code, seq=1)]
        listener.on_event(started)
        listener.on_status(Status(stage="probe", text="asking"))
        if self.error is not None:
            raise self.error
        return SimpleNamespace(
            run="r1", folder=Path("r1"), events=events, exit_code=self.exit_code, files={"env": "r1/best.env"}
        )

    @property
    def options(self) -> RunOptions:
        assert len(self.asked) == 1
        return self.asked[0]


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Recorder:
    recorder = Recorder()
    module = ModuleType("tuner.pipeline.run")
    module.tune = recorder.tune  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tuner.pipeline.run", module)
    (folder / "f.py").write_text("def build(): ...\n")
    return recorder


def test_a_bare_file_takes_the_defaults(tune: Tune, pipeline: Recorder) -> None:
    assert tune("f.py").code == 0
    assert pipeline.options == RunOptions(workload=Path("f.py"), python=sys.executable, command=("tune", "f.py"))


def test_every_option_reaches_the_pipeline(tune: Tune, pipeline: Recorder, folder: Path) -> None:
    argv = [
        "f.py --space cpu --space mine.toml --budget 90s --trials 7 --min-gain 1% --knob a=1 --knob --xla_b= ",
        "--platform cpu --allow numerics --require-gain --override NCCL_PROTO --store runs --seed 3 --fresh --quiet",
        " --objective p99 --max-memory 90%",
    ]
    assert tune(*" ".join(argv).split(), "--python", sys.executable).code == 0
    options = pipeline.options
    assert options.spaces == ("cpu", "mine.toml")
    assert (options.budget_s, options.trials, options.min_gain, options.seed) == (90.0, 7, 0.01, 3)
    assert options.hold == {"a": "1", "xla_b": ""}
    assert (options.platform, options.allow, options.override) == ("cpu", frozenset({"numerics"}), ("NCCL_PROTO",))
    assert (options.objective, options.max_memory) == ("p99", 0.9)
    assert (options.require_gain, options.fresh, options.store, options.python) == (True, True, "runs", sys.executable)


@pytest.mark.parametrize(
    "argv",
    [
        ["--budget", "5m", "f.py"],
        ["run", "f.py", "--budget", "5m"],
        ["run", "--budget=5m", "f.py"],
        ["--debug", "f.py"],
    ],
)
def test_run_may_be_left_out_and_options_come_anywhere(tune: Tune, pipeline: Recorder, argv: list[str]) -> None:
    assert tune(*argv).code == 0
    assert pipeline.options.workload == Path("f.py")
    assert pipeline.options.command == ("tune", *argv)


def test_a_file_named_like_a_command_can_be_run(tune: Tune, pipeline: Recorder, folder: Path) -> None:
    (folder / "knobs").write_text("")
    assert tune("run", "knobs").code == 0
    assert pipeline.options.workload == Path("knobs")


def test_what_stands_after_two_dashes_is_the_workloads(tune: Tune, pipeline: Recorder) -> None:
    assert tune("f.py", "--seed", "1", "--", "--budget", "x", "--", "--fresh").code == 0
    assert pipeline.options.argv == ("--budget", "x", "--", "--fresh")
    assert pipeline.options.budget_s == 600
    assert pipeline.options.fresh is False


def test_the_command_that_repeats_the_run_does_not_start_it_afresh(tune: Tune, pipeline: Recorder) -> None:
    tune("f.py", "--fresh", "--seed", "1", "--", "--fresh")
    assert pipeline.options.command == ("tune", "f.py", "--seed", "1", "--", "--fresh")


def test_an_argument_too_many_is_pointed_behind_the_dashes(tune: Tune, pipeline: Recorder) -> None:
    got = tune("f.py", "8", "a b")
    assert (got.code, got.out, pipeline.asked) == (2, "", [])
    assert "'8' is one argument too many" in got.err
    assert "tune run f.py -- 8 'a b'" in got.err


def test_settings_reach_the_pipeline(
    tune: Tune, pipeline: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tuner.toml").write_text('platform = "cpu"\nbudget = "1m"\n')
    monkeypatch.setenv("TUNER_BUDGET", "2m")
    tune("f.py")
    assert (pipeline.options.platform, pipeline.options.budget_s) == ("cpu", 120.0)


def test_the_result_is_on_stdout_and_progress_on_stderr(tune: Tune, pipeline: Recorder) -> None:
    got = tune("f.py")
    assert "r1/best.env" in got.out
    assert "\x1b" not in got.out + got.err
    assert "run r1: f.py" in got.err
    assert "run r1: f.py" not in got.out


def test_quiet_shows_the_result_alone(tune: Tune, pipeline: Recorder) -> None:
    got = tune("f.py", "--quiet")
    assert got.err == ""
    assert "r1/best.env" in got.out


def test_json_is_one_document(tune: Tune, pipeline: Recorder) -> None:
    document = json.loads(tune("f.py", "--json").out)
    assert document["schema"].startswith("tuner/run/")
    assert document["run"] == "r1"
    assert document["files"]["env"] == "r1/best.env"


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_runs_exit_code_is_the_commands(tune: Tune, pipeline: Recorder, code: int) -> None:
    pipeline.exit_code = code
    assert tune("f.py", "--require-gain").code == code


def test_an_error_of_the_run_keeps_stdout_clean(tune: Tune, pipeline: Recorder) -> None:
    pipeline.error = WorkloadError("build() raised ValueError: no", where="f.py:3", next="fix build()")
    got = tune("f.py", "--json", "--quiet")
    assert (got.code, got.out) == (2, "")
    assert got.err == "tune: error: build() raised ValueError: no\n  where: f.py:3\n  next: fix build()\n"


def test_a_busy_device_ends_with_75(tune: Tune, pipeline: Recorder) -> None:
    pipeline.error = DeviceBusy("process 12 holds gpu 0", where="gpu 0", next="wait for it")
    assert tune("f.py").code == 75


def test_an_interruption_shows_the_command_that_goes_on(tune: Tune, pipeline: Recorder) -> None:
    pipeline.error = Interrupted("interrupted in search", next="tune f.py")
    got = tune("f.py", "--quiet")
    assert (got.code, got.err) == (130, "tune: interrupted in search\n  next: tune f.py\n")


def test_a_ctrl_c_that_the_run_let_through_does_so_too(tune: Tune, pipeline: Recorder) -> None:
    pipeline.error = KeyboardInterrupt()
    got = tune("f.py", "--quiet", "--fresh", "--", "a b")
    assert (got.code, got.out) == (130, "")
    assert got.err == "tune: interrupted\n  next: tune f.py --quiet -- 'a b'\n"


@pytest.mark.parametrize(
    ("argv", "what", "where"),
    [
        (["--budget", "0"], "leaves no time", "--budget"),
        (["--budget", "10x"], "is not a duration", "--budget"),
        (["--min-gain", "5"], "write the % sign", "--min-gain"),
        (["--trials", "0"], "is not a whole number", "--trials"),
        (["--knob", "batch"], "write batch=VALUE", "--knob"),
        (["--knob", "a=1", "--knob", "a=2"], "is given twice", "--knob"),
        (["--platform", "tpu"], "'cpu', 'gpu'", "--platform"),
        (["--allow", "everything"], "numerics", "--allow"),
        (["--override", "A=1"], "write A", "--override"),
        (["--python", "python0.1"], "is not there", "--python"),
        (["--store", "f.py"], "is a file", "--store"),
        (["--seed", "x"], "is not a valid integer", "--seed"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    tune: Tune, pipeline: Recorder, argv: list[str], what: str, where: str
) -> None:
    got = tune("f.py", *argv)
    assert (got.code, got.out, pipeline.asked) == (2, "", [])
    assert what in got.err.splitlines()[0]
    assert got.err.splitlines()[1] == f"  where: {where}"
    assert got.err.splitlines()[2].startswith("  next: ")


def test_a_database_is_not_looked_for_on_the_disk(tune: Tune, pipeline: Recorder) -> None:
    assert tune("f.py", "--store", "sqlite:///runs.db").code == 0
    assert pipeline.options.store == "sqlite:///runs.db"


def test_no_color_is_honoured_on_a_terminal(tune: Tune, pipeline: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "\x1b[" in tune("f.py", "--quiet").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in tune("f.py", "--quiet").out
