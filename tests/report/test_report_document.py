"""RunDocument: its fields, its stored example, and that it is plain JSON however far the run came."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from synthetic_run import FILES, MALLOC, MATH, PASSES, SCENARIOS, all_failed, estimate, faster, interrupted, same

from tuner.measure.types import Verdict
from tuner.report.document import FILES as FILE_NAMES
from tuner.report.document import KNOBS, RunDocument, document
from tuner.report.view import STAGES, RunView
from tuner.store.events import AnyEvent, RunFinished, StageFinished

EXAMPLE = Path(__file__).parent / "data" / "run-1.json"
PROMISED = {
    *("schema", "run", "workload", "program", "environment", "verdict", "speedup", "speedup_ci", "control_ms"),
    *("best_ms", "settings", "effects", "counts", "resolution", "stages", "files"),
}


def documented(events: list[AnyEvent]) -> dict[str, Any]:
    return document(RunView.of(events))


def rounded(value: Any) -> Any:
    """Floats to nine digits: sums and exponentials may differ in the last one between machines."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: rounded(v) for name, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promised_field_is_there(scenario: str) -> None:
    """Whatever became of the run; what is unknown is null, not absent."""
    built = documented(SCENARIOS[scenario]())
    assert built.keys() >= PROMISED
    assert built["schema"] == "tuner/run/1"
    assert set(KNOBS) <= built["counts"]["knobs"].keys()
    assert set(FILE_NAMES) <= built["files"].keys()
    assert built["counts"]["candidates"].keys() == {"compiled", "deduplicated", "timed", "failed"}


def test_the_stored_example_still_reads() -> None:
    """Version 1 as it was first written."""
    stored = msgspec.json.decode(EXAMPLE.read_bytes(), type=RunDocument)
    assert json.loads(msgspec.json.encode(stored)) == json.loads(EXAMPLE.read_text())


def test_the_stored_example_is_what_is_written_today() -> None:
    """A change here is a change of the format: it needs a new version, or is an added field."""
    assert rounded(documented(faster())) == rounded(json.loads(EXAMPLE.read_text()))


def test_a_gain_is_told_in_ratios() -> None:
    """Speed-up with [low, high], milliseconds of a step, settings and effects by name."""
    built = documented(faster())
    assert built["verdict"] == "faster"
    assert built["speedup"] == pytest.approx(1.43)
    assert built["speedup_ci"] == pytest.approx([1.43 * math.exp(-0.03 / 1.43), 1.43 * math.exp(0.03 / 1.43)])
    assert (built["control_ms"], built["best_ms"]) == (16.2, pytest.approx(16.2 / 1.43))
    assert built["settings"] == {MALLOC: "1", MATH: "false"}
    assert built["effects"][MATH]["ratio"] == pytest.approx(1.41)
    low, high = built["effects"][MALLOC]["interval"]
    assert 1 < low < 1.012 < high
    assert built["finalists"][0]["ratios"] == pytest.approx(
        [math.exp(math.log(1.43) - 0.03 / 4 * s) for s in (1, -1)] * 3
    )
    assert built["resolution"] == 0.006
    assert tuple(built["stages"]) == STAGES
    assert built["files"] == FILES
    assert built["next"]["command"] == f". {FILES['shell']}"


def test_no_gain_has_no_settings() -> None:
    """The finalist that was not proven stands in its own place."""
    built = documented(same())
    assert (built["verdict"], built["settings"], built["effects"]) == ("same", {}, {})
    assert built["finalists"][0]["settings"] == {MATH: "false"}
    assert built["files"]["shell"] is None
    assert built["next"]["command"] is None


def test_an_interrupted_run_has_no_verdict() -> None:
    """What is unknown is null; the control is known from the baseline."""
    built = documented(interrupted())
    assert built["state"] == "interrupted"
    assert (built["verdict"], built["speedup"], built["speedup_ci"], built["best_ms"]) == (None, None, None, None)
    assert built["control_ms"] == 16.2
    assert built["unfinished"]["stage"] == "search"
    assert "search" not in built["stages"]


def test_states() -> None:
    """Finished, or stopped before the end by an error, or still at work."""
    assert documented(faster())["state"] == "finished"
    assert documented(faster()[:40])["state"] == "unfinished"
    stopped = [*interrupted()[:-1], RunFinished(exit_code=1)]
    assert documented(stopped)["state"] == "stopped"


def test_failures_and_knobs_are_told_one_by_one() -> None:
    """By class in the counts; each with its settings, phase and message in the list."""
    built = documented(all_failed())
    assert built["counts"]["candidates"]["failed"] == {"fatal": 2, "out_of_memory": 2, "crash": 1}
    first = built["failures"][0]
    assert first["settings"] == {MATH: "false"}
    assert (first["failure"], first["trial"], first["stage"]) == ("fatal", 1, "screen")
    assert "\x1b" not in first["message"]
    assert built["counts"]["knobs"]["failed"] == 4
    assert PASSES in {entry["name"] for entry in built["left"]}


def test_what_can_not_be_computed_is_null() -> None:
    """No NaN and no infinity reaches the JSON, and no interval that isn't one."""
    unknown = msgspec.structs.replace(estimate(1.05, math.inf), gain=math.nan)
    events: list[AnyEvent] = []
    for event in faster():
        if isinstance(event, StageFinished) and event.stage == "baseline":
            record = msgspec.structs.replace(event.record, resolution=math.inf)
            event = msgspec.structs.replace(event, record=record)
        if isinstance(event, StageFinished) and event.stage == "confirm":
            (finalist,) = event.record.finalists
            failed = msgspec.structs.replace(
                finalist, estimate=unknown, best_ms=math.nan, control_ms=math.nan, log_ratios=(math.nan, -1e4)
            )
            record = msgspec.structs.replace(
                event.record,
                finalists=(failed,),
                verdict=Verdict.UNCLEAR,
                estimate=unknown,
                best_ms=math.nan,
                control_ms=math.nan,
            )
            event = msgspec.structs.replace(event, record=record)
        events.append(event)
    built = documented(events)
    json.dumps(built, allow_nan=False)
    assert (built["speedup"], built["speedup_ci"], built["resolution"], built["best_ms"]) == (None, None, None, None)
    assert built["control_ms"] == 16.2
    assert built["finalists"][0]["ratios"] == [None, None]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_any_part_of_a_run_is_a_document(scenario: str) -> None:
    """A log may end after any event; the document keeps to its type."""
    events = SCENARIOS[scenario]()
    for end in range(0, len(events), 2):
        built = documented(events[:end])
        text = json.dumps(built, allow_nan=False)
        assert json.loads(msgspec.json.encode(msgspec.json.decode(text, type=RunDocument))) == built


def test_files_are_those_that_are_there() -> None:
    """A log that was taken elsewhere knows where its run wrote them: that is no longer true."""
    built = document(RunView.of(faster()), {"env": "x.env", "table": "t.csv"})
    assert built["files"] == {"env": "x.env", "shell": None, "json": None, "events": None, "table": "t.csv"}
    assert built["next"]["command"] == "tune workloads/nbody.py --budget 180"
