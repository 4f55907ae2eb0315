"""The numerics gate of a run: a candidate's results against the control's, and the second chance where they differ."""

from __future__ import annotations

from tuner.errors import SessionEnded
from tuner.knobs import DEFAULT, Config
from tuner.measure import Tolerance, judge, second_chance
from tuner.pipeline.context import Run
from tuner.pipeline.demands import other_work
from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import NumericsReply
from tuner.session import Session
from tuner.store.events import CandidateCompiled, NumericsCompared, PreciseReference
from tuner.store.records import BaselineRecord

__all__ = ["Home", "gated", "is_strict", "limits_for"]

Home = tuple[Session, str]
"""A session with default settings, and its handle of the control."""


def limits_for(run: Run, config: Config) -> tuple[Tolerance, ...]:
    """How far the results of `config` may lie from the default's."""
    return run.record("baseline", BaselineRecord).limits(strict=is_strict(run, config))


def is_strict(run: Run, config: Config) -> bool:
    """Whether `config` is declared to trade accuracy: then it may not lie as far from the default as others do."""
    return run.space.risks(config.names, "numerics")


def gated(run: Run, session: Session, handle: str, config: Config, *, home: Home | None, phase: str) -> Failure | None:
    """None if the results of `config`, compiled as `handle` in `session`, pass; a failure that says what differs.

    What the tolerances refuse may still be different, but no farther from a high-precision reference than the default's
    results are. That reference is made when it is first needed, by `home` (None: it must be there already). A
    workload's own check decides alone. Where a step does other work than by default, both are those of the default
    settings at that work, of which there is no high-precision one. Raises SessionEnded if `session` ended.
    """
    baseline = run.record("baseline", BaselineRecord)
    work = other_work(run, session.launch.log.stem, config)
    reply = session.numerics(handle, steps=baseline.numerics_steps, reference=run.folder.reference_of(work))
    if isinstance(reply, Failure):
        return reply
    if config == DEFAULT and (unlike := _unlike(run, session)):
        run.notice(unlike)
    limits = limits_for(run, config)
    passed, reason = judge(reply, limits)
    precise: NumericsReply | None = None
    if not passed and reply.check is None:
        control = f"there is none with {work}" if work != DEFAULT else _control(run, home, session)
        if isinstance(control, NumericsReply):
            passed, more, precise = _chance(run, session, handle, reply, limits, control)
            reason = more if passed else f"{reason}; {more}"
        else:
            reason = f"{reason}; no high-precision reference: {control}"
    if not passed and reply.other_inputs:
        named = ", ".join(reply.other_inputs)
        reason += (
            f"; build() made other inputs here than in the run's first process ({named}): let it seed what it draws"
        )
    run.emit(
        NumericsCompared(
            session=session.launch.log.stem,
            config=config,
            purpose="gate",
            reply=reply,
            passed=passed,
            reason=reason,
            precise=precise,
            strict=is_strict(run, config),
        )
    )
    return None if passed else Failure(kind=FailureClass.WRONG_RESULT, phase=phase, message=reason)


def _unlike(run: Run, session: Session) -> str:
    """What to say where the default's step is another program in this process than in the first; "" where it isn't."""
    compiled = (e for e in run.events if isinstance(e, CandidateCompiled) and e.config == DEFAULT)
    programs = {e.session: e.compiled.program for e in compiled}
    first, here = next(iter(programs.values()), ""), programs.get(session.launch.log.stem, "")
    if not here or here == first:
        return ""
    return (
        "the step is another program in every process, as one is that closes over arrays drawn without a seed: what "
        "was timed in one and in another isn't the same, and no sealed cache holds it. Seed what is drawn, or make it "
        "an argument of the step"
    )


def _chance(
    run: Run,
    session: Session,
    handle: str,
    reply: NumericsReply,
    limits: tuple[Tolerance, ...],
    control: NumericsReply,
) -> tuple[bool, str, NumericsReply | None]:
    baseline = run.record("baseline", BaselineRecord)
    precise = session.numerics(handle, steps=baseline.numerics_steps, reference=run.folder.precise, precise=True)
    if isinstance(precise, Failure):
        return False, f"it can't be compared with a high-precision reference: {precise.message}", None
    return *second_chance(reply, limits, precise=precise, control=control), precise


def _control(run: Run, home: Home | None, session: Session) -> NumericsReply | str:
    """How far the control is from the high-precision reference; why that can't be told. Asked once a run, and again
    where a cut-off run has lost the file."""
    made = [e for e in run.events if isinstance(e, PreciseReference)]
    if made and made[-1].failure is not None:
        return made[-1].failure.message
    if made and made[-1].control is not None and run.folder.precise.exists():
        return made[-1].control
    if home is None:
        return "no process with the default settings is there to make it"
    run.status("gate", "computing high-precision results")
    try:
        control = _made(run, *home)
    except SessionEnded as ended:
        run.emit(PreciseReference(session=home[0].launch.log.stem, control=None, failure=ended.failure))
        if home[0] is session:
            raise
        return ended.failure.message
    failure = control if isinstance(control, Failure) else None
    run.emit(
        PreciseReference(
            session=home[0].launch.log.stem,
            control=control if isinstance(control, NumericsReply) else None,
            failure=failure,
        )
    )
    return control if isinstance(control, NumericsReply) else control.message


def _made(run: Run, session: Session, handle: str) -> NumericsReply | Failure:
    """Make the reference; the control against it."""
    steps, file = run.record("baseline", BaselineRecord).numerics_steps, run.folder.precise
    saved = session.numerics(handle, steps=steps, reference=file, save=True, precise=True)
    if isinstance(saved, Failure):
        return saved
    return session.numerics(handle, steps=steps, reference=file, precise=True)
