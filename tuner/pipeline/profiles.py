"""Profiles of default and winner, out of a small share of a run's time: in the processes of a pair that were timed, or
in fresh ones at its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tuner.errors import SessionEnded
from tuner.handoff import loading
from tuner.knobs import DEFAULT, Config
from tuner.pipeline.bench import CONTROL
from tuner.pipeline.context import Run
from tuner.pipeline.costs import process_cost, profile_seconds, profiles_kept, trace_seconds
from tuner.pipeline.launches import launch
from tuner.pipeline.tracing import profile_session, steps_to_trace
from tuner.profile import Ceiling, StepProfile
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import CeilingsReply, Compiled, Variant
from tuner.report.commands import profile_command
from tuner.session import Session
from tuner.store.ceilings import ceiling_of, keep_ceiling
from tuner.store.events import Profiled, SessionClosed, SessionStarted
from tuner.store.records import BaselineRecord, ProbeRecord

__all__ = ["measured_ceiling", "profile_living", "profile_sides"]


def profile_living(
    run: Run, sessions: Mapping[Config, Session], made: Mapping[Config, Compiled], *, left_s: float
) -> None:
    """Profile the default and a finalist in `sessions`, which have compiled them as `made` and are timed no more, if
    they aren't already and the time for it was kept, or is among the `left_s` seconds. Trouble costs the profile alone.
    """
    cost = process_cost(run.record("baseline", BaselineRecord))
    wanted = {c: s for c, s in sessions.items() if c not in run.profiled}
    if not profiles_kept(run, cost) and left_s < len(wanted) * trace_seconds(run, cost, attribute=False):
        return
    attribute = left_s >= len(wanted) * trace_seconds(run, cost)
    for config, session in wanted.items():
        run.status("confirm", "profiling a process that was timed")
        _tell(run, session, config, _traced(run, session, config, made[config], attribute=attribute))


def profile_sides(run: Run, chosen: Config, *, cache: Path | None) -> None:
    """Profile the default, and `chosen` if that is another, unless they are already, as far as the budget has room:
    where it has none for a trace that names operations beside the other side's profile, the program's schedule must do.
    Trouble costs the profile, not the run.

    `cache`: the sealed one, which the chosen config's process loads its executable from.
    """
    cost = process_cost(run.record("baseline", BaselineRecord))
    sides = [config for config in dict.fromkeys((chosen, DEFAULT)) if config not in run.profiled]
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
        _in_a_process(run, config, cache=cache if config == chosen else None, attribute=attribute)


def _in_a_process(run: Run, config: Config, *, cache: Path | None, attribute: bool) -> None:
    found: StepProfile | Failure
    env = loading(cache) if cache else {}
    session = run.factory(launch(run, f"profile-{_side(config)}", role="profile", config=config, env=env))
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
        found = made if isinstance(made, Failure) else _traced(run, session, config, made, attribute=attribute)
    except SessionEnded as ended:
        found = ended.failure
    finally:
        ended_by = session.ended
        session.close()
        run.emit(SessionClosed(session=name, failure=ended_by))
    _tell(run, session, config, found)


def _traced(run: Run, session: Session, config: Config, made: Compiled, *, attribute: bool) -> StepProfile | Failure:
    step_s = run.record("baseline", BaselineRecord).step_s
    key = run.record("probe", ProbeRecord).environment.key
    name = session.launch.log.stem
    try:
        return profile_session(
            session,
            loaded=next(e.loaded for e in run.events if isinstance(e, SessionStarted) and e.session == name),
            compiled=made,
            folder=run.folder.profiles / _side(config),
            steps=steps_to_trace(step_s),
            step_s=step_s,
            attribute=attribute,
            ceiling=lambda living: measured_ceiling(living, run.folder.path.parent.parent, key),
        )
    except SessionEnded as ended:
        return ended.failure
    except Exception as error:  # whatever a trace holds that we don't understand: the result doesn't depend on it
        return Failure(kind=FailureClass.RUNTIME, phase="profile", message=f"{type(error).__name__}: {error}")


def _side(config: Config) -> str:
    return "default" if config == DEFAULT else config.key[:8]


def _tell(run: Run, session: Session, config: Config, found: StepProfile | Failure) -> None:
    name = session.launch.log.stem
    if isinstance(found, Failure):
        run.emit(Profiled(session=name, config=config, profile=None, failure=found))
        side = "default" if config == DEFAULT else f"step under {config}"
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
