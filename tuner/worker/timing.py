"""The round request: blocks of consecutive steps, timed together or each by itself, one candidate after another."""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.protocol.failure import Failure, FailureClass
from tuner.protocol.messages import Arm, Block, Round, RoundReply
from tuner.worker.failures import Refused, failure_of
from tuner.worker.gang import Member, together
from tuner.worker.internals import cache_size
from tuner.worker.session import Candidate, WorkerSession
from tuner.worker.state import State
from tuner.worker.wait import wait
from tuner.worker.workload import ONLY

__all__ = ["time_round"]

_ATTEMPTS = 3  # blocks begun before giving up on a step that meets new shardings and compiles while it is timed


def time_round(session: WorkerSession, request: Round) -> RoundReply:
    """Time the arms in the given order. An arm that fails is a Failure in its place; the next one starts from a
    restored state."""
    start = time.perf_counter()
    session.quiet()
    if request.reset:
        session.state.reset()
    reset_s = time.perf_counter() - start
    blocks = [_arm(session, arm) for arm in request.arms]
    blocks[:1] = [replace(block, reset_s=reset_s) if isinstance(block, Block) else block for block in blocks[:1]]
    return RoundReply(blocks=tuple(blocks))


def _arm(session: WorkerSession, arm: Arm) -> Block | Failure:
    try:
        if arm.steps < 1 or arm.warm_up < 1 or arm.opening < 0:
            raise Refused(FailureClass.PROTOCOL, f"an arm of {arm.steps} steps after {arm.warm_up} and {arm.opening}")
        if arm.quantile is not None and not 0 <= arm.quantile <= 1:
            raise Refused(FailureClass.PROTOCOL, f"{arm.quantile} is no quantile")
        if session.gang is not None:
            session.gang.reporter.at(arm.id)
        block, ranks = together(session.gang, "round", lambda: _timed(session, arm), apart=lambda b: {"s": b.step_s})
        return replace(block, ranks_s=tuple(said["s"] for said in ranks))
    except Exception as error:
        session.state.lose()
        return failure_of(error, "round")


def _timed(session: WorkerSession, arm: Arm) -> Block:
    candidate = session.candidate(arm.id)
    with candidate.configured(), _no_collections():
        return _block(session, candidate, arm)


@dataclass(frozen=True)
class _Timed:
    """One step's part of a block. `value_s`: seconds a step, or their quantile."""

    first_s: float
    seconds: float
    value_s: float


def _block(session: WorkerSession, candidate: Candidate, arm: Arm) -> Block:
    heaviest = max(part.weight for part in session.parts)
    shares = {part.name: part.weight / heaviest if arm.quantile is None else 1.0 for part in session.parts}
    opening_s = _opening_s(session, candidate, {name: round(arm.opening * share) for name, share in shares.items()})
    timed: dict[str, _Timed] = {}
    for name, share in shares.items():
        steps = max(1, round(arm.steps * share))
        timed[name] = _part(session.state.parts[name], candidate, name, arm, steps, session.gang)
    seconds = sum(one.seconds for one in timed.values())
    plain = arm.quantile is None and ONLY in timed
    return Block(
        id=arm.id,
        steps=arm.steps,
        seconds=seconds,
        first_s=opening_s + sum(one.first_s for one in timed.values()),
        value_s=None if plain else sum(part.weight * timed[part.name].value_s for part in session.parts),
        parts={name: one.value_s for name, one in timed.items() if name != ONLY},
    )


def _opening_s(session: WorkerSession, candidate: Candidate, counts: dict[str, int]) -> float:
    """Seconds that so many steps of each take."""
    start = time.perf_counter()
    for name, steps in counts.items():
        if steps:
            _discard(session.state.parts[name], candidate.call[name], steps)
    return time.perf_counter() - start


def _discard(state: State, call: Callable[..., Any], steps: int) -> None:
    wait(state.first(call))
    if steps > 1:
        wait(state.advance(call, steps - 1))


def _part(state: State, candidate: Candidate, name: str, arm: Arm, steps: int, gang: Member | None) -> _Timed:
    call, jitted = candidate.call[name], candidate.jitted[name]
    for _ in range(_ATTEMPTS):
        start = time.perf_counter()
        _discard(state, call, arm.warm_up)
        first_s = time.perf_counter() - start
        before = cache_size(jitted)
        start = time.perf_counter()
        if arm.quantile is None:
            wait(state.advance(call, steps))
            seconds = time.perf_counter() - start
            value_s = seconds / steps
        else:
            times = _one_by_one(state, call, steps)
            seconds = time.perf_counter() - start
            value_s = float(np.quantile(times, arm.quantile))
        grew = cache_size(jitted) != before
        if not (grew if gang is None else gang.anybody(grew)):
            break
    else:
        raise Refused(FailureClass.RUNTIME, f"the step compiled anew inside each of {_ATTEMPTS} blocks")
    if not all(math.isfinite(x) and x > 0 for x in (seconds, value_s)):
        raise Refused(FailureClass.INVALID_TIME, f"the clock says that {steps} steps took {seconds} s")
    return _Timed(first_s, seconds, value_s)


def _one_by_one(state: State, call: Callable[..., Any], steps: int) -> list[float]:
    """Seconds of each of `steps` steps, from its call until its last output is ready; nothing else is in them."""
    times: list[float] = []
    now = time.perf_counter

    def clocked(*args: Any, **kwargs: Any) -> Any:
        start = now()
        out = wait(call(*args, **kwargs))
        times.append(now() - start)
        return out

    state.advance(clocked, steps)
    return times


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
