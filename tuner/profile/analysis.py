"""From the worker's traces to a profile: read, join, break down, hold against the roof, diagnose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.profile.attribution import attributed
from tuner.profile.breakdown import break_down
from tuner.profile.costs import ModuleCosts, module_costs, together
from tuner.profile.diagnosis import diagnose
from tuner.profile.hlo import Module, both, read_module
from tuner.profile.roofline import roofed, verdict
from tuner.profile.timeline import timeline
from tuner.profile.types import Ceiling, StepProfile
from tuner.protocol.messages import ProfileReply

__all__ = ["analyse"]


def analyse(
    as_run: ProfileReply,
    texts: Iterable[str],
    *,
    named: ProfileReply | None = None,
    ceiling: Ceiling | None = None,
    files: Mapping[str, str] | None = None,
) -> StepProfile:
    """The profile of a step. `texts`: its optimised HLO, by module. `named`: a trace of the same program in which every
    kernel names its operation, and Python functions are seen; its times count for nothing."""
    modules: dict[str, Module] = {}
    costs: dict[str, ModuleCosts] = {}
    for module in map(read_module, texts):
        found, name = module_costs(module), module.name
        costs[name] = together(costs[name], found) if name in costs else found
        modules[name] = both(modules[name], module) if name in modules else module
    line = timeline(as_run.labels, as_run.lines, modules)
    other = timeline(named.labels, named.lines, modules) if named else line
    joined = attributed(line, other) if named else line
    breakdown, roof = roofed(break_down(joined, modules, plain_s=as_run.plain_s), costs, ceiling)
    bound, evidence = verdict(breakdown)
    return StepProfile(
        breakdown=breakdown,
        roofline=roof,
        bound=bound,
        evidence=evidence,
        findings=diagnose(breakdown, roof, bound=bound, modules=modules, costs=costs, trace=other),
        files=dict(files or {}),
    )
