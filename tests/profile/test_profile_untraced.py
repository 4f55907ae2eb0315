"""What a tracer adds is left out of the gaps, and work is scaled only where gaps can't explain the step."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.profile import HOST_GAPS, LAUNCH_GAPS, Breakdown, OpRow, ScopeRow
from tuner.profile.untraced import untraced


def traced(work: float = 6.0, launch: float = 1.0, host: float = 3.0, stalls: float = 0.0) -> Breakdown:
    step = work + launch + host
    parts = {"matrix multiply": 0.75 * work, "collective": 0.25 * work, LAUNCH_GAPS: launch, HOST_GAPS: host}
    return Breakdown(
        platform="gpu",
        steps=3,
        devices=1,
        step_ms=step,
        traced_ms=step,
        parts=parts,
        busy_ms=work,
        exposed_ms=0.25 * work,
        stalls_ms=stalls,
        ops=(OpRow(name="dot", category="matrix multiply", calls=1.0, self_ms=work, total_ms=work, share=work / step),),
        scopes=(ScopeRow(name="a", self_ms=work, total_ms=work, share=work / step),),
    )


@pytest.mark.parametrize(
    ("step_ms", "launch", "host", "scale"),
    [(12.0, 1.0, 5.0, 1.0), (8.0, 1.0, 1.0, 1.0), (6.5, 0.5, 0.0, 1.0), (3.0, 0.0, 0.0, 0.5)],
)
def test_host_gaps_give_way_first_then_launch_gaps_then_work(
    step_ms: float, launch: float, host: float, scale: float
) -> None:
    found = untraced(traced(), step_ms / 1e3)
    assert (found.step_ms, found.traced_ms, found.scale) == (step_ms, 10.0, pytest.approx(scale))
    assert found.parts.get(LAUNCH_GAPS, 0.0) == pytest.approx(launch)
    assert found.parts.get(HOST_GAPS, 0.0) == pytest.approx(host)
    assert found.parts["matrix multiply"] == pytest.approx(4.5 * scale)
    assert found.exposed_ms == pytest.approx(1.5 * scale)
    assert found.ops[0].self_ms == pytest.approx(6.0 * scale)
    assert found.ops[0].share == pytest.approx(6.0 * scale / step_ms)
    assert found.scopes[0].share == pytest.approx(6.0 * scale / step_ms)


@pytest.mark.parametrize(
    ("dispatch_ms", "stalls", "host"),
    [
        (0.0, 0.0, 5.0),  # not known
        (1.0, 0.0, 0.02),  # the host is far ahead: the clocks were lower
        (1.0, 3.0, 3.02),  # the device waits inside a step, as for a callback
        (9.0, 0.0, 5.0),  # calls take almost as long as the step
    ],
)
def test_what_the_host_did_not_take_is_work_at_lower_clocks(dispatch_ms: float, stalls: float, host: float) -> None:
    found = untraced(traced(stalls=stalls), 0.012, dispatch_s=dispatch_ms / 1e3)
    assert found.parts == pytest.approx(
        {"matrix multiply": 0.75 * (11 - host), "collective": 0.25 * (11 - host), LAUNCH_GAPS: 1.0, HOST_GAPS: host}
    )
    assert found.scale == pytest.approx((11 - host) / 6)
    assert (found.dispatch_ms, found.step_ms) == (dispatch_ms, 12.0)


@pytest.mark.parametrize("stalls", [0.0, 2.0])
@pytest.mark.parametrize(("dispatch_ms", "host"), [(0.5, 3.0), (0.0, 5.0), (9.0, 5.0)])
def test_on_a_cpu_with_the_host_ahead_gaps_are_no_longer_than_in_the_trace(
    dispatch_ms: float, host: float, stalls: float
) -> None:
    traced_there = msgspec.structs.replace(traced(stalls=stalls), platform="cpu")
    found = untraced(traced_there, 0.012, dispatch_s=dispatch_ms / 1e3)
    assert found.parts[HOST_GAPS] == pytest.approx(host)
    assert sum(found.parts.values()) == pytest.approx(12.0)


def test_without_a_time_of_the_step_the_trace_is_all_there_is() -> None:
    assert untraced(traced(), 0.0) == traced()


@given(st.floats(1e-3, 10), st.floats(0, 10), st.floats(0, 10), st.floats(1e-3, 40), st.floats(0, 40))
def test_the_parts_always_sum_to_the_step(
    work: float, launch: float, host: float, step_ms: float, dispatch_ms: float
) -> None:
    found = untraced(traced(work, launch, host), step_ms / 1e3, dispatch_s=dispatch_ms / 1e3)
    assert sum(found.parts.values()) == pytest.approx(found.step_ms)
    assert all(ms >= 0 for ms in found.parts.values())
