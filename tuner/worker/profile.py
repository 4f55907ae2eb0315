"""The profile request: a trace of some steps of a candidate, for the profiler's viewers and for our own reading."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

import jax

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Profile, ProfileReply
from tuner.worker.failures import Refused
from tuner.worker.nsight import marked
from tuner.worker.session import Candidate, WorkerSession
from tuner.worker.trace import STEP, read_trace
from tuner.worker.wait import wait

__all__ = ["profile"]

_WARM_UP = 2


def profile(session: WorkerSession, request: Profile) -> ProfileReply:
    """Trace `steps` steps, each waited for and marked, after some that are not traced. Nothing compiles in the trace
    that the step itself doesn't compile."""
    candidate = session.candidate(request.id)
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    before = _files(folder, "*.xplane.pb")
    try:
        with candidate.configured():
            wait(session.state.first(candidate.call))
            plain = [_step(session, candidate) for _ in range(_WARM_UP + request.steps)]
            with marked() if request.nsight else _trace(request):
                start = time.perf_counter()
                for number in range(request.steps):
                    with jax.profiler.StepTraceAnnotation(STEP, step_num=number):
                        _step(session, candidate)
                seconds = time.perf_counter() - start
    except BaseException:
        session.state.lose()
        raise
    hlo, plain_s = _write_hlo(candidate, folder), median(plain[_WARM_UP:])
    if request.nsight:
        return ProfileReply(xplane="", seconds=seconds, plain_s=plain_s, hlo=hlo)
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
        perfetto=str(perfetto) if perfetto.exists() else "",
        memory=str(memory) if memory.exists() else "",
        hlo=hlo,
        labels=labels,
        lines=lines,
    )


def _trace(request: Profile) -> AbstractContextManager[Any]:
    """A trace without Python functions where they aren't asked for: they slow the host down."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = int(request.python)
    options.host_tracer_level = 2
    return jax.profiler.trace(request.folder, create_perfetto_trace=True, profiler_options=options)


def _step(session: WorkerSession, candidate: Candidate) -> float:
    start = time.perf_counter()
    wait(session.state.advance(candidate.call, 1))
    return time.perf_counter() - start


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
