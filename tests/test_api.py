"""The Python front: the command's options, the same result, and a run read back as frames, study and report."""

from __future__ import annotations

import inspect
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_knobs import knob, space

import tuner
from tuner.cli.options import RUN_SETTINGS
from tuner.errors import StoreError, UsageError
from tuner.measure.types import Verdict
from tuner.pipeline import run as pipeline
from tuner.pipeline.options import RunOptions
from tuner.session import FakeMachine
from tuner.store.log import read
from tuner.store.study import StudyMirror

ASSET = Path(__file__).parent / "store" / "assets" / "events-v1.jsonl"
RECORDED = Path(__file__).parent / "benchmarks" / "results" / "cpu" / "nbody-jax0.10.2.events.jsonl.gz"
SPACE = space(knob("xla_good"))


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"jax", "optuna", "pandas", "scipy", "numpy", "sqlalchemy", "jinja2", "click"}
    code = f"import sys, tuner; print(sorted({heavy!r} & set(sys.modules)), sorted(tuner.__all__))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == f"[] {sorted(tuner.__all__)}"


def test_every_public_name_is_there() -> None:
    assert all(getattr(tuner, name) for name in tuner.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tuner.no_such_name


def test_its_options_are_the_commands() -> None:
    ours = set(inspect.signature(tuner.tune).parameters) - {"workload", "argv", "fresh", "listener"}
    assert ours == {name.replace("-", "_") for name in RUN_SETTINGS} - {"require_gain"}  # ask for .verdict instead


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunOptions]:
    """What the pipeline was asked for; it then refuses."""
    calls: list[RunOptions] = []

    def refuse(options: RunOptions, **_: object) -> None:
        calls.append(options)
        raise UsageError("enough")

    monkeypatch.setattr(pipeline, "tune", refuse)
    return calls


def test_options_may_be_written_as_for_the_command_or_as_numbers(asked: list[RunOptions]) -> None:
    for options in (
        {"budget": "2m", "min_gain": "1%", "max_memory": "90%", "allow": "numerics", "trials": 7, "knob": {"a": ""}},
        {"budget": 120, "min_gain": 0.01, "max_memory": 0.9, "allow": ["numerics"], "trials": 7, "knob": {"a": ""}},
    ):
        with pytest.raises(UsageError, match="enough"):
            tuner.tune("w.py", **options)  # type: ignore[arg-type]
    one, other = asked
    assert (one.budget_s, one.min_gain, one.max_memory, one.trials) == (120.0, 0.01, pytest.approx(0.9), 7)
    assert (one.allow, one.hold, one.store) == (frozenset({"numerics"}), {"a": ""}, ".tuner")
    assert other.min_gain == one.min_gain
    assert other.max_memory == one.max_memory
    assert other.budget_s == one.budget_s


def test_the_command_that_repeats_it_means_the_same(asked: list[RunOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.cli.main import main

    monkeypatch.delenv("TUNER_STORE", raising=False)
    options = {
        "budget": 90,
        "knob": {"xla_a": "b c"},
        "max_memory": 0.5,
        "first": ["gemm", "launch"],
        "space": ["cpu", "x.toml"],
        "seed": 3,
    }
    with pytest.raises(UsageError, match="enough"):
        tuner.tune("some where/w.py", argv=["--size", "3"], **options)  # type: ignore[arg-type]
    command = asked[0].command
    assert shlex.join(command).startswith("tune 'some where/w.py' --space cpu --space x.toml --budget 90")
    assert main(command[1:]) == 2  # it ends where ours did
    ours, theirs = asked
    for name in (
        "workload",
        "argv",
        "spaces",
        "budget_s",
        "hold",
        "seed",
        "min_gain",
        "objective",
        "store",
        "max_memory",
        "first",
    ):
        assert getattr(ours, name) == getattr(theirs, name), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": "soon"}, "not a duration"),
        ({"budget": 0}, "leaves no time"),
        ({"min_gain": 5}, "could mean"),
        ({"objective": "fastest"}, "fastest"),
        ({"trials": 0}, "at least 1"),
        ({"platform": "tpu"}, "tpu"),
    ],
)
def test_what_the_command_refuses_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        tuner.tune("w.py", **options)  # type: ignore[arg-type]
    assert caught.value.where == next(iter(options))


@pytest.mark.slow
def test_tuning_gives_the_run_as_it_lies_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up machine: only the sessions are replaced."""
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "w.py").write_text("def build():\n    raise RuntimeError('never executed')\n")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    machine = FakeMachine(effects={("xla_good", "true"): -0.3}, seed=1)
    whole = pipeline.tune
    monkeypatch.setattr(
        pipeline, "tune", lambda options, listener: whole(options, factory=machine.factory, clock=machine.now)
    )
    store = tmp_path / "store"
    result = tuner.tune(tmp_path / "w.py", space=str(tmp_path / "space.toml"), platform="cpu", store=store, budget=200)
    assert result.path.parent == store / "runs"
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"xla_good": "true"})
    again = tuner.load_run(result.id, store=store)
    assert repr(again) == repr(result)
    assert {"events", "table", "report", "summary"} <= set(result.files)
    assert Path(result.files["report"]).read_text().startswith("<!DOCTYPE html>")
    frame = result.trials_dataframe()
    study = result.study()
    assert len(study.trials) == len(frame) > 0


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A store with one run in it, its Optuna study among the rest."""
    folder = tmp_path / "store" / "runs" / "nbody-3f9a1c"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(ASSET.read_bytes())
    mirror = StudyMirror(f"sqlite:///{tmp_path}/store/tuner.db")
    assert mirror.record(read(folder / "events.jsonl")) == ""
    mirror.close()
    return folder


@pytest.mark.slow
def test_a_run_is_read_back_as_frames(stored: Path) -> None:
    result = tuner.load_run(stored)
    trials, samples = result.trials_dataframe(), result.samples_dataframe()
    assert len(trials) == len(result.view.trials) > 0
    assert {"number", "speedup", "low", "high", "failure"} <= set(trials.columns)
    assert {"session", "handle", "ms_per_step"} <= set(samples.columns)
    assert result.id == result.document()["run"]
    assert result.settings == result.document()["settings"]


def test_the_recorded_run_says_what_was_found() -> None:
    result = tuner.load_run(RECORDED)
    assert result.verdict is Verdict.FASTER
    assert result.speedup is not None
    assert result.speedup.speedup == pytest.approx(5.53, abs=0.01)
    assert result.settings == {"xla_cpu_experimental_ynn_fusion_type": ""}
    assert result.effects.keys() == result.settings.keys()
    assert "XLA_FLAGS" in result.environment
    assert "faster: 5.53x" in repr(result)
    assert result.report_html().startswith("<!DOCTYPE html>")
    assert result.report_markdown().startswith("# tune: nbody.py")
    shown = result._repr_html_()
    assert "faster: 5.53x" in shown
    assert "<svg" not in shown
    with pytest.raises(UsageError, match="lies in no store"):
        result.study()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Some regimes for parameter")  # Optuna's: few trials
def test_optunas_own_tools_work_on_the_study(stored: Path) -> None:
    import optuna  # here: the file's quick tests need none

    study = tuner.load_run(stored).study()
    assert study.best_value == min(t.value for t in study.trials if t.value is not None)
    complete = [t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE]
    assert len(complete) > 1
    importance = optuna.importance.get_param_importances(
        study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    assert set(importance) <= {name for t in study.trials for name in t.params}
    assert len(study.trials_dataframe()) == len(study.trials)


@pytest.mark.slow
def test_without_a_database_there_is_no_study_and_none_is_made(stored: Path) -> None:
    database = stored.parents[1] / "tuner.db"
    database.unlink()
    with pytest.raises(StoreError, match="no study of run") as caught:
        tuner.load_run(stored).study()
    assert "tune store rebuild" in (caught.value.next or "")
    assert not database.exists()


@pytest.mark.slow
def test_the_study_is_looked_for_in_the_database_that_was_named(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stored)
    elsewhere = stored.parents[1] / "tuner.db"
    elsewhere = elsewhere.rename(elsewhere.with_name("shared.db"))
    assert tuner.load_run(stored, store=f"sqlite:///{elsewhere}").study().trials


@pytest.mark.slow
def test_no_such_run_is_said_with_those_there_are(stored: Path) -> None:
    with pytest.raises(UsageError, match="unknown run"):
        tuner.load_run("nobody", store=stored.parents[1])
