"""What the tracer adds to kernels is taken out where the clock says that it does, and by thread blocks."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest
from card_traces import card
from profile_traces import gpu_reply

from tuner.profile import StepProfile, analyse
from tuner.profile.instrumented import lightened, thread_blocks
from tuner.profile.timeline import Event, Timeline, timeline
from tuner.protocol.messages import ProfileReply, TraceLabel
from tuner.report.where import traced_text

MANY, FEW, SHORT = "many_blocks", "few_blocks", "short"
KINDS = {
    MANY: TraceLabel(name=MANY, details="regs:16 grid:4,1000,2000 block:256,1,1 occ_pct:100"),
    FEW: TraceLabel(name=FEW, details="regs:16 grid:132,1,1 block:256,1,1 occ_pct:100"),
    SHORT: TraceLabel(name=SHORT, details="regs:16 grid:2000,1000,1 block:32,1,1 occ_pct:100"),
}
WORK = [(MANY, 0.0, 6000.0, 1), (FEW, 6000.0, 900.0, 1), (SHORT, 6900.0, 100.0, 1)]


def line(*, cpu: bool = False) -> Timeline:
    reply = gpu_reply(WORK, steps=2, step_us=7500.0, labels=KINDS)
    found = timeline(reply.labels, reply.lines, {})
    return Timeline(platform="cpu", steps=found.steps, devices=found.devices) if cpu else found


def lasts(found: Timeline) -> list[float]:
    """us, of the first step."""
    (events,) = found.devices.values()
    return [(e.end - e.start) / 1e3 for e in events[:3]]


def test_each_kernel_gives_by_its_blocks_and_none_more_than_half() -> None:
    found = lasts(lightened(line(), 0.5, step_s=0.0065, under_s=0.007))
    each_us = 500.0 / 10_000_132
    assert found == pytest.approx([6000 - 8_000_000 * each_us, 900 - 132 * each_us, 50.0])


@pytest.mark.parametrize(
    ("excess_ms", "step_s", "under_s", "cpu"),
    [
        (0.0, 0.007, 0.007, False),  # it fits
        (0.5, 0.0065, 0.0, False),  # steps in a row weren't timed under the tracer
        (0.5, 0.0065, 0.0066, False),  # or take little longer: clocks were lower while steps were marked
        (1.5, 0.0055, 0.007, False),  # more than blocks can cost
        (0.5, 0.0, 0.007, False),
        (0.5, 0.0065, 0.007, True),
    ],
)
def test_else_the_trace_stays_as_it_is(excess_ms: float, step_s: float, under_s: float, cpu: bool) -> None:
    given = line(cpu=cpu)
    assert lightened(given, excess_ms, step_s=step_s, under_s=under_s) is given


def test_a_trace_that_does_not_tell_its_kernels_sizes_stays_as_it_is() -> None:
    bare = gpu_reply(WORK, step_us=7500.0)
    given = timeline(bare.labels, bare.lines, {})
    assert lightened(given, 0.5, step_s=0.0065, under_s=0.007) is given
    assert thread_blocks(Event(name="copy", start=0.0, end=1.0, details="kind:D2D size:4")) == 0


def recorded(name: str, **changes: float) -> StepProfile:
    found = card(name)
    reply: ProfileReply = dataclasses.replace(found.as_run, **changes)
    return analyse(reply, found.texts, named=found.named, ceiling=found.ceiling)


def test_a_step_of_millions_of_thread_blocks_on_an_h200() -> None:
    """Steps in a row: 7.30 ms under the tracer, 6.81 ms without. Scaled alike, kernels that wait for memory would be as
    fast as no such memory is."""
    found = recorded("mixture-h200").breakdown
    assert found.tracer_ms == pytest.approx(0.487, abs=0.005)
    assert found.scale == pytest.approx(1.0, abs=1e-3)
    assert sum(found.parts.values()) == pytest.approx(found.step_ms)
    rows = {row.name: row for row in found.ops}
    assert rows["input_reduce_fusion"].self_ms == pytest.approx(5.53, abs=0.01)
    memory = rows["input_reduce_fusion.2"]
    assert memory.self_ms == pytest.approx(0.242, abs=0.002)
    assert "the tracer made work itself 0.48 ms longer" in traced_text(found)
    alike = recorded("mixture-h200", under_s=0.0).breakdown
    assert (alike.tracer_ms, math.floor(100 * alike.scale)) == (0.0, 93)
    faster = next(row for row in alike.ops if row.name == memory.name)
    assert (faster.bytes or 0) / faster.self_ms > 1e-3 * 4.65e12 > (memory.bytes or 0) / memory.self_ms


def test_a_product_at_lower_clocks_on_an_h200_is_scaled_whatever_the_tracer_does() -> None:
    """Its steps were marked 97 to 135 ms after a rest, when the card's clocks had just fallen."""
    for under_s in (0.00299, 0.0034):
        found = recorded("matmul-h200", under_s=under_s).breakdown
        assert (found.tracer_ms, found.scale) == (0.0, pytest.approx(0.929, abs=0.002))
        assert "work is scaled by 0.929 to fit" in traced_text(found)
        assert ("clocks were lower" in traced_text(found)) == (under_s < 0.003)
        on_cpu = msgspec.structs.replace(found, platform="cpu")  # whose clocks nothing here speaks of
        assert "clocks" not in traced_text(on_cpu)
