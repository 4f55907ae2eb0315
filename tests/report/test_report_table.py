"""The frames and the CSV file."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from synthetic_run import MALLOC, MATH, PASSES, SPLIT, all_failed, faster, interrupted

from tuner.errors import StoreError
from tuner.knobs.config import Config
from tuner.report.table import results_frame, samples_frame, write_results
from tuner.store.events import RoundTimed, TrialFinished

FIXED = ["number", "stage", "session", "state", "config"]
REST = ["value", "speedup", "low", "high", "n", "fingerprint", "failure", "shared_with", "label"]


def test_a_row_a_trial_and_a_column_a_knob() -> None:
    """A knob that a trial leaves alone is "unset" there; an empty value stays empty."""
    frame = results_frame(faster())
    assert list(frame.columns) == [*FIXED, MALLOC, MATH, SPLIT, PASSES, *REST]
    assert list(frame["number"]) == list(range(len(frame)))
    assert list(frame.loc[frame["stage"] == "presets", MATH]) == ["unset", "unset"]
    assert list(frame.loc[frame["failure"] == "wrong_result", PASSES]) == [""]
    assert not frame[[MALLOC, MATH, SPLIT, PASSES]].isna().any(axis=None)


def test_states() -> None:
    """Timed, sharing another's samples, failed, or never timed."""
    events = faster()
    untimed = next(e for e in events if isinstance(e, TrialFinished))
    frame = results_frame([*events, msgspec.structs.replace(untimed, number=99, value=None, estimate=None)])
    by_state = frame.groupby("state")["number"].apply(list).to_dict()
    assert by_state["shared"] == [3, 10]
    assert by_state["failed"] == [5, 6]
    assert by_state["untimed"] == [99]
    assert list(frame.loc[frame["state"] == "shared", "shared_with"]) == [0, 4]
    assert frame.loc[frame["state"] == "timed", "shared_with"].isna().all()


def test_numbers() -> None:
    """The value is a log ratio, the rest are speed-ups; what was not measured is missing."""
    frame = results_frame(faster()).set_index("number")
    best = frame.loc[2]
    assert best["speedup"] == pytest.approx(1.41)
    assert best["value"] == pytest.approx(-math.log(1.41))
    assert best["low"] < best["speedup"] < best["high"]
    assert best["n"] == 24
    failed = frame.loc[5]
    assert failed[["value", "speedup", "low", "high", "n"]].isna().all()


def test_an_interval_that_could_not_be_computed_is_missing() -> None:
    """Infinity is no bound."""
    trial = next(e for e in faster() if isinstance(e, TrialFinished))
    estimate = msgspec.structs.replace(trial.estimate, low=-math.inf, high=math.inf)
    (row,) = results_frame([msgspec.structs.replace(trial, estimate=estimate)]).to_dict("records")
    assert math.isnan(row["low"])
    assert row["speedup"] == 1.0


def test_a_knob_may_be_called_like_a_column() -> None:
    """Workloads name their own knobs."""
    trial = next(e for e in faster() if isinstance(e, TrialFinished))
    trial = msgspec.structs.replace(trial, config=Config.of({"stage": "2", "label": "x"}))
    (row,) = results_frame([trial]).to_dict("records")
    assert (row["stage"], row["knob.stage"], row["knob.label"]) == ("presets", "2", "x")


def test_a_row_a_block() -> None:
    """With the seconds of all its steps, milliseconds of one, and which arm was the round's control."""
    events = faster()
    frame = samples_frame(events)
    rounds = [e for e in events if isinstance(e, RoundTimed)]
    assert len(frame) == sum(len(e.blocks) for e in rounds)
    assert list(frame.columns) == [
        *("seq", "time", "stage", "session", "handle", "control", "steps", "seconds", "ms_per_step", "told_ms"),
    ]
    assert frame.groupby("seq")["control"].sum().eq(1).all()
    control = frame.loc[frame["control"] & (frame["stage"] == "screen")]
    assert control["ms_per_step"].to_numpy() == pytest.approx(16.2)
    assert control["told_ms"].to_numpy() == pytest.approx(16.2)
    assert (frame["seconds"] / frame["steps"] * 1000).to_numpy() == pytest.approx(frame["ms_per_step"].to_numpy())


def test_no_events_make_empty_frames() -> None:
    """With the columns and types that full ones have."""
    assert [*FIXED, *REST] == list(results_frame([]).columns)
    assert results_frame([])["value"].dtype == results_frame(interrupted())["value"].dtype
    assert samples_frame([]).dtypes.to_dict() == samples_frame(interrupted()).dtypes.to_dict()
    assert (results_frame(all_failed())["failure"] != "").sum() == 5


def test_the_file_reads_back(tmp_path: Path) -> None:
    """Text for text, empty values included, and numbers to the last digit."""
    import pandas as pd  # here: the other process of a run need not import it too

    path = tmp_path / "results.csv"
    write_results(faster(), path)
    frame = results_frame(faster())
    read = pd.read_csv(path, keep_default_na=False, dtype=str)
    assert list(read.columns) == list(frame.columns)
    for column in (*FIXED[1:], MALLOC, MATH, SPLIT, PASSES, "fingerprint", "failure", "label"):
        assert list(read[column]) == list(frame[column])
    assert [float(v) for v in read["value"] if v] == list(frame["value"].dropna())


def test_a_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    """As an error of the store."""
    with pytest.raises(StoreError, match="no-such-folder"):
        write_results(faster(), tmp_path / "no-such-folder" / "results.csv")


@pytest.mark.slow
def test_reports_load_no_heavy_module() -> None:
    """pandas only when a frame is made; jax, optuna and scipy never."""
    modules = ("document", "findings", "headline", "knobs", "progress", "table", "terminal", "trial", "view")
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module("tuner.report." + name)
print(*sorted(sys.modules.keys() & {{"jax", "numpy", "optuna", "pandas", "scipy", "sqlalchemy"}}))
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
