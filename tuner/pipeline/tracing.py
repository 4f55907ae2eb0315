"""One session's profile: traced as it runs and, on a GPU, once more with every kernel attributed to its operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tuner.pipeline.bench import CONTROL
from tuner.profile import Ceiling, Finding, PartRow, StepProfile, analyse, doubt_of, folding
from tuner.protocol.failure import Failure
from tuner.protocol.messages import Arm, Block, Compiled, Loaded, Profile, ProfileReply, Variant
from tuner.session import Session

__all__ = ["profile_session", "step_seconds", "steps_to_trace"]

_NAMED = "attributed"
# Kernels inside a captured graph don't tell which operation they are of.
_NO_GRAPHS = {"xla_gpu_enable_command_buffer": ""}
_MOST_STEPS = 10
_TRACED_S = 1.0
_TRIES = 3
_BLOCK_S = 0.2  # of consecutive steps, as blocks are in a round
_UNDER_LOAD_S = 0.3  # until a card's clocks are where they stay: from a rest, two H200s' fell by a sixth and came back


def steps_to_trace(step_s: float) -> int:
    """Few enough that a trace stays small, enough that one odd step doesn't decide."""
    return max(3, min(_MOST_STEPS, int(_TRACED_S / max(step_s, 1e-9))))


def step_seconds(session: Session) -> float | Failure:
    """A step of the compiled control, by the clock."""
    entry = session.round([Arm(id=CONTROL, steps=2)])[0]
    return entry.seconds / entry.steps if isinstance(entry, Block) else entry


def profile_session(
    session: Session,
    *,
    loaded: Loaded,
    compiled: Compiled,
    folder: Path,
    steps: int,
    step_s: float,
    ceiling: Callable[[Session], Ceiling | None],
    attribute: bool = True,
) -> StepProfile | Failure:
    """The profile of the session's control, `compiled`, whose step takes about `step_s`, its files in `folder`. Nothing
    should be timed in this session afterwards: a profiler that was attached once may slow what follows.

    `ceiling` gets the device's, from the session if need be. Without `attribute` there is no other trace, and the
    program's schedule tells which operation a kernel in a graph is of. On a CPU the second trace is for the Python
    functions alone. Raises SessionEnded.
    """
    block = max(steps, round(_BLOCK_S / max(step_s, 1e-9)))
    warm_up = max(1, round(_UNDER_LOAD_S / max(step_s, 1e-9)))
    as_run = _as_run(session, steps=steps, folder=folder / "as-run", block=block, warm_up=warm_up)
    if isinstance(as_run, Failure):
        return as_run
    named = None
    if attribute and _compiled_for_names(session, loaded.platform):
        handle = CONTROL if loaded.platform == "cpu" else _NAMED
        second = session.profile(Profile(id=handle, steps=min(steps, 3), folder=str(folder / _NAMED), python=True))
        named = None if isinstance(second, Failure) else second
    files = {"trace": as_run.xplane, "perfetto": as_run.perfetto, "memory": as_run.memory}
    files |= {f"hlo {name}": path for name, path in as_run.hlo.items()}
    files |= {f"trace, rank {rank}": reply.xplane for rank, reply in enumerate(as_run.ranks, 1)}
    if named is not None:
        files["attributed trace"] = named.xplane
    texts = [Path(path).read_text(errors="replace") for path in as_run.hlo.values()]
    found = analyse(
        as_run,
        texts,
        named=named,
        ceiling=ceiling(session),
        files={name: path for name, path in files.items() if path},
        recompiled=loaded.recompiled,
    )
    return msgspec.structs.replace(
        found,
        compile_s=compiled.lower_s + compiled.compile_s,
        parts=_parts(as_run.each_s, loaded.weights),
        findings=(*_folded(session.launch.log, found), *found.findings),
    )


def _parts(each_s: Mapping[str, float], weights: Mapping[str, float]) -> tuple[PartRow, ...]:
    """The workload's steps, that first which takes most of a unit's time."""
    taken = {name: seconds * weights.get(name, 1.0) for name, seconds in each_s.items()}
    whole = sum(taken.values())
    rows = [
        PartRow(name=name, ms=1e3 * each_s[name], weight=weights.get(name, 1.0), share=one / whole if whole else 0.0)
        for name, one in taken.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.share))


def _folded(log: Path, found: StepProfile) -> tuple[Finding, ...]:
    """What the compiler complained of; nothing where the processes' logs lie elsewhere."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return ()
    return folding(text, where=next((f.where for f in found.findings if f.kind == "constants"), ""))


def _as_run(session: Session, *, steps: int, folder: Path, block: int, warm_up: int) -> ProfileReply | Failure:
    """The trace; taken again, within a bound, while it and the clock can't be of one step."""
    request = Profile(id=CONTROL, steps=steps, folder=str(folder), block=block, warm_up=warm_up)
    for _ in range(_TRIES):
        found = session.profile(request)
        if isinstance(found, Failure) or not doubt_of(found):
            break
    return found


def _compiled_for_names(session: Session, platform: str) -> bool:
    """Whether there is something to trace for names: on a GPU the same settings without graphs, compiled here."""
    if platform == "cpu":
        return True
    made = session.compile([Variant(id=_NAMED, compiler_options=dict(_NO_GRAPHS))]).results[0]
    return isinstance(made, Compiled)
