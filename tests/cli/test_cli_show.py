"""`tune show`: one trial or the failures, of the newest run or the one named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command_line import Tune

from tuner.knobs.config import Config
from tuner.protocol.failure import Failure, FailureClass
from tuner.store.events import RunStarted, TrialFinished
from tuner.store.log import EventLog

TRITON = Config.of({"xla_gpu_enable_triton_gemm": "false"})


def keep_run(store: Path, name: str, *, age_s: float, failed: bool = True) -> None:
    """A run with two trials, the second of which failed if `failed`, last written `age_s` ago."""
    events = store / "runs" / name / "events.jsonl"
    events.parent.mkdir(parents=True)
    failure = Failure(kind=FailureClass.CRASH, phase="compile", message="SIGSEGV in the compiler", signal="SIGSEGV")
    with EventLog(events) as log:
        log.append(RunStarted(run=name, workload="f.py", command=(), identity={}, options={}, inherited={}, tuner="0"))
        log.append(TrialFinished(number=0, stage="screen", session="home", config=TRITON, value=-0.05, estimate=None))
        if failed:
            log.append(
                TrialFinished(
                    number=1,
                    stage="search",
                    session="home",
                    config=TRITON.set("a", "1"),
                    value=None,
                    estimate=None,
                    failure=failure,
                )
            )
    stamp = events.stat().st_mtime - age_s
    os.utime(events, (stamp, stamp))


@pytest.fixture
def store(folder: Path) -> Path:
    keep_run(folder / ".tuner", "f-aaaaaa", age_s=10)
    keep_run(folder / ".tuner", "f-000000", age_s=0)
    keep_run(folder / ".tuner", "g-bbbbbb", age_s=99, failed=False)
    return folder / ".tuner"


def test_a_trial_of_the_newest_run_is_shown(tune: Tune, store: Path) -> None:
    got = tune("show", "0")
    assert (got.code, got.err) == (0, "")
    assert "trial 0 of run f-000000" in got.out
    assert "xla_gpu_enable_triton_gemm=false" in got.out


def test_another_run_is_shown_by_its_name(tune: Tune, store: Path) -> None:
    assert "trial 1 of run f-aaaaaa" in tune("show", "1", "--run", "f-aaaaaa").out


def test_what_failed_is_listed_with_the_reason(tune: Tune, store: Path) -> None:
    got = tune("show", "--failed")
    assert got.code == 0
    assert "SIGSEGV in the compiler" in got.out
    assert not got.out.endswith("\n\n")
    assert "no candidate failed in run g-bbbbbb" in tune("show", "--failed", "--run", "g-bbbbbb").out


def test_how_candidates_communicated_is_shown(tune: Tune, store: Path) -> None:
    assert "no candidate of run f-000000 communicates" in tune("show", "--ran").out
    assert json.loads(tune("show", "--ran", "--json").out)["schema"] == "tuner/ran/1"
    got = tune("show", "0", "--ran")
    assert (got.code, "--failed or --ran" in got.err) == (2, True)


def test_json_is_one_document(tune: Tune, store: Path) -> None:
    trial = json.loads(tune("show", "0", "--json").out)
    assert (trial["schema"], trial["run"], trial["trial"]) == ("tuner/trial/1", "f-000000", 0)
    failed = json.loads(tune("show", "--failed", "--json").out)
    assert (failed["schema"], failed["counts"]) == ("tuner/failed/1", {"crash": 1})


def test_another_store_can_be_named(tune: Tune, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_run(folder / "elsewhere", "h-cccccc", age_s=0)
    assert "run h-cccccc" in tune("show", "0", "--store", "elsewhere").out
    monkeypatch.setenv("TUNER_STORE", "elsewhere")
    assert "run h-cccccc" in tune("show", "0").out


def test_with_a_database_the_runs_are_in_the_default_folder(tune: Tune, store: Path) -> None:
    assert "run f-000000" in tune("show", "0", "--store", "postgresql://nowhere/db").out


@pytest.mark.parametrize("argv", [["show"], ["show", "3", "--failed"]])
def test_a_number_or_failed_one_of_them(tune: Tune, store: Path, argv: list[str]) -> None:
    got = tune(*argv)
    assert (got.code, got.out) == (2, "")
    assert "give the number of a trial, --failed or --ran" in got.err


def test_an_unknown_trial_is_said_with_those_there_are(tune: Tune, store: Path) -> None:
    got = tune("show", "7")
    assert (got.code, got.out) == (2, "")
    assert "no trial 7" in got.err
    assert "0 to 1" in got.err


def test_a_trial_is_a_number(tune: Tune, store: Path) -> None:
    got = tune("show", "best")
    assert got.code == 2
    assert "where: [TRIAL]" not in got.err
    assert "where: TRIAL" in got.err


def test_an_unknown_run_suggests_the_right_one(tune: Tune, store: Path) -> None:
    got = tune("show", "0", "--run", "f-aaaaab")
    assert (got.code, got.out) == (2, "")
    assert "unknown run 'f-aaaaab'; did you mean f-aaaaaa?" in got.err
    assert "g-bbbbbb, f-aaaaaa, f-000000" in got.err


def test_without_runs_nothing_is_found_and_nothing_made(tune: Tune, folder: Path) -> None:
    got = tune("show", "--failed")
    assert (got.code, got.out) == (4, "")
    assert "no run is kept here" in got.err
    assert list(folder.iterdir()) == []


def test_a_broken_log_names_file_and_line(tune: Tune, store: Path) -> None:
    events = store / "runs" / "f-000000" / "events.jsonl"
    events.write_bytes(events.read_bytes() + b"{nonsense\n")
    got = tune("show", "0")
    assert (got.code, got.out) == (1, "")
    assert f"where: {events}:4" in got.err


@pytest.mark.parametrize("word", ["xla_cpu_use_xnnpack", "-1", "1.5"])
def test_a_trial_is_named_by_its_number(tune: Tune, store: Path, word: str) -> None:
    """What else stands there is refused in words that a reader of the help understands."""
    got = tune("show", "--", word)
    assert got.code == 2
    assert f"{word!r} is not a whole number of at least 0" in got.err


def test_elsewhere_than_on_a_terminal_the_width_is_what_columns_says(
    tune: Tune, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exported COLUMNS is a wish; without one, or with nonsense in it, lines are as long as in any log."""
    widest = {}
    for said in ("40", "", "many"):
        monkeypatch.setenv("COLUMNS", said)
        widest[said] = max(map(len, tune("show", "--failed").out.splitlines()))
    assert widest["40"] < widest[""] == widest["many"] <= 100
