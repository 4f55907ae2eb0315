"""Profiles of default and winner, each in a fresh process, at the end of a run and out of a small share of its time."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import SessionEnded
from tuner.handoff import loading
from tuner.knobs import DEFAULT, Config
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.costs import process_cost, profile_seconds
from tuner.pipeline.launches import launch
from tuner.pipeline.tracing import profile_session, steps_to_trace
from tuner.profile import Ceiling, StepProfile
from tuner.protocol.failure import Failure
from tuner.protocol.messages import CeilingsReply, Variant
from tuner.report.commands import profile_command
from tuner.session import Session
from tuner.store.ceilings import ceiling_of, keep_ceiling
from tuner.store.events import Profiled, SessionClosed, SessionStarted
from tuner.store.records import BaselineRecord, ProbeRecord

__all__ = ["measured_ceiling", "profile_sides"]


def profile_sides(run: Run, chosen: Config, *, cache: Path | None) -> None:
    """Profile the default, and `chosen` if that is another, as far as the budget has room: where it has none for a
    trace that names operations beside the other side's profile, the program's schedule must do. What an interrupted run
    has profiled already is not done again. Trouble costs the profile, not the run.

    `cache`: the sealed one, which the chosen config's process loads its executable from.
    """
    done = {e.config for e in run.events if isinstance(e, Profiled)}
    baseline = run.record("baseline", BaselineRecord)
    cost = process_cost(baseline)
    sides = [config for config in dict.fromkeys((chosen, DEFAULT)) if config not in done]
    for after, config in zip(reversed(range(len(sides))), sides, strict=True):
        left_s = run.options.budget_s - run.budget.elapsed_s
        needed_s = profile_seconds(run, cost, attribute=False)
        if left_s < needed_s:
            which = "the default" if config == DEFAULT else "the winner"
            under = "" if config == DEFAULT else str(run.folder.path)
            command = profile_command(str(run.workload.path), run=under, command=run.options.command)
            run.notice(
                f"no time was left to profile {which}: that takes about {needed_s:.0f} s. `{command}` does it by itself"
            )
            return
        run.status("seal", "profiling a fresh process")
        attribute = left_s >= profile_seconds(run, cost) + after * needed_s
        _profile(run, config, cache=cache if config == chosen else None, step_s=baseline.step_s, attribute=attribute)


def _profile(run: Run, config: Config, *, cache: Path | None, step_s: float, attribute: bool) -> None:
    side = "default" if config == DEFAULT else "winner"
    found: StepProfile | Failure
    env = loading(cache) if cache else {}
    session = run.factory(launch(run, f"profile-{side}", role="profile", config=config, env=env))
    name = session.launch.log.stem
    try:
        began = run.budget.now()
        loaded = session.start()
        run.emit(
            SessionStarted(
                session=name,
                role="profile",
                config=config,
                env=dict(session.launch.env),
                loaded=loaded,
                start_s=run.budget.now() - began,
            )
        )
        made = session.compile([Variant(id=CONTROL)]).results[0]
        if isinstance(made, Failure):
            found = made
        else:
            key = run.record("probe", ProbeRecord).environment.key
            found = profile_session(
                session,
                loaded=loaded,
                compiled=made,
                folder=run.folder.profiles / side,
                steps=steps_to_trace(step_s),
                step_s=step_s,
                attribute=attribute,
                ceiling=lambda living: measured_ceiling(living, run.folder.path.parent.parent, key),
            )
    except SessionEnded as ended:
        found = ended.failure
    finally:
        ended_by = session.ended
        session.close()
        run.emit(SessionClosed(session=name, failure=ended_by))
    if isinstance(found, Failure):
        run.emit(Profiled(session=name, config=config, profile=None, failure=found))
        run.notice(f"the {side} could not be profiled: {found.message} (see {session.launch.log})")
    else:
        run.emit(Profiled(session=name, config=config, profile=found))


def measured_ceiling(session: Session, root: Path, key: str) -> Ceiling | None:
    """What is known for this environment; else measured in `session`, and kept where repeats agreed. None if it can't
    be measured."""
    known = ceiling_of(root, key)
    if known is not None:
        return known
    reply = session.ceilings()
    if not isinstance(reply, CeilingsReply):
        return None
    found = Ceiling(flops_per_s=reply.flops_per_s, bytes_per_s=reply.bytes_per_s, unsteady=reply.unsteady)
    if not found.unsteady:
        keep_ceiling(root, key, found)
    return found
