"""The profile request: a trace of some steps of a candidate, for the profiler's viewers and for our own reading."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

import jax

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Profile, ProfileReply, Round
from tuner.worker.failures import Refused
from tuner.worker.nsight import marked
from tuner.worker.session import Candidate, WorkerSession
from tuner.worker.timing import time_round
from tuner.worker.trace import STEP, read_trace
from tuner.worker.wait import wait

__all__ = ["profile"]

_WARM_UP = 2
_BLOCKS = 3
_CALLS = 9
_CALLING = 0.3  # of a step: where the host takes so much of it to call, its operations are many and short
_FEW = 16  # steps of such a kind in a row within the trace, which their events make large


def profile(session: WorkerSession, request: Profile) -> ProfileReply:
    """Trace `steps` steps, each waited for and marked, after some that are not. Nothing compiles in the trace that the
    step itself doesn't compile. What a step takes is timed before: a profiler slows the host down, and what comes after
    it. A device rests while a profiler starts, and under load its clocks then go down and up again until they are
    where they stay: where times count, as many steps run before the marked ones as before those that are timed
    without it, and a block of them is timed under the profiler too, which tells what that does to work itself. Fewer
    where operations are many and short: those leave a card's power unused, and their clocks where they are."""
    candidate = session.candidate(request.id)
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = _files(folder, "*.xplane.pb")
    compiled = session.events.places.counts()
    plain_s, each_s = _plain_s(session, request) if request.block else (0.0, {})
    under_s = 0.0
    recompiled = session.events.places.since(compiled, often=_BLOCKS) if request.block else ()
    try:
        with candidate.configured():
            wait(session.state.first(candidate.call))
            for _ in range(_WARM_UP):
                wait(session.state.advance(candidate.call, 1))
            dispatch_s = _dispatch_s(session, candidate) if request.block else 0.0
            most = _most(session, dense=dispatch_s > _CALLING * plain_s)
            with marked() if request.nsight else _trace(session, request):
                if request.block and not request.nsight:
                    under_s = _under_s(session, candidate, request, most=most)
                start = time.perf_counter()
                for number in range(request.steps):
                    with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                        wait(session.state.advance(candidate.call, 1))
                seconds = time.perf_counter() - start
    except BaseException:
        session.state.lose()
        raise
    hlo = _write_hlo(candidate, folder)
    if request.nsight:
        return ProfileReply(
            xplane="",
            seconds=seconds,
            plain_s=plain_s,
            dispatch_s=dispatch_s,
            each_s=each_s,
            hlo=hlo,
            recompiled=recompiled,
        )
    made = [path for path, written in _files(folder, "*.xplane.pb").items() if written != before.get(path)]
    if not made:
        raise Refused(FailureClass.RUNTIME, f"the profiler left no trace in {folder}")
    memory = folder / "memory.pprof"
    jax.profiler.save_device_memory_profile(str(memory))
    labels, lines = read_trace(made[0], python=request.python)
    perfetto = made[0].with_name("perfetto_trace.json.gz")
    return ProfileReply(
        xplane=str(made[0]),
        seconds=seconds,
        plain_s=plain_s,
        under_s=under_s,
        dispatch_s=dispatch_s,
        each_s=each_s,
        perfetto=str(perfetto) if perfetto.exists() else "",
        memory=str(memory) if memory.exists() else "",
        hlo=hlo,
        labels=labels,
        lines=lines,
        recompiled=recompiled,
    )


def _trace(session: WorkerSession, request: Profile) -> AbstractContextManager[Any]:
    """A trace without Python functions where they aren't asked for, and on a GPU without the runtime's finer events:
    both slow the host down. A CPU's operations are among the finer ones."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = int(request.python)
    options.host_tracer_level = 2 if session.platform == "cpu" else 1
    return jax.profiler.trace(request.folder, create_perfetto_trace=not request.python, profiler_options=options)


def _plain_s(session: WorkerSession, request: Profile) -> tuple[float, dict[str, float]]:
    """Seconds of one step of each part together, and of each, in blocks as they are timed elsewhere."""
    arm = Arm(id=request.id, steps=request.block, warm_up=max(1, request.warm_up))
    blocks = time_round(session, Round(arms=(arm,) * _BLOCKS)).blocks
    failed = next((block for block in blocks if isinstance(block, Failure)), None)
    if failed is not None:
        raise Refused(failed.kind, failed.message)
    timed = [block for block in blocks if isinstance(block, Block)]
    each_s = {name: median(block.parts[name] for block in timed) for name in timed[0].parts}
    return sum(each_s.values()) if each_s else median(block.seconds / block.steps for block in timed), each_s


def _most(session: WorkerSession, *, dense: bool) -> int | None:
    """The most steps to run in a row within the trace, None for any number; `dense`: their operations are many. It is
    the same on all ranks, which wait for each other in steps."""
    return _FEW if (dense if session.gang is None else session.gang.anybody(dense)) else None


def _under_s(session: WorkerSession, candidate: Candidate, request: Profile, *, most: int | None) -> float:
    """Seconds of one step of each part, in a block as `_plain_s` times it, here; of at most `most` steps."""
    block = min(request.block, most or request.block)
    warm_up = max(1, request.warm_up)
    wait(session.state.advance(candidate.call, min(warm_up, most or warm_up)))
    start = time.perf_counter()
    wait(session.state.advance(candidate.call, block))
    return (time.perf_counter() - start) / block


def _dispatch_s(session: WorkerSession, candidate: Candidate) -> float:
    """Seconds that the host takes to call a step while the device has nothing to do: with steps ahead of it, the host
    soon waits until the device has taken them."""
    taken = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        out = session.state.advance(candidate.call, 1)
        taken.append(time.perf_counter() - start)
        wait(out)
    return median(taken)


def _write_hlo(candidate: Candidate, folder: Path) -> dict[str, str]:
    """Each step's optimised module as text, by its name; of several of one name, numbered."""
    files: dict[str, str] = {}
    for compiled in candidate.compiled.values():
        text = compiled.as_text() or ""
        name = text.removeprefix("HloModule ").split(",", 1)[0].split("\n", 1)[0].strip() or "module"
        name = f"{name}-{len(files)}" if name in files else name
        path = folder / f"{name}.hlo.txt"
        path.write_text(text)
        files[name] = str(path)
    return files


def _files(folder: Path, pattern: str) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.glob(f"**/{pattern}"))}
