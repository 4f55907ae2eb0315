"""The profile request: a trace of some steps of a candidate, for the profiler's viewers and our own reading."""

from __future__ import annotations

import time
from pathlib import Path

import jax

from tuner.protocol.failure import FailureClass
from tuner.protocol.messages import Profile, ProfileReply
from tuner.worker.failures import Refused
from tuner.worker.session import WorkerSession
from tuner.worker.wait import wait

__all__ = ["profile"]


def profile(session: WorkerSession, request: Profile) -> ProfileReply:
    """Trace `steps` steps, each waited for, after one that is not traced."""
    candidate = session.candidate(request.id)
    folder = Path(request.folder)
    before = _traces(folder)
    try:
        with candidate.configured():
            wait(session.state.first(candidate.call))
            with jax.profiler.trace(str(folder)):
                start = time.perf_counter()
                for _ in range(request.steps):
                    wait(session.state.advance(candidate.call, 1))
                seconds = time.perf_counter() - start
    except BaseException:
        session.state.lose()
        raise
    made = [path for path, written in _traces(folder).items() if written != before.get(path)]
    if not made:
        raise Refused(FailureClass.RUNTIME, f"the profiler left no trace in {folder}")
    return ProfileReply(xplane=str(made[0]), seconds=seconds)


def _traces(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(folder.glob("**/*.xplane.pb"))}
