"""From the step in the trace to the step as it runs: what the tracer added is taken out of the gaps.

A tracer makes the host slower (launching a graph of many kernels takes several times as long) and hardly the device. So
the times of work are the trace's; the step is that of consecutive steps without a trace, and gaps are what work leaves
of it: first launch gaps, no longer than in the trace, then host gaps. Where the work alone is longer than the step, it
is scaled down to it.
"""

from __future__ import annotations

import msgspec

from tuner.profile.breakdown import HOST_GAPS, LAUNCH_GAPS
from tuner.profile.types import Breakdown

__all__ = ["untraced"]


def untraced(found: Breakdown, step_s: float) -> Breakdown:
    """The breakdown of a step that takes `step_s` without a trace; `found` itself if that isn't known."""
    step_ms = 1e3 * step_s
    if step_ms <= 0 or found.step_ms <= 0:
        return found
    scale = min(1.0, step_ms / found.busy_ms) if found.busy_ms else 1.0
    share = scale * found.step_ms / step_ms
    busy_ms = scale * found.busy_ms
    free_ms = max(0.0, step_ms - busy_ms)
    launch_ms = min(found.parts.get(LAUNCH_GAPS, 0.0), free_ms)
    gaps = {LAUNCH_GAPS: launch_ms, HOST_GAPS: free_ms - launch_ms}
    work = {name: scale * ms for name, ms in found.parts.items() if name not in gaps}
    return msgspec.structs.replace(
        found,
        step_ms=step_ms,
        scale=scale,
        parts=work | {name: ms for name, ms in gaps.items() if ms > 0},
        busy_ms=busy_ms,
        hidden_ms=scale * found.hidden_ms,
        exposed_ms=scale * found.exposed_ms,
        kernel_us=scale * found.kernel_us,
        ops=tuple(
            msgspec.structs.replace(
                row, self_ms=scale * row.self_ms, total_ms=scale * row.total_ms, share=row.share * share
            )
            for row in found.ops
        ),
        by_kernel=tuple(
            msgspec.structs.replace(row, self_ms=scale * row.self_ms, share=row.share * share)
            for row in found.by_kernel
        ),
        scopes=tuple(
            msgspec.structs.replace(
                row, self_ms=scale * row.self_ms, total_ms=scale * row.total_ms, share=row.share * share
            )
            for row in found.scopes
        ),
    )
