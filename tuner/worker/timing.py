"""The round request: blocks of consecutive steps, timed one candidate after another."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Round, RoundReply
from tuner.worker.failures import Refused, failure_of
from tuner.worker.internals import cache_size
from tuner.worker.session import Candidate, WorkerSession
from tuner.worker.wait import wait

__all__ = ["time_round"]

_ATTEMPTS = 3  # blocks begun before giving up on a step that meets new shardings and compiles while it is timed


def time_round(session: WorkerSession, request: Round) -> RoundReply:
    """Time the arms in the given order. An arm that fails is a Failure in its place; the next one starts from a
    restored state."""
    session.quiet()
    if request.reset:
        session.state.reset()
    return RoundReply(blocks=tuple(_arm(session, arm) for arm in request.arms))


def _arm(session: WorkerSession, arm: Arm) -> Block | Failure:
    try:
        if arm.steps < 1:
            raise Refused(FailureClass.PROTOCOL, f"an arm of {arm.steps} steps")
        candidate = session.candidate(arm.id)
        with candidate.configured(), _no_collections():
            return _block(session, candidate, arm)
    except Exception as error:
        session.state.lose()
        return failure_of(error, "round")


def _block(session: WorkerSession, candidate: Candidate, arm: Arm) -> Block:
    for _ in range(_ATTEMPTS):
        start = time.perf_counter()
        wait(session.state.first(candidate.call))
        first_s = time.perf_counter() - start
        before = cache_size(candidate.jitted)
        start = time.perf_counter()
        out = session.state.advance(candidate.call, arm.steps)
        wait(out)
        seconds = time.perf_counter() - start
        del out
        if cache_size(candidate.jitted) == before:
            break
    else:
        raise Refused(FailureClass.RUNTIME, f"the step compiled anew inside each of {_ATTEMPTS} blocks")
    if not (math.isfinite(seconds) and seconds > 0):
        raise Refused(FailureClass.INVALID_TIME, f"the clock says that {arm.steps} steps took {seconds} s")
    return Block(id=arm.id, steps=arm.steps, seconds=seconds, first_s=first_s)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """No garbage collection inside: it would hit one arm and not another."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
