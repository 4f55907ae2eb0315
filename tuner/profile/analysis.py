"""From the worker's traces to a profile: read, join, break down, hold against the roof, diagnose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tuner.profile.attribution import attributed, attributed_by_schedule
from tuner.profile.breakdown import break_down
from tuner.profile.churn import churn
from tuner.profile.costs import ModuleCosts, module_costs, together
from tuner.profile.diagnosis import diagnose
from tuner.profile.hlo import Module, both, read_module
from tuner.profile.instrumented import lightened
from tuner.profile.ranks import compare_ranks, late_ranks
from tuner.profile.roofline import roofed, verdict
from tuner.profile.steady import doubt, steadied
from tuner.profile.timeline import Timeline, timeline
from tuner.profile.types import Breakdown, Ceiling, OpRow, StepProfile
from tuner.profile.untraced import untraced
from tuner.protocol.messages import ProfileReply, Recompiled

__all__ = ["analyse"]

_MOST_OPS = 60
_BY_SCHEDULE = "which operation a kernel inside a CUDA graph is of was told by the program's schedule alone"


def analyse(
    as_run: ProfileReply,
    texts: Iterable[str],
    *,
    named: ProfileReply | None = None,
    ceiling: Ceiling | None = None,
    files: Mapping[str, str] | None = None,
    recompiled: Sequence[Recompiled] = (),
) -> StepProfile:
    """The profile of a step. `texts`: its optimised HLO, by module. `named`: a trace of the same program in which every
    kernel names its operation, and Python functions are seen; its times count for nothing. `recompiled`: what the
    workload compiled again and again before."""
    modules: dict[str, Module] = {}
    costs: dict[str, ModuleCosts] = {}
    for module in map(read_module, texts):
        found, name = module_costs(module), module.name
        costs[name] = together(costs[name], found) if name in costs else found
        modules[name] = both(modules[name], module) if name in modules else module
    line = timeline(as_run.labels, as_run.lines, modules)
    other = timeline(named.labels, named.lines, modules) if named else line
    joined = attributed_by_schedule(attributed(line, other, modules) if named else line, modules)
    steady = steadied(joined, as_run.plain_s)
    parted = untraced(_parted(steady, modules, as_run), as_run.plain_s, dispatch_s=as_run.dispatch_s)
    parted = msgspec.structs.replace(parted, doubt=doubt(steady, as_run.plain_s), under_ms=1e3 * as_run.under_s)
    breakdown, roof = roofed(parted, costs, ceiling)
    if named is None and breakdown.graphs and not breakdown.note:
        breakdown = msgspec.structs.replace(breakdown, note=_BY_SCHEDULE)
    bound, evidence = verdict(breakdown)
    ranks = compare_ranks((as_run, *as_run.ranks), modules)
    return StepProfile(
        breakdown=msgspec.structs.replace(breakdown, ops=_shortened(breakdown.ops)),
        roofline=roof,
        bound=bound,
        evidence=evidence,
        findings=(
            *late_ranks(ranks),
            *churn(recompiled),
            *diagnose(
                breakdown,
                roof,
                bound=bound,
                modules=modules,
                costs=costs,
                trace=other,
                recompiled=as_run.recompiled,
            ),
        ),
        files=dict(files or {}),
        ranks=ranks,
    )


def _parted(line: Timeline, modules: Mapping[str, Module], reply: ProfileReply) -> Breakdown:
    """The breakdown of the trace, without what the tracer added to kernels."""
    found = break_down(line, modules)
    excess_ms = found.busy_ms - 1e3 * reply.plain_s
    light = lightened(line, excess_ms, step_s=reply.plain_s, under_s=reply.under_s)
    if light is line:
        return found
    less = break_down(light, modules)
    return msgspec.structs.replace(less, tracer_ms=found.busy_ms - less.busy_ms)


def _shortened(rows: Sequence[OpRow]) -> tuple[OpRow, ...]:
    """The first rows, and one for all others: their times still sum to that of all work."""
    rest = rows[_MOST_OPS:]
    if len(rest) < 2:
        return tuple(rows)
    others = OpRow(
        name=f"{len(rest)} others",
        category="other",
        calls=sum(row.calls for row in rest),
        self_ms=sum(row.self_ms for row in rest),
        total_ms=sum(row.self_ms for row in rest),
        share=sum(row.share for row in rest),
        op=False,
    )
    return (*rows[:_MOST_OPS], others)
