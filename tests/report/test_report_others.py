"""What the report says of the program's other functions."""

from __future__ import annotations

import math

import msgspec
import pytest
from synthetic_run import estimate, failing, faster, same

from tuner.knobs.config import DEFAULT
from tuner.measure.types import Estimate
from tuner.protocol.failure import FailureClass
from tuner.report.document import document
from tuner.report.others import said
from tuner.report.terminal import render_result
from tuner.report.view import RunView
from tuner.store.events import AnyEvent, StageFinished
from tuner.store.records import ConfirmRecord, OtherFunction

FINE = OtherFunction(name="eval_step", passed=True, gain=estimate(1.0, 0.01), peak_bytes=1 << 20)
WRONG = OtherFunction(name="sample", passed=False, reason="output out[0] differs", gain=estimate(0.9, 0.01))
BROKEN = OtherFunction(name="init", failure=failing(FailureClass.OUT_OF_MEMORY, "RESOURCE_EXHAUSTED"))


def with_others(events: list[AnyEvent], *others: OtherFunction, chosen: bool = True) -> list[AnyEvent]:
    """The run with these in the record of its first finalist."""
    found: list[AnyEvent] = []
    for event in events:
        if isinstance(event, StageFinished) and isinstance(event.record, ConfirmRecord):
            first, *rest = event.record.finalists
            first = msgspec.structs.replace(first, others=others)
            record = msgspec.structs.replace(event.record, finalists=(first, *rest))
            if not chosen:
                record = msgspec.structs.replace(record, chosen=DEFAULT)
            event = msgspec.structs.replace(event, record=record)
        found.append(event)
    return found


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (FINE, "same numbers, 1.000x (0.990–1.010)"),
        (WRONG, "other numbers (output out[0] differs), 0.900x (0.890–0.910)"),
        (BROKEN, "fails, out_of_memory: RESOURCE_EXHAUSTED"),
        (OtherFunction(name="x", reason="not checked: no time was left"), "not checked: no time was left"),
        (msgspec.structs.replace(FINE, default_peak_bytes=1 << 19), ", peak memory 512.0 KiB → 1.0 MiB"),
        (
            OtherFunction(
                name="x",
                passed=True,
                gain=Estimate(gain=0.1, se=math.inf, low=-math.inf, high=math.inf, n=1),
                reason="different, but no farther from a float64 reference",
            ),
            "same numbers (different, but no farther from a float64 reference), 1.11x (no interval)",
        ),
    ],
)
def test_a_function_is_told_in_a_phrase(other: OtherFunction, text: str) -> None:
    assert text in said(other)


def test_memory_is_told_only_where_it_reads_differently() -> None:
    assert "memory" not in said(msgspec.structs.replace(FINE, default_peak_bytes=(1 << 20) + 8))


def test_functions_under_the_winner_are_on_the_page_and_in_the_document() -> None:
    view = RunView.of(with_others(faster(), FINE, WRONG, BROKEN))
    text = " ".join(render_result(view).split())
    assert "other functions of the program under these settings, in one pair of fresh processes" in text
    assert "eval_step same numbers, 1.000x" in text
    assert "init fails, out_of_memory" in text
    built = document(view)["finalists"][0]["others"]
    assert [(part["name"], part["same"], part["failure"]) for part in built] == [
        ("eval_step", True, None),
        ("sample", False, None),
        ("init", None, "out_of_memory"),
    ]
    assert built[0]["peak_bytes"] == 1 << 20
    assert built[2]["reason"] == "RESOURCE_EXHAUSTED"


def test_a_finalist_that_they_ruled_out_is_told_too_and_a_run_without_any_says_nothing() -> None:
    text = " ".join(render_result(RunView.of(with_others(same(), WRONG, chosen=False))).split())
    assert "sample other numbers (output out[0] differs)" in text
    assert "other functions" not in render_result(RunView.of(faster()))
