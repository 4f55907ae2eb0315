"""What later stages need is ready when the first worker is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.machine import Host
from tuner.pipeline.baseline import run_baseline
from tuner.pipeline.beforehand import made_ready
from tuner.pipeline.benches import Benches
from tuner.pipeline.context import Run
from tuner.pipeline.run import STAGES
from tuner.session import FakeMachine
from tuner.store.records import BaselineRecord
from tuner.store.study import StudyMirror

_BLOCK = """
import sys
import tuner.pipeline.run
from tuner.pipeline.beforehand import made_ready
from tuner.store.study import StudyMirror

later = {"scipy.optimize", "pandas", "jinja2", "optuna", "alembic"}
before = later & sys.modules.keys()
with made_ready(StudyMirror(sys.argv[1]), cores=4):
    pass
print(sorted(before), sorted(later - sys.modules.keys()))
"""


@pytest.mark.slow
def test_slow_modules_are_imported_and_the_study_is_opened_when_the_block_ends(tmp_path: Path) -> None:
    """The pipeline by itself imports none of them."""
    command = [sys.executable, "-c", _BLOCK, f"sqlite:///{tmp_path}/tuner.db"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[0] == "[] []"
    assert (tmp_path / "tuner.db").exists()


def test_a_study_that_cannot_be_opened_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: StudyMirror) -> None:
        raise RuntimeError("no database today")

    monkeypatch.setattr(StudyMirror, "open", broken)
    with made_ready(StudyMirror("sqlite://"), cores=4):
        pass


def test_with_few_cores_the_first_start_has_them_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[StudyMirror] = []
    monkeypatch.setattr(StudyMirror, "open", lambda mirror: opened.append(mirror))
    study = StudyMirror("sqlite://")
    for cores, found in ((2, []), (4, [study])):
        with made_ready(study, cores=cores):
            pass
        assert opened == found


def test_it_is_over_before_the_first_stage_that_times(tune_on, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def opened(_: StudyMirror) -> None:
        time.sleep(0.2)
        order.append("opened")

    def baseline(run: Run, benches: Benches) -> BaselineRecord:
        order.append("baseline")
        return run_baseline(run, benches)

    host = Host(cpu="made up", cores=16, memory_bytes=1 << 36, kernel="made up")
    monkeypatch.setattr("tuner.pipeline.opening.read_host", lambda: host)
    monkeypatch.setattr(StudyMirror, "open", opened)
    monkeypatch.setitem(STAGES, "baseline", baseline)
    tune_on(FakeMachine(), budget_s=20.0)
    assert order == ["opened", "baseline"]
